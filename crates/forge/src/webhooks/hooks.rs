//! Hooks of projects, system hooks and their delivery logs.

use std::sync::Arc;

use model::{
    Delivery, DeliveryId, EventKind, Hook, HookId, Page, Project, ProjectId, Slice, Violations, WebhookEvent,
    hooks::{SubscribedEvents, delivery_uuid},
    text::has_control,
    tokens::Secret,
};
use store::{
    delivery_log::EncryptedDelivery,
    hooks::{EncryptedHook, HookRecord},
    webhook_events::NewHookEvent,
};

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    deliveries::{HookTarget, OutgoingDelivery},
    outbound_addresses::Destination,
    outbox, sample_payloads,
};

/// The maximum length of a token, which has to fit into a header.
const MAX_TOKEN_LENGTH: usize = 2000;
/// Replaces credentials in URLs.
const MASK: &str = "*****:*****";
/// The maximum number of hooks of a project, since every event creates a delivery for each of them.
const MAX_HOOKS_PER_PROJECT: i64 = 1000;
/// The error for a hook whose secrets were encrypted with another key.
const UNREADABLE: &str = "the hook is encrypted with another instance key; set its URL and token again";

/// Which hooks a request is about.
#[derive(Clone, Debug)]
pub enum HookScope {
    /// The hooks of a project.
    Project(ProjectRef),
    /// The system hooks.
    Instance,
}

/// The settings of a hook, as a client sends them.
#[derive(Clone)]
pub struct HookFields {
    /// The URL.
    pub url: String,
    /// The secret token; an empty one removes it.
    pub token: Option<String>,
    /// Whether the TLS certificate of the receiver is verified.
    pub verify_tls: Option<bool>,
    /// The kinds of events that it receives.
    pub events: SubscribedEventsPatch,
}

/// Changes to the events of a hook; `None` keeps a flag.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscribedEventsPatch {
    /// Pushes to branches.
    pub push: Option<bool>,
    /// Pushes of tags.
    pub tag_push: Option<bool>,
    /// Issues.
    pub issues: Option<bool>,
    /// Confidential issues.
    pub confidential_issues: Option<bool>,
    /// Merge requests.
    pub merge_requests: Option<bool>,
    /// Comments.
    pub note: Option<bool>,
    /// Builds.
    pub build: Option<bool>,
    /// Pipelines.
    pub pipeline: Option<bool>,
    /// Wiki pages.
    pub wiki_page: Option<bool>,
}

impl SubscribedEventsPatch {
    fn apply_to(self, current: SubscribedEvents) -> SubscribedEvents {
        SubscribedEvents {
            push: self.push.unwrap_or(current.push),
            tag_push: self.tag_push.unwrap_or(current.tag_push),
            issues: self.issues.unwrap_or(current.issues),
            confidential_issues: self.confidential_issues.unwrap_or(current.confidential_issues),
            merge_requests: self.merge_requests.unwrap_or(current.merge_requests),
            note: self.note.unwrap_or(current.note),
            build: self.build.unwrap_or(current.build),
            pipeline: self.pipeline.unwrap_or(current.pipeline),
            wiki_page: self.wiki_page.unwrap_or(current.wiki_page),
        }
    }
}

/// An entry of the delivery log.
pub struct DeliveryLogEntry {
    /// The delivery.
    pub delivery: Delivery,
    /// Whether the request carries, or carried, the token and a signature.
    pub signed: bool,
}

/// Checks that the caller may administer the hooks; returns the project, if any.
pub(crate) fn authorize(tx: &mut ReadTx<'_>, scope: &HookScope) -> Result<Option<Project>> {
    match scope {
        HookScope::Project(project) => tx.project(project, ProjectAbility::AdministerHooks).map(Some),
        HookScope::Instance => tx.authorize(Ability::AdministerHooks).map(|()| None),
    }
}

fn authorize_project(tx: &mut ReadTx<'_>, scope: &HookScope) -> Result<Option<ProjectId>> {
    Ok(authorize(tx, scope)?.map(|project| project.id))
}

/// Returns the hooks of a project or the system hooks, newest first.
pub fn list(tx: &mut ReadTx<'_>, scope: &HookScope, page: &Unvalidated<Page>) -> Result<Slice<Hook>> {
    let project = authorize_project(tx, scope)?;
    let Slice { items, total, page } = store::hooks::list(tx.db(), project, *page.validate()?)?;
    let items = items.into_iter().map(|hook| masked(tx, hook)).collect();
    Ok(Slice { items, total, page })
}

/// Returns a hook.
pub fn get(tx: &mut ReadTx<'_>, scope: &HookScope, id: &Unvalidated<HookId>) -> Result<Hook> {
    let project = authorize_project(tx, scope)?;
    let hook = find(tx, project, *id.validate()?)?;
    Ok(masked(tx, hook))
}

/// Returns whether a hook has a secret token.
pub(crate) fn has_token(tx: &mut ReadTx<'_>, project: &Project, id: HookId) -> Result<bool> {
    Ok(find(tx, Some(project.id), id)?.token.is_some())
}

/// Creates a hook.
pub fn create(tx: &mut WriteTx<'_>, scope: &HookScope, fields: &Unvalidated<HookFields>) -> Result<Hook> {
    let project = authorize_project(tx.read(), scope)?;
    let HookFields { url, token, verify_tls, events } = fields.validate()?;
    if let Some(project) = project
        && store::hooks::count(tx.db(), project)? >= MAX_HOOKS_PER_PROJECT
    {
        let mut violations = Violations::new();
        violations.add("base", format!("Maximum number of hooks ({MAX_HOOKS_PER_PROJECT}) reached"));
        return Err(violations.into());
    }
    let (url, receiver) = validate_url(tx.read(), project, url, None)?;
    let token = token.as_deref().and_then(normalize_token);
    validate_token(token)?;
    let (url, token) = (encrypt(tx.read(), project, &url), token.map(|token| encrypt(tx.read(), project, token)));
    let record = HookRecord {
        url: &url,
        token: token.as_deref(),
        receiver: &receiver,
        verify_tls: verify_tls.unwrap_or(true),
        events: events.apply_to(SubscribedEvents::default()),
    };
    let now = tx.now();
    let hook = store::hooks::insert(tx.db(), project, &record, now)?;
    Ok(masked(tx.read(), hook))
}

/// Changes a hook and ends its pause. Omitted settings are kept, except for a token that was meant for another
/// receiver.
pub fn update(
    tx: &mut WriteTx<'_>,
    scope: &HookScope,
    id: &Unvalidated<HookId>,
    fields: &Unvalidated<HookFields>,
) -> Result<Hook> {
    let project = authorize_project(tx.read(), scope)?;
    let (id, HookFields { url, token, verify_tls, events }) = (*id.validate()?, fields.validate()?);
    let hook = find_for_update(tx, project, id)?;
    let current = decrypt(tx.read(), project, &hook.url);
    let (url, receiver) = validate_url(tx.read(), project, url, current.as_deref())?;
    let scheme = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let same_receiver = hook.receiver == receiver && current.as_deref().and_then(scheme) == scheme(&url);
    let url = encrypt(tx.read(), project, &url);
    let token = match token.as_deref() {
        // A token is not sent to another receiver than the one that it was set for.
        None => hook.token.filter(|token| same_receiver && decrypt(tx.read(), project, token).is_some()),
        Some(token) => {
            let token = normalize_token(token);
            validate_token(token)?;
            token.map(|token| encrypt(tx.read(), project, token))
        }
    };
    let record = HookRecord {
        url: &url,
        token: token.as_deref(),
        receiver: &receiver,
        verify_tls: verify_tls.unwrap_or(hook.verify_tls),
        events: events.apply_to(hook.events),
    };
    let now = tx.now();
    store::hooks::update(tx.db(), id, &record, now)?;
    resume(tx, id)?;
    let hook = find(tx.read(), project, id)?;
    Ok(masked(tx.read(), hook))
}

/// Deletes a hook with its deliveries; `None` if it does not exist.
pub fn delete(tx: &mut WriteTx<'_>, scope: &HookScope, id: &Unvalidated<HookId>) -> Result<Option<Hook>> {
    let project = authorize_project(tx.read(), scope)?;
    let Some(hook) = store::hooks::find_for_update(tx.db(), project, *id.validate()?)? else { return Ok(None) };
    store::hooks::delete(tx.db(), hook.id)?;
    Ok(Some(masked(tx.read(), hook)))
}

/// Enqueues a sample delivery for a hook and ends its pause.
pub async fn test(
    forge: &Forge,
    caller: Caller,
    scope: HookScope,
    id: Unvalidated<HookId>,
    trigger: String,
) -> Result<()> {
    // Rendering may read a repository, so it happens outside of the write transaction.
    let (read_scope, read_id) = (scope.clone(), id.clone());
    let sample = forge.read(caller.clone(), move |tx| render_sample(tx, &read_scope, &read_id, &trigger)).await?;
    forge.write(caller, move |tx| enqueue_sample(tx, &scope, &id, &sample)).await
}

/// A sample event for a single hook.
struct SampleEvent {
    kind: EventKind,
    project: Option<ProjectId>,
    payload: String,
}

fn render_sample(
    tx: &mut ReadTx<'_>,
    scope: &HookScope,
    id: &Unvalidated<HookId>,
    trigger: &str,
) -> Result<SampleEvent> {
    let project = authorize(tx, scope)?;
    let id = *id.validate()?;
    let kind = sample_payloads::event_kind(scope, trigger)
        .ok_or_else(|| Error::Malformed(vec!["trigger does not have a valid value".into()]))?;
    let project_id = project.as_ref().map(|project| project.id);
    find(tx, project_id, id)?;
    let payload = sample_payloads::render(tx, kind, project)?;
    Ok(SampleEvent { kind, project: project_id, payload })
}

fn enqueue_sample(
    tx: &mut WriteTx<'_>,
    scope: &HookScope,
    id: &Unvalidated<HookId>,
    sample: &SampleEvent,
) -> Result<()> {
    let project = authorize_project(tx.read(), scope)?;
    let hook = find_for_update(tx, project, *id.validate()?)?;
    let (seed, now) = (outbox::new_seed(tx.read()), tx.now());
    let event = NewHookEvent {
        kind: sample.kind,
        project: sample.project,
        depth: tx.read().hook_depth(),
        seed: &seed,
        payload: &sample.payload,
        // It is not fanned out to other hooks.
        waiting: false,
        now,
    };
    let event = store::webhook_events::insert(tx.db(), &event)?;
    store::delivery_log::insert(tx.db(), hook.id, event, now)?;
    resume(tx, hook.id)
}

/// Returns the request that tests a system hook, to be sent at once. Nothing is logged.
pub fn system_test(tx: &mut ReadTx<'_>, id: &Unvalidated<HookId>) -> Result<(HookTarget, OutgoingDelivery)> {
    tx.authorize(Ability::AdministerHooks)?;
    let EncryptedHook { id, url, token, verify_tls, .. } = find(tx, None, *id.validate()?)?;
    let unreadable = || Error::Refused(UNREADABLE.into());
    let token = token.map(|token| decrypt(tx, None, &token).ok_or_else(unreadable)).transpose()?;
    let url = Secret::new(decrypt(tx, None, &url).ok_or_else(unreadable)?);
    let target = HookTarget { url, token: token.map(Secret::new), verify_tls, allow_local: allows_local(tx, None) };
    let uuid = delivery_uuid(&outbox::new_seed(tx), id);
    let body = Arc::from(tx.shared().payload_renderer.render(WebhookEvent::SystemTest));
    Ok((target, OutgoingDelivery { id: DeliveryId::new(0), uuid, kind: EventKind::System, depth: 0, body }))
}

/// Returns the delivery log of a hook, newest first, without payloads and response bodies.
pub fn list_deliveries(
    tx: &mut ReadTx<'_>,
    scope: &HookScope,
    id: &Unvalidated<HookId>,
    page: &Unvalidated<Page>,
) -> Result<Slice<DeliveryLogEntry>> {
    let project = authorize_project(tx, scope)?;
    let (id, page) = (*id.validate()?, *page.validate()?);
    let hook = find(tx, project, id)?;
    let Slice { items, total, page } = store::delivery_log::list(tx.db(), id, page)?;
    let items = items.into_iter().map(|delivery| to_log_entry(tx, &hook, delivery)).collect();
    Ok(Slice { items, total, page })
}

/// Returns a delivery of a hook with its payload and response body.
pub fn get_delivery(
    tx: &mut ReadTx<'_>,
    scope: &HookScope,
    id: &Unvalidated<HookId>,
    delivery: &Unvalidated<DeliveryId>,
) -> Result<DeliveryLogEntry> {
    let project = authorize_project(tx, scope)?;
    let (id, delivery) = (*id.validate()?, *delivery.validate()?);
    let hook = find(tx, project, id)?;
    find_delivery(tx, &hook, delivery)
}

/// Enqueues another delivery of the same event, with the same UUID, and ends the pause of the hook.
pub fn resend(
    tx: &mut WriteTx<'_>,
    scope: &HookScope,
    id: &Unvalidated<HookId>,
    delivery: &Unvalidated<DeliveryId>,
) -> Result<DeliveryLogEntry> {
    let project = authorize_project(tx.read(), scope)?;
    let (id, delivery, now) = (*id.validate()?, *delivery.validate()?, tx.now());
    find_for_update(tx, project, id)?;
    let event = store::delivery_log::event_of(tx.db(), id, delivery)?.ok_or(Error::NoSuchRow)?;
    let delivery = store::delivery_log::insert(tx.db(), id, event, now)?;
    resume(tx, id)?;
    let hook = find(tx.read(), project, id)?;
    find_delivery(tx.read(), &hook, delivery)
}

fn find(tx: &mut ReadTx<'_>, project: Option<ProjectId>, id: HookId) -> Result<EncryptedHook> {
    store::hooks::find(tx.db(), project, id)?.ok_or(Error::NoSuchRow)
}

fn find_for_update(tx: &mut WriteTx<'_>, project: Option<ProjectId>, id: HookId) -> Result<EncryptedHook> {
    store::hooks::find_for_update(tx.db(), project, id)?.ok_or(Error::NoSuchRow)
}

fn find_delivery(tx: &mut ReadTx<'_>, hook: &EncryptedHook, delivery: DeliveryId) -> Result<DeliveryLogEntry> {
    let found = store::delivery_log::find(tx.db(), hook.id, delivery)?.ok_or(Error::NoSuchRow)?;
    Ok(to_log_entry(tx, hook, found))
}

fn resume(tx: &mut WriteTx<'_>, id: HookId) -> Result<()> {
    let now = tx.now();
    store::hooks::resume(tx.db(), id, now)?;
    tx.notify_dispatcher();
    Ok(())
}

/// Validates the URL of a hook; returns it with the host and port of the receiver. A URL that equals the masked current
/// one keeps the current one.
fn validate_url(
    tx: &ReadTx<'_>,
    project: Option<ProjectId>,
    text: &str,
    current: Option<&str>,
) -> Result<(String, String)> {
    let text = text.trim();
    let unchanged = current.filter(|current| *current == text || mask_url(current) == text);
    let text = unchanged.unwrap_or(text);
    let mut violations = Violations::new();
    violations.require(!text.is_empty(), "url", "can't be blank");
    let destination = Destination::for_hook(text).ok().filter(|destination| {
        let is_masked = destination.credentials() == Some(MASK);
        // The current URL may have become forbidden meanwhile; deliveries to it are then refused.
        unchanged.is_some() || !is_masked && !destination.has_forbidden_host(allows_local(tx, project))
    });
    let Some(destination) = destination else {
        violations.add("url", "must be a valid URL");
        return Err(violations.into());
    };
    Ok((text.to_owned(), destination.receiver()))
}

/// Returns whether a hook may lead into the server's own network; only administrators create system hooks.
fn allows_local(tx: &ReadTx<'_>, project: Option<ProjectId>) -> bool {
    project.is_none() || tx.shared().allow_local_network
}

/// Trims a token; `None` if it is blank.
fn normalize_token(token: &str) -> Option<&str> {
    // Blanks around a header value are not transmitted.
    Some(token.trim()).filter(|token| !token.is_empty())
}

fn validate_token(token: Option<&str>) -> Result<()> {
    let token = token.unwrap_or_default();
    let mut violations = Violations::new();
    violations.max_length("token", token, MAX_TOKEN_LENGTH);
    violations.require(!has_control(token), "token", "must not contain control characters");
    Ok(violations.into_result()?)
}

fn encrypt(tx: &ReadTx<'_>, project: Option<ProjectId>, text: &str) -> Vec<u8> {
    let shared = tx.shared();
    shared.instance_key.encrypt(project.unwrap_or(ProjectId::new(0)), text.as_bytes(), &*shared.secrets)
}

/// Decrypts a text; `None` if it was encrypted with another key.
fn decrypt(tx: &ReadTx<'_>, project: Option<ProjectId>, encrypted: &[u8]) -> Option<String> {
    let opened = tx.shared().instance_key.decrypt(project.unwrap_or(ProjectId::new(0)), encrypted)?;
    String::from_utf8(opened).ok()
}

/// Converts a stored hook, with credentials masked.
fn masked(tx: &ReadTx<'_>, hook: EncryptedHook) -> Hook {
    let url = decrypted_url(tx, hook.project, &hook.url);
    let EncryptedHook { id, project, verify_tls, events, created_at, updated_at, pause, .. } = hook;
    Hook { id, project, url, events, verify_tls, pause, created_at, updated_at }
}

/// Decrypts and masks a URL. One that cannot be decrypted is masked entirely, so that the hook can be listed and
/// repaired.
fn decrypted_url(tx: &ReadTx<'_>, project: Option<ProjectId>, encrypted: &[u8]) -> String {
    decrypt(tx, project, encrypted).map_or_else(|| MASK.to_owned(), |url| mask_url(&url))
}

/// Masks the credentials in a URL.
fn mask_url(url: &str) -> String {
    Destination::for_hook(url).map_or_else(|_| MASK.to_owned(), |destination| destination.masked().to_owned())
}

fn to_log_entry(tx: &ReadTx<'_>, hook: &EncryptedHook, encrypted: EncryptedDelivery) -> DeliveryLogEntry {
    let EncryptedDelivery { delivery, sent_to, signed } = encrypted;
    let url = decrypted_url(tx, hook.project, sent_to.as_deref().unwrap_or(&hook.url));
    // A paused hook may delay the delivery further.
    let due_at = delivery.due_at.max(hook.due_at.filter(|_| delivery.due_at.is_some()));
    DeliveryLogEntry {
        delivery: Delivery { url: Some(url), due_at, ..delivery },
        signed: signed.unwrap_or(hook.token.is_some()),
    }
}
