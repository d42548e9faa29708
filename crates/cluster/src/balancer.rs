//! The load balancer, with the configuration that the documentation recommends.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::Child,
};

use anyhow::{Context as _, Result};

use crate::{
    network::{BALANCER, NODES, Network},
    request_log::{HTTP_FORMAT, SSH_FORMAT},
};

const EXAMPLE: &str = include_str!("../../../examples/cluster/haproxy.cfg");

/// The connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connections {
    /// As in the example: a connection is used for many requests.
    KeptAlive,
    /// A connection is used for one request. If haproxy loses a later request of a connection, it closes the connection
    /// without a response, and does not log the request.
    Closed,
}

/// A running haproxy.
pub(crate) struct Balancer {
    process: Child,
    pub(crate) http: SocketAddr,
    pub(crate) ssh: SocketAddr,
}

impl Balancer {
    pub(crate) fn start(network: &Network, folder: &Path, connections: Connections) -> Result<Self> {
        let (http, ssh) = (network.address(BALANCER, 80)?, network.address(BALANCER, 22)?);
        let nodes = NODES.iter().map(|node| Ok((network.address(*node, 8080)?, network.address(*node, 2222)?)));
        let configuration = configuration(http, ssh, &nodes.collect::<Result<Vec<_>>>()?, connections);
        let path = folder.join("haproxy.cfg");
        fs::write(&path, configuration).with_context(|| format!("cannot write {}", path.display()))?;
        let log = File::create(folder.join("haproxy.log")).context("cannot write the log of haproxy")?;
        let mut command = network.command(BALANCER, "haproxy");
        command.arg("-db").arg("-f").arg(&path).stdout(log.try_clone()?).stderr(log);
        Ok(Self { process: command.spawn().context("cannot start haproxy")?, http, ssh })
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the example with the addresses of this cluster, and a log of requests; nodes are pairs of HTTP and SSH.
fn configuration(
    http: SocketAddr,
    ssh: SocketAddr,
    nodes: &[(SocketAddr, SocketAddr)],
    connections: Connections,
) -> String {
    let mut text = EXAMPLE.replace("bind :80", &format!("bind {http}")).replace("bind :22", &format!("bind {ssh}"));
    text = text.replace("check port 8080", "check");
    text = text.replace("global\n", "global\n    log stdout format raw local0 info\n");
    for (mode, format) in [("http", HTTP_FORMAT), ("tcp", SSH_FORMAT)] {
        let bind = format!("    mode {mode}\n    bind ");
        text = text.replace(&bind, &format!("    log global\n    log-format \"{format}\"\n{bind}"));
    }
    if connections == Connections::Closed {
        text = text.replace("frontend http\n", "frontend http\n    option httpclose\n");
    }
    for (number, (http, ssh)) in (1..).zip(nodes) {
        text = text.replace(&format!(" node{number}:8080"), &format!(" {http}"));
        // The first backend for SSH checks the nodes, the one for when none is ready does not.
        let node = format!(" node{number}:2222");
        text = text.replacen(&node, &format!(" {ssh} check port {}", http.port()), 1);
        text = text.replace(&node, &format!(" {ssh}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_used_with_other_addresses() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let nodes: Vec<_> = (1..=3).map(|node| (address(8000 + node), address(2000 + node))).collect();
        let text = configuration(address(80), address(22), &nodes, Connections::KeptAlive);
        for line in [
            "bind 127.0.0.1:80\n",
            "bind 127.0.0.1:22\n",
            "server node3 127.0.0.1:8003\n",
            "server node3 127.0.0.1:2003 check port 8003\n",
            "default-server check inter 2s fall 2 rise 1 send-proxy-v2\n",
            "    log stdout format raw local0 info\n",
            "frontend http\n    log global\n    log-format \"http ",
            "frontend ssh\n    log global\n    log-format \"ssh ",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
        assert!(!text.contains(" node1:") && !text.contains("httpclose"), "{text}");
        let backend = |name: &str| {
            let start = text.find(&format!("backend {name}\n    mode")).expect(name);
            text[start..].split("\n\n").next().expect("a section")
        };
        assert_eq!(backend("ssh_nodes").matches(" check port 800").count(), 3, "{text}");
        let unchecked = backend("all_ssh_nodes");
        assert_eq!(unchecked.matches("server node").count(), 3, "{text}");
        assert!(unchecked.contains("server node3 127.0.0.1:2003\n") && !unchecked.contains("check"), "{text}");
        assert!(unchecked.contains("default-server send-proxy-v2\n"), "{text}");
        let text = configuration(address(80), address(22), &nodes, Connections::Closed);
        assert!(text.contains("frontend http\n    option httpclose\n"), "{text}");
    }
}
