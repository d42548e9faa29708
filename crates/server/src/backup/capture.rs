//! Takes everything at one instant, and then copies it at leisure.
//!
//! At the instant no ref moves: the database is held as it is, and all refs are written down. Objects that refs lead to
//! never go away, files that rows name are only ever removed, and traces only grow, so all of those can wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, Metadata},
    io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use git::{FileCheck, Repositories, copies};
use store::{
    Database,
    copies::{Kept, KeptFile, Row, Snapshot, Table, WithRepository},
};

use super::{
    Sentence, examine,
    manifest::{Damage, FORMAT, Head, Seal},
    progress::Progress,
    rows::{BUNDLE, Bundle},
};

/// How often, and after which pause, it is looked again whether something that is not there should be. What is removed
/// loses its file a moment before its row.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// How many damaged files are told one by one; all of them are listed in the backup.
const TOLD: usize = 100;
/// The files beside the database without which it is of little use.
pub(super) const KEYS: [&str; 2] = ["instance-key", "ssh-host-key"];
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

    /// Whether everything since [`Self::enter`] is as an earlier backup has it, in which it was checked, and nothing of
    /// that is gone.
    fn is_unchanged(&self) -> bool;

    /// Adds a file, or the beginning of one.
    fn add_file(&mut self, path: &str, source: Source<'_>) -> Result<Added, Sentence>;

    /// Ends it: it is all there and on disk.
    fn finish(&mut self, seal: Seal) -> Result<Seal, Sentence>;
}

/// A file that is to be copied.
pub(super) struct Source<'a> {
    pub(super) file: &'a Path,
    /// How many of its bytes count; all if absent.
    pub(super) size: Option<u64>,
    /// Whether it never changes under its name.
    pub(super) lasts: bool,
    /// When it came to be, in microseconds, if that is known; it has not changed since.
    pub(super) created_at: Option<i64>,
    /// What its content has to agree with.
    pub(super) check: Option<FileCheck>,
}

impl<'a> Source<'a> {
    /// All of a file that may change.
    fn whole(file: &'a Path) -> Self {
        Self { file, size: None, lasts: false, created_at: None, check: None }
    }
}

/// What became of a file that was to be copied.
pub(super) enum Added {
    /// It is not there, or not as many bytes of it.
    Gone,
    /// Nothing of it can be read.
    Unreadable(String),
    /// It is copied. If it is damaged, so is the copy.
    Copied { fault: Option<String> },
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
    let (instance, damaged_keys) = examine::instance(ground)?;
    let Taken { mut snapshot, refs, repositories, head } = take(ground, instance)?;
    sink.begin(&head)?;
    let mut seal = Seal { damaged: damaged_keys, ..Seal::default() };
    let tables = snapshot.tables().map_err(in_database)?;
    progress.stage_of("rows of the database", tables.len() as u64);
    for table in tables {
        let count = copy_rows(&mut snapshot, &table, sink, progress, stop)?;
        seal.rows.insert(table.name, count);
        progress.step();
    }
    seal.sequences = snapshot.sequences().map_err(in_database)?.into_iter().collect::<BTreeMap<_, _>>();
    let (kept, files) = list_kept(&mut snapshot)?;
    let mut expected = BTreeMap::new();
    each_repository(ground, &mut snapshot, |project, place| {
        expected.insert(place, project.default_branch);
    })?;
    // From here on the database need not remember what it was.
    drop(snapshot);
    for name in KEYS {
        let file = ground.data.join(name);
        let added = sink.add_file(name, Source::whole(&file))?;
        seal.note(name, added);
    }
    progress.stage_of("repositories", repositories);
    copy_repositories(ground, refs, sink, (&mut seal, &mut expected), progress, stop)?;
    progress.stage_of("files and traces", files);
    copy_kept(&ground.data, kept, sink, &mut seal, progress, stop)?;
    seal.missing.extend(missing(ground, &seal.left_out, &expected, stop)?);
    seal.missing.sort_unstable();
    name_projects(ground, &mut seal.damaged)?;
    // In order, and perhaps very many.
    for path in seal.left_out.iter().filter(|path| seal.missing.binary_search(path).is_err()) {
        progress.note(&format!("left out, because it was removed meanwhile: {path}"));
    }
    for damage in seal.damaged.iter().take(TOLD) {
        progress.warn(&format!("damaged: {damage}"));
    }
    sink.finish(seal)
}

impl Seal {
    /// Notes what was wrong with a file; answers whether some of it was copied.
    fn note(&mut self, path: &str, added: Added) -> bool {
        let (fault, copied) = match added {
            Added::Gone => return false,
            Added::Unreadable(fault) => (Some(fault), false),
            Added::Copied { fault } => (fault, true),
        };
        self.damaged.extend(fault.map(|fault| Damage { path: path.to_owned(), fault, project: None }));
        copied
    }
}

/// Says of damaged repositories to which projects they belong.
fn name_projects(ground: &Ground, damaged: &mut [Damage]) -> Result<(), Sentence> {
    if damaged.is_empty() {
        return Ok(());
    }
    damaged.sort_unstable();
    let mut snapshot = Snapshot::prepare(&ground.database).map_err(in_database)?;
    snapshot.begin().map_err(in_database)?;
    each_repository(ground, &mut snapshot, |project, place| {
        let first = damaged.partition_point(|damage| *damage.path < *place);
        for damage in damaged[first..].iter_mut().take_while(|damage| damage.path.starts_with(&place)) {
            damage.project = Some(project.id);
        }
    })
}

/// Which of those that could not be copied should be there all the same. A disk that is not mounted must not pass for one
/// from which everything was removed.
fn missing(
    ground: &Ground,
    left_out: &[String],
    expected: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<Vec<String>, Sentence> {
    let mut open: BTreeSet<String> = left_out.iter().chain(expected.keys()).cloned().collect();
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
        each_repository(ground, &mut snapshot, |_, place| want(place))?;
        each_kept(&mut snapshot, |path, _| {
            want(path);
            Ok(())
        })?;
        open = wanted;
    }
    Ok(open.into_iter().collect())
}

/// Names every project that has a repository as far as the database knows, and the place of that.
fn each_repository(
    ground: &Ground,
    snapshot: &mut Snapshot,
    mut name: impl FnMut(WithRepository, String),
) -> Result<(), Sentence> {
    let mut after = 0;
    loop {
        let projects = snapshot.with_repository(after, AT_ONCE).map_err(in_database)?;
        let Some(newest) = projects.last() else { return Ok(()) };
        after = newest.id;
        for project in projects {
            let place = format!("repositories/{}", ground.repositories.place_of(&project.storage));
            name(project, place);
        }
    }
}

fn take(ground: &Ground, instance: Option<String>) -> Result<Taken, Sentence> {
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
        instance,
        verified: true,
    };
    Ok(Taken { snapshot, refs, repositories, head })
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
    each_kept(snapshot, |path, file| {
        count += 1;
        writeln!(list, "{} {} {path}", file.size, file.created_at.unwrap_or_default()).map_err(unwritable)
    })?;
    Ok((list.into_inner().map_err(|error| unwritable(error.into_error()))?, count))
}

/// Names every file that the database knows of, with what it knows.
fn each_kept(
    snapshot: &mut Snapshot,
    mut name: impl FnMut(String, &KeptFile) -> Result<(), Sentence>,
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
                name(format!("{root}/{folder}/{}", file.id), file)?;
            }
        }
    }
    Ok(())
}

fn copy_repositories(
    ground: &Ground,
    mut refs: File,
    sink: &mut dyn Sink,
    (seal, expected): (&mut Seal, &mut BTreeMap<String, String>),
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<(), Sentence> {
    let unreadable = |error: io::Error| format!("what was noted of refs cannot be read: {error}");
    refs.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut refs = BufReader::new(refs);
    while let Some(mut noted) = copies::read_refs(&mut refs).map_err(unreadable)? {
        progress.step();
        go_on(stop)?;
        let root = format!("repositories/{}", noted.place);
        sink.enter(&format!("{root}/"))?;
        // One that is damaged does not keep the others from being copied.
        let objects = match ground.repositories.objects_to_copy(&noted.place) {
            Ok(Some(objects)) => objects,
            Ok(None) => {
                seal.left_out.push(root);
                continue;
            }
            Err(error) => {
                seal.damaged.push(Damage { path: root.clone(), fault: error.to_string(), project: None });
                seal.left_out.push(root);
                continue;
            }
        };
        let so_far = seal.damaged.len();
        let mut whole = true;
        for path in &objects.files {
            go_on(stop)?;
            let name = path.to_str().ok_or_else(|| format!("{root} holds a file with a strange name"))?;
            let file = ground.repositories.file_to_copy(&noted.place, path);
            let check = Some(FileCheck::of(name));
            let source = Source { lasts: copies::is_immutable(path), check, ..Source::whole(&file) };
            match sink.add_file(&format!("{root}/{name}"), source)? {
                Added::Gone => {
                    whole = false;
                    break;
                }
                added => drop(seal.note(&format!("{root}/{name}"), added)),
            }
            progress.add(file.metadata().map_or(0, |data| data.len()));
        }
        // Only now: what has no refs is no repository.
        if !whole {
            seal.left_out.push(root);
            continue;
        }
        let tips = noted.tips();
        if let Some(branch) = expected.get(&root).filter(|branch| !noted.has_branch(branch)) {
            noted.faults.push(format!("refs/heads/{branch}: the default branch is missing"));
        }
        let faults = objects.faults.iter().chain(&noted.faults);
        let damage = |text: &String| {
            let (name, fault) = text.split_once(": ").unwrap_or(("", text));
            Damage { path: format!("{root}/{name}"), fault: fault.to_owned(), project: None }
        };
        seal.damaged.extend(faults.map(damage));
        for (name, content) in noted.files {
            sink.add_bytes(&format!("{root}/{name}"), &content)?;
        }
        // What is lost altogether is found by following all links, unless something else was found already.
        if seal.damaged.len() == so_far && !sink.is_unchanged() {
            let missing = ground.repositories.find_missing_object(&noted.place, &tips, stop);
            go_on(stop)?;
            let missing = missing.map_err(|error| format!("{root} cannot be checked: {error}"))?;
            seal.damaged.extend(missing.map(|fault| Damage { path: root.clone(), fault, project: None }));
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
        let mut parts = line.splitn(3, ' ');
        let (Some(size), Some(created_at), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (size, created_at) = (size.parse().ok(), created_at.parse().ok().filter(|moment| *moment > 0));
        let entered = ["files/uploads/", "files/artifacts/", "traces/"].into_iter().find(|one| path.starts_with(one));
        if let Some(entered) = entered.filter(|entered| *entered != group) {
            group = entered;
            sink.enter(group)?;
        }
        let is_trace = group == "traces/";
        let file = data.join(path);
        let source = Source { size, lasts: !is_trace, created_at, ..Source::whole(&file) };
        let added = sink.add_file(path, source)?;
        if matches!(added, Added::Gone) {
            seal.left_out.push(path.to_owned());
            continue;
        }
        seal.note(path, added);
        if is_trace {
            // What is held back of a trace that still grows; it says itself to which moment it belongs.
            for ending in ["aside-0", "aside-1"] {
                let aside = format!("{path}.{ending}");
                let added = sink.add_file(&aside, Source::whole(&data.join(&aside)))?;
                seal.note(&aside, added);
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

/// A file that was opened.
pub(super) enum Opened {
    Content(Box<Content>, Metadata),
    /// It is not there, or does not hold as many bytes any more.
    Gone,
    Unreadable(String),
}

/// Opens a file of which so many bytes count.
pub(super) fn open(source: Source<'_>) -> Opened {
    let opened = File::open(source.file).and_then(|file| {
        let data = file.metadata()?;
        if data.is_file() { Ok((file, data)) } else { Err(io::Error::other("it is not a file")) }
    });
    let (file, data) = match opened {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Opened::Gone;
        }
        Err(error) => return Opened::Unreadable(error.to_string()),
    };
    let size = source.size.unwrap_or(data.len());
    if size > data.len() {
        return Opened::Gone;
    }
    let grown = source.lasts && size < data.len();
    let fault = grown.then(|| format!("it has {} bytes instead of {size}", data.len()));
    Opened::Content(Box::new(Content { file, size, left: size, check: source.check, fault }), data)
}

/// So many bytes of a file, checked as they are read. If some cannot be read zeros come in their place, because a stream
/// that was begun cannot be taken back; what happened is remembered.
pub(super) struct Content {
    file: File,
    pub(super) size: u64,
    left: u64,
    check: Option<FileCheck>,
    pub(super) fault: Option<String>,
}

impl Content {
    /// What is wrong with what was read.
    pub(super) fn finish(self) -> Option<String> {
        self.fault.or_else(|| self.check.and_then(|check| check.finish().err()))
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..most];
        let read = match self.file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Ok(0) => Err("it ends early".to_owned()),
            Ok(read) => Ok(read),
            Err(error) => Err(error.to_string()),
        };
        let read = read.unwrap_or_else(|fault| {
            let place = self.size - self.left;
            self.fault.get_or_insert(format!("it cannot be read from byte {place} on: {fault}"));
            buffer.fill(0);
            most
        });
        if let Some(check) = &mut self.check {
            check.update(&buffer[..read]);
        }
        self.left -= read as u64;
        Ok(read)
    }
}

fn go_on(stop: &AtomicBool) -> Result<(), Sentence> {
    if stop.load(Ordering::Relaxed) { Err("the backup was ended early".into()) } else { Ok(()) }
}

pub(super) fn in_database(error: impl std::fmt::Display) -> Sentence {
    format!("the database cannot be copied: {error}")
}

#[cfg(test)]
mod tests {
    use std::fs;

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
