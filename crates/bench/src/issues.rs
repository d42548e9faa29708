//! Benchmark of lists of issues: the latency of a page by filter and order, in a project with many issues.

use std::path::Path;

use anyhow::Result;

use crate::{
    basics::ScratchFolder,
    engine::{Engine, EngineKind},
    list_cases::{BenchUser, Case, Route},
    list_dataset::{COMMON_WORD, MEMBER, RARE_WORD},
    lists::{self, MAX_PAGE_MS, PageTiming},
    rng::Rng,
    sql::{self, MINUTE, START},
};

/// The number of issues of the project.
pub(crate) const ISSUES: u64 = 50_000;
const MILESTONES: u64 = 20;
/// The number of issues that the measured member wrote.
const AUTHORED_ISSUES: u64 = 5_000;
/// The number of projects in the database.
const PROJECTS: u64 = 1_000;
/// The project with all the issues.
pub(crate) const PROJECT: u64 = 1;
/// The maximum latency of a list of labels with counters, in milliseconds.
const MAX_LABELS_MS: f64 = 10.0;

/// The size of a data set of issues, and their authors.
#[derive(Clone, Copy)]
pub(crate) struct IssueDataset {
    pub(crate) issues: u64,
    pub(crate) labels: u64,
    pub(crate) milestones: u64,
    /// A user, and the number of issues that they write.
    pub(crate) known_author: (u64, u64),
    /// The first and the last id of the other authors.
    pub(crate) others: (u64, u64),
    pub(crate) seed: u64,
}

const ISSUE_DATASET: IssueDataset = IssueDataset {
    issues: ISSUES,
    labels: 200,
    milestones: MILESTONES,
    known_author: (MEMBER, AUTHORED_ISSUES),
    others: (MEMBER + 2, MEMBER + 900),
    seed: ISSUES,
};

/// The results on one engine.
pub(crate) struct Results {
    pub(crate) kind: EngineKind,
    pub(crate) pages: Vec<PageTiming>,
}

/// Measures all cases on one engine.
pub(crate) fn measure(program: &Path, folder: &Path, engine: &Engine) -> Result<Results> {
    let scratch = ScratchFolder::new(folder)?;
    let instance = engine.fill(program, &scratch.0, PROJECTS, &statements(engine.kind(), &ISSUE_DATASET))?;
    let pages = cases().into_iter().map(|(case, goal)| lists::measure_page(&instance, case, goal));
    Ok(Results { kind: engine.kind(), pages: pages.collect::<Result<_>>()? })
}

/// Returns all requests with the maximum latency in milliseconds.
fn cases() -> Vec<(Case, f64)> {
    let mut cases = Vec::new();
    let mut add = |user, path: &str, name: String, queries: Vec<String>, goal| {
        let route = Route { user, path: path.to_owned(), name };
        cases.extend(queries.into_iter().map(|query| (Case { route: route.clone(), query }, goal)));
    };
    let (labels, issues) = (format!("/projects/{PROJECT}/labels"), format!("/projects/{PROJECT}/issues"));
    // A user who sees confidential issues, and one who does not.
    for user in [BenchUser::Administrator, BenchUser::Guest] {
        let queries = vec![String::new(), "per_page=100".into(), "page=10".into()];
        add(user, &labels, "labels of a project".into(), queries, MAX_LABELS_MS);
        for (filter, total) in [
            ("state=all", ISSUES),
            ("state=opened", ISSUES * 2 / 5),
            ("state=closed", ISSUES * 3 / 5),
            ("labels=label-0", ISSUES / 2),
            ("labels=label-0&state=opened", ISSUES / 5),
            ("labels=label-7", ISSUES / 100),
            ("labels=label-7,label-8", ISSUES / 50),
            ("milestone=milestone-3", ISSUES / MILESTONES),
            ("milestone=milestone-3&labels=label-0&state=closed", ISSUES * 3 / 10 / MILESTONES),
            ("iid=4711", 1),
        ] {
            add(user, &issues, format!("issues, {filter}"), page_queries(filter, total), MAX_PAGE_MS);
        }
        for word in [RARE_WORD, "quartz", COMMON_WORD, "qu"] {
            let filter = format!("search={word}");
            add(user, &issues, format!("issues, {filter}"), page_queries(&filter, 20), MAX_PAGE_MS);
        }
    }
    for (filter, total) in [
        ("state=all", AUTHORED_ISSUES),
        ("state=opened", AUTHORED_ISSUES * 2 / 5),
        ("labels=label-7", AUTHORED_ISSUES / 100),
        ("labels=label-0", AUTHORED_ISSUES / 2),
        ("milestone=milestone-3", AUTHORED_ISSUES / MILESTONES),
        ("search=quartz", AUTHORED_ISSUES / 10),
    ] {
        add(BenchUser::Member, "/issues", format!("own issues, {filter}"), page_queries(filter, total), MAX_PAGE_MS);
    }
    cases
}

/// Returns queries for all sort orders, and for pages in the middle and near the end of a list.
fn page_queries(filter: &str, total: u64) -> Vec<String> {
    let orders = ["created_at", "updated_at"]
        .into_iter()
        .flat_map(|by| ["asc", "desc"].map(|direction| format!("{filter}&order_by={by}&sort={direction}")));
    let pages = total / 20;
    let deep = [pages / 2, pages * 19 / 20].into_iter().filter(|page| *page > 1);
    orders.chain(deep.map(|page| format!("{filter}&order_by=updated_at&page={page}"))).collect()
}

/// Returns the statements that insert the issues.
pub(crate) fn statements(kind: EngineKind, issue_dataset: &IssueDataset) -> Vec<String> {
    let IssueDataset { issues: count, labels: label_count, milestones: milestone_count, known_author, others, seed } =
        *issue_dataset;
    let mut rng = Rng::new(seed);
    let mut statements = vec![format!("UPDATE projects SET visibility = 20, archived = FALSE WHERE id = {PROJECT}")];
    let set_triggers = |word: &str| {
        ["issues", "issue_labels"].map(|table| format!("ALTER TABLE {table} {word} TRIGGER USER")).join(";")
    };
    if kind == EngineKind::Postgres {
        // Updating a counter for each of many rows in one transaction is slow on PostgreSQL, and does not occur in
        // practice.
        statements.push(set_triggers("DISABLE"));
    }
    let row_start = |number: u64, noun: &str| format!("({},{PROJECT},'{noun}-{number}'", number + 1);
    let labels: Vec<String> = (0..label_count)
        .map(|number| format!("{},'label-{number}','#428BCA',{START},{START})", row_start(number, "label")))
        .collect();
    sql::insert(&mut statements, "labels", "id,project_id,title,title_key,color,created_at,updated_at", &labels);
    let milestones: Vec<String> = (0..milestone_count)
        .map(|number| format!("{},{},{START},{START})", row_start(number, "milestone"), number + 1))
        .collect();
    sql::insert(&mut statements, "milestones", "id,project_id,title,iid,created_at,updated_at", &milestones);
    let (mut issues, mut texts, mut issue_labels) = (Vec::new(), Vec::new(), Vec::new());
    for id in 1..=count {
        let author =
            if id.is_multiple_of(count / known_author.1) { known_author.0 } else { rng.range(others.0, others.1) };
        let assignee = if rng.below(3) == 0 { rng.range(others.0, others.1).to_string() } else { "NULL".into() };
        let (closed, confidential) = (rng.below(10) < 6, rng.below(100) == 0);
        let milestone = 1 + rng.below(milestone_count);
        let (created, updated) = (START + id * MINUTE, START + (count + rng.below(10 * count)) * MINUTE);
        let noun = match rng.below(10) {
            _ if id.is_multiple_of((count / 20).max(1)) => RARE_WORD,
            0..3 => COMMON_WORD,
            _ => "library",
        };
        let mut words = || (0..5).map(|_| rng.word()).collect::<Vec<_>>().join(" ");
        let title = format!("The {noun} loses {} when it starts", words());
        let description = format!("It was seen {} times. {}", id % 7, "The cause is unknown. ".repeat(10));
        let search = format!("{title}\u{1}{description}\u{1}\u{1}").to_lowercase();
        let denormalized = format!("{closed},{confidential},{milestone},{created},{updated}");
        issues.push(format!("({id},{PROJECT},{id},{author},{assignee},{denormalized},'{title}','{description}')"));
        texts.push(format!("({id},'{search}')"));
        let mut own = vec![1 + rng.range(1, label_count / 2 - 1), 1 + rng.range(label_count / 2, label_count - 1)];
        // A label of half of the issues.
        if rng.below(2) == 0 {
            own.push(1);
        }
        issue_labels.extend(own.iter().map(|label| format!("({id},{label},{denormalized})")));
    }
    let denormalized = "closed,confidential,milestone_id,created_at,updated_at";
    let columns = format!("id,project_id,iid,author_id,assignee_id,{denormalized},title,description");
    sql::insert(&mut statements, "issues", &columns, &issues);
    sql::insert(&mut statements, "issue_texts", "issue_id,search_text", &texts);
    sql::insert(&mut statements, "issue_labels", &format!("issue_id,label_id,{denormalized}"), &issue_labels);
    if kind == EngineKind::Postgres {
        let counters = "open_issues = n.a, closed_issues = n.b, open_confidential = n.c, closed_confidential = n.d";
        let counts = "count(*) FILTER (WHERE NOT closed) AS a, count(*) FILTER (WHERE closed) AS b, \
                      count(*) FILTER (WHERE confidential AND NOT closed) AS c, \
                      count(*) FILTER (WHERE confidential AND closed) AS d";
        statements.push(format!(
            "UPDATE labels SET {counters} FROM (SELECT label_id AS id, {counts} FROM issue_labels GROUP BY 1) n \
             WHERE labels.id = n.id"
        ));
        statements.push(format!(
            "UPDATE issue_books b SET {counters} FROM (SELECT project_id AS id, {counts} FROM issues GROUP BY 1) n \
             WHERE b.project_id = n.id"
        ));
        statements.push(set_triggers("ENABLE"));
    }
    statements.push(format!(
        "UPDATE issue_books SET last_issue = {count}, last_milestone = {milestone_count} WHERE project_id = {PROJECT}"
    ));
    statements
}
