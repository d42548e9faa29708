//! Backups of an instance with damaged files: they fail and never replace a good backup.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use model::ProjectId;
use testkit::repository::git;

use crate::{
    admin::backup::{REPOSITORIES, create_test_data, refs_of},
    admin::backup_formats::{files_in, sibling_path, snapshot_names},
    support::{ProcessOutput, TestInstance, WAIT_TIMEOUT},
};

/// A kind of damage to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Truncated,
    Flipped,
    Zeros,
    Missing,
    /// Replaced by another file of the same kind.
    Other,
    /// Replaced by a folder, which not even root can read as a file.
    Folder,
    Grown,
}

use Damage::{Flipped, Folder, Grown, Missing, Other, Truncated, Zeros};

const PROJECT: ProjectId = ProjectId::new(1);
const ALL: [Damage; 7] = [Truncated, Flipped, Zeros, Missing, Other, Folder, Grown];

/// A file that is damaged and repaired again.
struct DamagedFile {
    path: PathBuf,
    whole: Vec<u8>,
    other: Vec<u8>,
}

impl DamagedFile {
    fn new(path: PathBuf, other: Vec<u8>) -> Self {
        let whole = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(whole.len() > 1 && whole != other, "{}", path.display());
        Self { path, whole, other }
    }

    fn damage_with(&self, damage: Damage) {
        let mut content = self.whole.clone();
        match damage {
            Truncated => content.truncate(content.len() / 2),
            Flipped => content[0] ^= 1,
            Zeros => content.fill(0),
            Other => content.clone_from(&self.other),
            Grown => content.extend([0; 8]),
            Missing => return fs::remove_file(&self.path).expect("removed"),
            Folder => {
                fs::remove_file(&self.path).expect("removed");
                return fs::create_dir(&self.path).expect("made");
            }
        }
        write(&self.path, &content);
    }

    fn repair(&self) {
        if self.path.is_dir() {
            fs::remove_dir(&self.path).expect("removed");
        }
        write(&self.path, &self.whole);
    }
}

/// Replaces a file; packs are read-only even for their owner.
fn write(path: &Path, content: &[u8]) {
    if path.exists() {
        fs::remove_file(path).expect("removed");
    }
    fs::write(path, content).expect("written");
}

/// Returns an instance with data whose server is stopped.
fn instance_with_data() -> TestInstance {
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--ssh-listen", "127.0.0.1:0"]).with_root_credentials().start();
    create_test_data(&server);
    server.stop();
    instance
}

fn backup(instance: &TestInstance) -> ProcessOutput {
    let folder = sibling_path(instance, "backups");
    instance.gable(&["backup", "--quiet", "--folder", &folder, "--keep", "1"]).finish()
}

/// Damages each file in each of these ways, and checks that the backup fails, reports the file and removes no older one.
fn assert_damage_is_found(instance: &TestInstance, damaged_files: &[(&DamagedFile, &[Damage])]) {
    let folder = sibling_path(instance, "backups");
    backup(instance).succeeded();
    let good = snapshot_names(&folder).remove(0);
    for (damaged, damages) in damaged_files {
        let name = damaged.path.file_name().expect("a name").to_str().expect("a readable name");
        for damage in *damages {
            damaged.damage_with(*damage);
            let output = backup(instance);
            let what = format!("{name}, {damage:?}: {}", output.combined_output());
            damaged.repair();
            assert_eq!(output.status, Some(1), "{what}");
            let names = [Some(name), name.ends_with(".sqlite3").then_some("the database")];
            assert!(names.into_iter().flatten().any(|name| output.stderr.contains(name)), "{what}");
            // Damage that prevents a start is reported before anything is copied.
            let remedy = if matches!(name, "instance-key" | "gable.sqlite3") { "restore" } else { "gable doctor" };
            assert!(["gable doctor", remedy].iter().any(|remedy| output.stderr.contains(remedy)), "{what}");
            let names = snapshot_names(&folder);
            assert_eq!(names[0], good, "the good backup is gone: {what}");
            if names.len() > 1 {
                let verify = ["backup", "--quiet", "--folder", &folder, "--verify"];
                let refused = instance.gable(&verify).finish().refused();
                assert!(refused.contains("is intact, but when it was made"), "{what}\n{refused}");
                fs::remove_file(format!("{folder}/snapshots/{}.manifest", names[1])).expect("removed");
            }
        }
    }
    // After the repair, a backup succeeds and older ones are removed.
    backup(instance).succeeded();
    let names = snapshot_names(&folder);
    assert!(names.len() == 1 && names[0] != good, "{names:?}");
    instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
    let restored = TestInstance::new();
    restored.gable(&["restore", "--quiet", &folder]).finish().succeeded();
    assert_repositories_are_intact(&restored);
}

fn assert_repositories_are_intact(instance: &TestInstance) {
    let server = instance.start();
    for path in REPOSITORIES {
        assert!(refs_of(&server, path).contains("refs/heads/master"), "{path}");
    }
    server.stop();
}

/// Returns a file of a pack of the instance.
fn file_of_pack(instance: &TestInstance, extension: &str) -> PathBuf {
    let folder = instance.data().join("files/packs");
    let found = files_in(&folder).into_keys().find(|path| path.extension().is_some_and(|found| found == extension));
    folder.join(found.unwrap_or_else(|| panic!("no pack with a file .{extension}")))
}

#[test]
fn damage_to_any_file_of_a_pack_makes_a_backup_fail_and_keeps_the_older_ones() {
    let instance = instance_with_data();
    let elsewhere = tempfile::tempdir().expect("a folder");
    git(elsewhere.path(), &["init", "-q", "-b", "master"], b"");
    git(elsewhere.path(), &["commit", "-q", "--allow-empty", "-m", "x"], b"");
    git(elsewhere.path(), &["-c", "pack.writeReverseIndex=true", "repack", "-a", "-q"], b"");
    let other = |extension: &str| {
        let mut files = files_in(&elsewhere.path().join(".git/objects/pack")).into_iter();
        let found = files.find(|(path, _)| path.extension().is_some_and(|found| found == extension));
        found.unwrap_or_else(|| panic!("no .{extension}")).1
    };
    let file = |extension: &str| DamagedFile::new(file_of_pack(&instance, extension), other(extension));
    let (pack, index, reverse_index) = (file("pack"), file("idx"), file("rev"));
    // Git works without a reverse index, so its absence is not damage.
    let changes = [Truncated, Flipped, Zeros, Other, Grown];
    assert_damage_is_found(&instance, &[(&pack, &ALL), (&index, &ALL), (&reverse_index, &changes)]);
}

#[test]
fn folders_of_repositories_are_caches_that_a_backup_does_not_need() {
    let instance = instance_with_data();
    fs::remove_dir_all(instance.data().join("repositories")).expect("removed");
    backup(&instance).succeeded();
    let restored = TestInstance::new();
    restored.gable(&["restore", "--quiet", &sibling_path(&instance, "backups")]).finish().succeeded();
    assert!(!restored.data().join("repositories").exists());
    assert_repositories_are_intact(&restored);
}

#[test]
fn lost_objects_refs_and_packs_of_a_repository_are_found_and_its_projects_are_named() {
    let instance = instance_with_data();
    backup(&instance).succeeded();
    instance.save_database();
    let of_project = "repository_id IN (SELECT id FROM repositories WHERE project_id = 1)";
    let damages = [
        (
            format!("DELETE FROM refs WHERE name = 'refs/heads/master' AND {of_project}"),
            "refs/heads/master (project 1): the default branch is missing",
        ),
        (format!("UPDATE repository_packs SET dead_since = 1 WHERE {of_project}"), "repository (project 1): "),
        (format!("DELETE FROM repository_packs WHERE {of_project}"), "repository (project 1): "),
        // The fork has the same packs.
        ("UPDATE packs SET bytes = 7".to_owned(), " (projects 1, 2): has "),
        (
            "UPDATE pack_contents SET pack_data = index_data".to_owned(),
            " (in the database) (projects 1, 2): the file signature is invalid",
        ),
        (
            "DELETE FROM repositories WHERE project_id = 1".to_owned(),
            "repository (project 1): the database has no refs",
        ),
    ];
    for (sql, expected) in damages {
        instance.execute(&sql);
        let output = backup(&instance);
        let what = format!("{sql}: {}", output.combined_output());
        assert_eq!(output.status, Some(1), "{what}");
        assert!(output.stderr.contains(expected), "{what}");
        assert!(output.stderr.contains("no older backup was removed"), "{what}");
        instance.restore_database();
        instance.save_database();
    }
    backup(&instance).succeeded();
}

#[test]
fn a_replaced_pack_that_was_removed_during_the_backup_is_left_out() {
    let instance = instance_with_data();
    // As if the pack had been removed between the snapshot of the database and the copy.
    let checksum = "12".repeat(20);
    instance.execute(&format!(
        "INSERT INTO packs (id, file_key, checksum, bytes, objects, created_at) VALUES \
         (1000, 'packs/12/{checksum}-0123456789abcdef', '{checksum}', 100, 1, 1); \
         INSERT INTO repository_packs (repository_id, pack_id, dead_since) VALUES (1, 1000, 1)"
    ));
    let file = sibling_path(&instance, "backup.tar");
    let output = instance.gable(&["backup", &file]).finish();
    assert!(
        output.stderr.contains(&format!("removed during the backup: files/packs/12/{checksum}-")),
        "{}",
        output.stderr
    );
    output.succeeded();
    let restored = TestInstance::new();
    restored.gable(&["restore", "--quiet", &file]).finish().succeeded();
    assert_eq!(restored.count("SELECT count(*) FROM repository_packs WHERE pack_id = 1000"), 0);
    assert_repositories_are_intact(&restored);
    // A live one must exist.
    instance.execute("UPDATE repository_packs SET dead_since = NULL WHERE pack_id = 1000");
    let failed = instance.gable(&["backup", "--quiet", "--force", &file]).finish();
    assert_eq!(failed.status, Some(1), "{}", failed.combined_output());
    let text = failed.stderr;
    assert!(text.contains(&format!("files were missing, such as files/packs/12/{checksum}-")), "{text}");
    assert!(text.contains(" (project 1)"), "{text}");
}

#[test]
fn damage_to_uploads_artifacts_traces_keys_or_the_database_makes_a_backup_fail_and_keeps_the_older_ones() {
    let instance = instance_with_data();
    let other_home = instance_with_data();
    let read = |path: &str| fs::read(other_home.data().join(path)).expect("read");
    let upload = instance.data().join(format!("files/uploads/{}/1", instance.storage_of(PROJECT)));
    let upload = DamagedFile::new(upload, b"What people have Uploaded".to_vec());
    let artifact = instance.data().join(format!("files/artifacts/{}/1", instance.storage_of(PROJECT)));
    let artifact = DamagedFile::new(artifact, b"What a job has Made".to_vec());
    let trace_path = files_in(&instance.data().join("traces")).into_keys().next().expect("a trace");
    let trace = DamagedFile::new(instance.data().join("traces").join(trace_path), Vec::new());
    let key = DamagedFile::new(instance.data().join("instance-key"), read("instance-key"));
    let mut damaged_files: Vec<(&DamagedFile, &[Damage])> = vec![
        (&upload, &ALL),
        (&artifact, &ALL),
        // A trace may grow, and there is no checksum of its content.
        (&trace, &[Truncated, Missing, Folder]),
        (&key, &ALL),
    ];
    let (database, ssh);
    if instance.database_url().is_none() {
        // On PostgreSQL this key is in the database.
        ssh = DamagedFile::new(instance.data().join("ssh-host-key"), Vec::new());
        damaged_files.push((&ssh, &[Truncated, Flipped, Zeros, Folder]));
        database = DamagedFile::new(instance.data().join("gable.sqlite3"), Vec::new());
        damaged_files.push((&database, &[Truncated, Flipped, Zeros]));
    }
    assert_damage_is_found(&instance, &damaged_files);
}

#[test]
fn damaged_indexes_and_dangling_rows_of_the_database_are_found() {
    let instance = TestInstance::embedded();
    let server = instance.start();
    create_test_data(&server);
    server.stop();
    backup(&instance).succeeded();
    instance.execute("PRAGMA foreign_keys=OFF; DELETE FROM projects WHERE id = 1");
    let refused = backup(&instance).refused();
    assert!(
        refused.starts_with("the database is damaged (") && refused.contains("refers to a missing row of projects"),
        "{refused}"
    );
    assert!(refused.contains("no backup was made and none was removed; run `gable doctor` for details"), "{refused}");
    assert_eq!(snapshot_names(&sibling_path(&instance, "backups")).len(), 1);
}

#[test]
fn a_backup_to_a_file_and_its_restore_report_damage() {
    let instance = instance_with_data();
    DamagedFile::new(file_of_pack(&instance, "pack"), Vec::new()).damage_with(Truncated);
    let file = sibling_path(&instance, "backup.tar");
    let output = instance.gable(&["backup", "--quiet", &file]).finish();
    assert_eq!(output.status, Some(1), "{}", output.combined_output());
    assert!(output.stderr.contains("its content does not match the checksum at its end"), "{}", output.stderr);
    assert!(output.stderr.contains("(projects 1, 2): "), "{}", output.stderr);
    let refused = instance.gable(&["backup", "--quiet", "--verify", &file]).finish().refused();
    assert!(refused.contains("is intact, but when it was made"), "{refused}");
    // Everything else is restored.
    let restored = TestInstance::new();
    let output = restored.gable(&["restore", "--quiet", &file]).finish();
    assert!(output.stderr.contains("warning: damaged: files/packs/"), "{}", output.combined_output());
    output.succeeded();
    let upload = restored.data().join(format!("files/uploads/{}/1", instance.storage_of(PROJECT)));
    assert_eq!(fs::read_to_string(upload).expect("read"), "what people have uploaded");
}

#[test]
fn a_restore_does_not_use_an_incomplete_backup_by_default() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    backup(&instance).succeeded();
    let good = snapshot_names(&folder).remove(0);
    DamagedFile::new(file_of_pack(&instance, "pack"), Vec::new()).damage_with(Flipped);
    assert_eq!(backup(&instance).status, Some(1));
    let bad = snapshot_names(&folder).remove(1);
    let listed = instance.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert!(listed.lines().nth(1).is_some_and(|line| line.ends_with(" damaged")), "{listed}");
    let restored = TestInstance::new();
    let refused = restored.gable(&["restore", "--quiet", &folder]).finish().refused();
    assert!(refused.contains(&format!("use --snapshot {bad} to restore it anyway")), "{refused}");
    assert!(refused.contains(&format!("the newest complete backup is --snapshot {good}")), "{refused}");
    assert!(!restored.data().exists(), "nothing was changed");
    restored.gable(&["restore", "--quiet", "--snapshot", &good, &folder]).finish().succeeded();
    assert_repositories_are_intact(&restored);
}

#[test]
fn a_scheduled_backup_of_damaged_files_is_an_error_and_removes_nothing() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    backup(&instance).succeeded();
    let good = "2020-01-01T00-00-00.000Z";
    let path = |name: &str| format!("{folder}/snapshots/{name}.manifest");
    fs::rename(path(&snapshot_names(&folder)[0]), path(good)).expect("renamed");
    DamagedFile::new(file_of_pack(&instance, "pack"), Vec::new()).damage_with(Truncated);
    let settings = [("GABLE_BACKUP_FOLDER", folder.as_str()), ("GABLE_BACKUP_KEEP", "1")];
    let gable = settings.iter().fold(instance.serve(), |gable, (name, value)| gable.env(name, value));
    let server = gable.with_root_credentials().start();
    let start = Instant::now();
    while !server.stderr().contains("no older backup was removed") {
        assert!(start.elapsed() < WAIT_TIMEOUT, "not logged: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    let shown = server.anonymous().get("/-/metrics").text;
    assert!(shown.contains("gable_backup_failures_total 1"), "{shown}");
    assert!(!shown.contains("gable_backup_last_success_seconds 1"), "{shown}");
    let output = server.stop().stderr;
    assert!(output.contains("damaged file: files/packs/") && output.contains(".pack"), "{output}");
    let names = snapshot_names(&folder);
    assert_eq!((names.len(), names[0].as_str()), (2, good), "{names:?}");
}

#[test]
fn an_unverified_backup_of_an_older_version_is_not_relied_on() {
    let instance = instance_with_data();
    let folder = sibling_path(&instance, "backups");
    backup(&instance).succeeded();
    let name = snapshot_names(&folder).remove(0);
    let list = format!("{folder}/snapshots/{name}.manifest");
    let text = fs::read_to_string(&list).expect("read");
    // As an older version wrote it: with a damaged pack in the folder of a repository, and without verification.
    assert!(text.contains(",\"verified\":true,"), "{text}");
    let pack = file_of_pack(&instance, "pack");
    let key = pack.strip_prefix(instance.data()).expect("inside").to_str().expect("a readable path").to_owned();
    DamagedFile::new(pack, Vec::new()).damage_with(Truncated);
    assert_eq!(backup(&instance).status, Some(1));
    let bad = format!("{folder}/snapshots/{}.manifest", snapshot_names(&folder)[1]);
    let checksum = key.rsplit(['/', '-']).nth(1).expect("a checksum");
    let old_path = format!("repositories/12/34/1234.git/objects/pack/pack-{checksum}.pack");
    let text = fs::read_to_string(&bad).expect("read").replace(",\"verified\":true,", ",");
    let text = text.replace("{\"format\":2,", "{\"format\":1,").replace(&key, &old_path);
    let (body, _) = text.rsplit_once("sha256 ").expect("an end");
    let (lines, seal) = body.trim_end().rsplit_once('\n').expect("a seal");
    let mut seal: serde_json::Value = serde_json::from_str(seal).expect("a seal");
    seal.as_object_mut().expect("fields").remove("damaged");
    let body = format!("{lines}\n{seal}\n");
    let sum: String = {
        use sha2::Digest as _;
        sha2::Sha256::digest(&body).iter().fold(String::new(), |sum, byte| sum + &format!("{byte:02x}"))
    };
    fs::write(&bad, format!("{body}sha256 {sum}\n")).expect("written");
    // After this time the pack is not read again.
    thread::sleep(Duration::from_secs(7));
    let refused = instance.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().refused();
    assert!(refused.contains("was already damaged when the backup was made"), "{refused}");
    let output = backup(&instance);
    assert_eq!(output.status, Some(1), "{}", output.combined_output());
    assert!(snapshot_names(&folder).contains(&name), "the good backup is kept");
}
