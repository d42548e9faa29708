//! The parts of the cluster that fail, and how.

use std::{
    fs::File,
    io::Write as _,
    path::PathBuf,
    process::Stdio,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{
    cluster::Cluster,
    fault_proxy::StoreFault,
    network::{self, BALANCER, CAMPAIGN, DATABASES, Host},
    nodes::Start,
    rng::Rng,
};

/// The offset of a wrong clock, in seconds.
const CLOCK_OFFSET: i32 = 120;
/// The delay of a slow store: longer than most requests, shorter than the timeout of a node.
const STORE_DELAY: Duration = Duration::from_secs(3);
/// The shortest and the longest duration of a partition, in seconds: connections survive a short one.
const PARTITION_DURATION: (u64, u64) = (4, 20);
/// The time after which a primary that was killed is started again: later than the fail-over.
const PRIMARY_DOWNTIME: Duration = Duration::from_secs(12);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    NodeKill,
    PartitionDatabase,
    PartitionStore,
    PartitionBalancer,
    DatabaseKill,
    DatabaseSwitchover,
    StoreUnavailable,
    StoreSlow,
    StoreTorn,
    StoreStaleListing,
    ClockOffset,
    OldVersion,
    FullCache,
    Upgrade,
}

/// All faults with their names and descriptions.
pub(crate) const FAULTS: [(Fault, &str, &str); 14] = [
    (Fault::NodeKill, "node-kill", "kill -9 of a node, which is started again after up to 3 s"),
    (Fault::PartitionDatabase, "partition-database", "a node reaches neither PostgreSQL server for 4 to 20 s"),
    (Fault::PartitionStore, "partition-store", "a node does not reach the store for 4 to 20 s"),
    (Fault::PartitionBalancer, "partition-balancer", "a node is not reached by the load balancer for 4 to 20 s"),
    (Fault::DatabaseKill, "database-kill", "kill -9 of the primary PostgreSQL server with its Patroni, for 12 s"),
    (Fault::DatabaseSwitchover, "database-switchover", "the PostgreSQL servers exchange their roles"),
    (Fault::StoreUnavailable, "store-unavailable", "the store answers 503 for 6 s"),
    (Fault::StoreSlow, "store-slow", "the store answers each request 3 s late, for 10 s"),
    (Fault::StoreTorn, "store-torn", "the store executes requests, and each answer ends in the middle, for 6 s"),
    (Fault::StoreStaleListing, "store-stale-listing", "listings lack new objects while `gable doctor` runs"),
    (Fault::ClockOffset, "clock-offset", "the clock of a node is two minutes fast or slow"),
    (Fault::OldVersion, "old-version", "a node is replaced by one of an earlier version, and back"),
    (Fault::FullCache, "full-cache", "the disk of the cache of a node is full for 6 s"),
    (Fault::Upgrade, "upgrade", "the nodes, all of an earlier version, are replaced one after the other"),
];

/// What has to be undone.
#[derive(Debug, Default)]
pub(crate) struct Injected {
    node: usize,
    database: Option<Host>,
    filler: Option<PathBuf>,
}

impl Fault {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        FAULTS.iter().find(|(_, known, _)| *known == name).map(|(fault, ..)| *fault)
    }

    pub(crate) fn name(self) -> &'static str {
        FAULTS.iter().find(|(fault, ..)| *fault == self).map_or("", |(_, name, _)| *name)
    }

    /// Returns whether the fault can happen without namespaces and with one PostgreSQL server.
    pub(crate) fn is_in_short_form(self) -> bool {
        self == Self::Upgrade
            || matches!(self, Self::NodeKill | Self::StoreUnavailable | Self::StoreSlow | Self::StoreTorn)
    }

    /// Returns whether the fault happens unless others are named. An upgrade begins with a cluster of the earlier version, and
    /// happens to it once.
    pub(crate) fn is_default(self) -> bool {
        self != Self::Upgrade
    }

    /// Starts the fault, and waits as long as it lasts, or as long as `hold` says.
    pub(crate) async fn inject(
        self,
        cluster: &mut Cluster,
        round: usize,
        hold: Option<Duration>,
        rng: &mut Rng,
    ) -> Result<Injected> {
        let node = rng.below(cluster.nodes.len());
        let mut injected = Injected { node, ..Injected::default() };
        let seconds = Duration::from_secs;
        let duration = match self {
            Self::NodeKill => {
                cluster.nodes[node].kill();
                Duration::from_millis(u64::try_from(rng.below(3000)).unwrap_or_default())
            }
            Self::PartitionDatabase => {
                let servers = DATABASES.iter().map(|host| cluster.network.address(*host, 0));
                let servers = servers.collect::<Result<Vec<_>>>()?;
                cluster.network.partition(cluster.nodes[node].host, &servers)?;
                partition_duration(rng)
            }
            Self::PartitionStore => {
                let store = cluster.network.address(CAMPAIGN, 3900)?;
                cluster.network.partition(cluster.nodes[node].host, &[store])?;
                partition_duration(rng)
            }
            Self::PartitionBalancer => {
                let balancer = cluster.network.address(BALANCER, 0)?;
                cluster.network.partition(cluster.nodes[node].host, &[balancer])?;
                partition_duration(rng)
            }
            Self::DatabaseKill => {
                let (patroni, network) = cluster.patroni()?;
                injected.database = Some(patroni.kill_primary(network).await?);
                PRIMARY_DOWNTIME
            }
            Self::DatabaseSwitchover => {
                let (patroni, network) = cluster.patroni()?;
                patroni.switch_over(network).await?;
                seconds(2)
            }
            Self::StoreUnavailable => {
                cluster.proxy.set_fault(StoreFault::Unavailable);
                seconds(6)
            }
            Self::StoreSlow => {
                cluster.proxy.set_fault(StoreFault::Slow(STORE_DELAY));
                seconds(10)
            }
            Self::StoreTorn => {
                cluster.proxy.set_fault(StoreFault::Torn);
                seconds(6)
            }
            Self::StoreStaleListing => {
                cluster.proxy.set_fault(StoreFault::StaleListing(minutes_ago(1)));
                run_doctor(cluster, node).await?;
                seconds(1)
            }
            Self::ClockOffset => {
                let clock_offset = if round.is_multiple_of(2) { CLOCK_OFFSET } else { -CLOCK_OFFSET };
                restart(cluster, node, &Start { clock_offset, ..Start::default() }).await?;
                seconds(6)
            }
            Self::OldVersion => {
                restart(cluster, node, &Start { gable: cluster.old_gable.clone(), ..Start::default() }).await?;
                seconds(6)
            }
            Self::FullCache => {
                injected.filler = Some(fill(cluster.nodes[node].cache())?);
                seconds(6)
            }
            Self::Upgrade => {
                // The first one changes the tables; the others continue with them until it is their turn.
                restart(cluster, round, &Start::default()).await?;
                seconds(6)
            }
        };
        tokio::time::sleep(hold.unwrap_or(duration)).await;
        Ok(injected)
    }

    /// Ends the fault.
    pub(crate) async fn heal(self, cluster: &mut Cluster, injected: Injected) -> Result<()> {
        let Injected { node, database, filler } = injected;
        match self {
            Self::NodeKill => {
                let Cluster { nodes, network, settings, .. } = cluster;
                nodes[node].start(network, settings, &Start::default())
            }
            Self::PartitionDatabase | Self::PartitionStore | Self::PartitionBalancer => {
                network::heal(cluster.nodes[node].host)
            }
            Self::DatabaseKill => {
                let (patroni, network) = cluster.patroni()?;
                patroni.restart(network, database.context("no server was killed")?)
            }
            Self::DatabaseSwitchover | Self::Upgrade => Ok(()),
            Self::StoreUnavailable | Self::StoreSlow | Self::StoreTorn | Self::StoreStaleListing => {
                cluster.proxy.set_fault(StoreFault::None);
                Ok(())
            }
            Self::ClockOffset | Self::OldVersion => restart(cluster, node, &Start::default()).await,
            Self::FullCache => {
                std::fs::remove_file(filler.context("no disk was filled")?).context("cannot free the disk")
            }
        }
    }
}

fn partition_duration(rng: &mut Rng) -> Duration {
    let (shortest, longest) = PARTITION_DURATION;
    Duration::from_secs(shortest + rng.next_u64() % (longest - shortest + 1))
}

/// Stops a node and starts it differently.
async fn restart(cluster: &mut Cluster, node: usize, start: &Start) -> Result<()> {
    let Cluster { nodes, network, settings, .. } = cluster;
    nodes[node].stop().await?;
    nodes[node].start_until_ready(network, settings, start).await
}

/// Runs `gable doctor` on the host of a node; it lists all objects. It does not read those of repositories, which takes
/// longer with each round and uses no listing.
async fn run_doctor(cluster: &Cluster, node: usize) -> Result<()> {
    let settings = &cluster.settings;
    let mut doctor = cluster.network.command(cluster.nodes[node].host, &settings.gable);
    doctor.args(["doctor", "--quick", "--cache"]).arg(cluster.folder.join("doctor-cache"));
    doctor.args(settings.store.iter().flat_map(|store| ["--store", store]));
    doctor.arg("--instance-key-file").arg(&settings.instance_key);
    doctor.env("GABLE_DATABASE", &settings.database).envs(settings.store_variables.iter().cloned());
    let log = File::create(cluster.folder.join("doctor.log")).context("cannot write the log of the doctor")?;
    let mut doctor: tokio::process::Command = doctor.into();
    doctor.stdout(log.try_clone()?).stderr(Stdio::from(log)).kill_on_drop(true);
    // It reports objects that the listing lacks, so its status does not matter.
    doctor.status().await.context("cannot run the doctor").map(drop)
}

/// Writes a file until the disk is full.
fn fill(folder: PathBuf) -> Result<PathBuf> {
    let path = folder.join("filler");
    let mut file = File::create(&path).context("cannot fill the disk")?;
    let chunk = vec![0; 1 << 20];
    while file.write_all(&chunk).is_ok() {}
    Ok(path)
}

/// Returns a time in the past in the format of S3 listings.
fn minutes_ago(minutes: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seconds = now.saturating_sub(minutes * 60);
    let clock = seconds % 86_400;
    format!("{}T{:02}:{:02}:{:02}.000Z", crate::report::date(seconds), clock / 3600, clock / 60 % 60, clock % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name() {
        for (fault, name, description) in FAULTS {
            assert_eq!(Fault::parse(name), Some(fault));
            assert_eq!(fault.name(), name);
            assert!(!description.is_empty());
        }
        assert_eq!(Fault::parse("earthquake"), None);
    }
}
