//! All parts of a cluster.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::{
    balancer::{Balancer, Connections},
    checker::NamedNode,
    database::{Database, Patroni},
    fault_proxy::FaultProxy,
    network::{CAMPAIGN, NODES, Network, run},
    nodes::{Node, NodeSettings, Start},
    options::Options,
    receiver::Receiver,
    restarts::RestartMode,
    store::{Store, StoreProgram},
};

/// How long the PostgreSQL servers may take to work together again after a fault.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// A running cluster. Fields are dropped in this order.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) balancer: Balancer,
    pub(crate) proxy: FaultProxy,
    pub(crate) receiver: Receiver,
    pub(crate) receiver_address: SocketAddr,
    pub(crate) settings: NodeSettings,
    pub(crate) old_gable: Option<PathBuf>,
    pub(crate) store: Store,
    pub(crate) database: Database,
    pub(crate) network: Network,
    pub(crate) folder: PathBuf,
}

impl Cluster {
    /// Starts all parts in a folder, and waits until they are ready.
    pub(crate) async fn start(options: &Options, folder: &Path) -> Result<Self> {
        let network = if options.short { Network::loopback() } else { Network::create_namespaces()? };
        let database = match &options.database {
            Some(url) => Database::Single(url.clone()),
            None => Database::Patroni(Patroni::start(&network, folder).await?),
        };
        let program = match (&options.garage, &options.test_bucket) {
            (Some(garage), _) => StoreProgram::Garage(garage),
            (None, Some(test_bucket)) => StoreProgram::TestBucket(test_bucket),
            (None, None) => anyhow::bail!("no store: use --garage or --test-bucket"),
        };
        let store = Store::start(&network, program, folder)?;
        let proxy_address = network.address(CAMPAIGN, 3900)?;
        let proxy = FaultProxy::start(proxy_address, store.address).await?;
        let receiver_address = network.address(CAMPAIGN, 9000)?;
        let receiver = Receiver::start(receiver_address).await?;
        let logs_every_request = !options.command.is_empty() && options.restarts == RestartMode::Kill;
        let connections = if logs_every_request { Connections::Closed } else { Connections::KeptAlive };
        let balancer = Balancer::start(&network, folder, connections)?;
        let instance_key = folder.join("instance-key");
        run(std::process::Command::new(&options.gable).args(["admin", "instance", "create-key"]).arg(&instance_key))?;
        let settings = NodeSettings {
            gable: options.gable.clone(),
            database: database.url(&network, "gable")?,
            read_replica: database.standby_url(&network, "gable")?,
            store: Some(Store::url("cluster")),
            store_variables: store.variables(proxy_address),
            instance_key,
            external_url: format!("http://{}", balancer.http),
            flags: options.node_flags.clone(),
        };
        let old_gable = options.old_gable.clone();
        let start = Start { gable: old_gable.clone().filter(|_| options.is_upgrade()), ..Start::default() };
        let mut nodes = Vec::new();
        for host in NODES {
            let mut node = Node::new(&network, host, folder)?;
            node.start_until_ready(&network, &settings, &start).await?;
            nodes.push(node);
        }
        let folder = folder.to_owned();
        let cluster = Self {
            nodes,
            balancer,
            proxy,
            receiver,
            receiver_address,
            settings,
            old_gable,
            store,
            database,
            network,
            folder,
        };
        cluster.wait_for_balancer().await?;
        Ok(cluster)
    }

    /// Returns clients of all nodes.
    pub(crate) fn clients(&self) -> Vec<NamedNode> {
        self.nodes.iter().map(|node| (node.host.name, node.client())).collect()
    }

    pub(crate) fn patroni(&mut self) -> Result<(&mut Patroni, &Network)> {
        match &mut self.database {
            Database::Patroni(patroni) => Ok((patroni, &self.network)),
            Database::Single(_) => anyhow::bail!("this fault requires two PostgreSQL servers"),
        }
    }

    /// Waits until all parts work again. A node that has ended is started again; returns a description of each that had
    /// been ready before.
    pub(crate) async fn wait_until_recovered(&mut self) -> Result<Vec<String>> {
        if let Database::Patroni(patroni) = &self.database {
            patroni.wait_until_synchronous(&self.network, RECOVERY_TIMEOUT).await?;
        }
        let mut ended = Vec::new();
        for node in &mut self.nodes {
            while let Err(error) = node.start_until_ready(&self.network, &self.settings, &Start::default()).await {
                if !node.has_ended_after_ready() {
                    return Err(error);
                }
                ended.push(format!("{error:#}"));
                node.kill();
            }
        }
        self.wait_for_balancer().await?;
        Ok(ended)
    }

    async fn wait_for_balancer(&self) -> Result<()> {
        let client = crate::http::Client::new(self.balancer.http, None).with_timeout(Duration::from_secs(2));
        for _ in 0..300 {
            if client.get("/-/ready").await.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(anyhow::anyhow!("the load balancer reaches no node")).context("haproxy")
    }
}
