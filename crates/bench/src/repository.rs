//! Benchmark of reads from a large repository, compared with a `git` process for the same result.
//!
//! Both are measured in alternation, so that other load on the machine affects both.

use std::{
    hint::black_box,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use git::{Refs, Repositories, Repository};
use model::{Oid, Page, RefName, objects::ArchiveFormat};

use crate::large_repository::{self, BRANCHES, FOLDER_PATH, LARGE_FOLDER, PROJECT};

/// The maximum ratio to a `git` process for short reads.
const MAX_RATIO_SHORT: f64 = 0.05;
/// The maximum ratio for operations that take git long, too.
const MAX_RATIO_LONG: f64 = 1.0;
/// The minimum number of runs of git.
const ROUNDS: usize = 5;
/// The number of calls of the library per run of git, for short operations.
const REPEATS: usize = 20;

/// The results.
pub(crate) struct Results {
    pub(crate) rows: Vec<Compared>,
}

/// The comparison of one operation.
pub(crate) struct Compared {
    pub(crate) name: &'static str,
    /// The median latency, in milliseconds.
    pub(crate) measured: f64,
    pub(crate) floor: f64,
    /// The maximum ratio; `None` if it is shown for context.
    pub(crate) goal: Option<f64>,
}

impl Compared {
    pub(crate) fn ratio(&self) -> f64 {
        self.measured / self.floor
    }
}

/// Measures in about the given time, not counting the creation of the repository.
pub(crate) fn measure(folder: &Path, time: Duration) -> Result<Results> {
    let (root, path) = large_repository::open_or_create(folder)?;
    let repositories = Repositories::open_folder(&root)?;
    let fixture = BenchRepository::new(repositories, &path)?;
    let cases = cases(&fixture);
    let share = time / u32::try_from(cases.len()).unwrap_or(u32::MAX);
    let rows = cases.into_iter().map(|case| case.measure(&path, share)).collect::<Result<_>>()?;
    Ok(Results { rows })
}

/// The result of a call of the library, whose value is discarded.
type CallResult = git::Result<()>;

/// An operation to compare.
struct Case<'a> {
    name: &'static str,
    goal: Option<f64>,
    call: Box<dyn Fn() -> CallResult + 'a>,
    /// The equivalent git commands.
    floor: Vec<Vec<String>>,
}

impl Case<'_> {
    fn measure(self, path: &Path, time: Duration) -> Result<Compared> {
        let call = || (self.call)().context(self.name);
        // Warm-up.
        call()?;
        self.run_git(path)?;
        let (mut measured, mut floor) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while floor.len() < ROUNDS || start.elapsed() < time {
            floor.push(timed(|| self.run_git(path))?);
            let round_start = Instant::now();
            for _ in 0..REPEATS {
                measured.push(timed(call)?);
                // Long operations run as often as git.
                if round_start.elapsed() > time / 20 {
                    break;
                }
            }
        }
        Ok(Compared { name: self.name, measured: median(measured), floor: median(floor), goal: self.goal })
    }

    fn run_git(&self, path: &Path) -> Result<()> {
        for arguments in &self.floor {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            black_box(large_repository::git(path, &arguments)?);
        }
        Ok(())
    }
}

/// The repository under test.
struct BenchRepository {
    repositories: Repositories,
    root: std::path::PathBuf,
    /// As the server caches them.
    refs: Arc<Refs>,
    main: Oid,
    fork: Oid,
}

impl BenchRepository {
    fn new(repositories: Repositories, path: &Path) -> Result<Self> {
        let id = |name: &str| -> Result<Oid> {
            let output = String::from_utf8_lossy(&large_repository::git(path, &["rev-parse", name])?).trim().to_owned();
            output.parse().map_err(|_| anyhow!("git rev-parse {name} printed {output}"))
        };
        let root = path.ancestors().nth(3).unwrap_or(path).to_owned();
        let refs = Arc::new(large_repository::read_refs(path, "main")?);
        Ok(Self { repositories, root, refs, main: id("main")?, fork: id("main~50")? })
    }

    /// Opens the repository as a request does.
    fn open(&self) -> git::Result<Repository> {
        self.open_in(&self.repositories)
    }

    /// Opens the repository as the first request after a start does.
    fn open_cold(&self) -> git::Result<Repository> {
        self.open_in(&Repositories::open_folder(&self.root)?)
    }

    fn open_in(&self, repositories: &Repositories) -> git::Result<Repository> {
        repositories.open(&large_repository::storage_id(PROJECT), Arc::clone(&self.refs))
    }
}

fn cases(fixture: &BenchRepository) -> Vec<Case<'_>> {
    let mut cases = ref_and_file_cases(fixture);
    cases.extend(history_cases(fixture));
    cases
}

fn ref_and_file_cases(fixture: &BenchRepository) -> Vec<Case<'_>> {
    let format = "--format=%(refname)%00%(objectname)%00%(*objectname)%00%(author)%00%(committer)%00%(contents)";
    let tree = |path: &str| vec![strings(&["ls-tree", &format!("main:{path}")])];
    let file = large_repository::file_path(7, 7);
    let middle_branch = large_repository::branch(BRANCHES / 2);
    let page = Page::new(None, None);
    let name = RefName::new(&middle_branch);
    vec![
        case(
            "branches, 20 of 2000",
            Some(MAX_RATIO_SHORT),
            vec![strings(&["for-each-ref", "--count=20", format, "refs/heads/"])],
            || {
                let repository = fixture.open()?;
                let refs = repository.refs();
                refs.branches.iter().take(20).try_for_each(|branch| discard(repository.commit(branch.target)?))
            },
        ),
        case(
            "one branch of 2000",
            Some(MAX_RATIO_SHORT),
            vec![strings(&["for-each-ref", format, &middle_branch])],
            move || {
                let repository = fixture.open()?;
                let refs = repository.refs();
                let branch = name.as_ref().and_then(|name| refs.find(name));
                branch.map_or(Ok(()), |branch| discard(repository.commit(branch.target)?))
            },
        ),
        case(
            "tags, 20 of 2000",
            Some(MAX_RATIO_SHORT),
            vec![strings(&["for-each-ref", "--count=20", "--sort=-refname", format, "refs/tags/"])],
            || {
                let repository = fixture.open()?;
                let refs = repository.refs();
                refs.tags.iter().rev().take(20).try_for_each(|tag| discard(repository.tag(tag)?))
            },
        ),
        case("folder, 20 of 100 files", Some(MAX_RATIO_SHORT), tree(FOLDER_PATH), move || {
            discard(fixture.open()?.tree(fixture.main, FOLDER_PATH, false, page)?)
        }),
        case("folder, 20 of 25000 files", Some(MAX_RATIO_SHORT), tree(LARGE_FOLDER), move || {
            discard(fixture.open()?.tree(fixture.main, LARGE_FOLDER, false, page)?)
        }),
        case("folder, all of 25000 files", None, tree(LARGE_FOLDER), move || {
            discard(fixture.open()?.tree(fixture.main, LARGE_FOLDER, false, Page::whole())?)
        }),
        case("all 33000 files and folders", None, vec![strings(&["ls-tree", "-r", "-t", "main"])], move || {
            discard(fixture.open()?.tree(fixture.main, "", true, Page::whole())?)
        }),
        case(
            "raw file",
            Some(MAX_RATIO_SHORT),
            vec![strings(&["cat-file", "blob", &format!("main:{file}")])],
            move || {
                let repository = fixture.open()?;
                let Some(entry) = repository.entry(fixture.main, &file)? else { return Ok(()) };
                black_box(repository.blob_size(entry.id)?);
                repository.write_blob(entry.id, &mut io::sink())
            },
        ),
    ]
}

fn history_cases(fixture: &BenchRepository) -> Vec<Case<'_>> {
    let file = large_repository::file_path(7, 7);
    vec![
        case(
            "which of 20 branches are merged",
            Some(MAX_RATIO_SHORT),
            vec![strings(&["for-each-ref", "--count=20", "--merged=main", "refs/heads/"])],
            || {
                let repository = fixture.open()?;
                let tips: Vec<_> = repository.refs().branches.iter().take(20).map(|branch| branch.target).collect();
                discard(repository.which_are_ancestors(&tips, fixture.main)?)
            },
        ),
        case(
            "comparison over 50 commits",
            Some(MAX_RATIO_LONG),
            vec![
                strings(&["log", "--reverse", "--pretty=raw", "main~50..main"]),
                strings(&["diff", "-M", "main~50...main"]),
            ],
            || discard(fixture.open()?.compare(fixture.fork, fixture.main)?),
        ),
        case(
            "newest 20 commits of a file",
            Some(MAX_RATIO_LONG),
            vec![strings(&["log", "-20", "--pretty=raw", "main", "--", &file])],
            move || {
                let query = git::LogQuery { path: Some(file.clone()), limit: 20, ..git::LogQuery::default() };
                discard(fixture.open()?.log(fixture.main, &query)?)
            },
        ),
        case(
            "archive as tar.gz",
            Some(MAX_RATIO_LONG),
            vec![strings(&["archive", "--format=tar.gz", "--prefix=x/", "main"])],
            || fixture.open()?.archive(fixture.main, ArchiveFormat::TarGz, "x", &mut io::sink()),
        ),
        case("contributors, counted before", Some(MAX_RATIO_SHORT), contributors(), || {
            discard(fixture.open()?.contributors(fixture.main)?)
        }),
        case("contributors, first time", Some(MAX_RATIO_LONG), contributors(), || {
            discard(fixture.open_cold()?.contributors(fixture.main)?)
        }),
    ]
}

fn contributors() -> Vec<Vec<String>> {
    vec![strings(&["log", "-2000", "--no-merges", "--format=%an%x00%ae", "main"])]
}

fn case<'a>(
    name: &'static str,
    goal: Option<f64>,
    floor: Vec<Vec<String>>,
    call: impl Fn() -> CallResult + 'a,
) -> Case<'a> {
    Case { name, goal, call: Box::new(call), floor }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Discards a value without the compiler optimizing its computation away.
#[expect(clippy::unnecessary_wraps, reason = "used as the result of fallible calls")]
fn discard<T>(value: T) -> CallResult {
    black_box(value);
    Ok(())
}

/// Returns the duration of a call, in milliseconds.
fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
