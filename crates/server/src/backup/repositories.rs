//! Repositories: their refs are rows, and their objects are packs in the store of files. Small packs are rows, too.
//!
//! Packs are never changed, and a pack that was replaced is kept for a day. So the packs that a database snapshot lists
//! can be copied after the snapshot was closed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader, BufWriter, IntoInnerError, Seek as _, SeekFrom, Write as _},
    path::Path,
    sync::atomic::AtomicBool,
};

use anyhow::{Context as _, Result};
use git::{
    FileCheck, PACK_EXTENSIONS,
    backup::{StoredPack, find_missing_object},
};
use model::{Oid, PackId, ProjectId, RefName, RepositoryId, text::hex};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use store::{Conn, Database, dump::Snapshot};

use super::{
    capture::{AddOutcome, Sink, check_stopped, database_error},
    manifest::{DamagedFile, ManifestSummary, describe_projects},
    progress::Progress,
    source::{FileSource, STORE, StoredFiles},
};

/// The folder of packs in a data folder and in a backup.
const PACKS: &str = "files/packs/";
/// The number of repositories per query.
const REPOSITORY_PAGE_SIZE: i64 = 1000;
/// The number of packs per query.
const PACK_PAGE_SIZE: usize = 10_000;
/// The number of small packs per query, which returns their contents.
const SMALL_PACK_PAGE_SIZE: i64 = 100;

/// The repositories and packs of a database snapshot, in temporary files because there may be many.
pub(super) struct RepositoryList {
    packs: File,
    pub(super) pack_count: u64,
    /// The keys of damaged small packs, and what is wrong with them.
    damaged_small_packs: Vec<(String, String)>,
    repositories: File,
    pub(super) repository_count: u64,
}

/// A pack with files, live or dead.
#[derive(Deserialize, Serialize)]
struct ListedPack {
    key: String,
    checksum: String,
    size: u64,
}

/// A repository with its packs and the objects that its refs point to.
#[derive(Deserialize, Serialize)]
struct ListedRepository {
    project: i64,
    /// The full name of the default branch, if there is no such ref.
    missing_branch: Option<String>,
    /// The live packs, sorted by key.
    packs: Vec<LivePack>,
    /// The keys of the packs that were replaced.
    dead_packs: Vec<String>,
    /// The targets of all refs, sorted.
    tips: BTreeSet<String>,
}

/// A live pack of a repository.
#[derive(Deserialize, Serialize)]
struct LivePack {
    key: String,
    checksum: String,
    has_files: bool,
}

/// Packs that are damaged or have files that do not exist, by key.
#[derive(Default)]
pub(super) struct FaultyPacks(BTreeMap<String, FaultyPack>);

#[derive(Default)]
struct FaultyPack {
    /// The paths of damaged files, and what is wrong with them.
    damaged: Vec<(String, String)>,
    /// The paths of files that do not exist.
    gone: Vec<String>,
    /// The projects whose repositories have the pack.
    projects: BTreeSet<i64>,
    /// Those in which no other pack has replaced it.
    live_in: BTreeSet<i64>,
}

impl RepositoryList {
    /// Lists the repositories and packs of a snapshot. Small packs, which are copied with the other rows, are verified.
    pub(super) fn read(snapshot: &mut Snapshot, stop: &AtomicBool) -> Result<Self> {
        let mut packs = ListWriter::new()?;
        let mut after = String::new();
        loop {
            let page = snapshot.packs(&after, PACK_PAGE_SIZE).map_err(database_error)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.key);
            for pack in page {
                packs.push(&ListedPack { key: pack.key, checksum: pack.checksum.to_string(), size: pack.size })?;
            }
        }
        let damaged_small_packs = find_damaged_small_packs(snapshot, stop)?;
        let mut repositories = ListWriter::new()?;
        let mut after = RepositoryId::new(0);
        loop {
            let page = store::repositories::list(snapshot.connection(), after, REPOSITORY_PAGE_SIZE);
            let page = page.map_err(database_error)?;
            let Some(last) = page.last() else { break };
            after = last.id;
            for record in &page {
                let context = || format!("cannot read the refs of project {}", record.project);
                let listed = ListedRepository::read(snapshot, record.id, record.project).with_context(context)?;
                repositories.push(&listed)?;
            }
        }
        let ((packs, pack_count), (repositories, repository_count)) = (packs.finish()?, repositories.finish()?);
        Ok(Self { packs, pack_count, damaged_small_packs, repositories, repository_count })
    }

    /// Copies the files of all packs and verifies them; returns the faulty packs.
    pub(super) fn copy_packs(
        &self,
        files: &StoredFiles,
        sink: &mut dyn Sink,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<FaultyPacks> {
        let mut faulty = FaultyPacks::default();
        for (key, fault) in &self.damaged_small_packs {
            faulty.entry(key).damaged.push((format!("{key} (in the database)"), fault.clone()));
        }
        let mut group = String::new();
        for pack in read_list::<ListedPack>(&self.packs)? {
            let ListedPack { key, checksum, size } = pack?;
            check_stopped(stop)?;
            progress.step();
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
            if group != folder {
                folder.clone_into(&mut group);
                sink.enter(&format!("{STORE}{folder}/"))?;
            }
            let checksum = parse_oid(&checksum)?;
            for extension in PACK_EXTENSIONS {
                let path = format!("{STORE}{key}.{extension}");
                let check = Some(FileCheck::for_pack(extension, checksum));
                let source =
                    FileSource { immutable: true, is_linked: true, check, ..FileSource::whole(files.place(&path)) };
                match sink.add_file(&path, source)? {
                    // Git works without a reverse index, and earlier versions created none.
                    AddOutcome::Gone if extension == "rev" => {}
                    AddOutcome::Gone => faulty.entry(&key).gone.push(path),
                    AddOutcome::Unreadable(fault) | AddOutcome::Copied { fault: Some(fault), .. } => {
                        faulty.entry(&key).damaged.push((path, fault));
                    }
                    AddOutcome::Copied { size: found, fault: None } => {
                        progress.add(found);
                        if extension == "pack" && found != size {
                            faulty.entry(&key).damaged.push((path, format!("has {found} bytes instead of {size}")));
                        }
                    }
                }
            }
        }
        Ok(faulty)
    }

    /// Checks that the refs of all repositories lead to objects in their packs.
    pub(super) fn check_links(
        &self,
        (files, database): (&StoredFiles, &Database),
        sink: &dyn Sink,
        (summary, faulty): (&mut ManifestSummary, &mut FaultyPacks),
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut db = database.connect_reader().map_err(database_error)?;
        for repository in read_list::<ListedRepository>(&self.repositories)? {
            let repository = repository?;
            check_stopped(stop)?;
            progress.step();
            summary.repositories += 1;
            let damage = |path: &str, fault: &str| DamagedFile {
                path: path.to_owned(),
                fault: fault.to_owned(),
                projects: vec![repository.project],
            };
            if let Some(branch) = &repository.missing_branch {
                summary.damaged.push(damage(branch, "the default branch is missing"));
            }
            // Objects of a faulty pack are missing anyway.
            if faulty.assign(&repository) {
                continue;
            }
            let digest = repository.digest();
            if !sink.was_connected(&digest) {
                // Holds small packs.
                let temporary = tempfile::tempdir().context("cannot create a temporary folder")?;
                let Some(packs) = repository.stored_packs(files, &mut db, temporary.path())? else {
                    // A small pack was removed since; the rows that were copied have it.
                    continue;
                };
                let tips = repository.tips.iter().map(|tip| parse_oid(tip)).collect::<Result<Vec<_>>>()?;
                let missing = find_missing_object(&packs, &tips, stop);
                check_stopped(stop)?;
                let context = || format!("cannot check the repository of project {}", repository.project);
                if let Some(fault) = missing.with_context(context)? {
                    let removed = packs.iter().zip(&repository.packs).find(|(pack, _)| !pack.is_complete());
                    match removed {
                        // Copied, but removed before it could be searched.
                        Some((_, LivePack { key, .. })) => faulty.entry(key).note_removed(key, &repository),
                        None => summary.damaged.push(damage("repository", &fault)),
                    }
                    continue;
                }
            }
            summary.connected.insert(digest);
        }
        Ok(())
    }
}

impl ListedRepository {
    fn read(snapshot: &mut Snapshot, id: RepositoryId, project: ProjectId) -> Result<Self> {
        let db = snapshot.connection();
        let found = store::repositories::refs(db, id).map_err(database_error)?;
        let (default_branch, refs) = found.map_or((None, Vec::new()), |found| (found.default_branch, found.refs));
        let branch = default_branch.as_deref().and_then(RefName::branch);
        let missing_branch = branch.filter(|branch| !refs.iter().any(|reference| reference.name == *branch));
        let (live, dead): (Vec<_>, Vec<_>) = store::packs::of_repository(db, id)
            .map_err(database_error)?
            .into_iter()
            .partition(|pack| pack.dead_since.is_none());
        let mut packs: Vec<LivePack> = live
            .into_iter()
            .map(|pack| LivePack { key: pack.key, checksum: pack.checksum.to_string(), has_files: pack.has_files })
            .collect();
        packs.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            project: project.get(),
            missing_branch: missing_branch.map(|branch| branch.as_str().to_owned()),
            packs,
            dead_packs: dead.into_iter().map(|pack| pack.key).collect(),
            tips: refs.iter().map(|reference| reference.target.to_string()).collect(),
        })
    }

    /// Returns a digest that differs whenever the packs or the objects that refs point to differ. Keys of packs are
    /// never used again.
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for pack in &self.packs {
            digest.update(format!("pack {}\n", pack.key));
        }
        for tip in &self.tips {
            digest.update(format!("tip {tip}\n"));
        }
        hex(&digest.finalize())
    }

    /// Returns the live packs; small ones and those of a bucket are written to a temporary folder. `None` if the database no longer has one of them.
    fn stored_packs(&self, files: &StoredFiles, db: &mut Conn, temporary: &Path) -> Result<Option<Vec<StoredPack>>> {
        let mut packs = Vec::with_capacity(self.packs.len());
        for (number, LivePack { key, checksum, has_files }) in self.packs.iter().enumerate() {
            let checksum = parse_oid(checksum)?;
            let mut path = temporary.join(number.to_string());
            if *has_files {
                path = files.local_pack(key, &path)?;
            } else {
                let content = store::packs::content(db, key).map_err(database_error)?;
                let Some(content) = content else { return Ok(None) };
                let write = |extension, bytes: &[u8]| fs::write(path.with_extension(extension), bytes);
                let written = write("pack", &content.pack).and_then(|()| write("idx", &content.index));
                written.context("cannot write a temporary file")?;
            }
            packs.push(StoredPack { checksum, path });
        }
        Ok(Some(packs))
    }
}

impl FaultyPacks {
    fn entry(&mut self, key: &str) -> &mut FaultyPack {
        self.0.entry(key.to_owned()).or_default()
    }

    /// Adds a repository to its faulty packs; returns whether a live one is faulty.
    fn assign(&mut self, repository: &ListedRepository) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut is_faulty = false;
        for key in &repository.dead_packs {
            if let Some(pack) = self.0.get_mut(key) {
                pack.projects.insert(repository.project);
            }
        }
        for LivePack { key, .. } in &repository.packs {
            if let Some(pack) = self.0.get_mut(key) {
                pack.projects.insert(repository.project);
                pack.live_in.insert(repository.project);
                is_faulty = true;
            }
        }
        is_faulty
    }

    /// Adds the faulty packs to a summary. A missing pack is left out if no repository needs it any more.
    pub(super) fn report(self, database: &Database, summary: &mut ManifestSummary) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut db = database.connect_reader().map_err(database_error)?;
        for (key, FaultyPack { damaged, gone, projects, live_in }) in self.0 {
            let projects: Vec<i64> = projects.into_iter().collect();
            let damage = |(path, fault)| DamagedFile { path, fault, projects: projects.clone() };
            summary.damaged.extend(damaged.into_iter().map(damage));
            if gone.is_empty() {
                continue;
            }
            // Asked first: the row of a pack is deleted after those of its repositories.
            let known = store::packs::known_keys(&mut db, std::slice::from_ref(&key)).map_err(database_error)?;
            let mut is_needed = false;
            for project in live_in {
                let found = store::repositories::find(&mut db, ProjectId::new(project)).map_err(database_error)?;
                is_needed |= found.is_some();
            }
            if !is_needed {
                summary.left_out.extend(PACK_EXTENSIONS.map(|extension| format!("{STORE}{key}.{extension}")));
                continue;
            }
            let reason = if known.is_empty() { "; it was removed during the backup, make another one" } else { "" };
            let projects = describe_projects(&projects);
            summary.missing.extend(gone.into_iter().map(|path| format!("{path}{projects}{reason}")));
        }
        Ok(())
    }
}

impl FaultyPack {
    /// Records that a pack was removed after it was copied.
    fn note_removed(&mut self, key: &str, repository: &ListedRepository) {
        self.gone = vec![format!("{STORE}{key}.pack")];
        self.projects.insert(repository.project);
        self.live_in.insert(repository.project);
    }
}

/// Returns the keys of damaged small packs, and what is wrong with them.
fn find_damaged_small_packs(snapshot: &mut Snapshot, stop: &AtomicBool) -> Result<Vec<(String, String)>> {
    let mut damaged = Vec::new();
    let mut after = PackId::new(0);
    loop {
        check_stopped(stop)?;
        let page = store::packs::small_packs(snapshot.connection(), after, SMALL_PACK_PAGE_SIZE);
        let page = page.map_err(database_error)?;
        let Some(last) = page.last() else { return Ok(damaged) };
        after = last.id;
        for pack in page {
            if let Err(fault) = git::check_pack(pack.checksum, &pack.content) {
                damaged.push((pack.key, fault.to_string()));
            }
        }
    }
}

/// Returns the key of the pack that a file of a backup belongs to.
pub(super) fn pack_key(path: &str) -> Option<&str> {
    let key = path.strip_prefix(STORE).filter(|_| path.starts_with(PACKS))?;
    key.rsplit_once('.').map(|(key, _)| key)
}

fn parse_oid(text: &str) -> Result<Oid> {
    text.parse().ok().with_context(|| format!("{text} is not an object id"))
}

/// Writes a list to a temporary file, one JSON value per line.
struct ListWriter {
    out: BufWriter<File>,
    count: u64,
}

impl ListWriter {
    fn new() -> Result<Self> {
        let file = tempfile::tempfile().context("cannot create a temporary file")?;
        Ok(Self { out: BufWriter::new(file), count: 0 })
    }

    fn push(&mut self, item: &impl Serialize) -> Result<()> {
        self.count += 1;
        let line = serde_json::to_string(item)?;
        writeln!(self.out, "{line}").context("cannot write a temporary file")
    }

    /// Returns the file and the number of items.
    fn finish(self) -> Result<(File, u64)> {
        let file = self.out.into_inner().map_err(IntoInnerError::into_error);
        Ok((file.context("cannot write a temporary file")?, self.count))
    }
}

/// Reads a list from its beginning.
fn read_list<T: DeserializeOwned>(mut file: &File) -> Result<impl Iterator<Item = Result<T>>> {
    let context = "cannot read a temporary file";
    file.seek(SeekFrom::Start(0)).context(context)?;
    let item = move |line: std::io::Result<String>| Ok(serde_json::from_str(&line.context(context)?)?);
    Ok(BufReader::new(file).lines().map(item))
}
