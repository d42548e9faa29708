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
    admin::backup::furnish,
    admin::binary::{Home, PATIENCE},
    crash::crash_pushes::Dice,
};

/// A home whose server has done something and stopped.
fn furnished() -> Home {
    let home = Home::new();
    let server = home.start();
    furnish(&server);
    server.stop();
    home
}

pub(crate) fn beside(home: &Home, name: &str) -> String {
    let path = home.data().parent().expect("a folder").join(name);
    path.into_os_string().into_string().expect("a readable path")
}

/// Every file below a folder with its content.
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
    let start = format!("start one with \"gable serve --data {nowhere}\", or name another folder with --data");
    assert_eq!(refused, format!("no Gable instance in {nowhere}; {start}"));
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
    for stage in
        ["rows of the database: ", "repositories: 2 of 2, ", "files and traces: 3 of 3, ", "unpacked and checked: "]
    {
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
fn a_disk_of_backups_that_is_gone_is_not_replaced_by_the_one_below() {
    let home = furnished();
    let (folder, aside) = (beside(&home, "backups"), beside(&home, "aside"));
    let serve_until = |word: &str| {
        let server = home.serve().env("GABLE_BACKUP_FOLDER", &folder).with_known_root().start();
        let start = Instant::now();
        while !server.stderr().contains(word) {
            assert!(start.elapsed() < PATIENCE, "not a word of it: {}", server.stderr());
            thread::sleep(Duration::from_millis(20));
        }
        server.stop();
    };
    serve_until("made a backup");
    fs::rename(&folder, &aside).expect("moved");
    serve_until("held backups and holds none now; is its disk mounted?");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "nothing goes to the wrong disk");
    fs::remove_file(home.data().join("backup-folder")).expect("a note");
    serve_until("made a backup");
    assert_eq!(names_in(&folder).len(), 1);
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

/// The names of the backups in a folder, the oldest first.
pub(crate) fn names_in(folder: &str) -> Vec<String> {
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
fn what_a_wrong_clock_has_dated_ahead_does_not_count() {
    const AHEAD: &str = "2099-01-01T00-00-00.000Z";
    let home = furnished();
    let folder = beside(&home, "backups");
    let backup = |more: &[&str]| home.gable(&["backup", "--quiet", "--folder", &folder]).args(more).finish();
    backup(&[]).succeeded();
    rename_backup(&folder, &names_in(&folder)[0], AHEAD);
    let made = backup(&["--keep", "1"]);
    assert!(made.stderr.contains(&format!("backups of the future ({AHEAD}) do not count")), "{}", made.stderr);
    assert!(made.stdout.ends_with("removed 0 old backups\n"), "{}", made.words());
    let names = names_in(&folder);
    assert_eq!((names.len(), names[1].as_str()), (2, AHEAD), "the one just made is there: {names:?}");
    backup(&["--keep", "1"]).succeeded();
    let later = names_in(&folder);
    assert_eq!((later.len(), later[1].as_str()), (2, AHEAD), "{later:?}");
    assert!(later[0] > names[0], "the older one is gone: {later:?}");

    let listed = home.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    let marked: Vec<bool> = listed.lines().map(|line| line.ends_with("; of the future")).collect();
    assert_eq!(marked, [false, true], "{listed}");
    let other = Home::new();
    let restored = other.gable(&["restore", "--quiet", &folder]).finish();
    assert!(restored.stderr.contains(&format!("{} is taken; --snapshot chooses another one", later[0])));
    let said = restored.succeeded();
    assert!(said.contains(&format!("the backup of {}", later[0].split_once('T').expect("a time").0)), "{said}");

    // On a schedule it is no reason to wait, and a list that cannot be read no reason to fail.
    rename_backup(&folder, &later[0], "2020-01-02T00-00-00.000Z");
    fs::write(format!("{folder}/snapshots/2020-01-01T00-00-00.000Z.manifest"), "nothing\n").expect("written");
    let settings = [("GABLE_BACKUP_FOLDER", folder.as_str()), ("GABLE_BACKUP_KEEP", "1")];
    let gable = settings.iter().fold(home.serve(), |gable, (name, value)| gable.env(name, value));
    let server = gable.with_known_root().start();
    let start = Instant::now();
    while !server.stderr().contains("made a backup") {
        assert!(start.elapsed() < PATIENCE, "no backup: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    let shown = server.anonymous().get("/-/metrics").text;
    assert!(shown.contains("gable_backup_last_success_seconds 1"), "{shown}");
    assert!(!shown.contains("gable_backup_failures_total 1"), "{shown}");
    let said = server.stop().stderr;
    assert!(said.contains("do not count and are not removed until then"), "{said}");
    assert!(said.contains("2020-01-01T00-00-00.000Z cannot be read"), "{said}");
    assert_eq!(said.matches("made a backup").count(), 1, "{said}");
    let names = names_in(&folder);
    assert_eq!((names.len(), names[0].as_str()), (3, "2020-01-01T00-00-00.000Z"), "{names:?}");
    assert_eq!(names[2], AHEAD, "{names:?}");
}

#[test]
fn damage_does_not_pass_from_one_backup_to_the_next() {
    let home = furnished();
    let folder = beside(&home, "backups");
    let backup = || home.gable(&["backup", "--quiet", "--folder", &folder]).finish();
    let verify =
        |more: &[&str]| home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).args(more).finish();
    // What was written a moment before a backup is read again by the next one.
    thread::sleep(Duration::from_secs(7));
    backup().succeeded();
    let first = names_in(&folder).remove(0);
    let whole = files_in(&Path::new(&folder).join("blobs"));
    let blobs: Vec<PathBuf> = whole.keys().map(|path| Path::new(&folder).join("blobs").join(path)).collect();
    for blob in &blobs {
        damage(blob);
    }
    // What was read anyway is compared, and stored anew.
    let made = backup();
    assert!(made.stderr.contains("damaged files of earlier backups are stored anew: "), "{}", made.words());
    made.succeeded();
    let left = files_in(&Path::new(&folder).join("blobs"));
    let mended = whole.iter().filter(|(path, content)| left.get(*path) == Some(content)).count();
    assert!(mended > 3 && mended < whole.len(), "{mended} of {}", whole.len());
    // What was not read is found by whoever looks, and is out of the way then.
    let refused = verify(&[]).refused();
    assert!(refused.starts_with("the backup is damaged ("), "{refused}");
    assert!(refused.contains("/damaged, and the next backup stores anew what is still there"), "{refused}");
    assert!(!refused.contains("nothing was changed"), "{refused}");
    assert!(fs::read_dir(format!("{folder}/damaged")).expect("a folder").count() > 0);
    assert!(verify(&[]).refused().contains("; the next backup stores anew"), "they are missing by now");
    backup().succeeded();
    verify(&[]).succeeded();
    verify(&["--snapshot", &first]).succeeded();
    assert_eq!(whole.len(), blobs.iter().filter(|blob| blob.exists()).count());
}

#[test]
fn a_list_that_cannot_be_read_stops_neither_the_next_backup_nor_the_tidying() {
    let home = furnished();
    let folder = beside(&home, "backups");
    let backup = |more: &[&str]| home.gable(&["backup", "--quiet", "--folder", &folder]).args(more).finish();
    let verify = || home.gable(&["backup", "--quiet", "--folder", &folder, "--verify"]).finish().succeeded();
    backup(&[]).succeeded();
    let bad = names_in(&folder).remove(0);
    let list = PathBuf::from(format!("{folder}/snapshots/{bad}.manifest"));
    damage(&list);
    // As a power cut would leave it: content of the right size that is not what its name says, and half a list.
    for path in files_in(&Path::new(&folder).join("blobs")).keys() {
        damage(&Path::new(&folder).join("blobs").join(path));
    }
    let unfinished = Path::new(&folder).join("unfinished");
    fs::write(&unfinished, "").expect("written");
    fs::write(format!("{folder}/snapshots/2020-01-01T00-00-00.000Z.partial"), "half").expect("written");
    let made = backup(&[]);
    let reason = format!("because {} cannot be read", list.display());
    assert!(made.stderr.contains(&reason), "{}", made.words());
    made.succeeded();
    verify();
    assert_eq!(names_in(&folder).len(), 2, "half a list is no backup, and is gone");
    backup(&[]).succeeded();

    let stray = Path::new(&folder).join(format!("blobs/ab/ab{}", "0".repeat(62)));
    fs::create_dir_all(stray.parent().expect("a folder")).expect("made");
    fs::write(&stray, "half").expect("written");
    let tidied = backup(&["--keep", "2"]);
    assert!(tidied.stdout.ends_with("removed 1 old backups\n"), "{}", tidied.words());
    assert!(tidied.stderr.contains(&format!("the backup {bad} cannot be read")), "{}", tidied.stderr);
    assert_eq!(tidied.stderr.matches(&reason).count(), 1, "{}", tidied.stderr);
    assert!(!tidied.words().contains("nothing was changed"), "{}", tidied.words());
    let names = names_in(&folder);
    assert_eq!((names.len(), &names[0]), (3, &bad), "what cannot be read stays and does not count: {names:?}");
    assert!(stray.exists(), "nobody knows what is on the list");
    verify();
    // Once it is out of the way, so is what only it may have named.
    fs::remove_file(&list).expect("removed");
    let made = backup(&[]);
    assert_eq!(made.stderr, "");
    made.succeeded();
    assert!(!stray.exists() && !unfinished.exists());
    verify();
}

#[test]
fn flags_that_belong_to_a_folder_are_refused_beside_a_file() {
    let home = furnished();
    let file = beside(&home, "backup.tar");
    let refused = home.gable(&["backup", "--quiet", "--keep", "3", &file]).finish();
    assert_eq!(refused.status, Some(2), "{}", refused.words());
    assert!(refused.stderr.contains("cannot be used with"), "{}", refused.stderr);
    assert!(!Path::new(&file).exists());
}

#[test]
fn a_backup_that_lacks_something_says_so_and_removes_no_older_one() {
    let home = furnished();
    let folder = beside(&home, "backups");
    home.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    // As if their disk was not there.
    let (repositories, aside) = (home.data().join("repositories"), home.data().join("aside"));
    fs::rename(&repositories, &aside).expect("moved");
    let path = format!("files/uploads/{}/1", home.storage_of(1));
    let upload = home.data().join(&path);
    let content = fs::read(&upload).expect("read");
    fs::remove_file(&upload).expect("removed");
    let said = home.gable(&["backup", "--quiet", "--folder", &folder, "--keep", "1"]).finish();
    assert_eq!(said.status, Some(1), "{}", said.words());
    let words = said.words();
    let lacks = format!("lacks 3 files or repositories that should be there, such as {path}");
    assert!(words.contains(&lacks), "{words}");
    assert_eq!(names_in(&folder).len(), 2, "the older one stays");
    let listed = home.gable(&["backup", "--folder", &folder, "--list"]).finish().succeeded();
    assert!(listed.lines().nth(1).is_some_and(|line| line.ends_with("; lacks 3")), "{listed}");
    let file = beside(&home, "backup.tar");
    let said = home.gable(&["backup", "--quiet", &file]).finish();
    assert!(said.status == Some(1) && said.words().contains("is every disk mounted?"), "{}", said.words());

    fs::rename(&aside, &repositories).expect("moved");
    fs::write(&upload, content).expect("written");
    home.gable(&["backup", "--quiet", "--folder", &folder, "--keep", "1"]).finish().succeeded();
    assert_eq!(names_in(&folder).len(), 1);
}

#[test]
fn a_number_that_is_given_again_is_another_file() {
    let home = furnished();
    let folder = beside(&home, "backups");
    home.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    // As after a restore of something older: the same number, as many bytes, but given later.
    let other = "What People have uploaded";
    let path = format!("files/uploads/{}/1", home.storage_of(1));
    fs::write(home.data().join(&path), other).expect("written");
    home.execute("UPDATE uploads SET created_at = created_at + 3600000000 WHERE id = 1");
    home.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    let restored = Home::new();
    restored.gable(&["restore", "--quiet", &folder]).finish().succeeded();
    assert_eq!(fs::read_to_string(restored.data().join(&path)).expect("read"), other);
}

#[test]
fn a_folder_holds_backups_of_one_instance() {
    let (one, other) = (furnished(), furnished());
    let folder = beside(&one, "backups");
    one.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
    let said = other.gable(&["backup", "--quiet", "--folder", &folder]).finish();
    let expected = format!("{folder} holds backups of another instance; name another folder");
    assert!(said.status == Some(1) && said.words().contains(&expected), "{}", said.words());
    assert_eq!(names_in(&folder).len(), 1);
    // One that was restored is the same one.
    let restored = Home::new();
    restored.gable(&["restore", "--quiet", &folder]).finish().succeeded();
    restored.gable(&["backup", "--quiet", "--folder", &folder]).finish().succeeded();
}
