//! The forms of a backup: a file that is whole or refused, a folder that shares what has not changed, and a schedule.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    backup::furnish,
    binary::{Home, PATIENCE},
    crash_pushes::Dice,
};

/// A home whose server has done something and stopped.
fn furnished() -> Home {
    let home = Home::new();
    let server = home.start();
    furnish(&server);
    server.stop();
    home
}

fn beside(home: &Home, name: &str) -> String {
    let path = home.data().parent().expect("a folder").join(name);
    path.into_os_string().into_string().expect("a readable path")
}

/// Every file below a folder with its content.
fn files_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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
fn a_cut_or_changed_file_is_refused_and_nothing_changes() {
    let home = furnished();
    let file = beside(&home, "backup.tar");
    home.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let whole = fs::read(&file).expect("read");
    let broken = beside(&home, "broken.tar");
    let other = Home::embedded();
    let mut dice = Dice(4711);
    let anywhere = |dice: &mut Dice| usize::try_from(dice.roll()).expect("a number") % whole.len();
    let mut attempts: Vec<(String, Vec<u8>)> = Vec::new();
    for end in [0, 1, 511, 512, 513, whole.len() - 1, whole.len() - 512, whole.len() - 1024, whole.len() - 1025] {
        attempts.push((format!("cut at {end}"), whole[..end].to_vec()));
    }
    for _ in 0..15 {
        let end = anywhere(&mut dice);
        attempts.push((format!("cut at {end}"), whole[..end].to_vec()));
        let place = anywhere(&mut dice);
        let mut changed = whole.clone();
        changed[place] ^= 1 << (dice.roll() % 8);
        attempts.push((format!("changed at {place}"), changed));
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
    // Something else altogether.
    fs::write(&broken, "Dear sir or madam,\n".repeat(100)).expect("written");
    let refused = other.gable(&["restore", "--quiet", &broken]).finish().refused();
    assert_eq!(refused, "this is no backup of gable; nothing was changed");
    other.gable(&["restore", "--quiet", &file]).finish().succeeded();
}

#[test]
fn nothing_that_is_there_is_written_over() {
    let home = furnished();
    let file = beside(&home, "backup.tar");
    home.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let refused = home.gable(&["backup", "--quiet", &file]).finish().refused();
    assert_eq!(refused, format!("{file} is there already; choose another name, or add --force"));
    home.gable(&["backup", "--quiet", "--force", &file]).finish().succeeded();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600, "it holds the keys of the instance");
    assert!(!Path::new(&format!("{file}.partial")).exists());

    let before = files_in(&home.data());
    let refused = home.gable(&["restore", "--quiet", &file]).finish().refused();
    assert!(refused.contains("is not empty; move it away"), "{refused}");
    assert_eq!(files_in(&home.data()), before);
    let foreign = beside(&home, "foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(format!("{foreign}/letter"), "Dear").expect("written");
    let refused = home.gable(&["backup", "--quiet", "--folder", &foreign]).finish().refused();
    assert_eq!(refused, format!("{foreign} holds something else; name an empty folder"));
    let refused = home.gable(&["backup", "--quiet"]).finish().refused();
    assert_eq!(refused, "name one place for the backup: a file, - for standard output, or --folder DIR");
    let nowhere = beside(&home, "nowhere");
    let refused = home.gable(&["backup", "--quiet", "--data", &nowhere, "x.tar"]).finish().refused();
    assert_eq!(refused, format!("there is no data folder {nowhere}"));
    assert!(!Path::new(&beside(&home, "x.tar.partial")).exists());
}

#[test]
fn a_restore_that_was_interrupted_is_noticed_and_can_be_run_again() {
    let home = furnished();
    let file = beside(&home, "backup.tar");
    home.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let other = Home::new();
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
fn a_folder_takes_only_what_is_new_and_keeps_as_many_as_it_is_told() {
    let home = furnished();
    let folder = beside(&home, "backups");
    let backup =
        |more: &[&str]| home.gable(&["backup", "--quiet", "--folder", &folder]).args(more).finish().succeeded();
    backup(&[]);
    let first = files_in(Path::new(&folder));
    let said = backup(&[]);
    let second = files_in(Path::new(&folder));
    let fresh = |now: &BTreeMap<PathBuf, Vec<u8>>, then: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> {
        now.keys().filter(|path| !then.contains_key(*path)).cloned().collect()
    };
    let only = fresh(&second, &first);
    assert_eq!(only.len(), 1, "nothing but a list: {only:?}");
    assert!(said.contains(", of which 0 B are new"), "{said}");
    assert!(first.iter().all(|(path, content)| second.get(path) == Some(content)), "earlier ones stay as they are");

    let server = home.start();
    server.root().post("/api/v3/projects/1/issues", &json!({ "title": "Meanwhile" }));
    let file = json!({ "file_path": "new", "branch_name": "side", "content": "new", "commit_message": "New" });
    server.root().post("/api/v3/projects/1/repository/branches", &json!({ "branch_name": "side", "ref": "master" }));
    assert_eq!(server.root().post("/api/v3/projects/1/repository/files", &file).status, 201);
    server.stop();
    backup(&[]);
    let third = files_in(Path::new(&folder));
    assert!(fresh(&third, &second).len() > 3, "a commit, a tree and a file");
    let listed = home.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();

    // The second one is from before the issue, the newest from after it.
    let name = listed.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a name");
    for (snapshot, issues) in [(Some(name), 2), (None, 3)] {
        let other = Home::new();
        let chosen: Vec<&str> = snapshot.iter().flat_map(|name| ["--snapshot", name]).collect();
        other.gable(&["restore", "--quiet", &folder]).args(&chosen).finish().succeeded();
        let server = other.start();
        let shown = server.root().get("/api/v3/projects/1/issues").json();
        assert_eq!(shown.as_array().map(Vec::len), Some(issues), "{shown}");
        server.stop();
    }

    let said = backup(&["--keep", "1"]);
    assert!(said.ends_with("removed 3 old backups\n"), "{said}");
    let listed = home.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert_eq!(listed.lines().count(), 1, "{listed}");
    home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
    let fourth = files_in(Path::new(&folder));
    assert!(fourth.len() < third.len(), "what only the old ones used is gone");

    // Damage is found, and named.
    let blob = fourth.keys().filter(|path| path.starts_with("blobs")).max_by_key(|path| fourth[*path].len());
    let blob = Path::new(&folder).join(blob.expect("content"));
    let mut content = fs::read(&blob).expect("read");
    content[0] ^= 1;
    fs::write(&blob, content).expect("written");
    let refused = home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().refused();
    assert!(refused.contains("the backup is damaged"), "{refused}");
    let other = Home::new();
    let refused = other.gable(&["restore", "--quiet", &folder]).finish().refused();
    assert!(refused.contains("the backup is damaged"), "{refused}");
    assert!(!other.data().exists(), "something is left");
}

#[test]
fn what_was_interrupted_in_a_folder_does_not_spoil_the_next_one() {
    let home = furnished();
    let folder = beside(&home, "backups");
    let backup = || home.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    backup();
    // As a power cut would leave it: content under a name that is not its sum, of which nobody knows.
    let stray = Path::new(&folder).join(format!("blobs/ab/ab{}", "0".repeat(62)));
    fs::create_dir_all(stray.parent().expect("a folder")).expect("made");
    fs::write(&stray, "half").expect("written");
    fs::write(Path::new(&folder).join("unfinished"), "").expect("written");
    backup();
    assert!(!stray.exists());
    assert!(!Path::new(&folder).join("unfinished").exists());
    home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
}

#[test]
fn a_stream_comes_out_and_goes_in_and_says_how_far_it_is() {
    let home = furnished();
    let other = Home::new();
    let gable = env!("CARGO_BIN_EXE_gable");
    let pipe = "\"$0\" backup - | \"$0\" restore --data \"$1\" -";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", pipe, gable]).arg(other.data()).env("GABLE_DATA", home.data());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
        command.env_remove(name);
    }
    command.env("GABLE_DATA", home.data());
    if home.database_url().is_some() {
        // Both ends would talk to the same database.
        return;
    }
    let output = command.output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for stage in ["rows of the database: ", "repositories: ", "files and traces: ", "unpacked and checked: "] {
        assert!(said.contains(stage), "{stage} in {said}");
    }
    assert!(!said.contains('\r') && !said.contains('\u{1b}'), "plain lines where there is no terminal: {said}");
    other.start().stop();
}

#[test]
fn a_server_backs_itself_up_and_removes_old_ones() {
    let home = furnished();
    let folder = beside(&home, "backups");
    for _ in 0..2 {
        home.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    }
    // Older than the interval, as their names say.
    for (nth, entry) in fs::read_dir(format!("{folder}/snapshots")).expect("a folder").enumerate() {
        let path = entry.expect("an entry").path();
        fs::rename(&path, path.with_file_name(format!("2020-01-0{}T00-00-00.000Z.manifest", nth + 1)))
            .expect("renamed");
    }
    let settings =
        [("GABLE_BACKUP_FOLDER", folder.as_str()), ("GABLE_BACKUP_EVERY_HOURS", "1"), ("GABLE_BACKUP_KEEP", "2")];
    let gable = settings.iter().fold(home.serve(), |gable, (name, value)| gable.env(name, value));
    let server = gable.with_known_root().start();
    let start = Instant::now();
    while !server.stderr().contains("made a backup") {
        assert!(start.elapsed() < PATIENCE, "no backup: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    let shown = server.anonymous().get("/-/metrics").text;
    assert!(shown.contains("gable_backup_last_success_seconds 1"), "{shown}");
    let listed = home.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.starts_with("2020-01-02"), "the oldest is gone: {listed}");
    server.stop();
    home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
}

#[test]
fn a_scheduled_backup_that_fails_disturbs_nobody() {
    let home = furnished();
    let foreign = beside(&home, "foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(format!("{foreign}/letter"), "Dear").expect("written");
    let server = home.serve().env("GABLE_BACKUP_FOLDER", &foreign).with_known_root().start();
    let start = Instant::now();
    while !server.stderr().contains("a backup has failed") {
        assert!(start.elapsed() < PATIENCE, "no word of it: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.root().get("/api/v3/projects/1").status, 200);
    assert!(server.anonymous().get("/-/metrics").text.contains("gable_backup_failures_total 1"));
    assert_eq!(server.stop().status, Some(0));
    assert_eq!(fs::read_dir(&foreign).expect("a folder").count(), 1, "left alone");
}
