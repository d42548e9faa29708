//! Crashes while projects are created, moved and removed: each exists completely or not at all, and no file is orphaned.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    crash::campaign::{Campaign, FailureMode, WriteFailure, default_server, wait_before_retry},
    support::{Acknowledgement, HttpClient, ServerProcess, TestInstance, WAIT_TIMEOUT},
};

/// The default number of crashes per data folder.
const KILLS: usize = 10;
/// The maximum delay between the first acknowledgement of each kind and the crash, in milliseconds.
const MAX_DELAY: u64 = 150;
/// The number of clients that write concurrently.
const CLIENTS: usize = 4;

/// Counts that must always be 0 on both engines: incomplete projects and wrong counters.
const INVARIANTS: [(&str, &str); 8] = [
    (
        "projects without the membership of their creator",
        "SELECT count(*) FROM projects p JOIN namespaces n ON n.id = p.namespace_id WHERE n.kind = 'user' AND NOT EXISTS \
         (SELECT 1 FROM project_members m WHERE m.project_id = p.id AND m.user_id = p.creator_id AND m.access_level = 40)",
    ),
    (
        "removed projects without a cleanup task",
        "SELECT count(*) FROM projects p WHERE p.deleted_at IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM jobs j WHERE j.kind = 'remove_project' AND j.payload = CAST(p.id AS TEXT) AND j.dead_at IS NULL)",
    ),
    (
        "wrong project counters",
        "SELECT count(*) FROM (SELECT visibility, archived, sum(amount) AS amount FROM project_counts \
         GROUP BY visibility, archived) c WHERE c.amount <> (SELECT count(*) FROM projects p \
         WHERE p.deleted_at IS NULL AND p.visibility = c.visibility AND p.archived = c.archived)",
    ),
    (
        "wrong project counters of namespaces",
        "SELECT count(*) FROM (SELECT 1 FROM (SELECT namespace_id, visibility, archived, amount \
         FROM namespace_project_counts UNION ALL SELECT namespace_id, visibility, archived, -count(*) FROM projects \
         WHERE namespace_id IS NOT NULL GROUP BY namespace_id, visibility, archived) c \
         GROUP BY namespace_id, visibility, archived HAVING sum(amount) <> 0) w",
    ),
    (
        "wrong counters of memberships",
        "SELECT count(*) FROM (SELECT 1 FROM (SELECT user_id, visibility, archived, amount FROM member_project_counts \
         UNION ALL SELECT m.user_id, p.visibility, p.archived, -count(*) FROM project_members m \
         JOIN projects p ON p.id = m.project_id JOIN namespaces n ON n.id = p.namespace_id \
         WHERE coalesce(n.owner_id, 0) <> m.user_id GROUP BY m.user_id, p.visibility, p.archived) c \
         GROUP BY user_id, visibility, archived HAVING sum(amount) <> 0) w",
    ),
    (
        "users whose personal projects are miscounted",
        "SELECT count(*) FROM users u WHERE u.personal_projects <> (SELECT count(*) FROM projects p \
         JOIN namespaces n ON n.id = p.namespace_id WHERE n.owner_id = u.id)",
    ),
    (
        "projects whose stars are miscounted",
        "SELECT count(*) FROM projects p WHERE p.star_count <> \
         (SELECT count(*) FROM project_stars s WHERE s.project_id = p.id)",
    ),
    (
        "groups without an owner",
        "SELECT count(*) FROM namespaces n WHERE n.kind = 'group' AND NOT EXISTS \
         (SELECT 1 FROM group_members m WHERE m.group_id = n.id AND m.access_level = 50)",
    ),
];

#[test]
fn no_project_is_incomplete_and_no_file_is_orphaned_when_killed_during_writes() {
    run(Campaign::new("crash_projects", KILLS, FailureMode::Kill, default_server));
}

/// Crashes servers while projects with an upload each are created, moved and removed.
pub(crate) fn run(mut campaign: Campaign) {
    let instance = TestInstance::new();
    let server = instance.start();
    let root = server.root();
    root.try_put("/api/v3/users/1", &json!({ "projects_limit": 1_000_000 })).expect("changed");
    let target = root.post("/api/v3/groups", &json!({ "name": "Target", "path": "target" })).json()["id"].clone();
    server.stop();
    let mut expected = ExpectedProjects::default();
    for kill in 0..campaign.kills {
        let server = campaign.start(&instance);
        expected.check(&instance, &server);
        let acknowledgements: [Acknowledgement; 3] = Default::default();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                run_until_killed(
                    &server,
                    format!("p-{kill}-{number}"),
                    target.clone(),
                    &acknowledgements,
                    campaign.mode,
                )
            })
            .collect();
        acknowledgements.iter().for_each(Acknowledgement::wait);
        campaign.crash(&instance, server, &acknowledgements, MAX_DELAY);
        for client in clients {
            expected.merge(client.join().expect("every response is a success"));
        }
    }
    let server = instance.start();
    expected.check(&instance, &server);
    // On PostgreSQL, tasks of a dead worker are taken over after their lease, and uploads are abandoned after an hour;
    // this replaces the wait.
    if instance.database_url().is_some() {
        instance.execute("UPDATE uploads SET created_at = 0 WHERE NOT complete");
        instance.execute("UPDATE jobs SET leased_until = NULL, run_at = 0");
    }
    wait_for_cleanup(&instance);
    expected.check(&instance, &server);
    let uploads = instance.count("SELECT count(*) FROM uploads WHERE complete");
    assert_eq!(i64::try_from(files_below(&instance.data().join("files"))), Ok(uploads), "orphaned files");
    assert_eq!(instance.count("SELECT count(*) FROM projects WHERE deleted_at IS NOT NULL"), 0);
    let (kept, moved, removed) = (expected.kept.len(), expected.moved.len(), expected.removed.len());
    let minimum = kept.min(moved).min(removed);
    assert!(minimum >= campaign.kills, "too few writes: {kept}, {moved}, {removed}");
    campaign.finish(kept + moved + removed);
}

/// The acknowledged changes, by the path of the project.
#[derive(Default)]
struct ExpectedProjects {
    /// Created projects, with the URL of the upload.
    kept: BTreeMap<String, Option<String>>,
    /// Projects moved into the group.
    moved: BTreeSet<String>,
    /// Removed projects.
    removed: BTreeSet<String>,
    /// Projects whose last change was not acknowledged: it may have happened or not.
    unresolved: BTreeSet<String>,
}

impl ExpectedProjects {
    fn merge(&mut self, other: Self) {
        self.kept.extend(other.kept);
        self.moved.extend(other.moved);
        self.removed.extend(other.removed);
        self.unresolved.extend(other.unresolved);
    }

    /// Checks that everything acknowledged is there, and nothing in part.
    fn check(&self, instance: &TestInstance, server: &ServerProcess) {
        for (what, query) in INVARIANTS {
            assert_eq!(instance.count(query), 0, "{what}");
        }
        let root = server.root();
        let there = paths_of(&root);
        let is_resolved = |path: &&String| !self.unresolved.contains(*path);
        for path in self.kept.keys().filter(is_resolved) {
            assert!(there.contains(&format!("root/{path}")), "{path} is lost");
        }
        for path in self.moved.iter().filter(is_resolved) {
            assert!(there.contains(&format!("target/{path}")), "{path} is not where it was moved");
        }
        for path in &self.removed {
            let back = there.contains(&format!("root/{path}")) || there.contains(&format!("target/{path}"));
            assert!(!back, "{path} was removed, but is back again");
        }
        // The uploads are checked for the newest few only.
        for (path, url) in self.kept.iter().rev().take(5) {
            let Some(url) = url.as_ref().filter(|_| !self.unresolved.contains(path)) else { continue };
            let response = root.get(&format!("/root/{path}{url}"));
            assert_eq!((response.status, response.text.as_str()), (200, path.as_str()), "the file of {path}");
        }
    }
}

/// Creates projects with an upload each until the server dies: of four, two stay, one is moved and one is removed.
fn run_until_killed(
    server: &ServerProcess,
    name: String,
    target: Value,
    acknowledgements: &[Acknowledgement; 3],
    mode: FailureMode,
) -> JoinHandle<ExpectedProjects> {
    let (root, acknowledgements) = (server.root(), acknowledgements.clone());
    thread::spawn(move || {
        let mut expected = ExpectedProjects::default();
        for number in 0.. {
            let path = format!("{name}-{number}");
            expected.unresolved.insert(path.clone());
            match run_project_lifecycle(&root, &path, number, &target, &mut expected, &acknowledgements, mode) {
                Ok(()) => drop(expected.unresolved.remove(&path)),
                // How far it got stays unresolved.
                Err(WriteFailure::DiskFull) => wait_before_retry(),
                Err(WriteFailure::ServerGone) => break,
            }
        }
        expected
    })
}

/// Creates a project and perhaps moves or removes it; fails if the server dies or the disk is full.
fn run_project_lifecycle(
    root: &HttpClient,
    path: &str,
    number: usize,
    target: &Value,
    expected: &mut ExpectedProjects,
    acknowledgements: &[Acknowledgement; 3],
    mode: FailureMode,
) -> Result<(), WriteFailure> {
    let created = mode.acknowledged(root.try_post("/api/v3/projects", &json!({ "name": path })))?;
    let id = created["id"].clone();
    let uploaded = mode.acknowledged(root.try_upload(&format!("/api/v3/projects/{id}/uploads"), "note.txt", path))?;
    let url = uploaded["url"].as_str().ok_or(WriteFailure::ServerGone)?.to_owned();
    match number % 4 {
        0 => {
            mode.acknowledged(root.try_post(&format!("/api/v3/groups/{target}/projects/{id}"), &json!({})))?;
            expected.moved.insert(path.to_owned());
            acknowledgements[0].record();
        }
        1 => {
            mode.acknowledged(root.try_delete(&format!("/api/v3/projects/{id}")))?;
            expected.removed.insert(path.to_owned());
            acknowledgements[1].record();
        }
        _ => {
            expected.kept.insert(path.to_owned(), Some(url));
            acknowledgements[2].record();
        }
    }
    Ok(())
}

/// Returns the full paths of all projects.
fn paths_of(root: &HttpClient) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for page in 1.. {
        let response = root.get(&format!("/api/v3/projects/all?simple=true&per_page=100&order_by=id&page={page}"));
        assert_eq!(response.status, 200, "{response}");
        let projects = response.json();
        let projects = projects.as_array().expect("a list");
        paths
            .extend(projects.iter().map(|project| project["path_with_namespace"].as_str().expect("a path").to_owned()));
        if projects.len() < 100 {
            break;
        }
    }
    paths
}

/// Waits until the background tasks have removed all removed projects and incomplete uploads.
fn wait_for_cleanup(instance: &TestInstance) {
    let start = Instant::now();
    let left = "SELECT (SELECT count(*) FROM jobs WHERE kind = 'remove_project') \
                + (SELECT count(*) FROM uploads WHERE NOT complete)";
    while instance.count(left) > 0 {
        assert!(start.elapsed() < WAIT_TIMEOUT, "the cleanup does not finish");
        thread::sleep(Duration::from_millis(20));
    }
}

fn files_below(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}
