//! A private PostgreSQL server, there for one run of the tests.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Outcome,
    leash::{leashed, leashed_as},
    machine,
    scratch::Scratch,
    steps,
};

/// How long the server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
const FOLDER: &str = "gable-postgres";
const USER: &str = "gable";
const PASSWORD: &str = "correct-horse";

/// The running server; it stops when this is dropped, and when we die.
pub(crate) struct Postgres {
    server: Child,
    account: Account,
    programs: PathBuf,
    folder: Scratch,
    port: u16,
}

impl Postgres {
    /// Makes a cluster from nothing and starts it.
    pub(crate) fn start() -> Outcome<Self> {
        let programs = programs().ok_or("PostgreSQL is missing")?;
        let account = Account::choose();
        let folder = account.own_folder()?;
        let make = |program: &Path, words: &str| account.make(folder.path(), program, words);
        write(folder.path(), "password", PASSWORD)?;
        // A locale that knows more letters than ASCII, as any real installation has, and that is there everywhere.
        make(
            &programs.join("initdb"),
            &format!("--pgdata=data --username={USER} --pwfile=password --auth=scram-sha-256 --locale=C.UTF-8"),
        )?;
        write(folder.path(), "server.ext", "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
        // An authority and a certificate signed by it: strict clients refuse one that is both at once.
        for words in [
            "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=authority -keyout ca.key -out ca.crt",
            "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile server.ext -out server.crt",
        ] {
            make(Path::new("openssl"), words)?;
        }
        let port = free_port()?;
        let server = spawn(&account, &programs, folder.path(), port)?;
        let mut postgres = Self { server, account, programs, folder, port };
        postgres.wait_until_ready()?;
        Ok(postgres)
    }

    /// The URL under which tests make their databases.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }

    /// The certificate of the authority that signed the server's.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    fn wait_until_ready(&mut self) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Ok(Some(status)) = self.server.try_wait() {
                return Err(format!("PostgreSQL ended early ({status})\n{}", self.log()));
            }
            let mut asked = Command::new(self.programs.join("pg_isready"));
            asked.args(["--host=127.0.0.1", "--port", &self.port.to_string()]).stdout(Stdio::null());
            if asked.status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("PostgreSQL was not ready after {} seconds\n{}", PATIENCE.as_secs(), self.log()))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = self.account.command(&self.programs.join("pg_ctl"));
        stop.current_dir(self.folder.path()).args(["stop", "--pgdata=data", "--mode=fast", "--silent"]);
        if steps::run(&mut stop).is_err() {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

/// Whose processes these are: PostgreSQL refuses to run as root.
enum Account {
    Own,
    Other(&'static str),
}

impl Account {
    fn choose() -> Self {
        match (machine::is_root(), machine::has_user("postgres")) {
            (false, _) => Self::Own,
            (true, true) => Self::Other("postgres"),
            (true, false) => Self::Other("nobody"),
        }
    }

    /// A program of this account; SIGINT makes the server close its files and go.
    fn command(&self, program: &Path) -> Command {
        match self {
            Self::Own => leashed("INT", program),
            Self::Other(user) => leashed_as(user, "INT", program),
        }
    }

    /// Runs a program to its end in a folder; it is heard only if it fails.
    fn make(&self, folder: &Path, program: &Path, words: &str) -> Outcome {
        let name = program.file_name().unwrap_or_default().display();
        let output = self.command(program).current_dir(folder).args(words.split(' ')).output();
        let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let told = [output.stdout, output.stderr].concat();
        Err(format!("{name} failed ({})\n{}", output.status, String::from_utf8_lossy(&told).trim_end()))
    }

    /// A folder that this account can reach; the build may lie in a home that is closed to it.
    fn own_folder(&self) -> Outcome<Scratch> {
        let Self::Other(user) = self else { return Scratch::new(FOLDER) };
        for parent in [crate::workspace::kept(), std::env::temp_dir()] {
            let folder = Scratch::beneath(&parent, FOLDER)?;
            steps::run(Command::new("chown").arg(user).arg(folder.path()))?;
            let mut probe = self.command(Path::new("test"));
            if probe.arg("-w").arg(folder.path()).status().is_ok_and(|status| status.success()) {
                return Ok(folder);
            }
        }
        Err(format!("the user {user} can write neither beneath the build nor in the folder for temporary files"))
    }
}

/// The folder with the server's programs, which Debian keeps off the search path.
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
    newest.or_else(|| machine::find("initdb")?.canonicalize().ok()?.parent().map(Path::to_owned))
}

fn write(folder: &Path, name: &str, content: &str) -> Outcome {
    let path = folder.join(name);
    fs::write(&path, content).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn spawn(account: &Account, programs: &Path, folder: &Path, port: u16) -> Outcome<Child> {
    let log = File::create(folder.join("log")).map_err(|error| format!("cannot write the log: {error}"))?;
    let settings = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=300",
        "ssl=on",
        "ssl_cert_file=../server.crt",
        "ssl_key_file=../server.key",
        // The tests kill gable, never this server; syncing hundreds of little databases would take minutes.
        "fsync=off",
        "full_page_writes=off",
    ];
    let mut server = account.command(&programs.join("postgres"));
    server.current_dir(folder).args(["-D", "data", "-p", &port.to_string()]);
    for setting in settings {
        server.args(["-c", setting]);
    }
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    server.spawn().map_err(|error| format!("cannot start PostgreSQL: {error}"))
}

fn free_port() -> Outcome<u16> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| format!("cannot find a free port: {error}"))
}
