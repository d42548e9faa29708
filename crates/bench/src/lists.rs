//! Lists of projects and groups on a busy server: how long a page takes, and whether that depends on what is not on it.

use std::{path::Path, time::Duration};

use crate::{
    Outcome,
    cases::{self, Asker, Case},
    engine::{Engine, Filled, Kind},
    load::{self, Measured, Until},
    run::{self, Comparison, Scratch},
    town,
};

/// How many projects there are where goals are held.
pub(crate) const PROJECTS: u64 = 10_000;
/// Among how many a list is compared.
const SIZES: [u64; 3] = [1_000, PROJECTS, 100_000];
/// Each reader of the server has seen a statement often enough by then to have settled on a plan.
const WARM_UP: usize = 25;
const REQUESTS: usize = 100;
/// What a page may take at most, and how often a page that took longer gets another chance: others use this machine too.
pub(crate) const LONGEST_PAGE: f64 = 5.0;
const CHANCES: usize = 3;

/// What is measured beside the basics.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    /// One project, and one group with a thousand.
    pub(crate) project: bool,
    pub(crate) lists: bool,
    pub(crate) growth: bool,
}

impl Parts {
    /// Whether there is anything to measure.
    pub(crate) fn any(self) -> bool {
        self.project || self.lists || self.growth
    }
}

/// What was measured on one engine.
pub(crate) struct Results {
    pub(crate) kind: Kind,
    pub(crate) project: Option<Comparison>,
    /// A group with a thousand projects, as an administrator and as a stranger sees it.
    pub(crate) groups: Vec<(Asker, Measured)>,
    pub(crate) pages: Vec<Paged>,
    pub(crate) growths: Vec<Growth>,
}

/// How long a page takes, in milliseconds.
pub(crate) struct Paged {
    pub(crate) case: Case,
    pub(crate) half: f64,
    pub(crate) most: f64,
    pub(crate) goal: f64,
}

/// How long half of the answers take among so many projects, in milliseconds.
pub(crate) struct Growth {
    pub(crate) case: Case,
    pub(crate) halves: Vec<f64>,
}

impl Growth {
    /// How much longer it takes among the most projects than among the fewest.
    pub(crate) fn factor(&self) -> f64 {
        self.halves.last().zip(self.halves.first()).map_or(f64::NAN, |(last, first)| last / first)
    }

    /// How many projects each of the values is about.
    pub(crate) fn sizes() -> &'static [u64] {
        &SIZES
    }
}

/// Measures the parts on one engine.
pub(crate) fn measure(
    program: &Path,
    folder: &Path,
    engine: &Engine,
    parts: Parts,
    time: Duration,
) -> Outcome<Results> {
    let scratch = Scratch::new(folder)?;
    let kind = engine.kind();
    let mut results = Results { kind, project: None, groups: Vec::new(), pages: Vec::new(), growths: Vec::new() };
    let filled = engine.fill(program, &scratch.0, PROJECTS, &[])?;
    if parts.project {
        results.project = Some(compare_project(&filled, &scratch, time / 4)?);
        for asker in [Asker::Administrator, Asker::Member] {
            results.groups.push((asker, measure_group(&filled, asker)?));
        }
    }
    if parts.lists {
        for case in cases::all() {
            results.pages.push(measure_page(&filled, case, LONGEST_PAGE)?);
        }
    }
    if parts.growth {
        let mut halves: Vec<Vec<f64>> = Vec::new();
        for size in SIZES {
            halves.push(match size {
                PROJECTS if parts.lists => results.pages.iter().map(|page| page.half).collect(),
                PROJECTS => measure_halves(&filled)?,
                size => measure_halves(&engine.fill(program, &scratch.0, size, &[])?)?,
            });
        }
        let of_case = |number: usize| halves.iter().filter_map(|values| values.get(number).copied()).collect();
        results.growths = cases::all()
            .into_iter()
            .enumerate()
            .map(|(number, case)| Growth { case, halves: of_case(number) })
            .collect();
    }
    Ok(results)
}

/// A project that the caller sees as a member of its group.
fn compare_project(filled: &Filled, scratch: &Scratch, time: Duration) -> Outcome<Comparison> {
    let path = format!("/api/v3/projects/{}", town::project_of_the_member(PROJECTS));
    run::compare_with_floor(&filled.server, &scratch.0, &path, Asker::Member.token(), time)
}

fn measure_group(filled: &Filled, asker: Asker) -> Outcome<Measured> {
    let next = load::get(&format!("/api/v3/groups/{}", town::LARGE_GROUP), asker.token());
    let load = run::on(&filled.server, 1, next, 200);
    load::run(&load, Until::Asked(WARM_UP))?;
    load::run(&load, Until::Asked(REQUESTS))
}

/// Measures a page that has to come within so many milliseconds.
pub(crate) fn measure_page(filled: &Filled, case: Case, goal: f64) -> Outcome<Paged> {
    let load = run::on(&filled.server, 1, load::get(&case.target(), case.route.asker.token()), 200);
    let patience = Duration::from_secs(1);
    load::run(&load, Until::AskedWithin(WARM_UP, patience)).map_err(|error| format!("{}: {error}", case.target()))?;
    let mut best: Option<Measured> = None;
    for _ in 0..CHANCES {
        let measured = load::run(&load, Until::AskedWithin(REQUESTS, patience))?;
        if best.as_ref().is_none_or(|best| measured.percentile(99) < best.percentile(99)) {
            best = Some(measured);
        }
        // Another chance is for bad luck, and half of the answers do not have that.
        let best = best.as_ref();
        if best.is_some_and(|best| best.percentile(99) <= goal || best.percentile(50) > goal) {
            break;
        }
    }
    let best = best.unwrap_or_default();
    Ok(Paged { case, half: best.percentile(50), most: best.percentile(99), goal })
}

fn measure_halves(filled: &Filled) -> Outcome<Vec<f64>> {
    let half = |case: Case| {
        let load = run::on(&filled.server, 1, load::get(&case.target(), case.route.asker.token()), 200);
        let until = Until::AskedWithin(WARM_UP, Duration::from_millis(100));
        load::run(&load, until)?;
        Ok(load::run(&load, until)?.percentile(50))
    };
    cases::all().into_iter().map(half).collect()
}
