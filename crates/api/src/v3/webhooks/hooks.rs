//! Hooks of projects.

use axum::{extract::State, http::StatusCode};
use forge::{
    Error, Forge,
    hooks::{self, HookText, Place, SwitchWishes},
};
use model::{Hook, hooks::Pause};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::deliveries::{DeliveryJson, SentJson};
use crate::{
    App,
    error::ApiError,
    extract::{Credentials, DeliveryNumber, HookNumber, InProject, TriggerName},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/hooks", "Lists the hooks of a project, newest first", list)
        .post("/projects/{id}/hooks", "Adds a hook to a project", create)
        .also(&[422])
        .get("/projects/{id}/hooks/{hook_id}", "Shows a hook of a project", get)
        .put("/projects/{id}/hooks/{hook_id}", "Changes a hook of a project, and ends its pause", update)
        .also(&[422])
        .delete("/projects/{id}/hooks/{hook_id}", "Removes a hook of a project", delete)
        .post("/projects/{id}/hooks/{hook_id}/test/{trigger}", "Sends a sample to a hook of a project", test)
        .also(&[422])
        .get("/projects/{id}/hooks/{hook_id}/deliveries", "Lists what a hook of a project was sent, newest first", log)
        .get(
            "/projects/{id}/hooks/{hook_id}/deliveries/{delivery_id}",
            "Shows something that a hook of a project was sent, and the answer",
            log_entry,
        )
        .post(
            "/projects/{id}/hooks/{hook_id}/deliveries/{delivery_id}/resend",
            "Sends something to a hook of a project once more",
            resend,
        )
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<ProjectHookJson>> {
    let (place, page) = (Place::Project(project), paging.page.clone());
    let hooks = forge.read(caller, move |tx| hooks::list(tx, &place, &page)).await?;
    Ok(paging.answer(hooks.map(ProjectHookJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    HookNumber(id): HookNumber,
) -> Reply<Done<ProjectHookJson>> {
    let place = Place::Project(project);
    let hook = forge.read(caller, move |tx| hooks::get(tx, &place, &id)).await?;
    Ok(Done(hook.into()))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<SetHook>,
) -> Reply<Created<ProjectHookJson>> {
    let (place, text) = (Place::Project(project), given.map(|given| given.0));
    let hook = forge.write(caller, move |tx| hooks::create(tx, &place, &text)).await.map_err(refusal)?;
    Ok(Created(hook.into()))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    HookNumber(id): HookNumber,
    Params(given): Params<SetHook>,
) -> Reply<Done<ProjectHookJson>> {
    let (place, text) = (Place::Project(project), given.map(|given| given.0));
    let hook = forge.write(caller, move |tx| hooks::update(tx, &place, &id, &text)).await.map_err(refusal)?;
    Ok(Done(hook.into()))
}

async fn delete(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    HookNumber(id): HookNumber,
) -> Reply<Done<Option<ProjectHookJson>>> {
    let (place, number) = (Place::Project(project), id.clone());
    let hook = forge.write(caller, move |tx| hooks::delete(tx, &place, &id)).await?;
    if hook.is_none() && !app.dialect().deletes_missing_hooks() {
        return Err(Error::not_found(&format!("Error deleting hook {}", number.get()?)).into());
    }
    Ok(Done(hook.map(ProjectHookJson::from)))
}

async fn test(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    HookNumber(id): HookNumber,
    TriggerName(trigger): TriggerName,
) -> Reply<Created<SentJson>> {
    hooks::test(&forge, caller, Place::Project(project), id, trigger).await?;
    Ok(Created(SentJson::default()))
}

async fn log(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    HookNumber(id): HookNumber,
    paging: Paging,
) -> Reply<Paged<DeliveryJson>> {
    let (place, page) = (Place::Project(project), paging.page.clone());
    let log = forge.read(caller, move |tx| hooks::log(tx, &place, &id, &page)).await?;
    Ok(paging.answer(log.map(DeliveryJson::in_short)))
}

async fn log_entry(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    HookNumber(id): HookNumber,
    DeliveryNumber(delivery): DeliveryNumber,
) -> Reply<Done<DeliveryJson>> {
    let place = Place::Project(project);
    let entry = forge.read(caller, move |tx| hooks::log_entry(tx, &place, &id, &delivery)).await?;
    Ok(Done(DeliveryJson::in_full(entry)))
}

async fn resend(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    HookNumber(id): HookNumber,
    DeliveryNumber(delivery): DeliveryNumber,
) -> Reply<Created<DeliveryJson>> {
    let place = Place::Project(project);
    let entry = forge.write(caller, move |tx| hooks::resend(tx, &place, &id, &delivery)).await?;
    Ok(Created(DeliveryJson::in_full(entry)))
}

/// A bad URL has a status and a text of its own here, which clients of the original know.
fn refusal(error: Error) -> ApiError {
    match error {
        Error::Invalid(violations) if violations.iter().any(|(field, _)| field == "url") => {
            ApiError::Under(StatusCode::UNPROCESSABLE_ENTITY, Error::Malformed(vec!["Invalid url given".into()]))
        }
        other => other.into(),
    }
}

struct SetHook(HookText);

impl FromParams for SetHook {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let url = from.required_text("url", "Where to send to");
        let push = from.flag("push_events", "Tells of pushes to branches; true unless said otherwise");
        let issues = from.flag("issues_events", "Tells of issues");
        let confidential_issues = from.flag(
            "confidential_issues_events",
            "Tells of issues that only some may see, and with note_events of comments on them",
        );
        let merge_requests = from.flag("merge_requests_events", "Tells of merge requests");
        let tag_push = from.flag("tag_push_events", "Tells of pushes of tags");
        let note = from.flag("note_events", "Tells of comments");
        let build = from.flag("build_events", "Tells of builds");
        let pipeline = from.flag("pipeline_events", "Tells of pipelines");
        // The contract has the one name, later clients of the original use the other.
        let wiki = from.flag("wiki_events", "The same as wiki_page_events");
        let wiki_page = from.flag("wiki_page_events", "Tells of pages of the wiki").or(wiki);
        let verify = from.flag("enable_ssl_verification", "Whether the receiver has to prove who it is");
        let token = from.text("token", "A secret that is sent along; an empty one takes it away");
        let switches = SwitchWishes {
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
        Self(HookText { url, token, verify, switches })
    }
}

/// A hook of a project.
#[derive(Serialize, JsonSchema)]
struct ProjectHookJson {
    id: i64,
    url: String,
    created_at: Stamp,
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

/// Why nothing is sent at present.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PauseJson {
    paused_at: Stamp,
    paused_reason: String,
    next_attempt_at: Option<Stamp>,
}

impl From<Pause> for PauseJson {
    fn from(Pause { since, reason, next_attempt_at }: Pause) -> Self {
        Self { paused_at: Stamp(since), paused_reason: reason, next_attempt_at: next_attempt_at.map(Stamp) }
    }
}

impl From<Hook> for ProjectHookJson {
    fn from(hook: Hook) -> Self {
        let Hook { id, project, url, switches, verify, pause, created_at, updated_at: _ } = hook;
        Self {
            id,
            url,
            created_at: Stamp(created_at),
            push_events: switches.push,
            tag_push_events: switches.tag_push,
            enable_ssl_verification: verify,
            project_id: project,
            issues_events: switches.issues,
            confidential_issues_events: switches.confidential_issues,
            merge_requests_events: switches.merge_requests,
            note_events: switches.note,
            build_events: switches.build,
            pipeline_events: switches.pipeline,
            wiki_page_events: switches.wiki_page,
            pause: pause.map(PauseJson::from),
        }
    }
}
