//! A large generated repository, deterministic and cached for the next run; and functions to run git.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow};
use git::{Ref, Refs};
use model::{ProjectId, RefName, StorageId, text::hex};
use sha2::{Digest as _, Sha256};

/// The project id of the repository.
pub(crate) const PROJECT: ProjectId = ProjectId::new(1);
/// A folder with an excessive number of files.
pub(crate) const LARGE_FOLDER: &str = "crowd";
pub(crate) const LARGE_FOLDER_FILES: usize = 25_000;
/// An ordinary folder.
pub(crate) const FOLDER_PATH: &str = "src/street-07";
pub(crate) const BRANCHES: usize = 2000;

const FILES_PER_FOLDER: usize = 100;
const AUTHORS: usize = 60;
/// The Unix time of the first commit, and the seconds between commits.
const START: usize = 1_600_000_000;
const COMMIT_INTERVAL: usize = 600;
/// The number of commits between merges.
const MERGE_INTERVAL: usize = 40;
/// The version of the content, which is part of the folder name; increased with every change.
const FORMAT_VERSION: u32 = 2;

/// The size of a generated repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) commits: usize,
    /// The number of folders with a hundred files each.
    pub(crate) folders: usize,
    /// The number of files in [`LARGE_FOLDER`].
    pub(crate) large_folder_files: usize,
    pub(crate) branches: usize,
    pub(crate) tags: usize,
    /// The seed, which determines all commits and thus all ids.
    pub(crate) seed: usize,
}

/// The size for the repository benchmark.
const FULL: Scale = Scale {
    commits: 20_000,
    folders: 80,
    large_folder_files: LARGE_FOLDER_FILES,
    branches: BRANCHES,
    tags: 2000,
    seed: 0,
};

/// The result of writing to git.
type WriteResult = io::Result<()>;

/// Returns the path of a file.
pub(crate) fn file_path(folder_number: usize, file_number: usize) -> String {
    format!("src/street-{folder_number:02}/house-{file_number:02}.txt")
}

pub(crate) fn branch(number: usize) -> String {
    format!("refs/heads/walk-{number:04}")
}

/// Creates the repository unless it exists; returns the folder of all repositories and the path of this one.
pub(crate) fn open_or_create(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let root = folder.join(format!("repositories-{FORMAT_VERSION}"));
    let path = repository_path(&root, PROJECT);
    if path.exists() {
        return Ok((root, path));
    }
    let before = Instant::now();
    eprintln!("creating a large repository in {}", root.display());
    // Renamed when complete, so that an interrupted run leaves no partial repository.
    let unfinished = folder.join(format!("repositories-{FORMAT_VERSION}.new"));
    let _ = fs::remove_dir_all(&unfinished);
    let new = repository_path(&unfinished, PROJECT);
    fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
    git(&new, &["init", "--quiet", "--bare", "-b", "main"])?;
    write(&new, FULL)?;
    fs::rename(&unfinished, &root).with_context(|| format!("cannot rename {}", unfinished.display()))?;
    eprintln!("created in {:.0} s", before.elapsed().as_secs_f64());
    Ok((root, path))
}

/// Writes the history into an empty repository.
pub(crate) fn write(path: &Path, scale: Scale) -> Result<()> {
    import(path, |out| write_history(out, scale))?;
    repack(path)
}

/// Repacks a repository as housekeeping does; imported packs have deltas in the opposite direction.
pub(crate) fn repack(path: &Path) -> Result<()> {
    // One thread, so that the pack does not depend on the number of processors.
    git(path, &["-c", "pack.threads=1", "repack", "-a", "-d", "-f", "-q"])?;
    git(path, &["pack-refs", "--all"])?;
    git(path, &["commit-graph", "write", "--reachable", "--no-progress"]).map(drop)
}

/// Runs git in a repository and returns its output.
pub(crate) fn git(path: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = command(path, arguments).stderr(Stdio::inherit()).output();
    let output = output.context("cannot run git")?;
    output.status.success().then_some(output.stdout).with_context(|| format!("git {arguments:?} failed"))
}

/// Returns a git command that reads only the configuration of the repository, as in the server.
fn command(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    let program = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", program).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.arg("--git-dir").arg(path).args(arguments);
    command
}

/// Reads the refs of a repository with the `git` program.
pub(crate) fn read_refs(path: &Path, head: &str) -> Result<Refs> {
    let listed = git(path, &["show-ref", "--dereference"])?;
    let mut refs: Vec<Ref> = Vec::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let (id, name) = line.split_once(' ').with_context(|| format!("git show-ref printed {line}"))?;
        let id = id.parse().map_err(|_| anyhow!("git show-ref printed {line}"))?;
        if let (true, Some(tag)) = (name.ends_with("^{}"), refs.last_mut()) {
            tag.peeled = Some(id);
        } else {
            let name = RefName::new(name).with_context(|| format!("git show-ref printed {line}"))?;
            refs.push(Ref { name, target: id, peeled: None });
        }
    }
    Ok(Refs::from_sorted(1, RefName::branch(head), refs))
}

/// Returns the storage id of a generated project, which is its project id.
pub(crate) fn storage_id(project: ProjectId) -> StorageId {
    StorageId::parse(&project.to_string()).expect("project ids are not negative")
}

/// Returns the path at which the server expects the repository of a project.
pub(crate) fn repository_path(root: &Path, project: ProjectId) -> PathBuf {
    let digest = Sha256::digest(project.to_string());
    let name = hex(&digest);
    root.join(&name[..2]).join(&name[2..4]).join(format!("{name}.git"))
}

/// Runs `git fast-import` on the written input.
pub(crate) fn import(path: &Path, write: impl FnOnce(&mut BufWriter<ChildStdin>) -> WriteResult) -> Result<()> {
    let mut child =
        command(path, &["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().context("cannot run git")?;
    let written = child.stdin.take().map(|stdin| write(&mut BufWriter::new(stdin)));
    let status = child.wait().context("cannot wait for git")?;
    match written {
        Some(Ok(())) if status.success() => Ok(()),
        Some(Err(error)) => Err(error).context("cannot write to git"),
        _ => Err(anyhow!("git fast-import failed")),
    }
}

fn write_history(out: &mut impl Write, scale: Scale) -> WriteResult {
    let Scale { commits, folders, large_folder_files, branches, tags, seed } = scale;
    write_commit(out, 1, seed, &[])?;
    for folder_number in 0..folders {
        for number in 0..FILES_PER_FOLDER {
            write_file(out, &file_path(folder_number, number), &text(folder_number * FILES_PER_FOLDER + number, 0))?;
        }
    }
    for number in 0..large_folder_files {
        write_file(out, &format!("{LARGE_FOLDER}/person-{number:05}.txt"), &format!("person {number}\n"))?;
    }
    for number in 2..=commits {
        // Some commits merge a branch that started a few commits ago.
        let parents = [number - 1, number.saturating_sub(MERGE_INTERVAL / 2).max(1)];
        let is_merge = number % MERGE_INTERVAL == 0;
        write_commit(out, number, seed, if is_merge { &parents } else { &parents[..1] })?;
        if !is_merge {
            let file = hash(number + seed) % (folders * FILES_PER_FOLDER);
            write_file(out, &file_path(file / FILES_PER_FOLDER, file % FILES_PER_FOLDER), &text(file, number + seed))?;
        }
    }
    for number in 0..branches {
        let tip = 1 + number * (commits - 1) / (branches - 1);
        writeln!(out, "reset {}\nfrom :{tip}\n", branch(number))?;
    }
    for number in 0..tags {
        let tip = 1 + number * (commits - 1) / (tags - 1);
        if number % 2 == 0 {
            writeln!(out, "reset refs/tags/v{number:04}\nfrom :{tip}\n")?;
        } else {
            let message = format!("Version {number}\n\nAs good as the one before.\n");
            let length = message.len();
            writeln!(
                out,
                "tag v{number:04}\nfrom :{tip}\ntagger Ann <ann@example.org> {START} +0100\ndata {length}\n{message}"
            )?;
        }
    }
    writeln!(out, "done")?;
    out.flush()
}

fn write_commit(out: &mut impl Write, number: usize, seed: usize, parents: &[usize]) -> WriteResult {
    let author = hash(number + seed) % AUTHORS;
    let seconds = START + number * COMMIT_INTERVAL;
    let message = format!("Change number {number}\n\nIt was time to do it, and so it was done.\n");
    writeln!(out, "commit refs/heads/main\nmark :{number}")?;
    for role in ["author", "committer"] {
        writeln!(out, "{role} Person {author} <person{author}@example.org> {seconds} +0200")?;
    }
    writeln!(out, "data {}\n{message}", message.len())?;
    for (index, parent) in parents.iter().enumerate() {
        writeln!(out, "{} :{parent}", if index == 0 { "from" } else { "merge" })?;
    }
    Ok(())
}

pub(crate) fn write_file(out: &mut impl Write, path: &str, text: &str) -> WriteResult {
    writeln!(out, "M 100644 inline {path}\ndata {}\n{text}", text.len())
}

/// Returns the text of a file: about sixty lines, a few of which depend on the commit.
fn text(file: usize, commit: usize) -> String {
    const WORDS: [&str; 12] = [
        "river", "stone", "bridge", "meadow", "cloud", "window", "garden", "letter", "candle", "harbour", "orchard",
        "lantern",
    ];
    let mut text = String::new();
    for line in 0..40 + file % 40 {
        let changed = if (line + commit).is_multiple_of(23) { commit } else { 0 };
        let word = |index: usize| WORDS[hash(file * 97 + line * 13 + index + changed * 7) % WORDS.len()];
        text += &format!("{} {} {} {} {}\n", word(1), word(2), word(3), hash(line + changed) % 1000, word(4));
    }
    text
}

/// Returns a pseudo-random number.
fn hash(number: usize) -> usize {
    let mixed = (number as u64).wrapping_add(0x9e37_79b9).wrapping_mul(0xd6e8_feb8_6659_fd93);
    usize::try_from((mixed ^ (mixed >> 32)) & 0xffff_ffff).unwrap_or(0)
}
