//! Measurements of a cluster: reads with one and three nodes, pushes and clones with a bucket and with a folder,
//! fail-overs.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::json;

use crate::{
    cluster::Cluster,
    database::Database,
    git::git_within,
    http::Client,
    load::{Load, Project},
    network::{NODES, run as run_program},
    nodes::{Node, NodeSettings, Start},
    rng::Content,
};

/// The number of reads per measurement, and of clients at the same time.
const READS: usize = 1500;
const CLIENTS: usize = 8;
const PUSHES: usize = 7;
const CLONES: usize = 5;
const COLD_CLONES: usize = 3;
const FAIL_OVERS: usize = 3;
/// The sizes of pushes: a row of the database, and files.
const PUSH_SIZES: [usize; 3] = [10 << 10, 1 << 20, 10 << 20];
const GIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Measures everything; returns a page with tables.
pub(crate) async fn run(cluster: &mut Cluster) -> Result<String> {
    let mut text = String::from("# Measurements of a cluster\n\n");
    text += &reads(cluster).await?;
    text += &pushes_and_clones(cluster).await?;
    text += &fail_overs(cluster).await?;
    Ok(text)
}

/// Measures the processor time of reads.
async fn reads(cluster: &Cluster) -> Result<String> {
    let client = cluster.nodes[0].client();
    let (project, _) = Project::create(&client, "read".to_owned()).await?;
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "First" });
    client.create(&format!("{}/repository/files", project.api()), &file).await?;
    let issue = client.create(&format!("{}/issues", project.api()), &json!({ "title": "read" })).await?;
    let paths = [
        ("a project", project.api()),
        ("an issue", format!("{}/issues/{}", project.api(), issue["id"])),
        ("a folder of a repository", format!("{}/repository/tree", project.api())),
    ];
    let mut text = String::from(
        "## Reads\n\nProcessor time of the nodes per request, without that of PostgreSQL.\n\n\
         | Read | One node | Three nodes, in total | Ratio | Requests per second: one / three nodes |\n|---|---:|---:|---:|---:|\n",
    );
    for (name, path) in paths {
        let (one, one_rate) = read_repeatedly(&cluster.nodes[..1], &path).await?;
        let (three, three_rate) = read_repeatedly(&cluster.nodes, &path).await?;
        text += &format!(
            "| {name} | {one:.2} ms | {three:.2} ms | {:.2} | {one_rate:.0} / {three_rate:.0} |\n",
            three / one
        );
    }
    Ok(text + "\n")
}

/// Returns the processor time per request in milliseconds, and the number of requests per second.
#[expect(clippy::cast_precision_loss, reason = "a few thousand requests")]
async fn read_repeatedly(nodes: &[Node], path: &str) -> Result<(f64, f64)> {
    let total = || nodes.iter().map(Node::processor_time).sum::<Result<Duration>>();
    // Caches are filled first.
    send_reads(nodes, path, READS / 10).await?;
    let (before, start) = (total()?, Instant::now());
    send_reads(nodes, path, READS).await?;
    let (used, elapsed) = (total()?.saturating_sub(before), start.elapsed());
    Ok((used.as_secs_f64() * 1000.0 / READS as f64, READS as f64 / elapsed.as_secs_f64()))
}

async fn send_reads(nodes: &[Node], path: &str, count: usize) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let addresses: Vec<Client> = nodes.iter().map(Node::client).collect();
        let path = path.to_owned();
        clients.push(tokio::spawn(async move {
            for request in 0..count / CLIENTS {
                let response = addresses[(number + request) % addresses.len()].get(&path).await?;
                if response.status != 200 {
                    bail!("GET {path}: {response}");
                }
            }
            Ok(())
        }));
    }
    for client in clients {
        client.await??;
    }
    Ok(())
}

/// Compares a bucket with a folder.
async fn pushes_and_clones(cluster: &mut Cluster) -> Result<String> {
    let mut local = start_local_node(cluster).await?;
    let folder = cluster.folder.join("bench");
    std::fs::create_dir_all(&folder)?;
    let mut text = String::from(
        "## Pushes and clones\n\nMedian times, measured by `git`. Both servers use the same PostgreSQL servers with a synchronous standby. The \
         plain upload is a `PUT` of the same size with curl.\n\n\
         | | Bucket | Folder | Ratio | Plain upload to the bucket |\n|---|---:|---:|---:|---:|\n",
    );
    let in_bucket = Repository::create(&folder, &cluster.nodes[0], "bucket").await?;
    let in_folder = Repository::create(&folder, &local, "folder").await?;
    for size in PUSH_SIZES {
        let (mut bucket, mut plain, mut local) = (Vec::new(), Vec::new(), Vec::new());
        // In alternation, so that a change of the machine affects both.
        for number in 0..PUSHES {
            bucket.push(in_bucket.push(size, number).await?);
            local.push(in_folder.push(size, number).await?);
            plain.push(upload(cluster, &folder, size)?);
        }
        text += &row(&format!("push of {} KiB", size >> 10), &mut bucket, &mut local, Some(&mut plain));
    }
    let (mut warm, mut of_folder, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CLONES {
        warm.push(in_bucket.clone(cluster.nodes[0].http).await?);
        of_folder.push(in_folder.clone(local.http).await?);
    }
    for _ in 0..COLD_CLONES {
        let Cluster { nodes, network, settings, .. } = cluster;
        nodes[0].stop().await?;
        nodes[0].clear_cache()?;
        nodes[0].start_until_ready(network, settings, &Start::default()).await?;
        cold.push(in_bucket.clone(nodes[0].http).await?);
    }
    text += &row("clone, everything cached", &mut warm, &mut of_folder, None);
    text += &row("clone from a node with an empty cache", &mut cold, &mut of_folder, None);
    local.stop().await?;
    let Cluster { nodes, network, settings, .. } = cluster;
    nodes[2].start_until_ready(network, settings, &Start::default()).await?;
    Ok(text + "\n")
}

/// Starts a server with a data folder in place of the third node.
async fn start_local_node(cluster: &mut Cluster) -> Result<Node> {
    cluster.nodes[2].stop().await?;
    let Database::Patroni(patroni) = &cluster.database else { bail!("the measurement requires the full form") };
    patroni.create_database(&cluster.network, "gable_local").await?;
    let settings = NodeSettings {
        database: cluster.database.url(&cluster.network, "gable_local")?,
        read_replica: None,
        store: None,
        store_variables: Vec::new(),
        ..cluster.settings.clone()
    };
    let mut node = Node::new(&cluster.network, NODES[2], &cluster.folder.join("local"))?;
    node.start_until_ready(&cluster.network, &settings, &Start::default()).await?;
    Ok(node)
}

fn row(name: &str, bucket: &mut [Duration], folder: &mut [Duration], plain: Option<&mut [Duration]>) -> String {
    let (bucket, folder) = (median(bucket), median(folder));
    let plain = plain.map(|plain| format!("{:.0} ms", median(plain))).unwrap_or_default();
    format!("| {name} | {bucket:.0} ms | {folder:.0} ms | {:.1} | {plain} |\n", bucket / folder)
}

/// Returns the median in milliseconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, Duration::as_secs_f64) * 1000.0
}

/// Measures a plain upload to the store.
fn upload(cluster: &Cluster, folder: &Path, size: usize) -> Result<Duration> {
    let path = folder.join("upload");
    std::fs::write(&path, Content { seed: 1, size }.bytes())?;
    let (url, options) = cluster.store.curl_upload("plain-upload");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--output", "/dev/null", "--write-out", "%{time_total}"]);
    let seconds = run_program(curl.args(options).arg("--upload-file").arg(&path).arg(url))?;
    let seconds: f64 = seconds.trim().parse().context("curl printed no time")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// A local repository that pushes to a project.
struct Repository {
    folder: PathBuf,
    project: Project,
    address: SocketAddr,
}

impl Repository {
    async fn create(folder: &Path, node: &Node, name: &str) -> Result<Self> {
        let (project, _) = Project::create(&node.client(), format!("bench-{name}")).await?;
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let repository = Self { folder, project, address: node.http };
        repository.git(&["init", "-q", "--bare", "."], b"").await?;
        Ok(repository)
    }

    async fn git(&self, arguments: &[&str], input: &[u8]) -> Result<String> {
        git_within(GIT_TIMEOUT, &self.folder, arguments, input)
            .await
            .map_err(|messages| anyhow!("git failed: {messages}"))
    }

    /// Pushes a new commit with one file to a new branch; returns how long the push took.
    async fn push(&self, size: usize, number: usize) -> Result<Duration> {
        let seed = u64::try_from(size * 100 + number).unwrap_or_default();
        let blob = self.git(&["hash-object", "-w", "--stdin"], &Content { seed, size }.bytes()).await?;
        let tree = self.git(&["mktree"], format!("100644 blob {blob}\tfile\n").as_bytes()).await?;
        let commit = self.git(&["commit-tree", "-m", "Commit", &tree], b"").await?;
        let refspec = format!("{commit}:refs/heads/push-{size}-{number}");
        let url = self.project.url(self.address);
        let start = Instant::now();
        self.git(&["push", "-q", &url, &refspec], b"").await?;
        Ok(start.elapsed())
    }

    /// Clones from a node; returns how long it took.
    async fn clone(&self, address: SocketAddr) -> Result<Duration> {
        let path = self.folder.with_extension("clone");
        let _ = std::fs::remove_dir_all(&path);
        let (url, target) = (self.project.url(address), path.display().to_string());
        let start = Instant::now();
        self.git(&["clone", "-q", "--mirror", &url, &target], b"").await?;
        let elapsed = start.elapsed();
        std::fs::remove_dir_all(&path)?;
        Ok(elapsed)
    }
}

/// Measures the time without writes when the primary changes.
async fn fail_overs(cluster: &mut Cluster) -> Result<String> {
    let clones = cluster.folder.join("clones");
    std::fs::create_dir_all(&clones)?;
    let mut text = String::from(
        "## Fail-over of PostgreSQL\n\nUnder load. The time without writes is the longest one between two successful write probes; the time of \
         the election is that of Patroni.\n\n\
         | | Until the new primary accepts connections | Time without writes | Goal |\n|---|---:|---:|---:|\n",
    );
    let mut load = Load::start(&cluster.balancer, cluster.receiver_address, "bench", &clones, 1, 1).await?;
    for kill in [true, false] {
        for _ in 0..FAIL_OVERS {
            tokio::time::sleep(Duration::from_secs(2)).await;
            load.start_gap();
            let start = Instant::now();
            let (patroni, network) = cluster.patroni()?;
            let old = patroni.primary(network).await.context("no server is the primary")?;
            if kill {
                patroni.kill_primary(network).await?;
            } else {
                patroni.switch_over(network).await?;
            }
            while patroni.primary(network).await.is_none_or(|primary| primary == old) {
                if start.elapsed() > Duration::from_secs(60) {
                    bail!("no new primary within a minute");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let elected = start.elapsed();
            tokio::time::sleep(Duration::from_secs(8)).await;
            if kill {
                patroni.restart(network, old)?;
            }
            let gap = load.end_gap();
            cluster.wait_until_recovered().await?;
            text += &format!(
                "| {} | {:.1} s | {:.1} s | 10 s |\n",
                if kill { "kill -9 of the primary" } else { "switchover" },
                elected.as_secs_f64(),
                gap.longest.as_secs_f64()
            );
        }
    }
    load.stop().await;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_contain_medians() {
        let millis = |times: &[u64]| times.iter().copied().map(Duration::from_millis).collect::<Vec<_>>();
        let row = row("push", &mut millis(&[30, 10, 20]), &mut millis(&[10]), Some(&mut millis(&[5])));
        assert_eq!(row, "| push | 20 ms | 10 ms | 2.0 | 5 ms |\n");
    }
}
