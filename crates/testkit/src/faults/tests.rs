//! Tests of the simulated faults: what a power cut keeps, loses or tears, and what a full disk refuses.

use super::*;

/// A watched folder and the library beside it.
struct FaultTest {
    folder: tempfile::TempDir,
    faults: FaultInjector,
}

impl FaultTest {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let faults = FaultInjector::new(&folder.path().join("data"), &folder.path().join("faults"));
        Self { folder, faults }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs a script in the watched folder.
    fn run(&self, session: &FaultSession, script: &str) -> std::process::Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(self.data()).envs(session.environment());
        shell.output().expect("a shell")
    }

    /// Returns the files after a script and a power cut, by name; the name of a folder ends in a slash.
    fn run_and_cut_power(&mut self, script: &str, seed: u64, model: DurabilityModel) -> Vec<(String, String)> {
        let _ = fs::remove_dir_all(self.data());
        fs::create_dir(self.data()).expect("a folder");
        fs::create_dir(self.data().join("old")).expect("a folder");
        fs::write(self.data().join("old/file"), "before").expect("a file");
        let session = self.faults.start_journaled_session();
        let done = self.run(&session, script);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        session.apply_power_loss(seed, model);
        let mut found = Vec::new();
        list(&self.data(), "", &mut found);
        found.sort();
        found
    }

    /// Returns the possible states after a script and a power cut.
    fn possible_results(
        &mut self,
        script: &str,
        model: DurabilityModel,
    ) -> std::collections::BTreeSet<Vec<(String, String)>> {
        (0..40).map(|seed| self.run_and_cut_power(script, seed, model)).collect()
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
fn a_file_synced_with_its_folder_is_never_lost() {
    let mut test = FaultTest::new();
    let results = test
        .possible_results("printf new > a; sync a; sync .; mkdir d; sync .; mv a d/b; sync d", DurabilityModel::Strict);
    assert_eq!(results, [entries(&[("d/", ""), ("d/b", "new"), ("old/", ""), OLD])].into());
    let results = test.possible_results("rm old/file; sync old", DurabilityModel::Strict);
    assert_eq!(results, [entries(&[("old/", "")])].into());
    let results = test.possible_results("printf after > old/file; mkdir d; sync", DurabilityModel::Strict);
    assert_eq!(results, [entries(&[("d/", ""), ("old/", ""), ("old/file", "after")])].into());
}

#[test]
fn unsynced_content_is_kept_lost_or_torn() {
    let mut test = FaultTest::new();
    let results = test.possible_results("printf new > a; sync .", DurabilityModel::Strict);
    let with = |text: &str| entries(&[("a", text), ("old/", ""), OLD]);
    assert!(results.contains(&with("new")) && results.contains(&with("")) && results.contains(&with("000")));
    // Opening the file truncates it; the truncation and the write are independent.
    let results = test.possible_results("printf after. > old/file", DurabilityModel::Strict);
    for text in ["before", "after.", ""] {
        assert!(results.contains(&entries(&[("old/", ""), ("old/file", text)])), "{text} in {results:?}");
    }
    fs::write(test.folder.path().join("many"), "x".repeat(1024)).expect("a file");
    let torn = "dd if=../many of=old/file bs=1024 2>&1";
    let sizes: std::collections::BTreeSet<usize> = test
        .possible_results(torn, DurabilityModel::Strict)
        .iter()
        .map(|result| result[1].1.matches('x').count())
        .collect();
    assert_eq!(sizes, [0, 512, 1024].into());
}

#[test]
fn unsynced_names_may_be_lost_or_restored() {
    let mut test = FaultTest::new();
    // Syncing a file does not sync its name.
    let script = "printf new > a; sync a";
    let (with, without) = (entries(&[("a", "new"), ("old/", ""), OLD]), entries(&[("old/", ""), OLD]));
    assert_eq!(test.possible_results(script, DurabilityModel::Strict), [with.clone(), without].into());
    assert_eq!(test.possible_results(script, DurabilityModel::Journaled), [with].into());
    // Replaced and removed files may come back.
    let results = test.possible_results("printf new > a; sync a; sync .; mv a old/file", DurabilityModel::Strict);
    let moved = entries(&[("old/", ""), ("old/file", "new")]);
    assert_eq!(results, [entries(&[("a", "new"), ("old/", ""), OLD]), moved].into());
    let results = test.possible_results("rm old/file; rmdir old; sync .", DurabilityModel::Strict);
    assert_eq!(results, [entries(&[])].into());
    let results = test.possible_results("rm old/file; rmdir old", DurabilityModel::Strict);
    assert_eq!(results, [entries(&[]), entries(&[("old/", "")]), entries(&[("old/", ""), OLD])].into());
}

#[test]
fn names_in_two_folders_are_lost_in_order_unless_the_model_is_strict() {
    let mut test = FaultTest::new();
    let script = "printf new > a; sync a; rm old/file";
    let out_of_order = entries(&[("old/", "")]);
    let strict = test.possible_results(script, DurabilityModel::Strict);
    assert!(strict.len() == 4 && strict.contains(&out_of_order), "{strict:?}");
    let ordered = test.possible_results(script, DurabilityModel::Ordered);
    assert!(ordered.len() == 3 && !ordered.contains(&out_of_order), "{ordered:?}");
    // Syncing one folder does not sync the other.
    let synced = test.possible_results("printf new > a; sync a; rm old/file; sync old", DurabilityModel::Ordered);
    assert_eq!(synced, [entries(&[("a", "new"), ("old/", "")]), out_of_order].into());
}

#[test]
fn a_folder_whose_name_is_lost_takes_its_files_along() {
    let mut test = FaultTest::new();
    let script = "mkdir d; printf new > d/a; sync d/a; sync d";
    let with = entries(&[("d/", ""), ("d/a", "new"), ("old/", ""), OLD]);
    assert_eq!(test.possible_results(script, DurabilityModel::Strict), [with, entries(&[("old/", ""), OLD])].into());
    // A moved folder may be at its old path, with the files added since.
    let script = "mkdir d; sync .; mv d old/e; printf new > old/e/a; sync old/e/a; sync old/e";
    let (here, there) = (entries(&[("d/", ""), ("d/a", "new"), ("old/", ""), OLD]), {
        entries(&[("old/", ""), ("old/e/", ""), ("old/e/a", "new"), OLD])
    });
    assert_eq!(test.possible_results(script, DurabilityModel::Strict), [here, there].into());
}

#[test]
fn a_power_cut_stops_all_processes_at_once() {
    let mut test = FaultTest::new();
    let session = test.faults.start_journaled_session();
    session.cut_power_after(7);
    // Also processes with a cleared environment.
    let done = test.run(&session, "i=0; while true; do i=$((i+1)); env -i sh -c \"printf x > $i\"; done");
    assert_eq!(done.status.code(), None, "killed");
    assert!(session.is_power_cut());
    assert_eq!(session.calls(), 8);
    // Each process creates a file and writes to it.
    assert!(!test.data().join("5").exists());
    session.apply_power_loss(1, DurabilityModel::Strict);
    // The next session starts with power.
    let session = test.faults.start_journaled_session();
    assert!(test.run(&session, "printf x > a").status.success());
    session.finish();
}

#[test]
fn a_full_disk_takes_only_what_fits_until_space_is_freed() {
    let mut test = FaultTest::new();
    let session = test.faults.start_session();
    session.limit_space(11);
    let done = test.run(&session, "env -i dd if=/dev/zero of=a bs=100 count=1 2>&1");
    assert!(String::from_utf8_lossy(&done.stdout).contains("No space left on device"), "{done:?}");
    assert_eq!(fs::metadata(test.data().join("a")).expect("a file").len(), 10);
    assert!(!test.run(&session, "mkdir d").status.success());
    assert!(!test.run(&session, "printf x > b").status.success());
    // Existing files can be overwritten, moved and removed.
    assert!(test.run(&session, "dd if=/dev/zero of=a bs=5 count=2 conv=notrunc && mv a c && rm c").status.success());
    assert!(session.refused_calls() >= 3);
    session.free_space();
    assert!(test.run(&session, "mkdir d && printf x > d/b").status.success());
    session.finish();
}

#[test]
fn a_filled_disk_refuses_all_writes_or_those_to_some_paths() {
    let mut test = FaultTest::new();
    let session = test.faults.start_session();
    assert!(test.run(&session, "mkdir d e && printf xx > d/a && printf xx > e/a").status.success());
    session.fill_disk();
    for script in ["printf y > new", "mkdir f", "dd if=/dev/zero of=d/a bs=1 count=1 conv=notrunc", "truncate -s 9 d/a"]
    {
        assert!(!test.run(&session, script).status.success(), "{script}");
    }
    assert!(test.run(&session, "mv e/a e/b && truncate -s 1 e/b").status.success());
    session.fill_disk_for("/d/");
    assert!(!test.run(&session, "printf y >> d/a").status.success());
    assert!(test.run(&session, "printf y >> e/b && mkdir d/f").status.success());
    assert_eq!(session.refused_calls(), 5);
    session.free_space();
    assert!(test.run(&session, "printf y >> d/a").status.success());
    assert_eq!(fs::read(test.data().join("d/a")).expect("a file"), b"xxy");
    session.finish();
}
