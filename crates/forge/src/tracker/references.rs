//! Looks up what texts of users refer to. Only what the visitor can see is found, so that a link confirms nothing else.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use git::Repository;
use model::{
    IssueIid, LabelId, MilestoneIid, NamespaceKind, Oid, Project, ProjectId, UserState, Violations,
    text_references::{self, TextReference},
};

use crate::{
    Ability, BlockingContext, Error, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
};

/// The maximum length of a text that is rendered as Markdown, in bytes.
pub const MAX_RENDERED_BYTES: usize = 512 << 10;
/// The maximum length of the texts of a page that are searched, in bytes.
const MAX_TEXT_LENGTH: usize = 1 << 20;
/// The maximum number of references that are looked up for a page.
const MAX_REFERENCES: usize = 300;
/// The maximum numbers of other projects, of users and groups, and of commits among them.
const MAX_OTHER_PROJECTS: usize = 10;
const MAX_USERS: usize = 30;
const MAX_COMMITS: usize = 20;
/// The time for looking up commits.
const COMMIT_TIME_LIMIT: Duration = Duration::from_millis(200);

/// Something that a text refers to, and that the visitor can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceTarget {
    /// An issue.
    Issue {
        /// The full path of the project.
        project: String,
        /// The number within the project.
        iid: IssueIid,
        /// The title.
        title: String,
        /// Whether the issue is closed.
        closed: bool,
    },
    /// A user or a group.
    Namespace {
        /// The full path.
        path: String,
        /// The name.
        name: String,
    },
    /// A label of the project.
    Label {
        /// The title.
        title: String,
    },
    /// A milestone of the project.
    Milestone {
        /// The number within the project.
        iid: MilestoneIid,
        /// The title.
        title: String,
    },
    /// A commit of the project.
    Commit {
        /// The id.
        id: Oid,
        /// The first line of the message.
        title: String,
    },
}

/// The references of texts that were found.
#[derive(Clone, Debug, Default)]
pub struct References(HashMap<TextReference, ReferenceTarget>);

impl References {
    /// Returns what a text refers to; `None` if it does not exist, or if the visitor cannot see it.
    pub fn get(&self, reference: &TextReference) -> Option<&ReferenceTarget> {
        self.0.get(reference)
    }

    /// Returns whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Looks up the references in texts that belong to a project.
pub fn resolve<'a>(
    cx: &mut BlockingContext<'_>,
    project: ProjectId,
    texts: impl Iterator<Item = &'a str>,
) -> Result<References> {
    let wanted = collect(texts);
    if wanted.is_empty() {
        return Ok(References::default());
    }
    let (mut found, repository) = cx.read(|tx| resolve_rows(tx, project, &wanted))?;
    // After the transaction, because it may take long.
    if let Some(repository) = repository {
        resolve_commits(&repository, &wanted, &mut found);
    }
    Ok(References(found))
}

/// A text that is rendered and not stored.
#[derive(Clone, Debug)]
pub struct TextPreview {
    /// The text.
    pub text: String,
    /// The project that the text belongs to.
    pub project: Option<ProjectRef>,
    /// Whether references are looked up.
    pub resolves_references: bool,
}

/// A text with what it refers to.
#[derive(Clone, Debug)]
pub struct ResolvedText {
    /// The text.
    pub text: String,
    /// The project that the text belongs to.
    pub project: Option<Project>,
    /// What was found; nothing unless references are looked up.
    pub references: References,
}

/// Looks up the references in a text that is rendered and not stored. Without a project, only users and groups are found.
pub fn resolve_preview(cx: &mut BlockingContext<'_>, preview: &Unvalidated<TextPreview>) -> Result<ResolvedText> {
    cx.read(|tx| tx.authorize(Ability::ViewPages).map(drop))?;
    let TextPreview { text, project, resolves_references } = preview.validate()?;
    if text.len() > MAX_RENDERED_BYTES {
        let message = format!("is too long (maximum is {MAX_RENDERED_BYTES} bytes)");
        return Err(Error::Invalid(Violations::one("text", message)));
    }
    let project = project.as_ref().map(|project| cx.read(|tx| tx.project(project, ProjectAbility::ViewProject)));
    let project = project.transpose()?;
    let references = match &project {
        _ if !resolves_references => References::default(),
        Some(project) => resolve(cx, project.id, std::iter::once(text.as_str()))?,
        None => cx.read(|tx| {
            let mut found = HashMap::new();
            resolve_users(tx, &collect(std::iter::once(text.as_str())), &mut found)?;
            Ok(References(found))
        })?,
    };
    Ok(ResolvedText { text: text.clone(), project, references })
}

/// Returns the first references in the texts, each once.
fn collect<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<TextReference> {
    let (mut seen, mut wanted, mut length) = (HashSet::new(), Vec::new(), 0);
    for text in texts {
        length += text.len();
        if length > MAX_TEXT_LENGTH {
            break;
        }
        for (_, reference) in text_references::find(text) {
            // PostgreSQL refuses to search for NUL.
            let is_valid = match &reference {
                TextReference::Label(name) | TextReference::Milestone(name) => !name.contains('\0'),
                _ => true,
            };
            if is_valid && seen.insert(reference.clone()) {
                wanted.push(reference);
            }
        }
    }
    wanted.truncate(MAX_REFERENCES);
    wanted
}

type Found = HashMap<TextReference, ReferenceTarget>;

/// Looks up everything in the database; also returns the repository if commits are wanted and the visitor may read them.
fn resolve_rows(
    tx: &mut ReadTx<'_>,
    project: ProjectId,
    wanted: &[TextReference],
) -> Result<(Found, Option<Repository>)> {
    let mut found = HashMap::new();
    let project = tx.project(&ProjectRef::Id(project), ProjectAbility::ViewProject)?;
    resolve_issues(tx, &project, wanted, &mut found)?;
    if tx.can(&project, ProjectAbility::ViewIssues) {
        resolve_labels(tx, &project, wanted, &mut found)?;
        resolve_milestones(tx, &project, wanted, &mut found)?;
    }
    resolve_users(tx, wanted, &mut found)?;
    let wants_commits = wanted.iter().any(|reference| matches!(reference, TextReference::Commit(_)));
    let repository =
        if wants_commits && tx.can(&project, ProjectAbility::DownloadCode) { tx.repository(&project)? } else { None };
    Ok((found, repository))
}

fn resolve_issues(tx: &mut ReadTx<'_>, own: &Project, wanted: &[TextReference], found: &mut Found) -> Result<()> {
    let mut by_project: HashMap<Option<&str>, Vec<(&TextReference, IssueIid)>> = HashMap::new();
    for reference in wanted {
        if let TextReference::Issue { project, iid } = reference {
            let project = project.as_deref();
            if by_project.len() <= MAX_OTHER_PROJECTS || by_project.contains_key(&project) {
                by_project.entry(project).or_default().push((reference, *iid));
            }
        }
    }
    for (path, references) in by_project {
        let project = match path {
            None if tx.can(own, ProjectAbility::ViewIssues) => own.clone(),
            None => continue,
            Some(path) => match tx.project(&ProjectRef::Path(path.to_owned()), ProjectAbility::ViewIssues) {
                Ok(project) => project,
                Err(Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated) => continue,
                Err(error) => return Err(error),
            },
        };
        let iids: Vec<IssueIid> = references.iter().map(|(_, iid)| *iid).collect();
        let visibility = tx.issue_visibility(&project);
        let titles = store::issues::titles(tx.db(), &visibility, project.id, &iids)?;
        for (iid, title, closed) in titles {
            for (reference, _) in references.iter().filter(|(_, wanted)| *wanted == iid) {
                let target = ReferenceTarget::Issue { project: project.full_path(), iid, title: title.clone(), closed };
                found.insert((*reference).clone(), target);
            }
        }
    }
    Ok(())
}

fn resolve_labels(tx: &mut ReadTx<'_>, project: &Project, wanted: &[TextReference], found: &mut Found) -> Result<()> {
    let names: Vec<String> = wanted
        .iter()
        .filter_map(|reference| match reference {
            TextReference::Label(name) => Some(name.clone()),
            _ => None,
        })
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let ids: Vec<LabelId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let labels = store::labels::summaries(tx.db(), project.id, &ids, &names)?;
    for name in names {
        // System notes name labels by their ids.
        let by_id = labels.iter().find(|label| label.id.to_string() == name);
        if let Some(label) = by_id.or_else(|| labels.iter().find(|label| label.title == name)) {
            found.insert(TextReference::Label(name), ReferenceTarget::Label { title: label.title.clone() });
        }
    }
    Ok(())
}

fn resolve_milestones(
    tx: &mut ReadTx<'_>,
    project: &Project,
    wanted: &[TextReference],
    found: &mut Found,
) -> Result<()> {
    let names: Vec<String> = wanted
        .iter()
        .filter_map(|reference| match reference {
            TextReference::Milestone(name) => Some(name.clone()),
            _ => None,
        })
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let iids: Vec<MilestoneIid> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let milestones = store::milestones::by_keys(tx.db(), project.id, &iids, &names)?;
    for name in names {
        let by_iid = milestones.iter().find(|milestone| milestone.iid.to_string() == name);
        if let Some(milestone) = by_iid.or_else(|| milestones.iter().find(|milestone| milestone.title == name)) {
            let target = ReferenceTarget::Milestone { iid: milestone.iid, title: milestone.title.clone() };
            found.insert(TextReference::Milestone(name), target);
        }
    }
    Ok(())
}

fn resolve_users(tx: &mut ReadTx<'_>, wanted: &[TextReference], found: &mut Found) -> Result<()> {
    let names = wanted.iter().filter_map(|reference| match reference {
        TextReference::User(name) => Some((reference, name)),
        _ => None,
    });
    for (reference, name) in names.take(MAX_USERS) {
        if let Some(target) = namespace(tx, name)? {
            found.insert(reference.clone(), target);
        }
    }
    Ok(())
}

/// Returns a user or a group whose page the visitor can see.
fn namespace(tx: &mut ReadTx<'_>, path: &str) -> Result<Option<ReferenceTarget>> {
    let Some(found) = store::namespaces::by_full_path(tx.db(), path)? else { return Ok(None) };
    let is_visible = match found.kind {
        NamespaceKind::Group => match tx.group(&GroupRef::Id(found.id), GroupAbility::ViewGroup) {
            Ok(_) => true,
            Err(Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated) => false,
            Err(error) => return Err(error),
        },
        NamespaceKind::User => {
            let user = found.owner_id.map(|id| store::users::by_id(tx.db(), id)).transpose()?.flatten();
            let is_active = user.is_some_and(|user| user.state == UserState::Active);
            let viewer = tx.viewer();
            is_active
                && (tx.authorize(Ability::ReadUsers).is_ok()
                    || store::groups::has_visible_project(tx.db(), &viewer, found.id)?)
        }
    };
    Ok(is_visible.then_some(ReferenceTarget::Namespace { path: found.full_path, name: found.name }))
}

/// Looks up commits until the time is over. A repository that cannot be read has an own page that says so.
fn resolve_commits(repository: &Repository, wanted: &[TextReference], found: &mut Found) {
    let deadline = Instant::now() + COMMIT_TIME_LIMIT;
    let ids = wanted.iter().filter_map(|reference| match reference {
        TextReference::Commit(id) => Some((reference, id)),
        _ => None,
    });
    for (reference, id) in ids.take(MAX_COMMITS) {
        if Instant::now() >= deadline {
            return;
        }
        let commit = repository.resolve(id).ok().flatten().filter(|full| full.to_string().starts_with(id.as_str()));
        let commit = commit.and_then(|id| repository.commit(id).ok().flatten());
        if let Some(commit) = commit {
            let target = ReferenceTarget::Commit { id: commit.id, title: commit.title() };
            found.insert(reference.clone(), target);
        }
    }
}
