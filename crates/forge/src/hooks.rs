//! Hooks: who is told what happens in a project or in the instance, and the log of how that went.

use std::sync::Arc;

use model::{
    Delivery, Happening, Hook, Occasion, Page, Project, Slice, Violations,
    hooks::{Switches, delivery_uuid},
    text::has_control,
    tokens::Secret,
};
use store::{
    delivery_log::SealedDelivery,
    hook_events::NewHookEvent,
    hooks::{HookRecord, SealedHook},
};

use crate::{
    Ability, Caller, Error, Forge, Given, ProjectAbility, ProjectRef, Reader, Result, Writer, announcements,
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
pub(crate) fn open(it: &mut Reader<'_>, place: &Place) -> Result<Option<Project>> {
    match place {
        Place::Project(project) => it.open(project, ProjectAbility::AdministerHooks).map(Some),
        Place::Instance => it.may(Ability::AdministerHooks).map(|()| None),
    }
}

fn open_id(it: &mut Reader<'_>, place: &Place) -> Result<Option<i64>> {
    Ok(open(it, place)?.map(|project| project.id))
}

/// The hooks of a project or of the instance, newest first.
pub fn list(it: &mut Reader<'_>, place: &Place, page: &Given<Page>) -> Result<Slice<Hook>> {
    let project = open_id(it, place)?;
    let Slice { items, total, page } = store::hooks::list(it.db(), project, *page.get()?)?;
    let items = items.into_iter().map(|hook| shown(it, hook)).collect();
    Ok(Slice { items, total, page })
}

/// One hook.
pub fn get(it: &mut Reader<'_>, place: &Place, id: &Given<i64>) -> Result<Hook> {
    let project = open_id(it, place)?;
    let hook = find(it, project, *id.get()?)?;
    Ok(shown(it, hook))
}

/// Adds a hook.
pub fn create(it: &mut Writer<'_>, place: &Place, text: &Given<HookText>) -> Result<Hook> {
    let project = open_id(it, place)?;
    let HookText { url, token, verify, switches } = text.get()?;
    if let Some(project) = project
        && store::hooks::count(it.db(), project)? >= MOST_HOOKS
    {
        let mut violations = Violations::new();
        violations.add("base", format!("Maximum number of hooks ({MOST_HOOKS}) reached"));
        return Err(violations.into());
    }
    let (url, receiver) = checked_url(it, project, url, None)?;
    let token = token.as_deref().and_then(given_token);
    check_token(token)?;
    let (url, token) = (seal(it, project, &url), token.map(|token| seal(it, project, token)));
    let record = HookRecord {
        url: &url,
        token: token.as_deref(),
        receiver: &receiver,
        verify: verify.unwrap_or(true),
        switches: switches.over(Switches::default()),
    };
    let now = it.now();
    let hook = store::hooks::insert(it.db(), project, &record, now)?;
    Ok(shown(it, hook))
}

/// Changes a hook. What was not said stays as it is, apart from a token that was meant for another receiver. A pause ends: whoever changes a hook may have set right what was
/// wrong, and finds out at once.
pub fn update(it: &mut Writer<'_>, place: &Place, id: &Given<i64>, text: &Given<HookText>) -> Result<Hook> {
    let project = open_id(it, place)?;
    let (id, HookText { url, token, verify, switches }) = (*id.get()?, text.get()?);
    let hook = find_to_change(it, project, id)?;
    let present = unseal(it, project, &hook.url);
    let (url, receiver) = checked_url(it, project, url, present.as_deref())?;
    let scheme = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let same_receiver = hook.receiver == receiver && present.as_deref().and_then(scheme) == scheme(&url);
    let url = seal(it, project, &url);
    let token = match token.as_deref() {
        // A secret that was meant for one receiver is not sent to another one.
        None => hook.token.filter(|token| same_receiver && unseal(it, project, token).is_some()),
        Some(token) => {
            let token = given_token(token);
            check_token(token)?;
            token.map(|token| seal(it, project, token))
        }
    };
    let record = HookRecord {
        url: &url,
        token: token.as_deref(),
        receiver: &receiver,
        verify: verify.unwrap_or(hook.verify),
        switches: switches.over(hook.switches),
    };
    let now = it.now();
    store::hooks::update(it.db(), id, &record, now)?;
    wake(it, id)?;
    let hook = find(it, project, id)?;
    Ok(shown(it, hook))
}

/// Removes a hook with all that waits for it; `None` if there is none.
pub fn delete(it: &mut Writer<'_>, place: &Place, id: &Given<i64>) -> Result<Option<Hook>> {
    let project = open_id(it, place)?;
    let Some(hook) = store::hooks::find_to_change(it.db(), project, *id.get()?)? else { return Ok(None) };
    store::hooks::delete(it.db(), hook.id)?;
    Ok(Some(shown(it, hook)))
}

/// Tells a hook of something that might have happened, to see whether it arrives. A pause ends.
pub async fn test(forge: &Forge, caller: Caller, place: Place, id: Given<i64>, trigger: String) -> Result<()> {
    // What is shown may have to be looked up in a repository, and nobody who writes has to wait for that.
    let (from, number) = (place.clone(), id.clone());
    let draft = forge.read(caller.clone(), move |it| draft(it, &from, &number, &trigger)).await?;
    forge.write(caller, move |it| send(it, &place, &id, &draft)).await
}

/// Something that is told to one hook alone.
struct Draft {
    occasion: Occasion,
    project: Option<i64>,
    payload: String,
}

fn draft(it: &mut Reader<'_>, place: &Place, id: &Given<i64>, trigger: &str) -> Result<Draft> {
    let project = open(it, place)?;
    let id = *id.get()?;
    let occasion = hook_samples::occasion(place, trigger)
        .ok_or_else(|| Error::Malformed(vec!["trigger does not have a valid value".into()]))?;
    let number = project.as_ref().map(|project| project.id);
    find(it, number, id)?;
    let payload = hook_samples::write(it, occasion, project)?;
    Ok(Draft { occasion, project: number, payload })
}

fn send(it: &mut Writer<'_>, place: &Place, id: &Given<i64>, draft: &Draft) -> Result<()> {
    let project = open_id(it, place)?;
    let hook = find_to_change(it, project, *id.get()?)?;
    let (seed, now) = (announcements::seed(it), it.now());
    let event = NewHookEvent {
        occasion: draft.occasion,
        project: draft.project,
        depth: it.depth(),
        seed: &seed,
        intent: None,
        ref_name: None,
        payload: &draft.payload,
        // It is for this hook and for no other.
        waiting: false,
        now,
    };
    let event = store::hook_events::insert(it.db(), &event)?;
    store::delivery_log::insert(it.db(), hook.id, event, now)?;
    wake(it, hook.id)
}

/// What a hook of the instance is sent at once, to see whether it arrives. Nothing is written down.
pub fn system_test(it: &mut Reader<'_>, id: &Given<i64>) -> Result<(Address, Letter)> {
    it.may(Ability::AdministerHooks)?;
    let SealedHook { id, url, token, verify, .. } = find(it, None, *id.get()?)?;
    let unreadable = || Error::Refused(UNREADABLE.into());
    let token = token.map(|token| unseal(it, None, &token).ok_or_else(unreadable)).transpose()?;
    let url = Secret::new(unseal(it, None, &url).ok_or_else(unreadable)?);
    let address = Address { url, token: token.map(Secret::new), verify, may_be_local: may_be_local(it, None) };
    let uuid = delivery_uuid(&announcements::seed(it), id);
    let body = Arc::from(it.shared().scribe.write(Happening::SystemTest));
    Ok((address, Letter { delivery: 0, uuid, occasion: Occasion::System, depth: 0, body }))
}

/// What a hook was told, newest first; without what was said, which may be long.
pub fn log(it: &mut Reader<'_>, place: &Place, id: &Given<i64>, page: &Given<Page>) -> Result<Slice<LogEntry>> {
    let project = open_id(it, place)?;
    let (id, page) = (*id.get()?, *page.get()?);
    let hook = find(it, project, id)?;
    let Slice { items, total, page } = store::delivery_log::list(it.db(), id, page)?;
    let items = items.into_iter().map(|delivery| entry(it, &hook, delivery)).collect();
    Ok(Slice { items, total, page })
}

/// One line of the log of a hook, with all that was said.
pub fn log_entry(it: &mut Reader<'_>, place: &Place, id: &Given<i64>, delivery: &Given<i64>) -> Result<LogEntry> {
    let project = open_id(it, place)?;
    let (id, delivery) = (*id.get()?, *delivery.get()?);
    let hook = find(it, project, id)?;
    find_entry(it, &hook, delivery)
}

/// Tells a hook once more what it was told before; the receiver knows it by the same number. A pause ends.
pub fn resend(it: &mut Writer<'_>, place: &Place, id: &Given<i64>, delivery: &Given<i64>) -> Result<LogEntry> {
    let project = open_id(it, place)?;
    let (id, delivery, now) = (*id.get()?, *delivery.get()?, it.now());
    find_to_change(it, project, id)?;
    let event = store::delivery_log::event_of(it.db(), id, delivery)?.ok_or(Error::NoSuchRow)?;
    let delivery = store::delivery_log::insert(it.db(), id, event, now)?;
    wake(it, id)?;
    let hook = find(it, project, id)?;
    find_entry(it, &hook, delivery)
}

fn find(it: &mut Reader<'_>, project: Option<i64>, id: i64) -> Result<SealedHook> {
    store::hooks::find(it.db(), project, id)?.ok_or(Error::NoSuchRow)
}

fn find_to_change(it: &mut Writer<'_>, project: Option<i64>, id: i64) -> Result<SealedHook> {
    store::hooks::find_to_change(it.db(), project, id)?.ok_or(Error::NoSuchRow)
}

fn find_entry(it: &mut Reader<'_>, hook: &SealedHook, delivery: i64) -> Result<LogEntry> {
    let found = store::delivery_log::find(it.db(), hook.id, delivery)?.ok_or(Error::NoSuchRow)?;
    Ok(entry(it, hook, found))
}

fn wake(it: &mut Writer<'_>, id: i64) -> Result<()> {
    let now = it.now();
    store::hooks::wake(it.db(), id, now)?;
    it.ring();
    Ok(())
}

/// Looks whether a hook may lead to a URL; answers it with host and port of the receiver. Who sends back what they were
/// shown of the present one means that.
fn checked_url(it: &Reader<'_>, project: Option<i64>, text: &str, present: Option<&str>) -> Result<(String, String)> {
    let text = text.trim();
    let same = present.filter(|present| *present == text || shown_url(present) == text);
    let text = same.unwrap_or(text);
    let mut violations = Violations::new();
    violations.unless(!text.is_empty(), "url", "can't be blank");
    let destination = Destination::for_hook(text).ok().filter(|destination| {
        let is_masked = destination.credentials() == Some(MASK);
        // What stays as it is may have been closed since; then nothing is sent.
        same.is_some() || !is_masked && !destination.is_plainly_closed(may_be_local(it, project))
    });
    let Some(destination) = destination else {
        violations.add("url", "must be a valid URL");
        return Err(violations.into());
    };
    Ok((text.to_owned(), destination.receiver()))
}

/// Whether a hook may lead into the network of the service itself: administrators know what they do.
fn may_be_local(it: &Reader<'_>, project: Option<i64>) -> bool {
    project.is_none() || it.shared().allow_local_network
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

fn seal(it: &Reader<'_>, project: Option<i64>, text: &str) -> Vec<u8> {
    let shared = it.shared();
    shared.instance_key.seal(project.unwrap_or(0), text.as_bytes(), &*shared.secrets)
}

/// What was sealed; `None` if that was done with another key.
fn unseal(it: &Reader<'_>, project: Option<i64>, sealed: &[u8]) -> Option<String> {
    let opened = it.shared().instance_key.open(project.unwrap_or(0), sealed)?;
    String::from_utf8(opened).ok()
}

/// A hook as it may be shown.
fn shown(it: &Reader<'_>, hook: SealedHook) -> Hook {
    let url = unsealed_url(it, hook.project, &hook.url);
    let SealedHook { id, project, verify, switches, created_at, updated_at, pause, .. } = hook;
    Hook { id, project, url, switches, verify, pause, created_at, updated_at }
}

/// A URL that was sealed, as it may be shown. One that cannot be read any more can still be seen, removed and replaced.
fn unsealed_url(it: &Reader<'_>, project: Option<i64>, sealed: &[u8]) -> String {
    unseal(it, project, sealed).map_or_else(|| MASK.to_owned(), |url| shown_url(&url))
}

/// A URL as it may be shown.
fn shown_url(url: &str) -> String {
    Destination::for_hook(url).map_or_else(|_| MASK.to_owned(), |destination| destination.masked().to_owned())
}

fn entry(it: &Reader<'_>, hook: &SealedHook, sealed: SealedDelivery) -> LogEntry {
    let SealedDelivery { delivery, sent_to, signed } = sealed;
    let url = unsealed_url(it, hook.project, sent_to.as_deref().unwrap_or(&hook.url));
    // The hook may rest for longer than the message.
    let due_at = delivery.due_at.max(hook.due_at.filter(|_| delivery.due_at.is_some()));
    LogEntry {
        delivery: Delivery { url: Some(url), due_at, ..delivery },
        signed: signed.unwrap_or(hook.token.is_some()),
    }
}
