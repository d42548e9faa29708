//! Compares payloads with snapshots and with the field tables of `testkit::payload_schema`.

use insta::assert_snapshot;
use model::{
    Commit, CommitNote, CommitNoteId, EventKind, Issue, IssueId, IssueIid, IssueState, JobId, Milestone, MilestoneId,
    MilestoneIid, Namespace, NamespaceId, NamespaceKind, Note, NoteId, Oid, PipelineId, Project, ProjectId, Role,
    RunnerId, StorageId, User, UserId, UserState, Visibility,
    commit_notes::CommitLine,
    events::{PushCommit, PushData},
    objects::Signature,
    projects::{ProjectAccess, ProjectFeatures, TokenSeed},
    users::{Profile, UserSummary},
    webhook_events::{
        ChangedPaths, GroupMember, IssueAction, IssueEvent, KeyRecord, NoteEvent, NoteTarget, ProjectMember,
        ProjectRecord, PushEvent, SystemEvent, UserRecord,
    },
};
use serde_json::Value;
use testkit::payload_schema;

use super::{
    build::{BuildPayload, BuildPipeline, BuildUser},
    pipeline::{PipelineBuild, PipelinePayload, PipelineRunner},
    *,
};

fn renderer() -> JsonPayloadRenderer {
    JsonPayloadRenderer::new(Site::new("https://code.example.com", Some(22)), TimeFormat::Gitlab)
}

/// Parses a payload and checks its fields.
fn parse_checked(kind: EventKind, text: &str) -> Value {
    let payload = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    payload_schema::check(kind.header(), &payload);
    payload
}

fn at(text: &str) -> Time {
    text.parse().expect("a valid time")
}

fn morning() -> Time {
    at("2016-11-22T10:15:30.123456Z")
}

fn noon() -> Time {
    at("2016-11-22T12:00:00Z")
}

fn ada() -> User {
    User {
        id: UserId::new(7),
        username: "ada".into(),
        name: "Ada Roe".into(),
        email: "ada@example.com".into(),
        state: UserState::Active,
        admin: false,
        external: false,
        can_create_group: true,
        projects_limit: 10,
        personal_projects: 0,
        avatar: None,
        profile: Profile::default(),
        identities: Vec::new(),
        created_at: morning(),
        confirmed_at: None,
        current_sign_in_at: None,
        last_sign_in_at: None,
    }
}

fn bo() -> UserSummary {
    UserSummary {
        id: UserId::new(9),
        username: "bo".into(),
        name: "Bo Lin".into(),
        state: UserState::Active,
        avatar: None,
        created_at: morning(),
    }
}

fn pots() -> Namespace {
    Namespace {
        id: NamespaceId::new(2),
        parent_id: None,
        kind: NamespaceKind::Group,
        owner_id: None,
        name: "Pots".into(),
        path: "pots".into(),
        full_path: "pots".into(),
        description: String::new(),
        avatar: None,
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
        id: ProjectId::new(3),
        namespace: pots(),
        owner: None,
        creator_id: UserId::new(7),
        name: "Kiln".into(),
        path: "kiln".into(),
        description: None,
        default_branch: Some("main".into()),
        avatar: None,
        visibility: Visibility::Internal,
        archived: false,
        star_count: 0,
        forks_count: 0,
        features: ProjectFeatures::new(),
        lfs_enabled: None,
        runners_seed: TokenSeed(Vec::new()),
        storage: StorageId::parse("7").expect("a storage id"),
        created_at: morning(),
        updated_at: noon(),
        last_activity_at: noon(),
        shared_with: Vec::new(),
        fork_of: None,
        forked_from: None,
        import: None,
        open_issues: 0,
        access: ProjectAccess::default(),
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

fn render_push(event: PushEvent<'_>) -> String {
    renderer().render(WebhookEvent::Push(&event))
}

fn issue() -> Issue {
    Issue {
        id: IssueId::new(41),
        iid: IssueIid::new(5),
        project: ProjectId::new(3),
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

/// An issue with all optional fields.
fn full_issue() -> Issue {
    let day = "2016-11-30".parse().ok();
    let milestone = Milestone {
        id: MilestoneId::new(11),
        iid: MilestoneIid::new(1),
        project: ProjectId::new(3),
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
        moved_to: Some(IssueId::new(44)),
        ..issue()
    }
}

fn render_issue(issue: &Issue, updated_by: Option<UserId>, action: IssueAction) -> String {
    let (project, user) = (kiln(), ada().into());
    renderer().render(WebhookEvent::Issue(&IssueEvent { project: &project, user: &user, issue, updated_by, action }))
}

fn render_note(on: NoteTarget<'_>) -> String {
    let (project, user) = (kiln(), bo());
    renderer().render(WebhookEvent::Note(&NoteEvent { project: &project, user: &user, on }))
}

fn note() -> Note {
    Note {
        id: NoteId::new(88),
        issue: IssueId::new(41),
        body: "Looks fine".into(),
        author: Some(bo()),
        system: false,
        created_at: morning(),
        updated_at: noon(),
    }
}

fn commit_note(line: Option<CommitLine>) -> CommitNote {
    let (body, author) = ("Too hot?".into(), Some(bo()));
    CommitNote {
        id: CommitNoteId::new(6),
        project: ProjectId::new(3),
        commit: oid(2),
        body,
        author,
        line,
        created_at: morning(),
    }
}

fn user_record() -> UserRecord<'static> {
    UserRecord {
        id: UserId::new(9),
        username: "bo",
        name: "Bo Lin",
        email: "bo@example.com",
        created_at: morning(),
        updated_at: noon(),
    }
}

#[test]
fn a_push_lists_commits_and_files() {
    let (project, user, data) = (kiln(), ada(), push_data());
    let files =
        [ChangedPaths { added: vec!["b.txt".into()], modified: vec!["kiln.txt".into()], removed: vec!["a".into()] }];
    let event =
        PushEvent { project: &project, user: &user, data: &data, message: None, files: &files, for_system_hook: false };
    let text = render_push(event);
    parse_checked(EventKind::Push, &text);
    assert_snapshot!(text, @r#"{"object_kind":"push","event_name":"push","before":"1111111111111111111111111111111111111111","after":"2222222222222222222222222222222222222222","ref":"refs/heads/main","checkout_sha":"2222222222222222222222222222222222222222","message":null,"user_id":7,"user_name":"Ada Roe","user_username":"ada","user_email":"ada@example.com","user_avatar":"https://code.example.com/-/identicon/691d4463952c802f.svg","project_id":3,"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"commits":[{"id":"2222222222222222222222222222222222222222","message":"Raise the heat\n","timestamp":"2016-11-22T12:15:30+02:00","url":"https://code.example.com/pots/kiln/commit/2222222222222222222222222222222222222222","author":{"name":"Ada Roe","email":"ada@example.com"},"added":["b.txt"],"modified":["kiln.txt"],"removed":["a"]}],"total_commits_count":1,"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln","git_http_url":"https://code.example.com/pots/kiln.git","git_ssh_url":"git@code.example.com:pots/kiln.git","visibility_level":10}}"#);
}

#[test]
fn files_that_were_not_listed_are_empty() {
    let (project, user) = (empty_kiln(), ada());
    let one = |digit| PushCommit { id: oid(digit), message: String::new(), author: signature() };
    let data = PushData { before: None, commits: vec![one(1), one(2)], total_commits: 2, ..push_data() };
    let files = [ChangedPaths { modified: vec!["x".into()], ..ChangedPaths::default() }];
    let event =
        PushEvent { project: &project, user: &user, data: &data, message: None, files: &files, for_system_hook: false };
    let payload = parse_checked(EventKind::Push, &render_push(event));
    assert_eq!(payload["before"], Oid::ZERO);
    assert_eq!(payload["project"]["default_branch"], Value::Null);
    let lists = |number: usize| {
        let commit = &payload["commits"][number];
        format!("{} {} {}", commit["added"], commit["modified"], commit["removed"])
    };
    assert_eq!((lists(0), lists(1)), (r#"[] ["x"] []"#.into(), "[] [] []".into()));
}

#[test]
fn a_deleted_branch_has_no_checkout_sha() {
    let (project, user) = (kiln(), ada());
    let data = PushData { after: None, commits: Vec::new(), total_commits: 0, ..push_data() };
    for (for_system_hook, kind) in [(false, EventKind::Push), (true, EventKind::SystemPush)] {
        let event =
            PushEvent { project: &project, user: &user, data: &data, message: None, files: &[], for_system_hook };
        let payload = parse_checked(kind, &render_push(event));
        assert_eq!((&payload["after"], &payload["checkout_sha"]), (&Oid::ZERO.into(), &Value::Null));
    }
}

#[test]
fn the_checkout_sha_of_a_tag_is_its_commit() {
    let (project, user) = (kiln(), ada());
    let data = PushData { ref_name: "refs/tags/v1.0".into(), before: None, after: Some(oid(3)), ..push_data() };
    let summary = |message, for_system_hook, kind: EventKind| {
        let event = PushEvent { project: &project, user: &user, data: &data, message, files: &[], for_system_hook };
        let payload = parse_checked(kind, &render_push(event));
        assert_eq!(payload["object_kind"], "tag_push");
        assert_eq!(payload["after"], oid(3).to_string());
        assert_eq!(payload["checkout_sha"], oid(2).to_string());
        let commits = payload["commits"].as_array().map(Vec::len);
        format!("{} {commits:?} {}", payload["message"], payload["total_commits_count"])
    };
    assert_eq!(summary(Some("First firing"), false, EventKind::TagPush), r#""First firing" Some(1) 1"#);
    assert_eq!(summary(None, false, EventKind::TagPush), "null Some(1) 1");
    assert_eq!(summary(Some("First firing"), true, EventKind::SystemTagPush), r#""" Some(0) 0"#);
}

#[test]
fn a_tag_without_commit_has_no_checkout_sha() {
    let (project, user) = (kiln(), ada());
    let nothing = PushData { commits: Vec::new(), ..push_data() };
    let odd = PushData { ref_name: "refs/tags/blob".into(), before: None, ..nothing.clone() };
    let gone = PushData { ref_name: "refs/tags/v1".into(), after: None, total_commits: 0, ..nothing };
    for data in [odd, gone] {
        for (for_system_hook, kind) in [(false, EventKind::TagPush), (true, EventKind::SystemTagPush)] {
            let event =
                PushEvent { project: &project, user: &user, data: &data, message: None, files: &[], for_system_hook };
            assert_eq!(parse_checked(kind, &render_push(event))["checkout_sha"], Value::Null);
        }
    }
}

#[test]
fn system_hooks_receive_no_commits() {
    let (project, user, data) = (kiln(), ada(), push_data());
    let files = [ChangedPaths { added: vec!["secret.txt".into()], ..ChangedPaths::default() }];
    let event =
        PushEvent { project: &project, user: &user, data: &data, message: None, files: &files, for_system_hook: true };
    let payload = parse_checked(EventKind::SystemPush, &render_push(event));
    assert_eq!(payload["commits"], Value::Array(Vec::new()));
    assert_eq!(payload["total_commits_count"], 0);
    assert_eq!(payload["checkout_sha"], oid(2).to_string());
}

#[test]
fn a_commit_with_an_invalid_date_has_a_timestamp() {
    let (project, user, mut data) = (kiln(), ada(), push_data());
    data.commits[0].author = Signature { seconds: i64::MAX, offset: i32::MIN, ..signature() };
    let event =
        PushEvent { project: &project, user: &user, data: &data, message: None, files: &[], for_system_hook: false };
    let payload = parse_checked(EventKind::Push, &render_push(event));
    assert_eq!(payload["commits"][0]["timestamp"], "1970-01-01T00:00:00+00:00");
}

#[test]
fn uploaded_avatars_are_in_payloads() {
    let (project, user) =
        (Project { avatar: Some("k.png".into()), ..kiln() }, User { avatar: Some("a.png".into()), ..ada() });
    let data = push_data();
    let event =
        PushEvent { project: &project, user: &user, data: &data, message: None, files: &[], for_system_hook: false };
    let payload = parse_checked(EventKind::Push, &render_push(event));
    let root = "https://code.example.com/uploads/-/system";
    assert_eq!(payload["user_avatar"], format!("{root}/user/avatar/7/a.png"));
    assert_eq!(payload["project"]["avatar_url"], format!("{root}/project/avatar/3/k.png"));
    let user = UserSummary { avatar: Some("b.png".into()), ..bo() };
    let issue = issue();
    let event =
        IssueEvent { project: &project, user: &user, issue: &issue, updated_by: None, action: IssueAction::Open };
    let payload = parse_checked(EventKind::Issue, &renderer().render(WebhookEvent::Issue(&event)));
    assert_eq!(payload["user"]["avatar_url"], format!("{root}/user/avatar/9/b.png"));
}

#[test]
fn an_issue_with_all_fields() {
    let text = render_issue(&full_issue(), Some(UserId::new(9)), IssueAction::Close);
    parse_checked(EventKind::ConfidentialIssue, &text);
    assert_snapshot!(text, @r#"{"object_kind":"issue","user":{"name":"Ada Roe","username":"ada","avatar_url":"https://code.example.com/-/identicon/691d4463952c802f.svg"},"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln"},"object_attributes":{"id":41,"title":"Cracked tile","assignee_id":9,"author_id":7,"project_id":3,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 12:00:00 UTC","position":0,"branch_name":null,"description":"See the photo","milestone_id":11,"state":"closed","iid":5,"updated_by_id":9,"confidential":true,"deleted_at":null,"due_date":"2016-11-30","moved_to_id":44,"lock_version":null,"url":"https://code.example.com/pots/kiln/issues/5","action":"close"},"assignee":{"name":"Bo Lin","username":"bo","avatar_url":"https://code.example.com/-/identicon/2f7a066a52b811bf.svg"}}"#);
}

#[test]
fn an_issue_without_optional_fields() {
    for action in [IssueAction::Open, IssueAction::Update, IssueAction::Reopen] {
        let payload = parse_checked(EventKind::Issue, &render_issue(&issue(), None, action));
        assert_eq!(payload.get("assignee"), None);
        assert_eq!(payload["object_attributes"]["action"], action.as_str());
        assert_eq!(payload["object_attributes"]["author_id"], Value::Null);
    }
}

#[test]
fn a_comment_on_an_issue_contains_the_issue() {
    let text = render_note(NoteTarget::Issue { note: &note(), issue: &issue(), updated_by: None });
    parse_checked(EventKind::Note, &text);
    assert_snapshot!(text, @r#"{"object_kind":"note","user":{"name":"Bo Lin","username":"bo","avatar_url":"https://code.example.com/-/identicon/2f7a066a52b811bf.svg"},"project_id":3,"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln"},"object_attributes":{"id":88,"note":"Looks fine","noteable_type":"Issue","author_id":9,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 12:00:00 UTC","project_id":3,"attachment":null,"line_code":null,"commit_id":null,"noteable_id":41,"system":false,"st_diff":null,"updated_by_id":null,"type":null,"position":null,"original_position":null,"resolved_at":null,"resolved_by_id":null,"discussion_id":null,"original_discussion_id":null,"url":"https://code.example.com/pots/kiln/issues/5#note_88"},"issue":{"id":41,"title":"Cracked tile","assignee_id":null,"author_id":null,"project_id":3,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 12:00:00 UTC","position":0,"branch_name":null,"description":null,"milestone_id":null,"state":"opened","iid":5,"updated_by_id":null,"confidential":false,"deleted_at":null,"due_date":null,"moved_to_id":null,"lock_version":null}}"#);
    let full = render_note(NoteTarget::Issue { note: &note(), issue: &full_issue(), updated_by: Some(UserId::new(7)) });
    let payload = parse_checked(EventKind::ConfidentialNote, &full);
    assert_eq!(payload["issue"]["updated_by_id"], 7);
    assert_eq!(payload["issue"]["due_date"], "2016-11-30");
}

#[test]
fn a_comment_on_a_commit_contains_the_commit() {
    let text = render_note(NoteTarget::Commit { note: &commit_note(None), commit: &commit() });
    parse_checked(EventKind::Note, &text);
    assert_snapshot!(text, @r#"{"object_kind":"note","user":{"name":"Bo Lin","username":"bo","avatar_url":"https://code.example.com/-/identicon/2f7a066a52b811bf.svg"},"project_id":3,"project":{"name":"Kiln","description":null,"web_url":"https://code.example.com/pots/kiln","avatar_url":null,"git_ssh_url":"git@code.example.com:pots/kiln.git","git_http_url":"https://code.example.com/pots/kiln.git","namespace":"Pots","visibility_level":10,"path_with_namespace":"pots/kiln","default_branch":"main","homepage":"https://code.example.com/pots/kiln","url":"git@code.example.com:pots/kiln.git","ssh_url":"git@code.example.com:pots/kiln.git","http_url":"https://code.example.com/pots/kiln.git"},"repository":{"name":"Kiln","url":"git@code.example.com:pots/kiln.git","description":null,"homepage":"https://code.example.com/pots/kiln"},"object_attributes":{"id":6,"note":"Too hot?","noteable_type":"Commit","author_id":9,"created_at":"2016-11-22 10:15:30 UTC","updated_at":"2016-11-22 10:15:30 UTC","project_id":3,"attachment":null,"line_code":null,"commit_id":"2222222222222222222222222222222222222222","noteable_id":null,"system":false,"st_diff":null,"updated_by_id":null,"type":null,"position":null,"original_position":null,"resolved_at":null,"resolved_by_id":null,"discussion_id":null,"original_discussion_id":null,"url":"https://code.example.com/pots/kiln/commit/2222222222222222222222222222222222222222#note_6"},"commit":{"id":"2222222222222222222222222222222222222222","message":"Raise the heat\n","timestamp":"2016-11-22T12:15:30+02:00","url":"https://code.example.com/pots/kiln/commit/2222222222222222222222222222222222222222","author":{"name":"Ada Roe","email":"ada@example.com"}}}"#);
}

#[test]
fn a_comment_on_a_line_has_a_line_code() {
    let line_code = |old| {
        let line = CommitLine { path: "kiln.txt".into(), number: 12, old };
        let text = render_note(NoteTarget::Commit { note: &commit_note(Some(line)), commit: &commit() });
        let payload = parse_checked(EventKind::Note, &text);
        let note = &payload["object_attributes"];
        format!("{} {}", note["type"], note["line_code"])
    };
    assert_snapshot!(line_code(false), @r#""LegacyDiffNote" "79e94ed51f611f10d4c6a29a193ab85aabb7efce_0_12""#);
    assert_snapshot!(line_code(true), @r#""LegacyDiffNote" "79e94ed51f611f10d4c6a29a193ab85aabb7efce_12_0""#);
}

#[test]
fn times_can_be_formatted_as_iso_8601() {
    let renderer = JsonPayloadRenderer::new(Site::new("https://code.example.com", Some(2222)), TimeFormat::Iso8601);
    let (project, user, note, issue) = (kiln(), bo(), note(), full_issue());
    let on = NoteTarget::Issue { note: &note, issue: &issue, updated_by: None };
    let text = renderer.render(WebhookEvent::Note(&NoteEvent { project: &project, user: &user, on }));
    let payload: Value = serde_json::from_str(&text).expect("JSON");
    payload_schema::check_iso8601("Note Hook", &payload);
    assert_eq!(payload["object_attributes"]["created_at"], "2016-11-22T10:15:30Z");
    assert_eq!(payload["issue"]["updated_at"], "2016-11-22T12:00:00Z");
    assert_eq!(payload["project"]["git_ssh_url"], "ssh://git@code.example.com:2222/pots/kiln.git");
}

#[test]
fn without_ssh_the_repository_url_is_the_http_url() {
    let renderer = JsonPayloadRenderer::new(Site::new("https://code.example.com", None), TimeFormat::Gitlab);
    let (project, user, note, issue) = (kiln(), bo(), note(), full_issue());
    let on = NoteTarget::Issue { note: &note, issue: &issue, updated_by: None };
    let text = renderer.render(WebhookEvent::Note(&NoteEvent { project: &project, user: &user, on }));
    let payload: Value = serde_json::from_str(&text).expect("JSON");
    for url in [&payload["repository"]["url"], &payload["project"]["url"], &payload["project"]["git_http_url"]] {
        assert_eq!(url, "https://code.example.com/pots/kiln.git");
    }
    for url in [&payload["project"]["git_ssh_url"], &payload["project"]["ssh_url"]] {
        assert_eq!(url, "");
    }
}

#[test]
fn system_events_have_their_fields() {
    let (project, group) = (kiln(), pots());
    let record = ProjectRecord { project: &project, owner_name: "Pots", owner_email: "" };
    let (created_at, updated_at) = (morning(), noon());
    let member =
        ProjectMember { project: &project, user: user_record(), role: Role::Developer, created_at, updated_at };
    let group_member = GroupMember { group: &group, user: user_record(), role: Role::Owner, created_at, updated_at };
    let key = KeyRecord { id: 4, key: "ssh-ed25519 AAAA bo", username: Some("bo"), created_at, updated_at };
    let deploy_key = KeyRecord { username: None, ..key };
    let texts: Vec<String> = [
        SystemEvent::ProjectCreated(record),
        SystemEvent::ProjectDestroyed(record),
        SystemEvent::ProjectRenamed { project: record, old_path: "pots/oven" },
        SystemEvent::ProjectTransferred { project: record, old_path: "clay/kiln" },
        SystemEvent::MemberJoinedProject(member),
        SystemEvent::MemberLeftProject(member),
        SystemEvent::UserCreated(user_record()),
        SystemEvent::UserDestroyed(user_record()),
        SystemEvent::KeyCreated(key),
        SystemEvent::KeyDestroyed(deploy_key),
        SystemEvent::GroupCreated(&group),
        SystemEvent::GroupDestroyed(&group),
        SystemEvent::MemberJoinedGroup(group_member),
        SystemEvent::MemberLeftGroup(group_member),
    ]
    .iter()
    .map(|event| renderer().render(WebhookEvent::System(event)))
    .collect();
    for text in &texts {
        parse_checked(EventKind::System, text);
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
fn roles_are_rendered_by_name() {
    let project = kiln();
    let names = Role::ALL.map(|role| {
        let (created_at, updated_at) = (morning(), noon());
        let member = ProjectMember { project: &project, user: user_record(), role, created_at, updated_at };
        let text = renderer().render(WebhookEvent::System(&SystemEvent::MemberJoinedProject(member)));
        parse_checked(EventKind::System, &text)["access_level"].clone()
    });
    assert_eq!(names, ["Guest", "Reporter", "Developer", "Master", "Owner"]);
}

#[test]
fn the_system_hook_test_is_constant() {
    let text = renderer().render(WebhookEvent::SystemTest);
    assert_eq!(text, system::test_to_json());
    parse_checked(EventKind::System, &text);
    assert_snapshot!(text, @r#"{"event_name":"project_create","name":"Ruby","path":"ruby","project_id":1,"owner_name":"Someone","owner_email":"someone@example.com"}"#);
}

#[test]
fn a_build_with_and_without_optional_fields() {
    let project = kiln();
    let pipeline = BuildPipeline {
        id: PipelineId::new(77),
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
        id: JobId::new(501),
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
    let payload = parse_checked(EventKind::Job, &bare.to_json(&renderer()));
    assert_eq!(payload["before_sha"], Oid::ZERO);
    assert_eq!(payload["user"].as_object().map(serde_json::Map::len), Some(3));
    let full = BuildPayload {
        before_sha: Some(oid(1)),
        status: "success",
        started_at: Some(morning()),
        finished_at: Some(noon()),
        duration: Some(60.0),
        allow_failure: true,
        user: Some(BuildUser { id: UserId::new(7), name: "Ada Roe", email: "ada@example.com" }),
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
    let text = full.to_json(&renderer());
    let payload = parse_checked(EventKind::Job, &text);
    assert!(text.contains(r#""build_duration":60.0,"#), "{text}");
    assert_eq!((&payload["project_name"], &payload["commit"]["id"]), (&"Pots / Kiln".into(), &77.into()));
}

#[test]
fn a_pipeline_with_and_without_optional_fields() {
    let (project, user, commit) = (kiln(), bo(), commit());
    let bare_build = PipelineBuild {
        id: JobId::new(501),
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
        id: JobId::new(502),
        status: "success",
        started_at: Some(morning()),
        finished_at: Some(noon()),
        when: "on_success",
        user: Some(&user),
        runner: Some(PipelineRunner { id: RunnerId::new(1), description: "big", active: true, is_shared: false }),
        artifacts_file: Some(("artifacts.zip", 12)),
        ..bare_build
    };
    let bare = PipelinePayload {
        project: &project,
        id: PipelineId::new(77),
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
    parse_checked(EventKind::Pipeline, &bare.to_json(&renderer()));
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
    let payload = parse_checked(EventKind::Pipeline, &full.to_json(&renderer()));
    assert_eq!((&payload["builds"][0]["manual"], &payload["builds"][1]["manual"]), (&true.into(), &false.into()));
    assert_eq!(payload["project"].get("homepage"), None);
}

#[test]
fn hostile_texts_are_escaped() {
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
        let files = [ChangedPaths { added: vec![hostile.into()], ..ChangedPaths::default() }];
        let event = PushEvent {
            project: &project,
            user: &user,
            data: &data,
            message: None,
            files: &files,
            for_system_hook: false,
        };
        let payload = parse_checked(EventKind::Push, &render_push(event));
        assert_eq!(payload["commits"][0]["message"], hostile);
        assert_eq!(payload["commits"][0]["added"][0], hostile);
        assert_eq!((&payload["user_name"], &payload["project"]["name"]), (&hostile.into(), &hostile.into()));

        let issue = Issue { title: hostile.into(), description: Some(hostile.into()), ..issue() };
        let note = Note { body: hostile.into(), ..note() };
        let on = NoteTarget::Issue { note: &note, issue: &issue, updated_by: None };
        let event = NoteEvent { project: &project, user: &summary, on };
        let payload = parse_checked(EventKind::Note, &renderer().render(WebhookEvent::Note(&event)));
        assert_eq!(
            (&payload["object_attributes"]["note"], &payload["issue"]["title"]),
            (&hostile.into(), &hostile.into())
        );

        let created = SystemEvent::UserCreated(UserRecord { name: hostile, ..user_record() });
        let payload = parse_checked(EventKind::System, &renderer().render(WebhookEvent::System(&created)));
        assert_eq!(payload["name"], hostile);
    }
}
