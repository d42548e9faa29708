//! `gable admin …`: administration commands that work on the data itself, also while the server is running.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use forge::{
    Caller, Forge, InstanceKey, Options, Unvalidated,
    clock::SystemSecrets,
    nodes::{self, ListedNode},
    runners, tasks, tokens,
    users::{self, NewUserRequest, UserUpdate},
};
use jiff::SignedDuration;
use model::{
    Page, Scope, Time,
    tokens::Secret,
    users::{NewUser, UserChanges, UserFilter},
};
use serde::Serialize;
use store::{Database, instance::DatabaseContent};

use crate::{
    commands::{
        Admin, AdminCommand, AdminRunnerCommand, InstanceCommand, NodeCommand, TaskCommand, TokenCommand, UserCommand,
    },
    config::{self, Config, Location},
    data_folder::{self, DataFolder, require_instance},
    exit::{CommandResult, Failure, print_line, print_stdout},
    forge_options::{ForgeMode, forge_options},
    instance, migrate,
};

/// Runs an `admin` command.
pub(crate) fn run(command: Admin) -> CommandResult {
    if let AdminCommand::Token(TokenCommand::Create { scopes, .. }) = &command.command {
        parse_scopes(scopes).map_err(Failure::Usage)?;
    }
    if let AdminCommand::Instance(InstanceCommand::CreateKey { file }) = &command.command {
        return Ok(create_key(file)?);
    }
    let Config { location, default_projects_limit, .. } = config::load(command.location)?;
    if let AdminCommand::Instance(command) = command.command {
        return Ok(instance_command(&location, default_projects_limit, command)?);
    }
    let forge = open(&location, default_projects_limit, Ok)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        match command.command {
            AdminCommand::User(command) => user(&forge, command).await,
            AdminCommand::Token(command) => token(&forge, command).await,
            AdminCommand::Task(command) => task(&forge, command).await,
            AdminCommand::Runner(command) => runner(&forge, command).await,
            AdminCommand::Node(NodeCommand::List { json }) => list_nodes(&forge, json).await,
            AdminCommand::Instance(_) => Ok(()),
        }
    })?;
    Ok(())
}

fn parse_scopes(words: &[String]) -> Result<Vec<Scope>> {
    let parse =
        |word: &String| Scope::parse(word).with_context(|| format!("unknown scope {word}; choose api or read_user"));
    words.iter().map(parse).collect()
}

/// Opens the instance for a command, with options that `adjust` may change. If no server is running, pending migrations are
/// applied.
pub(crate) fn open(
    location: &Location,
    default_projects_limit: i32,
    adjust: impl FnOnce(Options) -> Result<Options>,
) -> Result<Forge> {
    let folder = DataFolder::open_existing(location)?;
    let opening_lock = folder.lock_for_opening()?;
    let database = folder.existing_database(location.database.as_deref())?;
    match folder.lock()? {
        Some(_lock) => migrate::apply_pending(&folder, &database)?,
        None => database.check_version()?,
    }
    let mut db = database.connect_writer()?;
    let key = folder.open_key(&mut db)?;
    drop(db);
    let options = forge_options(&folder, database, key, default_projects_limit, ForgeMode::Administer)?;
    drop(opening_lock);
    let options = adjust(Options { readers: 1, blocking: 1, ..options })?;
    Ok(Forge::start(options)?)
}

/// Runs an `admin instance` command; the server must be stopped.
fn instance_command(location: &Location, default_projects_limit: i32, command: InstanceCommand) -> Result<()> {
    let (data, database) = (location.folder.as_path(), location.database.as_deref());
    if location.shared.is_some() {
        return shared_instance_command(location, &command);
    }
    let folder = match (&command, require_instance(data)) {
        (_, Ok(())) => DataFolder::open(data)?,
        // The data folder may be lost while the database still exists.
        (InstanceCommand::Rebind, Err(error)) => match database.map(data_folder::postgres).transpose()? {
            Some(database) if holds_instance(&database)? => DataFolder::open(data)?,
            _ => return Err(error),
        },
        (InstanceCommand::NewKey { .. } | InstanceCommand::CreateKey { .. }, Err(error)) => return Err(error),
    };
    let _opening_lock = folder.lock_for_opening()?;
    let Some(_lock) = folder.lock()? else {
        bail!("a gable server is using the data folder {}; stop it first", folder.path().display());
    };
    match command {
        InstanceCommand::CreateKey { file } => create_key(&file),
        InstanceCommand::Rebind => {
            let database = folder.database(database)?;
            instance::rebind(&folder, &database, default_projects_limit)
        }
        InstanceCommand::NewKey { yes } => {
            let database = folder.existing_database(database)?;
            migrate::apply_pending(&folder, &database)?;
            instance::replace_key(&folder, &database, yes)
        }
    }
}

/// Runs an `admin instance` command on an instance whose files are in a bucket; all nodes must be stopped.
fn shared_instance_command(location: &Location, command: &InstanceCommand) -> Result<()> {
    let InstanceCommand::NewKey { yes } = command else {
        bail!(
            "this command is for an instance with a data folder; with a store, specify a database and a store that belong \
             together"
        );
    };
    let folder = DataFolder::of(location)?;
    let _opening_lock = folder.lock_for_opening()?;
    let Some(_lock) = folder.lock()? else {
        bail!("a gable server is using the cache folder {}; stop all nodes first", folder.path().display());
    };
    let database = folder.existing_database(location.database.as_deref())?;
    migrate::apply_pending(&folder, &database)?;
    let running = nodes::running(&database)?;
    if !running.is_empty() {
        bail!("nodes are running: {}; stop them first", running.join(", "));
    }
    instance::replace_key(&folder, &database, *yes)?;
    if *yes {
        print_line(&format!("copy {} to all nodes before you start them", folder.instance_key_path().display()));
    }
    Ok(())
}

/// Writes a new instance key to a file that does not exist.
fn create_key(file: &Path) -> Result<()> {
    write_key(file, &InstanceKey::generate(&SystemSecrets))?;
    print_line(&format!("created {}; copy it to all nodes, and keep a copy in a safe place", file.display()));
    Ok(())
}

/// Writes an instance key to a new file.
pub(crate) fn write_key(file: &Path, key: &InstanceKey) -> Result<()> {
    let context = || format!("cannot create {}", file.display());
    let mut created =
        data_folder::owner_only(OpenOptions::new().write(true).create_new(true)).open(file).with_context(context)?;
    created.write_all(format!("{}\n", key.to_text().reveal()).as_bytes()).with_context(context)?;
    created.sync_all().with_context(context)?;
    // Makes the new name durable.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(context)
}

fn holds_instance(database: &Database) -> Result<bool> {
    Ok(database.content()? != DatabaseContent::Empty)
}

async fn user(forge: &Forge, command: UserCommand) -> Result<()> {
    match command {
        UserCommand::Create { username, email, name, admin, password_stdin } => {
            let (password, generated) = password(password_stdin)?;
            let name = name.unwrap_or_else(|| username.clone());
            let user = NewUser { admin, ..NewUser::new(&username, &email, &name) };
            let given = Unvalidated::valid(NewUserRequest { user, password: password.reveal().to_owned() });
            let ready = forge.run_blocking(Caller::system(), move |tx| users::prepare_create(tx, &given)).await;
            let ready = ready?;
            let user = forge.write(Caller::system(), move |tx| users::create(tx, &ready)).await?;
            print_checked(&format!("created user {} with id {}", user.username, user.id))?;
            print_generated_password(&password, generated)
        }
        UserCommand::List => list_users(forge).await,
        UserCommand::Block { username } => {
            let name = username.clone();
            let block = move |tx: &mut forge::WriteTx<'_>| {
                let id = users::id_of(tx.read(), &name)?;
                users::block(tx, id)
            };
            forge.write(Caller::system(), block).await.map_err(|error| user_error(&username, error))?;
            print_checked(&format!("blocked user {username}"))
        }
        UserCommand::Unblock { username } => {
            let name = username.clone();
            let unblock = move |tx: &mut forge::WriteTx<'_>| {
                let id = users::id_of(tx.read(), &name)?;
                users::unblock(tx, id)
            };
            forge.write(Caller::system(), unblock).await.map_err(|error| user_error(&username, error))?;
            print_checked(&format!("unblocked user {username}"))
        }
        UserCommand::Delete { username, yes } => delete_user(forge, username, yes).await,
        UserCommand::Password { username, password_stdin } => {
            let (password, generated) = password(password_stdin)?;
            let name = username.clone();
            let id = forge.read(Caller::system(), move |tx| users::id_of(tx, &name)).await;
            let id = id.map_err(|error| user_error(&username, error))?;
            let edit = UserUpdate { changes: UserChanges::default(), password: Some(password.reveal().to_owned()) };
            let given = Unvalidated::valid(edit);
            let ready = forge.run_blocking(Caller::system(), move |tx| users::prepare_update(tx, id, &given)).await;
            let ready = ready?;
            forge.write(Caller::system(), move |tx| users::update(tx, id, &ready)).await?;
            print_checked(&format!("changed the password of user {username}"))?;
            print_generated_password(&password, generated)
        }
    }
}

async fn delete_user(forge: &Forge, username: String, yes: bool) -> Result<()> {
    let name = username.clone();
    let find = move |tx: &mut forge::ReadTx<'_>| {
        let id = users::id_of(tx, &name)?;
        users::get(tx, id)
    };
    let user = forge.read(Caller::system(), find).await.map_err(|error| user_error(&username, error))?;
    let projects = match user.personal_projects {
        1 => "1 personal project".to_owned(),
        count => format!("{count} personal projects"),
    };
    if !yes {
        bail!("this deletes user {username} with {projects} and cannot be undone; confirm with --yes");
    }
    let id = user.id;
    let deleted = forge.write(Caller::system(), move |tx| users::delete(tx, id)).await?;
    if deleted.is_none() {
        bail!("user {username} does not exist");
    }
    print_checked(&format!("deleted user {username} with {projects}"))
}

async fn list_users(forge: &Forge) -> Result<()> {
    let mut table = format!("{:>6}  {:<24} {:<13} {:<6} {}\n", "id", "username", "state", "admin", "email");
    for number in 1.. {
        let page = Unvalidated::valid(Page::new(Some(number), Some(model::page::MAX_SIZE)));
        let filter = Unvalidated::valid(UserFilter::default());
        let users = forge.read(Caller::system(), move |tx| users::list(tx, &filter, &page)).await?;
        for user in &users.items {
            let admin = if user.admin { "yes" } else { "no" };
            let state = user.state.as_str();
            table += &format!("{:>6}  {:<24} {state:<13} {admin:<6} {}\n", user.id, user.username, user.email);
        }
        if users.items.is_empty() {
            break;
        }
    }
    print_stdout(table.as_bytes())
}

async fn token(forge: &Forge, command: TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Create { username, name, scopes, expires_in_days, no_expiry } => {
            let scopes = parse_scopes(&scopes)?;
            let end = (!no_expiry).then(|| forge.now() + SignedDuration::from_hours(24 * expires_in_days));
            let owner = username.clone();
            let created = forge
                .write(Caller::system(), move |tx| tokens::create(tx, &owner, &name, &scopes, end))
                .await
                .map_err(|error| user_error(&username, error))?;
            let validity =
                created.0.expires_at.map_or("until it is revoked".into(), |end| format!("until {}", format_date(end)));
            print_checked(&format!(
                "created token {} for user {username}, valid {validity}; it is shown only once:",
                created.0.id
            ))?;
            print_checked(created.1.reveal())
        }
        TokenCommand::List { username } => {
            let owner = username.clone();
            let tokens = forge.read(Caller::system(), move |tx| tokens::list(tx, &owner)).await;
            let tokens = tokens.map_err(|error| user_error(&username, error))?;
            let mut table = format!(
                "{:>6}  {:<10} {:<10} {:<10} {:<10} {}\n",
                "id", "created", "last used", "expires", "scopes", "name"
            );
            let now = forge.now();
            for token in tokens {
                let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.as_str()).collect();
                let expires = match (token.revoked_at, token.expires_at) {
                    (Some(_), _) => "revoked".into(),
                    (None, None) => "never".into(),
                    (None, Some(end)) if end <= now => "expired".into(),
                    (None, Some(end)) => format_date(end),
                };
                let used = token.last_used_at.map_or("never".into(), format_date);
                let (id, created, scopes) = (token.id, format_date(token.created_at), scopes.join(","));
                let name = if token.session {
                    format!("{} (revoked when the password changes)", token.name)
                } else {
                    token.name
                };
                table += &format!("{id:>6}  {created:<10} {used:<10} {expires:<10} {scopes:<10} {name}\n");
            }
            print_stdout(table.as_bytes())
        }
        TokenCommand::Revoke { id } => {
            forge.write(Caller::system(), move |tx| tokens::revoke(tx, id)).await.map_err(|error| match error {
                forge::Error::NotFound(_) => anyhow!("token {id} does not exist or is already revoked"),
                other => other.into(),
            })?;
            print_checked(&format!("revoked token {id}"))
        }
    }
}

async fn task(forge: &Forge, command: TaskCommand) -> Result<()> {
    match command {
        TaskCommand::List => {
            let mut table = format!(
                "{:>6}  {:<20} {:<7} {:>8}  {:<20} {}\n",
                "id", "kind", "state", "attempts", "due", "last error"
            );
            for task in forge.read(Caller::system(), tasks::list).await? {
                let state = if task.dead_at.is_some() { "dead" } else { "waiting" };
                let due = task.run_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let error = task.last_error.unwrap_or_default();
                let (id, kind, attempts) = (task.id, task.kind, task.attempts);
                table += &format!("{id:>6}  {kind:<20} {state:<7} {attempts:>8}  {due:<20} {error}\n");
            }
            print_stdout(table.as_bytes())
        }
        TaskCommand::Retry { id } => {
            forge.write(Caller::system(), move |tx| tasks::retry(tx, id)).await.map_err(|error| match error {
                forge::Error::NotFound(_) => anyhow!("task {id} does not exist or has not failed"),
                other => other.into(),
            })?;
            print_checked(&format!("task {id} will be retried"))
        }
    }
}

async fn runner(forge: &Forge, command: AdminRunnerCommand) -> Result<()> {
    match command {
        AdminRunnerCommand::Token { reset } => {
            let token = move |tx: &mut forge::WriteTx<'_>| {
                if reset { runners::reset_registration_token(tx) } else { runners::registration_token(tx) }
            };
            print_checked(forge.write(Caller::system(), token).await?.reveal())
        }
        AdminRunnerCommand::List => list_runners(forge).await,
    }
}

async fn list_runners(forge: &Forge) -> Result<()> {
    let mut table =
        format!("{:>6}  {:<8} {:<6} {:<20} {:<24} {}\n", "id", "kind", "active", "last contact", "tags", "description");
    for number in 1.. {
        let page = Unvalidated::valid(Page::new(Some(number), Some(model::page::MAX_SIZE)));
        let runners_page =
            forge.read(Caller::system(), move |tx| runners::list_all(tx, &Unvalidated::valid(None), &page)).await?;
        for runner in &runners_page.items {
            let kind = if runner.is_shared { "shared" } else { "specific" };
            let active = if runner.active { "yes" } else { "no" };
            let contacted =
                runner.contacted_at.map_or("never".into(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            let (id, tags, description) = (runner.id, runner.tags.join(","), &runner.description);
            table += &format!("{id:>6}  {kind:<8} {active:<6} {contacted:<20} {tags:<24} {description}\n");
        }
        if runners_page.items.is_empty() {
            break;
        }
    }
    print_stdout(table.as_bytes())
}

/// A node in JSON.
#[derive(Serialize)]
struct NodeJson<'a> {
    id: &'a str,
    name: &'a str,
    version: &'a str,
    addresses: Vec<&'a str>,
    started_at: String,
    heartbeat_at: String,
    /// `serving`, `draining` or `silent`.
    state: &'static str,
}

impl<'a> NodeJson<'a> {
    fn new(ListedNode { node, is_silent, .. }: &'a ListedNode) -> Self {
        Self {
            id: &node.id,
            name: &node.name,
            version: &node.version,
            addresses: node.addresses.split(' ').collect(),
            started_at: format_time(node.started_at),
            heartbeat_at: format_time(node.heartbeat_at),
            state: if *is_silent { "silent" } else { node.state.as_str() },
        }
    }
}

async fn list_nodes(forge: &Forge, json: bool) -> Result<()> {
    let nodes = forge.read(Caller::system(), nodes::list).await?;
    if json {
        let nodes: Vec<NodeJson<'_>> = nodes.iter().map(NodeJson::new).collect();
        return print_stdout(format!("{}\n", serde_json::to_string_pretty(&nodes)?).as_bytes());
    }
    let mut table = format!(
        "{:<24} {:<10} {:<20} {:>9}  {:<18} {}\n",
        "name", "version", "started", "heartbeat", "state", "addresses"
    );
    for ListedNode { node, heartbeat_age, is_silent } in nodes {
        let age = heartbeat_age.as_secs();
        let state = if is_silent { format!("silent for {age} s") } else { node.state.as_str().to_owned() };
        let (name, version, started, addresses) =
            (node.name, node.version, format_time(node.started_at), node.addresses);
        table +=
            &format!("{name:<24} {version:<10} {started:<20} {:>9}  {state:<18} {addresses}\n", format!("{age} s"));
    }
    print_stdout(table.as_bytes())
}

fn format_time(time: Time) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the password from standard input or a random one, and whether it was generated.
fn password(from_stdin: bool) -> Result<(Secret, bool)> {
    if !from_stdin {
        return Ok((forge::clock::Secrets::token(&SystemSecrets), true));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the password")?;
    Ok((Secret::new(text.trim_end_matches(['\r', '\n']).to_owned()), false))
}

fn print_generated_password(password: &Secret, generated: bool) -> Result<()> {
    if generated { print_checked(&format!("the password is shown only once: {}", password.reveal())) } else { Ok(()) }
}

fn format_date(time: Time) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

fn user_error(username: &str, error: forge::Error) -> Error {
    match error {
        forge::Error::NotFound(_) => anyhow!("user {username} does not exist"),
        other => other.into(),
    }
}

/// Prints a line; unlike `exit::print_line` it reports errors, because the line may be a secret that is shown once.
fn print_checked(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")
}
