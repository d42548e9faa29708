//! What a kill in the middle leaves of projects: all of one or nothing, and no file that nobody knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    admin::binary::{Client, Heard, Home, PATIENCE, Server},
    crash::crash_ways::{Campaign, End, Way, as_usual, pause},
};

/// How often one data folder is hit, unless told otherwise.
const KILLS: usize = 10;
/// How long after the first acknowledgements of each kind the server lives at most, in milliseconds.
const LATEST: u64 = 150;
/// How many clients create, move and remove projects at once.
const CLIENTS: usize = 4;

/// What must be 0 at every moment, on both engines: halves of projects and counters that lie.
const FAULTS: [(&str, &str); 6] = [
    (
        "projects without the membership of their creator",
        "SELECT count(*) FROM projects p JOIN namespaces n ON n.id = p.namespace_id WHERE n.kind = 'user' AND NOT EXISTS \
         (SELECT 1 FROM project_members m WHERE m.project_id = p.id AND m.user_id = p.creator_id AND m.access_level = 40)",
    ),
    (
        "removed projects without a job that cleans up",
        "SELECT count(*) FROM projects p WHERE p.deleted_at IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM jobs j WHERE j.kind = 'remove_project' AND j.payload = CAST(p.id AS TEXT) AND j.dead_at IS NULL)",
    ),
    (
        "counters of projects that are wrong",
        "SELECT count(*) FROM (SELECT visibility, archived, sum(amount) AS amount FROM project_counts \
         GROUP BY visibility, archived) c WHERE c.amount <> (SELECT count(*) FROM projects p \
         WHERE p.deleted_at IS NULL AND p.visibility = c.visibility AND p.archived = c.archived)",
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
fn no_half_project_and_no_orphan_file_after_kills_in_a_storm() {
    hit(Campaign::begin("crash_projects", KILLS, Way::Kill, as_usual));
}

/// Hits a server while projects are made, moved and removed, with a file each.
pub(crate) fn hit(mut campaign: Campaign) {
    let home = Home::new();
    let server = home.start();
    let root = server.root();
    root.try_put("/api/v3/users/1", &json!({ "projects_limit": 1_000_000 })).expect("changed");
    let target = root.post("/api/v3/groups", &json!({ "name": "Target", "path": "target" })).json()["id"].clone();
    server.stop();
    let mut diary = Diary::default();
    for kill in 0..campaign.kills {
        let server = campaign.start(&home);
        diary.compare(&home, &server);
        let heard: [Heard; 3] = Default::default();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| rage(&server, format!("p-{kill}-{number}"), target.clone(), &heard, campaign.way))
            .collect();
        heard.iter().for_each(Heard::wait);
        campaign.strike(&home, server, &heard, LATEST);
        for client in clients {
            diary.add(client.join().expect("nothing but success is heard"));
        }
    }
    let server = home.start();
    diary.compare(&home, &server);
    // On PostgreSQL a dead worker's jobs are taken over when its lease ends, and uploads count as given up after an hour;
    // this stands for the wait.
    if home.database_url().is_some() {
        home.execute("UPDATE uploads SET created_at = 0 WHERE NOT complete");
        home.execute("UPDATE jobs SET leased_until = NULL, run_at = 0");
    }
    wait_for_the_cleaner(&home);
    diary.compare(&home, &server);
    let known = home.count("SELECT count(*) FROM uploads WHERE complete");
    assert_eq!(i64::try_from(files_below(&home.data().join("files"))), Ok(known), "files that nobody knows");
    assert_eq!(home.count("SELECT count(*) FROM projects WHERE deleted_at IS NOT NULL"), 0);
    let (kept, moved, removed) = (diary.kept.len(), diary.moved.len(), diary.removed.len());
    let least = kept.min(moved).min(removed);
    assert!(least >= campaign.kills, "no storm at all: {kept}, {moved}, {removed}");
    campaign.finish(kept + moved + removed);
}

/// What was acknowledged, by the path of the project.
#[derive(Default)]
struct Diary {
    /// Created, and where each file can be fetched.
    kept: BTreeMap<String, Option<String>>,
    /// Moved into the group.
    moved: BTreeSet<String>,
    /// Removed.
    removed: BTreeSet<String>,
    /// Begun and not acknowledged: it may be either way.
    open: BTreeSet<String>,
}

impl Diary {
    fn add(&mut self, other: Self) {
        self.kept.extend(other.kept);
        self.moved.extend(other.moved);
        self.removed.extend(other.removed);
        self.open.extend(other.open);
    }

    /// Everything acknowledged is so, and nothing is there by half.
    fn compare(&self, home: &Home, server: &Server) {
        for (what, query) in FAULTS {
            assert_eq!(home.count(query), 0, "{what}");
        }
        let root = server.root();
        let there = paths_of(&root);
        let settled = |path: &&String| !self.open.contains(*path);
        for path in self.kept.keys().filter(settled) {
            assert!(there.contains(&format!("root/{path}")), "{path} is lost");
        }
        for path in self.moved.iter().filter(settled) {
            assert!(there.contains(&format!("target/{path}")), "{path} is not where it was moved");
        }
        for path in &self.removed {
            let back = there.contains(&format!("root/{path}")) || there.contains(&format!("target/{path}"));
            assert!(!back, "{path} was removed and is back again");
        }
        // Of the newest few, the files too.
        for (path, url) in self.kept.iter().rev().take(5) {
            let Some(url) = url.as_ref().filter(|_| !self.open.contains(path)) else { continue };
            let reply = root.get(&format!("/root/{path}{url}"));
            assert_eq!((reply.status, reply.text.as_str()), (200, path.as_str()), "the file of {path}");
        }
    }
}

/// Creates projects with a file each until the server dies: of four, two stay, one is moved and one removed.
fn rage(server: &Server, name: String, target: Value, heard: &[Heard; 3], way: Way) -> JoinHandle<Diary> {
    let (root, heard) = (server.root(), heard.clone());
    thread::spawn(move || {
        let mut diary = Diary::default();
        for number in 0.. {
            let path = format!("{name}-{number}");
            diary.open.insert(path.clone());
            match work(&root, &path, number, &target, &mut diary, &heard, way) {
                Ok(()) => drop(diary.open.remove(&path)),
                // It stays open how far it came.
                Err(End::Refused) => pause(),
                Err(End::Gone) => break,
            }
        }
        diary
    })
}

/// One project's life, unless the server dies in it or refuses to go on.
fn work(
    root: &Client,
    path: &str,
    number: usize,
    target: &Value,
    diary: &mut Diary,
    heard: &[Heard; 3],
    way: Way,
) -> Result<(), End> {
    let created = way.heard(root.try_post("/api/v3/projects", &json!({ "name": path })))?;
    let id = created["id"].clone();
    let uploaded = way.heard(root.try_upload(&format!("/api/v3/projects/{id}/uploads"), "note.txt", path))?;
    let url = uploaded["url"].as_str().ok_or(End::Gone)?.to_owned();
    match number % 4 {
        0 => {
            way.heard(root.try_post(&format!("/api/v3/groups/{target}/projects/{id}"), &json!({})))?;
            diary.moved.insert(path.to_owned());
            heard[0].note();
        }
        1 => {
            way.heard(root.try_delete(&format!("/api/v3/projects/{id}")))?;
            diary.removed.insert(path.to_owned());
            heard[1].note();
        }
        _ => {
            diary.kept.insert(path.to_owned(), Some(url));
            heard[2].note();
        }
    }
    Ok(())
}

/// The full paths of all projects.
fn paths_of(root: &Client) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for page in 1.. {
        let reply = root.get(&format!("/api/v3/projects/all?simple=true&per_page=100&order_by=id&page={page}"));
        assert_eq!(reply.status, 200, "{reply}");
        let projects = reply.json();
        let projects = projects.as_array().expect("a list");
        paths
            .extend(projects.iter().map(|project| project["path_with_namespace"].as_str().expect("a path").to_owned()));
        if projects.len() < 100 {
            break;
        }
    }
    paths
}

/// Waits until the worker has removed everything that was to be removed.
fn wait_for_the_cleaner(home: &Home) {
    let start = Instant::now();
    let left = "SELECT (SELECT count(*) FROM jobs WHERE kind = 'remove_project') \
                + (SELECT count(*) FROM uploads WHERE NOT complete)";
    while home.count(left) > 0 {
        assert!(start.elapsed() < PATIENCE, "the cleaner does not come to an end");
        thread::sleep(Duration::from_millis(20));
    }
}

fn files_below(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}
