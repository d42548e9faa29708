//! Writing: what is taken in is whole, what is moved is moved for good, and what is refused leaves nothing behind.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use git::{EditRefusal, Error, FileEdit, Peeled, Quarantine, Repositories};
use model::{Oid, RefChange, RefName, StorageId, objects::Signature};
use tempfile::TempDir;

/// Where a repository lies.
fn at(number: i64) -> StorageId {
    StorageId::parse(&number.to_string()).expect("a storage id")
}

fn project() -> StorageId {
    at(7)
}

struct Place {
    folder: TempDir,
    repositories: Repositories,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let repositories = Repositories::in_folder(&folder.path().join("repositories")).expect("a place");
    Place { folder, repositories }
}

fn who() -> Signature {
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
    let made = incoming.commit(parent, edits, "A message\n", &who(), &who()).expect("written");
    made.expect("the edits are fine")
}

impl Place {
    /// A repository with one commit on one branch.
    fn begin(&self) -> Oid {
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
fn a_commit_made_of_edits_is_one_that_git_likes() {
    let place = place();
    let first = place.begin();
    place.git(&["fsck", "--strict", "--full", "--no-dangling"]);
    assert_eq!(place.git(&["ls-tree", "-r", "main"]).lines().count(), 2);
    assert_eq!(place.git(&["show", "main:dir/b.txt"]), "two\n");
    assert_eq!(
        place.git(&["log", "-1", "--format=%H %an %ae %ad", "--date=iso-strict"]).trim(),
        format!("{first} Ann x ann@example.com 2015-02-01T21:56:31+01:00")
    );
    assert_eq!(fs::read_to_string(place.path().join("HEAD")).expect("a file"), "ref: refs/heads/main\n");
}

#[test]
fn edits_follow_each_other_within_one_commit() {
    let place = place();
    let first = place.begin();
    let incoming = place.repositories.quarantine(&project()).expect("a quarantine");
    let edits = vec![
        FileEdit::Move { from: "a.txt".into(), path: "new/a.txt".into(), content: None },
        FileEdit::Update { path: "new/a.txt".into(), content: b"three\n".to_vec() },
        FileEdit::Delete { path: "dir/b.txt".into() },
        FileEdit::Put { path: "-x".into(), content: b"odd\n".to_vec() },
    ];
    let second = commit(&incoming, Some(first), edits);
    let changes = [change("refs/heads/main", Some(first), Some(second))];
    place.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
    assert_eq!(place.git(&["ls-tree", "-r", "--name-only", "main"]), "-x\nnew/a.txt\n");
    assert_eq!(place.git(&["show", "main:new/a.txt"]), "three\n");
    place.git(&["fsck", "--strict", "--full", "--no-dangling"]);
}

#[test]
fn edits_that_cannot_be_made_are_told_and_leave_nothing() {
    let place = place();
    let first = place.begin();
    let before = place.git(&["count-objects", "-v"]);
    let path = |path: &str| path.to_owned();
    let content = Vec::new;
    let cases = [
        (create("a.txt", ""), EditRefusal::Exists(path("a.txt"))),
        (create("dir", ""), EditRefusal::Exists(path("dir"))),
        (create("a.txt/b", ""), EditRefusal::Exists(path("a.txt/b"))),
        (create("../x", ""), EditRefusal::Traversal(path("../x"))),
        (create(".git/config", ""), EditRefusal::BadPath(path(".git/config"))),
        (FileEdit::Update { path: path("x"), content: content() }, EditRefusal::Missing(path("x"), "updated")),
        (FileEdit::Delete { path: path("dir") }, EditRefusal::Missing(path("dir"), "deleted")),
        (FileEdit::Move { from: path("x"), path: path("y"), content: None }, EditRefusal::Missing(path("x"), "moved")),
        (
            FileEdit::Move { from: path("a.txt"), path: path("dir/b.txt"), content: None },
            EditRefusal::TargetExists(path("dir/b.txt")),
        ),
    ];
    for (edit, expected) in cases {
        let incoming = place.repositories.quarantine(&project()).expect("a quarantine");
        let refused = incoming.commit(Some(first), vec![edit], "x", &who(), &who()).expect("no fault of ours");
        assert_eq!(refused, Err(expected));
    }
    let nothing = place.repositories.quarantine(&at(8)).expect("a quarantine");
    let edit = FileEdit::Update { path: path("x"), content: content() };
    assert_eq!(nothing.commit(None, vec![edit], "x", &who(), &who()).expect("fine"), Err(EditRefusal::Empty));
    assert_eq!(place.git(&["count-objects", "-v"]), before);
    assert_eq!(fs::read_dir(place.folder.path().join("repositories/tmp")).expect("a folder").count(), 1);
}

#[test]
fn lesson_01_nothing_is_written_through_a_symbolic_link() {
    let place = place();
    place.begin();
    let link = run(&place.path(), &["hash-object", "-w", "--stdin"], b"/etc");
    let tree = run(&place.path(), &["mktree"], format!("120000 blob {}\tlink\n", link.trim()).as_bytes());
    let commit =
        run(&place.path(), &["-c", "user.name=x", "-c", "user.email=x", "commit-tree", tree.trim(), "-m", "link"], b"");
    let parent: Oid = commit.trim().parse().expect("an id");
    let incoming = place.repositories.quarantine(&project()).expect("a quarantine");
    let through = FileEdit::Put { path: "link/passwd".into(), content: b"x".to_vec() };
    let refused = incoming.commit(Some(parent), vec![through], "x", &who(), &who()).expect("no fault of ours");
    assert_eq!(refused, Err(EditRefusal::Exists("link/passwd".into())));
}

#[test]
fn refs_move_only_from_what_they_were_taken_for() {
    let place = place();
    let first = place.begin();
    let other: Oid = "1".repeat(40).parse().expect("an id");
    let moves = [
        change("refs/heads/main", None, Some(first)),
        change("refs/heads/main", Some(other), None),
        change("refs/heads/none", Some(first), None),
    ];
    for wrong in moves {
        let also = change("refs/heads/fine", None, Some(first));
        let applied = place.repositories.apply(&project(), None, &[also, wrong.clone()], None);
        assert!(matches!(applied, Err(Error::Moved(found)) if found == wrong.name.as_str()), "{wrong:?}");
        // Not even the other one, and no lock is left.
        assert_eq!(place.refs(), ["refs/heads/main"]);
        assert!(!place.path().join("refs/heads/main.lock").exists());
    }
}

#[test]
fn refs_are_removed_from_wherever_git_has_put_them() {
    let place = place();
    let first = place.begin();
    let names = ["refs/heads/a/b", "refs/heads/a/c", "refs/tags/v1", "refs/tags/v2"];
    let changes: Vec<RefChange> = names.iter().map(|name| change(name, None, Some(first))).collect();
    place.repositories.apply(&project(), None, &changes, None).expect("applied");
    run(&place.path(), &["-c", "user.name=x", "-c", "user.email=x", "tag", "-a", "-m", "x", "noted", "main"], b"");
    place.git(&["pack-refs", "--all"]);
    assert_eq!(place.refs().len(), 6);
    let removed = [change("refs/heads/a/b", Some(first), None), change("refs/tags/v1", Some(first), None)];
    place.repositories.apply(&project(), None, &removed, None).expect("applied");
    assert_eq!(place.refs(), ["refs/heads/a/c", "refs/heads/main", "refs/tags/noted", "refs/tags/v2"]);
    assert_eq!(place.git(&["rev-parse", "noted^{}"]).trim(), first.to_string());
    // With its folder gone, the name is free for a branch.
    place.repositories.apply(&project(), None, &[change("refs/heads/a/c", Some(first), None)], None).expect("applied");
    place.repositories.apply(&project(), None, &[change("refs/heads/a", None, Some(first))], None).expect("applied");
    assert_eq!(place.refs(), ["refs/heads/a", "refs/heads/main", "refs/tags/noted", "refs/tags/v2"]);
    let below = place.repositories.apply(&project(), None, &[change("refs/heads/a/b", None, Some(first))], None);
    assert!(below.is_err());
    place.git(&["fsck", "--strict"]);
}

#[test]
fn after_a_crash_it_can_be_told_what_happened() {
    let place = place();
    let first = place.begin();
    let done = change("refs/heads/main", None, Some(first));
    let open = change("refs/heads/other", None, Some(first));
    let gone = change("refs/heads/gone", Some(first), None);
    // A lock that nobody will ever give back.
    fs::write(place.path().join("refs/heads/other.lock"), "").expect("written");
    let changes = [done, open.clone(), gone];
    assert_eq!(place.repositories.which_happened(&project(), &changes).expect("told"), [true, false, true]);
    place.repositories.apply(&project(), None, &[open], None).expect("the lock is gone");
    assert_eq!(place.repositories.which_happened(&at(8), &changes).expect("told"), [false, false, false]);
}

#[test]
fn packs_are_taken_in_only_if_they_are_whole() {
    let place = place();
    let first = place.begin();
    let source = place.folder.path().join("source");
    fs::create_dir(&source).expect("a folder");
    run(&source, &["init", "-q"], b"");
    run(&source, &["fetch", "-q", place.path().to_str().expect("text"), "main"], b"");
    run(&source, &["checkout", "-q", "-b", "work", "FETCH_HEAD"], b"");
    fs::write(source.join("a.txt"), "one\nmore\n").expect("written");
    run(&source, &["-c", "user.name=x", "-c", "user.email=x", "commit", "-qam", "more"], b"");
    let second = run(&source, &["rev-parse", "HEAD"], b"");
    let second: Oid = second.trim().parse().expect("an id");
    let thin = pack(&source, &format!("{second}\n^{first}\n"), &["--thin"]);
    let take = |bytes: &[u8]| {
        let incoming = place.repositories.quarantine(&project()).expect("a quarantine");
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
    // Not before it is moved does anybody see it.
    assert_eq!(place.repositories.find(&project()).expect("open").expect("there").peel(second).expect("read"), None);
    let changes = [change("refs/heads/main", Some(first), Some(second))];
    place.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
    place.git(&["fsck", "--strict", "--full"]);
    assert_eq!(place.git(&["show", "main:a.txt"]), "one\nmore\n");
}

#[test]
fn a_repository_is_readable_however_many_packs_it_has() {
    let place = place();
    let mut tip = place.begin();
    let source = place.folder.path().join("source.git");
    run(place.folder.path(), &["init", "-q", "--bare", "source.git"], b"");
    run(&source, &["fetch", "-q", place.path().to_str().expect("text"), "main"], b"");
    let tree = run(&source, &["rev-parse", "FETCH_HEAD^{tree}"], b"");
    // No housekeeping meanwhile, and somebody who reads all along.
    let reader = place.repositories.find(&project()).expect("open").expect("there");
    for round in 0..110 {
        let arguments = ["-c", "user.name=x", "-c", "user.email=x", "commit-tree", tree.trim(), "-p"];
        let next = run(&source, &[&arguments[..], &[&tip.to_string(), "-m", &round.to_string()]].concat(), b"");
        let next: Oid = next.trim().parse().expect("an id");
        let incoming = place.repositories.quarantine(&project()).expect("a quarantine");
        let mut child = incoming.index_pack(None).spawn().expect("git starts");
        let sent = pack_objects(&source, &format!("{next}\n"));
        child.stdin.take().expect("a pipe").write_all(&sent).expect("written");
        assert!(child.wait_with_output().expect("git ends").status.success());
        assert_eq!(incoming.repository().expect("open").peel(next).expect("read"), Some(Peeled::Commit(next)));
        let changes = [change("refs/heads/main", Some(tip), Some(next))];
        place.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
        let repository = place.repositories.find(&project()).expect("open").expect("there");
        assert_eq!(repository.commits_beyond(next, &[], 1).expect("read").1, round + 2);
        if round < 32 {
            assert_eq!(reader.peel(next).expect("read"), Some(Peeled::Commit(next)));
        }
        tip = next;
    }
    let later = Repositories::beside(&place.folder.path().join("repositories"));
    let repository = later.find(&project()).expect("open").expect("there");
    assert_eq!(repository.commits_beyond(tip, &[], 1).expect("read").1, 111);
}

fn pack(folder: &Path, revisions: &str, options: &[&str]) -> Vec<u8> {
    let arguments = [&["pack-objects", "--revs", "--stdout", "-q"], options].concat();
    bytes(folder, &arguments, revisions)
}

fn pack_objects(folder: &Path, ids: &str) -> Vec<u8> {
    bytes(folder, &["pack-objects", "--stdout", "-q"], ids)
}

fn bytes(folder: &Path, arguments: &[&str], input: &str) -> Vec<u8> {
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
fn a_copy_has_the_refs_and_the_objects_and_shares_no_future() {
    let place = place();
    let first = place.begin();
    let hidden = change("refs/gable/keep/1", None, Some(first));
    place.repositories.apply(&project(), None, &[hidden], None).expect("applied");
    place.repositories.copy(&project(), &at(8)).expect("copied");
    let copy = place.repositories.find(&at(8)).expect("open").expect("there");
    let names: Vec<String> = copy.refs().expect("refs").iter().map(|found| found.name.to_string()).collect();
    assert_eq!(names, ["refs/heads/main"]);
    assert_eq!(copy.default_branch().expect("read").map(|name| name.to_string()), Some("refs/heads/main".into()));
    run(copy.path(), &["fsck", "--strict", "--full"], b"");
    place.repositories.remove(&project()).expect("removed");
    place.repositories.empty_trash().expect("emptied");
    assert!(place.repositories.find(&project()).expect("read").is_none());
    assert_eq!(run(copy.path(), &["show", "main:a.txt"], b""), "one\n");
    // Done again it changes nothing, and of nothing nothing is copied.
    place.repositories.copy(&project(), &at(8)).expect("nothing to do");
    place.repositories.copy(&at(99), &at(100)).expect("nothing to do");
    assert!(place.repositories.find(&at(100)).expect("read").is_none());
}

#[test]
fn housekeeping_packs_what_lies_about_and_keeps_all_of_it() {
    let place = place();
    let mut tip = place.begin();
    for round in 0..70 {
        let incoming = place.repositories.quarantine(&project()).expect("a quarantine");
        let next = commit(&incoming, Some(tip), vec![create(&format!("f{round}"), &round.to_string())]);
        let changes = [
            change("refs/heads/main", Some(tip), Some(next)),
            change(&format!("refs/tags/t{round}"), None, Some(next)),
        ];
        place.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
        tip = next;
    }
    let refs = place.refs();
    let before = place.git(&["rev-list", "--objects", "--all"]).lines().count();
    assert!(place.repositories.keep_house(&project()).expect("done"));
    assert_eq!(place.refs(), refs);
    assert_eq!(place.git(&["rev-list", "--objects", "--all"]).lines().count(), before);
    place.git(&["fsck", "--strict", "--full"]);
    assert!(place.path().join("packed-refs").exists());
    assert!(place.path().join("objects/info/commit-graphs").exists());
    assert!(place.git(&["count-objects", "-v"]).starts_with("count: 0\n"));
    let repository = place.repositories.find(&project()).expect("open").expect("there");
    assert_eq!(repository.commits_beyond(tip, &[], 1).expect("read").1, 71);
    // Not while somebody else is at it.
    let lock = fs::File::options().write(true).open(place.path().join("house.lock")).expect("a lock");
    lock.lock().expect("locked");
    assert!(!place.repositories.keep_house(&project()).expect("left alone"));
    drop(lock);
    assert!(place.repositories.keep_house(&project()).expect("done again"));
    assert!(place.repositories.keep_house(&at(99)).expect("nothing to do"));
}

#[test]
fn what_a_start_finds_unfinished_is_thrown_away() {
    let place = place();
    place.begin();
    let root = place.folder.path().join("repositories");
    fs::create_dir(root.join("tmp/in-left")).expect("a folder");
    fs::write(root.join("tmp/in-left/pack"), "half").expect("written");
    let again = Repositories::in_folder(&root).expect("a place");
    assert_eq!(fs::read_dir(root.join("tmp")).expect("a folder").count(), 0);
    assert!(again.find(&project()).expect("read").is_some());
    assert!(again.find(&at(8)).expect("read").is_none());
}

#[test]
fn whoever_reads_while_the_house_is_kept_finds_everything() {
    let place = place();
    let mut tip = place.begin();
    let mut tips = vec![tip];
    for round in 0..12 {
        let incoming = place.repositories.quarantine(&project()).expect("a quarantine");
        let next = commit(&incoming, Some(tip), vec![create(&format!("f{round}"), &round.to_string())]);
        let changes = [change("refs/heads/main", Some(tip), Some(next))];
        place.repositories.apply(&project(), Some(&incoming), &changes, None).expect("applied");
        // A pack for each, as pushes bring them.
        place.git(&["repack", "-d", "-q"]);
        tip = next;
        tips.push(next);
    }
    let before = place.repositories.find(&project()).expect("open").expect("there");
    assert!(before.commit(tips[0]).expect("read").is_some());
    let also = place.repositories.find(&project()).expect("open").expect("there");
    // Behind the back of both handles: their packs are gone.
    place.git(&["repack", "-a", "-d", "-q", "--write-midx"]);
    for (round, tip) in tips.iter().enumerate() {
        assert!(before.commit(*tip).expect("read").is_some(), "{round}");
        assert_eq!(
            also.tree(*tip, "", false, model::Page::whole()).expect("read").total,
            2 + i64::try_from(round).expect("few")
        );
    }
}

#[test]
fn what_was_removed_is_not_brought_back_by_whoever_packs_refs() {
    let place = place();
    let first = place.begin();
    for round in 0..20 {
        let names: Vec<String> = (0..200).map(|number| format!("refs/heads/r{round}-{number}")).collect();
        let made: Vec<RefChange> = names.iter().map(|name| change(name, None, Some(first))).collect();
        place.repositories.apply(&project(), None, &made, None).expect("applied");
        let folder = place.path();
        let packing = std::thread::spawn(move || run(&folder, &["pack-refs", "--all"], b""));
        for name in names.iter().take(5) {
            let removed = [change(name, Some(first), None)];
            place.repositories.apply(&project(), None, &removed, None).expect("removed");
        }
        packing.join().expect("packed");
        let left = place.refs();
        assert!(names.iter().take(5).all(|name| !left.contains(name)), "round {round}");
        let rest: Vec<RefChange> = names.iter().skip(5).map(|name| change(name, Some(first), None)).collect();
        place.repositories.apply(&project(), None, &rest, None).expect("removed");
    }
    assert_eq!(place.refs(), ["refs/heads/main"]);
}

#[test]
fn a_lock_of_somebody_who_is_at_work_is_not_taken_away() {
    let place = place();
    let first = place.begin();
    let lock = place.path().join("packed-refs.lock");
    fs::write(&lock, "").expect("written");
    let house = fs::File::options().write(true).create(true).truncate(false).open(place.path().join("house.lock"));
    let house = house.expect("a lock");
    house.lock().expect("locked");
    let repositories = place.repositories.clone();
    let asked = std::thread::spawn(move || {
        repositories.which_happened(&project(), &[change("refs/heads/main", None, Some(first))]).expect("told")
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(lock.exists(), "whoever keeps the house still needs it");
    drop(house);
    assert_eq!(asked.join().expect("answered"), [true]);
    assert!(!lock.exists(), "nobody is there who could");
}
