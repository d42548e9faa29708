//! System hooks.

use axum::{extract::State, http::Method};
use forge::{
    Error,
    hooks::{self, HookFields, HookScope, SubscribedEventsPatch},
};
use model::{Hook, ProjectId};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    App,
    context::CallerCx,
    extract::{DeliveryIdInPath, HookTriggerInPath, SystemHookIdInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{CachedJson, Created, OkJson, Reply, SerializedJson, TimestampJson},
    routes::Routes,
    v3::{
        deliveries::{DeliveryJson, SentJson},
        hooks::PauseJson,
    },
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::SystemHooks)
        .get("/hooks", "List the system hooks, newest first; administrators only", list)
        .post("/hooks", "Create a system hook; administrators only", create)
        .get(
            "/hooks/{id}",
            "Send a sample event to a system hook immediately and return the event; administrators only",
            test_now,
        )
        .delete("/hooks/{id}", "Delete a system hook; administrators only", delete)
        .post("/hooks/{id}/test/{trigger}", "Send a sample event to a system hook; administrators only", test)
        .with_statuses(&[422])
        .get(
            "/hooks/{id}/deliveries",
            "List the deliveries of a system hook, newest first; administrators only",
            list_deliveries,
        )
        .get(
            "/hooks/{id}/deliveries/{delivery_id}",
            "Get a delivery of a system hook with its request and response; administrators only",
            get_delivery,
        )
        .post(
            "/hooks/{id}/deliveries/{delivery_id}/resend",
            "Resend a delivery of a system hook; administrators only",
            resend,
        )
}

async fn list(cx: CallerCx, paging: Paging) -> Reply<Paged<SystemHookJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx| {
        let found = hooks::list(tx, &HookScope::Instance, &page)?;
        Ok(paging.reply(found, SystemHookJson::from))
    });
    Ok(reply.await?)
}

async fn create(
    State(app): State<App>,
    cx: CallerCx,
    Params(params): Params<CreateSystemHook>,
) -> Reply<Created<NewSystemHookJson>> {
    let fields = params.map(|params| params.0);
    let hook = cx.write(move |tx| hooks::create(tx, &HookScope::Instance, &fields)).await?;
    let hook = SystemHookJson::from(hook);
    Ok(Created(if app.dialect().wraps_new_system_hook_in_array() {
        NewSystemHookJson::InArray([hook])
    } else {
        NewSystemHookJson::Alone(hook)
    }))
}

/// A `GET` with a side effect, as in GitLab 8.14. Whether the delivery succeeds is not reported; `HEAD` sends nothing.
async fn test_now(
    State(app): State<App>,
    cx: CallerCx,
    method: Method,
    SystemHookIdInPath(id): SystemHookIdInPath,
) -> Reply<CachedJson<SampleJson>> {
    let (target, delivery) = cx.read(move |tx| hooks::system_test(tx, &id)).await?;
    let sample: Value = serde_json::from_str(&delivery.body).map_err(|error| Error::Internal(error.into()))?;
    if let Some(webhook_sender) = app.webhook_sender().filter(|_| method != Method::HEAD) {
        webhook_sender(target, delivery).await;
    }
    Ok(SerializedJson::new(&sample).into())
}

async fn delete(cx: CallerCx, SystemHookIdInPath(id): SystemHookIdInPath) -> Reply<OkJson<DeletedSystemHookJson>> {
    let hook = cx.write(move |tx| hooks::delete(tx, &HookScope::Instance, &id)).await?;
    Ok(OkJson(hook.ok_or_else(|| Error::not_found("System hook"))?.into()))
}

async fn test(
    CallerCx { forge, caller }: CallerCx,
    SystemHookIdInPath(id): SystemHookIdInPath,
    HookTriggerInPath(trigger): HookTriggerInPath,
) -> Reply<Created<SentJson>> {
    hooks::test(&forge, caller, HookScope::Instance, id, trigger).await?;
    Ok(Created(SentJson::default()))
}

async fn list_deliveries(
    cx: CallerCx,
    SystemHookIdInPath(id): SystemHookIdInPath,
    paging: Paging,
) -> Reply<Paged<DeliveryJson>> {
    let reply = cx.read_list(move |tx| {
        let found = hooks::list_deliveries(tx, &HookScope::Instance, &id, &paging.page)?;
        Ok(paging.reply(found, DeliveryJson::without_bodies))
    });
    Ok(reply.await?)
}

async fn get_delivery(
    cx: CallerCx,
    SystemHookIdInPath(id): SystemHookIdInPath,
    DeliveryIdInPath(delivery): DeliveryIdInPath,
) -> Reply<OkJson<DeliveryJson>> {
    let entry = cx.read(move |tx| hooks::get_delivery(tx, &HookScope::Instance, &id, &delivery)).await?;
    Ok(OkJson(DeliveryJson::with_bodies(entry)))
}

async fn resend(
    cx: CallerCx,
    SystemHookIdInPath(id): SystemHookIdInPath,
    DeliveryIdInPath(delivery): DeliveryIdInPath,
) -> Reply<Created<DeliveryJson>> {
    let entry = cx.write(move |tx| hooks::resend(tx, &HookScope::Instance, &id, &delivery)).await?;
    Ok(Created(DeliveryJson::with_bodies(entry)))
}

struct CreateSystemHook(HookFields);

impl FromParams for CreateSystemHook {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let url = from.required_text("url", "The URL that receives the events");
        let token = from.text("token", "The secret that is sent with each delivery");
        let push = from.flag("push_events", "Whether to send events for pushes to branches; default: true");
        let tag_push = from.flag("tag_push_events", "Whether to send events for pushes of tags; default: false");
        let verify_tls = from
            .flag("enable_ssl_verification", "Whether to verify the TLS certificate of the receiver; default: true");
        let events = SubscribedEventsPatch { push, tag_push, ..SubscribedEventsPatch::default() };
        Self(HookFields { url, token, verify_tls, events })
    }
}

/// A new system hook, alone or in an array, depending on the dialect.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum NewSystemHookJson {
    InArray([SystemHookJson; 1]),
    Alone(SystemHookJson),
}

/// A system hook.
#[derive(Serialize, JsonSchema)]
struct SystemHookJson {
    id: i64,
    url: String,
    created_at: TimestampJson,
    push_events: bool,
    tag_push_events: bool,
    enable_ssl_verification: bool,
    #[serde(flatten)]
    pause: Option<PauseJson>,
}

impl From<Hook> for SystemHookJson {
    fn from(hook: Hook) -> Self {
        let Hook { id, project: _, url, events, verify_tls, pause, created_at, updated_at: _ } = hook;
        Self {
            id: id.get(),
            url,
            created_at: TimestampJson(created_at),
            push_events: events.push,
            tag_push_events: events.tag_push,
            enable_ssl_verification: verify_tls,
            pause: pause.map(PauseJson::from),
        }
    }
}

/// A deleted system hook, which has more fields in the contract than others.
#[derive(Serialize, JsonSchema)]
struct DeletedSystemHookJson {
    #[serde(flatten)]
    hook: SystemHookJson,
    updated_at: TimestampJson,
    project_id: Option<i64>,
    service_id: Option<i64>,
    note_events: bool,
    issues_events: bool,
    merge_requests_events: bool,
}

impl From<Hook> for DeletedSystemHookJson {
    fn from(hook: Hook) -> Self {
        Self {
            updated_at: TimestampJson(hook.updated_at),
            project_id: hook.project.map(ProjectId::get),
            service_id: None,
            note_events: hook.events.note,
            issues_events: hook.events.issues,
            merge_requests_events: hook.events.merge_requests,
            hook: hook.into(),
        }
    }
}

/// The constant payload that tests a system hook.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the response in the OpenAPI document")]
struct SampleJson {
    event_name: String,
    name: String,
    path: String,
    project_id: i64,
    owner_name: String,
    owner_email: String,
}
