//! `cargo xtask bench`: builds what is shipped and measures it.

use std::process::Command;

use crate::{
    Outcome,
    machine::{self, OPENSSL, POSTGRES},
    postgres::Postgres,
    steps,
    workspace::{cargo, program, root, target},
};

/// Where PostgreSQL is; whoever sets it brings their own.
const DATABASE: &str = "GABLE_BENCH_DATABASE";

/// Measures; the flags go to the bench itself.
pub(crate) fn run(flags: &[String]) -> Outcome {
    steps::run(&mut cargo(&["build", "--release", "--package", "server", "--package", "bench", "--bins"]))?;
    let mut bench = Command::new(program("release", "bench"));
    bench.current_dir(root()).arg("--gable").arg(program("release", "gable"));
    bench.arg("--folder").arg(target().join("bench")).args(flags);
    let postgres = if needs_postgres(flags) && std::env::var_os(DATABASE).is_none() {
        machine::provide(&[POSTGRES, OPENSSL])?;
        Some(Postgres::start()?)
    } else {
        None
    };
    steps::run(bench.envs(postgres.as_ref().map(|postgres| (DATABASE, postgres.url()))))
}

/// Whether something is measured on PostgreSQL: not when another engine is named, or only what needs none.
fn needs_postgres(flags: &[String]) -> bool {
    let named = |names: &[&str]| flags.iter().any(|flag| names.contains(&flag.as_str()));
    let engine = named(&["--postgres"]) || !named(&["--sqlite"]);
    let part = named(&["--project", "--lists", "--growth", "--issues", "--hooks", "--pipelines"])
        || !named(&["--basics", "--repository"]);
    engine && part
}
