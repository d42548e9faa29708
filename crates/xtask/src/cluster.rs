//! `cargo xtask cluster`: three nodes with their database, store and load balancer, while parts of them fail.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{
    build,
    child_guard::guarded,
    cluster_clients::{self, ClientsOptions},
    cluster_examples,
    postgres::Postgres,
    steps::{self, Report, TestCounts},
    system::{self, CURL, ETCD, FAKETIME, HAPROXY, IPROUTE, NFTABLES, OPENSSL, PATRONI, POSTGRES, SSH},
    workspace::{cache_folder, cargo, program, root},
};

/// The version of Garage, the S3 store of the full form.
const GARAGE_VERSION: &str = "2.5.0";

/// Runs the campaign; the flags are passed to the cluster program.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    // The flags of a command after `--` are its own.
    let has_flag = |name: &str| flags.iter().take_while(|flag| *flag != "--").any(|flag| flag == name);
    let clients = has_flag("--clients").then(|| ClientsOptions::read(flags)).transpose()?;
    let (is_short, is_bench) = (has_flag("--short") || clients.is_some(), has_flag("--bench"));
    let uses_tests_build = (!has_flag("--gable") && !is_bench) || (is_short && !has_flag("--test-bucket"));
    let mut cluster = Command::new(program("release", "cluster"));
    if !is_short {
        // Its clients, its checks and the proxy of the store share the processors with the nodes for hours.
        steps::run(&mut cargo(&["build", "--package", "cluster", "--release"]))?;
        // Before everything else is built.
        steps::run(Command::new(cluster.get_program()).arg("--check-flags").args(flags))?;
    }
    if uses_tests_build {
        build::build()?;
    } else if is_short {
        steps::run(&mut cargo(&["build", "--package", "cluster"]))?;
    }
    if let Some(options) = clients {
        return cluster_clients::run(&options);
    }
    if is_short {
        return run_short(flags);
    }
    if is_bench && !has_flag("--gable") {
        // Times are measured with the build that is delivered.
        steps::run(&mut cargo(&["build", "--package", "server", "--release"]))?;
        cluster.arg("--gable").arg(program("release", "gable"));
    } else if !has_flag("--gable") {
        cluster.arg("--gable").arg(program("debug", "gable"));
    }
    system::install_missing(&[POSTGRES, PATRONI, ETCD, HAPROXY, IPROUTE, NFTABLES, FAKETIME, CURL, SSH])?;
    if !has_flag("--garage") {
        cluster.arg("--garage").arg(install_garage()?);
    }
    steps::run(cluster.current_dir(root()).args(flags))
}

/// Validates the examples, and runs the short form, as steps of the tests.
pub(crate) fn add(report: &mut Report) {
    report.step("cluster: examples", cluster_examples::run);
    report.step("cluster", || {
        run_short(&["--short".to_owned()])?;
        Ok(TestCounts { passed: 1, failed: 0 })
    });
}

/// Runs the short form with the programs of the tests, unless the flags name others.
fn run_short(flags: &[String]) -> Result<()> {
    let (postgres, mut cluster) = short_form()?;
    let outcome = steps::run(cluster.args(flags));
    drop(postgres);
    outcome
}

/// Returns a command for the short form with its database and the programs of the tests.
pub(crate) fn short_form() -> Result<(Postgres, Command)> {
    system::install_missing(&[POSTGRES, OPENSSL, HAPROXY, SSH])?;
    let postgres = Postgres::start()?;
    let mut cluster = guarded("TERM", program("debug", "cluster"));
    cluster.current_dir(root()).arg("--database").arg(postgres.url());
    cluster.arg("--gable").arg(program("debug", "gable"));
    cluster.arg("--test-bucket").arg(program("debug", "test-bucket"));
    // The caller may repeat a flag with another value, which replaces this one.
    Ok((postgres, cluster))
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
