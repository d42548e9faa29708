//! Mentions of issues in commit messages.

use forge::{
    Caller,
    pushes::{self, Push, PushSource},
};
use jiff::SignedDuration;
use model::{IssueId, Oid, Page, ProjectId, RefChange, RefName, UserId};
use serde_json::json;
use store::issues::NewIssue;
use testkit::{TestClient, TestForge};

/// Starts a forge with Ann and a private project of hers.
async fn start() -> (TestForge, TestClient, ProjectId) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await);
    (forge, ann, project)
}

/// Inserts an issue and returns its id.
fn issue(forge: &TestForge, project: ProjectId, author: UserId, confidential: bool) -> IssueId {
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let iid = store::issues::next_iid(db, project).expect("a number");
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

/// Returns the system notes on an issue, with names in place of commit ids.
fn system_notes(forge: &TestForge, issue: IssueId, commits: &[(&str, &str)]) -> Vec<String> {
    let page = Page::new(Some(1), Some(100));
    let notes = forge.with_connection(|db| store::notes::list(db, issue, page).expect("notes"));
    let with_names = |body: String| commits.iter().fold(body, |body, (sha, name)| body.replace(sha, name));
    notes.items.into_iter().filter(|note| note.system).map(|note| with_names(note.body)).collect()
}

/// Adds a file to a branch and returns the commit.
async fn commit(forge: &TestForge, client: &TestClient, project: ProjectId, branch: &str, message: &str) -> String {
    let new =
        json!({ "file_path": unique_name(forge), "branch_name": branch, "content": "x", "commit_message": message });
    let made = client.post(&format!("/projects/{project}/repository/files"), new).await;
    assert_eq!(made.code(), 201, "{made}");
    tip(forge, project, branch)
}

fn tip(forge: &TestForge, project: ProjectId, branch: &str) -> String {
    let name = format!("refs/heads/{branch}");
    forge.refs_of(project).into_iter().find(|(found, _)| *found == name).expect("a branch").1
}

/// Returns a unique file name.
fn unique_name(forge: &TestForge) -> String {
    forge.clock.advance(SignedDuration::from_secs(1));
    forge.forge.now().as_second().to_string()
}

/// A history of one commit in the format of `git fast-import`; more commits can be appended.
const FIRST_COMMIT: &str = "commit refs/heads/master\ncommitter x <x> 0 +0000\ndata 1\nx\n";

async fn open_issues(client: &TestClient, project: ProjectId) -> serde_json::Value {
    client.get(&format!("/projects/{project}")).await.json()["open_issues_count"].clone()
}

#[tokio::test]
async fn commits_close_issues_once_they_are_on_the_default_branch() {
    let (forge, ann, project) = start().await;
    let issues = [1, 2, 3].map(|_| issue(&forge, project, ann.id, false));
    assert_eq!(open_issues(&ann, project).await, 3);
    // The push that creates the default branch may import a history; its mentions are ignored.
    commit(&forge, &ann, project, "master", "Closes #3").await;
    assert_eq!(system_notes(&forge, issues[2], &[]), Vec::<String>::new());
    let first = commit(&forge, &ann, project, "master", "First steps, see #3 and a#1").await;
    assert_eq!(system_notes(&forge, issues[2], &[(&first, "FIRST")]), ["mentioned in commit FIRST"]);
    // Mentions on other branches take effect when the commits reach the default branch.
    let branch = json!({ "branch_name": "side", "ref": "master" });
    assert_eq!(ann.post(&format!("/projects/{project}/repository/branches"), branch).await.code(), 200);
    let side = commit(&forge, &ann, project, "side", "Closes #1").await;
    assert_eq!(system_notes(&forge, issues[0], &[]), Vec::<String>::new());
    let oid = |text: &str| text.parse::<Oid>().ok();
    let name = RefName::new("refs/heads/master").expect("a name");
    let changes = vec![RefChange { name, old: oid(&first), new: oid(&side) }];
    let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
    let caller = Caller::with_tokens(ann.token.as_deref());
    let outcomes = pushes::push(&forge.forge, caller, project, push, PushSource::Git).await.expect("a push");
    assert_eq!(outcomes[0].rejection, None);
    assert_eq!(system_notes(&forge, issues[0], &[(&side, "SIDE")]), ["Status changed to closed by commit SIDE"]);
    assert_eq!(open_issues(&ann, project).await, 2);
    // A closed issue is only mentioned; a missing one is ignored.
    let text = "Fixes: #2, #3 and #99\n\nIt also closes #1, and fixes #2 again. See #2.";
    let last = commit(&forge, &ann, project, "master", text).await;
    let names = [(&*first, "FIRST"), (&*side, "SIDE"), (&*last, "LAST")];
    assert_eq!(
        issues.map(|issue| system_notes(&forge, issue, &names).join(", ")),
        [
            "Status changed to closed by commit SIDE, mentioned in commit LAST",
            "Status changed to closed by commit LAST",
            "mentioned in commit FIRST, Status changed to closed by commit LAST",
        ]
    );
    assert_eq!(open_issues(&ann, project).await, 0);
    let events = ann.get(&format!("/projects/{project}/events")).await;
    assert_eq!(
        events.join_field("action_name"),
        "closed closed pushed to closed pushed to pushed to pushed new pushed to pushed new created"
    );
    let closed = &events.json()[0];
    assert_eq!(
        (&closed["target_type"], &closed["target_title"], &closed["author_username"], &closed["data"]),
        (&json!("Issue"), &json!("It does not fly"), &json!("ann"), &json!(null))
    );
}

#[tokio::test]
async fn a_commit_closes_issues_of_other_projects_that_its_pusher_may_close() {
    let (forge, ann, project) = start().await;
    let bob = forge.user("bob").await;
    let member = json!({ "user_id": bob.id.get(), "access_level": 40 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    let new = |name: &str, visibility: i64| json!({ "name": name, "path": name, "visibility_level": visibility });
    let (secret, open, quiet) = (
        ProjectId::new(ann.make("/projects", new("secret", 0)).await),
        ProjectId::new(ann.make("/projects", new("open", 20)).await),
        ProjectId::new(ann.make("/projects", new("quiet", 20)).await),
    );
    let own = ProjectId::new(bob.make("/projects", new("own", 0)).await);
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
    let notes =
        [home, unseen, others, mine, off, own].map(|issue| system_notes(&forge, issue, &[(&sha, "SHA")]).join(", "));
    assert_eq!(notes, [closed, "", "", closed, "", closed]);
    // The same with the owner as pusher.
    let text = "Closes ann/secret#1 and ann/open#1, mentions ann/quiet#1 and bob/own#1";
    let sha = commit(&forge, &ann, project, "master", text).await;
    let notes = [unseen, others, off].map(|issue| system_notes(&forge, issue, &[(&sha, "SHA")]).join(", "));
    assert_eq!(notes, [closed, closed, ""]);
    assert_eq!(system_notes(&forge, own, &[]).len(), 1, "Ann does not see it");
}

#[tokio::test]
async fn of_a_huge_push_only_the_newest_commits_are_parsed() {
    let (forge, ann, project) = start().await;
    let issues: Vec<IssueId> = (0..120).map(|_| issue(&forge, project, ann.id, false)).collect();
    let mut script = FIRST_COMMIT.to_owned();
    forge.fast_import(&ann, project, &script).await;
    let mut append_commit = |number: usize, text: &str| {
        script += &format!("commit refs/heads/master\ncommitter x <x> {number} +0000\ndata {}\n{text}\n", text.len());
    };
    append_commit(0, "Closes #120");
    for number in 1..1000 {
        append_commit(number, "See #1");
    }
    let all: Vec<String> = (1..120).map(|number| format!("#{number}")).collect();
    append_commit(1000, &format!("Closes {}", all.join(" ")));
    forge.fast_import(&ann, project, &script).await;
    assert_eq!(open_issues(&ann, project).await, 20, "a hundred are closed");
    assert_eq!(system_notes(&forge, issues[119], &[]), Vec::<String>::new(), "only the newest commits are parsed");
    let notes = forge.dump().matches("mentioned in commit").count();
    assert!(notes < 1000, "{notes} notes");
}

#[tokio::test]
async fn pushes_that_close_the_same_issues_at_once_close_them_once() {
    let (forge, ann, first) = start().await;
    let second = ProjectId::new(ann.make("/projects", json!({ "name": "Station", "path": "station" })).await);
    let issues = [issue(&forge, first, ann.id, false), issue(&forge, second, ann.id, false)];
    for project in [first, second] {
        commit(&forge, &ann, project, "master", "x").await;
    }
    let push = |project: ProjectId, text: &'static str| {
        let new = json!({ "file_path": "x", "branch_name": "master", "content": "x", "commit_message": text });
        let (ann, path) = (&ann, format!("/projects/{project}/repository/files"));
        async move { ann.post(&path, new).await.code() }
    };
    let first_push = push(first, "Closes ann/rocket#1 and ann/station#1, this way");
    let second_push = push(second, "Closes ann/station#1 and ann/rocket#1, that way");
    assert_eq!(futures_util::future::join(first_push, second_push).await, (201, 201));
    let commits = [tip(&forge, first, "master"), tip(&forge, second, "master")];
    let names: Vec<(&str, &str)> = commits.iter().map(|sha| (&**sha, "SHA")).collect();
    for issue in issues {
        let notes = system_notes(&forge, issue, &names);
        assert_eq!(notes, ["Status changed to closed by commit SHA", "mentioned in commit SHA"]);
    }
}

#[tokio::test]
async fn an_issue_is_closed_by_short_and_full_references() {
    let (forge, ann, project) = start().await;
    let issues = [1, 2].map(|_| issue(&forge, project, ann.id, false));
    commit(&forge, &ann, project, "master", "x").await;
    let first = commit(&forge, &ann, project, "master", "See #1 here, and ann/rocket#2\n\nCloses Ann/Rocket#1").await;
    let second = commit(&forge, &ann, project, "master", "Fixes ann/rocket#2, see #2").await;
    let names = [(&*first, "ONE"), (&*second, "OTHER")];
    assert_eq!(
        issues.map(|issue| system_notes(&forge, issue, &names).join(", ")),
        ["Status changed to closed by commit ONE", "mentioned in commit ONE, Status changed to closed by commit OTHER"]
    );
}

#[tokio::test]
async fn mentions_are_noted_in_the_order_of_the_commits() {
    let (forge, ann, project) = start().await;
    let issue = issue(&forge, project, ann.id, false);
    let mut script = FIRST_COMMIT.to_owned();
    forge.fast_import(&ann, project, &script).await;
    for number in 1..=5 {
        let text = format!("Step {number} of #1");
        script += &format!("commit refs/heads/master\ncommitter x <x> {number} +0000\ndata {}\n{text}\n", text.len());
    }
    forge.fast_import(&ann, project, &script).await;
    let commits = ann.get(&format!("/projects/{project}/repository/commits")).await;
    let mut ids: Vec<String> = commits.join_field("id").split(' ').map(ToOwned::to_owned).collect();
    ids.pop();
    ids.reverse();
    let expected: Vec<String> = ids.iter().map(|sha| format!("mentioned in commit {sha}")).collect();
    assert_eq!(system_notes(&forge, issue, &[]), expected);
}
