//! How a runner and a server get to know each other.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use hyper::StatusCode;
use serde::Deserialize;

use crate::{
    Error,
    client::{Answer, Client, Unreachable},
    isolation,
};

/// What a new runner is to be.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// What people read.
    pub description: String,
    /// Which jobs it takes.
    pub tags: Vec<String>,
    /// Whether it also takes jobs without tags.
    pub run_untagged: bool,
    /// Whether it stays with the project it was registered for.
    pub locked: bool,
}

/// Makes a runner known to the server; answers its own token.
pub async fn register(url: &str, registration_token: &str, wishes: &Registration) -> Result<String, Error> {
    #[derive(Deserialize)]
    struct Registered {
        token: String,
    }
    if wishes.tags.is_empty() && !wishes.run_untagged {
        let words = "a runner without tags would get no job at all; give it tags, or let it run untagged jobs";
        return Err(Error::Setup(words.to_owned()));
    }
    let client = Client::new(url)?;
    let answer = heard(&client, client.register(registration_token, wishes).await)?;
    match answer.status {
        StatusCode::CREATED => match serde_json::from_slice::<Registered>(&answer.body) {
            Ok(registered) if !registered.token.is_empty() => Ok(registered.token),
            _ => Err(strange(&client)),
        },
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(Error::Refused(
            "the server does not know this registration token; take the one that the project or the administrator shows"
                .to_owned(),
        )),
        StatusCode::BAD_REQUEST => Err(Error::Refused(format!(
            "the server does not take this runner: {}",
            String::from_utf8_lossy(&answer.body).chars().take(300).collect::<String>()
        ))),
        status => Err(unexpected(&client, status)),
    }
}

/// Whether the server knows a runner's token; an error tells what to do if not.
pub async fn verify(url: &str, token: &str) -> Result<(), Error> {
    let client = Client::new(url)?;
    check(&client, token, "").await
}

/// As [`verify`], with a client that is there already.
pub(crate) async fn check(client: &Client, token: &str, system: &str) -> Result<(), Error> {
    let answer = heard(client, client.verify(token, system).await)?;
    match answer.status {
        StatusCode::OK => Ok(()),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(unknown_runner()),
        status => Err(unexpected(client, status)),
    }
}

/// Takes a runner away from the server.
pub async fn unregister(url: &str, token: &str) -> Result<(), Error> {
    let client = Client::new(url)?;
    let answer = heard(&client, client.unregister(token).await)?;
    match answer.status {
        StatusCode::NO_CONTENT | StatusCode::OK => Ok(()),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(unknown_runner()),
        status => Err(unexpected(&client, status)),
    }
}

/// Writes a token to a file that only its owner can read, durably.
pub fn write_token(path: &Path, token: &str) -> Result<(), Error> {
    let failed = |error: io::Error| Error::Setup(format!("cannot write {}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    // Beside it first: a crash leaves the old file or the new one, never half of one.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let _ = fs::remove_file(&fresh);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    writeln!(file, "{token}").and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&fresh, path).map_err(failed)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Reads a token from a file that nobody else can read; `None` if there is no such file.
pub fn read_token(path: &Path) -> Result<Option<String>, Error> {
    let failed = |error: io::Error| Error::Setup(format!("cannot read {}: {error}", path.display()));
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !isolation::is_private(&found) {
        let words = format!("others can read the token in {}; change its mode to 600 and its owner", path.display());
        return Err(Error::Setup(words));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(Error::Setup(format!("{} holds no token; it should be one word on one line", path.display())));
    }
    Ok(Some(token.to_owned()))
}

pub(crate) fn unknown_runner() -> Error {
    Error::Refused("the server does not know this runner's token; register the runner anew".to_owned())
}

fn heard(client: &Client, heard: Result<Answer, Unreachable>) -> Result<Answer, Error> {
    heard.map_err(|Unreachable(reason)| {
        Error::Unreachable(format!(
            "the server at {} cannot be reached ({reason}); check the address and whether it runs",
            client.root()
        ))
    })
}

fn unexpected(client: &Client, status: StatusCode) -> Error {
    if status == StatusCode::NOT_FOUND || status.is_redirection() {
        return strange(client);
    }
    Error::Unreachable(format!("the server at {} answers {status}; look into its log", client.root()))
}

fn strange(client: &Client) -> Error {
    Error::Refused(format!("what answers at {} is no server for runners; check the address", client.root()))
}
