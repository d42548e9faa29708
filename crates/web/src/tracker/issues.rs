//! The issues of a project, with filters.

use askama::Template;
use forge::{
    Unvalidated,
    browse::InProject,
    issue_pages::{self, AssigneeName, IssueChoices, IssueList, IssueSearch},
};
use model::{
    issues::{IssueFilter, IssueOrder},
    users::UserSummary,
};

use super::{Section, rows::IssueRow};
use crate::{
    context::PageCx,
    error::PageResult,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    paging::{self, Pager},
    response,
    text::{self, Markup},
};

const ISSUES_PER_PAGE: i64 = 30;

/// The value of a filter that selects issues without a milestone or without an assignee.
const NONE: &str = "None";

/// The states to choose from: value, label, and whether only closed issues are listed.
const STATES: [(&str, &str, Option<bool>); 3] =
    [("opened", "open", Some(false)), ("closed", "closed", Some(true)), ("all", "all", None)];

/// The orders to choose from: value, label, by the last change, ascending.
const ORDERS: [(&str, &str, bool, bool); 4] = [
    ("created_date", "newest", false, false),
    ("created_asc", "oldest", false, true),
    ("updated_desc", "last change", true, false),
    ("updated_asc", "longest without change", true, true),
];

#[derive(Template)]
#[template(path = "tracker/issues.html")]
struct IssuesTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    query: ListQuery,
    labels: Vec<LabelChoice>,
    has_more_labels: bool,
    members: Vec<UserSummary>,
    /// The titles of the milestones, and whether they are chosen.
    milestones: Vec<(String, bool)>,
    issues: Vec<IssueRow>,
    can_create: bool,
    pager: Pager,
}

/// A label in the filter.
struct LabelChoice {
    id: usize,
    title: String,
    name: Markup,
    is_chosen: bool,
}

/// The filter and the order of a list of issues in its URL.
pub(crate) struct ListQuery {
    pub(crate) search: String,
    labels: Vec<String>,
    pub(crate) milestone: String,
    pub(crate) author: String,
    pub(crate) assignee: String,
    closed: Option<bool>,
    order: IssueOrder,
    /// Value, label, and whether it is the current one.
    pub(crate) states: Vec<(&'static str, &'static str, bool)>,
    pub(crate) orders: Vec<(&'static str, &'static str, bool)>,
    pub(crate) is_filtered: bool,
}

impl ListQuery {
    pub(crate) fn read(query: &Fields) -> Self {
        let clean = |text: &str| text.trim().to_owned();
        let field = |name: &str| clean(query.get(name));
        let labels = query.all("label_name[]").chain(query.all("label_name")).map(clean);
        let labels: Vec<String> = labels.filter(|label| !label.is_empty()).collect();
        let state = STATES.iter().find(|(value, ..)| *value == query.get("state")).unwrap_or(&STATES[0]);
        let order = ORDERS.iter().find(|(value, ..)| *value == query.get("sort")).unwrap_or(&ORDERS[0]);
        let assignee = if query.get("assignee_id") == NONE { NONE.to_owned() } else { field("assignee_username") };
        let (search, milestone, author) = (field("search"), field("milestone_title"), field("author_username"));
        let texts = [&search, &milestone, &author, &assignee];
        let is_filtered = texts.iter().any(|text| !text.is_empty()) || !labels.is_empty() || state.0 != STATES[0].0;
        Self {
            search,
            labels,
            milestone,
            author,
            assignee,
            closed: state.2,
            order: IssueOrder { by_update: order.2, ascending: order.3 },
            states: STATES.iter().map(|(value, label, _)| (*value, *label, *value == state.0)).collect(),
            orders: ORDERS.iter().map(|(value, label, ..)| (*value, *label, *value == order.0)).collect(),
            is_filtered,
        }
    }

    pub(crate) fn search(&self) -> IssueSearch {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let without_milestone = self.milestone == NONE;
        IssueSearch {
            filter: IssueFilter {
                closed: self.closed,
                labels: self.labels.clone(),
                all_labels: true,
                milestone: given(&self.milestone).filter(|_| !without_milestone),
                without_milestone,
                search: given(&self.search),
                ..IssueFilter::default()
            },
            author: given(&self.author),
            assignee: given(&self.assignee).map(|name| match name.as_str() {
                NONE => AssigneeName::Nobody,
                _ => AssigneeName::User(name),
            }),
            order: self.order,
        }
    }

    /// Returns the label of a form that has a field for one.
    pub(crate) fn first_label(&self) -> &str {
        self.labels.first().map_or("", String::as_str)
    }

    /// Returns the labels to choose from, with the chosen ones first.
    fn label_choices(&self, choices: &IssueChoices) -> Vec<LabelChoice> {
        let color_of = |title: &String| {
            let known = choices.labels.iter().find(|label| label.title == *title);
            known.map_or(String::new(), |label| label.color.clone())
        };
        let chosen = self.labels.iter().map(|title| (title.clone(), color_of(title), true));
        let others = choices.labels.iter().filter(|label| !self.labels.contains(&label.title));
        let others = others.map(|label| (label.title.clone(), label.color.clone(), false));
        let choice = |(id, (title, color, is_chosen)): (usize, (String, String, bool))| LabelChoice {
            id,
            name: text::labels::name(&title, &color),
            title,
            is_chosen,
        };
        chosen.chain(others).enumerate().map(choice).collect()
    }

    /// Returns the milestones to choose from, with the chosen one even if it is closed.
    fn milestone_choices(&self, choices: &IssueChoices) -> Vec<(String, bool)> {
        let titles = choices.milestones.iter().map(|milestone| milestone.title.clone());
        let mut titles: Vec<String> = titles.collect();
        if !self.milestone.is_empty() && self.milestone != NONE && !titles.contains(&self.milestone) {
            titles.push(self.milestone.clone());
        }
        titles.into_iter().map(|title| (title.clone(), title == self.milestone)).collect()
    }

    fn has_no_milestone(&self) -> bool {
        self.milestone == NONE
    }
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, fields) = (cx.project(), cx.query());
    let page = paging::requested(&fields, ISSUES_PER_PAGE);
    let query = ListQuery::read(&fields);
    let search = Unvalidated::valid(query.search());
    let (viewer, found) = cx.read_list(move |tx| issue_pages::list(tx, &project, &search, &page)).await?;
    let InProject { project, value: IssueList { issues, labels, choices, can_create } } = found;
    response::page(&IssuesTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(&cx, viewer, format!("Issues · {}", project.full_path())),
        section: Section::List,
        labels: query.label_choices(&choices),
        has_more_labels: choices.has_more_labels,
        milestones: query.milestone_choices(&choices),
        members: choices.members,
        query,
        pager: Pager::of(&cx.uri, &fields, &issues),
        issues: IssueRow::of_project(issues.items, &labels),
        can_create,
    })
}
