//! Refs and tags.

use std::{
    fs,
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::RefName;

use super::{Fixture, HistoryBuilder, file};
use crate::{
    Refs,
    snapshot::{MAX_CACHED_BYTES, register_cached},
};

fn names(refs: &[crate::Ref]) -> Vec<&str> {
    refs.iter().map(|item| item.name.as_str()).collect()
}

/// Formats all refs like `git show-ref --dereference`.
fn as_git_shows(refs: &Refs) -> Vec<String> {
    let lines = refs.iter().flat_map(|item| {
        let peeled = item.peeled.map(|id| format!("{id} {}^{{}}", item.name));
        [Some(format!("{} {}", item.target, item.name)), peeled]
    });
    lines.flatten().collect()
}

/// Peels tags of tags to the end in every supported version of git; `%(*objectname)` of `for-each-ref` does so since
/// 2.45 only.
const SHOW_REFS: [&str; 2] = ["show-ref", "--dereference"];

fn one_commit() -> Fixture {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n")]);
    Fixture::with(history)
}

/// Makes everything below `refs/` look unchanged for a minute.
fn make_old(fixture: &Fixture) {
    touch(fixture, SystemTime::now() - Duration::from_secs(60));
}

/// Sets the modification time of everything below `refs/`.
fn touch(fixture: &Fixture, time: SystemTime) {
    let mut waiting = vec![fixture.path().join("refs")];
    let files = ["HEAD", "packed-refs"].map(|name| fixture.path().join(name));
    let set = |path: &std::path::Path| fs::File::open(path).and_then(|file| file.set_modified(time));
    files.iter().filter(|path| path.exists()).for_each(|path| set(path).expect("set"));
    while let Some(folder) = waiting.pop() {
        set(&folder).expect("set");
        for entry in fs::read_dir(&folder).expect("read").map(|entry| entry.expect("an entry")) {
            if entry.file_type().expect("a kind").is_dir() {
                waiting.push(entry.path());
            }
        }
    }
}

#[test]
fn an_empty_repository_has_a_head_and_no_refs() {
    let fixture = Fixture::new();
    let refs = fixture.open().refs().expect("refs");
    assert_eq!(refs.head, RefName::branch("main"));
    assert_eq!(refs.iter().count(), 0);
    assert_eq!(fixture.open().resolve("HEAD").expect("resolved"), None);
}

#[test]
fn refs_equal_those_of_git_whether_loose_or_packed() {
    let fixture = one_commit();
    for name in ["refs/heads/b", "refs/heads/a.b", "refs/heads/a/c", "refs/notes/x", "refs/zoo/x", "refs/ideas/x"] {
        fixture.git(&["update-ref", name, "main"]);
    }
    fixture.git(&["tag", "light", "main"]);
    fixture.git(&["tag", "-a", "-m", "text", "heavy", "main"]);
    fixture.git(&["tag", "-a", "-m", "of a tag", "heavier", "heavy"]);
    fixture.git(&["tag", "tree", "main^{tree}"]);
    let loose = as_git_shows(&fixture.reopen().refs().expect("refs"));
    assert_eq!(loose, fixture.git_lines(&SHOW_REFS));
    assert_eq!(loose.len(), 13, "eleven refs, two of them tags that are peeled");
    fixture.git(&["pack-refs", "--all"]);
    assert_eq!(as_git_shows(&fixture.reopen().refs().expect("refs")), loose);
    // Loose refs take precedence over packed ones.
    fixture.git(&["update-ref", "refs/heads/b", &fixture.git(&["commit-tree", "-m", "new", "main^{tree}"])]);
    fixture.git(&["tag", "-a", "-m", "later", "later", "main"]);
    let both = as_git_shows(&fixture.reopen().refs().expect("refs"));
    assert_eq!(both, fixture.git_lines(&SHOW_REFS));
    let refs = fixture.reopen().refs().expect("refs");
    assert_eq!(names(&refs.branches), ["refs/heads/a.b", "refs/heads/a/c", "refs/heads/b", "refs/heads/main"]);
    assert_eq!(names(&refs.others), ["refs/ideas/x", "refs/notes/x", "refs/zoo/x"]);
}

#[test]
fn packed_refs_without_peeled_targets_are_peeled() {
    let fixture = one_commit();
    fixture.git(&["tag", "-a", "-m", "text", "heavy", "main"]);
    let packed = format!("{} refs/tags/heavy\n", fixture.id("heavy"));
    fixture.git(&["update-ref", "-d", "refs/tags/heavy"]);
    fs::write(fixture.path().join("packed-refs"), packed).expect("written");
    let refs = fixture.open().refs().expect("refs");
    assert_eq!(refs.tags[0].peeled, Some(fixture.id("main")));
}

#[test]
fn hidden_refs_are_neither_listed_nor_resolved() {
    let fixture = one_commit();
    fixture.git(&["update-ref", "refs/gable/keep/1", "main"]);
    for _ in 0..2 {
        let repository = fixture.reopen();
        assert_eq!(repository.refs().expect("refs").iter().count(), 1);
        for name in ["refs/gable/keep/1", "gable/keep/1"] {
            assert_eq!(repository.resolve(name).expect("resolved"), None, "{name}");
        }
        fixture.git(&["pack-refs", "--all"]);
    }
}

#[test]
fn invalid_refs_are_ignored() {
    let fixture = one_commit();
    let heads = fixture.path().join("refs/heads");
    let id = fixture.id("main").to_string();
    fs::write(heads.join("empty"), "").expect("written");
    fs::write(heads.join("short"), &id[..20]).expect("written");
    fs::write(heads.join("bytes"), b"\xff\xfe").expect("written");
    fs::write(heads.join("long"), id.repeat(100)).expect("written");
    fs::write(heads.join("-flag"), &id).expect("written");
    fs::write(heads.join("x.lock"), &id).expect("written");
    fs::write(heads.join("HEAD"), &id).expect("written");
    std::os::unix::fs::symlink(heads.join("main"), heads.join("linked")).expect("linked");
    fs::write(fixture.path().join("refs/tags/gone"), Fixture::new().path().to_string_lossy().len().to_string())
        .expect("written");
    fs::write(fixture.path().join("refs/tags/missing"), "1".repeat(40)).expect("written");
    let packed =
        format!("# pack-refs with: peeled fully-peeled sorted \n{id} refs/heads/-x\nnonsense\n{id} refs/heads/good\n");
    fs::write(fixture.path().join("packed-refs"), packed).expect("written");
    let repository = fixture.open();
    let refs = repository.refs().expect("refs");
    assert_eq!(names(&refs.branches), ["refs/heads/good", "refs/heads/main"]);
    assert_eq!(names(&refs.tags), ["refs/tags/missing"], "its target is not looked up");
    assert_eq!(refs.tags[0].peeled, None);
    let tag = repository.tag(&refs.tags[0]).expect("a tag");
    assert_eq!((tag.message, tag.commit), (None, None));
    assert_eq!(repository.resolve("missing").expect("resolved"), None);
}

#[test]
fn symbolic_refs_are_resolved() {
    let fixture = one_commit();
    fixture.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main"]);
    fixture.git(&["symbolic-ref", "refs/remotes/origin/again", "refs/remotes/origin/HEAD"]);
    fixture.git(&["symbolic-ref", "refs/remotes/origin/loop", "refs/remotes/origin/loop"]);
    fixture.git(&["symbolic-ref", "refs/remotes/origin/nowhere", "refs/heads/none"]);
    let refs = fixture.open().refs().expect("refs");
    assert_eq!(names(&refs.others), ["refs/remotes/origin/HEAD", "refs/remotes/origin/again"]);
    assert!(refs.others.iter().all(|item| item.target == fixture.id("main")));
}

#[test]
fn a_snapshot_is_cached_until_a_ref_changes() {
    let fixture = one_commit();
    fixture.git(&["update-ref", "refs/heads/a/b", "main"]);
    fixture.git(&["pack-refs", "--all"]);
    fixture.git(&["update-ref", "refs/heads/a/c", "main"]);
    make_old(&fixture);
    let repository = fixture.open();
    let mut last = repository.refs().expect("refs");
    assert!(Arc::ptr_eq(&last, &repository.refs().expect("refs")), "nothing has changed");
    let other = fixture.git(&["commit-tree", "-m", "other", "main^{tree}"]);
    let changes: [&[&str]; 6] = [
        &["update-ref", "refs/heads/a/c", &other],
        &["update-ref", "refs/heads/new/deep/one", "main"],
        &["update-ref", "-d", "refs/heads/a/b"],
        &["symbolic-ref", "HEAD", "refs/heads/other"],
        &["pack-refs", "--all"],
        &["tag", "-a", "-m", "text", "v1", "main"],
    ];
    for change in changes {
        fixture.git(change);
        let now = repository.refs().expect("refs");
        assert!(!Arc::ptr_eq(&last, &now), "{change:?}");
        assert_eq!(as_git_shows(&now), fixture.git_lines(&SHOW_REFS), "{change:?}");
        // However slow the machine is, this looks like a recent change.
        touch(&fixture, SystemTime::now() + Duration::from_secs(600));
        let now = repository.refs().expect("refs");
        assert!(!Arc::ptr_eq(&now, &repository.refs().expect("refs")), "{change:?} is too young to be trusted");
        make_old(&fixture);
        let now = repository.refs().expect("refs");
        assert!(Arc::ptr_eq(&now, &repository.refs().expect("refs")), "{change:?}: the snapshot is used");
        last = now;
    }
    assert_eq!(last.head, RefName::branch("other"));
    repository.invalidate_refs();
    assert!(!Arc::ptr_eq(&last, &repository.refs().expect("refs")), "it was invalidated");
}

#[test]
fn large_snapshots_are_evicted_when_all_of_them_are_too_large() {
    let (one, other) = (one_commit(), one_commit());
    make_old(&one);
    make_old(&other);
    let (one, other) = (one.open(), other.open());
    let kept = one.refs().expect("refs");
    assert!(Arc::ptr_eq(&kept, &one.refs().expect("refs")));
    // As if each of them had hundreds of thousands of refs.
    register_cached(&one.handle, MAX_CACHED_BYTES);
    assert!(Arc::ptr_eq(&kept, &one.refs().expect("refs")), "one of them fits");
    register_cached(&other.handle, MAX_CACHED_BYTES);
    assert!(!Arc::ptr_eq(&kept, &one.refs().expect("refs")), "the older one is read anew");
}

#[test]
fn rapid_changes_are_all_seen() {
    let fixture = one_commit();
    let repository = fixture.open();
    let ids = [fixture.id("main"), fixture.git(&["commit-tree", "-m", "b", "main^{tree}"]).parse().expect("an id")];
    let file = fixture.path().join("refs/heads/main");
    for round in 0..200 {
        let id = ids[round % 2];
        // As git does it: written to a lock file, renamed into place.
        let lock = file.with_extension("lock");
        fs::write(&lock, format!("{id}\n")).expect("written");
        fs::rename(&lock, &file).expect("renamed");
        assert_eq!(repository.refs().expect("refs").branches[0].target, id, "round {round}");
    }
}

#[test]
fn fingerprints_differ_when_refs_differ() {
    let fixture = one_commit();
    let mut seen = Vec::new();
    let other = fixture.git(&["commit-tree", "-m", "other", "main^{tree}"]);
    let changes: [&[&str]; 5] = [
        &["version"],
        &["update-ref", "refs/heads/b", "main"],
        &["update-ref", "refs/heads/b", &other],
        &["symbolic-ref", "HEAD", "refs/heads/b"],
        &["tag", "b", "main"],
    ];
    for change in changes {
        fixture.git(change);
        let fingerprint = fixture.reopen().refs().expect("refs").fingerprint();
        assert_eq!(fingerprint, fixture.reopen().refs().expect("refs").fingerprint());
        assert!(!seen.contains(&fingerprint), "{change:?}");
        seen.push(fingerprint);
    }
    fixture.git(&["pack-refs", "--all"]);
    assert!(seen.contains(&fixture.reopen().refs().expect("refs").fingerprint()), "packing changes no ref");
}

#[test]
fn each_of_three_thousand_refs_is_found() {
    let fixture = one_commit();
    let id = fixture.id("main");
    let commands: String = (0..3000)
        .map(|number| match number % 3 {
            0 => format!("create refs/heads/group-{}/branch-{number} {id}\n", number % 50),
            1 => format!("create refs/tags/v{number} {id}\n"),
            _ => format!("create refs/merge-requests/{number}/head {id}\n"),
        })
        .collect();
    fixture.git_with(&["update-ref", "--stdin"], commands.as_bytes());
    for _ in 0..2 {
        let refs = fixture.reopen().refs().expect("refs");
        let shown = as_git_shows(&refs);
        assert_eq!(shown, fixture.git_lines(&SHOW_REFS));
        assert_eq!(shown.len(), 3001);
        for item in refs.iter() {
            assert_eq!(refs.find(&item.name), Some(item));
        }
        assert_eq!(refs.find(&RefName::branch("none").expect("a name")), None);
        fixture.git(&["pack-refs", "--all"]);
    }
}

#[test]
fn a_tag_shows_its_annotation_and_its_commit() {
    let fixture = one_commit();
    fixture.git(&["tag", "light", "main"]);
    fixture.git(&["tag", "-a", "-m", "first\n\nsecond", "heavy", "main"]);
    fixture.git(&["tag", "-a", "-m", "of a tag", "nested", "heavy"]);
    fixture.git(&["tag", "-a", "-m", "of a tree", "tree", "main^{tree}"]);
    let repository = fixture.open();
    let refs = repository.refs().expect("refs");
    let main = fixture.id("main");
    let shown: Vec<_> = refs
        .tags
        .iter()
        .map(|tag| repository.tag(tag).expect("a tag"))
        .map(|tag| (tag.name, tag.message, tag.commit.map(|commit| commit.id)))
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        shown,
        [
            ("heavy".into(), text("first\n\nsecond"), Some(main)),
            ("light".into(), None, Some(main)),
            ("nested".into(), text("of a tag"), Some(main)),
            ("tree".into(), text("of a tree"), None),
        ]
    );
    assert_eq!(repository.tag(&refs.tags[0]).expect("a tag").target, fixture.id("heavy"));
}
