//! `gable admin …`: the operator's commands, on the data itself, whether or not the service runs.

use std::{
    io::{Read as _, Write as _},
    path::Path,
};

use forge::{
    Caller, Forge, Unvalidated, runners, tasks, tokens,
    users::{self, Edit, Registration},
};
use jiff::SignedDuration;
use model::{
    Page, Scope, Time,
    tokens::Secret,
    users::{NewUser, UserChanges, UserFilter},
};
use store::{Database, instance::Content};

use crate::{
    Outcome,
    commands::{Admin, InstanceCommand, JobCommand, RunnersCommand, TokenCommand, Topic, UserCommand},
    config::{self, Config},
    data_folder::{self, DataFolder, require_instance},
    exit::{Ending, Failure, show},
    instance, migrate,
    serve::{Use, forge_options},
};

/// Runs one command.
pub(crate) fn run(command: Admin) -> Ending {
    if let Topic::Token(TokenCommand::Create { scopes, .. }) = &command.topic {
        parse_scopes(scopes).map_err(Failure::Misused)?;
    }
    let Config { data, database, default_projects_limit, .. } = config::load(command.place.into())?;
    if let Topic::Instance(command) = command.topic {
        return Ok(instance_command(&data, database.as_deref(), default_projects_limit, command)?);
    }
    let forge = open(&data, database.as_deref(), default_projects_limit)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        match command.topic {
            Topic::User(command) => user(&forge, command).await,
            Topic::Token(command) => token(&forge, command).await,
            Topic::Job(command) => job(&forge, command).await,
            Topic::Runner(command) => runner(&forge, command).await,
            Topic::Instance(_) => Ok(()),
        }
    })?;
    Ok(())
}

fn parse_scopes(words: &[String]) -> Result<Vec<Scope>, String> {
    let parse =
        |word: &String| Scope::from_word(word).ok_or_else(|| format!("a scope is api or read_user, not {word}"));
    words.iter().map(parse).collect()
}

/// Opens the data beside a running server, or brings it up to date where none runs.
fn open(data: &Path, database: Option<&str>, default_projects_limit: i32) -> Result<Forge, String> {
    let folder = DataFolder::open_existing(data)?;
    let turn = folder.take_turn()?;
    let database = folder.existing_database(database)?;
    match folder.lock()? {
        Some(_alone) => migrate::bring_up_to_date(&folder, &database)?,
        None => database.check_version().map_err(|error| error.to_string())?,
    }
    let mut db = database.connect_writer().map_err(|error| error.to_string())?;
    let key = instance::open_key(&folder, &mut db)?;
    drop(db);
    let options = forge_options(&folder, database, key, default_projects_limit, Use::Administer)?;
    drop(turn);
    let options = forge::Options { readers: 1, blocking: 1, ..options };
    Forge::start(options).map_err(|error| error.to_string())
}

/// Commands about the instance as a whole; no server may run.
fn instance_command(
    data: &Path,
    database: Option<&str>,
    default_projects_limit: i32,
    command: InstanceCommand,
) -> Outcome {
    let folder = match (&command, require_instance(data)) {
        (_, Ok(())) => DataFolder::open(data)?,
        // The folder may be lost, and only the database left.
        (InstanceCommand::Rebind, Err(sentence)) => match database.map(data_folder::postgres).transpose()? {
            Some(database) if holds_instance(&database)? => DataFolder::open(data)?,
            _ => return Err(sentence),
        },
        (InstanceCommand::NewKey { .. }, Err(sentence)) => return Err(sentence),
    };
    let _turn = folder.take_turn()?;
    let Some(_alone) = folder.lock()? else {
        return Err(format!("a gable serves the data folder {}; stop it first", folder.path().display()));
    };
    match command {
        InstanceCommand::Rebind => {
            let database = folder.database(database)?;
            instance::rebind(&folder, &database, default_projects_limit)
        }
        InstanceCommand::NewKey { yes } => {
            let database = folder.existing_database(database)?;
            migrate::bring_up_to_date(&folder, &database)?;
            instance::replace_key(&folder, &database, yes)
        }
    }
}

fn holds_instance(database: &Database) -> Result<bool, String> {
    Ok(database.content().map_err(|error| error.to_string())? != Content::Nothing)
}

async fn user(forge: &Forge, command: UserCommand) -> Outcome {
    match command {
        UserCommand::Create { username, email, name, admin, password_stdin } => {
            let (password, made) = password(password_stdin)?;
            let name = name.unwrap_or_else(|| username.clone());
            let user = NewUser { admin, ..NewUser::new(&username, &email, &name) };
            let given = Unvalidated::good(Registration { user, password: password.reveal().to_owned() });
            let ready = forge.run_blocking(Caller::system(), move |tx| users::prepare_registration(tx, &given)).await;
            let ready = ready.map_err(tell)?;
            let user = forge.write(Caller::system(), move |tx| users::create(tx, &ready)).await.map_err(tell)?;
            say(&format!("created user {} with id {}", user.username, user.id))?;
            say_password(&password, made)
        }
        UserCommand::List => list_users(forge).await,
        UserCommand::Block { username } => {
            let name = username.clone();
            let block = move |tx: &mut forge::WriteTx<'_>| {
                let id = users::id_of(tx, &name)?;
                users::block(tx, id)
            };
            forge.write(Caller::system(), block).await.map_err(|error| tell_of(&username, error))?;
            say(&format!("blocked user {username}"))
        }
        UserCommand::Unblock { username } => {
            let name = username.clone();
            let unblock = move |tx: &mut forge::WriteTx<'_>| {
                let id = users::id_of(tx, &name)?;
                users::unblock(tx, id)
            };
            forge.write(Caller::system(), unblock).await.map_err(|error| tell_of(&username, error))?;
            say(&format!("unblocked user {username}"))
        }
        UserCommand::Delete { username, yes } => delete_user(forge, username, yes).await,
        UserCommand::Password { username, password_stdin } => {
            let (password, made) = password(password_stdin)?;
            let name = username.clone();
            let id = forge.read(Caller::system(), move |tx| users::id_of(tx, &name)).await;
            let id = id.map_err(|error| tell_of(&username, error))?;
            let edit = Edit { changes: UserChanges::default(), password: Some(password.reveal().to_owned()) };
            let given = Unvalidated::good(edit);
            let ready = forge.run_blocking(Caller::system(), move |tx| users::prepare_edit(tx, id, &given)).await;
            let ready = ready.map_err(tell)?;
            forge.write(Caller::system(), move |tx| users::update(tx, id, &ready)).await.map_err(tell)?;
            say(&format!("changed the password of user {username}"))?;
            say_password(&password, made)
        }
    }
}

async fn delete_user(forge: &Forge, username: String, yes: bool) -> Outcome {
    let name = username.clone();
    let find = move |tx: &mut forge::ReadTx<'_>| {
        let id = users::id_of(tx, &name)?;
        users::get(tx, id)
    };
    let user = forge.read(Caller::system(), find).await.map_err(|error| tell_of(&username, error))?;
    let projects = match user.personal_projects {
        1 => "1 personal project".to_owned(),
        count => format!("{count} personal projects"),
    };
    if !yes {
        return Err(format!("this deletes user {username} with {projects} and cannot be undone; confirm with --yes"));
    }
    let id = user.id;
    let deleted = forge.write(Caller::system(), move |tx| users::delete(tx, id)).await.map_err(tell)?;
    if deleted.is_none() {
        return Err(format!("there is no user {username}"));
    }
    say(&format!("deleted user {username} with {projects}"))
}

async fn list_users(forge: &Forge) -> Outcome {
    let mut table = format!("{:>6}  {:<24} {:<13} {:<6} {}\n", "id", "username", "state", "admin", "email");
    for number in 1.. {
        let page = Unvalidated::good(Page::new(Some(number), Some(model::page::MAX_SIZE)));
        let filter = Unvalidated::good(UserFilter::default());
        let users = forge.read(Caller::system(), move |tx| users::list(tx, &filter, &page)).await.map_err(tell)?;
        for user in &users.items {
            let admin = if user.admin { "yes" } else { "no" };
            let state = user.state.as_str();
            table += &format!("{:>6}  {:<24} {state:<13} {admin:<6} {}\n", user.id, user.username, user.email);
        }
        if users.items.is_empty() {
            break;
        }
    }
    show(table.as_bytes())
}

async fn token(forge: &Forge, command: TokenCommand) -> Outcome {
    match command {
        TokenCommand::Create { username, name, scopes, expires_in_days, no_expiry } => {
            let scopes = parse_scopes(&scopes)?;
            let end = (!no_expiry).then(|| forge.now() + SignedDuration::from_hours(24 * expires_in_days));
            let whom = username.clone();
            let created = forge
                .write(Caller::system(), move |tx| tokens::create(tx, &whom, &name, &scopes, end))
                .await
                .map_err(|error| tell_of(&username, error))?;
            let lasts = created.0.expires_at.map_or("until it is revoked".into(), |end| format!("until {}", day(end)));
            say(&format!(
                "created token {} for user {username}; it lasts {lasts} and is shown this once:",
                created.0.id
            ))?;
            say(created.1.reveal())
        }
        TokenCommand::List { username } => {
            let whom = username.clone();
            let tokens = forge.read(Caller::system(), move |tx| tokens::list(tx, &whom)).await;
            let tokens = tokens.map_err(|error| tell_of(&username, error))?;
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
                    (None, Some(end)) => day(end),
                };
                let used = token.last_used_at.map_or("never".into(), day);
                let (id, created, scopes) = (token.id, day(token.created_at), scopes.join(","));
                let name = if token.session { format!("{} (ends with the password)", token.name) } else { token.name };
                table += &format!("{id:>6}  {created:<10} {used:<10} {expires:<10} {scopes:<10} {name}\n");
            }
            show(table.as_bytes())
        }
        TokenCommand::Revoke { id } => {
            forge.write(Caller::system(), move |tx| tokens::revoke(tx, id)).await.map_err(|error| match error {
                forge::Error::NotFound(_) => format!("there is no token {id} that could be revoked"),
                other => tell(other),
            })?;
            say(&format!("revoked token {id}"))
        }
    }
}

async fn job(forge: &Forge, command: JobCommand) -> Outcome {
    match command {
        JobCommand::List => {
            let mut table = format!(
                "{:>6}  {:<20} {:<7} {:>8}  {:<20} {}\n",
                "id", "kind", "state", "attempts", "due", "last error"
            );
            for job in forge.read(Caller::system(), tasks::list).await.map_err(tell)? {
                let state = if job.dead_at.is_some() { "dead" } else { "waiting" };
                let due = job.run_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let error = job.last_error.unwrap_or_default();
                let (id, kind, attempts) = (job.id, job.kind, job.attempts);
                table += &format!("{id:>6}  {kind:<20} {state:<7} {attempts:>8}  {due:<20} {error}\n");
            }
            show(table.as_bytes())
        }
        JobCommand::Retry { id } => {
            forge.write(Caller::system(), move |tx| tasks::retry(tx, id)).await.map_err(|error| match error {
                forge::Error::NotFound(_) => format!("there is no job {id} that was given up"),
                other => tell(other),
            })?;
            say(&format!("job {id} will be tried again"))
        }
    }
}

async fn runner(forge: &Forge, command: RunnersCommand) -> Outcome {
    match command {
        RunnersCommand::Token { reset } => {
            let token = move |tx: &mut forge::WriteTx<'_>| {
                if reset { runners::reset_registration_token(tx) } else { runners::registration_token(tx) }
            };
            say(forge.write(Caller::system(), token).await.map_err(tell)?.reveal())
        }
        RunnersCommand::List => list_runners(forge).await,
    }
}

async fn list_runners(forge: &Forge) -> Outcome {
    let mut table = format!(
        "{:>6}  {:<8} {:<6} {:<20} {:<24} {}\n",
        "id", "kind", "active", "last heard of", "tags", "description"
    );
    for number in 1.. {
        let page = Unvalidated::good(Page::new(Some(number), Some(model::page::MAX_SIZE)));
        let found = forge
            .read(Caller::system(), move |tx| runners::list_all(tx, &Unvalidated::good(None), &page))
            .await
            .map_err(tell)?;
        for runner in &found.items {
            let kind = if runner.is_shared { "shared" } else { "specific" };
            let active = if runner.active { "yes" } else { "no" };
            let heard = runner.contacted_at.map_or("never".into(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            let (id, tags, description) = (runner.id, runner.tags.join(","), &runner.description);
            table += &format!("{id:>6}  {kind:<8} {active:<6} {heard:<20} {tags:<24} {description}\n");
        }
        if found.items.is_empty() {
            break;
        }
    }
    show(table.as_bytes())
}

/// The password from standard input, or a random one; and whether it was made here.
fn password(from_stdin: bool) -> Result<(Secret, bool), String> {
    if !from_stdin {
        return Ok((forge::clock::Secrets::token(&forge::clock::SystemSecrets), true));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read the password: {error}"))?;
    Ok((Secret::new(text.trim_end_matches(['\r', '\n']).to_owned()), false))
}

fn say_password(password: &Secret, made: bool) -> Outcome {
    if made { say(&format!("the password is shown this once: {}", password.reveal())) } else { Ok(()) }
}

fn day(time: Time) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

fn tell(error: forge::Error) -> String {
    error.to_string()
}

fn tell_of(username: &str, error: forge::Error) -> String {
    match error {
        forge::Error::NotFound(_) => format!("there is no user {username}"),
        other => tell(other),
    }
}

fn say(text: &str) -> Outcome {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("cannot write to standard output: {error}"))
}
