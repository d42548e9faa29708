//! Takes everything at one instant, and then copies it at leisure.
//!
//! At the instant no ref moves: the database is held as it is, and all refs are written down. Objects that refs lead to
//! never go away, files that rows name are only ever removed, and traces only grow, so all of those can wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, Metadata},
    io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use git::{Repositories, copies};
use sha2::{Digest as _, Sha256};
use store::{
    Database,
    copies::{Kept, Row, Snapshot, Table},
};

use super::{
    Sentence,
    manifest::{self, FORMAT, Head, Seal},
    progress::Progress,
    rows::{BUNDLE, Bundle},
};

/// How often, and after which pause, it is looked again whether something that is not there should be. What is removed
/// loses its file a moment before its row.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// How many rows are looked at, at once.
const AT_ONCE: usize = 1000;

/// Where everything is.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(super) data: PathBuf,
    pub(super) database: Database,
    pub(super) repositories: Repositories,
}

/// Where copies go.
pub(super) trait Sink {
    /// Begins, once it is known what is copied.
    fn begin(&mut self, head: &Head) -> Result<(), Sentence>;

    /// Everything that follows belongs to this; an earlier copy may have some of it.
    fn enter(&mut self, group: &str) -> Result<(), Sentence>;

    /// Adds some bytes under a path.
    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<(), Sentence>;

    /// Adds a file, or the beginning of one; `false` if it is gone. One that `lasts` never changes under its name.
    fn add_file(&mut self, path: &str, file: &Path, size: Option<u64>, lasts: bool) -> Result<bool, Sentence>;

    /// Ends it: it is all there and on disk.
    fn finish(&mut self, seal: Seal) -> Result<Seal, Sentence>;
}

/// The instant, taken.
struct Taken {
    snapshot: Snapshot,
    refs: File,
    /// How many repositories there are.
    repositories: u64,
    head: Head,
}

/// Copies everything into a sink. Whoever raises the flag ends it early.
pub(super) fn copy(
    ground: &Ground,
    sink: &mut dyn Sink,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Seal, Sentence> {
    let Taken { mut snapshot, refs, repositories, head } = take(ground)?;
    sink.begin(&head)?;
    let mut seal = Seal::default();
    let tables = snapshot.tables().map_err(in_database)?;
    progress.stage_of("rows of the database", tables.len() as u64);
    for table in tables {
        let count = copy_rows(&mut snapshot, &table, sink, progress, stop)?;
        seal.rows.insert(table.name, count);
        progress.step();
    }
    seal.sequences = snapshot.sequences().map_err(in_database)?.into_iter().collect::<BTreeMap<_, _>>();
    let (kept, files) = list_kept(&mut snapshot)?;
    let mut expected = BTreeSet::new();
    each_repository(ground, &mut snapshot, |place| {
        expected.insert(place);
    })?;
    // From here on the database need not remember what it was.
    drop(snapshot);
    for name in ["instance-key", "ssh-host-key"] {
        sink.add_file(name, &ground.data.join(name), None, false)?;
    }
    progress.stage_of("repositories", repositories);
    copy_repositories(ground, refs, sink, (&mut seal, &mut expected), progress, stop)?;
    progress.stage_of("files and traces", files);
    copy_kept(&ground.data, kept, sink, &mut seal, progress, stop)?;
    seal.missing = missing(ground, &seal.left_out, &expected, stop)?;
    // In order, and perhaps very many.
    for path in seal.left_out.iter().filter(|path| seal.missing.binary_search(path).is_err()) {
        progress.note(&format!("left out, because it was removed meanwhile: {path}"));
    }
    sink.finish(seal)
}

/// Which of those that could not be copied should be there all the same. A disk that is not mounted must not pass for one
/// from which everything was removed.
fn missing(
    ground: &Ground,
    left_out: &[String],
    expected: &BTreeSet<String>,
    stop: &AtomicBool,
) -> Result<Vec<String>, Sentence> {
    let mut open: BTreeSet<String> = left_out.iter().chain(expected).cloned().collect();
    for look in 0..LOOKS {
        if open.is_empty() {
            break;
        }
        if look > 0 {
            go_on(stop)?;
            thread::sleep(PAUSE);
        }
        let mut snapshot = Snapshot::prepare(&ground.database).map_err(in_database)?;
        snapshot.begin().map_err(in_database)?;
        let mut wanted = BTreeSet::new();
        let mut want = |path: String| {
            if open.contains(&path) {
                wanted.insert(path);
            }
        };
        each_repository(ground, &mut snapshot, &mut want)?;
        each_kept(&mut snapshot, |path, _| {
            want(path);
            Ok(())
        })?;
        open = wanted;
    }
    Ok(open.into_iter().collect())
}

/// Names the place of every repository that the database knows of.
fn each_repository(ground: &Ground, snapshot: &mut Snapshot, mut name: impl FnMut(String)) -> Result<(), Sentence> {
    let mut after = 0;
    loop {
        let projects = snapshot.with_repository(after, AT_ONCE).map_err(in_database)?;
        let Some((newest, _)) = projects.last() else { return Ok(()) };
        after = *newest;
        for (_, storage) in projects {
            name(format!("repositories/{}", ground.repositories.place_of(&storage)));
        }
    }
}

fn take(ground: &Ground) -> Result<Taken, Sentence> {
    let mut snapshot = Snapshot::prepare(&ground.database).map_err(in_database)?;
    let mut refs = BufWriter::new(tempfile::tempfile().map_err(|error| format!("cannot make a file: {error}"))?);
    let unreadable = |error: git::Error| format!("the repositories cannot be read: {error}");
    // Where nothing was ever served, there is nothing that could move.
    let still = if ground.data.join("repositories").is_dir() {
        Some(ground.repositories.stand_still().map_err(unreadable)?)
    } else {
        None
    };
    // The database first: what it says has happened, has.
    snapshot.begin().map_err(in_database)?;
    let repositories = ground.repositories.write_refs_of_all(&mut refs).map_err(unreadable)?;
    let taken_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    drop(still);
    let refs = refs.into_inner().map_err(|error| format!("refs cannot be written down: {error}"))?;
    let head = Head {
        format: FORMAT,
        gable: env!("CARGO_PKG_VERSION").into(),
        engine: if ground.database.is_embedded() { "sqlite" } else { "postgres" }.into(),
        migrations: snapshot.migrations().map_err(in_database)?,
        taken_at,
        instance: instance_of(&ground.data)?,
    };
    Ok(Taken { snapshot, refs, repositories, head })
}

/// What tells this instance from all others: a digest of its key, from which nobody learns the key.
fn instance_of(data: &Path) -> Result<Option<String>, Sentence> {
    match fs::read(data.join("instance-key")) {
        Ok(key) => Ok(Some(manifest::hex(&Sha256::digest([b"gable instance ", &*key].concat())))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read the key of the instance: {error}")),
    }
}

/// Copies the rows of a table in bundles; answers how many there are.
fn copy_rows(
    snapshot: &mut Snapshot,
    table: &Table,
    sink: &mut dyn Sink,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<u64, Sentence> {
    let mut pages = Pages::new(table);
    let (mut count, mut bundles, mut bundle) = (0, 0, None);
    loop {
        let rows = pages.next(snapshot)?;
        let at_end = rows.is_empty();
        let mut filled = at_end;
        for row in &rows {
            let open = match &mut bundle {
                Some(open) => open,
                None => bundle.insert(Bundle::new(&table.columns)?),
            };
            count += 1;
            filled |= open.add(row)? >= BUNDLE;
        }
        if let Some(full) = bundle.take_if(|_| filled) {
            go_on(stop)?;
            let bytes = full.finish()?;
            sink.add_bytes(&format!("database/{}/{bundles:06}.gz", table.name), &bytes)?;
            progress.add(bytes.len() as u64);
            bundles += 1;
        }
        if at_end {
            break;
        }
    }
    Ok(count)
}

/// Walks over a table in pages, none of which is large.
pub(super) struct Pages<'a> {
    table: &'a Table,
    last: Option<Row>,
    at_once: usize,
}

impl<'a> Pages<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        Self { table, last: None, at_once: 64 }
    }

    /// The next rows; none at the end.
    pub(super) fn next(&mut self, snapshot: &mut Snapshot) -> Result<Vec<Row>, Sentence> {
        const LARGE: usize = 1 << 20;
        let rows = snapshot.rows(self.table, self.last.as_ref(), self.at_once).map_err(in_database)?;
        self.last = rows.last().cloned().or(self.last.take());
        // Some tables have small rows and many, others hold whole messages.
        let size: usize = rows.iter().flatten().map(size_of).sum();
        self.at_once = if size > LARGE { (self.at_once / 4).max(1) } else { (self.at_once * 2).min(1024) };
        Ok(rows)
    }
}

fn size_of(value: &store::copies::Value) -> usize {
    match value {
        store::copies::Value::Text(text) => text.len(),
        store::copies::Value::Bytes(bytes) => bytes.len(),
        _ => 8,
    }
}

/// Writes down which files count, in lines; there may be many. Answers how many, too.
fn list_kept(snapshot: &mut Snapshot) -> Result<(File, u64), Sentence> {
    let unwritable = |error: io::Error| format!("cannot note which files there are: {error}");
    let mut list = BufWriter::new(tempfile::tempfile().map_err(unwritable)?);
    let mut count = 0;
    each_kept(snapshot, |path, size| {
        count += 1;
        writeln!(list, "{size} {path}").map_err(unwritable)
    })?;
    Ok((list.into_inner().map_err(|error| unwritable(error.into_error()))?, count))
}

/// Names every file that the database knows of, with how many of its bytes count.
fn each_kept(
    snapshot: &mut Snapshot,
    mut name: impl FnMut(String, u64) -> Result<(), Sentence>,
) -> Result<(), Sentence> {
    for what in [Kept::Uploads, Kept::Artifacts, Kept::Traces] {
        let mut after = 0;
        loop {
            let files = snapshot.kept(what, after, AT_ONCE).map_err(in_database)?;
            let Some(newest) = files.last() else { break };
            after = newest.id;
            for file in &files {
                let folder = match what {
                    Kept::Uploads => forge::uploads::folder(&file.storage),
                    Kept::Artifacts => forge::artifacts::folder(&file.storage),
                    Kept::Traces => file.storage.to_string(),
                };
                let root = if what == Kept::Traces { "traces" } else { "files" };
                name(format!("{root}/{folder}/{}", file.id), file.size)?;
            }
        }
    }
    Ok(())
}

fn copy_repositories(
    ground: &Ground,
    mut refs: File,
    sink: &mut dyn Sink,
    (seal, expected): (&mut Seal, &mut BTreeSet<String>),
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<(), Sentence> {
    let unreadable = |error: io::Error| format!("what was noted of refs cannot be read: {error}");
    refs.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut refs = BufReader::new(refs);
    while let Some((place, small_files)) = copies::read_refs(&mut refs).map_err(unreadable)? {
        progress.step();
        let root = format!("repositories/{place}");
        sink.enter(&format!("{root}/"))?;
        let objects = ground.repositories.objects_to_copy(&place).map_err(|error| format!("{root}: {error}"))?;
        let mut whole = objects.is_some();
        for path in objects.iter().flat_map(|objects| &objects.files) {
            go_on(stop)?;
            let name = path.to_str().ok_or_else(|| format!("{root} holds a file with a strange name"))?;
            let file = ground.repositories.file_to_copy(&place, path);
            if !sink.add_file(&format!("{root}/{name}"), &file, None, copies::is_immutable(path))? {
                whole = false;
                break;
            }
            progress.add(file.metadata().map_or(0, |data| data.len()));
        }
        // Only now: what has no refs is no repository.
        if !whole {
            seal.left_out.push(root);
            continue;
        }
        for (name, content) in small_files {
            sink.add_bytes(&format!("{root}/{name}"), &content)?;
        }
        expected.remove(&root);
        seal.repositories += 1;
    }
    Ok(())
}

fn copy_kept(
    data: &Path,
    mut list: File,
    sink: &mut dyn Sink,
    seal: &mut Seal,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<(), Sentence> {
    let unreadable = |error: io::Error| format!("what was noted of files cannot be read: {error}");
    list.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut group = "";
    for line in BufReader::new(list).lines() {
        go_on(stop)?;
        progress.step();
        let line = line.map_err(unreadable)?;
        let Some((size, path)) = line.split_once(' ') else { continue };
        let size = size.parse().ok();
        let entered = ["files/uploads/", "files/artifacts/", "traces/"].into_iter().find(|one| path.starts_with(one));
        if let Some(entered) = entered.filter(|entered| *entered != group) {
            group = entered;
            sink.enter(group)?;
        }
        let is_trace = group == "traces/";
        if !sink.add_file(path, &data.join(path), size, !is_trace)? {
            seal.left_out.push(path.to_owned());
            continue;
        }
        if is_trace {
            // What is held back of a trace that still grows; it says itself to which moment it belongs.
            for ending in ["aside-0", "aside-1"] {
                let aside = format!("{path}.{ending}");
                sink.add_file(&aside, &data.join(&aside), None, false)?;
            }
        }
        progress.add(size.unwrap_or_default());
    }
    Ok(())
}

/// What tells a file with several names from all others. A number is given again once a file is gone, so the number of
/// one that was removed meanwhile must not stand for another one.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct FileId([i64; 4], [u64; 3]);

impl FileId {
    pub(super) fn of(data: &Metadata) -> Self {
        let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
        Self(times, [data.dev(), data.ino(), data.len()])
    }
}

/// Opens a file of which so many bytes count; `None` if it is gone or does not hold them any more.
pub(super) fn open(path: &Path, size: Option<u64>) -> Result<Option<(io::Take<File>, u64)>, Sentence> {
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error)),
    };
    let there = file.metadata().map_err(unreadable)?.len();
    let size = size.unwrap_or(there);
    Ok((size <= there).then(|| (file.take(size), size)))
}

fn go_on(stop: &AtomicBool) -> Result<(), Sentence> {
    if stop.load(Ordering::Relaxed) { Err("the backup was ended early".into()) } else { Ok(()) }
}

pub(super) fn in_database(error: impl std::fmt::Display) -> Sentence {
    format!("the database cannot be copied: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_under_the_same_number_is_another_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::write(&one, "some").expect("written");
        fs::hard_link(&one, &two).expect("linked");
        let id = |path: &Path| FileId::of(&path.metadata().expect("a file"));
        let before = id(&one);
        assert!(before == id(&two));
        // What keeps its number, as one does that takes the place of a file that is gone.
        fs::write(&one, "other").expect("written");
        assert!(before != id(&one));
    }
}
