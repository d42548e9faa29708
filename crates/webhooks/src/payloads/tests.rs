//! How each message reads, held as snapshots and against the tables of fields.

use insta::assert_snapshot;
use model::{
    Commit, CommitNote, EventKind, Issue, IssueState, Milestone, Namespace, NamespaceKind, Note, Oid, Project, Role,
    StorageId, User, UserState, Visibility,
    commit_notes::CommitLine,
    events::{PushCommit, PushData},
    objects::Signature,
    projects::{Access, Seed, Switches},
    users::{Profile, UserSummary},
    webhook_events::{
        Commented, FileLists, GroupMember, IssueAction, IssueHappening, KeyRecord, NoteHappening, Person,
        ProjectMember, ProjectRecord, Pushed, SystemHappening,
    },
};
use serde_json::Value;
use testkit::fields;

use super::{
    build::{BuildPayload, BuildPipeline, BuildUser},
    merge_request::{MergeRequest, MergeRequestPayload},
    note::{NoteTarget, Snippet},
    pipeline::{PipelineBuild, PipelinePayload, PipelineRunner},
    wiki_page::WikiPagePayload,
    *,
};

fn clerk() -> Clerk {
    Clerk::new(Site::new("https://code.example.com", Some(22)), TimeFormat::Original)
}

/// Reads a payload and holds it against the tables.
fn checked(occasion: EventKind, text: &str) -> Value {
    let payload = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    fields::check(occasion.header(), &payload);
    payload
}

fn at(text: &str) -> Time {
    text.parse().expect("a moment")
}

fn morning() -> Time {
    at("2016-11-22T10:15:30.123456Z")
}

fn noon() -> Time {
    at("2016-11-22T12:00:00Z")
}

fn ada() -> User {
    User {
        id: 7,
        username: "ada".into(),
        name: "Ada Roe".into(),
        email: "ada@example.com".into(),
        state: UserState::Active,
        admin: false,
        external: false,
        can_create_group: true,
        projects_limit: 10,
        personal_projects: 0,
        profile: Profile::default(),
        identities: Vec::new(),
        created_at: morning(),
        confirmed_at: None,
        current_sign_in_at: None,
        last_sign_in_at: None,
    }
}

fn bo() -> UserSummary {
    UserSummary { id: 9, username: "bo".into(), name: "Bo Lin".into(), state: UserState::Active, created_at: morning() }
}

fn pots() -> Namespace {
    Namespace {
        id: 2,
        parent_id: None,
        kind: NamespaceKind::Group,
        owner_id: None,
        name: "Pots".into(),
        path: "pots".into(),
        full_path: "pots".into(),
        description: String::new(),
        visibility: Visibility::Private,
        share_with_group_lock: false,
        request_access_enabled: false,
        lfs_enabled: None,
        created_at: morning(),
        updated_at: noon(),
    }
}

fn kiln() -> Project {
    Project {
        id: 3,
        namespace: pots(),
        owner: None,
        creator_id: 7,
        name: "Kiln".into(),
        path: "kiln".into(),
        description: None,
        default_branch: Some("main".into()),
        visibility: Visibility::Internal,
        archived: false,
        star_count: 0,
        forks_count: 0,
        switches: Switches::new(),
        lfs_enabled: None,
        runners_seed: Seed(Vec::new()),
        storage: StorageId::parse("7").expect("a storage id"),
        created_at: morning(),
        updated_at: noon(),
        last_activity_at: noon(),
        shared_with: Vec::new(),
        fork_of: None,
        forked_from: None,
        import: None,
        open_issues: 0,
        access: Access::default(),
    }
}

fn empty_kiln() -> Project {
    Project { default_branch: None, description: Some("fires".into()), ..kiln() }
}

fn oid(digit: u8) -> Oid {
    Oid([digit << 4 | digit; 20])
}

fn signature() -> Signature {
    Signature { name: "Ada Roe".into(), email: "ada@example.com".into(), seconds: 1_479_809_730, offset: 7200 }
}

fn commit() -> Commit {
    let author = Signature { seconds: 0, offset: 0, ..signature() };
    Commit { id: oid(2), parents: Vec::new(), author, committer: signature(), message: "Raise the heat\n".into() }
}

fn push_data() -> PushData {
    PushData {
        ref_name: "refs/heads/main".into(),
        before: Some(oid(1)),
        after: Some(oid(2)),
        commits: vec![PushCommit { id: oid(2), message: "Raise the heat\n".into(), author: signature() }],
        total_commits: 1,
    }
}

fn write_push(pushed: Pushed<'_>) -> String {
    clerk().write(WebhookEvent::Push(&pushed))
}

fn issue() -> Issue {
    Issue {
        id: 41,
        iid: 5,
        project: 3,
        project_path: "pots/kiln".into(),
        title: "Cracked tile".into(),
        description: None,
        state: IssueState::Opened,
        confidential: false,
        author: None,
        assignee: None,
        milestone: None,
        labels: vec!["fire".into()],
        due_on: None,
        moved_to: None,
        user_notes: 0,
        subscribed: true,
        created_at: morning(),
        updated_at: noon(),
    }
}

/// An issue with everything that one can have.
fn full_issue() -> Issue {
    let day = "2016-11-30".parse().ok();
    let milestone = Milestone {
        id: 11,
        iid: 1,
        project: 3,
        title: "Spring".into(),
        description: None,
        closed: false,
        start_on: None,
        due_on: None,
        created_at: morning(),
        updated_at: morning(),
    };
    Issue {
        description: Some("See the photo".into()),
        state: IssueState::Closed,
        confidential: true,
        author: Some(ada().into()),
        assignee: Some(bo()),
        milestone: Some(milestone),
        due_on: day,
        moved_to: Some(44),
        ..issue()
    }
}

fn write_issue(issue: &Issue, updated_by: Option<i64>, action: IssueAction) -> String {
    let (project, user) = (kiln(), ada().into());
    clerk().write(WebhookEvent::Issue(&IssueHappening { project: &project, user: &user, issue, updated_by, action }))
}

fn write_note(on: Commented<'_>) -> String {
    let (project, user) = (kiln(), bo());
    clerk().write(WebhookEvent::Note(&NoteHappening { project: &project, user: &user, on }))
}

fn note() -> Note {
    Note {
        id: 88,
        issue: 41,
        body: "Looks fine".into(),
        author: Some(bo()),
        system: false,
        created_at: morning(),
        updated_at: noon(),
    }
}

fn commit_note(line: Option<CommitLine>) -> CommitNote {
    let (body, author) = ("Too hot?".into(), Some(bo()));
    CommitNote { id: 6, project: 3, commit: oid(2), body, author, line, created_at: morning() }
}

fn person() -> Person<'static> {
    Person { id: 9, username: "bo", name: "Bo Lin", email: "bo@example.com", created_at: morning(), updated_at: noon() }
}

#[test]
fn a_push_tells_of_commits_and_files() {
    let (project, user, data) = (kiln(), ada(), push_data());
    let files =
        [FileLists { added: vec!["b.txt".into()], modified: vec!["kiln.txt".into()], removed: vec!["a".into()] }];
    let pushed = Pushed { project: &project, user: &user, data: &data, message: None, files: &files, to_system: false };
    let text = write_push(pushed);
    checked(EventKind::Push, &text);
    assert_snapshot!(text, @r#"{"object_kind":"push","event_name":"push","before":"1111111111111111111111111111111111111111","after":"2222222222222222222222222222222222222222","ref":"refs/heads/main","checkout_sha":"2222222222222222222222222222222222222222","message":null,"user_id":7,"user_name":"Ada Roe","user_username":"ada","user_email":"ada@example.com","user_avatar":"https://code.example.com/-/identicon/691d4463952c802f.svg","project_id":3,"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"commits":[{"id":"2222222222222222222222222222222222222222","message":"Raise the heat\n","timestamp":"2016-11-22T12:15:30+02:00","url":"https://code.example.com/pots/kiln/commit/2222222222222222222222222222222222222222","author":{"name":"Ada Roe","email":"ada@example.com"},"added":["b.txt"],"modified":["kiln.txt"],"removed":["a"]}],"total_commits_count":1,"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln","git_http_url":"https://code.example.com/pots/kiln.git","git_ssh_url":"git@code.example.com:pots/kiln.git","visibility_level":10}}"#);
}

#[test]
fn files_that_were_not_looked_at_are_empty_lists() {
    let (project, user) = (empty_kiln(), ada());
    let one = |digit| PushCommit { id: oid(digit), message: String::new(), author: signature() };
    let data = PushData { before: None, commits: vec![one(1), one(2)], total_commits: 2, ..push_data() };
    let files = [FileLists { modified: vec!["x".into()], ..FileLists::default() }];
    let pushed = Pushed { project: &project, user: &user, data: &data, message: None, files: &files, to_system: false };
    let payload = checked(EventKind::Push, &write_push(pushed));
    assert_eq!(payload["before"], Oid::ZERO);
    assert_eq!(payload["project"]["default_branch"], Value::Null);
    let lists = |number: usize| {
        let commit = &payload["commits"][number];
        format!("{} {} {}", commit["added"], commit["modified"], commit["removed"])
    };
    assert_eq!((lists(0), lists(1)), (r#"[] ["x"] []"#.into(), "[] [] []".into()));
}

#[test]
fn a_branch_that_is_gone_has_nothing_to_check_out() {
    let (project, user) = (kiln(), ada());
    let data = PushData { after: None, commits: Vec::new(), total_commits: 0, ..push_data() };
    for (to_system, occasion) in [(false, EventKind::Push), (true, EventKind::SystemPush)] {
        let pushed = Pushed { project: &project, user: &user, data: &data, message: None, files: &[], to_system };
        let payload = checked(occasion, &write_push(pushed));
        assert_eq!((&payload["after"], &payload["checkout_sha"]), (&Oid::ZERO.into(), &Value::Null));
    }
}

#[test]
fn a_tag_leads_to_its_commit() {
    let (project, user) = (kiln(), ada());
    let data = PushData { ref_name: "refs/tags/v1.0".into(), before: None, after: Some(oid(3)), ..push_data() };
    let told = |message, to_system, occasion: EventKind| {
        let pushed = Pushed { project: &project, user: &user, data: &data, message, files: &[], to_system };
        let payload = checked(occasion, &write_push(pushed));
        assert_eq!(payload["object_kind"], "tag_push");
        assert_eq!(payload["after"], oid(3).to_string());
        assert_eq!(payload["checkout_sha"], oid(2).to_string());
        let commits = payload["commits"].as_array().map(Vec::len);
        format!("{} {commits:?} {}", payload["message"], payload["total_commits_count"])
    };
    assert_eq!(told(Some("First firing"), false, EventKind::TagPush), r#""First firing" Some(1) 1"#);
    assert_eq!(told(None, false, EventKind::TagPush), "null Some(1) 1");
    assert_eq!(told(Some("First firing"), true, EventKind::SystemTagPush), r#""" Some(0) 0"#);
}

#[test]
fn a_tag_may_lead_to_no_commit_or_be_gone() {
    let (project, user) = (kiln(), ada());
    let nothing = PushData { commits: Vec::new(), ..push_data() };
    let odd = PushData { ref_name: "refs/tags/blob".into(), before: None, ..nothing.clone() };
    let gone = PushData { ref_name: "refs/tags/v1".into(), after: None, total_commits: 0, ..nothing };
    for data in [odd, gone] {
        for (to_system, occasion) in [(false, EventKind::TagPush), (true, EventKind::SystemTagPush)] {
            let pushed = Pushed { project: &project, user: &user, data: &data, message: None, files: &[], to_system };
            assert_eq!(checked(occasion, &write_push(pushed))["checkout_sha"], Value::Null);
        }
    }
}

#[test]
fn hooks_of_the_instance_hear_of_no_commits() {
    let (project, user, data) = (kiln(), ada(), push_data());
    let files = [FileLists { added: vec!["secret.txt".into()], ..FileLists::default() }];
    let pushed = Pushed { project: &project, user: &user, data: &data, message: None, files: &files, to_system: true };
    let payload = checked(EventKind::SystemPush, &write_push(pushed));
    assert_eq!(payload["commits"], Value::Array(Vec::new()));
    assert_eq!(payload["total_commits_count"], 0);
    assert_eq!(payload["checkout_sha"], oid(2).to_string());
}

#[test]
fn a_commit_out_of_the_calendar_has_a_moment_all_the_same() {
    let (project, user, mut data) = (kiln(), ada(), push_data());
    data.commits[0].author = Signature { seconds: i64::MAX, offset: i32::MIN, ..signature() };
    let pushed = Pushed { project: &project, user: &user, data: &data, message: None, files: &[], to_system: false };
    let payload = checked(EventKind::Push, &write_push(pushed));
    assert_eq!(payload["commits"][0]["timestamp"], "1970-01-01T00:00:00+00:00");
}

#[test]
fn an_issue_is_told_with_all_it_has() {
    let text = write_issue(&full_issue(), Some(9), IssueAction::Close);
    checked(EventKind::ConfidentialIssue, &text);
    assert_snapshot!(text, @r#"{"object_kind":"issue","user":{"name":"Ada Roe","username":"ada","avatar_url":"https://code.example.com/-/identicon/691d4463952c802f.svg"},"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln"},"object_attributes":{"id":41,"title":"Cracked tile","assignee_id":9,"author_id":7,"project_id":3,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 12:00:00 UTC","position":0,"branch_name":null,"description":"See the photo","milestone_id":11,"state":"closed","iid":5,"updated_by_id":9,"confidential":true,"deleted_at":null,"due_date":"2016-11-30","moved_to_id":44,"lock_version":null,"url":"https://code.example.com/pots/kiln/issues/5","action":"close"},"assignee":{"name":"Bo Lin","username":"bo","avatar_url":"https://code.example.com/-/identicon/2f7a066a52b811bf.svg"}}"#);
}

#[test]
fn an_issue_is_told_without_what_it_lacks() {
    for action in [IssueAction::Open, IssueAction::Update, IssueAction::Reopen] {
        let payload = checked(EventKind::Issue, &write_issue(&issue(), None, action));
        assert_eq!(payload.get("assignee"), None);
        assert_eq!(payload["object_attributes"]["action"], action.as_str());
        assert_eq!(payload["object_attributes"]["author_id"], Value::Null);
    }
}

#[test]
fn a_comment_on_an_issue_shows_the_issue() {
    let text = write_note(Commented::Issue { note: &note(), issue: &issue(), updated_by: None });
    checked(EventKind::Note, &text);
    assert_snapshot!(text, @r#"{"object_kind":"note","user":{"name":"Bo Lin","username":"bo","avatar_url":"https://code.example.com/-/identicon/2f7a066a52b811bf.svg"},"project_id":3,"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln"},"object_attributes":{"id":88,"note":"Looks fine","noteable_type":"Issue","author_id":9,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 12:00:00 UTC","project_id":3,"attachment":null,"line_code":null,"commit_id":null,"noteable_id":41,"system":false,"st_diff":null,"updated_by_id":null,"type":null,"position":null,"original_position":null,"resolved_at":null,"resolved_by_id":null,"discussion_id":null,"original_discussion_id":null,"url":"https://code.example.com/pots/kiln/issues/5#note_88"},"issue":{"id":41,"title":"Cracked tile","assignee_id":null,"author_id":null,"project_id":3,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 12:00:00 UTC","position":0,"branch_name":null,"description":null,"milestone_id":null,"state":"opened","iid":5,"updated_by_id":null,"confidential":false,"deleted_at":null,"due_date":null,"moved_to_id":null,"lock_version":null}}"#);
    let full = write_note(Commented::Issue { note: &note(), issue: &full_issue(), updated_by: Some(7) });
    let payload = checked(EventKind::ConfidentialNote, &full);
    assert_eq!(payload["issue"]["updated_by_id"], 7);
    assert_eq!(payload["issue"]["due_date"], "2016-11-30");
}

#[test]
fn a_comment_on_a_commit_shows_the_commit() {
    let text = write_note(Commented::Commit { note: &commit_note(None), commit: &commit() });
    checked(EventKind::Note, &text);
    assert_snapshot!(text, @r#"{"object_kind":"note","user":{"name":"Bo Lin","username":"bo","avatar_url":"https://code.example.com/-/identicon/2f7a066a52b811bf.svg"},"project_id":3,"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln"},"object_attributes":{"id":6,"note":"Too hot?","noteable_type":"Commit","author_id":9,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 10:15:30 UTC","project_id":3,"attachment":null,"line_code":null,"commit_id":"2222222222222222222222222222222222222222","noteable_id":null,"system":false,"st_diff":null,"updated_by_id":null,"type":null,"position":null,"original_position":null,"resolved_at":null,"resolved_by_id":null,"discussion_id":null,"original_discussion_id":null,"url":"https://code.example.com/pots/kiln/commit/2222222222222222222222222222222222222222#note_6"},"commit":{"id":"2222222222222222222222222222222222222222","message":"Raise the heat\n","timestamp":"2016-11-22T12:15:30+02:00","url":"https://code.example.com/pots/kiln/commit/2222222222222222222222222222222222222222","author":{"name":"Ada Roe","email":"ada@example.com"}}}"#);
}

#[test]
fn a_comment_on_a_line_says_which_one() {
    let told = |old| {
        let line = CommitLine { path: "kiln.txt".into(), number: 12, old };
        let text = write_note(Commented::Commit { note: &commit_note(Some(line)), commit: &commit() });
        let payload = checked(EventKind::Note, &text);
        let note = &payload["object_attributes"];
        format!("{} {}", note["type"], note["line_code"])
    };
    assert_snapshot!(told(false), @r#""LegacyDiffNote" "79e94ed51f611f10d4c6a29a193ab85aabb7efce_0_12""#);
    assert_snapshot!(told(true), @r#""LegacyDiffNote" "79e94ed51f611f10d4c6a29a193ab85aabb7efce_12_0""#);
}

#[test]
fn moments_can_be_told_as_iso_8601() {
    let clerk = Clerk::new(Site::new("https://code.example.com", Some(2222)), TimeFormat::Iso8601);
    let (project, user, note, issue) = (kiln(), bo(), note(), full_issue());
    let on = Commented::Issue { note: &note, issue: &issue, updated_by: None };
    let text = clerk.write(WebhookEvent::Note(&NoteHappening { project: &project, user: &user, on }));
    let payload: Value = serde_json::from_str(&text).expect("JSON");
    fields::check_iso8601("Note Hook", &payload);
    assert_eq!(payload["object_attributes"]["created_at"], "2016-11-22T10:15:30Z");
    assert_eq!(payload["issue"]["updated_at"], "2016-11-22T12:00:00Z");
    assert_eq!(payload["project"]["git_ssh_url"], "ssh://git@code.example.com:2222/pots/kiln.git");
}

#[test]
fn without_ssh_the_url_of_a_repository_is_the_one_for_http() {
    let clerk = Clerk::new(Site::new("https://code.example.com", None), TimeFormat::Original);
    let (project, user, note, issue) = (kiln(), bo(), note(), full_issue());
    let on = Commented::Issue { note: &note, issue: &issue, updated_by: None };
    let text = clerk.write(WebhookEvent::Note(&NoteHappening { project: &project, user: &user, on }));
    let payload: Value = serde_json::from_str(&text).expect("JSON");
    for url in [&payload["repository"]["url"], &payload["project"]["url"], &payload["project"]["git_http_url"]] {
        assert_eq!(url, "https://code.example.com/pots/kiln.git");
    }
    for url in [&payload["project"]["git_ssh_url"], &payload["project"]["ssh_url"]] {
        assert_eq!(url, "");
    }
}

#[test]
fn each_event_of_the_instance_has_its_fields() {
    let (project, group) = (kiln(), pots());
    let record = ProjectRecord { project: &project, owner_name: "Pots", owner_email: "" };
    let (created_at, updated_at) = (morning(), noon());
    let member = ProjectMember { project: &project, user: person(), role: Role::Developer, created_at, updated_at };
    let fellow = GroupMember { group: &group, user: person(), role: Role::Owner, created_at, updated_at };
    let key = KeyRecord { id: 4, key: "ssh-ed25519 AAAA bo", username: Some("bo"), created_at, updated_at };
    let machine = KeyRecord { username: None, ..key };
    let texts: Vec<String> = [
        SystemHappening::ProjectCreated(record),
        SystemHappening::ProjectDestroyed(record),
        SystemHappening::ProjectRenamed { project: record, old_path: "pots/oven" },
        SystemHappening::ProjectTransferred { project: record, old_path: "clay/kiln" },
        SystemHappening::MemberJoinedProject(member),
        SystemHappening::MemberLeftProject(member),
        SystemHappening::UserCreated(person()),
        SystemHappening::UserDestroyed(person()),
        SystemHappening::KeyCreated(key),
        SystemHappening::KeyDestroyed(machine),
        SystemHappening::GroupCreated(&group),
        SystemHappening::GroupDestroyed(&group),
        SystemHappening::MemberJoinedGroup(fellow),
        SystemHappening::MemberLeftGroup(fellow),
    ]
    .iter()
    .map(|happening| clerk().write(WebhookEvent::System(happening)))
    .collect();
    for text in &texts {
        checked(EventKind::System, text);
    }
    assert_snapshot!(texts.join("\n"), @r#"
    {"event_name":"project_create","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Kiln","path":"kiln","path_with_namespace":"pots/kiln","project_id":3,"owner_name":"Pots","owner_email":"","project_visibility":"internal"}
    {"event_name":"project_destroy","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Kiln","path":"kiln","path_with_namespace":"pots/kiln","project_id":3,"owner_name":"Pots","owner_email":"","project_visibility":"internal"}
    {"event_name":"project_rename","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Kiln","path":"kiln","path_with_namespace":"pots/kiln","project_id":3,"owner_name":"Pots","owner_email":"","project_visibility":"internal","old_path_with_namespace":"pots/oven"}
    {"event_name":"project_transfer","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Kiln","path":"kiln","path_with_namespace":"pots/kiln","project_id":3,"owner_name":"Pots","owner_email":"","project_visibility":"internal","old_path_with_namespace":"clay/kiln"}
    {"event_name":"user_add_to_team","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","project_name":"Kiln","project_path":"kiln","project_path_with_namespace":"pots/kiln","project_id":3,"user_username":"bo","user_name":"Bo Lin","user_email":"bo@example.com","user_id":9,"access_level":"Developer","project_access":"Developer","project_visibility":"internal"}
    {"event_name":"user_remove_from_team","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","project_name":"Kiln","project_path":"kiln","project_path_with_namespace":"pots/kiln","project_id":3,"user_username":"bo","user_name":"Bo Lin","user_email":"bo@example.com","user_id":9,"access_level":"Developer","project_access":"Developer","project_visibility":"internal"}
    {"event_name":"user_create","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Bo Lin","email":"bo@example.com","user_id":9,"username":"bo"}
    {"event_name":"user_destroy","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Bo Lin","email":"bo@example.com","user_id":9,"username":"bo"}
    {"event_name":"key_create","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","id":4,"key":"ssh-ed25519 AAAA bo","username":"bo"}
    {"event_name":"key_destroy","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","id":4,"key":"ssh-ed25519 AAAA bo"}
    {"event_name":"group_create","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Pots","path":"pots","group_id":2,"owner_name":null,"owner_email":null}
    {"event_name":"group_destroy","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","name":"Pots","path":"pots","group_id":2,"owner_name":null,"owner_email":null}
    {"event_name":"user_add_to_group","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","group_name":"Pots","group_path":"pots","group_id":2,"user_username":"bo","user_name":"Bo Lin","user_email":"bo@example.com","user_id":9,"group_access":"Owner"}
    {"event_name":"user_remove_from_group","created_at":"2016-11-22T10:15:30Z","updated_at":"2016-11-22T12:00:00Z","group_name":"Pots","group_path":"pots","group_id":2,"user_username":"bo","user_name":"Bo Lin","user_email":"bo@example.com","user_id":9,"group_access":"Owner"}
    "#);
}

#[test]
fn roles_are_words() {
    let project = kiln();
    let words = Role::ALL.map(|role| {
        let (created_at, updated_at) = (morning(), noon());
        let member = ProjectMember { project: &project, user: person(), role, created_at, updated_at };
        let text = clerk().write(WebhookEvent::System(&SystemHappening::MemberJoinedProject(member)));
        checked(EventKind::System, &text)["access_level"].clone()
    });
    assert_eq!(words, ["Guest", "Reporter", "Developer", "Master", "Owner"]);
}

#[test]
fn a_test_is_always_the_same() {
    let text = clerk().write(WebhookEvent::SystemTest);
    assert_eq!(text, system::test_to_json());
    checked(EventKind::System, &text);
    assert_snapshot!(text, @r#"{"event_name":"project_create","name":"Ruby","path":"ruby","project_id":1,"owner_name":"Someone","owner_email":"someone@example.com"}"#);
}

fn merge_request() -> MergeRequest<'static> {
    MergeRequest {
        id: 12,
        iid: 2,
        target_branch: "main",
        source_branch: "hotter",
        source_project_id: 4,
        source: None,
        last_commit: None,
        author_id: None,
        assignee: None,
        title: "Hotter kiln",
        description: None,
        milestone_id: None,
        state: "opened",
        merge_status: "unchecked",
        work_in_progress: false,
        merge_when_build_succeeds: false,
        merge_user_id: None,
        merge_params: &[],
        merge_commit_sha: None,
        in_progress_merge_commit_sha: None,
        merge_error: None,
        locked_at: None,
        updated_by_id: None,
        created_at: morning(),
        updated_at: noon(),
    }
}

#[test]
fn a_merge_request_is_told_with_and_without_all_it_can_have() {
    let (target, user, assignee, last_commit) = (kiln(), ada().into(), bo(), commit());
    let source = Project { id: 4, path: "kiln-2".into(), ..empty_kiln() };
    let bare = merge_request();
    let payload =
        MergeRequestPayload { target: &target, user: &user, merge_request: &bare, action: "open", oldrev: None };
    let shown = checked(EventKind::MergeRequest, &payload.to_json(&clerk()));
    assert_eq!(shown["object_attributes"]["source"], Value::Null);
    let full = MergeRequest {
        source: Some(&source),
        last_commit: Some(&last_commit),
        author_id: Some(7),
        assignee: Some(&assignee),
        description: Some("More!"),
        milestone_id: Some(1),
        state: "locked",
        merge_status: "can_be_merged",
        work_in_progress: true,
        merge_when_build_succeeds: true,
        merge_user_id: Some(7),
        merge_params: &[("force_remove_source_branch", "1")],
        merge_commit_sha: Some(oid(4)),
        in_progress_merge_commit_sha: Some(oid(5)),
        merge_error: Some("conflict"),
        locked_at: Some(noon()),
        updated_by_id: Some(9),
        ..merge_request()
    };
    let payload = MergeRequestPayload { merge_request: &full, action: "update", oldrev: Some(oid(1)), ..payload };
    let shown = checked(EventKind::MergeRequest, &payload.to_json(&clerk()));
    let attributes = &shown["object_attributes"];
    assert_eq!(attributes["oldrev"], oid(1).to_string());
    assert_eq!((&attributes["assignee"]["username"], &shown["assignee"]["username"]), (&"bo".into(), &"bo".into()));
    assert_eq!(attributes["source"]["path_with_namespace"], "pots/kiln-2");
    assert_eq!(attributes["last_commit"]["timestamp"], "2016-11-22T12:15:30+02:00");

    let note = NotePayload {
        project: &target,
        user: &user,
        id: 90,
        body: "Not yet",
        created_at: morning(),
        updated_at: morning(),
        line: None,
        on: NoteTarget::MergeRequest(&full),
    };
    let shown = checked(EventKind::Note, &note.to_json(&clerk()));
    assert_eq!(shown["merge_request"].get("action"), None);
    let snippet = Snippet {
        id: 6,
        title: "glaze",
        content: "cobalt",
        author_id: Some(7),
        created_at: morning(),
        updated_at: noon(),
        file_name: Some("glaze.txt"),
        visibility_level: 0,
    };
    for snippet in [snippet, Snippet { author_id: None, file_name: None, ..snippet }] {
        let note = NotePayload { on: NoteTarget::Snippet(&snippet), ..note };
        let shown = checked(EventKind::Note, &note.to_json(&clerk()));
        assert_eq!(shown["object_attributes"]["url"], "https://code.example.com/pots/kiln/snippets/6#note_90");
    }
}

#[test]
fn a_build_is_told_with_and_without_all_it_can_have() {
    let project = kiln();
    let pipeline = BuildPipeline {
        id: 77,
        message: None,
        author_name: None,
        author_email: None,
        status: "pending",
        duration: None,
        started_at: None,
        finished_at: None,
    };
    let bare = BuildPayload {
        project: &project,
        ref_name: "main",
        tag: false,
        before_sha: None,
        sha: oid(2),
        id: 501,
        name: "fire",
        stage: "test",
        status: "created",
        started_at: None,
        finished_at: None,
        duration: None,
        allow_failure: false,
        user: None,
        pipeline,
    };
    let shown = checked(EventKind::Build, &bare.to_json(&clerk()));
    assert_eq!(shown["before_sha"], Oid::ZERO);
    assert_eq!(shown["user"].as_object().map(serde_json::Map::len), Some(3));
    let full = BuildPayload {
        before_sha: Some(oid(1)),
        status: "success",
        started_at: Some(morning()),
        finished_at: Some(noon()),
        duration: Some(60.0),
        allow_failure: true,
        user: Some(BuildUser { id: 7, name: "Ada Roe", email: "ada@example.com" }),
        pipeline: BuildPipeline {
            message: Some("Raise the heat\n"),
            author_name: Some("Ada Roe"),
            author_email: Some("ada@example.com"),
            status: "success",
            duration: Some(60),
            started_at: Some(morning()),
            finished_at: Some(noon()),
            ..pipeline
        },
        ..bare
    };
    let text = full.to_json(&clerk());
    let shown = checked(EventKind::Build, &text);
    assert!(text.contains(r#""build_duration":60.0,"#), "{text}");
    assert_eq!((&shown["project_name"], &shown["commit"]["id"]), (&"Pots / Kiln".into(), &77.into()));
}

#[test]
fn a_pipeline_is_told_with_and_without_all_it_can_have() {
    let (project, user, commit) = (kiln(), bo(), commit());
    let bare_build = PipelineBuild {
        id: 501,
        stage: "test",
        name: "fire",
        status: "created",
        created_at: morning(),
        started_at: None,
        finished_at: None,
        when: "manual",
        user: None,
        runner: None,
        artifacts_file: None,
    };
    let full_build = PipelineBuild {
        id: 502,
        status: "success",
        started_at: Some(morning()),
        finished_at: Some(noon()),
        when: "on_success",
        user: Some(&user),
        runner: Some(PipelineRunner { id: 1, description: "big", active: true, is_shared: false }),
        artifacts_file: Some(("artifacts.zip", 12)),
        ..bare_build
    };
    let bare = PipelinePayload {
        project: &project,
        id: 77,
        ref_name: "v1",
        tag: true,
        sha: oid(2),
        before_sha: None,
        status: "pending",
        stages: &[],
        created_at: morning(),
        finished_at: None,
        duration: None,
        user: None,
        commit: None,
        builds: &[],
    };
    checked(EventKind::Pipeline, &bare.to_json(&clerk()));
    let builds = [bare_build, full_build];
    let full = PipelinePayload {
        before_sha: Some(oid(1)),
        status: "success",
        stages: &["test"],
        finished_at: Some(noon()),
        duration: Some(60),
        user: Some(&user),
        commit: Some(&commit),
        builds: &builds,
        ..bare
    };
    let shown = checked(EventKind::Pipeline, &full.to_json(&clerk()));
    assert_eq!((&shown["builds"][0]["manual"], &shown["builds"][1]["manual"]), (&true.into(), &false.into()));
    assert_eq!(shown["project"].get("homepage"), None);
}

#[test]
fn a_page_of_the_wiki_is_told() {
    let (project, user) = (kiln(), bo());
    let page = WikiPagePayload {
        project: &project,
        user: &user,
        default_branch: "master",
        title: "Glazes",
        content: "cobalt",
        format: "markdown",
        message: Some("start"),
        slug: "glazes",
        action: "create",
    };
    let shown = checked(EventKind::WikiPage, &page.to_json(&clerk()));
    assert_eq!(shown["object_attributes"]["message"], "start");
    assert_eq!(shown["wiki"]["git_ssh_url"], "git@code.example.com:pots/kiln.wiki.git");
    let shown = checked(EventKind::WikiPage, &WikiPagePayload { action: "update", ..page }.to_json(&clerk()));
    assert_eq!(shown["object_attributes"].get("message"), None);
}

#[test]
fn hostile_texts_stay_texts() {
    let long = "🔥\"\\".repeat(20_000);
    for hostile in
        ["\"},{\"x\":\"", "a\0b", "\u{1b}[2J\r\n\u{7f}", "🔥 \u{202e}\u{2028}\u{feff}", "</script>", "", &long]
    {
        let project = Project { name: hostile.into(), description: Some(hostile.into()), ..kiln() };
        let user = User { name: hostile.into(), email: hostile.into(), ..ada() };
        let summary = UserSummary { name: hostile.into(), ..bo() };
        let mut data = push_data();
        data.commits[0].message = hostile.into();
        data.commits[0].author.name = hostile.into();
        let files = [FileLists { added: vec![hostile.into()], ..FileLists::default() }];
        let pushed =
            Pushed { project: &project, user: &user, data: &data, message: None, files: &files, to_system: false };
        let payload = checked(EventKind::Push, &write_push(pushed));
        assert_eq!(payload["commits"][0]["message"], hostile);
        assert_eq!(payload["commits"][0]["added"][0], hostile);
        assert_eq!((&payload["user_name"], &payload["project"]["name"]), (&hostile.into(), &hostile.into()));

        let issue = Issue { title: hostile.into(), description: Some(hostile.into()), ..issue() };
        let note = Note { body: hostile.into(), ..note() };
        let on = Commented::Issue { note: &note, issue: &issue, updated_by: None };
        let told = NoteHappening { project: &project, user: &summary, on };
        let payload = checked(EventKind::Note, &clerk().write(WebhookEvent::Note(&told)));
        assert_eq!(
            (&payload["object_attributes"]["note"], &payload["issue"]["title"]),
            (&hostile.into(), &hostile.into())
        );

        let created = SystemHappening::UserCreated(Person { name: hostile, ..person() });
        let payload = checked(EventKind::System, &clerk().write(WebhookEvent::System(&created)));
        assert_eq!(payload["name"], hostile);
    }
}
