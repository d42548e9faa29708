//! The command line.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, error::ErrorKind};

use crate::config::{Place, Settings};

/// A git forge in one binary.
#[derive(Parser)]
#[command(name = "gable", version, about = "A git forge in one binary.")]
pub(crate) struct Gable {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs the service.
    Serve(Settings),
    /// Works on a data folder, whether or not the service runs.
    Admin(Admin),
}

/// Shows help where it was asked for, and says in one sentence what is wrong with the command line where not.
pub(crate) fn tell(told: &clap::Error) -> ExitCode {
    if !told.use_stderr() || told.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = told.print();
        return ExitCode::from(u8::from(told.use_stderr()) * 2);
    }
    let text = told.to_string();
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let sentence =
        lines.fold(first.trim_start_matches("error: ").to_owned(), |sentence, line| format!("{sentence} {line}"));
    eprintln!("gable: {sentence}; see gable --help");
    ExitCode::from(2)
}

#[derive(Args)]
pub(crate) struct Admin {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) topic: Topic,
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
    /// Gives a user a new password; prints a random one unless one comes on standard input.
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
