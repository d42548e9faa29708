//! Backup formats: a file that is complete or refused, a folder of deduplicated snapshots, and scheduled backups.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use model::ProjectId;
use serde_json::json;

use crate::{
    admin::backup::{REPOSITORIES, create_test_data, refs_of},
    support::{Rng, TestInstance, WAIT_TIMEOUT, postgres_server},
};

/// Returns an instance with data whose server is stopped.
fn instance_with_data() -> TestInstance {
    let instance = TestInstance::new();
    let server = instance.start();
    create_test_data(&server);
    server.stop();
    instance
}

/// Returns the path of a file beside the data folder.
pub(crate) fn sibling_path(instance: &TestInstance, name: &str) -> String {
    let path = instance.data().parent().expect("a folder").join(name);
    path.into_os_string().into_string().expect("a readable path")
}

/// Returns every file below a folder with its content.
pub(crate) fn files_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).expect("inside").to_owned(), fs::read(&path).expect("read"));
            }
        }
    }
    found
}

#[test]
fn a_truncated_or_modified_file_is_refused_and_nothing_changes() {
    let instance = instance_with_data();
    let file = sibling_path(&instance, "backup.tar");
    instance.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let whole = fs::read(&file).expect("read");
    let broken = sibling_path(&instance, "broken.tar");
    let other = TestInstance::embedded();
    let mut rng = Rng(4711);
    let random_offset = |rng: &mut Rng| usize::try_from(rng.next_u64()).expect("a number") % whole.len();
    let mut attempts: Vec<(String, Vec<u8>)> = Vec::new();
    for end in [0, 1, 511, 512, 513, whole.len() - 1, whole.len() - 512, whole.len() - 1024, whole.len() - 1025] {
        attempts.push((format!("cut at {end}"), whole[..end].to_vec()));
    }
    for _ in 0..15 {
        let end = random_offset(&mut rng);
        attempts.push((format!("cut at {end}"), whole[..end].to_vec()));
        let offset = random_offset(&mut rng);
        let mut changed = whole.clone();
        changed[offset] ^= 1 << (rng.next_u64() % 8);
        attempts.push((format!("changed at {offset}"), changed));
    }
    let mut longer = whole.clone();
    longer.push(0);
    attempts.push(("longer".into(), longer));
    for (what, bytes) in attempts {
        fs::write(&broken, bytes).expect("written");
        let refused = other.gable(&["restore", "--quiet", &broken]).finish().refused();
        assert!(refused.contains("nothing was changed"), "{what}: {refused}");
        assert!(!other.data().exists(), "{what}: something is left");
        let refused = other.gable(&["backup", "--quiet", "--verify", &broken]).finish().refused();
        assert!(refused.contains("nothing was changed"), "{what}: {refused}");
    }
    // A file that is not a backup at all.
    fs::write(&broken, "Dear sir or madam,\n".repeat(100)).expect("written");
    let refused = other.gable(&["restore", "--quiet", &broken]).finish().refused();
    assert_eq!(refused, "not a backup of gable; nothing was changed");
    other.gable(&["restore", "--quiet", &file]).finish().succeeded();
}

/// Made by version 0.1.0: a project with loose objects and loose refs, and a fork with packed refs and hard-linked packs.
const FORMAT_1: &[u8] = include_bytes!("old_backups/format-1.tar.gz");

#[test]
fn a_backup_with_refs_as_files_restores_and_is_converted() {
    let instance = TestInstance::new();
    let file = sibling_path(&instance, "backup.tar");
    std::io::copy(&mut GzDecoder::new(FORMAT_1), &mut fs::File::create(&file).expect("a file")).expect("written");
    let verified = instance.gable(&["backup", "--quiet", "--verify", &file]).finish().succeeded();
    assert!(verified.contains("is intact: 89 rows, 2 repositories"), "{verified}");
    instance.gable(&["restore", "--quiet", &file]).finish().succeeded();
    // Until the repositories are converted, a backup of them would be empty.
    let unconverted = instance.gable(&["backup", "--quiet", &sibling_path(&instance, "new.tar")]).finish();
    assert_eq!(unconverted.status, Some(1), "{}", unconverted.combined_output());
    let server = instance.start();
    let [rocket, fork] = REPOSITORIES.map(|path| refs_of(&server, path));
    for (refs, master) in
        [(rocket, "c57b693b822b9b45df1ffa3976e93b380fe4fe15"), (fork, "9928261ade4bdb6f04ab28d23071b6e25f694b62")]
    {
        assert!(refs.contains(&format!("refs/heads/master {master}\n")), "{refs}");
        for name in ["refs/heads/other/deep/branch ", "refs/tags/v1 "] {
            assert!(refs.contains(name), "{name} in {refs}");
        }
    }
    server.stop();
    // From then on backups have the new format.
    let folder = sibling_path(&instance, "backups");
    instance.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    let restored = TestInstance::new();
    restored.gable(&["restore", "--quiet", &folder]).finish().succeeded();
    let server = restored.start();
    assert!(refs_of(&server, REPOSITORIES[0]).contains("refs/tags/v1 "));
    server.stop();
}

#[test]
fn existing_files_are_not_overwritten() {
    let instance = instance_with_data();
    let file = sibling_path(&instance, "backup.tar");
    instance.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let refused = instance.gable(&["backup", "--quiet", &file]).finish().refused();
    assert_eq!(refused, format!("{file} already exists; choose another name, or add --force"));
    instance.gable(&["backup", "--quiet", "--force", &file]).finish().succeeded();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600, "it contains the keys of the instance");
    assert!(!Path::new(&format!("{file}.partial")).exists());

    let before = files_in(&instance.data());
    let refused = instance.gable(&["restore", "--quiet", &file]).finish().refused();
    assert!(refused.contains("is not empty; move it away"), "{refused}");
    assert_eq!(files_in(&instance.data()), before);
    let foreign = sibling_path(&instance, "foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(format!("{foreign}/letter"), "Dear").expect("written");
    let refused = instance.gable(&["backup", "--quiet", "--folder", &foreign]).finish().refused();
    assert_eq!(refused, format!("{foreign} contains other files; choose an empty folder"));
    let refused = instance.gable(&["backup", "--quiet"]).finish().refused();
    assert_eq!(refused, "specify exactly one destination: a file, - for standard output, or --folder DIR");
    let nowhere = sibling_path(&instance, "nowhere");
    let refused = instance.gable(&["backup", "--quiet", "--data", &nowhere, "x.tar"]).finish().refused();
    let expected = if postgres_server().is_some() {
        format!(
            "the database contains an instance, but the data folder {nowhere} does not; specify its folder with --data, or, if \
             its files are in a store, set `store`, `cache` and `instance-key-file` as its nodes do"
        )
    } else {
        format!(
            "no Gable instance in {nowhere}; create one with `gable serve --data {nowhere}`, or choose another folder with \
             --data"
        )
    };
    assert_eq!(refused, expected);
    assert!(!Path::new(&sibling_path(&instance, "x.tar.partial")).exists());
}

#[test]
fn an_interrupted_restore_is_detected_and_can_be_repeated() {
    let instance = instance_with_data();
    let file = sibling_path(&instance, "backup.tar");
    instance.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let other = TestInstance::new();
    fs::create_dir_all(other.data().join(".restoring/repositories")).expect("a folder");
    fs::create_dir_all(other.data().join("files/half")).expect("a folder");
    let refused = other.serve().finish();
    assert!(refused.stderr.contains("was interrupted; run it again"), "{}", refused.stderr);
    other.gable(&["restore", "--quiet", &file]).finish().succeeded();
    assert!(!other.data().join(".restoring").exists());
    assert!(!other.data().join("files/half").exists());
    other.start().stop();
}

#[test]
fn a_folder_stores_only_new_content_and_keeps_the_configured_number() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    let backup =
        |more: &[&str]| instance.gable(&["backup", "--quiet", "--folder", &folder]).args(more).finish().succeeded();
    backup(&[]);
    let first = files_in(Path::new(&folder));
    let output = backup(&[]);
    let second = files_in(Path::new(&folder));
    let added = |now: &BTreeMap<PathBuf, Vec<u8>>, then: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> {
        now.keys().filter(|path| !then.contains_key(*path)).cloned().collect()
    };
    let only = added(&second, &first);
    assert_eq!(only.len(), 1, "only a manifest: {only:?}");
    assert!(output.contains(", of which 0 B are new"), "{output}");
    assert!(first.iter().all(|(path, content)| second.get(path) == Some(content)), "earlier backups are unchanged");

    let server = instance.start();
    server.root().post("/api/v3/projects/1/issues", &json!({ "title": "Meanwhile" }));
    let file = json!({ "file_path": "new", "branch_name": "side", "content": "new", "commit_message": "New" });
    server.root().post("/api/v3/projects/1/repository/branches", &json!({ "branch_name": "side", "ref": "master" }));
    assert_eq!(server.root().post("/api/v3/projects/1/repository/files", &file).status, 201);
    server.stop();
    backup(&[]);
    let third = files_in(Path::new(&folder));
    assert!(added(&third, &second).len() > 3, "a pack with its indexes, and rows");
    let listed = instance.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();

    // The second backup is from before the issue, the newest from after it.
    let name = listed.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a name");
    for (snapshot, issues) in [(Some(name), 2), (None, 3)] {
        let other = TestInstance::new();
        let chosen: Vec<&str> = snapshot.iter().flat_map(|name| ["--snapshot", name]).collect();
        other.gable(&["restore", "--quiet", &folder]).args(&chosen).finish().succeeded();
        let server = other.start();
        let shown = server.root().get("/api/v3/projects/1/issues").json();
        assert_eq!(shown.as_array().map(Vec::len), Some(issues), "{shown}");
        server.stop();
    }

    let output = backup(&["--keep", "1"]);
    assert!(output.ends_with("removed 3 old backups\n"), "{output}");
    let listed = instance.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert_eq!(listed.lines().count(), 1, "{listed}");
    instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
    let fourth = files_in(Path::new(&folder));
    assert!(fourth.len() < third.len(), "content of removed backups is removed");

    // Damage is found and reported.
    let blob = fourth.keys().filter(|path| path.starts_with("blobs")).max_by_key(|path| fourth[*path].len());
    let blob = Path::new(&folder).join(blob.expect("content"));
    let mut content = fs::read(&blob).expect("read");
    content[0] ^= 1;
    fs::write(&blob, content).expect("written");
    let refused = instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().refused();
    assert!(refused.contains("the backup is damaged"), "{refused}");
    let other = TestInstance::new();
    let refused = other.gable(&["restore", "--quiet", &folder]).finish().refused();
    assert!(refused.contains("the backup is damaged"), "{refused}");
    assert!(!other.data().exists(), "something is left");
}

#[test]
fn an_interrupted_backup_in_a_folder_does_not_affect_the_next_one() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    let backup = || instance.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    backup();
    // As after a power cut: content whose name is not its checksum, in no manifest.
    let stray = Path::new(&folder).join(format!("blobs/ab/ab{}", "0".repeat(62)));
    fs::create_dir_all(stray.parent().expect("a folder")).expect("made");
    fs::write(&stray, "half").expect("written");
    fs::write(Path::new(&folder).join("unfinished"), "").expect("written");
    backup();
    assert!(!stray.exists());
    assert!(!Path::new(&folder).join("unfinished").exists());
    instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
}

#[test]
fn a_backup_streams_into_a_restore_and_both_report_progress() {
    let instance = instance_with_data();
    let other = TestInstance::new();
    let gable = env!("CARGO_BIN_EXE_gable");
    let pipe = "\"$0\" backup - | \"$0\" restore --data \"$1\" -";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", pipe, gable]).arg(other.data()).env("GABLE_DATA", instance.data());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
        command.env_remove(name);
    }
    command.env("GABLE_DATA", instance.data());
    if instance.database_url().is_some() {
        // Both commands would use the same database.
        return;
    }
    let finished = command.output().expect("a shell");
    let output = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.success(), "{output}");
    for stage in [
        "rows of the database: ",
        "packs: ",
        "repositories: 2 of 2, ",
        "files and traces: 3 of 3, ",
        "unpacked and verified: ",
    ] {
        assert!(output.contains(stage), "{stage} in {output}");
    }
    assert!(!output.contains('\r') && !output.contains('\u{1b}'), "plain lines where there is no terminal: {output}");
    other.start().stop();
}

#[test]
fn a_server_backs_itself_up_and_removes_old_ones() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    for _ in 0..2 {
        instance.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    }
    // Their names say that they are older than the interval.
    for (nth, entry) in fs::read_dir(format!("{folder}/snapshots")).expect("a folder").enumerate() {
        let path = entry.expect("an entry").path();
        fs::rename(&path, path.with_file_name(format!("2020-01-0{}T00-00-00.000Z.manifest", nth + 1)))
            .expect("renamed");
    }
    let settings =
        [("GABLE_BACKUP_FOLDER", folder.as_str()), ("GABLE_BACKUP_EVERY_HOURS", "1"), ("GABLE_BACKUP_KEEP", "2")];
    let gable = settings.iter().fold(instance.serve(), |gable, (name, value)| gable.env(name, value));
    let server = gable.with_root_credentials().start();
    let start = Instant::now();
    while !server.stderr().contains("made a backup") {
        assert!(start.elapsed() < WAIT_TIMEOUT, "no backup: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    let shown = server.anonymous().get("/-/metrics").text;
    assert!(shown.contains("gable_backup_last_success_seconds 1"), "{shown}");
    let listed = instance.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.starts_with("2020-01-02"), "the oldest is gone: {listed}");
    server.stop();
    instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
}

#[test]
fn a_missing_backup_disk_is_not_replaced_by_its_mount_point() {
    let instance = instance_with_data();
    let (folder, aside) = (sibling_path(&instance, "backups"), sibling_path(&instance, "aside"));
    let serve_until_logged = |text: &str| {
        let server = instance.serve().env("GABLE_BACKUP_FOLDER", &folder).with_root_credentials().start();
        let start = Instant::now();
        while !server.stderr().contains(text) {
            assert!(start.elapsed() < WAIT_TIMEOUT, "not logged: {}", server.stderr());
            thread::sleep(Duration::from_millis(20));
        }
        server.stop();
    };
    serve_until_logged("made a backup");
    fs::rename(&folder, &aside).expect("moved");
    serve_until_logged("contained backups before and does not now; mount its disk");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "nothing is written to the wrong disk");
    fs::remove_file(instance.data().join("backup-folder")).expect("a note");
    serve_until_logged("made a backup");
    assert_eq!(snapshot_names(&folder).len(), 1);
}

#[test]
fn a_failed_scheduled_backup_does_not_affect_the_server() {
    let instance = instance_with_data();
    let foreign = sibling_path(&instance, "foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(format!("{foreign}/letter"), "Dear").expect("written");
    let server = instance.serve().env("GABLE_BACKUP_FOLDER", &foreign).with_root_credentials().start();
    let start = Instant::now();
    while !server.stderr().contains("backup failed") {
        assert!(start.elapsed() < WAIT_TIMEOUT, "not logged: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.root().get("/api/v3/projects/1").status, 200);
    assert!(server.anonymous().get("/-/metrics").text.contains("gable_backup_failures_total 1"));
    assert_eq!(server.stop().status, Some(0));
    assert_eq!(fs::read_dir(&foreign).expect("a folder").count(), 1, "left alone");
}

/// Returns the names of the backups in a folder, oldest first.
pub(crate) fn snapshot_names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("{folder}/snapshots")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a readable name"));
    let mut names: Vec<String> = names.map(|name| name.replace(".manifest", "")).collect();
    names.sort_unstable();
    names
}

fn rename_backup(folder: &str, from: &str, to: &str) {
    let path = |name: &str| format!("{folder}/snapshots/{name}.manifest");
    fs::rename(path(from), path(to)).expect("renamed");
}

/// Changes the last byte of a file.
fn damage(path: &Path) {
    let mut content = fs::read(path).expect("read");
    if let Some(last) = content.last_mut() {
        *last ^= 1;
    }
    fs::write(path, content).expect("written");
}

#[test]
fn backups_dated_in_the_future_are_ignored() {
    const AHEAD: &str = "2099-01-01T00-00-00.000Z";
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    let backup = |more: &[&str]| instance.gable(&["backup", "--quiet", "--folder", &folder]).args(more).finish();
    backup(&[]).succeeded();
    rename_backup(&folder, &snapshot_names(&folder)[0], AHEAD);
    let made = backup(&["--keep", "1"]);
    assert!(made.stderr.contains(&format!("backups dated in the future ({AHEAD}) are ignored")), "{}", made.stderr);
    assert!(made.stdout.ends_with("removed 0 old backups\n"), "{}", made.combined_output());
    let names = snapshot_names(&folder);
    assert_eq!((names.len(), names[1].as_str()), (2, AHEAD), "the new backup is there: {names:?}");
    backup(&["--keep", "1"]).succeeded();
    let later = snapshot_names(&folder);
    assert_eq!((later.len(), later[1].as_str()), (2, AHEAD), "{later:?}");
    assert!(later[0] > names[0], "the older one is gone: {later:?}");

    let listed = instance.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    let marked: Vec<bool> = listed.lines().map(|line| line.ends_with("; dated in the future")).collect();
    assert_eq!(marked, [false, true], "{listed}");
    let other = TestInstance::new();
    let restored = other.gable(&["restore", "--quiet", &folder]).finish();
    assert!(restored.stderr.contains(&format!("using {}; choose another with --snapshot", later[0])));
    let output = restored.succeeded();
    assert!(output.contains(&format!("the backup of {}", later[0].split_once('T').expect("a time").0)), "{output}");

    // A scheduled backup does not wait for it, nor fail because of an unreadable manifest.
    rename_backup(&folder, &later[0], "2020-01-02T00-00-00.000Z");
    fs::write(format!("{folder}/snapshots/2020-01-01T00-00-00.000Z.manifest"), "nothing\n").expect("written");
    let settings = [("GABLE_BACKUP_FOLDER", folder.as_str()), ("GABLE_BACKUP_KEEP", "1")];
    let gable = settings.iter().fold(instance.serve(), |gable, (name, value)| gable.env(name, value));
    let server = gable.with_root_credentials().start();
    let start = Instant::now();
    while !server.stderr().contains("made a backup") {
        assert!(start.elapsed() < WAIT_TIMEOUT, "no backup: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    let shown = server.anonymous().get("/-/metrics").text;
    assert!(shown.contains("gable_backup_last_success_seconds 1"), "{shown}");
    assert!(!shown.contains("gable_backup_failures_total 1"), "{shown}");
    let output = server.stop().stderr;
    assert!(output.contains("are ignored and not removed"), "{output}");
    assert!(output.contains("cannot read the backup 2020-01-01T00-00-00.000Z"), "{output}");
    assert_eq!(output.matches("made a backup").count(), 1, "{output}");
    let names = snapshot_names(&folder);
    assert_eq!((names.len(), names[0].as_str()), (3, "2020-01-01T00-00-00.000Z"), "{names:?}");
    assert_eq!(names[2], AHEAD, "{names:?}");
}

#[test]
fn damage_is_not_carried_over_to_the_next_backup() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    let backup = || instance.gable(&["backup", "--quiet", "--folder", &folder]).finish();
    let verify =
        |more: &[&str]| instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).args(more).finish();
    // Files written just before a backup are read again by the next one.
    thread::sleep(Duration::from_secs(7));
    backup().succeeded();
    let first = snapshot_names(&folder).remove(0);
    let whole = files_in(&Path::new(&folder).join("blobs"));
    let blobs: Vec<PathBuf> = whole.keys().map(|path| Path::new(&folder).join("blobs").join(path)).collect();
    for blob in &blobs {
        damage(blob);
    }
    // Content that is read anyway is compared and stored again.
    let made = backup();
    assert!(made.stderr.contains("damaged files of earlier backups"), "{}", made.combined_output());
    made.succeeded();
    let left = files_in(&Path::new(&folder).join("blobs"));
    let repaired = whole.iter().filter(|(path, content)| left.get(*path) == Some(content)).count();
    assert!(repaired > 3 && repaired < whole.len(), "{repaired} of {}", whole.len());
    // Verification finds the rest and moves it away.
    let refused = verify(&[]).refused();
    assert!(refused.starts_with("the backup is damaged ("), "{refused}");
    assert!(refused.contains("/damaged, and the next backup stores them again if they still exist"), "{refused}");
    assert!(!refused.contains("nothing was changed"), "{refused}");
    assert!(fs::read_dir(format!("{folder}/damaged")).expect("a folder").count() > 0);
    assert!(verify(&[]).refused().contains("; the next backup stores them again"), "they are missing now");
    backup().succeeded();
    verify(&[]).succeeded();
    verify(&["--snapshot", &first]).succeeded();
    assert_eq!(whole.len(), blobs.iter().filter(|blob| blob.exists()).count());
}

#[test]
fn an_unreadable_manifest_stops_neither_the_next_backup_nor_the_cleanup() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    let backup = |more: &[&str]| instance.gable(&["backup", "--quiet", "--folder", &folder]).args(more).finish();
    let verify = || instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
    backup(&[]).succeeded();
    let bad = snapshot_names(&folder).remove(0);
    let list = PathBuf::from(format!("{folder}/snapshots/{bad}.manifest"));
    damage(&list);
    // As after a power cut: content of the right size with a wrong checksum, and an incomplete manifest.
    for path in files_in(&Path::new(&folder).join("blobs")).keys() {
        damage(&Path::new(&folder).join("blobs").join(path));
    }
    let unfinished = Path::new(&folder).join("unfinished");
    fs::write(&unfinished, "").expect("written");
    fs::write(format!("{folder}/snapshots/2020-01-01T00-00-00.000Z.partial"), "half").expect("written");
    let made = backup(&[]);
    let reason = format!("because {} cannot be read", list.display());
    assert!(made.stderr.contains(&reason), "{}", made.combined_output());
    made.succeeded();
    verify();
    assert_eq!(snapshot_names(&folder).len(), 2, "an incomplete manifest is no backup and is removed");
    backup(&[]).succeeded();

    let stray = Path::new(&folder).join(format!("blobs/ab/ab{}", "0".repeat(62)));
    fs::create_dir_all(stray.parent().expect("a folder")).expect("made");
    fs::write(&stray, "half").expect("written");
    let cleaned = backup(&["--keep", "2"]);
    assert!(cleaned.stdout.ends_with("removed 1 old backups\n"), "{}", cleaned.combined_output());
    assert!(cleaned.stderr.contains(&format!("cannot read the backup {bad}")), "{}", cleaned.stderr);
    assert_eq!(cleaned.stderr.matches(&reason).count(), 1, "{}", cleaned.stderr);
    assert!(!cleaned.combined_output().contains("nothing was changed"), "{}", cleaned.combined_output());
    let names = snapshot_names(&folder);
    assert_eq!((names.len(), &names[0]), (3, &bad), "an unreadable backup stays and does not count: {names:?}");
    assert!(stray.exists(), "the manifest may refer to it");
    verify();
    // Once it is removed, so is content that only it may refer to.
    fs::remove_file(&list).expect("removed");
    let made = backup(&[]);
    assert_eq!(made.stderr, "");
    made.succeeded();
    assert!(!stray.exists() && !unfinished.exists());
    verify();
}

#[test]
fn flags_that_belong_to_a_folder_are_refused_beside_a_file() {
    let instance = instance_with_data();
    let file = sibling_path(&instance, "backup.tar");
    let refused = instance.gable(&["backup", "--quiet", "--keep", "3", &file]).finish();
    assert_eq!(refused.status, Some(2), "{}", refused.combined_output());
    assert!(refused.stderr.contains("cannot be used with"), "{}", refused.stderr);
    assert!(!Path::new(&file).exists());
}

#[test]
fn an_incomplete_backup_fails_and_removes_no_older_one() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    instance.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    // As if their disk were not mounted.
    let (packs, aside) = (instance.data().join("files/packs"), instance.data().join("aside"));
    fs::rename(&packs, &aside).expect("moved");
    let upload = instance.data().join(format!("files/uploads/{}/1", instance.storage_of(ProjectId::new(1))));
    let content = fs::read(&upload).expect("read");
    fs::remove_file(&upload).expect("removed");
    let output = instance.gable(&["backup", "--quiet", "--folder", &folder, "--keep", "1"]).finish();
    assert_eq!(output.status, Some(1), "{}", output.combined_output());
    let words = output.combined_output();
    // Each pack has an index; a reverse index is optional.
    let with_files = "SELECT count(*) FROM packs WHERE id NOT IN (SELECT pack_id FROM pack_contents)";
    let count = 2 * instance.count(with_files) + 1;
    assert!(words.contains(&format!("{count} files were missing, such as files/packs/")), "{words}");
    assert!(words.contains(" (projects 1, 2) (is every disk mounted?)"), "{words}");
    assert_eq!(snapshot_names(&folder).len(), 2, "the older backup is kept");
    let listed = instance.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert!(listed.lines().nth(1).is_some_and(|line| line.ends_with(&format!("; {count} missing"))), "{listed}");
    let file = sibling_path(&instance, "backup.tar");
    let output = instance.gable(&["backup", "--quiet", &file]).finish();
    assert!(
        output.status == Some(1) && output.combined_output().contains("is every disk mounted?"),
        "{}",
        output.combined_output()
    );

    fs::rename(&aside, &packs).expect("moved");
    fs::write(&upload, content).expect("written");
    instance.gable(&["backup", "--quiet", "--folder", &folder, "--keep", "1"]).finish().succeeded();
    assert_eq!(snapshot_names(&folder).len(), 1);
}

#[test]
fn a_reused_id_is_another_file() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    instance.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    // As after a restore of an older backup: the same id and size, but a later creation time.
    let other = "What People have uploaded";
    let path = format!("files/uploads/{}/1", instance.storage_of(ProjectId::new(1)));
    fs::write(instance.data().join(&path), other).expect("written");
    instance.execute("UPDATE uploads SET created_at = created_at + 3600000000 WHERE id = 1");
    instance.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    let restored = TestInstance::new();
    restored.gable(&["restore", "--quiet", &folder]).finish().succeeded();
    assert_eq!(fs::read_to_string(restored.data().join(&path)).expect("read"), other);
}

#[test]
fn a_folder_contains_backups_of_one_instance_only() {
    let (one, other) = (instance_with_data(), instance_with_data());
    let folder = sibling_path(&one, "backups");
    one.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    let output = other.gable(&["backup", "--quiet", "--folder", &folder]).finish();
    let expected = format!("{folder} contains backups of another instance; choose another folder");
    assert!(output.status == Some(1) && output.combined_output().contains(&expected), "{}", output.combined_output());
    assert_eq!(snapshot_names(&folder).len(), 1);
    // A restored copy has the same key.
    let restored = TestInstance::new();
    restored.gable(&["restore", "--quiet", &folder]).finish().succeeded();
    restored.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
}
