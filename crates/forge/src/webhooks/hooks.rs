//! Hooks: who is told what happens in a project or in the instance, and the log of how that went.

use std::sync::Arc;

use model::{
    Delivery, EventKind, Hook, Page, Project, Slice, Violations, WebhookEvent,
    hooks::{Switches, delivery_uuid},
    text::has_control,
    tokens::Secret,
};
use store::{
    delivery_log::SealedDelivery,
    hooks::{HookRecord, SealedHook},
    webhook_events::NewHookEvent,
};

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, announcements,
    deliveries::{Address, Letter},
    hook_samples,
    outgoing::Destination,
};

/// How long a token may be: it has to fit into a header.
const LONGEST_TOKEN: usize = 2000;
/// What stands for credentials wherever a URL is shown.
const MASK: &str = "*****:*****";

/// How many hooks a project may have; each is told of everything that it wants to hear.
const MOST_HOOKS: i64 = 1000;
/// What is said of a hook whose secrets were sealed with another key.
const UNREADABLE: &str = "The hook was sealed with another instance key; set its URL and token anew.";

/// Whose hooks are meant.
#[derive(Clone, Debug)]
pub enum Place {
    /// Those of a project.
    Project(ProjectRef),
    /// Those of the instance.
    Instance,
}

/// A hook as somebody describes it.
#[derive(Clone)]
pub struct HookText {
    /// Where it shall lead.
    pub url: String,
    /// What the receiver shall know the sender by; the empty text takes it away.
    pub token: Option<String>,
    /// Whether the receiver has to prove who it is.
    pub verify: Option<bool>,
    /// What it wants to be told.
    pub switches: SwitchWishes,
}

/// What a hook shall be told and what not, as far as that was said.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwitchWishes {
    /// Pushes of branches.
    pub push: Option<bool>,
    /// Pushes of tags.
    pub tag_push: Option<bool>,
    /// Issues.
    pub issues: Option<bool>,
    /// Issues that only some may see.
    pub confidential_issues: Option<bool>,
    /// Merge requests.
    pub merge_requests: Option<bool>,
    /// Comments.
    pub note: Option<bool>,
    /// Builds.
    pub build: Option<bool>,
    /// Pipelines.
    pub pipeline: Option<bool>,
    /// Pages of the wiki.
    pub wiki_page: Option<bool>,
}

impl SwitchWishes {
    fn over(self, known: Switches) -> Switches {
        Switches {
            push: self.push.unwrap_or(known.push),
            tag_push: self.tag_push.unwrap_or(known.tag_push),
            issues: self.issues.unwrap_or(known.issues),
            confidential_issues: self.confidential_issues.unwrap_or(known.confidential_issues),
            merge_requests: self.merge_requests.unwrap_or(known.merge_requests),
            note: self.note.unwrap_or(known.note),
            build: self.build.unwrap_or(known.build),
            pipeline: self.pipeline.unwrap_or(known.pipeline),
            wiki_page: self.wiki_page.unwrap_or(known.wiki_page),
        }
    }
}

/// A line of the log, with what of its hook shows in it.
pub struct LogEntry {
    /// The line.
    pub delivery: Delivery,
    /// Whether the token and a signature go along, or did when it was sent.
    pub signed: bool,
}

/// The gate: those who keep a project, or the instance. Answers the project, if it is one.
pub(crate) fn open(tx: &mut ReadTx<'_>, place: &Place) -> Result<Option<Project>> {
    match place {
        Place::Project(project) => tx.open(project, ProjectAbility::AdministerHooks).map(Some),
        Place::Instance => tx.may(Ability::AdministerHooks).map(|()| None),
    }
}

fn open_id(tx: &mut ReadTx<'_>, place: &Place) -> Result<Option<i64>> {
    Ok(open(tx, place)?.map(|project| project.id))
}

/// The hooks of a project or of the instance, newest first.
pub fn list(tx: &mut ReadTx<'_>, place: &Place, page: &Unvalidated<Page>) -> Result<Slice<Hook>> {
    let project = open_id(tx, place)?;
    let Slice { items, total, page } = store::hooks::list(tx.db(), project, *page.get()?)?;
    let items = items.into_iter().map(|hook| shown(tx, hook)).collect();
    Ok(Slice { items, total, page })
}

/// One hook.
pub fn get(tx: &mut ReadTx<'_>, place: &Place, id: &Unvalidated<i64>) -> Result<Hook> {
    let project = open_id(tx, place)?;
    let hook = find(tx, project, *id.get()?)?;
    Ok(shown(tx, hook))
}

/// Adds a hook.
pub fn create(tx: &mut WriteTx<'_>, place: &Place, text: &Unvalidated<HookText>) -> Result<Hook> {
    let project = open_id(tx, place)?;
    let HookText { url, token, verify, switches } = text.get()?;
    if let Some(project) = project
        && store::hooks::count(tx.db(), project)? >= MOST_HOOKS
    {
        let mut violations = Violations::new();
        violations.add("base", format!("Maximum number of hooks ({MOST_HOOKS}) reached"));
        return Err(violations.into());
    }
    let (url, receiver) = checked_url(tx, project, url, None)?;
    let token = token.as_deref().and_then(given_token);
    check_token(token)?;
    let (url, token) = (seal(tx, project, &url), token.map(|token| seal(tx, project, token)));
    let record = HookRecord {
        url: &url,
        token: token.as_deref(),
        receiver: &receiver,
        verify: verify.unwrap_or(true),
        switches: switches.over(Switches::default()),
    };
    let now = tx.now();
    let hook = store::hooks::insert(tx.db(), project, &record, now)?;
    Ok(shown(tx, hook))
}

/// Changes a hook. What was not said stays as it is, apart from a token that was meant for another receiver. A pause ends: whoever changes a hook may have set right what was
/// wrong, and finds out at once.
pub fn update(
    tx: &mut WriteTx<'_>,
    place: &Place,
    id: &Unvalidated<i64>,
    text: &Unvalidated<HookText>,
) -> Result<Hook> {
    let project = open_id(tx, place)?;
    let (id, HookText { url, token, verify, switches }) = (*id.get()?, text.get()?);
    let hook = find_to_change(tx, project, id)?;
    let present = unseal(tx, project, &hook.url);
    let (url, receiver) = checked_url(tx, project, url, present.as_deref())?;
    let scheme = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let same_receiver = hook.receiver == receiver && present.as_deref().and_then(scheme) == scheme(&url);
    let url = seal(tx, project, &url);
    let token = match token.as_deref() {
        // A secret that was meant for one receiver is not sent to another one.
        None => hook.token.filter(|token| same_receiver && unseal(tx, project, token).is_some()),
        Some(token) => {
            let token = given_token(token);
            check_token(token)?;
            token.map(|token| seal(tx, project, token))
        }
    };
    let record = HookRecord {
        url: &url,
        token: token.as_deref(),
        receiver: &receiver,
        verify: verify.unwrap_or(hook.verify),
        switches: switches.over(hook.switches),
    };
    let now = tx.now();
    store::hooks::update(tx.db(), id, &record, now)?;
    wake(tx, id)?;
    let hook = find(tx, project, id)?;
    Ok(shown(tx, hook))
}

/// Removes a hook with all that waits for it; `None` if there is none.
pub fn delete(tx: &mut WriteTx<'_>, place: &Place, id: &Unvalidated<i64>) -> Result<Option<Hook>> {
    let project = open_id(tx, place)?;
    let Some(hook) = store::hooks::find_to_change(tx.db(), project, *id.get()?)? else { return Ok(None) };
    store::hooks::delete(tx.db(), hook.id)?;
    Ok(Some(shown(tx, hook)))
}

/// Tells a hook of something that might have happened, to see whether it arrives. A pause ends.
pub async fn test(forge: &Forge, caller: Caller, place: Place, id: Unvalidated<i64>, trigger: String) -> Result<()> {
    // What is shown may have to be looked up in a repository, and nobody who writes has to wait for that.
    let (from, number) = (place.clone(), id.clone());
    let draft = forge.read(caller.clone(), move |tx| draft(tx, &from, &number, &trigger)).await?;
    forge.write(caller, move |tx| send(tx, &place, &id, &draft)).await
}

/// Something that is told to one hook alone.
struct Draft {
    occasion: EventKind,
    project: Option<i64>,
    payload: String,
}

fn draft(tx: &mut ReadTx<'_>, place: &Place, id: &Unvalidated<i64>, trigger: &str) -> Result<Draft> {
    let project = open(tx, place)?;
    let id = *id.get()?;
    let occasion = hook_samples::occasion(place, trigger)
        .ok_or_else(|| Error::Malformed(vec!["trigger does not have a valid value".into()]))?;
    let number = project.as_ref().map(|project| project.id);
    find(tx, number, id)?;
    let payload = hook_samples::write(tx, occasion, project)?;
    Ok(Draft { occasion, project: number, payload })
}

fn send(tx: &mut WriteTx<'_>, place: &Place, id: &Unvalidated<i64>, draft: &Draft) -> Result<()> {
    let project = open_id(tx, place)?;
    let hook = find_to_change(tx, project, *id.get()?)?;
    let (seed, now) = (announcements::seed(tx), tx.now());
    let event = NewHookEvent {
        occasion: draft.occasion,
        project: draft.project,
        depth: tx.depth(),
        seed: &seed,
        intent: None,
        ref_name: None,
        payload: &draft.payload,
        // It is for this hook and for no other.
        waiting: false,
        now,
    };
    let event = store::webhook_events::insert(tx.db(), &event)?;
    store::delivery_log::insert(tx.db(), hook.id, event, now)?;
    wake(tx, hook.id)
}

/// What a hook of the instance is sent at once, to see whether it arrives. Nothing is written down.
pub fn system_test(tx: &mut ReadTx<'_>, id: &Unvalidated<i64>) -> Result<(Address, Letter)> {
    tx.may(Ability::AdministerHooks)?;
    let SealedHook { id, url, token, verify, .. } = find(tx, None, *id.get()?)?;
    let unreadable = || Error::Refused(UNREADABLE.into());
    let token = token.map(|token| unseal(tx, None, &token).ok_or_else(unreadable)).transpose()?;
    let url = Secret::new(unseal(tx, None, &url).ok_or_else(unreadable)?);
    let address = Address { url, token: token.map(Secret::new), verify, may_be_local: may_be_local(tx, None) };
    let uuid = delivery_uuid(&announcements::seed(tx), id);
    let body = Arc::from(tx.shared().payload_renderer.write(WebhookEvent::SystemTest));
    Ok((address, Letter { delivery: 0, uuid, occasion: EventKind::System, depth: 0, body }))
}

/// What a hook was told, newest first; without what was said, which may be long.
pub fn log(
    tx: &mut ReadTx<'_>,
    place: &Place,
    id: &Unvalidated<i64>,
    page: &Unvalidated<Page>,
) -> Result<Slice<LogEntry>> {
    let project = open_id(tx, place)?;
    let (id, page) = (*id.get()?, *page.get()?);
    let hook = find(tx, project, id)?;
    let Slice { items, total, page } = store::delivery_log::list(tx.db(), id, page)?;
    let items = items.into_iter().map(|delivery| entry(tx, &hook, delivery)).collect();
    Ok(Slice { items, total, page })
}

/// One line of the log of a hook, with all that was said.
pub fn log_entry(
    tx: &mut ReadTx<'_>,
    place: &Place,
    id: &Unvalidated<i64>,
    delivery: &Unvalidated<i64>,
) -> Result<LogEntry> {
    let project = open_id(tx, place)?;
    let (id, delivery) = (*id.get()?, *delivery.get()?);
    let hook = find(tx, project, id)?;
    find_entry(tx, &hook, delivery)
}

/// Tells a hook once more what it was told before; the receiver knows it by the same number. A pause ends.
pub fn resend(
    tx: &mut WriteTx<'_>,
    place: &Place,
    id: &Unvalidated<i64>,
    delivery: &Unvalidated<i64>,
) -> Result<LogEntry> {
    let project = open_id(tx, place)?;
    let (id, delivery, now) = (*id.get()?, *delivery.get()?, tx.now());
    find_to_change(tx, project, id)?;
    let event = store::delivery_log::event_of(tx.db(), id, delivery)?.ok_or(Error::NoSuchRow)?;
    let delivery = store::delivery_log::insert(tx.db(), id, event, now)?;
    wake(tx, id)?;
    let hook = find(tx, project, id)?;
    find_entry(tx, &hook, delivery)
}

fn find(tx: &mut ReadTx<'_>, project: Option<i64>, id: i64) -> Result<SealedHook> {
    store::hooks::find(tx.db(), project, id)?.ok_or(Error::NoSuchRow)
}

fn find_to_change(tx: &mut WriteTx<'_>, project: Option<i64>, id: i64) -> Result<SealedHook> {
    store::hooks::find_to_change(tx.db(), project, id)?.ok_or(Error::NoSuchRow)
}

fn find_entry(tx: &mut ReadTx<'_>, hook: &SealedHook, delivery: i64) -> Result<LogEntry> {
    let found = store::delivery_log::find(tx.db(), hook.id, delivery)?.ok_or(Error::NoSuchRow)?;
    Ok(entry(tx, hook, found))
}

fn wake(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    let now = tx.now();
    store::hooks::wake(tx.db(), id, now)?;
    tx.ring();
    Ok(())
}

/// Looks whether a hook may lead to a URL; answers it with host and port of the receiver. Who sends back what they were
/// shown of the present one means that.
fn checked_url(tx: &ReadTx<'_>, project: Option<i64>, text: &str, present: Option<&str>) -> Result<(String, String)> {
    let text = text.trim();
    let same = present.filter(|present| *present == text || shown_url(present) == text);
    let text = same.unwrap_or(text);
    let mut violations = Violations::new();
    violations.unless(!text.is_empty(), "url", "can't be blank");
    let destination = Destination::for_hook(text).ok().filter(|destination| {
        let is_masked = destination.credentials() == Some(MASK);
        // What stays as it is may have been closed since; then nothing is sent.
        same.is_some() || !is_masked && !destination.is_plainly_closed(may_be_local(tx, project))
    });
    let Some(destination) = destination else {
        violations.add("url", "must be a valid URL");
        return Err(violations.into());
    };
    Ok((text.to_owned(), destination.receiver()))
}

/// Whether a hook may lead into the network of the service itself: administrators know what they do.
fn may_be_local(tx: &ReadTx<'_>, project: Option<i64>) -> bool {
    project.is_none() || tx.shared().allow_local_network
}

/// A token, unless it says nothing.
fn given_token(token: &str) -> Option<&str> {
    // Blanks around a header's value do not arrive.
    Some(token.trim()).filter(|token| !token.is_empty())
}

fn check_token(token: Option<&str>) -> Result<()> {
    let token = token.unwrap_or_default();
    let mut violations = Violations::new();
    violations.longest("token", token, LONGEST_TOKEN);
    violations.unless(!has_control(token), "token", "must not contain control characters");
    Ok(violations.into_result()?)
}

fn seal(tx: &ReadTx<'_>, project: Option<i64>, text: &str) -> Vec<u8> {
    let shared = tx.shared();
    shared.instance_key.seal(project.unwrap_or(0), text.as_bytes(), &*shared.secrets)
}

/// What was sealed; `None` if that was done with another key.
fn unseal(tx: &ReadTx<'_>, project: Option<i64>, sealed: &[u8]) -> Option<String> {
    let opened = tx.shared().instance_key.open(project.unwrap_or(0), sealed)?;
    String::from_utf8(opened).ok()
}

/// A hook as it may be shown.
fn shown(tx: &ReadTx<'_>, hook: SealedHook) -> Hook {
    let url = unsealed_url(tx, hook.project, &hook.url);
    let SealedHook { id, project, verify, switches, created_at, updated_at, pause, .. } = hook;
    Hook { id, project, url, switches, verify, pause, created_at, updated_at }
}

/// A URL that was sealed, as it may be shown. One that cannot be read any more can still be seen, removed and replaced.
fn unsealed_url(tx: &ReadTx<'_>, project: Option<i64>, sealed: &[u8]) -> String {
    unseal(tx, project, sealed).map_or_else(|| MASK.to_owned(), |url| shown_url(&url))
}

/// A URL as it may be shown.
fn shown_url(url: &str) -> String {
    Destination::for_hook(url).map_or_else(|_| MASK.to_owned(), |destination| destination.masked().to_owned())
}

fn entry(tx: &ReadTx<'_>, hook: &SealedHook, sealed: SealedDelivery) -> LogEntry {
    let SealedDelivery { delivery, sent_to, signed } = sealed;
    let url = unsealed_url(tx, hook.project, sent_to.as_deref().unwrap_or(&hook.url));
    // The hook may rest for longer than the message.
    let due_at = delivery.due_at.max(hook.due_at.filter(|_| delivery.due_at.is_some()));
    LogEntry {
        delivery: Delivery { url: Some(url), due_at, ..delivery },
        signed: signed.unwrap_or(hook.token.is_some()),
    }
}
