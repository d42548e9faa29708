//! Tests of repositories, refs and packs.

use model::{
    Oid, ProjectId, RefName, Time, UserId, Visibility,
    groups::NewGroup,
    ids::{PackId, RepositoryId},
    projects::{NewProject, TokenSeed},
};
use tempfile::TempDir;

use super::{
    packs::{self, NewPack, PackReplacement},
    repositories::{self, RefRecord, RefUpdate},
};
use crate::{Conn, Database, groups, projects};

const NOW: Time = Time::UNIX_EPOCH;

/// A database with two projects.
struct TestDatabase {
    db: Conn,
    database: Database,
    project: ProjectId,
    other_project: ProjectId,
    _folder: TempDir,
}

fn test_database() -> TestDatabase {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::sqlite(folder.path().join("test.sqlite3"));
    database.migrate().expect("migrated");
    let mut db = database.connect_writer().expect("a connection");
    let group = NewGroup {
        name: "acme".into(),
        path: "acme".into(),
        description: String::new(),
        visibility: Visibility::Public,
        lfs_enabled: None,
        request_access_enabled: false,
    };
    let group = groups::insert(&mut db, &group, None, NOW).expect("a group");
    let mut project = |name: &str| {
        let new = NewProject { name: name.to_owned(), ..NewProject::default() };
        let seed = TokenSeed(vec![7; 16]);
        projects::insert(&mut db, &new, group, UserId::new(1), Visibility::Public, &seed, NOW).expect("a project")
    };
    let (project, other_project) = (project("rocket"), project("fork"));
    TestDatabase { db, database, project, other_project, _folder: folder }
}

/// A database, and a repository in it with these branches, each with the target `oid(1)`.
fn with_branches(branches: &[&str]) -> (TestDatabase, RepositoryId) {
    let mut test = test_database();
    let repository = repositories::begin_update(&mut test.db, test.project, NOW).expect("created").id;
    let names: Vec<RefName> = branches.iter().map(|name| branch(name)).collect();
    let updates: Vec<RefUpdate<'_>> = names.iter().map(|name| update(name, None, Some(oid(1)))).collect();
    let applied = repositories::update_refs(&mut test.db, repository, &updates).expect("updated");
    assert_eq!(applied, vec![true; branches.len()]);
    (test, repository)
}

fn oid(digit: u8) -> Oid {
    Oid([digit; 20])
}

fn branch(name: &str) -> RefName {
    RefName::branch(name).expect("a name")
}

fn tag(name: &str) -> RefName {
    RefName::tag(name).expect("a name")
}

fn update(name: &RefName, old: Option<Oid>, new: Option<Oid>) -> RefUpdate<'_> {
    RefUpdate { name, old, new, peeled: None }
}

fn record(name: &RefName, target: Oid) -> RefRecord {
    RefRecord { name: name.clone(), target, peeled: None }
}

fn refs(db: &mut Conn, repository: RepositoryId) -> Vec<RefRecord> {
    repositories::refs(db, repository).expect("read").expect("a repository").refs
}

/// Returns the size that all refs have as lines of a packed-refs file.
fn expected_size(db: &mut Conn, repository: RepositoryId) -> i64 {
    let lines = refs(db, repository).into_iter().map(|RefRecord { name, target, peeled }| {
        format!("{target} {name}\n").len() + peeled.map_or(0, |oid| format!("^{oid}\n").len())
    });
    i64::try_from(lines.sum::<usize>()).expect("small")
}

/// Replaces packs, which become dead.
fn replace(
    db: &mut Conn,
    repository: RepositoryId,
    pack_epoch: i64,
    old: &[PackId],
    new: &[NewPack],
    now: Time,
) -> crate::Result<bool> {
    let (old, new) = (old.to_vec(), new.to_vec());
    packs::replace_packs(db, repository, &PackReplacement { pack_epoch, old, new }, now)
}

fn pack(key: &str, checksum: u8) -> NewPack {
    NewPack { key: key.into(), content: None, checksum: oid(checksum), bytes: 100, objects: 3, is_unreachable: false }
}

fn pack_ids(db: &mut Conn, repository: RepositoryId) -> Vec<PackId> {
    packs::of_repository(db, repository).expect("read").into_iter().map(|pack| pack.id).collect()
}

fn pack_keys(db: &mut Conn, repository: RepositoryId) -> Vec<String> {
    packs::of_repository(db, repository).expect("read").into_iter().map(|pack| pack.key).collect()
}

#[test]
fn the_first_update_creates_a_repository_and_each_one_increases_its_generation() {
    let mut test = test_database();
    let db = &mut test.db;
    let (project, other_project) = (test.project, test.other_project);
    assert_eq!(repositories::find(db, project).expect("read"), None);
    assert_eq!(repositories::refs(db, RepositoryId::new(1)).expect("read"), None);
    assert_eq!(repositories::packed_refs_size(db, RepositoryId::new(1)).expect("read"), 0);
    let first = repositories::begin_update(db, project, NOW).expect("created");
    assert_eq!((first.project, first.generation, first.pack_epoch), (project, 1, 0));
    let second = repositories::begin_update(db, project, NOW).expect("updated");
    assert_eq!((second.id, second.generation), (first.id, 2));
    assert_eq!(repositories::find(db, project).expect("read"), Some(second));
    let snapshot = repositories::refs(db, first.id).expect("read").expect("a repository");
    assert_eq!((snapshot.generation, snapshot.default_branch, snapshot.refs), (2, None, Vec::new()));
    let other = repositories::begin_update(db, other_project, NOW).expect("created");
    let list = |db: &mut Conn, after: i64| repositories::list(db, RepositoryId::new(after), 10).expect("read");
    assert_eq!(list(db, 0), [second, other]);
    assert_eq!(list(db, second.id.get()), [other]);
    assert_eq!(repositories::list(db, RepositoryId::new(0), 1).expect("read"), [second]);
}

#[test]
fn the_refs_of_a_repository_come_with_its_generation_and_default_branch() {
    let (mut test, repository) = with_branches(&["main"]);
    let db = &mut test.db;
    projects::set_default_branch(db, test.project, Some("main"), NOW).expect("set");
    let snapshot = repositories::refs(db, repository).expect("read").expect("a repository");
    assert_eq!((snapshot.generation, snapshot.default_branch.as_deref()), (1, Some("main")));
    assert_eq!(snapshot.refs, [record(&branch("main"), oid(1))]);
}

#[test]
fn refs_are_created_moved_and_deleted() {
    let (mut test, repository) = with_branches(&["main", "old"]);
    let db = &mut test.db;
    let (main, old, version) = (branch("main"), branch("old"), tag("v1"));
    let tagged = RefUpdate { peeled: Some(oid(1)), ..update(&version, None, Some(oid(3))) };
    let updates = [update(&main, Some(oid(1)), Some(oid(2))), update(&old, Some(oid(1)), None), tagged];
    assert_eq!(repositories::update_refs(db, repository, &updates).expect("updated"), [true; 3]);
    let tagged = RefRecord { peeled: Some(oid(1)), ..record(&version, oid(3)) };
    assert_eq!(refs(db, repository), [record(&main, oid(2)), tagged.clone()]);
    assert_eq!(repositories::find_ref(db, repository, &version).expect("read"), Some(tagged));
    assert_eq!(repositories::find_ref(db, repository, &old).expect("read"), None);
    // The tag becomes a lightweight one.
    let updates = [update(&version, Some(oid(3)), Some(oid(1)))];
    assert_eq!(repositories::update_refs(db, repository, &updates).expect("updated"), [true]);
    assert_eq!(refs(db, repository), [record(&main, oid(2)), record(&version, oid(1))]);
}

#[test]
fn an_update_with_a_wrong_old_target_changes_nothing_and_is_reported() {
    let (mut test, repository) = with_branches(&["a", "b", "c", "d"]);
    let db = &mut test.db;
    let (a, b, c, d, new) = (branch("a"), branch("b"), branch("c"), branch("d"), branch("new"));
    let updates = [
        update(&a, Some(oid(9)), Some(oid(2))),
        update(&b, None, Some(oid(2))),
        update(&c, Some(oid(9)), None),
        update(&new, Some(oid(1)), Some(oid(2))),
        update(&d, Some(oid(1)), Some(oid(2))),
    ];
    let applied = repositories::update_refs(db, repository, &updates).expect("updated");
    assert_eq!(applied, [false, false, false, false, true]);
    let expected = [record(&a, oid(1)), record(&b, oid(1)), record(&c, oid(1)), record(&d, oid(2))];
    assert_eq!(refs(db, repository), expected);
    let size = expected_size(db, repository);
    assert_eq!(repositories::packed_refs_size(db, repository).expect("read"), size);
}

#[test]
fn updates_of_the_same_ref_are_applied_in_order() {
    let (mut test, repository) = with_branches(&["main"]);
    let db = &mut test.db;
    let (main, passing) = (branch("main"), branch("passing"));
    let updates = [
        update(&main, Some(oid(1)), Some(oid(2))),
        update(&main, Some(oid(1)), Some(oid(3))),
        update(&main, Some(oid(2)), Some(oid(4))),
        update(&passing, None, Some(oid(1))),
        update(&passing, Some(oid(1)), None),
    ];
    let applied = repositories::update_refs(db, repository, &updates).expect("updated");
    assert_eq!(applied, [true, false, true, true, true]);
    assert_eq!(refs(db, repository), [record(&main, oid(4))]);
    assert_eq!(repositories::update_refs(db, repository, &[]).expect("updated"), []);
}

#[test]
fn the_size_of_packed_refs_follows_each_update() {
    let (mut test, repository) = with_branches(&["main", "größe"]);
    let db = &mut test.db;
    let mut check = |name: &RefName, old: Option<Oid>, new: Option<Oid>, peeled: Option<Oid>| {
        let update = RefUpdate { name, old, new, peeled };
        assert_eq!(repositories::update_refs(db, repository, &[update]).expect("updated"), [true]);
        let size = repositories::packed_refs_size(db, repository).expect("read");
        assert_eq!(size, expected_size(db, repository));
        assert_eq!(crate::checks::wrong_counters(db).expect("read"), []);
    };
    let version = tag("v1");
    check(&version, None, Some(oid(2)), Some(oid(1)));
    check(&version, Some(oid(2)), Some(oid(3)), Some(oid(1)));
    check(&version, Some(oid(3)), Some(oid(1)), None);
    check(&branch("größe"), Some(oid(1)), None, None);
    check(&branch("main"), Some(oid(1)), None, None);
    check(&version, Some(oid(1)), None, None);
    assert_eq!(repositories::packed_refs_size(db, repository).expect("read"), 0);
}

#[test]
fn a_ref_conflicts_with_its_folders_and_with_refs_below_it() {
    let (mut test, repository) =
        with_branches(&["a/b", "a-b", "a.b", "a0", "a0/x", "deep/1/2/3", "x", "x-y", "x.y", "x0"]);
    let db = &mut test.db;
    let mut check = |name: &str, expected: Option<&str>| {
        let found = repositories::conflicting_ref(db, repository, &branch(name)).expect("read");
        assert_eq!(found, expected.map(branch), "{name}");
    };
    check("a", Some("a/b"));
    check("a/b/c", Some("a/b"));
    check("a/b/c/d", Some("a/b"));
    check("deep", Some("deep/1/2/3"));
    check("deep/1", Some("deep/1/2/3"));
    check("x/y", Some("x"));
    for free in ["a/b", "a/bc", "a-b", "b", "x", "xy", "deep/1/2/4", "deep/10", "x-y-z"] {
        check(free, None);
    }
    let same_short_name = repositories::conflicting_ref(db, repository, &tag("a")).expect("read");
    assert_eq!(same_short_name, None);
}

#[test]
fn refs_are_listed_in_byte_order_of_their_names_without_hidden_ones() {
    let mut names = ["a-b", "a.b", "a/b", "a0", "B", "Z", "b", "z", "é", "ä", "日本", "𝄞"];
    let (mut test, repository) = with_branches(&names);
    let db = &mut test.db;
    let hidden = RefName::new("refs/gable/keep/1").expect("a name");
    let applied = repositories::update_refs(db, repository, &[update(&hidden, None, Some(oid(1)))]);
    assert_eq!(applied.expect("updated"), [true]);
    names.sort_unstable();
    let listed: Vec<String> = refs(db, repository).iter().map(|reference| reference.name.short().to_owned()).collect();
    assert_eq!(listed, names);
}

#[test]
fn a_repository_with_tags_only_has_no_branches() {
    let (mut test, repository) = with_branches(&[]);
    let db = &mut test.db;
    let (version, main) = (tag("v1"), branch("main"));
    let mut check = |update: RefUpdate<'_>, expected: bool| {
        assert_eq!(repositories::update_refs(db, repository, &[update]).expect("updated"), [true]);
        assert_eq!(repositories::has_branches(db, repository).expect("read"), expected);
    };
    check(update(&version, None, Some(oid(1))), false);
    check(update(&main, None, Some(oid(1))), true);
    check(update(&main, Some(oid(1)), None), false);
}

#[test]
fn thousands_of_refs_are_updated_at_once() {
    let mut names: Vec<RefName> = (0..4000).map(|number| branch(&format!("topic/{number}"))).collect();
    let mut test = test_database();
    let db = &mut test.db;
    let repository = repositories::begin_update(db, test.project, NOW).expect("created").id;
    let mut check = |old: Option<Oid>, new: Option<Oid>| {
        let updates: Vec<RefUpdate<'_>> = names.iter().map(|name| update(name, old, new)).collect();
        let applied = db.write(|db| repositories::update_refs(db, repository, &updates)).expect("updated");
        assert_eq!(applied, vec![true; names.len()]);
        refs(db, repository)
    };
    let created = check(None, Some(oid(1)));
    let moved = check(Some(oid(1)), Some(oid(2)));
    let deleted = check(Some(oid(2)), None);
    names.sort_unstable();
    let expected = |target: Oid| names.iter().map(|name| record(name, target)).collect::<Vec<_>>();
    assert!(created == expected(oid(1)) && moved == expected(oid(2)));
    assert_eq!(deleted, []);
    assert_eq!(repositories::packed_refs_size(db, repository).expect("read"), 0);
}

#[test]
fn a_copy_has_the_refs_and_the_live_packs_and_is_independent() {
    let (mut test, repository) = with_branches(&["main"]);
    let db = &mut test.db;
    let (project, other_project) = (test.project, test.other_project);
    packs::add_pack(db, repository, &pack("one", 1), NOW).expect("added");
    let one = pack_ids(db, repository);
    assert!(replace(db, repository, 0, &one, &[pack("two", 2)], NOW).expect("replaced"));
    let copy = repositories::copy(db, repository, other_project, NOW).expect("copied");
    assert_eq!((copy.project, copy.generation, copy.pack_epoch), (other_project, 1, 0));
    assert_eq!(repositories::find(db, other_project).expect("read"), Some(copy));
    assert_eq!(refs(db, copy.id), refs(db, repository));
    assert_eq!(pack_keys(db, copy.id), ["two"]);
    let size = |db: &mut Conn, repository| repositories::packed_refs_size(db, repository).expect("read");
    assert_eq!(size(db, copy.id), size(db, repository));
    let main = branch("main");
    let applied = repositories::update_refs(db, copy.id, &[update(&main, Some(oid(1)), None)]);
    assert_eq!(applied.expect("updated"), [true]);
    assert_eq!(refs(db, repository), [record(&main, oid(1))]);
    let again = repositories::copy(db, copy.id, project, NOW);
    assert!(again.is_err_and(|error| error.is_retryable()), "the project has a repository");
}

#[test]
fn packs_are_listed_oldest_first_also_those_with_the_same_checksum() {
    let (mut test, repository) = with_branches(&[]);
    let db = &mut test.db;
    for (key, checksum) in [("one", 1), ("same", 1), ("two", 2)] {
        packs::add_pack(db, repository, &pack(key, checksum), NOW).expect("added");
    }
    let listed = packs::of_repository(db, repository).expect("read");
    let described: Vec<_> =
        listed.iter().map(|pack| (pack.key.as_str(), pack.checksum, pack.bytes, pack.objects)).collect();
    assert_eq!(described, [("one", oid(1), 100, 3), ("same", oid(1), 100, 3), ("two", oid(2), 100, 3)]);
    assert!(listed.iter().all(|pack| pack.dead_since.is_none() && pack.created_at == NOW));
    let keys = ["same", "two", "missing"].map(ToOwned::to_owned);
    let mut known = packs::known_keys(db, &keys).expect("read");
    known.sort_unstable();
    assert_eq!(known, ["same", "two"]);
}

#[test]
fn packs_are_only_replaced_in_the_epoch_that_was_read() {
    let (mut test, repository) = with_branches(&[]);
    let db = &mut test.db;
    for (key, checksum) in [("one", 1), ("two", 2), ("three", 3)] {
        packs::add_pack(db, repository, &pack(key, checksum), NOW).expect("added");
    }
    let ids = pack_ids(db, repository);
    // The new pack may have the content of one that it replaces.
    let replaced = replace(db, repository, 0, &ids[..2], &[pack("four", 2)], NOW);
    assert!(replaced.expect("replaced"));
    let states = |db: &mut Conn| {
        let listed = packs::of_repository(db, repository).expect("read").into_iter();
        listed.map(|pack| (pack.key, pack.dead_since.is_none())).collect::<Vec<_>>()
    };
    let expected = [("one", false), ("two", false), ("three", true), ("four", true)];
    let expected = expected.map(|(key, is_live)| (key.to_owned(), is_live));
    assert_eq!(states(db), expected);
    let stale = replace(db, repository, 0, &ids, &[pack("five", 5)], NOW);
    assert!(!stale.expect("refused"));
    assert_eq!(states(db), expected);
    let record = repositories::find(db, test.project).expect("read").expect("a repository");
    assert_eq!((record.pack_epoch, record.drop_epoch), (1, 0), "no object was dropped");
    assert_eq!(packs::known_keys(db, &["five".to_owned()]).expect("read"), [] as [&str; 0]);
}

#[test]
fn dead_packs_are_forgotten_after_a_while_and_deleted_when_no_fork_uses_them() {
    let (mut test, repository) = with_branches(&[]);
    let db = &mut test.db;
    packs::add_pack(db, repository, &pack("own", 1), NOW).expect("added");
    let own = pack_ids(db, repository);
    assert!(replace(db, repository, 0, &own, &[pack("shared", 2)], NOW).expect("replaced"));
    let fork = repositories::copy(db, repository, test.other_project, NOW).expect("copied");
    let shared = pack_ids(db, fork.id);
    let later = Time::from_second(60).expect("a time");
    assert!(replace(db, repository, 1, &shared, &[pack("new", 3)], later).expect("replaced"));
    assert_eq!(packs::forget_dead_packs(db, NOW, 10).expect("forgotten").len(), 0, "not before it is dead");
    assert_eq!(packs::delete_unused_packs(db, 10).expect("deleted"), [] as [&str; 0]);
    assert_eq!(packs::forget_dead_packs(db, later, 10).expect("forgotten").len(), 1);
    assert_eq!(packs::delete_unused_packs(db, 10).expect("deleted"), ["own"]);
    let much_later = Time::from_second(120).expect("a time");
    assert_eq!(packs::forget_dead_packs(db, much_later, 10).expect("forgotten").len(), 1);
    assert_eq!(packs::delete_unused_packs(db, 10).expect("deleted"), [] as [&str; 0], "the fork uses it");
    assert_eq!(pack_keys(db, repository), ["new"]);
    assert_eq!(pack_keys(db, fork.id), ["shared"]);
}

#[test]
fn packs_can_be_forgotten_at_once_in_an_epoch_of_their_own() {
    let (mut test, repository) = with_branches(&["main"]);
    let db = &mut test.db;
    packs::add_pack(db, repository, &pack("one", 1), NOW).expect("added");
    let old = pack_ids(db, repository);
    let found = repositories::increase_drop_epoch(db, test.project).expect("increased").expect("a repository");
    assert_eq!((found.id, found.drop_epoch, found.pack_epoch), (repository, 1, 0));
    assert_eq!(repositories::by_id(db, repository).expect("read"), Some(found));
    assert_eq!(repositories::increase_drop_epoch(db, test.other_project).expect("nothing"), None);
    let new = vec![pack("two", 2)];
    let replacement = PackReplacement { pack_epoch: found.pack_epoch, old, new };
    assert!(packs::replace_packs(db, repository, &replacement, NOW).expect("replaced"));
    packs::forget_dead_packs_of(db, repository).expect("forgotten");
    repositories::increase_pack_epoch(db, repository).expect("increased");
    let record = repositories::by_id(db, repository).expect("read").expect("a repository");
    assert_eq!((record.drop_epoch, record.pack_epoch), (1, 2));
    assert_eq!(pack_keys(db, repository), ["two"]);
    assert_eq!(packs::delete_unused_packs(db, 10).expect("deleted"), ["one"]);
}

#[test]
fn a_pack_of_unreachable_objects_dies_after_a_while_and_is_not_copied() {
    let (mut test, repository) = with_branches(&["main"]);
    let db = &mut test.db;
    let unreachable = NewPack { is_unreachable: true, ..pack("unreachable", 1) };
    packs::add_pack(db, repository, &unreachable, NOW).expect("added");
    // The same objects are pushed again.
    packs::add_pack(db, repository, &pack("pushed", 1), NOW).expect("added");
    assert_eq!(pack_keys(db, repository), ["unreachable", "pushed"]);
    let fork = repositories::copy(db, repository, test.other_project, NOW).expect("copied");
    assert_eq!(pack_keys(db, fork.id), ["pushed"]);
    let later = Time::from_second(60).expect("a time");
    assert_eq!(packs::expire_unreachable_packs(db, NOW, later).expect("expired"), 0);
    assert_eq!(packs::expire_unreachable_packs(db, later, later).expect("expired"), 1);
    let listed = packs::of_repository(db, repository).expect("read").into_iter();
    let dead: Vec<_> = listed.filter(|pack| pack.dead_since == Some(later)).map(|pack| pack.key).collect();
    assert_eq!(dead, ["unreachable"]);
}

#[test]
fn repositories_with_unreachable_objects_are_listed_until_those_have_a_pack() {
    let (mut test, repository) = with_branches(&["main"]);
    let db = &mut test.db;
    let later = Time::from_second(60).expect("a time");
    let listed = |db: &mut Conn, before| repositories::with_unreachable_objects(db, before, 10).expect("read");
    assert_eq!(listed(db, later), []);
    repositories::record_unreachable_objects(db, repository, NOW).expect("recorded");
    repositories::record_unreachable_objects(db, repository, later).expect("recorded");
    assert_eq!(listed(db, NOW), []);
    assert_eq!(listed(db, later), [test.project], "the first time counts");
    let generation = repositories::by_id(db, repository).expect("read").expect("a repository").generation;
    repositories::finish_separation(db, repository, generation - 1, later).expect("recorded");
    let much_later = Time::from_second(120).expect("a time");
    assert_eq!(listed(db, later), []);
    assert_eq!(listed(db, much_later), [test.project], "refs have changed meanwhile");
    repositories::finish_separation(db, repository, generation, later).expect("recorded");
    assert_eq!(listed(db, much_later), []);
}

#[test]
fn a_limit_bounds_how_many_packs_are_forgotten_and_deleted_at_once() {
    let (mut test, repository) = with_branches(&[]);
    let db = &mut test.db;
    for checksum in 1..=5 {
        packs::add_pack(db, repository, &pack(&checksum.to_string(), checksum), NOW).expect("added");
    }
    let ids = pack_ids(db, repository);
    assert!(replace(db, repository, 0, &ids, &[], NOW).expect("replaced"));
    let later = Time::from_second(1).expect("a time");
    let forgotten: Vec<usize> =
        (0..4).map(|_| packs::forget_dead_packs(db, later, 2).expect("forgotten").len()).collect();
    assert_eq!(forgotten, [2, 2, 1, 0]);
    let deleted: Vec<usize> = (0..4).map(|_| packs::delete_unused_packs(db, 2).expect("deleted").len()).collect();
    assert_eq!(deleted, [2, 2, 1, 0]);
}

#[test]
fn a_repository_is_purged_with_its_project() {
    let (mut test, repository) = with_branches(&["a", "b", "c"]);
    let db = &mut test.db;
    let (project, other_project) = (test.project, test.other_project);
    packs::add_pack(db, repository, &pack("one", 1), NOW).expect("added");
    let fork = repositories::copy(db, repository, other_project, NOW).expect("copied");
    let scope = projects::DeletionScope::One(project);
    projects::soft_delete(db, scope, "purge_project", NOW).expect("deleted");
    let purged: Vec<usize> = std::iter::repeat_with(|| projects::purge_batch(db, project, 2).expect("purged"))
        .take_while(|removed| *removed > 0)
        .collect();
    assert_eq!(purged[..2], [2, 1], "the refs");
    projects::purge(db, project).expect("purged");
    assert_eq!(repositories::find(db, project).expect("read"), None);
    assert_eq!(pack_keys(db, repository), [] as [&str; 0]);
    assert_eq!(refs(db, fork.id).len(), 3);
    assert_eq!(packs::delete_unused_packs(db, 10).expect("deleted"), [] as [&str; 0], "the fork uses it");
}

#[test]
fn concurrent_first_updates_create_one_repository() {
    let mut test = test_database();
    let db = &mut test.db;
    let update = || {
        let mut db = test.database.connect_writer().expect("a connection");
        db.write(|db| repositories::begin_update(db, test.project, NOW)).expect("updated").generation
    };
    let mut generations: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(update)).collect();
        threads.into_iter().map(|thread| thread.join().expect("finished")).collect()
    });
    generations.sort_unstable();
    assert_eq!(generations, [1, 2, 3, 4]);
    assert_eq!(repositories::list(db, RepositoryId::new(0), 10).expect("read").len(), 1);
}
