//! The S3 store: Garage, or a small server for tests.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::network::{Network, STORE, run};

const BUCKET: &str = "gable";

/// The program that is the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreProgram<'a> {
    Garage(&'a Path),
    TestBucket(&'a Path),
}

/// A running store.
pub(crate) struct Store {
    process: Child,
    pub(crate) address: SocketAddr,
    /// The region and the credentials.
    variables: Vec<(String, String)>,
}

impl Store {
    /// Starts the store with an empty bucket.
    pub(crate) fn start(network: &Network, program: StoreProgram<'_>, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder.join("store")).context("cannot create the folder of the store")?;
        match program {
            StoreProgram::Garage(garage) => start_garage(network, garage, folder),
            StoreProgram::TestBucket(test_bucket) => start_test_bucket(network, test_bucket, folder),
        }
    }

    /// Returns the URL for `--store`.
    pub(crate) fn url(prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Returns the URL of an object, and the options of curl to write it.
    pub(crate) fn curl_upload(&self, key: &str) -> (String, Vec<String>) {
        let variable = |name: &str| {
            let found = self.variables.iter().find(|(known, _)| known == name);
            found.map_or("", |(_, value)| value.as_str())
        };
        let user = format!("{}:{}", variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
        let signature = format!("aws:amz:{}:s3", variable("AWS_REGION"));
        let options =
            ["--aws-sigv4", &signature, "--user", &user, "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"];
        (format!("http://{}/{BUCKET}/{key}", self.address), options.map(ToOwned::to_owned).to_vec())
    }

    /// Returns the variables of a node that reaches the store at an address.
    pub(crate) fn variables(&self, endpoint: SocketAddr) -> Vec<(String, String)> {
        let endpoint = ("AWS_ENDPOINT_URL".to_owned(), format!("http://{endpoint}"));
        self.variables.iter().cloned().chain([endpoint]).collect()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start_test_bucket(network: &Network, program: &Path, folder: &Path) -> Result<Store> {
    let address = network.address(STORE, 3900)?;
    let mut command = network.command(STORE, program);
    command.arg(folder.join("store")).arg(address.to_string()).stdout(Stdio::piped());
    command.stderr(File::create(folder.join("store.log")).context("cannot write the log of the store")?);
    let mut process = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let output = BufReader::new(process.stdout.take().context("the store has no output")?);
    let pair = |line: String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let lines = output.lines().map_while(Result::ok).filter_map(pair).take(4);
    let variables: Vec<_> = lines.filter(|(name, _)| name != "AWS_ENDPOINT_URL").collect();
    if variables.is_empty() {
        bail!("{} printed no variables", program.display());
    }
    Ok(Store { process, address, variables })
}

fn start_garage(network: &Network, program: &Path, folder: &Path) -> Result<Store> {
    let (address, rpc) = (network.address(STORE, 3900)?, network.address(STORE, 3901)?);
    let data = folder.join("store");
    let configuration = folder.join("garage.toml");
    let text = format!(
        "metadata_dir = \"{data}/meta\"\ndata_dir = \"{data}/data\"\ndb_engine = \"lmdb\"\nreplication_factor = 1\n\
         rpc_bind_addr = \"{rpc}\"\nrpc_public_addr = \"{rpc}\"\nrpc_secret = \"{secret}\"\n\n\
         [s3_api]\ns3_region = \"garage\"\napi_bind_addr = \"{address}\"\nroot_domain = \".s3.garage\"\n",
        data = data.display(),
        secret = "5a".repeat(32),
    );
    fs::write(&configuration, text).context("cannot write the configuration of Garage")?;
    let log = File::create(folder.join("store.log")).context("cannot write the log of the store")?;
    let mut server = network.command(STORE, program);
    server.arg("-c").arg(&configuration).arg("server").stdout(log.try_clone()?).stderr(log);
    let process = server.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let mut store = Store { process, address, variables: Vec::new() };
    let garage = |arguments: &str| -> Result<String> {
        let mut command: Command = network.command(STORE, program);
        run(command.arg("-c").arg(&configuration).args(arguments.split(' ')))
    };
    let start = Instant::now();
    let node = loop {
        match garage("node id --quiet") {
            Ok(node) if garage("status").is_ok() => break node,
            Err(error) if start.elapsed() > Duration::from_secs(30) => return Err(error),
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    let node = node.split('@').next().unwrap_or_default().trim();
    garage(&format!("layout assign --zone local --capacity 10G {node}"))?;
    garage("layout apply --version 1")?;
    garage(&format!("bucket create {BUCKET}"))?;
    let key = garage("key create nodes")?;
    garage(&format!("bucket allow --read --write {BUCKET} --key nodes"))?;
    let value = |name: &str| {
        let line = key.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(|value| value.trim().to_owned()).with_context(|| format!("Garage printed no {name}"))
    };
    store.variables = vec![
        ("AWS_REGION".to_owned(), "garage".to_owned()),
        ("AWS_ACCESS_KEY_ID".to_owned(), value("Key ID:")?),
        ("AWS_SECRET_ACCESS_KEY".to_owned(), value("Secret key:")?),
    ];
    Ok(store)
}
