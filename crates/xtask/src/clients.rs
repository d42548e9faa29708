//! Runs third-party clients against the real binary: client libraries of that time, git, our examples, schemathesis.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context as _, Result, anyhow};

use crate::{
    gable_server::{GableServer, ROOT_PASSWORD, ROOT_TOKEN},
    python,
    steps::{self, Report, TestCounts},
    system::{self, BUBBLEWRAP, CURL, NODE, PYTHON, RUBY_GITLAB, SSH},
    workspace,
};

/// The API dialects.
const DIALECTS: [&str; 2] = ["spec", "gitlab"];

/// Clients run as the administrator and create more projects than the default limit allows.
const MANY_PROJECTS: &[&str] = &["--default-projects-limit", "1000"];

/// A client library or git, with its tests.
pub(crate) struct StockClient {
    pub(crate) name: String,
    pub(crate) dialect: &'static str,
    /// The flags of its server.
    pub(crate) flags: &'static [&'static str],
    pub(crate) command: Command,
}

/// The packages of the clients.
#[derive(Default)]
pub(crate) struct ClientPackages {
    python: PathBuf,
    node_modules: PathBuf,
}

impl ClientPackages {
    /// Installs what is missing.
    pub(crate) fn install() -> Result<Self> {
        system::install_missing(&[PYTHON, NODE, RUBY_GITLAB, CURL, SSH, BUBBLEWRAP])?;
        Ok(Self {
            python: python::environment("venv", &script("requirements.txt"))?,
            node_modules: node_packages("npm", &script("npm"))?.join("node_modules"),
        })
    }

    /// Returns all clients, in both dialects if they support both.
    pub(crate) fn stock_clients(&self) -> Vec<StockClient> {
        let mut clients = Vec::new();
        for dialect in DIALECTS {
            let mut command = pytest(&self.python);
            command.args(["", "_ci", "_issues", "_places"].map(|part| script(&format!("python_gitlab{part}.py"))));
            let name = format!("python-gitlab, dialect {dialect}");
            clients.push(StockClient { name, dialect, flags: &[], command });
        }
        let mut add = |name: &str, command| {
            clients.push(StockClient { name: name.to_owned(), dialect: "gitlab", flags: MANY_PROJECTS, command });
        };
        for (name, file) in [("node-gitlab", "node_gitlab.js"), ("npm gitlab", "npm_gitlab.js")] {
            let mut command = Command::new("node");
            command.arg(script(file)).env("NODE_PATH", &self.node_modules);
            add(name, command);
        }
        let mut ruby = Command::new("ruby");
        ruby.arg(script("ruby_gitlab.rb"));
        add("ruby-gitlab", ruby);
        let mut git = pytest(&self.python);
        git.arg(script("stock_git.py"));
        add("git and ssh", git);
        clients
    }
}

/// Runs all clients.
pub(crate) fn run(report: &mut Report) {
    let mut packages = ClientPackages::default();
    let prepared = report.step("clients: packages", || {
        packages = ClientPackages::install()?;
        Ok(())
    });
    if !prepared {
        return;
    }
    for mut client in packages.stock_clients() {
        report.step(&format!("clients: {}", client.name), || {
            run_client(client.dialect, client.flags, &mut client.command)
        });
    }
    report.step("clients: schemathesis, in both dialects at once", || schemathesis(&packages.python));
    report.step("examples", || {
        let runner = &["--runner", "1"];
        let mut counts = example(&runner[..], Command::new("bash").arg(examples().join("curl.sh")))?;
        counts += example(&runner[..], Command::new(&packages.python).arg(examples().join("python.py")))?;
        Ok(counts)
    });
}

/// Calls every operation of the OpenAPI document, in both dialects in parallel, because much of the time is waiting.
fn schemathesis(python: &Path) -> Result<TestCounts> {
    let call = |dialect: &'static str| {
        let mut client = Command::new(python);
        with_server(dialect, &[], client.arg(script("openapi.py")), |client| {
            steps::run_tests_as(&format!("{dialect}: "), client)
        })
    };
    thread::scope(|scope| {
        let threads = DIALECTS.map(|dialect| scope.spawn(move || call(dialect)));
        let mut counts = TestCounts::default();
        for thread in threads {
            counts += thread.join().map_err(|_| anyhow!("the schemathesis thread panicked"))??;
        }
        Ok(counts)
    })
}

fn pytest(python: &Path) -> Command {
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]);
    pytest
}

/// Runs a client against its own server.
pub(crate) fn run_client(dialect: &str, flags: &[&str], client: &mut Command) -> Result<TestCounts> {
    with_server(dialect, flags, client, steps::run_tests)
}

/// Runs an example; its success counts as one test.
fn example(flags: &[&str], program: &mut Command) -> Result<TestCounts> {
    with_server("spec", flags, program, |program| {
        steps::run(program)?;
        Ok(TestCounts { passed: 1, failed: 0 })
    })
}

fn with_server(
    dialect: &str,
    flags: &[&str],
    client: &mut Command,
    run: impl FnOnce(&mut Command) -> Result<TestCounts>,
) -> Result<TestCounts> {
    let gable = GableServer::start(dialect, flags)?;
    client
        .current_dir(workspace::root())
        .env("GABLE_URL", gable.url())
        .env("GABLE_SSH_URL", gable.ssh_url())
        .env("GABLE_DIALECT", dialect)
        .env("GABLE_TOKEN", ROOT_TOKEN)
        .env("GABLE_ROOT_TOKEN", ROOT_TOKEN)
        .env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let counts = run(client);
    let log = gable.log();
    for line in log.lines().filter(|line| line.contains("ERROR") || line.contains("WARN")) {
        println!("gable: {line}");
    }
    counts
}

fn scripts() -> PathBuf {
    workspace::root().join("tests/clients")
}

fn script(name: &str) -> PathBuf {
    scripts().join(name)
}

fn examples() -> PathBuf {
    workspace::root().join("examples")
}

/// Installs the packages of a `package.json` into a folder of this name; again if the lock file or node changes.
pub(crate) fn node_packages(name: &str, source: &Path) -> Result<PathBuf> {
    let folder = workspace::cache_folder().join(name);
    let version = steps::read(Command::new("node").arg("--version"))?;
    let stamp = format!("{version}{}", workspace::read(&source.join("package-lock.json"))?);
    workspace::rebuild_if_stale(&folder, &stamp, || {
        let context = || format!("cannot prepare {}", folder.display());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(context)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(source.join(file), folder.join(file)).with_context(context)?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        steps::run(&mut npm)
    })?;
    Ok(folder)
}
