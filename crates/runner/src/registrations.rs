//! Registration of a runner with a server, and its token.

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
    client::{ApiResponse, Client, ConnectionError},
    isolation,
};

/// The attributes of a new runner.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// The description.
    pub description: String,
    /// The tags of the jobs it takes.
    pub tags: Vec<String>,
    /// Whether it also takes jobs without tags.
    pub run_untagged: bool,
    /// Whether it is locked to the project it is registered for.
    pub locked: bool,
}

/// Registers a runner; returns its token.
pub async fn register(url: &str, registration_token: &str, registration: &Registration) -> Result<String, Error> {
    #[derive(Deserialize)]
    struct Registered {
        token: String,
    }
    if registration.tags.is_empty() && !registration.run_untagged {
        let message =
            "a runner without tags that does not run untagged jobs never gets a job; add tags or allow untagged jobs";
        return Err(Error::Setup(message.to_owned()));
    }
    let client = Client::new(url)?;
    let response = require_response(&client, client.register(registration_token, registration).await)?;
    match response.status {
        StatusCode::CREATED => match serde_json::from_slice::<Registered>(&response.body) {
            Ok(registered) if !registered.token.is_empty() => Ok(registered.token),
            _ => Err(not_a_runner_api(&client)),
        },
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(Error::Refused(
            "unknown registration token; use the token of the project or of the instance".to_owned(),
        )),
        StatusCode::BAD_REQUEST => Err(Error::Refused(format!(
            "the server rejected this runner: {}",
            String::from_utf8_lossy(&response.body).chars().take(300).collect::<String>()
        ))),
        status => Err(unexpected_status(&client, status)),
    }
}

/// Verifies the token of a runner with the server.
pub async fn verify(url: &str, token: &str) -> Result<(), Error> {
    let client = Client::new(url)?;
    verify_token(&client, token, "").await
}

/// Like [`verify`], with an existing client.
pub(crate) async fn verify_token(client: &Client, token: &str, system_id: &str) -> Result<(), Error> {
    let response = require_response(client, client.verify(token, system_id).await)?;
    match response.status {
        StatusCode::OK => Ok(()),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(unknown_runner()),
        status => Err(unexpected_status(client, status)),
    }
}

/// Removes a runner from the server.
pub async fn unregister(url: &str, token: &str) -> Result<(), Error> {
    let client = Client::new(url)?;
    let response = require_response(&client, client.unregister(token).await)?;
    match response.status {
        StatusCode::NO_CONTENT | StatusCode::OK => Ok(()),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(unknown_runner()),
        status => Err(unexpected_status(&client, status)),
    }
}

/// Writes a token durably to a file that only its owner can read.
pub fn write_token(path: &Path, token: &str) -> Result<(), Error> {
    let fail = |source| Error::File { action: "write", path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(fail)?;
    // Written to a temporary file first, so that a crash never leaves half a file.
    let mut temp_path = path.as_os_str().to_owned();
    temp_path.push(".new");
    let _ = fs::remove_file(&temp_path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp_path).map_err(fail)?;
    writeln!(file, "{token}").and_then(|()| file.sync_all()).map_err(fail)?;
    fs::rename(&temp_path, path).map_err(fail)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail)
}

/// Reads a token from a file that no other user can read; returns `None` if the file does not exist.
pub fn read_token(path: &Path) -> Result<Option<String>, Error> {
    let fail = |source| Error::File { action: "read", path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    if !isolation::is_private(&metadata) {
        let message = format!(
            "the token file {} is readable by other users; run `chmod 600` and check its owner",
            path.display()
        );
        return Err(Error::Setup(message));
    }
    let text = fs::read_to_string(path).map_err(fail)?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(Error::Setup(format!(
            "{} does not contain a token; expected one word on one line",
            path.display()
        )));
    }
    Ok(Some(token.to_owned()))
}

pub(crate) fn unknown_runner() -> Error {
    Error::Refused("unknown runner token; register the runner again".to_owned())
}

fn require_response(client: &Client, response: Result<ApiResponse, ConnectionError>) -> Result<ApiResponse, Error> {
    response.map_err(|ConnectionError(reason)| {
        Error::Unreachable(format!(
            "cannot reach the server at {} ({reason}); check the URL and whether the server is running",
            client.base_url()
        ))
    })
}

fn unexpected_status(client: &Client, status: StatusCode) -> Error {
    if status == StatusCode::NOT_FOUND || status.is_redirection() {
        return not_a_runner_api(client);
    }
    Error::Unreachable(format!("the server at {} responded with {status}; check its log", client.base_url()))
}

fn not_a_runner_api(client: &Client) -> Error {
    Error::Refused(format!("{} does not serve the runner API; check the URL", client.base_url()))
}
