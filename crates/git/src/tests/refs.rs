//! Refs and tags.

use std::{fs, sync::Arc};

use model::{Oid, RefName};

use super::{Fixture, HistoryBuilder, file};
use crate::{Ref, Refs};

fn names(refs: &[Ref]) -> Vec<&str> {
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

/// Reads the refs from the files of a repository.
fn refs_of(fixture: &Fixture) -> Arc<Refs> {
    Arc::clone(fixture.open().refs())
}

fn one_commit() -> Fixture {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n")]);
    Fixture::with(history)
}

#[test]
fn an_empty_repository_has_a_head_and_no_refs() {
    let fixture = Fixture::new();
    let refs = refs_of(&fixture);
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
    let loose = as_git_shows(&refs_of(&fixture));
    assert_eq!(loose, fixture.git_lines(&SHOW_REFS));
    assert_eq!(loose.len(), 13, "eleven refs, two of them tags that are peeled");
    fixture.git(&["pack-refs", "--all"]);
    assert_eq!(as_git_shows(&refs_of(&fixture)), loose);
    // Loose refs take precedence over packed ones.
    fixture.git(&["update-ref", "refs/heads/b", &fixture.git(&["commit-tree", "-m", "new", "main^{tree}"])]);
    fixture.git(&["tag", "-a", "-m", "later", "later", "main"]);
    let both = as_git_shows(&refs_of(&fixture));
    assert_eq!(both, fixture.git_lines(&SHOW_REFS));
    let refs = refs_of(&fixture);
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
    let refs = refs_of(&fixture);
    assert_eq!(refs.tags[0].peeled, Some(fixture.id("main")));
}

#[test]
fn hidden_refs_are_neither_listed_nor_resolved() {
    let fixture = one_commit();
    fixture.git(&["update-ref", "refs/gable/keep/1", "main"]);
    for _ in 0..2 {
        let repository = fixture.reopen();
        assert_eq!(repository.refs().iter().count(), 1);
        for name in ["refs/gable/keep/1", "gable/keep/1"] {
            assert_eq!(repository.resolve(name).expect("resolved"), None, "{name}");
        }
        fixture.git(&["pack-refs", "--all"]);
    }
}

#[test]
fn names_that_are_not_allowed_are_left_out() {
    let fixture = one_commit();
    let heads = fixture.path().join("refs/heads");
    let id = fixture.id("main").to_string();
    for name in ["-flag", "x.lock", "HEAD"] {
        fs::write(heads.join(name), &id).expect("written");
    }
    std::os::unix::fs::symlink(heads.join("main"), heads.join("linked")).expect("linked");
    fs::write(fixture.path().join("refs/tags/missing"), "1".repeat(40)).expect("written");
    let packed = format!("# pack-refs with: peeled fully-peeled sorted \n{id} refs/heads/-x\n{id} refs/heads/good\n");
    fs::write(fixture.path().join("packed-refs"), packed).expect("written");
    let repository = fixture.open();
    let refs = repository.refs();
    assert_eq!(names(&refs.branches), ["refs/heads/good", "refs/heads/main"]);
    assert_eq!(names(&refs.tags), ["refs/tags/missing"], "its target is not looked up");
    assert_eq!(refs.tags[0].peeled, None);
    let tag = repository.tag(&refs.tags[0]).expect("a tag");
    assert_eq!((tag.message, tag.commit), (None, None));
    assert_eq!(repository.resolve("missing").expect("resolved"), None);
}

#[test]
fn invalid_files_are_an_error() {
    let fixture = one_commit();
    let id = fixture.id("main").to_string();
    let check = |name: &str, content: &[u8]| {
        let file = fixture.path().join(name);
        fs::write(&file, content).expect("written");
        let error = fixture.open_without_refs().read_ref_files().expect_err(name);
        assert!(matches!(error, crate::Error::Corrupt(_)), "{name}: {error}");
        fs::remove_file(file).expect("removed");
    };
    check("refs/heads/empty", b"");
    check("refs/heads/short", &id.as_bytes()[..20]);
    check("refs/heads/bytes", b"\xff\xfe");
    check("refs/heads/long", id.repeat(100).as_bytes());
    check("refs/tags/number", b"42");
    check(
        "packed-refs",
        format!("# pack-refs with: peeled fully-peeled sorted \nnonsense\n{id} refs/heads/good\n").as_bytes(),
    );
}

#[test]
fn symbolic_refs_are_resolved() {
    let fixture = one_commit();
    fixture.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main"]);
    fixture.git(&["symbolic-ref", "refs/remotes/origin/again", "refs/remotes/origin/HEAD"]);
    fixture.git(&["symbolic-ref", "refs/remotes/origin/loop", "refs/remotes/origin/loop"]);
    fixture.git(&["symbolic-ref", "refs/remotes/origin/nowhere", "refs/heads/none"]);
    let refs = refs_of(&fixture);
    assert_eq!(names(&refs.others), ["refs/remotes/origin/HEAD", "refs/remotes/origin/again"]);
    assert!(refs.others.iter().all(|item| item.target == fixture.id("main")));
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
        let fingerprint = refs_of(&fixture).fingerprint();
        assert_eq!(fingerprint, refs_of(&fixture).fingerprint());
        assert!(!seen.contains(&fingerprint), "{change:?}");
        seen.push(fingerprint);
    }
    fixture.git(&["pack-refs", "--all"]);
    assert!(seen.contains(&refs_of(&fixture).fingerprint()), "packing changes no ref");
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
        let refs = refs_of(&fixture);
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
    let refs = repository.refs();
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

#[test]
fn changes_are_applied_to_a_list_of_refs() {
    let reference = |name: &str, digit: u8| Ref {
        name: RefName::new(name).expect("a name"),
        target: Oid([digit; 20]),
        peeled: None,
    };
    let names = ["refs/heads/a", "refs/heads/c", "refs/heads/d/e", "refs/notes/x", "refs/tags/v1"];
    let refs = Refs::from_sorted(7, RefName::branch("a"), names.iter().map(|name| reference(name, 1)));
    let change = |name: &str, digit: Option<u8>| {
        (RefName::new(name).expect("a name"), digit.map(|digit| reference(name, digit)))
    };
    let changes = [
        change("refs/tags/v2", Some(2)),
        change("refs/heads/c", None),
        change("refs/heads/b", Some(3)),
        change("refs/heads/a", Some(4)),
        change("refs/heads/missing", None),
        change("refs/changes/1", Some(5)),
    ];
    let changed = refs.with_changes(&changes);
    let expected = [
        reference("refs/changes/1", 5),
        reference("refs/heads/a", 4),
        reference("refs/heads/b", 3),
        reference("refs/heads/d/e", 1),
        reference("refs/notes/x", 1),
        reference("refs/tags/v1", 1),
        reference("refs/tags/v2", 2),
    ];
    let listed = Refs::from_sorted(8, RefName::branch("a"), expected.clone());
    assert_eq!(changed.iter().cloned().collect::<Vec<_>>(), expected);
    assert_eq!((changed.generation, &changed.head), (8, &listed.head));
    assert_eq!(changed.fingerprint(), listed.fingerprint());
    assert_ne!(changed.fingerprint(), refs.fingerprint());

    let below = |prefix: &str| changed.first_below(prefix).map(|found| found.name.to_string());
    assert_eq!(below("refs/heads/d/").as_deref(), Some("refs/heads/d/e"));
    assert_eq!(below("refs/changes/").as_deref(), Some("refs/changes/1"));
    assert_eq!(below("refs/heads/b/"), None);
}
