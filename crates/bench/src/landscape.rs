//! A large repository, made by script: the same objects each time, and kept for the next run.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    time::Instant,
};

use model::StorageId;
use sha2::{Digest as _, Sha256};

use crate::Outcome;

/// The project that the repository belongs to.
pub(crate) const PROJECT: i64 = 1;
/// A folder with as many files as nobody should have in one.
pub(crate) const CROWD: &str = "crowd";
pub(crate) const CROWD_SIZE: usize = 25_000;
/// A folder as there are many.
pub(crate) const STREET: &str = "src/street-07";
pub(crate) const BRANCHES: usize = 2000;

const HOUSES: usize = 100;
const AUTHORS: usize = 60;
/// The seconds of the first commit, and how many pass until the next.
const START: usize = 1_600_000_000;
const PACE: usize = 600;
/// Every so many commits a branch is merged.
const MERGES: usize = 40;
/// Is part of the name of the folder; to be changed with what is made.
const EDITION: u32 = 2;

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) commits: usize,
    /// Folders with a hundred files each.
    pub(crate) streets: usize,
    /// The files in the folder that has too many.
    pub(crate) crowd: usize,
    pub(crate) branches: usize,
    pub(crate) tags: usize,
    /// Who changes what and when follows from it, and so every id does.
    pub(crate) seed: usize,
}

/// What single reads are measured on.
const FULL: Scale = Scale { commits: 20_000, streets: 80, crowd: CROWD_SIZE, branches: BRANCHES, tags: 2000, seed: 0 };

/// Whether git took what was written.
type Written = io::Result<()>;

/// A file of the repository.
pub(crate) fn house(street: usize, house: usize) -> String {
    format!("src/street-{street:02}/house-{house:02}.txt")
}

pub(crate) fn branch(number: usize) -> String {
    format!("refs/heads/walk-{number:04}")
}

/// Makes the repository, unless it is there, and gives the folder of all repositories and that of this one.
pub(crate) fn provide(folder: &Path) -> Outcome<(PathBuf, PathBuf)> {
    let root = folder.join(format!("repositories-{EDITION}"));
    let path = place_of(&root, PROJECT);
    if path.exists() {
        return Ok((root, path));
    }
    let before = Instant::now();
    eprintln!("making a large repository in {}", root.display());
    // Made beside, so that a run that is broken off leaves nothing that looks whole.
    let unfinished = folder.join(format!("repositories-{EDITION}.new"));
    let _ = fs::remove_dir_all(&unfinished);
    let new = place_of(&unfinished, PROJECT);
    fs::create_dir_all(&new).map_err(|error| format!("cannot make {}: {error}", new.display()))?;
    git(&new, &["init", "--quiet", "--bare", "-b", "main"])?;
    write(&new, FULL)?;
    fs::rename(&unfinished, &root).map_err(|error| format!("cannot rename {}: {error}", unfinished.display()))?;
    eprintln!("made in {:.0} s", before.elapsed().as_secs_f64());
    Ok((root, path))
}

/// Writes the history into an empty repository.
pub(crate) fn write(path: &Path, scale: Scale) -> Outcome {
    import(path, |out| write_history(out, scale))?;
    tidy(path)
}

/// Leaves a repository as housekeeping does: what was imported is packed the other way round, with new objects built from
/// old ones.
pub(crate) fn tidy(path: &Path) -> Outcome {
    // One thread, so that the pack does not depend on how many processors there are.
    git(path, &["-c", "pack.threads=1", "repack", "-a", "-d", "-f", "-q"])?;
    git(path, &["pack-refs", "--all"])?;
    git(path, &["commit-graph", "write", "--reachable", "--no-progress"]).map(drop)
}

/// Runs git in the repository to its end.
pub(crate) fn git(path: &Path, arguments: &[&str]) -> Outcome<Vec<u8>> {
    let output = command(path, arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    output.status.success().then_some(output.stdout).ok_or_else(|| format!("git {arguments:?} failed"))
}

/// Git as the floor has it: nothing but the repository's own configuration, as with our own calls.
fn command(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    let program = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", program).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.arg("--git-dir").arg(path).args(arguments);
    command
}

/// The storage id of a project that was made here: its number, so that its place is known beforehand.
pub(crate) fn storage_of(project: i64) -> StorageId {
    StorageId::parse(&project.to_string()).expect("numbers of projects are not negative")
}

/// Where the service looks for the repository of a project.
pub(crate) fn place_of(root: &Path, project: i64) -> PathBuf {
    let digest = Sha256::digest(project.to_string());
    let name = digest.iter().fold(String::new(), |name, byte| name + &format!("{byte:02x}"));
    root.join(&name[..2]).join(&name[2..4]).join(format!("{name}.git"))
}

/// Lets `git fast-import` read what is written.
pub(crate) fn import(path: &Path, write: impl FnOnce(&mut BufWriter<ChildStdin>) -> Written) -> Outcome {
    let mut child = command(path, &["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run git: {error}"))?;
    let written = child.stdin.take().map(|stdin| write(&mut BufWriter::new(stdin)));
    let status = child.wait().map_err(|error| format!("cannot wait for git: {error}"))?;
    match written {
        Some(Ok(())) if status.success() => Ok(()),
        Some(Err(error)) => Err(format!("cannot write to git: {error}")),
        _ => Err("git fast-import failed".into()),
    }
}

fn write_history(out: &mut impl Write, scale: Scale) -> Written {
    let Scale { commits, streets, crowd, branches, tags, seed } = scale;
    commit_head(out, 1, seed, &[])?;
    for street in 0..streets {
        for number in 0..HOUSES {
            write_file(out, &house(street, number), &text(street * HOUSES + number, 0))?;
        }
    }
    for number in 0..crowd {
        write_file(out, &format!("{CROWD}/person-{number:05}.txt"), &format!("person {number}\n"))?;
    }
    for number in 2..=commits {
        // Now and then somebody comes back from a side road that began some commits ago.
        let parents = [number - 1, number.saturating_sub(MERGES / 2).max(1)];
        let is_merge = number % MERGES == 0;
        commit_head(out, number, seed, if is_merge { &parents } else { &parents[..1] })?;
        if !is_merge {
            let file = scatter(number + seed) % (streets * HOUSES);
            write_file(out, &house(file / HOUSES, file % HOUSES), &text(file, number + seed))?;
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

fn commit_head(out: &mut impl Write, number: usize, seed: usize, parents: &[usize]) -> Written {
    let author = scatter(number + seed) % AUTHORS;
    let seconds = START + number * PACE;
    let message = format!("Change number {number}\n\nIt was time to do it, and so it was done.\n");
    writeln!(out, "commit refs/heads/main\nmark :{number}")?;
    for role in ["author", "committer"] {
        writeln!(out, "{role} Person {author} <person{author}@example.org> {seconds} +0200")?;
    }
    writeln!(out, "data {}\n{message}", message.len())?;
    for (place, parent) in parents.iter().enumerate() {
        writeln!(out, "{} :{parent}", if place == 0 { "from" } else { "merge" })?;
    }
    Ok(())
}

pub(crate) fn write_file(out: &mut impl Write, path: &str, text: &str) -> Written {
    writeln!(out, "M 100644 inline {path}\ndata {}\n{text}", text.len())
}

/// The text of a file: some sixty lines, a few of which depend on the commit.
fn text(file: usize, commit: usize) -> String {
    const WORDS: [&str; 12] = [
        "river", "stone", "bridge", "meadow", "cloud", "window", "garden", "letter", "candle", "harbour", "orchard",
        "lantern",
    ];
    let mut text = String::new();
    for line in 0..40 + file % 40 {
        let changed = if (line + commit).is_multiple_of(23) { commit } else { 0 };
        let word = |place: usize| WORDS[scatter(file * 97 + line * 13 + place + changed * 7) % WORDS.len()];
        text += &format!("{} {} {} {} {}\n", word(1), word(2), word(3), scatter(line + changed) % 1000, word(4));
    }
    text
}

/// A number that looks as if it had been drawn.
fn scatter(number: usize) -> usize {
    let mixed = (number as u64).wrapping_add(0x9e37_79b9).wrapping_mul(0xd6e8_feb8_6659_fd93);
    usize::try_from((mixed ^ (mixed >> 32)) & 0xffff_ffff).unwrap_or(0)
}
