//! The SSH key of the clients.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{http::Client, network::run};

/// A key of the administrator.
pub(crate) struct SshKey {
    key: PathBuf,
    known_hosts: PathBuf,
}

impl SshKey {
    /// Creates a key in a folder, and adds it to the administrator.
    pub(crate) async fn create(client: &Client, folder: &Path, name: &str) -> Result<Self> {
        let key = folder.join(format!("{name}.key"));
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&key))?;
        let public = std::fs::read_to_string(folder.join(format!("{name}.key.pub"))).context("cannot read a key")?;
        client.create("/api/v3/user/keys", &json!({ "title": name, "key": public.trim() })).await?;
        Ok(Self { key, known_hosts: folder.join(format!("{name}.hosts")) })
    }

    /// Returns the setting of git. The first host key is remembered, and every node must present the same.
    pub(crate) fn git_setting(&self, address: SocketAddr) -> String {
        format!(
            "core.sshCommand=ssh -i {} -p {} -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 \
             -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={}",
            self.key.display(),
            address.port(),
            self.known_hosts.display()
        )
    }
}
