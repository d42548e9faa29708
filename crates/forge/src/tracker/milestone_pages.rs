//! What the pages of milestones show and change. A page names a milestone by its number within the project.

use std::collections::HashMap;

use jiff::civil::Date;
use model::{
    Change, Issue, IssueId, Milestone, MilestoneIid, Page, Project, Slice, Violations,
    issues::{IssueFilter, IssueOrder},
    labels::LabelSummary,
    milestones::{MilestoneChanges, MilestoneFilter, NewMilestone},
};
use store::issue_lists::IssueScope;

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, browse::InProject, issue_pages, milestones,
};

/// A milestone with the numbers of its issues that the visitor can see.
pub struct CountedMilestone {
    /// The milestone.
    pub milestone: Milestone,
    /// The number of open issues.
    pub open_issues: i64,
    /// The number of closed issues.
    pub closed_issues: i64,
}

/// A milestone with its issues.
pub struct MilestonePage {
    /// The milestone.
    pub milestone: CountedMilestone,
    /// The issues that the visitor can see, newest first.
    pub issues: Slice<Issue>,
    /// The labels of the issues.
    pub labels: HashMap<IssueId, Vec<LabelSummary>>,
}

/// A submitted form of a milestone.
#[derive(Clone, Debug)]
pub struct MilestoneInput {
    /// The title.
    pub title: String,
    /// The description; empty for none.
    pub description: String,
    /// The start date as it was typed; empty for none.
    pub start_on: String,
    /// The due date as it was typed; empty for none.
    pub due_on: String,
}

/// Lists the milestones of a project, oldest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    closed: Option<bool>,
    page: &Unvalidated<Page>,
) -> Result<InProject<Slice<CountedMilestone>>> {
    let project = tx.project(project, ProjectAbility::ViewIssues)?;
    let (filter, page) = (MilestoneFilter { closed, iids: Vec::new() }, *page.validate()?);
    let found = store::milestones::list(tx.db(), project.id, &filter, page)?;
    let (total, page) = (found.total, found.page);
    let items = count(tx, &project, found.items)?;
    Ok(InProject { project, value: Slice { items, total, page } })
}

/// Returns a milestone with a page of its issues.
pub fn get(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    iid: MilestoneIid,
    page: &Unvalidated<Page>,
) -> Result<InProject<MilestonePage>> {
    let project = tx.project(project, ProjectAbility::ViewIssues)?;
    let (milestone, page) = (find(tx, &project, iid)?, *page.validate()?);
    let scope = IssueScope::Milestone(milestone.id, tx.issue_visibility(&project));
    let issues = store::issue_lists::list(tx.db(), &scope, &IssueFilter::default(), IssueOrder::default(), page)?;
    let labels = issue_pages::labels_of(tx, &issues.items)?;
    let milestone = count(tx, &project, vec![milestone])?.pop().ok_or(Error::NotFound(None))?;
    Ok(InProject { project, value: MilestonePage { milestone, issues, labels } })
}

fn count(tx: &mut ReadTx<'_>, project: &Project, milestones: Vec<Milestone>) -> Result<Vec<CountedMilestone>> {
    let ids: Vec<_> = milestones.iter().map(|milestone| milestone.id).collect();
    let visibility = tx.issue_visibility(project);
    let counts = store::milestones::issue_counts(tx.db(), &visibility, &ids)?;
    let with_counts = |milestone: Milestone| {
        let (open_issues, closed_issues) = counts.get(&milestone.id).copied().unwrap_or_default();
        CountedMilestone { milestone, open_issues, closed_issues }
    };
    Ok(milestones.into_iter().map(with_counts).collect())
}

/// Returns a project in which the visitor may create milestones.
pub fn open_for_creation(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::AdministerMilestones)?;
    tx.authorize_project(&project, ProjectAbility::ViewIssues)?;
    Ok(project)
}

/// Returns a milestone that the visitor may change.
pub fn open_for_editing(tx: &mut ReadTx<'_>, project: &ProjectRef, iid: MilestoneIid) -> Result<InProject<Milestone>> {
    let project = open_for_creation(tx, project)?;
    let value = find(tx, &project, iid)?;
    Ok(InProject { project, value })
}

/// Creates a milestone.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, input: &Unvalidated<MilestoneInput>) -> Result<Milestone> {
    open_for_creation(tx.read(), project)?;
    let input = input.validate()?;
    let (start_on, due_on) = parse_dates(input)?;
    let description = Some(input.description.clone()).filter(|text| !text.trim().is_empty());
    let new = NewMilestone { title: input.title.clone(), description, start_on, due_on };
    milestones::create(tx, project, &Unvalidated::valid(new))
}

/// Changes all fields of a milestone except its state.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    iid: MilestoneIid,
    input: &Unvalidated<MilestoneInput>,
) -> Result<Milestone> {
    let milestone = open_for_editing(tx.read(), project, iid)?.value;
    let input = input.validate()?;
    let (start_on, due_on) = parse_dates(input)?;
    let changes = MilestoneChanges {
        title: Some(input.title.clone()),
        description: Change::from_text(Some(input.description.clone())),
        start_on: start_on.map_or(Change::Clear, Change::Set),
        due_on: due_on.map_or(Change::Clear, Change::Set),
        closed: None,
    };
    milestones::update(tx, project, &Unvalidated::valid(milestone.id), &Unvalidated::valid(changes))
}

/// Closes or reopens a milestone.
pub fn set_closed(tx: &mut WriteTx<'_>, project: &ProjectRef, iid: MilestoneIid, closed: bool) -> Result<Milestone> {
    let milestone = open_for_editing(tx.read(), project, iid)?.value;
    let changes = MilestoneChanges { closed: Some(closed), ..MilestoneChanges::default() };
    milestones::update(tx, project, &Unvalidated::valid(milestone.id), &Unvalidated::valid(changes))
}

fn parse_dates(input: &MilestoneInput) -> Result<(Option<Date>, Option<Date>)> {
    let mut violations = Violations::new();
    let mut parse = |field: &str, text: &str| match text.trim() {
        "" => None,
        text => {
            let day = text.parse::<Date>().ok();
            violations.require(day.is_some(), field, "is not a date in the form 2026-12-31");
            day
        }
    };
    let dates = (parse("start_date", &input.start_on), parse("due_date", &input.due_on));
    violations.into_result()?;
    Ok(dates)
}

fn find(tx: &mut ReadTx<'_>, project: &Project, iid: MilestoneIid) -> Result<Milestone> {
    store::milestones::by_iid(tx.db(), project.id, iid)?.ok_or(Error::NotFound(None))
}
