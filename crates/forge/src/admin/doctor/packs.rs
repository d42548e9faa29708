//! Checks that the files of packs match their rows, and that packs in the database are intact.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    time::SystemTime,
};

use git::PACK_EXTENSIONS;
use model::PackId;
use store::checks::{self, PackRow};

use super::{
    BATCH, DoctorOptions, Finding, MAX_EXAMPLES,
    orphans::{report_orphans, report_unlisted_objects},
};
use crate::{
    Caller, Forge, ReadTx, Result, blocking,
    maintenance::{PACK_FOLDER, UNLISTED_FILE_AGE, time_of_files},
};

/// The number of small packs that are read at a time.
const SMALL_PACK_BATCH: i64 = 100;

/// The rows and the files of packs that are not small.
struct PackFiles {
    rows: Vec<PackRow>,
    /// The files by key, with the extension.
    files: HashMap<String, StoredFile>,
}

struct StoredFile {
    size: u64,
    modified: SystemTime,
}

impl PackFiles {
    async fn load(forge: &Forge) -> Result<Self> {
        let mut rows: Vec<PackRow> = Vec::new();
        loop {
            let after = rows.last().map_or(PackId::new(0), |row| row.id);
            let batch = forge.read(Caller::system(), move |tx| Ok(checks::packs(tx.db(), after, BATCH)?)).await?;
            if batch.is_empty() {
                break;
            }
            rows.extend(batch);
        }
        // Files are stored before their rows and removed after them, so they are listed after the rows.
        let store = forge.shared().files.clone();
        let files = blocking::spawn(move || {
            let mut files = HashMap::new();
            store.list(PACK_FOLDER, &mut |entry| {
                files.insert(entry.key, StoredFile { size: entry.size, modified: entry.modified });
                Ok(())
            })?;
            Ok(files)
        });
        let mut found = Self { rows, files: files.await? };
        found.look_up_missing(forge).await?;
        Ok(found)
    }

    /// Looks up the files that were not listed one by one: the listing of a bucket may be out of date.
    async fn look_up_missing(&mut self, forge: &Forge) -> Result<()> {
        if forge.shared().files.bucket().is_none() {
            return Ok(());
        }
        let keys = self.rows.iter().flat_map(|row| ["pack", "idx"].map(|extension| format!("{}.{extension}", row.key)));
        let missing: Vec<String> = keys.filter(|key| !self.files.contains_key(key)).collect();
        let store = forge.shared().files.clone();
        let look_up = move || {
            let mut found = Vec::new();
            for key in missing {
                if let Some(size) = store.size(&key)? {
                    found.push((key, StoredFile { size, modified: SystemTime::now() }));
                }
            }
            Ok(found)
        };
        self.files.extend(blocking::spawn(look_up).await?);
        Ok(())
    }

    /// Returns what is wrong with the files of a pack.
    fn fault(&self, row: &PackRow) -> Option<String> {
        let pack = format!("{}.pack", row.key);
        match self.files.get(&pack) {
            None => Some(format!("{pack} is missing")),
            Some(file) if i64::try_from(file.size) != Ok(row.bytes) => {
                Some(format!("{pack} has {} bytes instead of {}", file.size, row.bytes))
            }
            Some(_) => {
                let index = format!("{}.idx", row.key);
                (!self.files.contains_key(&index)).then(|| format!("{index} is missing"))
            }
        }
    }

    /// Returns the keys of the files that belong to no pack.
    async fn unlisted(&self, forge: &Forge) -> Result<Vec<&str>> {
        let listed: HashSet<&str> = self.rows.iter().map(|row| row.key.as_str()).collect();
        let unlisted: Vec<&str> =
            self.files.keys().map(String::as_str).filter(|file| !listed.contains(pack_of(file))).collect();
        // Rows may have been inserted after they were read.
        let keys: Vec<String> = unlisted.iter().map(|file| pack_of(file).to_owned()).collect();
        let known = move |tx: &mut ReadTx<'_>| Ok(store::packs::known_keys(tx.db(), &keys)?);
        let known: HashSet<String> = forge.read(Caller::system(), known).await?.into_iter().collect();
        let mut unlisted: Vec<&str> = unlisted.into_iter().filter(|file| !known.contains(pack_of(file))).collect();
        unlisted.sort_unstable();
        Ok(unlisted)
    }
}

/// Reports packs whose files are missing or have another size, damaged packs in the database, and files that belong to no pack.
pub(super) async fn check(forge: &Forge, options: &DoctorOptions) -> Result<Vec<Finding>> {
    let packs = PackFiles::load(forge).await?;
    let small = check_small_packs(forge).await?;
    let mut findings = report_faults(forge, &packs, &small).await?;
    findings.extend(report_unlisted(forge, options, &packs).await?);
    Ok(findings)
}

/// Moves files that belong to no pack aside.
pub(super) async fn move_orphans_aside(forge: &Forge, options: &DoctorOptions) -> Result<Vec<Finding>> {
    let packs = PackFiles::load(forge).await?;
    report_unlisted(forge, options, &packs).await
}

/// The packs whose content is in the database.
#[derive(Default)]
struct SmallPacks {
    count: usize,
    /// What is wrong with damaged ones.
    faults: Vec<(PackId, String)>,
}

async fn check_small_packs(forge: &Forge) -> Result<SmallPacks> {
    let (mut found, mut after) = (SmallPacks::default(), PackId::new(0));
    loop {
        let list = move |tx: &mut ReadTx<'_>| Ok(store::packs::small_packs(tx.db(), after, SMALL_PACK_BATCH)?);
        let batch = forge.read(Caller::system(), list).await?;
        let Some(last) = batch.last() else { return Ok(found) };
        after = last.id;
        found.count += batch.len();
        for pack in batch {
            if let Err(fault) = git::check_pack(pack.checksum, &pack.content) {
                found.faults.push((pack.id, format!("the pack {} in the database is damaged: {fault}", pack.key)));
            }
        }
    }
}

async fn report_faults(forge: &Forge, packs: &PackFiles, small: &SmallPacks) -> Result<Vec<Finding>> {
    const CHECK: &str = "packs";
    let mut findings = Vec::new();
    let faults = packs.rows.iter().filter_map(|row| Some((row.id, packs.fault(row)?)));
    for (id, fault) in faults.chain(small.faults.iter().cloned()) {
        let users = move |tx: &mut ReadTx<'_>| Ok(checks::projects_with_pack(tx.db(), id)?);
        let projects = forge.read(Caller::system(), users).await?;
        // Otherwise it was removed meanwhile, or is about to be.
        if let Some(first) = projects.first() {
            let examples: Vec<String> = projects.iter().take(MAX_EXAMPLES).map(ToString::to_string).collect();
            let text = match projects.len() {
                1 => format!("{fault}; project {first} needs it"),
                count => format!("{fault}; {count} projects need it, such as {}", examples.join(", ")),
            };
            findings.push(Finding::problem(CHECK, text, "restore it from a backup"));
        }
    }
    if findings.is_empty() {
        let (with_files, small) = (packs.rows.len(), small.count);
        let text = format!("all {with_files} packs have their files; {small} small ones in the database are intact");
        findings.push(Finding::ok(CHECK, text));
    }
    Ok(findings)
}

async fn report_unlisted(forge: &Forge, options: &DoctorOptions, packs: &PackFiles) -> Result<Vec<Finding>> {
    const CHECK: &str = "packs without rows";
    let mut unlisted = packs.unlisted(forge).await?;
    let all = unlisted.len();
    if options.server_running {
        // Newer files may belong to pushes in progress, and the server removes those of interrupted ones by itself.
        let now = time_of_files(forge);
        let is_old =
            |file: &&str| now.duration_since(packs.files[*file].modified).is_ok_and(|age| age > 2 * UNLISTED_FILE_AGE);
        unlisted.retain(is_old);
    }
    let Some(folder) = forge.shared().files.folder() else {
        if all > 0 && unlisted.is_empty() {
            let text = format!("{all} objects may belong to pushes in progress; nodes remove such packs after a day");
            return Ok(vec![Finding::ok(CHECK, text)]);
        }
        let remedy = if options.server_running {
            "nodes remove such packs after a day; their logs say why these are left"
        } else {
            "leave them: nodes remove such packs a day after they were stored"
        };
        return Ok(vec![report_unlisted_objects(CHECK, &unlisted, remedy)]);
    };
    let paths: Vec<PathBuf> = unlisted.into_iter().map(|file| folder.join(file)).collect();
    Ok(report_orphans(options, CHECK, "packs", folder, paths))
}

/// Returns the key of the pack that a file belongs to.
fn pack_of(file: &str) -> &str {
    match file.rsplit_once('.') {
        Some((key, extension)) if PACK_EXTENSIONS.contains(&extension) => key,
        _ => file,
    }
}
