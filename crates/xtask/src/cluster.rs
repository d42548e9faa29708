//! `cargo xtask cluster`: three nodes with their database, store and load balancer, while parts of them fail.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{
    postgres::Postgres,
    steps,
    system::{self, CURL, ETCD, FAKETIME, HAPROXY, IPROUTE, NFTABLES, OPENSSL, PATRONI, POSTGRES, SSH},
    workspace::{cache_folder, cargo, program, root},
};

/// The version of Garage, the S3 store of the full form.
const GARAGE_VERSION: &str = "2.5.0";

/// Runs the campaign; the flags are passed to the cluster program.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    let has_flag = |name: &str| flags.iter().any(|flag| flag == name);
    let (is_short, is_bench) = (has_flag("--short"), has_flag("--bench"));
    steps::run(&mut cargo(&["build", "--package", "cluster"]))?;
    let mut cluster = Command::new(program("debug", "cluster"));
    cluster.current_dir(root());
    if !has_flag("--gable") {
        // Times are measured with the build that is delivered.
        let (profile, build) = if is_bench { ("release", &["--release"][..]) } else { ("debug", &[][..]) };
        steps::run(cargo(&["build", "--package", "server"]).args(build))?;
        cluster.arg("--gable").arg(program(profile, "gable"));
    }
    let postgres = if is_short {
        system::install_missing(&[POSTGRES, OPENSSL, HAPROXY, SSH])?;
        let postgres = Postgres::start()?;
        cluster.arg("--database").arg(postgres.url());
        if !has_flag("--test-bucket") {
            steps::run(&mut cargo(&["build", "--package", "testkit", "--bin", "test-bucket"]))?;
            cluster.arg("--test-bucket").arg(program("debug", "test-bucket"));
        }
        Some(postgres)
    } else {
        system::install_missing(&[POSTGRES, PATRONI, ETCD, HAPROXY, IPROUTE, NFTABLES, FAKETIME, CURL, SSH])?;
        if !has_flag("--garage") {
            cluster.arg("--garage").arg(install_garage()?);
        }
        None
    };
    let outcome = steps::run(cluster.args(flags));
    drop(postgres);
    outcome
}

/// Builds Garage from crates.io, unless a former run did.
fn install_garage() -> Result<PathBuf> {
    let folder = cache_folder().join(format!("garage-{GARAGE_VERSION}"));
    let garage = folder.join("bin/garage");
    if !garage.is_file() {
        let mut install = cargo(&["install", "garage", "--version", GARAGE_VERSION, "--locked", "--root"]);
        steps::run(install.arg(&folder))?;
    }
    Ok(garage)
}
