//! What the faults themselves promise: what a loss of power keeps, loses or tears, and what a full disk takes.

use super::*;

/// A folder that is watched, beside the library.
struct Place {
    folder: tempfile::TempDir,
    faults: Faults,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let faults = Faults::watching(&folder.path().join("data"), &folder.path().join("faults"));
        Self { folder, faults }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs a script in the folder that is watched.
    fn run(&self, life: &Life, script: &str) -> std::process::Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(self.data()).envs(life.environment());
        shell.output().expect("a shell")
    }

    /// What is left after a script and a loss of power, by name; a folder ends in a slash.
    fn left(&mut self, script: &str, seed: u64, model: Model) -> Vec<(String, String)> {
        let _ = fs::remove_dir_all(self.data());
        fs::create_dir(self.data()).expect("a folder");
        fs::create_dir(self.data().join("old")).expect("a folder");
        fs::write(self.data().join("old/file"), "before").expect("a file");
        let life = self.faults.mortal_life();
        let done = self.run(&life, script);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        life.lose_power(seed, model);
        let mut found = Vec::new();
        list(&self.data(), "", &mut found);
        found.sort();
        found
    }

    /// Everything that can be left.
    fn outcomes(&mut self, script: &str, model: Model) -> std::collections::BTreeSet<Vec<(String, String)>> {
        (0..40).map(|seed| self.left(script, seed, model)).collect()
    }
}

fn list(folder: &Path, above: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = format!("{above}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            found.push((format!("{name}/"), String::new()));
            list(&entry.path(), &format!("{name}/"), found);
        } else {
            found.push((name, String::from_utf8_lossy(&fs::read(entry.path()).expect("a file")).replace('\0', "0")));
        }
    }
}

fn entries(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

const OLD: (&str, &str) = ("old/file", "before");

#[test]
fn what_was_synced_with_its_folder_is_never_lost() {
    let mut place = Place::new();
    let outcomes = place.outcomes("printf new > a; sync a; sync .; mkdir d; sync .; mv a d/b; sync d", Model::Strict);
    assert_eq!(outcomes, [entries(&[("d/", ""), ("d/b", "new"), ("old/", ""), OLD])].into());
    let outcomes = place.outcomes("rm old/file; sync old", Model::Strict);
    assert_eq!(outcomes, [entries(&[("old/", "")])].into());
    let outcomes = place.outcomes("printf after > old/file; mkdir d; sync", Model::Strict);
    assert_eq!(outcomes, [entries(&[("d/", ""), ("old/", ""), ("old/file", "after")])].into());
}

#[test]
fn content_that_was_not_synced_is_kept_lost_or_torn() {
    let mut place = Place::new();
    let outcomes = place.outcomes("printf new > a; sync .", Model::Strict);
    let with = |text: &str| entries(&[("a", text), ("old/", ""), OLD]);
    assert!(outcomes.contains(&with("new")) && outcomes.contains(&with("")) && outcomes.contains(&with("000")));
    // A file that is opened anew is cut, and either may arrive without the other.
    let outcomes = place.outcomes("printf after. > old/file", Model::Strict);
    for text in ["before", "after.", ""] {
        assert!(outcomes.contains(&entries(&[("old/", ""), ("old/file", text)])), "{text} in {outcomes:?}");
    }
    fs::write(place.folder.path().join("many"), "x".repeat(1024)).expect("a file");
    let torn = "dd if=../many of=old/file bs=1024 2>&1";
    let sizes: std::collections::BTreeSet<usize> =
        place.outcomes(torn, Model::Strict).iter().map(|left| left[1].1.matches('x').count()).collect();
    assert_eq!(sizes, [0, 512, 1024].into());
}

#[test]
fn names_that_were_not_synced_come_and_go() {
    let mut place = Place::new();
    // To sync a file is not to sync its name.
    let script = "printf new > a; sync a";
    let (with, without) = (entries(&[("a", "new"), ("old/", ""), OLD]), entries(&[("old/", ""), OLD]));
    assert_eq!(place.outcomes(script, Model::Strict), [with.clone(), without].into());
    assert_eq!(place.outcomes(script, Model::Journaled), [with].into());
    // What was replaced comes back, and what was removed.
    let outcomes = place.outcomes("printf new > a; sync a; sync .; mv a old/file", Model::Strict);
    let moved = entries(&[("old/", ""), ("old/file", "new")]);
    assert_eq!(outcomes, [entries(&[("a", "new"), ("old/", ""), OLD]), moved].into());
    let outcomes = place.outcomes("rm old/file; rmdir old; sync .", Model::Strict);
    assert_eq!(outcomes, [entries(&[])].into());
    let outcomes = place.outcomes("rm old/file; rmdir old", Model::Strict);
    assert_eq!(outcomes, [entries(&[]), entries(&[("old/", "")]), entries(&[("old/", ""), OLD])].into());
}

#[test]
fn names_in_two_folders_are_lost_in_order_if_the_model_says_so() {
    let mut place = Place::new();
    let script = "printf new > a; sync a; rm old/file";
    let out_of_order = entries(&[("old/", "")]);
    let strict = place.outcomes(script, Model::Strict);
    assert!(strict.len() == 4 && strict.contains(&out_of_order), "{strict:?}");
    let ordered = place.outcomes(script, Model::Ordered);
    assert!(ordered.len() == 3 && !ordered.contains(&out_of_order), "{ordered:?}");
    // A sync of the one folder does not make the other one last.
    let synced = place.outcomes("printf new > a; sync a; rm old/file; sync old", Model::Ordered);
    assert_eq!(synced, [entries(&[("a", "new"), ("old/", "")]), out_of_order].into());
}

#[test]
fn a_folder_whose_name_is_lost_takes_its_files_along() {
    let mut place = Place::new();
    let script = "mkdir d; printf new > d/a; sync d/a; sync d";
    let with = entries(&[("d/", ""), ("d/a", "new"), ("old/", ""), OLD]);
    assert_eq!(place.outcomes(script, Model::Strict), [with, entries(&[("old/", ""), OLD])].into());
    // A folder that was moved is where it was, with what came into it since.
    let script = "mkdir d; sync .; mv d old/e; printf new > old/e/a; sync old/e/a; sync old/e";
    let (here, there) = (entries(&[("d/", ""), ("d/a", "new"), ("old/", ""), OLD]), {
        entries(&[("old/", ""), ("old/e/", ""), ("old/e/a", "new"), OLD])
    });
    assert_eq!(place.outcomes(script, Model::Strict), [here, there].into());
}

#[test]
fn the_power_goes_in_the_middle_for_all_programs_at_once() {
    let mut place = Place::new();
    let life = place.faults.mortal_life();
    life.cut_after(7);
    // Programs with an environment of their own as well.
    let done = place.run(&life, "i=0; while true; do i=$((i+1)); env -i sh -c \"printf x > $i\"; done");
    assert_eq!(done.status.code(), None, "killed");
    assert!(life.is_cut());
    assert_eq!(life.calls(), 8);
    // Each makes a file and writes to it.
    assert!(!place.data().join("5").exists());
    life.lose_power(1, Model::Strict);
    // The next life has its own power.
    let life = place.faults.mortal_life();
    assert!(place.run(&life, "printf x > a").status.success());
    life.end();
}

#[test]
fn a_full_disk_takes_what_fits_and_no_more_until_there_is_room() {
    let mut place = Place::new();
    let life = place.faults.life();
    life.leave_room(11);
    let done = place.run(&life, "env -i dd if=/dev/zero of=a bs=100 count=1 2>&1");
    assert!(String::from_utf8_lossy(&done.stdout).contains("No space left on device"), "{done:?}");
    assert_eq!(fs::metadata(place.data().join("a")).expect("a file").len(), 10);
    assert!(!place.run(&life, "mkdir d").status.success());
    assert!(!place.run(&life, "printf x > b").status.success());
    // What is there can be written over, moved and removed.
    assert!(place.run(&life, "dd if=/dev/zero of=a bs=5 count=2 conv=notrunc && mv a c && rm c").status.success());
    assert!(life.refused() >= 3);
    life.free();
    assert!(place.run(&life, "mkdir d && printf x > d/b").status.success());
    life.end();
}

#[test]
fn a_disk_that_is_filled_takes_nothing_or_nothing_of_one_kind() {
    let mut place = Place::new();
    let life = place.faults.life();
    assert!(place.run(&life, "mkdir d e && printf xx > d/a && printf xx > e/a").status.success());
    life.fill();
    for script in ["printf y > new", "mkdir f", "dd if=/dev/zero of=d/a bs=1 count=1 conv=notrunc", "truncate -s 9 d/a"]
    {
        assert!(!place.run(&life, script).status.success(), "{script}");
    }
    assert!(place.run(&life, "mv e/a e/b && truncate -s 1 e/b").status.success());
    life.fill_only("/d/");
    assert!(!place.run(&life, "printf y >> d/a").status.success());
    assert!(place.run(&life, "printf y >> e/b && mkdir d/f").status.success());
    assert_eq!(life.refused(), 5);
    life.free();
    assert!(place.run(&life, "printf y >> d/a").status.success());
    assert_eq!(fs::read(place.data().join("d/a")).expect("a file"), b"xxy");
    life.end();
}
