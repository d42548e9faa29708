//! Hooks of the instance.

use axum::{extract::State, http::Method};
use forge::{
    Error, Forge,
    hooks::{self, HookText, Place, SwitchWishes},
};
use model::Hook;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::v3::{
    deliveries::{DeliveryJson, SentJson},
    hooks::PauseJson,
};
use crate::{
    App,
    extract::{Credentials, DeliveryNumber, SystemHookNumber, TriggerName},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Recalled, Reply, Stamp, Written},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/hooks", "Lists the hooks of the instance, newest first; administrators only", list)
        .post("/hooks", "Adds a hook to the instance; administrators only", create)
        .get(
            "/hooks/{id}",
            "Sends a sample to a hook of the instance at once, and shows it; administrators only",
            try_out,
        )
        .delete("/hooks/{id}", "Removes a hook of the instance; administrators only", delete)
        .post("/hooks/{id}/test/{trigger}", "Sends a sample to a hook of the instance; administrators only", test)
        .also(&[422])
        .get(
            "/hooks/{id}/deliveries",
            "Lists what a hook of the instance was sent, newest first; administrators only",
            log,
        )
        .get(
            "/hooks/{id}/deliveries/{delivery_id}",
            "Shows something that a hook of the instance was sent, and the answer; administrators only",
            log_entry,
        )
        .post(
            "/hooks/{id}/deliveries/{delivery_id}/resend",
            "Sends something to a hook of the instance once more; administrators only",
            resend,
        )
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    paging: Paging,
) -> Reply<Paged<SystemHookJson>> {
    let page = paging.of_short_list();
    let hooks = forge.read(caller, move |tx| hooks::list(tx, &Place::Instance, &page)).await?;
    Ok(paging.answer(hooks.map(SystemHookJson::from)))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<CreateSystemHook>,
) -> Reply<Created<NewSystemHookJson>> {
    let text = given.map(|given| given.0);
    let hook = forge.write(caller, move |tx| hooks::create(tx, &Place::Instance, &text)).await?;
    let hook = SystemHookJson::from(hook);
    Ok(Created(if app.dialect().lists_new_system_hooks() {
        NewSystemHookJson::Listed([hook])
    } else {
        NewSystemHookJson::Alone(hook)
    }))
}

/// A `GET` that does something, as in the original. Whether it arrives is not told; who only asks for the headers sends
/// nothing.
async fn try_out(
    State(app): State<App>,
    State(forge): State<Forge>,
    method: Method,
    Credentials(caller): Credentials,
    SystemHookNumber(id): SystemHookNumber,
) -> Reply<Recalled<SampleJson>> {
    let (address, letter) = forge.read(caller, move |tx| hooks::system_test(tx, &id)).await?;
    let sample: Value = serde_json::from_str(&letter.body).map_err(|error| Error::Internal(error.to_string()))?;
    if let Some(courier) = app.courier().filter(|_| method != Method::HEAD) {
        courier(address, letter).await;
    }
    Ok(Written::new(&sample).into())
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    SystemHookNumber(id): SystemHookNumber,
) -> Reply<Done<DeletedSystemHookJson>> {
    let hook = forge.write(caller, move |tx| hooks::delete(tx, &Place::Instance, &id)).await?;
    Ok(Done(hook.ok_or_else(|| Error::not_found("System hook"))?.into()))
}

async fn test(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    SystemHookNumber(id): SystemHookNumber,
    TriggerName(trigger): TriggerName,
) -> Reply<Created<SentJson>> {
    hooks::test(&forge, caller, Place::Instance, id, trigger).await?;
    Ok(Created(SentJson::default()))
}

async fn log(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    SystemHookNumber(id): SystemHookNumber,
    paging: Paging,
) -> Reply<Paged<DeliveryJson>> {
    let page = paging.page.clone();
    let log = forge.read(caller, move |tx| hooks::log(tx, &Place::Instance, &id, &page)).await?;
    Ok(paging.answer(log.map(DeliveryJson::in_short)))
}

async fn log_entry(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    SystemHookNumber(id): SystemHookNumber,
    DeliveryNumber(delivery): DeliveryNumber,
) -> Reply<Done<DeliveryJson>> {
    let entry = forge.read(caller, move |tx| hooks::log_entry(tx, &Place::Instance, &id, &delivery)).await?;
    Ok(Done(DeliveryJson::in_full(entry)))
}

async fn resend(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    SystemHookNumber(id): SystemHookNumber,
    DeliveryNumber(delivery): DeliveryNumber,
) -> Reply<Created<DeliveryJson>> {
    let entry = forge.write(caller, move |tx| hooks::resend(tx, &Place::Instance, &id, &delivery)).await?;
    Ok(Created(DeliveryJson::in_full(entry)))
}

struct CreateSystemHook(HookText);

impl FromParams for CreateSystemHook {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let url = from.required_text("url", "Where to send to");
        let token = from.text("token", "A secret that is sent along");
        let push = from.flag("push_events", "Tells of pushes to branches; true unless said otherwise");
        let tag_push = from.flag("tag_push_events", "Tells of pushes of tags");
        let verify = from.flag("enable_ssl_verification", "Whether the receiver has to prove who it is");
        let switches = SwitchWishes { push, tag_push, ..SwitchWishes::default() };
        Self(HookText { url, token, verify, switches })
    }
}

/// A hook that was added to the instance, alone or in a list of its own.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum NewSystemHookJson {
    Listed([SystemHookJson; 1]),
    Alone(SystemHookJson),
}

/// A hook of the instance.
#[derive(Serialize, JsonSchema)]
struct SystemHookJson {
    id: i64,
    url: String,
    created_at: Stamp,
    push_events: bool,
    tag_push_events: bool,
    enable_ssl_verification: bool,
    #[serde(flatten)]
    pause: Option<PauseJson>,
}

impl From<Hook> for SystemHookJson {
    fn from(hook: Hook) -> Self {
        let Hook { id, project: _, url, switches, verify, pause, created_at, updated_at: _ } = hook;
        Self {
            id,
            url,
            created_at: Stamp(created_at),
            push_events: switches.push,
            tag_push_events: switches.tag_push,
            enable_ssl_verification: verify,
            pause: pause.map(PauseJson::from),
        }
    }
}

/// A hook of the instance that is gone: the contract shows more of it than of others.
#[derive(Serialize, JsonSchema)]
struct DeletedSystemHookJson {
    #[serde(flatten)]
    hook: SystemHookJson,
    updated_at: Stamp,
    project_id: Option<i64>,
    service_id: Option<i64>,
    note_events: bool,
    issues_events: bool,
    merge_requests_events: bool,
}

impl From<Hook> for DeletedSystemHookJson {
    fn from(hook: Hook) -> Self {
        Self {
            updated_at: Stamp(hook.updated_at),
            project_id: hook.project,
            service_id: None,
            note_events: hook.switches.note,
            issues_events: hook.switches.issues,
            merge_requests_events: hook.switches.merge_requests,
            hook: hook.into(),
        }
    }
}

/// What a hook of the instance is sent to try it out; always the same.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the answer for the document")]
struct SampleJson {
    event_name: String,
    name: String,
    path: String,
    project_id: i64,
    owner_name: String,
    owner_email: String,
}
