//! A large repository: what the service reads from it, against the program `git` started for the same answer.
//!
//! Both are asked turn and turn about in one run, so that whatever else the machine does meets both.

use std::{
    hint::black_box,
    io,
    path::Path,
    time::{Duration, Instant},
};

use git::{Repositories, Repository};
use model::{Oid, Page, RefName, objects::ArchiveFormat};

use crate::{
    Outcome,
    landscape::{self, BRANCHES, CROWD, PROJECT, STREET},
};

/// The share of a started `git` within which a short read has to stay.
const SHORT: f64 = 0.05;
/// The share for what is work for git as well.
const LONG: f64 = 1.0;
/// How often git is asked, at least.
const ROUNDS: usize = 5;
/// How many times per round the library is asked what it answers quickly.
const REPEATS: usize = 20;

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) rows: Vec<Compared>,
}

/// One thing that was asked of both.
pub(crate) struct Compared {
    pub(crate) name: &'static str,
    /// The middle of all times, in milliseconds.
    pub(crate) measured: f64,
    pub(crate) floor: f64,
    /// The most that the one may be of the other; `None` if it is shown for context.
    pub(crate) goal: Option<f64>,
}

impl Compared {
    pub(crate) fn ratio(&self) -> f64 {
        self.measured / self.floor
    }
}

/// Measures in about the given time, making of the repository not counted.
pub(crate) fn measure(folder: &Path, time: Duration) -> Outcome<Results> {
    let (root, path) = landscape::provide(folder)?;
    let repositories = Repositories::in_folder(&root).map_err(|error| error.to_string())?;
    let site = Site::new(repositories, &path)?;
    let cases = cases(&site);
    let share = time / u32::try_from(cases.len()).unwrap_or(u32::MAX);
    let rows = cases.into_iter().map(|case| case.measure(&path, share)).collect::<Outcome<_>>()?;
    Ok(Results { rows })
}

/// An answer of the library; what it says does not matter, but it has to be made.
type Answer = git::Result<()>;

/// Something to be asked of both.
struct Case<'a> {
    name: &'static str,
    goal: Option<f64>,
    ask: Box<dyn Fn() -> Answer + 'a>,
    /// What git is asked, one call after the other.
    floor: Vec<Vec<String>>,
}

impl Case<'_> {
    fn measure(self, path: &Path, time: Duration) -> Outcome<Compared> {
        let ask = || (self.ask)().map_err(|error| format!("{}: {error}", self.name));
        // Nobody starts cold.
        ask()?;
        self.ask_git(path)?;
        let (mut measured, mut floor) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while floor.len() < ROUNDS || start.elapsed() < time {
            floor.push(timed(|| self.ask_git(path))?);
            let turn = Instant::now();
            for _ in 0..REPEATS {
                measured.push(timed(ask)?);
                // What takes long is asked as often as git.
                if turn.elapsed() > time / 20 {
                    break;
                }
            }
        }
        Ok(Compared { name: self.name, measured: middle(measured), floor: middle(floor), goal: self.goal })
    }

    fn ask_git(&self, path: &Path) -> Outcome {
        for arguments in &self.floor {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            black_box(landscape::git(path, &arguments)?);
        }
        Ok(())
    }
}

/// The repository as the service has it.
struct Site {
    repositories: Repositories,
    root: std::path::PathBuf,
    main: Oid,
    fork: Oid,
}

impl Site {
    fn new(repositories: Repositories, path: &Path) -> Outcome<Self> {
        let id = |name: &str| -> Outcome<Oid> {
            let said = String::from_utf8_lossy(&landscape::git(path, &["rev-parse", name])?).trim().to_owned();
            said.parse().map_err(|_| format!("git says {said} for {name}"))
        };
        let root = path.ancestors().nth(3).unwrap_or(path).to_owned();
        Ok(Self { repositories, root, main: id("main")?, fork: id("main~50")? })
    }

    /// As every request does it.
    fn open(&self) -> git::Result<Repository> {
        open(&self.repositories)
    }

    /// As the first request after a start does it.
    fn open_cold(&self) -> git::Result<Repository> {
        open(&Repositories::in_folder(&self.root)?)
    }
}

fn open(repositories: &Repositories) -> git::Result<Repository> {
    repositories
        .find(&landscape::storage_of(PROJECT))?
        .ok_or_else(|| git::Error::Broken("the repository is not where it is looked for".into()))
}

fn cases(site: &Site) -> Vec<Case<'_>> {
    let format = "--format=%(refname)%00%(objectname)%00%(*objectname)%00%(author)%00%(committer)%00%(contents)";
    let tree = |path: &str| vec![strings(&["ls-tree", &format!("main:{path}")])];
    let file = landscape::house(7, 7);
    let middle = landscape::branch(BRANCHES / 2);
    let page = Page::new(None, None);
    let read_file = file.clone();
    let name = RefName::new(&middle);
    vec![
        case(
            "branches, 20 of 2000",
            Some(SHORT),
            vec![strings(&["for-each-ref", "--count=20", format, "refs/heads/"])],
            || {
                let repository = site.open()?;
                let refs = repository.refs()?;
                refs.branches.iter().take(20).try_for_each(|branch| keep(repository.commit(branch.target)?))
            },
        ),
        case("one branch of 2000", Some(SHORT), vec![strings(&["for-each-ref", format, &middle])], move || {
            let repository = site.open()?;
            let refs = repository.refs()?;
            let branch = name.as_ref().and_then(|name| refs.find(name));
            branch.map_or(Ok(()), |branch| keep(repository.commit(branch.target)?))
        }),
        case(
            "tags, 20 of 2000",
            Some(SHORT),
            vec![strings(&["for-each-ref", "--count=20", "--sort=-refname", format, "refs/tags/"])],
            || {
                let repository = site.open()?;
                let refs = repository.refs()?;
                refs.tags.iter().rev().take(20).try_for_each(|tag| keep(repository.tag(tag)?))
            },
        ),
        case("folder, 20 of 100 files", Some(SHORT), tree(STREET), move || {
            keep(site.open()?.tree(site.main, STREET, false, page)?)
        }),
        case("folder, 20 of 25000 files", Some(SHORT), tree(CROWD), move || {
            keep(site.open()?.tree(site.main, CROWD, false, page)?)
        }),
        case("folder, all of 25000 files", None, tree(CROWD), move || {
            keep(site.open()?.tree(site.main, CROWD, false, Page::whole())?)
        }),
        case("all 33000 files and folders", None, vec![strings(&["ls-tree", "-r", "-t", "main"])], move || {
            keep(site.open()?.tree(site.main, "", true, Page::whole())?)
        }),
        case("raw file", Some(SHORT), vec![strings(&["cat-file", "blob", &format!("main:{file}")])], move || {
            let repository = site.open()?;
            let Some(entry) = repository.entry(site.main, &read_file)? else { return Ok(()) };
            black_box(repository.blob_size(entry.id)?);
            repository.write_blob(entry.id, &mut io::sink())
        }),
        case(
            "which of 20 branches are merged",
            Some(SHORT),
            vec![strings(&["for-each-ref", "--count=20", "--merged=main", "refs/heads/"])],
            || {
                let repository = site.open()?;
                let tips: Vec<_> = repository.refs()?.branches.iter().take(20).map(|branch| branch.target).collect();
                keep(repository.which_are_ancestors(&tips, site.main)?)
            },
        ),
        case(
            "comparison over 50 commits",
            Some(LONG),
            vec![
                strings(&["log", "--reverse", "--pretty=raw", "main~50..main"]),
                strings(&["diff", "-M", "main~50...main"]),
            ],
            || keep(site.open()?.compare(site.fork, site.main)?),
        ),
        case(
            "newest 20 commits of a file",
            Some(LONG),
            vec![strings(&["log", "-20", "--pretty=raw", "main", "--", &file])],
            move || {
                let query = git::LogQuery { path: Some(landscape::house(7, 7)), limit: 20, ..git::LogQuery::default() };
                keep(site.open()?.log(site.main, &query)?)
            },
        ),
        case(
            "archive as tar.gz",
            Some(LONG),
            vec![strings(&["archive", "--format=tar.gz", "--prefix=x/", "main"])],
            || site.open()?.archive(site.main, ArchiveFormat::TarGz, "x", &mut io::sink()),
        ),
        case("contributors, counted before", Some(SHORT), contributors(), || {
            keep(site.open()?.contributors(site.main)?)
        }),
        case("contributors, first time", Some(LONG), contributors(), || {
            keep(site.open_cold()?.contributors(site.main)?)
        }),
    ]
}

fn contributors() -> Vec<Vec<String>> {
    vec![strings(&["log", "-2000", "--no-merges", "--format=%an%x00%ae", "main"])]
}

fn case<'a>(name: &'static str, goal: Option<f64>, floor: Vec<Vec<String>>, ask: impl Fn() -> Answer + 'a) -> Case<'a> {
    Case { name, goal, ask: Box::new(ask), floor }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Lets nobody find out that an answer is not used.
#[expect(clippy::unnecessary_wraps, reason = "it ends the calls, all of which can fail")]
fn keep<T>(answer: T) -> Answer {
    black_box(answer);
    Ok(())
}

/// How long something takes, in milliseconds.
fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
