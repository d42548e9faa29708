//! Pushes: permissions for refs and the effects of a push.

use std::io::Write as _;

use forge::{
    Caller, Error, ProjectRef,
    pushes::{self, Push, PushSource, RefOutcome, RefRejection},
    transport::{self, Service},
};
use model::{Oid, PackId, ProjectId, RefChange, RefName, Scope};
use serde_json::json;
use testkit::{
    TestClient, TestForge,
    repository::{SMALL_REPOSITORY, incompressible_text},
};

/// A forge with an owner and a private project of theirs.
async fn project() -> (TestForge, TestClient, ProjectId) {
    let forge = TestForge::start().await;
    let owner = forge.user("owner").await;
    let project = ProjectId::new(owner.make("/projects", json!({"name": "Rocket", "path": "rocket"})).await);
    (forge, owner, project)
}

#[tokio::test]
async fn the_first_push_creates_the_default_branch_and_protects_it() {
    let (forge, owner, project) = project().await;
    assert_eq!(owner.get(&format!("/projects/{project}")).await.json()["default_branch"], json!(null));
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    assert_eq!(owner.get(&format!("/projects/{project}")).await.json()["default_branch"], "master");
    let names: Vec<String> = forge.refs_of(project).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["refs/heads/master", "refs/tags/light", "refs/tags/v1.0"]);
    // Rewriting it is refused to all users, the owner included.
    let rewritten = SMALL_REPOSITORY.replace("Second commit", "Another story");
    let outcomes = forge.try_fast_import(&owner, project, &rewritten).await;
    let refused: Vec<(String, Option<String>)> =
        outcomes.into_iter().map(|one| (one.name.to_string(), reason(one))).collect();
    let others = "another ref of this push was refused";
    let rewriting = "You are not allowed to force push code to a protected branch on this project.";
    assert_eq!(
        refused,
        [("refs/heads/master".into(), Some(rewriting.into())), ("refs/tags/light".into(), Some(others.into()))]
    );
}

#[tokio::test]
async fn a_pushed_repository_passes_fsck() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let folder = forge.repository_folder(project).await.expect("a repository");
    testkit::repository::git(&folder, &["fsck", "--strict", "--full"], b"");
}

/// Returns why a change was rejected, as shown to the user.
fn reason(outcome: RefOutcome) -> Option<String> {
    outcome.rejection.map(|rejection| rejection.to_string())
}

/// Pushes changes without objects; returns why each was rejected.
async fn push(
    forge: &TestForge,
    client: &TestClient,
    project: ProjectId,
    changes: Vec<RefChange>,
    atomic: bool,
) -> Vec<Option<String>> {
    let caller = Caller::with_tokens(client.token.as_deref());
    let push = Push { changes, incoming: None, atomic, options: Vec::new() };
    let outcomes = pushes::push(&forge.forge, caller, project, push, PushSource::Git).await.expect("a push");
    outcomes.into_iter().map(reason).collect()
}

fn change(name: &str, old: Option<Oid>, new: Option<Oid>) -> RefChange {
    RefChange { name: RefName::new(name).expect("a name"), old, new }
}

fn tip(forge: &TestForge, project: ProjectId, name: &str) -> Option<Oid> {
    let refs = forge.refs_of(project);
    refs.iter().find(|(found, _)| found == name).map(|(_, id)| id.parse().expect("an id"))
}

#[tokio::test]
async fn impossible_changes_are_refused_with_the_reason() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let master = tip(&forge, project, "refs/heads/master");
    let tag = tip(&forge, project, "refs/tags/v1.0");
    let missing: Option<Oid> = "1".repeat(40).parse().ok();
    push(&forge, &owner, project, vec![change("refs/heads/a/b", None, master)], false).await;
    let cases = [
        (change("refs/heads/x", None, missing), "the target object does not exist"),
        (change("refs/heads/x", None, tag), "a branch must point to a commit"),
        (change("refs/heads/x", master, None), "the ref does not exist"),
        (change("refs/heads/x", None, None), "the ref does not exist"),
        (change("refs/heads/a/b", None, master), "the ref has changed; fetch first"),
        (change("refs/heads/a/b", missing, None), "the ref has changed; fetch first"),
        (change("refs/heads/a/b", master, master), "the ref is already up to date"),
        (change("refs/heads/a", None, master), "the name conflicts with refs/heads/a/b"),
        (change("refs/heads/a/b/c", None, master), "the name conflicts with refs/heads/a/b"),
        (change("refs/gable/x", None, master), "the ref is reserved"),
        (change(&format!("refs/replace/{}", "1".repeat(40)), None, master), "the ref is reserved"),
    ];
    for (change, expected) in cases {
        let refused = push(&forge, &owner, project, vec![change.clone()], false).await;
        assert_eq!(refused, [Some(expected.to_owned())], "{change:?}");
    }
    // Two that conflict with each other, and one that is listed twice.
    let pair = vec![change("refs/heads/n", None, master), change("refs/heads/n/m", None, master)];
    assert!(push(&forge, &owner, project, pair, false).await.iter().all(Option::is_some));
    let twice = vec![change("refs/heads/t", None, master), change("refs/heads/t", None, master)];
    let refused = push(&forge, &owner, project, twice, false).await;
    assert_eq!(refused, [None, Some("the ref is listed twice in this push".into())]);
}

#[tokio::test]
async fn an_atomic_push_is_applied_as_a_whole_or_not_at_all() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let master = tip(&forge, project, "refs/heads/master");
    let both = || vec![change("refs/heads/good", None, master), change("refs/heads/gone", master, None)];
    let refused = push(&forge, &owner, project, both(), true).await;
    assert_eq!(refused[0].as_deref(), Some("another ref of this push was refused"));
    assert_eq!(tip(&forge, project, "refs/heads/good"), None);
    let refused = push(&forge, &owner, project, both(), false).await;
    assert_eq!(refused, [None, Some("the ref does not exist".into())]);
    assert_eq!(tip(&forge, project, "refs/heads/good"), master);
}

#[tokio::test]
async fn archived_projects_and_projects_of_others_refuse_pushes() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let master = tip(&forge, project, "refs/heads/master");
    let attempt = |client: &TestClient| {
        let caller = Caller::with_tokens(client.token.as_deref());
        let changes = vec![change("refs/heads/x", None, master)];
        let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
        let forge = forge.forge.clone();
        async move {
            pushes::push(&forge, caller, project, push, PushSource::Git)
                .await
                .map(drop)
                .map_err(|error| error.to_string())
        }
    };
    let stranger = forge.user("stranger").await;
    assert_eq!(attempt(&stranger).await, Err("Project not found".into()));
    let reporter = forge.user("reporter").await;
    let member = json!({"user_id": reporter.id.get(), "access_level": 20});
    assert_eq!(owner.post(&format!("/projects/{project}/members"), member).await.status.as_u16(), 201);
    let refused = Err("You are not allowed to push code to this project.".to_owned());
    assert_eq!(attempt(&reporter).await, refused);
    owner.post(&format!("/projects/{project}/archive"), json!({})).await;
    assert_eq!(attempt(&owner).await, refused);
    owner.post(&format!("/projects/{project}/unarchive"), json!({})).await;
    assert_eq!(attempt(&owner).await, Ok(()));
}

#[tokio::test]
async fn a_developer_cannot_create_the_first_branch() {
    let (forge, owner, project) = project().await;
    let developer = forge.user("developer").await;
    let member = json!({"user_id": developer.id.get(), "access_level": 30});
    owner.post(&format!("/projects/{project}/members"), member).await;
    let outcomes = forge.try_fast_import(&developer, project, SMALL_REPOSITORY).await;
    let refused = outcomes.into_iter().find(|one| one.name.as_branch().is_some()).and_then(reason);
    let expected = "You are not allowed to push code to protected branches on this project.";
    assert_eq!(refused.as_deref(), Some(expected));
    let tag = SMALL_REPOSITORY.replace("refs/heads/master", "refs/tags/t");
    let tag = tag.split("tag v1.0").next().expect("a beginning");
    assert!(
        forge
            .try_fast_import(&developer, project, tag)
            .await
            .iter()
            .all(|one| one.rejection == Some(RefRejection::ProtectedBranch))
    );
    assert_eq!(forge.refs_of(project), []);
    assert_eq!(forge.repository_folder(project).await, None, "nothing was written");
    assert_eq!(forge.pack_files(), Vec::<String>::new(), "the objects of a rejected push are removed");
}

#[tokio::test]
async fn the_default_branch_can_be_changed_and_not_deleted() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let master = tip(&forge, project, "refs/heads/master");
    push(&forge, &owner, project, vec![change("refs/heads/main", None, master)], false).await;
    let path = format!("/projects/{project}");
    let refused = owner.put(&path, json!({"name": "Rocket", "default_branch": "nothing"})).await;
    assert_eq!(
        (refused.status.as_u16(), refused.json()),
        (400, json!({"message": {"default_branch": ["does not exist"]}}))
    );
    let changed = owner.put(&path, json!({"name": "Rocket", "default_branch": "main"})).await;
    assert_eq!((changed.status.as_u16(), &changed.json()["default_branch"]), (200, &json!("main")));
    let folder = forge.repository_folder(project).await.expect("a repository");
    assert_eq!(std::fs::read_to_string(folder.join("HEAD")).expect("a file"), "ref: refs/heads/main\n");
    let refused = push(&forge, &owner, project, vec![change("refs/heads/main", master, None)], false).await;
    let expected = "the default branch cannot be deleted; choose another default branch first";
    assert_eq!(refused, [Some(expected.into())]);
}

#[tokio::test]
async fn of_concurrent_pushes_to_a_ref_one_wins_and_the_others_are_refused() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let master = tip(&forge, project, "refs/heads/master");
    let attempts = (0..16).map(|_| push(&forge, &owner, project, vec![change("refs/heads/x", None, master)], false));
    let outcomes = futures_util::future::join_all(attempts).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome[0].is_none()).count(), 1);
    assert!(outcomes.iter().flatten().flatten().all(|text| text == "the ref has changed; fetch first"));
    let events = owner.get(&format!("/projects/{project}/events?per_page=100")).await.json();
    let count =
        events.as_array().expect("a list").iter().filter(|event| event["data"]["ref"] == "refs/heads/x").count();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn pushes_whose_names_conflict_do_not_both_win() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let master = tip(&forge, project, "refs/heads/master");
    for round in 0..8 {
        let names = [format!("refs/heads/{round}"), format!("refs/heads/{round}/x"), format!("refs/heads/{round}/x/y")];
        let attempts =
            names.each_ref().map(|name| push(&forge, &owner, project, vec![change(name, None, master)], false));
        let outcomes = futures_util::future::join_all(attempts).await;
        let won: Vec<&String> =
            names.iter().zip(&outcomes).filter(|(_, one)| one[0].is_none()).map(|(name, _)| name).collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        let expected = format!("the name conflicts with {}", won[0]);
        assert!(outcomes.iter().flatten().flatten().all(|text| *text == expected), "{outcomes:?}");
    }
}

/// The name of a pack in the store, and the files that belong to it.
fn stored_packs(forge: &TestForge) -> Vec<String> {
    forge.pack_files().into_iter().filter_map(|file| file.strip_suffix(".pack").map(str::to_owned)).collect()
}

/// Returns the number of packs in the database.
fn small_packs(forge: &TestForge) -> usize {
    forge.with_read_connection(|db| store::packs::small_packs(db, PackId::new(0), 1000).expect("readable").len())
}

/// Returns a history whose pack is not small.
fn large_repository() -> String {
    let text = incompressible_text(100_000);
    SMALL_REPOSITORY.replacen("data 6\nhello\n", &format!("data {}\n{text}\n", text.len() + 1), 1)
}

#[tokio::test]
async fn the_pack_of_a_small_push_is_in_the_database() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let file = json!({ "file_path": "f", "branch_name": "master", "content": "x", "commit_message": "m" });
    assert_eq!(owner.post(&format!("/projects/{project}/repository/files"), file).await.status.as_u16(), 201);
    assert_eq!((stored_packs(&forge).len(), small_packs(&forge)), (0, 2));
    // A server with an empty cache has everything that it needs.
    let root = tempfile::tempdir().expect("a folder");
    let folder = forge.build_repository(project, root.path());
    testkit::repository::git(&folder, &["fsck", "--strict", "--full"], b"");
    let shown = testkit::repository::git(&folder, &["show", "master:f"], b"").stdout;
    assert_eq!(shown, b"x");
}

#[tokio::test]
async fn packs_of_interrupted_pushes_are_removed_after_a_day() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, &large_repository()).await;
    let [listed] = &stored_packs(&forge)[..] else { panic!("a push has one pack") };
    let leave = |name: &str, age: u64, extensions: &[&str]| {
        if !forge.uses_bucket() {
            // A write that did not end; a bucket has complete files only.
            forge.plant_unfinished_file(&format!("packs/00/{name}.pack"));
        }
        let folder = forge.files_folder().join("packs/00");
        std::fs::create_dir_all(&folder).expect("a folder");
        for extension in extensions {
            let path = folder.join(format!("{name}.{extension}"));
            let file = std::fs::File::create(&path).expect("created");
            let modified = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
            file.set_modified(modified).expect("set");
        }
    };
    leave("old", 25 * 60 * 60, &["pack", "idx", "rev"]);
    // Uploads to a bucket end in any order, and so do removals.
    leave("old-index", 25 * 60 * 60, &["idx"]);
    leave("old-rev", 25 * 60 * 60, &["rev"]);
    leave("mixed", 25 * 60 * 60, &["idx", "rev"]);
    leave("mixed", 60, &["pack"]);
    leave("young", 60, &["pack", "idx", "rev"]);
    for file in ["pack", "idx"] {
        // The age of a listed pack does not matter.
        let file = std::fs::File::open(forge.files_folder().join(format!("{listed}.{file}"))).expect("opened");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
    }
    // Two days earlier the files are not old, whatever the clock of this machine says.
    let now = model::Time::now();
    forge.clock.set(now - jiff::SignedDuration::from_hours(48));
    forge::tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    forge.clock.advance(jiff::SignedDuration::from_hours(2));
    forge.run_due_tasks().await;
    assert_eq!(stored_packs(&forge).len(), 4);
    // Nor is a young file old if the clock of the forge is fast.
    forge.clock.set(now + jiff::SignedDuration::from_hours(48));
    forge.run_due_tasks().await;
    let mut expected = vec!["packs/00/mixed".to_owned(), "packs/00/young".to_owned(), listed.clone()];
    expected.sort();
    assert_eq!(stored_packs(&forge), expected);
    assert!(!forge.pack_files().iter().any(|file| file.contains("old")), "{:?}", forge.pack_files());
    let folder = forge.repository_folder(project).await.expect("a repository");
    testkit::repository::git(&folder, &["fsck", "--strict", "--full"], b"");
}

/// Commits one file over REST.
async fn commit_file(owner: &TestClient, project: ProjectId, path: &str) {
    let file = json!({ "file_path": path, "branch_name": "master", "content": "x", "commit_message": "m" });
    assert_eq!(owner.post(&format!("/projects/{project}/repository/files"), file).await.status.as_u16(), 201);
}

/// A program that commits file by file must not become slower with each of them.
#[tokio::test]
async fn the_packs_of_many_commits_are_combined_at_once() {
    let (forge, owner, project) = project().await;
    let packs = async || {
        let folder = forge.repository_folder(project).await.expect("a repository").join("objects/pack");
        let names = std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".pack")).count()
    };
    for number in 0..20 {
        commit_file(&owner, project, &format!("few/{number}")).await;
    }
    forge.run_due_tasks().await;
    assert_eq!(packs().await, 20, "maintenance waits until nothing was pushed for a while");
    for number in 0..20 {
        commit_file(&owner, project, &format!("many/{number}")).await;
    }
    forge.run_due_tasks().await;
    assert_eq!(packs().await, 1, "the replaced packs are gone as well");
    let folder = forge.repository_folder(project).await.expect("a repository");
    testkit::repository::git(&folder, &["fsck", "--strict", "--full"], b"");
    commit_file(&owner, project, "after").await;
    let commits = owner.get(&format!("/projects/{project}/repository/commits?per_page=100")).await.json();
    assert_eq!(commits.as_array().map(Vec::len), Some(41));
}

#[tokio::test]
async fn replaced_packs_are_removed_after_a_day() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, &large_repository()).await;
    // Their packs are small, so they have no files.
    for number in 0..5 {
        commit_file(&owner, project, &format!("f{number}")).await;
    }
    let fork = owner.make("/groups", json!({"name": "g", "path": "g"})).await;
    let fork = owner.post(&format!("/projects/fork/{project}"), json!({"namespace": fork.to_string()})).await.json();
    let fork = ProjectId::new(fork["id"].as_i64().unwrap_or_else(|| panic!("{fork}")));
    assert_eq!((stored_packs(&forge).len(), small_packs(&forge)), (1, 5), "a fork has the packs of its source");
    forge.run_housekeeping(project).await;
    assert_eq!((stored_packs(&forge).len(), small_packs(&forge)), (2, 5), "running reads may use the old pack");
    forge::tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    forge.clock.advance(jiff::SignedDuration::from_hours(25));
    forge.run_due_tasks().await;
    assert_eq!((stored_packs(&forge).len(), small_packs(&forge)), (3, 0), "the fork was repacked as well");
    // The index over the new pack does not need the old ones.
    let folder = forge.repository_folder(project).await.expect("a repository");
    assert!(folder.join("objects/pack/multi-pack-index").exists());
    testkit::repository::git(&folder, &["multi-pack-index", "verify"], b"");
    forge.run_housekeeping(fork).await;
    forge.clock.advance(jiff::SignedDuration::from_hours(25));
    forge.run_due_tasks().await;
    assert_eq!((stored_packs(&forge).len(), small_packs(&forge)), (2, 0));
    for project in [project, fork] {
        let folder = forge.repository_folder(project).await.expect("a repository");
        testkit::repository::git(&folder, &["fsck", "--strict", "--full"], b"");
        assert_eq!(forge.refs_of(project).len(), 3);
    }
    // The last repository that has a pack keeps its files.
    for (project, left) in [(project, 1), (fork, 0)] {
        owner.delete(&format!("/projects/{project}")).await;
        forge.clock.advance(jiff::SignedDuration::from_hours(2));
        forge.run_due_tasks().await;
        assert_eq!(stored_packs(&forge).len(), left);
    }
}

#[tokio::test]
async fn a_fork_is_an_independent_copy() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    owner.put(&format!("/projects/{project}"), json!({"name": "Rocket", "visibility_level": 20})).await;
    let other = forge.user("other").await;
    let missing = other.post(&format!("/projects/fork/{project}"), json!({})).await;
    assert_eq!((missing.status.as_u16(), missing.json()), (400, json!({"error": "namespace is missing"})));
    let forked = other.post(&format!("/projects/fork/{project}"), json!({"namespace": "other"})).await;
    let fork = forked.json();
    assert_eq!(forked.status.as_u16(), 201);
    assert_eq!((&fork["path_with_namespace"], &fork["default_branch"]), (&json!("other/rocket"), &json!("master")));
    let fork = ProjectId::new(fork["id"].as_i64().expect("a number"));
    assert_eq!(forge.refs_of(fork), forge.refs_of(project));
    assert_eq!(owner.get(&format!("/projects/{project}")).await.json()["forks_count"], 1);
    let again =
        other.post(&format!("/projects/fork/{project}"), json!({"namespace": other_namespace(&other).await})).await;
    let taken = json!({"message": {
        "name": ["has already been taken"], "path": ["has already been taken"],
        "base": ["Unable to save project. Error: Name has already been taken, Path has already been taken"],
    }});
    assert_eq!((again.status.as_u16(), again.json()), (409, taken));
    for (namespace, id) in [("nothing", project), ("owner", project)] {
        let refused = other.post(&format!("/projects/fork/{id}"), json!({"namespace": namespace})).await;
        let text = json!({"message": "404 Target Namespace Not Found"});
        assert_eq!((refused.status.as_u16(), refused.json()), (404, text), "{namespace}");
    }
    // The fork is complete without its source.
    let folder = forge.repository_folder(project).await.expect("there");
    owner.delete(&format!("/projects/{project}")).await;
    forge.run_due_tasks().await;
    assert!(!folder.exists());
    testkit::repository::git(&forge.repository_folder(fork).await.expect("there"), &["fsck", "--full"], b"");
}

async fn other_namespace(client: &TestClient) -> i64 {
    client.get("/namespaces").await.json()[0]["id"].as_i64().expect("a number")
}

#[tokio::test]
async fn imports_from_internal_addresses_are_refused() {
    let (forge, owner, project) = project().await;
    for url in ["http://127.0.0.1:1/x.git", "http://localhost/x", "http://169.254.169.254/x", "http://[::1]/x.git"] {
        let refused = owner.post("/projects", json!({"name": "Import", "import_url": url})).await;
        let text = "leads to an address that this server does not connect to";
        assert_eq!(
            (refused.status.as_u16(), refused.json()),
            (400, json!({"message": {"import_url": [text]}})),
            "{url}"
        );
    }
    for url in ["file:///etc", "ssh://git@example.com/x", "git://example.com/x"] {
        let refused = owner.post("/projects", json!({"name": "Import", "import_url": url})).await;
        let text = "must be a valid URL that begins with http:// or https://";
        assert_eq!(
            (refused.status.as_u16(), refused.json()),
            (400, json!({"message": {"import_url": [text]}})),
            "{url}"
        );
    }
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let full = owner
        .put(&format!("/projects/{project}"), json!({"name": "Rocket", "import_url": "https://example.com/x"}))
        .await;
    let text = "can only be given while the repository is empty";
    assert_eq!((full.status.as_u16(), full.json()), (400, json!({"message": {"import_url": [text]}})));
}

#[tokio::test]
async fn a_lost_race_has_the_same_error_as_a_later_request() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let base = format!("/projects/{project}/repository");
    let (branches, branch, tags) = (format!("{base}/branches"), format!("{base}/branches/x"), format!("{base}/tags"));
    let new = || owner.post(&branches, json!({"branch_name": "x", "ref": "master"}));
    let made = futures_util::future::join_all((0..8).map(|_| new())).await;
    assert_eq!(made.iter().filter(|answer| answer.code() == 200).count(), 1);
    for answer in made.iter().filter(|answer| answer.code() != 200) {
        assert_eq!((answer.code(), answer.json()), (400, json!({"message": "Branch already exists"})));
    }
    let gone = || owner.delete(&branch);
    let removed = futures_util::future::join_all((0..8).map(|_| gone())).await;
    assert_eq!(removed.iter().filter(|answer| answer.code() == 200).count(), 1);
    for answer in removed.iter().filter(|answer| answer.code() != 200) {
        assert_eq!((answer.code(), answer.json()), (404, json!({"message": "No such branch"})));
    }
    let tag = || owner.post(&tags, json!({"tag_name": "t", "ref": "master", "message": "m"}));
    let tagged = futures_util::future::join_all((0..8).map(|_| tag())).await;
    assert_eq!(tagged.iter().filter(|answer| answer.code() == 201).count(), 1);
    for answer in tagged.iter().filter(|answer| answer.code() != 201) {
        assert_eq!((answer.code(), answer.json()), (405, json!({"message": "Tag t already exists"})));
    }
}

#[tokio::test]
async fn events_of_a_push_of_many_branches_are_limited_in_size() {
    let (forge, owner, project) = project().await;
    let mut script = String::new();
    for number in 0..20 {
        let message = "m".repeat(66_000);
        script +=
            &format!("commit refs/heads/master\ncommitter x <x> {number} +0000\ndata {}\n{message}\n", message.len());
    }
    for number in 0..300 {
        script += &format!("reset refs/heads/b{number}\nfrom refs/heads/master\n\n");
    }
    forge.fast_import(&owner, project, &script).await;
    assert_eq!(forge.refs_of(project).len(), 301);
    let stored = forge.dump().matches("mmmmmmmm").count() * 8;
    assert!(stored <= 1 << 20, "{stored} bytes of messages");
    let events = owner.get(&format!("/projects/{project}/events?per_page=100")).await;
    assert_eq!(events.header("x-total"), "302", "and one for the project");
}

#[tokio::test]
async fn a_tag_may_point_to_a_large_blob() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let incoming = forge.quarantine(project).await;
    let folder = tempfile::tempdir().expect("a folder");
    testkit::repository::git(folder.path(), &["init", "-q", "--bare", "."], b"");
    let written = testkit::repository::git(folder.path(), &["hash-object", "-w", "--stdin"], &vec![0; 20 << 20]);
    let id = String::from_utf8(written.stdout).expect("text").trim().to_owned();
    let pack =
        testkit::repository::git(folder.path(), &["pack-objects", "--stdout", "-q"], format!("{id}\n").as_bytes());
    let mut child = incoming.index_pack(None).expect("a folder").spawn().expect("git starts");
    child.stdin.take().expect("a pipe").write_all(&pack.stdout).expect("taken");
    assert!(child.wait().expect("git ends").success());
    let changes =
        vec![change("refs/tags/blob", None, id.parse().ok()), change("refs/heads/blob", None, id.parse().ok())];
    let push = Push { changes, incoming: Some(incoming), atomic: false, options: Vec::new() };
    let caller = Caller::with_tokens(owner.token.as_deref());
    let outcomes = pushes::push(&forge.forge, caller, project, push, PushSource::Git).await.expect("a push");
    let reasons: Vec<Option<String>> = outcomes.into_iter().map(reason).collect();
    assert_eq!(reasons, [None, Some("a branch must point to a commit".to_owned())]);
    let shown = owner.get(&format!("/projects/{project}/repository/tags/blob")).await.json();
    assert_eq!((&shown["name"], &shown["commit"]), (&json!("blob"), &json!(null)));
}

#[tokio::test]
async fn an_action_without_content_does_not_empty_a_file() {
    let (forge, owner, project) = project().await;
    forge.fast_import(&owner, project, SMALL_REPOSITORY).await;
    let action = json!({"action": "update", "file_path": "README.md"});
    let new = json!({"branch_name": "master", "commit_message": "m", "actions": [action]});
    let refused = owner.post(&format!("/projects/{project}/repository/commits"), new).await;
    let text = json!({"message": "You must supply the content of `README.md`."});
    assert_eq!((refused.code(), refused.json()), (400, text));
}

#[tokio::test]
async fn a_token_without_the_scope_cannot_push() {
    let (forge, owner, _) = project().await;
    let root = forge.admin().await;
    let project = ProjectId::new(owner.make("/projects", json!({ "name": "open", "visibility_level": 20 })).await);
    for client in [&root, &owner] {
        let open = async |client: &TestClient, service| {
            let caller = Caller::with_tokens(client.token.as_deref());
            transport::open(&forge.forge, caller, ProjectRef::Id(project), service).await.map(drop)
        };
        let narrow = forge.client_with_token(client, &[Scope::ReadUser], None).await;
        assert!(open(client, Service::Push).await.is_ok());
        let refused = open(&narrow, Service::Push).await;
        assert!(
            matches!(&refused, Err(Error::Forbidden(Some(text))) if text == "You are not allowed to push code to this project."),
            "{refused:?}"
        );
        // The project is public.
        assert!(open(&narrow, Service::Fetch).await.is_ok());
    }
}
