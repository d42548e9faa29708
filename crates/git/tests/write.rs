//! Writing: received objects are complete, updates are durable, and refused changes leave nothing behind.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use git::{EditError, Error, FileEdit, Peeled, Quarantine, Repositories};
use model::{Oid, RefChange, RefName, StorageId, objects::Signature};
use tempfile::TempDir;

fn storage_id(number: i64) -> StorageId {
    StorageId::parse(&number.to_string()).expect("a storage id")
}

fn project() -> StorageId {
    storage_id(7)
}

struct Sandbox {
    folder: TempDir,
    repositories: Repositories,
}

fn sandbox() -> Sandbox {
    let folder = tempfile::tempdir().expect("a folder");
    let repositories = Repositories::open(&folder.path().join("repositories")).expect("repositories");
    Sandbox { folder, repositories }
}

fn author() -> Signature {
    Signature { name: "Ann <x>\n".into(), email: "ann@example.com".into(), seconds: 1_422_824_191, offset: 3600 }
}

fn name(name: &str) -> RefName {
    RefName::new(name).expect("a name")
}

fn change(ref_name: &str, old: Option<Oid>, new: Option<Oid>) -> RefChange {
    RefChange { name: name(ref_name), old, new }
}

fn create(path: &str, content: &str) -> FileEdit {
    FileEdit::Create { path: path.into(), content: content.into() }
}

fn commit(incoming: &Quarantine, parent: Option<Oid>, edits: Vec<FileEdit>) -> Oid {
    let created = incoming.commit(parent, edits, "A message\n", &author(), &author()).expect("written");
    created.expect("valid edits")
}

impl Sandbox {
    /// Creates a repository with one commit on one branch.
    fn create_first_commit(&self) -> Oid {
        let incoming = self.repositories.quarantine(&project()).expect("a quarantine");
        let first = commit(&incoming, None, vec![create("a.txt", "one\n"), create("dir/b.txt", "two\n")]);
        let changes = [change("refs/heads/main", None, Some(first))];
        self.repositories
            .apply(&project(), Some(&incoming), &changes, Some(&name("refs/heads/main")))
            .expect("applied");
        first
    }

    fn path(&self) -> PathBuf {
        self.repositories.find(&project()).expect("readable").expect("there").path().to_owned()
    }

    fn git(&self, arguments: &[&str]) -> String {
        run(&self.path(), arguments, b"")
    }

    fn refs(&self) -> Vec<String> {
        let text = self.git(&["for-each-ref", "--format=%(refname)"]);
        text.lines().map(ToOwned::to_owned).collect()
    }
}

fn run(folder: &Path, arguments: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("written");
    let output = child.wait_with_output().expect("git ends");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_commit_created_from_edits_passes_git_fsck() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    sandbox.git(&["fsck", "--strict", "--full", "--no-dangling"]);
    assert_eq!(sandbox.git(&["ls-tree", "-r", "main"]).lines().count(), 2);
    assert_eq!(sandbox.git(&["show", "main:dir/b.txt"]), "two\n");
    assert_eq!(
        sandbox.git(&["log", "-1", "--format=%H %an %ae %ad", "--date=iso-strict"]).trim(),
        format!("{first} Ann x ann@example.com 2015-02-01T21:56:31+01:00")
    );
    assert_eq!(fs::read_to_string(sandbox.path().join("HEAD")).expect("a file"), "ref: refs/heads/main\n");
}

#[test]
fn edits_of_one_commit_build_upon_each_other() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let incoming = sandbox.repositories.quarantine(&project()).expect("a quarantine");
    let edits = vec![
        FileEdit::Move { from: "a.txt".into(), path: "new/a.txt".into(), content: None },
        FileEdit::Update { path: "new/a.txt".into(), content: b"three\n".to_vec() },
        FileEdit::Delete { path: "dir/b.txt".into() },
        FileEdit::Put { path: "-x".into(), content: b"odd\n".to_vec() },
    ];
    let second = commit(&incoming, Some(first), edits);
    let changes = [change("refs/heads/main", Some(first), Some(second))];
    sandbox.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
    assert_eq!(sandbox.git(&["ls-tree", "-r", "--name-only", "main"]), "-x\nnew/a.txt\n");
    assert_eq!(sandbox.git(&["show", "main:new/a.txt"]), "three\n");
    sandbox.git(&["fsck", "--strict", "--full", "--no-dangling"]);
}

#[test]
fn refused_edits_are_reported_and_leave_nothing() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let before = sandbox.git(&["count-objects", "-v"]);
    let path = |path: &str| path.to_owned();
    let content = Vec::new;
    let cases = [
        (create("a.txt", ""), EditError::Exists(path("a.txt"))),
        (create("dir", ""), EditError::Exists(path("dir"))),
        (create("a.txt/b", ""), EditError::Exists(path("a.txt/b"))),
        (create("../x", ""), EditError::Traversal(path("../x"))),
        (create(".git/config", ""), EditError::BadPath(path(".git/config"))),
        (FileEdit::Update { path: path("x"), content: content() }, EditError::Missing(path("x"), "updated")),
        (FileEdit::Delete { path: path("dir") }, EditError::Missing(path("dir"), "deleted")),
        (FileEdit::Move { from: path("x"), path: path("y"), content: None }, EditError::Missing(path("x"), "moved")),
        (
            FileEdit::Move { from: path("a.txt"), path: path("dir/b.txt"), content: None },
            EditError::TargetExists(path("dir/b.txt")),
        ),
    ];
    for (edit, expected) in cases {
        let incoming = sandbox.repositories.quarantine(&project()).expect("a quarantine");
        let refused = incoming.commit(Some(first), vec![edit], "x", &author(), &author()).expect("no error");
        assert_eq!(refused, Err(expected));
    }
    let nothing = sandbox.repositories.quarantine(&storage_id(8)).expect("a quarantine");
    let edit = FileEdit::Update { path: path("x"), content: content() };
    assert_eq!(nothing.commit(None, vec![edit], "x", &author(), &author()).expect("fine"), Err(EditError::Empty));
    assert_eq!(sandbox.git(&["count-objects", "-v"]), before);
    assert_eq!(fs::read_dir(sandbox.folder.path().join("repositories/tmp")).expect("a folder").count(), 1);
}

#[test]
fn nothing_is_written_through_a_symbolic_link() {
    let sandbox = sandbox();
    sandbox.create_first_commit();
    let link = run(&sandbox.path(), &["hash-object", "-w", "--stdin"], b"/etc");
    let tree = run(&sandbox.path(), &["mktree"], format!("120000 blob {}\tlink\n", link.trim()).as_bytes());
    let commit = run(
        &sandbox.path(),
        &["-c", "user.name=x", "-c", "user.email=x", "commit-tree", tree.trim(), "-m", "link"],
        b"",
    );
    let parent: Oid = commit.trim().parse().expect("an id");
    let incoming = sandbox.repositories.quarantine(&project()).expect("a quarantine");
    let through = FileEdit::Put { path: "link/passwd".into(), content: b"x".to_vec() };
    let refused = incoming.commit(Some(parent), vec![through], "x", &author(), &author()).expect("no error");
    assert_eq!(refused, Err(EditError::Exists("link/passwd".into())));
}

#[test]
fn refs_are_updated_only_from_their_expected_values() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let other: Oid = "1".repeat(40).parse().expect("an id");
    let moves = [
        change("refs/heads/main", None, Some(first)),
        change("refs/heads/main", Some(other), None),
        change("refs/heads/none", Some(first), None),
    ];
    for wrong in moves {
        let unaffected = change("refs/heads/fine", None, Some(first));
        let applied = sandbox.repositories.apply(&project(), None, &[unaffected, wrong.clone()], None);
        assert!(matches!(applied, Err(Error::RefChanged(found)) if found == wrong.name.as_str()), "{wrong:?}");
        // The other ref is not updated, either, and no lock is left.
        assert_eq!(sandbox.refs(), ["refs/heads/main"]);
        assert!(!sandbox.path().join("refs/heads/main.lock").exists());
    }
}

#[test]
fn loose_and_packed_refs_are_removed() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let names = ["refs/heads/a/b", "refs/heads/a/c", "refs/tags/v1", "refs/tags/v2"];
    let changes: Vec<RefChange> = names.iter().map(|name| change(name, None, Some(first))).collect();
    sandbox.repositories.apply(&project(), None, &changes, None).expect("applied");
    run(&sandbox.path(), &["-c", "user.name=x", "-c", "user.email=x", "tag", "-a", "-m", "x", "noted", "main"], b"");
    sandbox.git(&["pack-refs", "--all"]);
    assert_eq!(sandbox.refs().len(), 6);
    let removed = [change("refs/heads/a/b", Some(first), None), change("refs/tags/v1", Some(first), None)];
    sandbox.repositories.apply(&project(), None, &removed, None).expect("applied");
    assert_eq!(sandbox.refs(), ["refs/heads/a/c", "refs/heads/main", "refs/tags/noted", "refs/tags/v2"]);
    assert_eq!(sandbox.git(&["rev-parse", "noted^{}"]).trim(), first.to_string());
    // Its folder is removed, so the name is free for a branch.
    sandbox
        .repositories
        .apply(&project(), None, &[change("refs/heads/a/c", Some(first), None)], None)
        .expect("applied");
    sandbox.repositories.apply(&project(), None, &[change("refs/heads/a", None, Some(first))], None).expect("applied");
    assert_eq!(sandbox.refs(), ["refs/heads/a", "refs/heads/main", "refs/tags/noted", "refs/tags/v2"]);
    let below = sandbox.repositories.apply(&project(), None, &[change("refs/heads/a/b", None, Some(first))], None);
    assert!(below.is_err());
    sandbox.git(&["fsck", "--strict"]);
}

#[test]
fn after_a_crash_it_is_known_which_changes_were_applied() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let done = change("refs/heads/main", None, Some(first));
    let open = change("refs/heads/other", None, Some(first));
    let gone = change("refs/heads/gone", Some(first), None);
    // A lock whose owner is gone.
    fs::write(sandbox.path().join("refs/heads/other.lock"), "").expect("written");
    let changes = [done, open.clone(), gone];
    assert_eq!(sandbox.repositories.which_were_applied(&project(), &changes).expect("checked"), [true, false, true]);
    sandbox.repositories.apply(&project(), None, &[open], None).expect("the lock is gone");
    assert_eq!(
        sandbox.repositories.which_were_applied(&storage_id(8), &changes).expect("checked"),
        [false, false, false]
    );
}

#[test]
fn incomplete_and_damaged_packs_are_refused() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let source = sandbox.folder.path().join("source");
    fs::create_dir(&source).expect("a folder");
    run(&source, &["init", "-q"], b"");
    run(&source, &["fetch", "-q", sandbox.path().to_str().expect("text"), "main"], b"");
    run(&source, &["checkout", "-q", "-b", "work", "FETCH_HEAD"], b"");
    fs::write(source.join("a.txt"), "one\nmore\n").expect("written");
    run(&source, &["-c", "user.name=x", "-c", "user.email=x", "commit", "-qam", "more"], b"");
    let second = run(&source, &["rev-parse", "HEAD"], b"");
    let second: Oid = second.trim().parse().expect("an id");
    let thin = pack(&source, &format!("{second}\n^{first}\n"), &["--thin"]);
    let take = |bytes: &[u8]| {
        let incoming = sandbox.repositories.quarantine(&project()).expect("a quarantine");
        let mut child = incoming.index_pack(None).spawn().expect("git starts");
        let _ = child.stdin.take().expect("a pipe").write_all(bytes);
        (child.wait_with_output().expect("git ends").status.success(), incoming)
    };
    assert!(!take(&thin[..thin.len() - 21]).0, "cut off");
    let mut broken = thin.clone();
    broken[20] ^= 0xff;
    assert!(!take(&broken).0, "changed on the way");
    // Only the new commit: the tree that it names is missing.
    let commit_only = pack_objects(&source, &format!("{second}\n"));
    assert!(!take(&commit_only).0, "incomplete");
    let (taken, incoming) = take(&thin);
    assert!(taken);
    assert_eq!(incoming.repository().expect("open").peel(second).expect("read"), Some(Peeled::Commit(second)));
    // It is not visible before it is moved.
    assert_eq!(sandbox.repositories.find(&project()).expect("open").expect("there").peel(second).expect("read"), None);
    let changes = [change("refs/heads/main", Some(first), Some(second))];
    sandbox.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
    sandbox.git(&["fsck", "--strict", "--full"]);
    assert_eq!(sandbox.git(&["show", "main:a.txt"]), "one\nmore\n");
}

#[test]
fn a_repository_is_readable_however_many_packs_it_has() {
    let sandbox = sandbox();
    let mut tip = sandbox.create_first_commit();
    let source = sandbox.folder.path().join("source.git");
    run(sandbox.folder.path(), &["init", "-q", "--bare", "source.git"], b"");
    run(&source, &["fetch", "-q", sandbox.path().to_str().expect("text"), "main"], b"");
    let tree = run(&source, &["rev-parse", "FETCH_HEAD^{tree}"], b"");
    // Without housekeeping, and with a reader that stays open.
    let reader = sandbox.repositories.find(&project()).expect("open").expect("there");
    for round in 0..110 {
        let arguments = ["-c", "user.name=x", "-c", "user.email=x", "commit-tree", tree.trim(), "-p"];
        let next = run(&source, &[&arguments[..], &[&tip.to_string(), "-m", &round.to_string()]].concat(), b"");
        let next: Oid = next.trim().parse().expect("an id");
        let incoming = sandbox.repositories.quarantine(&project()).expect("a quarantine");
        let mut child = incoming.index_pack(None).spawn().expect("git starts");
        let sent = pack_objects(&source, &format!("{next}\n"));
        child.stdin.take().expect("a pipe").write_all(&sent).expect("written");
        assert!(child.wait_with_output().expect("git ends").status.success());
        assert_eq!(incoming.repository().expect("open").peel(next).expect("read"), Some(Peeled::Commit(next)));
        let changes = [change("refs/heads/main", Some(tip), Some(next))];
        sandbox.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
        let repository = sandbox.repositories.find(&project()).expect("open").expect("there");
        assert_eq!(repository.commits_excluding(next, &[], 1).expect("read").1, round + 2);
        if round < 32 {
            assert_eq!(reader.peel(next).expect("read"), Some(Peeled::Commit(next)));
        }
        tip = next;
    }
    let later = Repositories::attach(&sandbox.folder.path().join("repositories"));
    let repository = later.find(&project()).expect("open").expect("there");
    assert_eq!(repository.commits_excluding(tip, &[], 1).expect("read").1, 111);
}

fn pack(folder: &Path, revisions: &str, options: &[&str]) -> Vec<u8> {
    let arguments = [&["pack-objects", "--revs", "--stdout", "-q"], options].concat();
    git_output(folder, &arguments, revisions)
}

fn pack_objects(folder: &Path, ids: &str) -> Vec<u8> {
    git_output(folder, &["pack-objects", "--stdout", "-q"], ids)
}

fn git_output(folder: &Path, arguments: &[&str], input: &str) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    child.wait_with_output().expect("git ends").stdout
}

#[test]
fn a_copy_has_the_refs_and_objects_and_is_independent() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let hidden = change("refs/gable/keep/1", None, Some(first));
    sandbox.repositories.apply(&project(), None, &[hidden], None).expect("applied");
    sandbox.repositories.copy(&project(), &storage_id(8)).expect("copied");
    let copy = sandbox.repositories.find(&storage_id(8)).expect("open").expect("there");
    let names: Vec<String> = copy.refs().expect("refs").iter().map(|found| found.name.to_string()).collect();
    assert_eq!(names, ["refs/heads/main"]);
    assert_eq!(copy.default_branch().expect("read").map(|name| name.to_string()), Some("refs/heads/main".into()));
    run(copy.path(), &["fsck", "--strict", "--full"], b"");
    sandbox.repositories.remove(&project()).expect("removed");
    sandbox.repositories.empty_trash().expect("emptied");
    assert!(sandbox.repositories.find(&project()).expect("read").is_none());
    assert_eq!(run(copy.path(), &["show", "main:a.txt"], b""), "one\n");
    // A repeated copy changes nothing, and a missing repository is not copied.
    sandbox.repositories.copy(&project(), &storage_id(8)).expect("nothing to do");
    sandbox.repositories.copy(&storage_id(99), &storage_id(100)).expect("nothing to do");
    assert!(sandbox.repositories.find(&storage_id(100)).expect("read").is_none());
}

#[test]
fn housekeeping_packs_loose_objects_and_refs_and_keeps_all_of_them() {
    let sandbox = sandbox();
    let mut tip = sandbox.create_first_commit();
    for round in 0..70 {
        let incoming = sandbox.repositories.quarantine(&project()).expect("a quarantine");
        let next = commit(&incoming, Some(tip), vec![create(&format!("f{round}"), &round.to_string())]);
        let changes = [
            change("refs/heads/main", Some(tip), Some(next)),
            change(&format!("refs/tags/t{round}"), None, Some(next)),
        ];
        sandbox.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
        tip = next;
    }
    let refs = sandbox.refs();
    let before = sandbox.git(&["rev-list", "--objects", "--all"]).lines().count();
    assert!(sandbox.repositories.run_housekeeping(&project()).expect("done"));
    assert_eq!(sandbox.refs(), refs);
    assert_eq!(sandbox.git(&["rev-list", "--objects", "--all"]).lines().count(), before);
    sandbox.git(&["fsck", "--strict", "--full"]);
    assert!(sandbox.path().join("packed-refs").exists());
    assert!(sandbox.path().join("objects/info/commit-graphs").exists());
    assert!(sandbox.git(&["count-objects", "-v"]).starts_with("count: 0\n"));
    let repository = sandbox.repositories.find(&project()).expect("open").expect("there");
    assert_eq!(repository.commits_excluding(tip, &[], 1).expect("read").1, 71);
    // Not while another process does it.
    let lock = fs::File::options().write(true).open(sandbox.path().join("house.lock")).expect("a lock");
    lock.lock().expect("locked");
    assert!(!sandbox.repositories.run_housekeeping(&project()).expect("left alone"));
    drop(lock);
    assert!(sandbox.repositories.run_housekeeping(&project()).expect("done again"));
    assert!(sandbox.repositories.run_housekeeping(&storage_id(99)).expect("nothing to do"));
}

#[test]
fn unfinished_work_is_deleted_at_start() {
    let sandbox = sandbox();
    sandbox.create_first_commit();
    let root = sandbox.folder.path().join("repositories");
    fs::create_dir(root.join("tmp/in-left")).expect("a folder");
    fs::write(root.join("tmp/in-left/pack"), "half").expect("written");
    let again = Repositories::open(&root).expect("repositories");
    assert_eq!(fs::read_dir(root.join("tmp")).expect("a folder").count(), 0);
    assert!(again.find(&project()).expect("read").is_some());
    assert!(again.find(&storage_id(8)).expect("read").is_none());
}

#[test]
fn readers_find_everything_during_housekeeping() {
    let sandbox = sandbox();
    let mut tip = sandbox.create_first_commit();
    let mut tips = vec![tip];
    for round in 0..12 {
        let incoming = sandbox.repositories.quarantine(&project()).expect("a quarantine");
        let next = commit(&incoming, Some(tip), vec![create(&format!("f{round}"), &round.to_string())]);
        let changes = [change("refs/heads/main", Some(tip), Some(next))];
        sandbox.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
        // One pack per commit, as pushes bring them.
        sandbox.git(&["repack", "-d", "-q"]);
        tip = next;
        tips.push(next);
    }
    let before = sandbox.repositories.find(&project()).expect("open").expect("there");
    assert!(before.commit(tips[0]).expect("read").is_some());
    let unaffected = sandbox.repositories.find(&project()).expect("open").expect("there");
    // The packs of both open handles are removed.
    sandbox.git(&["repack", "-a", "-d", "-q", "--write-midx"]);
    for (round, tip) in tips.iter().enumerate() {
        assert!(before.commit(*tip).expect("read").is_some(), "{round}");
        assert_eq!(
            unaffected.tree(*tip, "", false, model::Page::whole()).expect("read").total,
            2 + i64::try_from(round).expect("few")
        );
    }
}

#[test]
fn a_removed_ref_is_not_restored_by_a_concurrent_pack_refs() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    for round in 0..20 {
        let names: Vec<String> = (0..200).map(|number| format!("refs/heads/r{round}-{number}")).collect();
        let made: Vec<RefChange> = names.iter().map(|name| change(name, None, Some(first))).collect();
        sandbox.repositories.apply(&project(), None, &made, None).expect("applied");
        let folder = sandbox.path();
        let packing = std::thread::spawn(move || run(&folder, &["pack-refs", "--all"], b""));
        for name in names.iter().take(5) {
            let removed = [change(name, Some(first), None)];
            sandbox.repositories.apply(&project(), None, &removed, None).expect("removed");
        }
        packing.join().expect("packed");
        let left = sandbox.refs();
        assert!(names.iter().take(5).all(|name| !left.contains(name)), "round {round}");
        let rest: Vec<RefChange> = names.iter().skip(5).map(|name| change(name, Some(first), None)).collect();
        sandbox.repositories.apply(&project(), None, &rest, None).expect("removed");
    }
    assert_eq!(sandbox.refs(), ["refs/heads/main"]);
}

#[test]
fn the_lock_of_a_running_process_is_not_removed() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let lock = sandbox.path().join("packed-refs.lock");
    fs::write(&lock, "").expect("written");
    let housekeeping_lock =
        fs::File::options().write(true).create(true).truncate(false).open(sandbox.path().join("house.lock"));
    let housekeeping_lock = housekeeping_lock.expect("a lock");
    housekeeping_lock.lock().expect("locked");
    let repositories = sandbox.repositories.clone();
    let applied_check = std::thread::spawn(move || {
        repositories.which_were_applied(&project(), &[change("refs/heads/main", None, Some(first))]).expect("checked")
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(lock.exists(), "housekeeping still needs it");
    drop(housekeeping_lock);
    assert_eq!(applied_check.join().expect("answered"), [true]);
    assert!(!lock.exists(), "its owner is gone");
}
