//! Backups of an instance whose disk has damaged something: they say so, and never take the place of a good one.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use testkit::repository::{git, quiet_git};

use crate::{
    admin::backup::furnish,
    admin::backup_forms::{beside, files_in, names_in},
    admin::binary::{Finished, Home, PATIENCE},
};

/// What a disk, or somebody who copies files, does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Truncated,
    Flipped,
    Zeros,
    Missing,
    /// Another file of the same kind is in its place.
    Other,
    /// A folder is in its place, which cannot be read as a file, not even by root.
    Folder,
    Grown,
}

use Damage::{Flipped, Folder, Grown, Missing, Other, Truncated, Zeros};

const ALL: [Damage; 7] = [Truncated, Flipped, Zeros, Missing, Other, Folder, Grown];

/// A file that is damaged and put right again.
struct Victim {
    path: PathBuf,
    whole: Vec<u8>,
    other: Vec<u8>,
}

impl Victim {
    fn new(path: PathBuf, other: Vec<u8>) -> Self {
        let whole = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(whole.len() > 1 && whole != other, "{}", path.display());
        Self { path, whole, other }
    }

    fn suffer(&self, damage: Damage) {
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

    fn recover(&self) {
        if self.path.is_dir() {
            fs::remove_dir(&self.path).expect("removed");
        }
        write(&self.path, &self.whole);
    }
}

/// Git makes objects that nobody may write to; not even their owner.
fn write(path: &Path, content: &[u8]) {
    if path.exists() {
        fs::remove_file(path).expect("removed");
    }
    fs::write(path, content).expect("written");
}

/// A home with something of everything, whose server has stopped.
fn furnished() -> Home {
    let home = Home::new();
    let server = home.serve().args(&["--ssh-listen", "127.0.0.1:0"]).with_known_root().start();
    furnish(&server);
    server.stop();
    home
}

fn backup(home: &Home) -> Finished {
    let folder = beside(home, "backups");
    home.gable(&["backup", "--quiet", "--folder", &folder, "--keep", "1"]).finish()
}

/// Damages each file in each of these ways, and sees that each backup fails, names the file and removes no older one.
fn every_damage_is_found(home: &Home, victims: &[(&Victim, &[Damage])]) {
    let folder = beside(home, "backups");
    backup(home).succeeded();
    let good = names_in(&folder).remove(0);
    for (victim, damages) in victims {
        let name = victim.path.file_name().expect("a name").to_str().expect("a readable name");
        for damage in *damages {
            victim.suffer(*damage);
            let said = backup(home);
            let what = format!("{name}, {damage:?}: {}", said.words());
            victim.recover();
            assert_eq!(said.status, Some(1), "{what}");
            let mut above = victim.path.iter().filter_map(|part| part.to_str()).filter(|part| part.ends_with(".git"));
            let names = [Some(name), above.next(), name.ends_with(".sqlite3").then_some("the database")];
            assert!(names.into_iter().flatten().any(|name| said.stderr.contains(name)), "{what}");
            // What the instance cannot work without is refused before anything is copied.
            let remedy = if matches!(name, "instance-key" | "gable.sqlite3") { "restore" } else { "gable doctor" };
            assert!(["gable doctor", remedy].iter().any(|remedy| said.stderr.contains(remedy)), "{what}");
            let names = names_in(&folder);
            assert_eq!(names[0], good, "the good one is gone: {what}");
            if names.len() > 1 {
                let verify = ["backup", "--quiet", "--folder", &folder, "--verify"];
                let refused = home.gable(&verify).finish().refused();
                assert!(refused.contains("is what was written, but when it was made"), "{what}\n{refused}");
                fs::remove_file(format!("{folder}/snapshots/{}.manifest", names[1])).expect("removed");
            }
        }
    }
    // Once all is well again, so is the backup, and older ones may go.
    backup(home).succeeded();
    let names = names_in(&folder);
    assert!(names.len() == 1 && names[0] != good, "{names:?}");
    home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
    let restored = Home::new();
    restored.gable(&["restore", "--quiet", &folder]).finish().succeeded();
    for repository in repositories(&restored) {
        git(&repository, &["fsck", "--strict", "--full", "--no-dangling"], b"");
    }
}

/// All repositories to which something was written.
fn repositories(home: &Home) -> Vec<PathBuf> {
    let root = home.data().join("repositories");
    let found = files_in(&root).into_keys().filter(|path| path.ends_with("packed-refs") || path.ends_with("HEAD"));
    let mut found: Vec<PathBuf> = found.filter_map(|path| Some(root.join(path.parent()?))).collect();
    found.dedup();
    found.retain(|folder| {
        let refs = quiet_git(folder).arg("for-each-ref").output().expect("git runs");
        !refs.stdout.is_empty()
    });
    found
}

/// Puts one file of each kind that git knows into a repository, as housekeeping and pushes do.
fn make_every_kind(repository: &Path) -> Vec<PathBuf> {
    let run = |arguments: &[&str], input: &str| {
        let output = git(repository, arguments, input.as_bytes());
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    run(&["pack-refs", "--all"], "");
    let settings = ["-c", "pack.writeReverseIndex=true"];
    run(&[&settings[..], &["repack", "-a", "-d", "-q", "--write-midx", "--write-bitmap-index"]].concat(), "");
    run(&["commit-graph", "write", "--reachable", "--changed-paths", "--split"], "");
    let blob = run(&["hash-object", "-w", "--stdin"], &format!("of {}", repository.display()));
    let tree = run(&["mktree"], &format!("100644 blob {blob}\tfile\n"));
    let commit = run(&["commit-tree", "-m", "loose", &tree], "");
    run(&["update-ref", "refs/heads/loose", &commit], "");
    let loose = |id: &str| repository.join("objects").join(&id[..2]).join(&id[2..]);
    vec![loose(&blob), loose(&tree), loose(&commit)]
}

/// The file of a repository whose name begins and ends like this.
fn file_of(repository: &Path, start: &str, end: &str) -> PathBuf {
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(start) && name.ends_with(end)
    };
    let found = files_in(repository).into_keys().find(fits);
    repository.join(found.unwrap_or_else(|| panic!("no {start}*{end} in {}", repository.display())))
}

#[test]
fn damage_to_any_file_of_a_repository_makes_a_backup_fail_and_keeps_the_older_ones() {
    let home = furnished();
    let repository = repositories(&home).remove(0);
    let loose = make_every_kind(&repository);
    let elsewhere = tempfile::tempdir().expect("a folder");
    git(elsewhere.path(), &["init", "-q", "--bare", "-b", "master"], b"");
    let tree = git(elsewhere.path(), &["mktree"], b"").stdout;
    let tree = String::from_utf8(tree).expect("text");
    let commit = git(elsewhere.path(), &["commit-tree", "-m", "x", tree.trim()], b"").stdout;
    let commit = String::from_utf8(commit).expect("text");
    git(elsewhere.path(), &["update-ref", "refs/heads/master", commit.trim()], b"");
    let other_loose = make_every_kind(elsewhere.path());

    let mut victims = Vec::new();
    let kinds = [
        ("pack-", ".pack"),
        ("pack-", ".idx"),
        ("pack-", ".rev"),
        ("multi-pack-index-", ".bitmap"),
        ("multi-pack-index", "index"),
        ("graph-", ".graph"),
        ("commit-graph-", "chain"),
    ];
    for (start, end) in kinds {
        let other = fs::read(file_of(elsewhere.path(), start, end)).expect("read");
        let victim = Victim::new(file_of(&repository, start, end), other);
        // Git does without what only makes it quicker, so its absence is no loss.
        let is_derived = start.starts_with("multi") || matches!(end, ".rev" | "chain");
        let damages: Vec<Damage> =
            ALL.into_iter().filter(|damage| !is_derived || !matches!(damage, Missing | Folder)).collect();
        victims.push((victim, damages));
    }
    for (path, other) in loose.iter().zip(&other_loose) {
        victims.push((Victim::new(path.clone(), fs::read(other).expect("read")), ALL.to_vec()));
    }
    // What else a name of a branch could be, nobody can tell; so neither of these two is replaced by something sound.
    let of_refs = [Truncated, Flipped, Zeros, Folder, Grown];
    victims.push((Victim::new(repository.join("refs/heads/loose"), Vec::new()), of_refs[..3].to_vec()));
    victims.push((Victim::new(repository.join("HEAD"), Vec::new()), [&of_refs[..], &[Missing]].concat()));
    let foreign = fs::read(elsewhere.path().join("packed-refs")).expect("read");
    victims.push((
        Victim::new(repository.join("packed-refs"), foreign),
        [Truncated, Zeros, Missing, Other, Folder, Grown].to_vec(),
    ));
    victims.push((
        Victim::new(repository.join("config"), Vec::new()),
        [Truncated, Flipped, Zeros, Missing, Folder].to_vec(),
    ));
    let victims: Vec<(&Victim, &[Damage])> =
        victims.iter().map(|(victim, damages)| (victim, damages.as_slice())).collect();
    every_damage_is_found(&home, &victims);
}

#[test]
fn damage_to_uploads_artifacts_traces_keys_or_the_database_makes_a_backup_fail_and_keeps_the_older_ones() {
    let home = furnished();
    let other_home = furnished();
    let read = |path: &str| fs::read(other_home.data().join(path)).expect("read");
    let upload = home.data().join(format!("files/uploads/{}/1", home.storage_of(1)));
    let upload = Victim::new(upload, b"What people have Uploaded".to_vec());
    let artifact = home.data().join(format!("files/artifacts/{}/1", home.storage_of(1)));
    let artifact = Victim::new(artifact, b"What a job has Made".to_vec());
    let trace_path = files_in(&home.data().join("traces")).into_keys().next().expect("a trace");
    let trace = Victim::new(home.data().join("traces").join(trace_path), Vec::new());
    let key = Victim::new(home.data().join("instance-key"), read("instance-key"));
    let ssh = Victim::new(home.data().join("ssh-host-key"), Vec::new());
    let mut victims: Vec<(&Victim, &[Damage])> = vec![
        (&upload, &ALL),
        (&artifact, &ALL),
        // A trace may grow, and nothing says what its bytes were.
        (&trace, &[Truncated, Missing, Folder]),
        (&key, &ALL),
        (&ssh, &[Truncated, Flipped, Zeros, Folder]),
    ];
    let database;
    if home.database_url().is_none() {
        database = Victim::new(home.data().join("gable.sqlite3"), Vec::new());
        victims.push((&database, &[Truncated, Flipped, Zeros]));
    }
    every_damage_is_found(&home, &victims);
}

#[test]
fn damaged_indexes_and_dangling_rows_of_the_database_are_found() {
    let home = Home::embedded();
    let server = home.start();
    furnish(&server);
    server.stop();
    backup(&home).succeeded();
    home.execute("PRAGMA foreign_keys=OFF; DELETE FROM projects WHERE id = 1");
    let refused = backup(&home).refused();
    assert!(refused.starts_with("the database is damaged (") && refused.contains("leads to projects"), "{refused}");
    assert!(refused.contains("no backup was made and none was removed; gable doctor tells more"), "{refused}");
    assert_eq!(names_in(&beside(&home, "backups")).len(), 1);
}

#[test]
fn a_backup_in_a_file_names_damage_as_well_and_a_restore_tells_of_it() {
    let home = furnished();
    let repository = repositories(&home).remove(0);
    let pack = file_of(&repository, "pack-", ".pack");
    let victim = Victim::new(pack, Vec::new());
    victim.suffer(Truncated);
    let file = beside(&home, "backup.tar");
    let said = home.gable(&["backup", "--quiet", &file]).finish();
    assert_eq!(said.status, Some(1), "{}", said.words());
    assert!(said.stderr.contains("its content does not match the checksum at its end"), "{}", said.stderr);
    assert!(said.stderr.contains("(project "), "{}", said.stderr);
    let refused = home.gable(&["backup", "--quiet", "--verify", &file]).finish().refused();
    assert!(refused.contains("is what was written, but when it was made"), "{refused}");
    // Everything else can be had from it.
    let restored = Home::new();
    let said = restored.gable(&["restore", "--quiet", &file]).finish();
    assert!(said.stderr.contains("warning: damaged: repositories/"), "{}", said.words());
    said.succeeded();
    let upload = restored.data().join(format!("files/uploads/{}/1", home.storage_of(1)));
    assert_eq!(fs::read_to_string(upload).expect("read"), "what people have uploaded");
}

#[test]
fn a_restore_does_not_choose_an_incomplete_backup_by_itself() {
    let home = furnished();
    let folder = beside(&home, "backups");
    backup(&home).succeeded();
    let good = names_in(&folder).remove(0);
    let repository = repositories(&home).remove(0);
    Victim::new(file_of(&repository, "pack-", ".pack"), Vec::new()).suffer(Flipped);
    assert_eq!(backup(&home).status, Some(1));
    let bad = names_in(&folder).remove(1);
    let listed = home.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert!(listed.lines().nth(1).is_some_and(|line| line.ends_with(" damaged")), "{listed}");
    let restored = Home::new();
    let refused = restored.gable(&["restore", "--quiet", &folder]).finish().refused();
    assert!(refused.contains(&format!("--snapshot {bad} restores it all the same")), "{refused}");
    assert!(refused.contains(&format!("--snapshot {good} restores the newest complete one")), "{refused}");
    assert!(!restored.data().exists(), "nothing was changed");
    restored.gable(&["restore", "--quiet", "--snapshot", &good, &folder]).finish().succeeded();
    for repository in repositories(&restored) {
        git(&repository, &["fsck", "--strict", "--full", "--no-dangling"], b"");
    }
}

#[test]
fn a_scheduled_backup_of_damaged_files_is_an_error_and_removes_nothing() {
    let home = furnished();
    let folder = beside(&home, "backups");
    backup(&home).succeeded();
    let good = "2020-01-01T00-00-00.000Z";
    let path = |name: &str| format!("{folder}/snapshots/{name}.manifest");
    fs::rename(path(&names_in(&folder)[0]), path(good)).expect("renamed");
    let repository = repositories(&home).remove(0);
    Victim::new(file_of(&repository, "pack-", ".pack"), Vec::new()).suffer(Truncated);
    let settings = [("GABLE_BACKUP_FOLDER", folder.as_str()), ("GABLE_BACKUP_KEEP", "1")];
    let gable = settings.iter().fold(home.serve(), |gable, (name, value)| gable.env(name, value));
    let server = gable.with_known_root().start();
    let start = Instant::now();
    while !server.stderr().contains("no older backup was removed") {
        assert!(start.elapsed() < PATIENCE, "no word of it: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    let shown = server.anonymous().get("/-/metrics").text;
    assert!(shown.contains("gable_backup_failures_total 1"), "{shown}");
    assert!(!shown.contains("gable_backup_last_success_seconds 1"), "{shown}");
    let said = server.stop().stderr;
    assert!(said.contains("a file of the instance is damaged: repositories/") && said.contains(".pack"), "{said}");
    let names = names_in(&folder);
    assert_eq!((names.len(), names[0].as_str()), (2, good), "{names:?}");
}

#[test]
fn a_backup_that_an_older_version_did_not_check_is_not_relied_on() {
    let home = furnished();
    let folder = beside(&home, "backups");
    backup(&home).succeeded();
    let name = names_in(&folder).remove(0);
    let list = format!("{folder}/snapshots/{name}.manifest");
    let text = fs::read_to_string(&list).expect("read");
    // As an older version wrote it: with a pack that was damaged already, and without a word about checks.
    assert!(text.contains(",\"verified\":true}"), "{text}");
    let repository = repositories(&home).remove(0);
    Victim::new(file_of(&repository, "pack-", ".pack"), Vec::new()).suffer(Truncated);
    assert_eq!(backup(&home).status, Some(1));
    let bad = format!("{folder}/snapshots/{}.manifest", names_in(&folder)[1]);
    let text = fs::read_to_string(&bad).expect("read").replace(",\"verified\":true}", "}");
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
    // Long enough ago for the pack not to be read again.
    thread::sleep(Duration::from_secs(7));
    let refused = home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().refused();
    assert!(refused.contains("was damaged already when the backup was made"), "{refused}");
    let said = backup(&home);
    assert_eq!(said.status, Some(1), "{}", said.words());
    assert!(names_in(&folder).contains(&name), "the good one stays");
}
