//! A private PostgreSQL server for one run.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    child_guard::{guarded, guarded_as},
    steps, system,
    temp_folder::TempFolder,
};

/// How long the server may take to start.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
const FOLDER: &str = "gable-postgres";
const USER: &str = "gable";
const PASSWORD: &str = "correct-horse";

/// A running server; stopped on drop and when xtask exits.
pub(crate) struct Postgres {
    // Dropped before the folder.
    server: Server,
    folder: TempFolder,
}

/// A standby of a server, which replays its log.
pub(crate) struct Standby(Server);

/// The process of a server.
struct Server {
    process: Child,
    account: Account,
    programs: PathBuf,
    /// The folder with the files of the server.
    folder: PathBuf,
    /// The name of the data folder in it.
    data: &'static str,
    port: u16,
}

impl Postgres {
    /// Creates and starts a cluster.
    pub(crate) fn start() -> Result<Self> {
        let programs = programs().context("PostgreSQL is missing")?;
        let account = Account::choose();
        let folder = account.create_folder()?;
        let run = |program: &Path, arguments: &str| account.run(folder.path(), program, arguments);
        write(folder.path(), "password", PASSWORD)?;
        // A UTF-8 locale, as in real installations, that exists on every machine.
        run(
            &programs.join("initdb"),
            &format!("--pgdata=data --username={USER} --pwfile=password --auth=scram-sha-256 --locale=C.UTF-8"),
        )?;
        write(folder.path(), "server.ext", "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
        // Strict clients refuse a certificate that is its own authority.
        for arguments in [
            "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=authority -keyout ca.key -out ca.crt",
            "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile server.ext -out server.crt",
        ] {
            run(Path::new("openssl"), arguments)?;
        }
        let server = Server::start(account, programs, folder.path(), "data")?;
        Ok(Self { server, folder })
    }

    /// Copies the server, and starts the copy as a standby.
    pub(crate) fn start_standby(&self) -> Result<Standby> {
        let Server { account, programs, folder, port, .. } = &self.server;
        let connection = format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres");
        let copy = format!("--pgdata=standby --write-recovery-conf --checkpoint=fast --dbname={connection}");
        account.run(folder, &programs.join("pg_basebackup"), &copy)?;
        Ok(Standby(Server::start(*account, programs.clone(), folder, "standby")?))
    }

    /// Returns the URL of the maintenance database, from which tests create theirs.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the certificate of the authority that signed the server certificate.
    pub(crate) fn ca_certificate(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }
}

impl Standby {
    /// Returns the URL of the maintenance database.
    pub(crate) fn url(&self) -> String {
        self.0.url()
    }
}

impl Server {
    /// Starts a server with a data folder, and waits until it is ready.
    fn start(account: Account, programs: PathBuf, folder: &Path, data: &'static str) -> Result<Self> {
        let port = free_port()?;
        let process = spawn(account, &programs, folder, data, port)?;
        let mut server = Self { process, account, programs, folder: folder.to_owned(), data, port };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < STARTUP_TIMEOUT {
            if let Ok(Some(status)) = self.process.try_wait() {
                bail!("PostgreSQL exited early ({status})\n{}", self.log());
            }
            let mut probe = Command::new(self.programs.join("pg_isready"));
            probe.args(["--host=127.0.0.1", "--port", &self.port.to_string()]).stdout(Stdio::null());
            if probe.status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(anyhow!("PostgreSQL was not ready after {} seconds\n{}", STARTUP_TIMEOUT.as_secs(), self.log()))
    }

    fn log(&self) -> String {
        fs::read_to_string(log_file(&self.folder, self.data)).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = self.account.command(&self.programs.join("pg_ctl"));
        stop.current_dir(&self.folder).args(["stop", "--pgdata", self.data, "--mode=fast", "--silent"]);
        if steps::run(&mut stop).is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

fn log_file(folder: &Path, data: &str) -> PathBuf {
    folder.join(format!("{data}.log"))
}

/// The user that runs PostgreSQL, which refuses to run as root.
#[derive(Clone, Copy)]
enum Account {
    Current,
    Other(&'static str),
}

impl Account {
    fn choose() -> Self {
        match (system::is_root(), system::has_user("postgres")) {
            (false, _) => Self::Current,
            (true, true) => Self::Other("postgres"),
            (true, false) => Self::Other("nobody"),
        }
    }

    /// Returns a command that runs as this user; SIGINT is a fast shutdown of the server.
    fn command(&self, program: &Path) -> Command {
        match self {
            Self::Current => guarded("INT", program),
            Self::Other(user) => guarded_as(user, "INT", program),
        }
    }

    /// Runs a program in a folder; its output is reported only if it fails.
    fn run(&self, folder: &Path, program: &Path, arguments: &str) -> Result<()> {
        let name = program.file_name().unwrap_or_default().display();
        let output = self.command(program).current_dir(folder).args(arguments.split(' ')).output();
        let output = output.with_context(|| format!("cannot run {name}"))?;
        if output.status.success() {
            return Ok(());
        }
        let output_text = [output.stdout, output.stderr].concat();
        Err(anyhow!("{name} failed ({})\n{}", output.status, String::from_utf8_lossy(&output_text).trim_end()))
    }

    /// Creates a folder that this user can write to; the target folder may be in an inaccessible home.
    fn create_folder(&self) -> Result<TempFolder> {
        let Self::Other(user) = self else { return TempFolder::new(FOLDER) };
        for parent in [crate::workspace::cache_folder(), std::env::temp_dir()] {
            let folder = TempFolder::new_in(&parent, FOLDER)?;
            steps::run(Command::new("chown").arg(user).arg(folder.path()))?;
            let mut probe = self.command(Path::new("test"));
            if probe.arg("-w").arg(folder.path()).status().is_ok_and(|status| status.success()) {
                return Ok(folder);
            }
        }
        Err(anyhow!("the user {user} can write neither to the target folder nor to the temporary folder"))
    }
}

/// Returns the folder with the server programs, which are not in `PATH` on Debian.
pub(crate) fn programs() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, folder)| folder.join("initdb").is_file())
        .collect();
    versions.sort();
    let newest = versions.pop().map(|(_, folder)| folder);
    newest.or_else(|| system::find("initdb")?.canonicalize().ok()?.parent().map(Path::to_owned))
}

fn write(folder: &Path, name: &str, content: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn spawn(account: Account, programs: &Path, folder: &Path, data: &str, port: u16) -> Result<Child> {
    let log = File::create(log_file(folder, data)).context("cannot write the log")?;
    let settings = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=300",
        // Otherwise a checkpoint can remove a part of the log that a standby, or a copy that is being made, does not have yet.
        "wal_keep_size=1GB",
        "ssl=on",
        "ssl_cert_file=../server.crt",
        "ssl_key_file=../server.key",
        // Tests never kill this server; syncing hundreds of small databases would take minutes.
        "fsync=off",
        "full_page_writes=off",
    ];
    let mut server = account.command(&programs.join("postgres"));
    server.current_dir(folder).args(["-D", data, "-p", &port.to_string()]);
    for setting in settings {
        server.args(["-c", setting]);
    }
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    server.spawn().context("cannot start PostgreSQL")
}

fn free_port() -> Result<u16> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).context("cannot find a free port")
}
