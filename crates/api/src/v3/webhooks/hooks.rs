//! Hooks of projects.

use axum::{extract::State, http::StatusCode};
use forge::{
    Error,
    hooks::{self, HookFields, HookScope, SubscribedEventsPatch},
};
use model::{Hook, ProjectId, hooks::Pause};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::{CallerCx, ProjectCx},
    error::ApiError,
    extract::{DeliveryIdInPath, HookIdInPath, HookTriggerInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    v3::deliveries::{DeliveryJson, SentJson},
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::ProjectHooks)
        .get("/projects/{id}/hooks", "List the hooks of a project, newest first", list)
        .post("/projects/{id}/hooks", "Create a project hook", create)
        .with_statuses(&[422])
        .get("/projects/{id}/hooks/{hook_id}", "Get a project hook", get)
        .put("/projects/{id}/hooks/{hook_id}", "Update a project hook and end its pause", update)
        .with_statuses(&[422])
        .delete("/projects/{id}/hooks/{hook_id}", "Delete a project hook", delete)
        .post("/projects/{id}/hooks/{hook_id}/test/{trigger}", "Send a sample event to a project hook", test)
        .with_statuses(&[422])
        .get(
            "/projects/{id}/hooks/{hook_id}/deliveries",
            "List the deliveries of a project hook, newest first",
            list_deliveries,
        )
        .get(
            "/projects/{id}/hooks/{hook_id}/deliveries/{delivery_id}",
            "Get a delivery of a project hook with its request and response",
            get_delivery,
        )
        .post(
            "/projects/{id}/hooks/{hook_id}/deliveries/{delivery_id}/resend",
            "Resend a delivery of a project hook",
            resend,
        )
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<ProjectHookJson>> {
    let (cx, scope) = with_scope(cx);
    let reply = cx.read_list(move |tx| {
        let found = hooks::list(tx, &scope, &paging.page)?;
        Ok(paging.reply(found, ProjectHookJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, HookIdInPath(id): HookIdInPath) -> Reply<OkJson<ProjectHookJson>> {
    let (cx, scope) = with_scope(cx);
    let hook = cx.read(move |tx| hooks::get(tx, &scope, &id)).await?;
    Ok(OkJson(hook.into()))
}

async fn create(cx: ProjectCx, Params(params): Params<SetHook>) -> Reply<Created<ProjectHookJson>> {
    let (cx, scope) = with_scope(cx);
    let fields = params.map(|params| params.0);
    let hook = cx.write(move |tx| hooks::create(tx, &scope, &fields)).await.map_err(invalid_url_error)?;
    Ok(Created(hook.into()))
}

async fn update(
    cx: ProjectCx,
    HookIdInPath(id): HookIdInPath,
    Params(params): Params<SetHook>,
) -> Reply<OkJson<ProjectHookJson>> {
    let (cx, scope) = with_scope(cx);
    let fields = params.map(|params| params.0);
    let hook = cx.write(move |tx| hooks::update(tx, &scope, &id, &fields)).await.map_err(invalid_url_error)?;
    Ok(OkJson(hook.into()))
}

async fn delete(
    State(app): State<App>,
    cx: ProjectCx,
    HookIdInPath(id): HookIdInPath,
) -> Reply<OkJson<Option<ProjectHookJson>>> {
    let (cx, scope) = with_scope(cx);
    let deleted_id = id.clone();
    let hook = cx.write(move |tx| hooks::delete(tx, &scope, &id)).await?;
    if hook.is_none() && !app.dialect().deletes_missing_hooks() {
        return Err(Error::not_found(format!("Error deleting hook {}", deleted_id.validate()?)).into());
    }
    Ok(OkJson(hook.map(ProjectHookJson::from)))
}

async fn test(
    ProjectCx { forge, caller, project }: ProjectCx,
    HookIdInPath(id): HookIdInPath,
    HookTriggerInPath(trigger): HookTriggerInPath,
) -> Reply<Created<SentJson>> {
    hooks::test(&forge, caller, HookScope::Project(project), id, trigger).await?;
    Ok(Created(SentJson::default()))
}

async fn list_deliveries(cx: ProjectCx, HookIdInPath(id): HookIdInPath, paging: Paging) -> Reply<Paged<DeliveryJson>> {
    let (cx, scope) = with_scope(cx);
    let reply = cx.read_list(move |tx| {
        let found = hooks::list_deliveries(tx, &scope, &id, &paging.page)?;
        Ok(paging.reply(found, DeliveryJson::without_bodies))
    });
    Ok(reply.await?)
}

async fn get_delivery(
    cx: ProjectCx,
    HookIdInPath(id): HookIdInPath,
    DeliveryIdInPath(delivery): DeliveryIdInPath,
) -> Reply<OkJson<DeliveryJson>> {
    let (cx, scope) = with_scope(cx);
    let entry = cx.read(move |tx| hooks::get_delivery(tx, &scope, &id, &delivery)).await?;
    Ok(OkJson(DeliveryJson::with_bodies(entry)))
}

async fn resend(
    cx: ProjectCx,
    HookIdInPath(id): HookIdInPath,
    DeliveryIdInPath(delivery): DeliveryIdInPath,
) -> Reply<Created<DeliveryJson>> {
    let (cx, scope) = with_scope(cx);
    let entry = cx.write(move |tx| hooks::resend(tx, &scope, &id, &delivery)).await?;
    Ok(Created(DeliveryJson::with_bodies(entry)))
}

/// Returns the caller and the scope of the hooks of the project.
fn with_scope(ProjectCx { forge, caller, project }: ProjectCx) -> (CallerCx, HookScope) {
    (CallerCx { forge, caller }, HookScope::Project(project))
}

/// GitLab 8.14 has its own status and text for an invalid URL.
fn invalid_url_error(error: Error) -> ApiError {
    match error {
        Error::Invalid(violations) if violations.iter().any(|(field, _)| field == "url") => ApiError::OverrideStatus(
            StatusCode::UNPROCESSABLE_ENTITY,
            Error::Malformed(vec!["Invalid url given".into()]),
        ),
        other => other.into(),
    }
}

struct SetHook(HookFields);

impl FromParams for SetHook {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let url = from.required_text("url", "The URL that receives the events");
        let push = from.flag("push_events", "Whether to send events for pushes to branches; initially true");
        let issues = from.flag("issues_events", "Whether to send events for issues; initially false");
        let confidential_issues = from.flag(
            "confidential_issues_events",
            "Whether to send events for confidential issues, with note_events also for their comments; initially false",
        );
        let merge_requests = from.flag("merge_requests_events", "Stored without effect: Gable has no merge requests");
        let tag_push = from.flag("tag_push_events", "Whether to send events for pushes of tags; initially false");
        let note = from.flag("note_events", "Whether to send events for comments; initially false");
        let build = from.flag("build_events", "Whether to send events for builds; initially false");
        let pipeline = from.flag("pipeline_events", "Whether to send events for pipelines; initially false");
        // The contract has `wiki_events` in requests and `wiki_page_events` in responses; GitLab 8.16 and later accept the
        // latter.
        let wiki = from.flag("wiki_events", "Alias of wiki_page_events, which takes precedence");
        let wiki_page = from.flag("wiki_page_events", "Stored without effect: Gable has no wikis").or(wiki);
        let verify_tls = from
            .flag("enable_ssl_verification", "Whether to verify the TLS certificate of the receiver; initially true");
        let token = from.text("token", "The secret that is sent with each delivery; empty to remove it");
        let events = SubscribedEventsPatch {
            push,
            tag_push,
            issues,
            confidential_issues,
            merge_requests,
            note,
            build,
            pipeline,
            wiki_page,
        };
        Self(HookFields { url, token, verify_tls, events })
    }
}

/// A hook of a project.
#[derive(Serialize, JsonSchema)]
struct ProjectHookJson {
    id: i64,
    url: String,
    created_at: TimestampJson,
    push_events: bool,
    tag_push_events: bool,
    enable_ssl_verification: bool,
    project_id: Option<i64>,
    issues_events: bool,
    confidential_issues_events: bool,
    merge_requests_events: bool,
    note_events: bool,
    build_events: bool,
    pipeline_events: bool,
    wiki_page_events: bool,
    #[serde(flatten)]
    pause: Option<PauseJson>,
}

/// The pause of a hook.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PauseJson {
    paused_at: TimestampJson,
    paused_reason: String,
    next_attempt_at: Option<TimestampJson>,
}

impl From<Pause> for PauseJson {
    fn from(Pause { since, reason, next_attempt_at }: Pause) -> Self {
        Self {
            paused_at: TimestampJson(since),
            paused_reason: reason,
            next_attempt_at: next_attempt_at.map(TimestampJson),
        }
    }
}

impl From<Hook> for ProjectHookJson {
    fn from(hook: Hook) -> Self {
        let Hook { id, project, url, events, verify_tls, pause, created_at, updated_at: _ } = hook;
        Self {
            id: id.get(),
            url,
            created_at: TimestampJson(created_at),
            push_events: events.push,
            tag_push_events: events.tag_push,
            enable_ssl_verification: verify_tls,
            project_id: project.map(ProjectId::get),
            issues_events: events.issues,
            confidential_issues_events: events.confidential_issues,
            merge_requests_events: events.merge_requests,
            note_events: events.note,
            build_events: events.build,
            pipeline_events: events.pipeline,
            wiki_page_events: events.wiki_page,
            pause: pause.map(PauseJson::from),
        }
    }
}
