//! What commits say about issues: they name them, and they close them.

use forge::{
    Caller,
    pushes::{self, Push, Via},
};
use jiff::SignedDuration;
use model::{Change, Oid, Page, RefChange, RefName};
use serde_json::json;
use store::{intents::NewIntent, issues::NewIssue, mentions::Mention};
use testkit::{Client, TestForge};

/// A forge with Ann and a private project of hers.
async fn scene() -> (TestForge, Client, i64) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    (forge, ann, project)
}

/// Adds an issue; says its number.
fn issue(forge: &TestForge, project: i64, author: i64, confidential: bool) -> i64 {
    let now = forge.forge.now();
    forge.in_one_go(|db| {
        let iid = store::issues::next_number(db, project).expect("a number");
        let new = NewIssue {
            project,
            iid,
            author: Some(author),
            title: "It does not fly",
            description: None,
            assignee: None,
            milestone: None,
            due_on: None,
            confidential,
            created_at: now,
            now,
        };
        store::issues::insert(db, &new).expect("an issue")
    })
}

/// What the service says on an issue, with names for the commits.
fn told(forge: &TestForge, issue: i64, commits: &[(&str, &str)]) -> Vec<String> {
    let page = Page::new(Some(1), Some(100));
    let notes = forge.behind_the_back(|db| store::notes::list(db, issue, page).expect("notes"));
    let short = |body: String| commits.iter().fold(body, |body, (sha, name)| body.replace(sha, name));
    notes.items.into_iter().filter(|note| note.system).map(|note| short(note.body)).collect()
}

/// Adds a file to a branch with a message; says which commit that is.
async fn commit(forge: &TestForge, client: &Client, project: i64, branch: &str, message: &str) -> String {
    let new =
        json!({ "file_path": fresh_name(forge), "branch_name": branch, "content": "x", "commit_message": message });
    let made = client.post(&format!("/projects/{project}/repository/files"), new).await;
    assert_eq!(made.code(), 201, "{made}");
    tip(forge, project, branch)
}

fn tip(forge: &TestForge, project: i64, branch: &str) -> String {
    let name = format!("refs/heads/{branch}");
    forge.refs_of(project).into_iter().find(|(found, _)| *found == name).expect("a branch").1
}

/// A name that nothing had before.
fn fresh_name(forge: &TestForge) -> String {
    forge.clock.advance(SignedDuration::from_secs(1));
    forge.forge.now().as_second().to_string()
}

/// A history of one commit, as `git fast-import` reads it: whatever follows it is pushed onto it.
const FIRST: &str = "commit refs/heads/master\ncommitter x <x> 0 +0000\ndata 1\nx\n";

async fn open_issues(client: &Client, project: i64) -> serde_json::Value {
    client.get(&format!("/projects/{project}")).await.json()["open_issues_count"].clone()
}

#[tokio::test]
async fn commits_close_issues_once_they_are_on_the_default_branch() {
    let (forge, ann, project) = scene().await;
    let issues = [1, 2, 3].map(|_| issue(&forge, project, ann.id, false));
    assert_eq!(open_issues(&ann, project).await, 3);
    // The push that makes the default branch may bring a history that was told elsewhere.
    commit(&forge, &ann, project, "master", "Closes #3").await;
    assert_eq!(told(&forge, issues[2], &[]), Vec::<String>::new());
    let first = commit(&forge, &ann, project, "master", "First steps, see #3 and a#1").await;
    assert_eq!(told(&forge, issues[2], &[(&first, "FIRST")]), ["mentioned in commit FIRST"]);
    // What is said elsewhere waits until it gets there.
    let branch = json!({ "branch_name": "side", "ref": "master" });
    assert_eq!(ann.post(&format!("/projects/{project}/repository/branches"), branch).await.code(), 200);
    let side = commit(&forge, &ann, project, "side", "Closes #1").await;
    assert_eq!(told(&forge, issues[0], &[]), Vec::<String>::new());
    let oid = |text: &str| text.parse::<Oid>().ok();
    let name = RefName::new("refs/heads/master").expect("a name");
    let changes = vec![RefChange { name, old: oid(&first), new: oid(&side) }];
    let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
    let caller = Caller::with_tokens(ann.token.as_deref());
    let outcomes = pushes::push(&forge.forge, caller, project, push, Via::Push).await.expect("a push");
    assert_eq!(outcomes[0].refusal, None);
    assert_eq!(told(&forge, issues[0], &[(&side, "SIDE")]), ["Status changed to closed by commit SIDE"]);
    assert_eq!(open_issues(&ann, project).await, 2);
    // One that is closed already is only named; one that is not there is nothing.
    let text = "Fixes: #2, #3 and #99\n\nIt also closes #1, and fixes #2 again. See #2.";
    let last = commit(&forge, &ann, project, "master", text).await;
    let names = [(&*first, "FIRST"), (&*side, "SIDE"), (&*last, "LAST")];
    assert_eq!(
        issues.map(|issue| told(&forge, issue, &names).join(", ")),
        [
            "Status changed to closed by commit SIDE, mentioned in commit LAST",
            "Status changed to closed by commit LAST",
            "mentioned in commit FIRST, Status changed to closed by commit LAST",
        ]
    );
    assert_eq!(open_issues(&ann, project).await, 0);
    let events = ann.get(&format!("/projects/{project}/events")).await;
    assert_eq!(
        events.each("action_name"),
        "closed closed pushed to closed pushed to pushed to pushed new pushed to pushed new created"
    );
    let closed = &events.json()[0];
    assert_eq!(
        (&closed["target_type"], &closed["target_title"], &closed["author_username"], &closed["data"]),
        (&json!("Issue"), &json!("It does not fly"), &json!("ann"), &json!(null))
    );
}

#[tokio::test]
async fn a_commit_does_in_other_projects_what_its_pusher_may() {
    let (forge, ann, project) = scene().await;
    let bob = forge.user("bob").await;
    let member = json!({ "user_id": bob.id, "access_level": 40 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    let new = |name: &str, visibility: i64| json!({ "name": name, "path": name, "visibility_level": visibility });
    let (secret, open, quiet) = (
        ann.make("/projects", new("secret", 0)).await,
        ann.make("/projects", new("open", 20)).await,
        ann.make("/projects", new("quiet", 20)).await,
    );
    let own = bob.make("/projects", new("own", 0)).await;
    let home = issue(&forge, project, ann.id, true);
    let unseen = issue(&forge, secret, bob.id, false);
    let others = issue(&forge, open, ann.id, false);
    let mine = issue(&forge, open, bob.id, true);
    let off = issue(&forge, quiet, bob.id, false);
    let own = issue(&forge, own, bob.id, false);
    let switch = json!({ "name": "quiet", "issues_enabled": false });
    assert_eq!(ann.put(&format!("/projects/{quiet}"), switch).await.code(), 200);
    commit(&forge, &ann, project, "master", "x").await;
    let text = "Closes ann/rocket#1, ann/secret#1, ann/open#1, Ann/Open#2, ann/quiet#1, bob/own#1, no/where#1\n\n\
                See ann/open#1.";
    let sha = commit(&forge, &bob, project, "master", text).await;
    let closed = "Status changed to closed by commit SHA";
    let said = [home, unseen, others, mine, off, own].map(|issue| told(&forge, issue, &[(&sha, "SHA")]).join(", "));
    assert_eq!(said, [closed, "", "", closed, "", closed]);
    // The same as one whom all of it belongs to.
    let text = "Closes ann/secret#1 and ann/open#1, mentions ann/quiet#1 and bob/own#1";
    let sha = commit(&forge, &ann, project, "master", text).await;
    let said = [unseen, others, off].map(|issue| told(&forge, issue, &[(&sha, "SHA")]).join(", "));
    assert_eq!(said, [closed, closed, ""]);
    assert_eq!(told(&forge, own, &[]).len(), 1, "Ann does not see it");
}

#[tokio::test]
async fn what_commits_say_of_an_interrupted_push_happens_once_or_never() {
    let (forge, ann, project) = scene().await;
    let (closed, named) = (issue(&forge, project, ann.id, false), issue(&forge, project, ann.id, false));
    let master = commit(&forge, &ann, project, "master", "x").await;
    let now = forge.forge.now();
    let intend = |name: &str| {
        let name = RefName::new(name).expect("a name");
        let changes = [RefChange { name, old: None, new: master.parse().ok() }];
        let new = NewIntent {
            project,
            user: Some(ann.id),
            changes: &changes,
            default_branch: Change::Keep,
            protection: None,
            now,
        };
        let mention = |issue, closes| Mention { project, issue, sha: master.clone(), closes };
        forge.in_one_go(|db| {
            let intent = store::intents::insert(db, &new).expect("written");
            store::mentions::insert(db, intent, &[mention(closed, true), mention(named, false)]).expect("written");
        });
    };
    let said = || [closed, named].map(|issue| told(&forge, issue, &[(&master, "SHA")]).join(", "));
    // Nothing has moved: nothing was said.
    intend("refs/heads/never");
    pushes::settle_all(&forge.forge).await.expect("settled");
    assert_eq!(said(), ["", ""]);
    // It has moved before the server died: the rest follows, once.
    intend("refs/heads/moved");
    let folder = forge.repository_folder(project).expect("a repository");
    std::fs::write(folder.join("refs/heads/moved"), format!("{master}\n")).expect("written");
    for _ in 0..2 {
        pushes::settle_all(&forge.forge).await.expect("settled");
        assert_eq!(said(), ["Status changed to closed by commit SHA", "mentioned in commit SHA"]);
    }
    // The same commit is told once to each issue, by whatever push it comes.
    intend("refs/heads/again");
    std::fs::write(folder.join("refs/heads/again"), format!("{master}\n")).expect("written");
    pushes::settle_all(&forge.forge).await.expect("settled");
    let twice = "Status changed to closed by commit SHA, mentioned in commit SHA";
    assert_eq!(said(), [twice, "mentioned in commit SHA"]);
    assert!(!forge.dump().contains("refs/heads/again"), "nothing is left of it");
}

#[tokio::test]
async fn of_a_huge_push_only_the_newest_words_are_heard() {
    let (forge, ann, project) = scene().await;
    let issues: Vec<i64> = (0..120).map(|_| issue(&forge, project, ann.id, false)).collect();
    let mut script = FIRST.to_owned();
    forge.fill(&ann, project, &script).await;
    let mut say = |number: usize, text: &str| {
        script += &format!("commit refs/heads/master\ncommitter x <x> {number} +0000\ndata {}\n{text}\n", text.len());
    };
    say(0, "Closes #120");
    for number in 1..1000 {
        say(number, "See #1");
    }
    let all: Vec<String> = (1..120).map(|number| format!("#{number}")).collect();
    say(1000, &format!("Closes {}", all.join(" ")));
    forge.fill(&ann, project, &script).await;
    assert_eq!(open_issues(&ann, project).await, 20, "a hundred are closed");
    assert_eq!(told(&forge, issues[119], &[]), Vec::<String>::new(), "that is too long ago");
    let notes = forge.dump().matches("mentioned in commit").count();
    assert!(notes < 1000, "{notes} notes");
}

#[tokio::test]
async fn pushes_that_close_the_same_issues_at_once_close_them_once() {
    let (forge, ann, first) = scene().await;
    let second = ann.make("/projects", json!({ "name": "Station", "path": "station" })).await;
    let issues = [issue(&forge, first, ann.id, false), issue(&forge, second, ann.id, false)];
    for project in [first, second] {
        commit(&forge, &ann, project, "master", "x").await;
    }
    let push = |project: i64, text: &'static str| {
        let new = json!({ "file_path": "x", "branch_name": "master", "content": "x", "commit_message": text });
        let (ann, path) = (&ann, format!("/projects/{project}/repository/files"));
        async move { ann.post(&path, new).await.code() }
    };
    let one = push(first, "Closes ann/rocket#1 and ann/station#1, this way");
    let other = push(second, "Closes ann/station#1 and ann/rocket#1, that way");
    assert_eq!(futures_util::future::join(one, other).await, (201, 201));
    let commits = [tip(&forge, first, "master"), tip(&forge, second, "master")];
    let names: Vec<(&str, &str)> = commits.iter().map(|sha| (&**sha, "SHA")).collect();
    for issue in issues {
        let said = told(&forge, issue, &names);
        assert_eq!(said, ["Status changed to closed by commit SHA", "mentioned in commit SHA"]);
    }
}

#[tokio::test]
async fn an_issue_is_closed_by_whatever_name_it_is_given() {
    let (forge, ann, project) = scene().await;
    let issues = [1, 2].map(|_| issue(&forge, project, ann.id, false));
    commit(&forge, &ann, project, "master", "x").await;
    let one = commit(&forge, &ann, project, "master", "See #1 here, and ann/rocket#2\n\nCloses Ann/Rocket#1").await;
    let other = commit(&forge, &ann, project, "master", "Fixes ann/rocket#2, see #2").await;
    let names = [(&*one, "ONE"), (&*other, "OTHER")];
    assert_eq!(
        issues.map(|issue| told(&forge, issue, &names).join(", ")),
        ["Status changed to closed by commit ONE", "mentioned in commit ONE, Status changed to closed by commit OTHER"]
    );
}

#[tokio::test]
async fn what_commits_say_is_told_in_their_order() {
    let (forge, ann, project) = scene().await;
    let issue = issue(&forge, project, ann.id, false);
    let mut script = FIRST.to_owned();
    forge.fill(&ann, project, &script).await;
    for number in 1..=5 {
        let text = format!("Step {number} of #1");
        script += &format!("commit refs/heads/master\ncommitter x <x> {number} +0000\ndata {}\n{text}\n", text.len());
    }
    forge.fill(&ann, project, &script).await;
    let commits = ann.get(&format!("/projects/{project}/repository/commits")).await;
    let mut ids: Vec<String> = commits.each("id").split(' ').map(ToOwned::to_owned).collect();
    ids.pop();
    ids.reverse();
    let expected: Vec<String> = ids.iter().map(|sha| format!("mentioned in commit {sha}")).collect();
    assert_eq!(told(&forge, issue, &[]), expected);
}
