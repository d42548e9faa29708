//! The command line.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum, error::ErrorKind};
use clap_complete::Shell;
use model::{TaskId, TokenId};

use crate::{
    byte_size::ByteSize,
    config::{DataLocation, DoctorSettings, ExplicitSettings, JobSettings, LogFilter, ServerAddress, Settings},
    exit,
    time_span::Seconds,
};

/// The text below the help of a command: examples and exit codes.
macro_rules! examples {
    ($($example:literal),+) => {
        concat!(
            "Examples:\n",
            $("  ", $example, "\n",)+
            "\nExit status: 0 on success, 1 on failure, 2 on a usage or configuration error"
        )
    };
}

#[derive(Parser)]
#[command(name = "gable", version, about = "A git forge in one binary", after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the server
    #[command(after_help = examples!(
        "gable serve --data /var/lib/gable --listen 127.0.0.1:8080",
        "gable serve --config /etc/gable/gable.toml"
    ))]
    Serve(ExplicitSettings<Settings>),
    /// Make, list or verify backups; works while the server is running
    #[command(after_help = examples!(
        "gable backup gable.tar",
        "gable backup --folder /backup/gable --keep 7",
        "gable backup --folder /backup/gable --verify"
    ))]
    Backup(BackupCommand),
    /// Restore a backup into an empty data folder, and into an empty PostgreSQL database if --database is set
    #[command(after_help = examples!(
        "gable restore --data /var/lib/gable gable.tar",
        "gable restore --data /var/lib/gable --snapshot 2026-11-15T22 /backup/gable"
    ))]
    Restore(RestoreCommand),
    /// Copy the database from SQLite to PostgreSQL or back; the server must be stopped
    #[command(after_help = examples!(
        "gable migrate-database --data /var/lib/gable --to postgres://gable@localhost/gable"
    ))]
    MigrateDatabase(MigrateDatabase),
    /// Copy the files of an instance from its data folder to a bucket or back; while a server is running, only copy, then run
    /// again after it was stopped
    #[command(after_help = examples!(
        "gable migrate-store --to bucket --data /var/lib/gable --store s3://gable --cache /var/cache/gable \\\n      \
         --instance-key-file /etc/gable/instance-key",
        "gable migrate-store --to folder --data /var/lib/gable"
    ))]
    MigrateStore(MigrateStore),
    /// Administer an instance; works while the server is running unless stated otherwise
    #[command(after_help = examples!("gable admin --data /var/lib/gable user list"))]
    Admin(Admin),
    /// List, repack, prune and verify repositories; works while the server is running
    #[command(after_help = examples!(
        "gable repository --data /var/lib/gable list",
        "gable repository --data /var/lib/gable verify --all",
        "gable repository --data /var/lib/gable prune group/project --yes"
    ))]
    Repository(RepositoryArguments),
    /// Check an instance for problems, and repair them with --fix
    #[command(after_help = concat!(
        "Examples:\n  gable doctor --data /var/lib/gable\n  gable doctor --data /var/lib/gable --fix\n\n",
        "Exit status: 0 if no problem is left, 1 if a problem is left or the check failed, 2 on a usage or configuration error"
    ))]
    Doctor(Doctor),
    /// Apply pending database migrations; the server must be stopped unless --dry-run is given
    #[command(after_help = examples!(
        "gable migrate --data /var/lib/gable --dry-run",
        "gable migrate --data /var/lib/gable"
    ))]
    Migrate(Migrate),
    /// Run CI jobs of a server on this machine
    #[command(subcommand, after_help = examples!(
        "gable runner run --url https://git.example.com --folder /var/lib/gable-runner"
    ))]
    Runner(RunnerCommand),
    /// Check that a server is ready, for monitoring and containers
    #[command(after_help = concat!(
        "Examples:\n  gable health --url https://git.example.com\n\n",
        "Exit status: 0 if the server is ready, 1 if it is not, 2 on a usage or configuration error"
    ))]
    Health(Health),
    /// Generate shell completions, manual pages and the table of settings
    #[command(subcommand, hide = true)]
    Generate(GenerateCommand),
}

/// Prints the help that was asked for, or a usage error on one line; returns the exit code.
pub(crate) fn report_parse_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(exit::USAGE_ERROR) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let rest = lines.by_ref().take_while(|line| !line.is_empty());
    let message = rest.fold(first, |message, line| format!("{message} {line}"));
    // The usage that follows is in --help; the suggestions are kept.
    let tips = lines.filter_map(|line| line.strip_prefix("tip: ")).fold(String::new(), |tips, tip| tips + "; " + tip);
    exit::print_stderr(format_args!("gable: {message}{tips}; see gable --help"));
    ExitCode::from(exit::USAGE_ERROR)
}

#[derive(Args)]
pub(crate) struct BackupCommand {
    /// Backup file to write or, with --verify, to read; `-` for standard output or input
    #[arg(value_name = "FILE", conflicts_with = "folder")]
    pub(crate) target: Option<PathBuf>,
    /// Backup folder; its backups share unchanged files
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Number of backups to keep in the folder; older ones are removed afterwards [default: all]
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["target", "list"], requires = "folder",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
    /// List the backups in the folder
    #[arg(long, requires = "folder")]
    pub(crate) list: bool,
    /// Verify a backup instead of making one
    #[arg(long, conflicts_with_all = ["list", "keep", "force"])]
    pub(crate) verify: bool,
    /// Backup to verify: its name as shown by --list, or a prefix [default: the newest]
    #[arg(long, value_name = "TIME", requires = "verify")]
    pub(crate) snapshot: Option<String>,
    /// Overwrite an existing file
    #[arg(long, conflicts_with = "folder")]
    pub(crate) force: bool,
    /// Do not print progress
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) location: ExplicitSettings<DataLocation>,
}

#[derive(Args)]
pub(crate) struct RestoreCommand {
    /// Backup to restore: a file, `-` for standard input, or a backup folder
    #[arg(value_name = "FILE|DIR")]
    pub(crate) from: PathBuf,
    /// Backup to restore: its name as shown by `gable backup --list`, or a prefix [default: the newest]
    #[arg(long, value_name = "TIME")]
    pub(crate) snapshot: Option<String>,
    /// Do not print progress
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) location: ExplicitSettings<DataLocation>,
}

#[derive(Args)]
pub(crate) struct MigrateDatabase {
    /// Target database, which must be empty: a postgres:// URL or `sqlite`; use GABLE_TO_DATABASE if the URL contains a
    /// password
    #[arg(long, env = "GABLE_TO_DATABASE", value_name = "URL", hide_env_values = true)]
    pub(crate) to: String,
    /// Do not print progress
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) location: ExplicitSettings<DataLocation>,
}

#[derive(Args)]
pub(crate) struct MigrateStore {
    /// Where the files of the instance are to be: `bucket` for the one in `store`, `folder` for the data folder
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: StorePlace,
    /// Do not print progress
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) location: ExplicitSettings<DataLocation>,
}

/// A place for the files of an instance.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StorePlace {
    /// A bucket
    Bucket,
    /// A data folder
    Folder,
}

#[derive(Args)]
pub(crate) struct Admin {
    #[command(flatten)]
    pub(crate) location: ExplicitSettings<DataLocation>,
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Args)]
pub(crate) struct RepositoryArguments {
    #[command(flatten)]
    pub(crate) location: ExplicitSettings<DataLocation>,
    #[command(subcommand)]
    pub(crate) command: RepositoryCommand,
}

#[derive(Subcommand)]
pub(crate) enum RepositoryCommand {
    /// List all repositories with the number of their refs, packs and objects, and their size in bytes
    #[command(after_help = examples!("gable repository list", "gable repository list --json"))]
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write all objects of a repository into one pack; unreachable objects get a pack of their own, which is kept for 14 days
    #[command(after_help = examples!("gable repository gc group/project", "gable repository gc --all"))]
    Gc(SelectedProjects),
    /// Remove unreachable objects at once, such as a password that was pushed by mistake
    ///
    /// First delete or rewrite every branch and tag that contains the object. Forks and backups keep their copies. A fetch
    /// that is running may fail.
    #[command(after_help = examples!("gable repository prune group/project --yes"))]
    Prune {
        #[command(flatten)]
        projects: SelectedProjects,
        /// Confirm the removal, which cannot be undone
        #[arg(long)]
        yes: bool,
    },
    /// Read all objects of a repository and report what is missing or damaged
    #[command(after_help = examples!("gable repository verify group/project", "gable repository verify --all"))]
    Verify(SelectedProjects),
}

/// The projects that a command works on.
#[derive(Args)]
pub(crate) struct SelectedProjects {
    /// Projects, by full path or id
    #[arg(value_name = "PROJECT", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) projects: Vec<String>,
    /// All projects that have a repository
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) settings: ExplicitSettings<DoctorSettings>,
    /// Repair problems; unreferenced files are moved to lost+found in the data folder, never deleted
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix, remove the records of uploads, avatars, artifacts and traces whose files are missing; lost+found keeps a list
    #[arg(long, requires = "fix")]
    pub(crate) forget_missing: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Skip slow checks: in repositories, check only the objects that refs point to
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    pub(crate) location: ExplicitSettings<DataLocation>,
    /// Show pending migrations and test them on a copy (SQLite) or in a rolled-back transaction (PostgreSQL)
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Subcommand)]
pub(crate) enum AdminCommand {
    /// Manage users
    #[command(subcommand, after_help = examples!("gable admin user create ann --email ann@example.org"))]
    User(UserCommand),
    /// Manage personal access tokens
    #[command(subcommand, after_help = examples!("gable admin token create ann --expires-in-days 30"))]
    Token(TokenCommand),
    /// Manage background tasks
    #[command(subcommand, alias = "job", after_help = examples!("gable admin task list"))]
    Task(TaskCommand),
    /// Manage CI runners
    #[command(subcommand, after_help = examples!("gable admin runner token"))]
    Runner(AdminRunnerCommand),
    /// Show the servers of this instance
    #[command(subcommand, after_help = examples!("gable admin node list"))]
    Node(NodeCommand),
    /// Recover an instance after the data folder, the database or the instance key was lost; the server must be stopped
    #[command(subcommand, after_help = examples!("gable admin --data /var/lib/gable instance rebind"))]
    Instance(InstanceCommand),
}

#[derive(Subcommand)]
pub(crate) enum InstanceCommand {
    /// Create the key of a new instance with several nodes, which all of them need
    #[command(after_help = examples!("gable admin instance create-key /etc/gable/instance-key"))]
    CreateKey {
        /// File to write, which must not exist
        file: PathBuf,
    },
    /// Accept this data folder and this database as one instance
    ///
    /// Use it after one of them was lost, emptied or replaced by an older copy. Files and repositories that the database
    /// does not refer to are moved to lost+found in the data folder.
    #[command(after_help = examples!("gable admin --data /var/lib/gable instance rebind"))]
    Rebind,
    /// Create a new instance key
    ///
    /// Use it after the key was lost. Everything encrypted with the old key is removed: webhooks, CI variables and
    /// credentials of imports. Runners have to be registered again. With a store, all nodes must be stopped; the SSH host key is
    /// replaced, too, and the new key is written to the file of the setting instance-key-file.
    #[command(after_help = examples!("gable admin --data /var/lib/gable instance new-key --yes"))]
    NewKey {
        /// Confirm; without this flag the command only lists what would be lost
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum UserCommand {
    /// Create a user; prints a random password unless --password-stdin is given
    #[command(after_help = examples!("gable admin user create ann --email ann@example.org --name 'Ann Smith'"))]
    Create {
        /// Username
        username: String,
        /// Primary email address
        #[arg(long)]
        email: String,
        /// Display name [default: the username]
        #[arg(long)]
        name: Option<String>,
        /// Make the user an administrator
        #[arg(long)]
        admin: bool,
        /// Read the password from standard input
        #[arg(long)]
        password_stdin: bool,
    },
    /// List all users
    #[command(after_help = examples!("gable admin user list"))]
    List,
    /// Block a user
    #[command(after_help = examples!("gable admin user block ann"))]
    Block {
        /// Username
        username: String,
    },
    /// Unblock a user
    #[command(after_help = examples!("gable admin user unblock ann"))]
    Unblock {
        /// Username
        username: String,
    },
    /// Delete a user with their keys, tokens and personal projects; issues and comments in other projects stay
    #[command(after_help = examples!("gable admin user delete ann --yes"))]
    Delete {
        /// Username
        username: String,
        /// Confirm the deletion, which cannot be undone
        #[arg(long)]
        yes: bool,
    },
    /// Set a new password and end all sessions of a user; prints a random password unless --password-stdin is given
    #[command(after_help = examples!("gable admin user password ann"))]
    Password {
        /// Username
        username: String,
        /// Read the password from standard input
        #[arg(long)]
        password_stdin: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a personal access token and print it once
    #[command(after_help = examples!("gable admin token create ann --name deploy --scope api --expires-in-days 30"))]
    Create {
        /// Username of the owner
        username: String,
        /// Name of the token
        #[arg(long, default_value = "created by gable admin")]
        name: String,
        /// Scope: `api` or `read_user`; can be given more than once
        #[arg(long = "scope", default_value = "api")]
        scopes: Vec<String>,
        /// Lifetime in days
        #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=36_500))]
        expires_in_days: i64,
        /// Create a token that does not expire
        #[arg(long, conflicts_with = "expires_in_days")]
        no_expiry: bool,
    },
    /// List the personal access tokens of a user, without the secrets
    #[command(after_help = examples!("gable admin token list ann"))]
    List {
        /// Username of the owner
        username: String,
    },
    /// Revoke a personal access token
    #[command(after_help = examples!("gable admin token revoke 12"))]
    Revoke {
        /// ID of the token, as shown by `token list`
        id: TokenId,
    },
}

#[derive(Subcommand)]
pub(crate) enum TaskCommand {
    /// List background tasks that are pending or failed permanently
    #[command(after_help = examples!("gable admin task list"))]
    List,
    /// Retry a background task that failed permanently
    #[command(after_help = examples!("gable admin task retry 3"))]
    Retry {
        /// ID of the task, as shown by `task list`
        id: TaskId,
    },
}

#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// List the servers that use the database: version, addresses, start, last heartbeat and state
    #[command(after_help = examples!("gable admin node list", "gable admin node list --json"))]
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum RunnerCommand {
    /// Run jobs until interrupted; registers the runner first if necessary
    #[command(after_help = examples!(
        "gable runner run --url https://git.example.com --folder /var/lib/gable-runner --concurrency 4"
    ))]
    Run(RunRunner),
    /// Register a runner and store its token in the runner folder
    ///
    /// The registration token is read from GABLE_REGISTRATION_TOKEN or from --token-file.
    #[command(after_help = examples!(
        "gable runner register --url https://git.example.com --token-file registration-token --tags linux,large"
    ))]
    Register(RegisterRunner),
    /// Check that the server accepts the token of the runner
    #[command(after_help = examples!("gable runner verify --url https://git.example.com"))]
    Verify(RunnerIdentity),
    /// Unregister the runner and remove its token file
    #[command(after_help = examples!("gable runner unregister --url https://git.example.com"))]
    Unregister(RunnerIdentity),
}

/// The server and the folder of a runner.
#[derive(Args)]
pub(crate) struct RunnerLocation {
    /// URL of the server
    #[arg(long, env = "GABLE_RUNNER_URL", value_name = "URL")]
    pub(crate) url: String,
    /// Folder for jobs, caches and the token of the runner
    #[arg(
        long,
        alias = "runner-folder",
        env = "GABLE_RUNNER_FOLDER",
        value_name = "DIR",
        default_value = "./gable-runner"
    )]
    pub(crate) folder: PathBuf,
}

/// A registered runner.
#[derive(Args)]
pub(crate) struct RunnerIdentity {
    #[command(flatten)]
    pub(crate) location: RunnerLocation,
    /// File with the token of the runner; GABLE_RUNNER_TOKEN takes precedence [default: `token` in the folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The attributes with which a runner is registered.
#[derive(Args)]
pub(crate) struct RunnerAttributes {
    /// Description shown in lists of runners
    #[arg(long, value_name = "TEXT", default_value = "gable runner")]
    pub(crate) description: String,
    /// Tags of the jobs that the runner takes, separated by commas, such as linux,large
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub(crate) tags: Vec<String>,
    /// Whether to take jobs without tags [default: true if --tags is not given, otherwise false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) run_untagged: Option<bool>,
    /// Lock the runner to the project for which it is registered
    #[arg(long)]
    pub(crate) locked: bool,
}

#[derive(Args)]
pub(crate) struct RegisterRunner {
    #[command(flatten)]
    pub(crate) location: RunnerLocation,
    /// File with the registration token; GABLE_REGISTRATION_TOKEN takes precedence
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) attributes: RunnerAttributes,
}

#[derive(Args)]
#[command(
    mut_arg("isolation", |argument| argument.long("isolation").alias("runner-isolation")),
    mut_arg("user", |argument| argument.long("run-as").alias("runner-user")),
    mut_arg("network", |argument| argument.long("network").alias("runner-network")),
    mut_arg("memory", |argument| argument.long("memory").alias("runner-memory")),
    mut_arg("processes", |argument| argument.long("processes").alias("runner-processes")),
    mut_arg("disk", |argument| argument.long("disk").alias("runner-disk")),
    mut_arg("ignore_image", |argument| argument.long("ignore-image").alias("runner-ignore-image"))
)]
pub(crate) struct RunRunner {
    #[command(flatten)]
    pub(crate) identity: RunnerIdentity,
    #[command(flatten)]
    pub(crate) attributes: RunnerAttributes,
    /// Maximum number of concurrent jobs
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) concurrency: u16,
    #[command(flatten)]
    pub(crate) jobs: JobSettings,
    /// Maximum size of the output of a job; the rest is discarded
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    pub(crate) output_limit: ByteSize,
    /// Time for running jobs to finish when the runner is stopped, in seconds unless a unit is given
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) grace: Seconds,
    #[command(flatten)]
    pub(crate) log: LogFilter,
}

#[derive(Subcommand)]
pub(crate) enum AdminRunnerCommand {
    /// Print the registration token for shared runners
    #[command(after_help = examples!("gable admin runner token --reset"))]
    Token {
        /// Create a new registration token; the old one becomes invalid, registered runners are not affected
        #[arg(long)]
        reset: bool,
    },
    /// List all runners, without their tokens
    #[command(after_help = examples!("gable admin runner list"))]
    List,
}

#[derive(Args)]
pub(crate) struct Health {
    /// URL of the server [default: the server on this machine, as configured]
    #[arg(long, env = "GABLE_HEALTH_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) address: ExplicitSettings<ServerAddress>,
    /// Timeout, in seconds unless a unit is given
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = Seconds::parse_positive)]
    pub(crate) within: Seconds,
}

#[derive(Subcommand)]
pub(crate) enum GenerateCommand {
    /// Print the completion script for a shell
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the table of settings in Markdown
    Settings,
    /// Write the manual pages, one per command
    Man {
        /// Output folder; created if it does not exist
        folder: PathBuf,
    },
}
