//! `cargo xtask bench`: builds the release binary and measures it.

use std::process::Command;

use anyhow::Result;

use crate::{
    postgres::Postgres,
    steps,
    system::{self, OPENSSL, POSTGRES, SSH},
    workspace::{cargo, program, root, target},
};

/// The variable with the URL of a PostgreSQL server; without it, a private one is started.
const DATABASE: &str = "GABLE_BENCH_DATABASE";

/// Runs the benchmarks; the flags are passed to the bench program.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    steps::run(&mut cargo(&["build", "--release", "--package", "server", "--package", "bench", "--bins"]))?;
    // Clones over SSH are measured.
    system::install_missing(&[SSH])?;
    let mut bench = Command::new(program("release", "bench"));
    bench.current_dir(root()).arg("--gable").arg(program("release", "gable"));
    bench.arg("--folder").arg(target().join("bench")).args(flags);
    let postgres = if needs_postgres(flags) && std::env::var_os(DATABASE).is_none() {
        system::install_missing(&[POSTGRES, OPENSSL])?;
        Some(Postgres::start()?)
    } else {
        None
    };
    steps::run(bench.envs(postgres.as_ref().map(|postgres| (DATABASE, postgres.url()))))
}

/// Returns whether the flags select a benchmark on PostgreSQL.
fn needs_postgres(flags: &[String]) -> bool {
    let has_flag = |names: &[&str]| flags.iter().any(|flag| names.contains(&flag.as_str()));
    let engine = has_flag(&["--postgres"]) || !has_flag(&["--sqlite"]);
    let part = has_flag(&[
        "--project",
        "--lists",
        "--growth",
        "--issues",
        "--hooks",
        "--pipelines",
        "--pushes",
        "--processor-time",
        "--web",
    ]) || !has_flag(&["--basics", "--repository"]);
    engine && part
}
