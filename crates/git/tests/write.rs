//! Writing: received objects are complete, refused ones leave nothing behind, and the folder of a repository follows the
//! lists of packs and refs that it is given.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use git::{
    EditError, Error, FileEdit, LocalPack, OtherPacks, PackEntry, PackSize, PackSource, Peeled, Quarantine, Ref, Refs,
    Repack, Repositories, Repository, Unreachable,
};
use model::{Oid, PackContent, RefName, StorageId, objects::Signature};
use tempfile::TempDir;

fn storage_id(number: i64) -> StorageId {
    StorageId::parse(&number.to_string()).expect("a storage id")
}

fn project() -> StorageId {
    storage_id(7)
}

/// The folders of repositories, with a folder in place of the store of files, and the state of one repository in place of
/// the database.
struct Sandbox {
    folder: TempDir,
    repositories: Repositories,
    packs: RefCell<Vec<(PackEntry, PackSize)>>,
    refs: RefCell<BTreeMap<RefName, Oid>>,
    generation: Cell<i64>,
}

fn sandbox() -> Sandbox {
    let folder = tempfile::tempdir().expect("a folder");
    let repositories = Repositories::open_folder(&folder.path().join("repositories")).expect("repositories");
    fs::create_dir(folder.path().join("store")).expect("a folder");
    Sandbox { folder, repositories, packs: RefCell::default(), refs: RefCell::default(), generation: Cell::new(0) }
}

impl PackSource for Sandbox {
    fn fetch(&self, key: &str, extension: &str, to: &Path) -> io::Result<bool> {
        match fs::hard_link(self.folder.path().join(format!("store/{key}.{extension}")), to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            linked => linked.map(|()| true),
        }
    }

    fn read(&self, key: &str) -> io::Result<Option<PackContent>> {
        let read = |extension| match fs::read(self.folder.path().join(format!("store/{key}.{extension}"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            content => content.map(Some),
        };
        Ok(read("pack")?.zip(read("idx")?).map(|(pack, index)| PackContent { pack, index }))
    }
}

fn author() -> Signature {
    Signature { name: "Ann <x>\n".into(), email: "ann@example.com".into(), seconds: 1_422_824_191, offset: 3600 }
}

fn name(name: &str) -> RefName {
    RefName::new(name).expect("a name")
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
        let incoming = self.quarantine();
        let first = commit(&incoming, None, vec![create("a.txt", "one\n"), create("dir/b.txt", "two\n")]);
        self.accept(&incoming, &[("refs/heads/main", Some(first))]);
        first
    }

    fn quarantine(&self) -> Quarantine {
        self.repositories.quarantine(&project())
    }

    /// Stores the packs of a push and updates refs.
    fn accept(&self, incoming: &Quarantine, refs: &[(&str, Option<Oid>)]) {
        let packs = incoming.packs().expect("packs");
        self.packs.borrow_mut().extend(packs.iter().map(|pack| self.store(pack)));
        self.set_refs(refs);
        self.link_packs().expect("linked");
    }

    fn set_refs(&self, refs: &[(&str, Option<Oid>)]) {
        for (ref_name, target) in refs {
            match target {
                Some(target) => drop(self.refs.borrow_mut().insert(name(ref_name), *target)),
                None => drop(self.refs.borrow_mut().remove(&name(ref_name))),
            }
        }
        self.generation.set(self.generation.get() + 1);
    }

    fn store(&self, pack: &LocalPack) -> (PackEntry, PackSize) {
        let (checksum, objects) = (pack.checksum, pack.objects);
        let key = format!("{checksum}-{}", self.generation.get());
        let stored = |extension: &str| self.folder.path().join(format!("store/{key}.{extension}"));
        for (extension, path) in pack.files() {
            fs::hard_link(path, stored(extension)).expect("linked");
        }
        let has_files = pack.files().next().is_some();
        if !has_files {
            let content = pack.small_content().expect("readable").expect("a small pack");
            fs::write(stored("pack"), content.pack).expect("written");
            fs::write(stored("idx"), content.index).expect("written");
        }
        (PackEntry { key, checksum, has_files }, PackSize { checksum, objects })
    }

    /// Replaces packs as maintenance does once the grace period of the old ones is over.
    fn replace(&self, repack: &Repack) {
        self.generation.set(self.generation.get() + 1);
        self.packs.borrow_mut().retain(|(pack, _)| !repack.replaced.contains(&pack.checksum));
        let new = repack.packs.iter().chain(&repack.unreachable);
        self.packs.borrow_mut().extend(new.map(|pack| self.store(pack)));
        self.link_packs().expect("linked");
    }

    fn link_packs(&self) -> git::Result<()> {
        let packs: Vec<PackEntry> = self.packs.borrow().iter().map(|(pack, _)| pack.clone()).collect();
        self.repositories.link_packs(&project(), &packs, self, OtherPacks::RemoveExcept(&[]))
    }

    fn pack_sizes(&self) -> Vec<PackSize> {
        self.packs.borrow().iter().map(|(_, size)| *size).collect()
    }

    fn refs(&self) -> Arc<Refs> {
        let refs = self.refs.borrow();
        let refs = refs.iter().map(|(name, target)| Ref { name: name.clone(), target: *target, peeled: None });
        Arc::new(Refs::from_sorted(self.generation.get(), Some(name("refs/heads/main")), refs))
    }

    fn open(&self) -> Repository {
        self.repositories.open(&project(), self.refs()).expect("open")
    }

    /// Returns the folder of the repository, with its current refs.
    fn path(&self) -> PathBuf {
        self.repositories.write_refs(&project(), &self.refs()).expect("written");
        self.repositories.path_of(&project())
    }

    fn git(&self, arguments: &[&str]) -> String {
        run(&self.path(), arguments, b"")
    }

    /// Returns the names of the refs that git sees.
    fn ref_names(&self) -> Vec<String> {
        let text = self.git(&["for-each-ref", "--format=%(refname)"]);
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Returns the names of the packs in the folder.
    fn pack_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join("objects/pack")).expect("a folder").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
        names.retain(|name| name.ends_with(".pack"));
        names.sort();
        names
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
    let incoming = sandbox.quarantine();
    let edits = vec![
        FileEdit::Move { from: "a.txt".into(), path: "new/a.txt".into(), content: None },
        FileEdit::Update { path: "new/a.txt".into(), content: b"three\n".to_vec() },
        FileEdit::Delete { path: "dir/b.txt".into() },
        FileEdit::Put { path: "-x".into(), content: b"odd\n".to_vec() },
    ];
    let second = commit(&incoming, Some(first), edits);
    sandbox.accept(&incoming, &[("refs/heads/main", Some(second))]);
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
        let incoming = sandbox.quarantine();
        let refused = incoming.commit(Some(first), vec![edit], "x", &author(), &author()).expect("no error");
        assert_eq!(refused, Err(expected));
    }
    let nothing = sandbox.repositories.quarantine(&storage_id(8));
    let edit = FileEdit::Update { path: path("x"), content: content() };
    assert_eq!(nothing.commit(None, vec![edit], "x", &author(), &author()).expect("fine"), Err(EditError::Empty));
    assert_eq!(sandbox.git(&["count-objects", "-v"]), before);
    assert_eq!(fs::read_dir(sandbox.folder.path().join("repositories/tmp")).expect("a folder").count(), 0);
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
    let incoming = sandbox.quarantine();
    let through = FileEdit::Put { path: "link/passwd".into(), content: b"x".to_vec() };
    let refused = incoming.commit(Some(parent), vec![through], "x", &author(), &author()).expect("no error");
    assert_eq!(refused, Err(EditError::Exists("link/passwd".into())));
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
        let incoming = sandbox.quarantine();
        let mut child = incoming.index_pack(None).expect("a folder").spawn().expect("git starts");
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
    // It is not visible before it is stored.
    assert_eq!(sandbox.open().peel(second).expect("read"), None);
    sandbox.accept(&incoming, &[("refs/heads/main", Some(second))]);
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
    let reader = sandbox.open();
    for round in 0..110 {
        let arguments = ["-c", "user.name=x", "-c", "user.email=x", "commit-tree", tree.trim(), "-p"];
        let next = run(&source, &[&arguments[..], &[&tip.to_string(), "-m", &round.to_string()]].concat(), b"");
        let next: Oid = next.trim().parse().expect("an id");
        let incoming = sandbox.quarantine();
        let mut child = incoming.index_pack(None).expect("a folder").spawn().expect("git starts");
        let sent = pack_objects(&source, &format!("{next}\n"));
        child.stdin.take().expect("a pipe").write_all(&sent).expect("written");
        assert!(child.wait_with_output().expect("git ends").status.success());
        assert_eq!(incoming.repository().expect("open").peel(next).expect("read"), Some(Peeled::Commit(next)));
        sandbox.accept(&incoming, &[("refs/heads/main", Some(next))]);
        let repository = sandbox.open();
        assert_eq!(repository.commits_excluding(next, &[], 1).expect("read").1, round + 2);
        if round < 32 {
            assert_eq!(reader.peel(next).expect("read"), Some(Peeled::Commit(next)));
        }
        tip = next;
    }
    let later = Repositories::attach(&sandbox.folder.path().join("repositories"));
    let repository = later.open(&project(), sandbox.refs()).expect("open");
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
fn a_folder_has_the_listed_packs_and_no_others() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let incoming = sandbox.quarantine();
    let second = commit(&incoming, Some(first), vec![create("c", "three\n")]);
    sandbox.accept(&incoming, &[("refs/heads/main", Some(second))]);
    let all = sandbox.pack_names();
    assert_eq!(all.len(), 2);
    // A pack that is not listed is removed, and linked again when it is.
    let last = sandbox.packs.borrow_mut().pop().expect("two packs");
    sandbox.link_packs().expect("linked");
    assert_eq!(sandbox.pack_names().len(), 1);
    assert_eq!(sandbox.open().peel(second).expect("read"), None);
    sandbox.packs.borrow_mut().push(last.clone());
    sandbox.link_packs().expect("linked");
    assert_eq!(sandbox.pack_names(), all);
    assert_eq!(sandbox.open().peel(second).expect("read"), Some(Peeled::Commit(second)));
    // The folder is a cache, which can be deleted.
    sandbox.repositories.remove(&project()).expect("removed");
    sandbox.repositories.empty_trash().expect("emptied");
    sandbox.link_packs().expect("linked");
    assert_eq!(sandbox.pack_names(), all);
    sandbox.git(&["fsck", "--strict", "--full"]);
    assert_eq!(sandbox.git(&["show", "main:c"]), "three\n");
    // A pack that was replaced stays, and need not exist.
    let live: Vec<PackEntry> = sandbox.packs.borrow().iter().take(1).map(|(pack, _)| pack.clone()).collect();
    let replaced = OtherPacks::RemoveExcept(std::slice::from_ref(&last.0.checksum));
    let link_live = || sandbox.repositories.link_packs(&project(), &live, &sandbox, replaced).expect("linked");
    link_live();
    assert_eq!(sandbox.pack_names(), all);
    sandbox.repositories.remove(&project()).expect("removed");
    link_live();
    assert_eq!(sandbox.pack_names().len(), 1);
    // A missing pack is named.
    fs::remove_file(sandbox.folder.path().join(format!("store/{}.pack", last.0.key))).expect("removed");
    sandbox.repositories.remove(&project()).expect("removed");
    let error = sandbox.link_packs().expect_err("a pack is missing");
    assert!(matches!(&error, Error::MissingPack(key) if *key == last.0.key), "{error}");
}

#[test]
fn small_packs_that_a_power_cut_has_damaged_are_written_again() {
    let mut sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let incoming = sandbox.quarantine();
    let second = commit(&incoming, Some(first), vec![create("c", "three\n")]);
    sandbox.accept(&incoming, &[("refs/heads/main", Some(second))]);
    let packs: Vec<PackEntry> = sandbox.packs.borrow().iter().map(|(pack, _)| pack.clone()).collect();
    assert!(packs.iter().all(|pack| !pack.has_files));
    let folder = sandbox.repositories.path_of(&project()).join("objects/pack");
    for (pack, extension, content) in [(0, "pack", ""), (1, "idx", "\0\0\0\0")] {
        let path = folder.join(format!("pack-{}.{extension}", packs[pack].checksum));
        fs::remove_file(&path).expect("removed");
        fs::write(&path, content).expect("written");
        // The folder of the quarantine may not be removed yet, so the number of links does not matter.
        let _ = fs::remove_file(sandbox.folder.path().join("link"));
        fs::hard_link(path, sandbox.folder.path().join("link")).expect("linked");
        // After a restart.
        sandbox.repositories = Repositories::open_folder(sandbox.repositories.root()).expect("repositories");
        sandbox.link_packs().expect("linked");
        sandbox.git(&["fsck", "--strict", "--full"]);
        assert_eq!(sandbox.git(&["show", "main:c"]), "three\n");
    }
    // A replaced pack is not needed, so a damaged one is removed.
    let path = folder.join(format!("pack-{}.idx", packs[1].checksum));
    fs::remove_file(&path).expect("removed");
    fs::write(path, "").expect("written");
    let repositories = Repositories::open_folder(sandbox.repositories.root()).expect("repositories");
    let replaced = [packs[1].checksum];
    let replaced = OtherPacks::RemoveExcept(&replaced);
    repositories.link_packs(&project(), &packs[..1], &sandbox, replaced).expect("linked");
    assert_eq!(sandbox.pack_names(), [format!("pack-{}.pack", packs[0].checksum)]);
}

#[test]
fn repositories_can_have_the_same_packs_and_do_not_depend_on_each_other() {
    let sandbox = sandbox();
    sandbox.create_first_commit();
    let packs: Vec<PackEntry> = sandbox.packs.borrow().iter().map(|(pack, _)| pack.clone()).collect();
    let other = storage_id(8);
    sandbox.repositories.link_packs(&other, &packs, &sandbox, OtherPacks::RemoveExcept(&[])).expect("linked");
    sandbox.repositories.write_refs(&other, &sandbox.refs()).expect("written");
    sandbox.repositories.remove(&project()).expect("removed");
    sandbox.repositories.empty_trash().expect("emptied");
    assert!(!sandbox.repositories.path_of(&project()).exists());
    let path = sandbox.repositories.path_of(&other);
    run(&path, &["fsck", "--strict", "--full"], b"");
    assert_eq!(run(&path, &["show", "main:a.txt"], b""), "one\n");
}

#[test]
fn git_programs_see_the_refs_of_the_newest_generation() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let before = sandbox.refs();
    sandbox.set_refs(&[("refs/heads/main", None), ("refs/heads/a/b", Some(first)), ("refs/tags/v1", Some(first))]);
    assert_eq!(sandbox.ref_names(), ["refs/heads/a/b", "refs/tags/v1"]);
    // A reader with an older snapshot of the database does not bring old refs back.
    sandbox.repositories.write_refs(&project(), &before).expect("nothing to do");
    assert_eq!(sandbox.ref_names(), ["refs/heads/a/b", "refs/tags/v1"]);
    // Loose refs of a git program, or of an earlier version, do not hide the written ones.
    let path = sandbox.path();
    run(&path, &["update-ref", "refs/heads/left", &first.to_string()], b"");
    sandbox.set_refs(&[("refs/heads/a/b", None), ("refs/heads/a", Some(first)), ("refs/heads/main", Some(first))]);
    assert_eq!(sandbox.ref_names(), ["refs/heads/a", "refs/heads/main", "refs/tags/v1"]);
    assert_eq!(fs::read_to_string(path.join("HEAD")).expect("a file"), "ref: refs/heads/main\n");
    // A tag leads to its commit.
    let incoming = sandbox.quarantine();
    let tag = incoming.write_tag(&name("refs/tags/v2"), first, "A tag", &author()).expect("written");
    sandbox.accept(&incoming, &[]);
    let v2 = Ref { name: name("refs/tags/v2"), target: tag, peeled: Some(first) };
    let refs = Refs::from_sorted(sandbox.generation.get(), None, [v2]);
    sandbox.repositories.write_refs(&project(), &refs).expect("written");
    assert_eq!(run(&path, &["show-ref", "-d"], b""), format!("{tag} refs/tags/v2\n{first} refs/tags/v2^{{}}\n"));
}

#[test]
fn small_packs_are_combined_and_indexed_without_losing_objects() {
    let sandbox = sandbox();
    let mut tip = sandbox.create_first_commit();
    for round in 0..70 {
        let incoming = sandbox.quarantine();
        let next = commit(&incoming, Some(tip), vec![create(&format!("f{round}"), &round.to_string())]);
        sandbox.accept(&incoming, &[("refs/heads/main", Some(next)), (&format!("refs/tags/t{round}"), Some(next))]);
        tip = next;
    }
    assert_eq!(sandbox.pack_names().len(), 71);
    let refs = sandbox.ref_names();
    let before = sandbox.git(&["rev-list", "--objects", "--all"]).lines().count();
    let combined = sandbox.repositories.combine_packs(&project(), &sandbox.pack_sizes()).expect("done");
    sandbox.replace(&combined.expect("71 packs are too many"));
    sandbox.repositories.build_indexes(&project(), &sandbox.refs(), &sandbox.pack_sizes()).expect("indexed");
    assert_eq!(sandbox.pack_names().len(), 1);
    assert_eq!(sandbox.ref_names(), refs);
    assert_eq!(sandbox.git(&["rev-list", "--objects", "--all"]).lines().count(), before);
    sandbox.git(&["fsck", "--strict", "--full"]);
    sandbox.git(&["multi-pack-index", "verify"]);
    sandbox.git(&["commit-graph", "verify"]);
    assert!(sandbox.path().join("objects/info/commit-graphs/commit-graph-chain").exists());
    let files = fs::read_dir(sandbox.path().join("objects/pack")).expect("a folder").flatten();
    let bitmaps = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "bitmap"));
    assert_eq!(bitmaps.count(), 1);
    assert_eq!(sandbox.open().commits_excluding(tip, &[], 1).expect("read").1, 71);
    let again = sandbox.repositories.combine_packs(&project(), &sandbox.pack_sizes()).expect("done");
    assert!(again.is_none(), "one pack is not combined");
    assert_eq!(fs::read_dir(sandbox.folder.path().join("repositories/tmp")).expect("a folder").count(), 0);
}

#[test]
fn unreachable_objects_are_separated_and_dropped() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let incoming = sandbox.quarantine();
    let secret = commit(&incoming, Some(first), vec![create("secret", "secret\n")]);
    sandbox.accept(&incoming, &[("refs/heads/leak", Some(secret))]);
    sandbox.set_refs(&[("refs/heads/leak", None)]);
    let repack = |unreachable| {
        let sizes = sandbox.pack_sizes();
        sandbox.repositories.repack_reachable(&project(), &sandbox.refs(), &sizes, unreachable).expect("done")
    };
    sandbox.replace(&repack(Unreachable::Separate).expect("there are two packs"));
    let mut objects: Vec<u64> = sandbox.pack_sizes().iter().map(|pack| pack.objects).collect();
    objects.sort_unstable();
    assert_eq!(objects, [3, 5], "a blob, a tree and a commit are unreachable");
    assert_eq!(sandbox.open().peel(secret).expect("read"), Some(Peeled::Commit(secret)));
    sandbox.replace(&repack(Unreachable::Drop).expect("there are unreachable objects"));
    assert_eq!(sandbox.pack_names().len(), 1);
    assert_eq!(sandbox.open().peel(secret).expect("read"), None);
    assert_eq!(sandbox.open().peel(first).expect("read"), Some(Peeled::Commit(first)));
    sandbox.git(&["fsck", "--strict", "--full"]);
    assert!(repack(Unreachable::Drop).is_none(), "everything is reachable");
    // The last ref is removed.
    sandbox.set_refs(&[("refs/heads/main", None)]);
    sandbox.replace(&repack(Unreachable::Drop).expect("nothing is reachable"));
    assert_eq!(sandbox.pack_names(), Vec::<String>::new());
}

#[test]
fn unfinished_work_is_deleted_at_start() {
    let sandbox = sandbox();
    let first = sandbox.create_first_commit();
    let root = sandbox.folder.path().join("repositories");
    fs::create_dir(root.join("tmp/in-left")).expect("a folder");
    fs::write(root.join("tmp/in-left/pack"), "half").expect("written");
    let again = Repositories::open_folder(&root).expect("repositories");
    assert_eq!(fs::read_dir(root.join("tmp")).expect("a folder").count(), 0);
    let repository = again.open(&project(), sandbox.refs()).expect("open");
    assert_eq!(repository.peel(first).expect("read"), Some(Peeled::Commit(first)));
}

#[test]
fn readers_find_everything_while_packs_are_replaced() {
    let sandbox = sandbox();
    let mut tip = sandbox.create_first_commit();
    let mut tips = vec![tip];
    for round in 0..12 {
        let incoming = sandbox.quarantine();
        let next = commit(&incoming, Some(tip), vec![create(&format!("f{round}"), &round.to_string())]);
        sandbox.accept(&incoming, &[("refs/heads/main", Some(next))]);
        tip = next;
        tips.push(next);
    }
    let before = sandbox.open();
    assert!(before.commit(tips[0]).expect("read").is_some());
    let unaffected = sandbox.open();
    // The packs of both open handles are removed.
    let combined = sandbox.repositories.combine_packs(&project(), &sandbox.pack_sizes()).expect("done");
    sandbox.replace(&combined.expect("13 packs are too many"));
    sandbox.repositories.build_indexes(&project(), &sandbox.refs(), &sandbox.pack_sizes()).expect("indexed");
    assert_eq!(sandbox.pack_names().len(), 1);
    for (round, tip) in tips.iter().enumerate() {
        assert!(before.commit(*tip).expect("read").is_some(), "{round}");
        assert_eq!(
            unaffected.tree(*tip, "", false, model::Page::whole()).expect("read").total,
            model::Total::Exact(2 + i64::try_from(round).expect("few"))
        );
    }
}
