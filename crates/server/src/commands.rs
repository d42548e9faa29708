//! The command line.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, error::ErrorKind};
use clap_complete::Shell;

use crate::{
    byte_size::ByteSize,
    config::{Address, IsolationKind, NetworkKind, Place, Settings, check_log_filter},
    exit,
    time_span::Seconds,
};

/// A git forge in one binary.
#[derive(Parser)]
#[command(name = "gable", version, about = "A git forge in one binary.", after_help = exit::HELP)]
pub(crate) struct Gable {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs the service.
    Serve(Box<Settings>),
    /// Backs everything up, whether or not the service runs.
    Backup(BackupCommand),
    /// Puts a backup back into an empty data folder, and into an empty database if that is elsewhere.
    Restore(RestoreCommand),
    /// Copies the database into another one: from the embedded one to PostgreSQL, or back.
    MigrateDatabase(MigrateDatabase),
    /// Works on a data folder, whether or not the service runs.
    Admin(Admin),
    /// Looks whether everything is in order, and says what would help.
    Doctor(Doctor),
    /// Brings the database up to date, or tries whether that would go well.
    Migrate(Migrate),
    /// Takes jobs from a server and runs them on this machine.
    #[command(subcommand)]
    Runner(RunnerCommand),
    /// Asks a server whether it serves; ends with 0 if it does, for monitors and containers.
    Health(Health),
    /// Writes what packages bring along.
    #[command(subcommand, hide = true)]
    Generate(GenerateCommand),
}

/// Shows help where it was asked for, and says in one sentence what is wrong with the command line where not.
pub(crate) fn tell(told: &clap::Error) -> ExitCode {
    if !told.use_stderr() || told.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = told.print();
        return if told.use_stderr() { ExitCode::from(exit::MISUSED) } else { ExitCode::SUCCESS };
    }
    let text = told.to_string();
    let mut lines = text.lines().map(str::trim);
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let rest = lines.by_ref().take_while(|line| !line.is_empty());
    let sentence = rest.fold(first, |sentence, line| format!("{sentence} {line}"));
    // What follows is how the command is used, which --help shows, and what may have been meant.
    let tips = lines.filter_map(|line| line.strip_prefix("tip: ")).fold(String::new(), |tips, tip| tips + "; " + tip);
    exit::complain(format_args!("gable: {sentence}{tips}; see gable --help"));
    ExitCode::from(exit::MISUSED)
}

/// A backup, made or looked at.
#[derive(Args)]
pub(crate) struct BackupCommand {
    /// The file to write, or - for standard output
    #[arg(value_name = "FILE", conflicts_with = "folder")]
    pub(crate) target: Option<PathBuf>,
    /// A folder of backups, which share what has not changed
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Removes older backups from the folder afterwards, so that this many are left
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["target", "list"], requires = "folder",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
    /// Lists the backups in the folder
    #[arg(long, requires = "folder")]
    pub(crate) list: bool,
    /// Reads a backup instead of making one, and says whether it is whole
    #[arg(long, conflicts_with_all = ["list", "keep", "force"])]
    pub(crate) verify: bool,
    /// Which backup in the folder to verify, by the beginning of its name [default: the newest]
    #[arg(long, value_name = "TIME", requires = "verify")]
    pub(crate) snapshot: Option<String>,
    /// Writes over a file that is there
    #[arg(long, conflicts_with = "folder")]
    pub(crate) force: bool,
    /// Says nothing while it works
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args)]
pub(crate) struct RestoreCommand {
    /// The backup: a file, - for standard input, or a folder of backups
    #[arg(value_name = "FILE|DIR")]
    pub(crate) from: PathBuf,
    /// Which backup in the folder, by the beginning of its name [default: the newest]
    #[arg(long, value_name = "TIME")]
    pub(crate) snapshot: Option<String>,
    /// Says nothing while it works
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args)]
pub(crate) struct MigrateDatabase {
    /// The database to fill, which must be empty: postgres://… or sqlite; with a password in it, use the variable
    #[arg(long, env = "GABLE_TO_DATABASE", value_name = "URL", hide_env_values = true)]
    pub(crate) to: String,
    /// Says nothing while it works
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args)]
pub(crate) struct Admin {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) topic: Topic,
}

#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Does what helps; what belongs to nobody is moved to lost+found in the data folder, never deleted
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix, forgets uploads, artifacts and traces whose files are missing; lost+found keeps a list of them
    #[arg(long, requires = "fix")]
    pub(crate) forget_missing: bool,
    /// Prints one JSON document instead of lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Leaves out what takes long: everything in repositories beyond the objects that refs lead to
    #[arg(long)]
    pub(crate) quick: bool,
    /// How much of the disk is to stay free, as `serve` has it [default: 100M]
    #[arg(long, env = "GABLE_MIN_FREE_DISK", value_name = "SIZE")]
    pub(crate) min_free_disk: Option<ByteSize>,
}

#[derive(Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Changes nothing: shows what is pending, and tries it on a copy or in a transaction that is undone
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Subcommand)]
pub(crate) enum Topic {
    /// Users.
    #[command(subcommand)]
    User(UserCommand),
    /// Access tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Background work.
    #[command(subcommand)]
    Job(JobCommand),
    /// Runners.
    #[command(subcommand)]
    Runner(RunnersCommand),
    /// The instance as a whole, after a part of it was lost.
    #[command(subcommand)]
    Instance(InstanceCommand),
}

#[derive(Subcommand)]
pub(crate) enum InstanceCommand {
    /// Bind the data folder and the database to each other although one is lost, empty or an older copy. Files and
    /// repositories that no row names are moved to lost+found in the data folder.
    Rebind,
    /// Create a new instance key after the old one was lost. Everything that was sealed with the old key is removed: webhooks,
    /// variables, and credentials of imports; runners have to be registered again.
    NewKey {
        /// Do it; without this, the command only says what would be lost.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum UserCommand {
    /// Creates a user; prints a random password unless one comes on standard input.
    Create {
        /// The unique name.
        username: String,
        /// The primary address.
        #[arg(long)]
        email: String,
        /// The name people read; the username if not given.
        #[arg(long)]
        name: Option<String>,
        /// Lets the user run the instance.
        #[arg(long)]
        admin: bool,
        /// Reads the password from standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Lists all users.
    List,
    /// Keeps a user out.
    Block {
        /// Whom.
        username: String,
    },
    /// Lets a user in again.
    Unblock {
        /// Whom.
        username: String,
    },
    /// Deletes a user with their keys, tokens and personal projects; issues and comments elsewhere stay.
    Delete {
        /// The unique name of the user.
        username: String,
        /// Confirms the deletion, which cannot be undone.
        #[arg(long)]
        yes: bool,
    },
    /// Gives a user a new password and ends their sessions; prints a random one unless one comes on standard input.
    Password {
        /// Whom.
        username: String,
        /// Reads the password from standard input.
        #[arg(long)]
        password_stdin: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Makes a token and prints it, this once.
    Create {
        /// On whose behalf it speaks.
        username: String,
        /// What it is for.
        #[arg(long, default_value = "made by the operator")]
        name: String,
        /// What it opens: api or read_user. May be given more than once.
        #[arg(long = "scope", default_value = "api")]
        scopes: Vec<String>,
        /// How long it lasts.
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=36_500))]
        expires_in_days: i64,
        /// Lets it last until it is revoked.
        #[arg(long, conflicts_with = "expires_in_days")]
        no_expiry: bool,
    },
    /// Lists the tokens of a user, never the tokens themselves.
    List {
        /// Whose.
        username: String,
    },
    /// Takes a token back.
    Revoke {
        /// Its number, as the list shows it.
        id: i64,
    },
}

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// Lists the jobs that wait and those that were given up.
    List,
    /// Tries a job again that was given up.
    Retry {
        /// Its number, as the list shows it.
        id: i64,
    },
}

#[derive(Subcommand)]
pub(crate) enum RunnerCommand {
    /// Runs jobs until a signal ends it; registers itself first if it is not registered yet.
    Run(RunRunner),
    /// Makes a runner known to a server, and writes its token to a file; the registration token is taken from
    /// GABLE_REGISTRATION_TOKEN, or from a file.
    Register(RegisterRunner),
    /// Asks the server whether it knows the runner.
    Verify(RunnerPlace),
    /// Takes the runner away from the server.
    Unregister(RunnerPlace),
}

/// Which runner, and of which server.
#[derive(Args)]
pub(crate) struct RunnerPlace {
    /// The address of the server, such as https://git.example.com
    #[arg(long, env = "GABLE_RUNNER_URL", value_name = "URL")]
    pub(crate) url: String,
    /// The folder of the runner: jobs, caches, and its token
    #[arg(
        long,
        alias = "runner-folder",
        env = "GABLE_RUNNER_FOLDER",
        value_name = "DIR",
        default_value = "./gable-runner"
    )]
    pub(crate) folder: PathBuf,
    /// The file with the runner's token, which GABLE_RUNNER_TOKEN may hold instead [default: token in the folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What a runner is to be.
#[derive(Args)]
pub(crate) struct RunnerWishes {
    /// What people read in lists of runners
    #[arg(long, value_name = "TEXT", default_value = "gable runner")]
    pub(crate) description: String,
    /// Which jobs it takes, such as linux,large
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub(crate) tags: Vec<String>,
    /// Whether it also takes jobs without tags [default: true without tags, else false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) run_untagged: Option<bool>,
    /// Keeps it with the project that it is registered for
    #[arg(long)]
    pub(crate) locked: bool,
}

#[derive(Args)]
pub(crate) struct RegisterRunner {
    /// The address of the server, such as https://git.example.com
    #[arg(long, env = "GABLE_RUNNER_URL", value_name = "URL")]
    pub(crate) url: String,
    /// The folder of the runner, into which its token is written
    #[arg(
        long,
        alias = "runner-folder",
        env = "GABLE_RUNNER_FOLDER",
        value_name = "DIR",
        default_value = "./gable-runner"
    )]
    pub(crate) folder: PathBuf,
    /// The file with the registration token, unless GABLE_REGISTRATION_TOKEN holds it
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wishes: RunnerWishes,
}

#[derive(Args)]
pub(crate) struct RunRunner {
    #[command(flatten)]
    pub(crate) place: RunnerPlace,
    #[command(flatten)]
    pub(crate) wishes: RunnerWishes,
    /// How many jobs are run at once
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) concurrency: u16,
    /// What keeps jobs from the rest of the machine
    #[arg(
        long,
        alias = "runner-isolation",
        env = "GABLE_RUNNER_ISOLATION",
        value_name = "KIND",
        default_value = "auto"
    )]
    pub(crate) isolation: IsolationKind,
    /// Who runs jobs, if root starts the runner [default: gable-runner if it exists, else nobody]
    #[arg(long, alias = "runner-user", env = "GABLE_RUNNER_USER", value_name = "USER")]
    pub(crate) run_as: Option<String>,
    /// What jobs may reach
    #[arg(long, alias = "runner-network", env = "GABLE_RUNNER_NETWORK", value_name = "KIND", default_value = "auto")]
    pub(crate) network: NetworkKind,
    /// The memory that a job may use; 0 is without limit
    #[arg(long, alias = "runner-memory", env = "GABLE_RUNNER_MEMORY", value_name = "SIZE", default_value = "4G")]
    pub(crate) memory: ByteSize,
    /// How many processes and threads a job may have at once; 0 is without limit
    #[arg(
        long,
        alias = "runner-processes",
        env = "GABLE_RUNNER_PROCESSES",
        value_name = "COUNT",
        default_value_t = 2048
    )]
    pub(crate) processes: u64,
    /// The disk space that the folder of a job may take; 0 is without limit
    #[arg(long, alias = "runner-disk", env = "GABLE_RUNNER_DISK", value_name = "SIZE", default_value = "10G")]
    pub(crate) disk: ByteSize,
    /// Runs jobs that ask for an image or services without them, instead of failing them
    #[arg(long, alias = "runner-ignore-image")]
    pub(crate) ignore_image: bool,
    /// How much of the output of a job is kept
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    pub(crate) output_limit: ByteSize,
    /// How long jobs under way may take when the runner is told to stop
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) grace: Seconds,
    /// What is logged: error, warn, info, debug, trace or off, or a filter such as info,runner=debug
    #[arg(long, env = "GABLE_LOG", value_name = "FILTER", default_value = "info",
        value_parser = |filter: &str| check_log_filter(filter.to_owned()))]
    pub(crate) log: String,
}

/// What the operator does about runners.
#[derive(Subcommand)]
pub(crate) enum RunnersCommand {
    /// Prints the token with which shared runners join.
    Token {
        /// Makes another one; the one before opens nothing any more, and runners that have joined stay.
        #[arg(long)]
        reset: bool,
    },
    /// Lists all runners, never their tokens.
    List,
}

/// Which server is asked.
#[derive(Args)]
pub(crate) struct Health {
    /// The address of the server [default: the one on this machine that listens as configured]
    #[arg(long, env = "GABLE_HEALTH_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) address: Address,
    /// How long the answer may take
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = Seconds::parse_positive)]
    pub(crate) within: Seconds,
}

/// What is made from this command line itself.
#[derive(Subcommand)]
pub(crate) enum GenerateCommand {
    /// Prints what lets a shell complete commands and flags.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Prints the table of all settings.
    Settings,
    /// Writes manual pages, one for each command.
    Man {
        /// The folder for them; it is made if it is not there.
        folder: PathBuf,
    },
}
