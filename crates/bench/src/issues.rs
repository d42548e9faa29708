//! A project with many issues: how long a page of them takes, by filter and order.

use std::path::Path;

use crate::{
    Outcome,
    cases::{Asker, Case, Route},
    engine::{Engine, Kind},
    lists::{self, LONGEST_PAGE, Paged},
    run::Scratch,
    town::{self, COMMON_WORD, Dice, MEMBER, RARE_WORD},
};

/// How many issues the project has.
pub(crate) const ISSUES: u64 = 50_000;
const MILESTONES: u64 = 20;
/// What the member of the town wrote.
const WRITTEN: u64 = 5_000;
/// Around the project there is a small town.
const PROJECTS: u64 = 1_000;
/// The project that has them all.
pub(crate) const PROJECT: u64 = 1;
/// What a list of all labels with their counters may take.
const LONGEST_LABELS: f64 = 10.0;

const START: u64 = 1_760_000_000_000_000;
const MINUTE: u64 = 60_000_000;

/// How many of them there are and who writes them.
#[derive(Clone, Copy)]
pub(crate) struct Stack {
    pub(crate) issues: u64,
    pub(crate) labels: u64,
    pub(crate) milestones: u64,
    /// Whoever wrote a known part of them, and how many that is.
    pub(crate) writer: (u64, u64),
    /// The first and the last of all others who write.
    pub(crate) others: (u64, u64),
    pub(crate) seed: u64,
}

const STACK: Stack = Stack {
    issues: ISSUES,
    labels: 200,
    milestones: MILESTONES,
    writer: (MEMBER, WRITTEN),
    others: (MEMBER + 2, MEMBER + 900),
    seed: ISSUES,
};

/// What was measured on one engine.
pub(crate) struct Results {
    pub(crate) kind: Kind,
    pub(crate) pages: Vec<Paged>,
}

/// Measures all cases on one engine.
pub(crate) fn measure(program: &Path, folder: &Path, engine: &Engine) -> Outcome<Results> {
    let scratch = Scratch::new(folder)?;
    let filled = engine.fill(program, &scratch.0, PROJECTS, &statements(engine.kind(), &STACK))?;
    let pages = cases().into_iter().map(|(case, goal)| lists::measure_page(&filled, case, goal));
    Ok(Results { kind: engine.kind(), pages: pages.collect::<Outcome<_>>()? })
}

/// Everything that is asked, with the milliseconds that it may take.
fn cases() -> Vec<(Case, f64)> {
    let mut cases = Vec::new();
    let mut add = |asker, path: &str, name: String, queries: Vec<String>, goal| {
        let route = Route { asker, path: path.to_owned(), name };
        cases.extend(queries.into_iter().map(|query| (Case { route: route.clone(), query }, goal)));
    };
    let (labels, issues) = (format!("/projects/{PROJECT}/labels"), format!("/projects/{PROJECT}/issues"));
    // One who sees confidential issues, and one for whom they have to be left out.
    for asker in [Asker::Administrator, Asker::Guest] {
        let queries = vec![String::new(), "per_page=100".into(), "page=10".into()];
        add(asker, &labels, "labels of a project".into(), queries, LONGEST_LABELS);
        for (filter, found) in [
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
            add(asker, &issues, format!("issues, {filter}"), paged(filter, found), LONGEST_PAGE);
        }
        for word in [RARE_WORD, "quartz", COMMON_WORD, "qu"] {
            let filter = format!("search={word}");
            add(asker, &issues, format!("issues, {filter}"), paged(&filter, 20), LONGEST_PAGE);
        }
    }
    for (filter, found) in [
        ("state=all", WRITTEN),
        ("state=opened", WRITTEN * 2 / 5),
        ("labels=label-7", WRITTEN / 100),
        ("labels=label-0", WRITTEN / 2),
        ("milestone=milestone-3", WRITTEN / MILESTONES),
        ("search=quartz", WRITTEN / 10),
    ] {
        add(Asker::Member, "/issues", format!("own issues, {filter}"), paged(filter, found), LONGEST_PAGE);
    }
    cases
}

/// Both orders both ways, and pages in the middle and near the end of so many.
fn paged(filter: &str, found: u64) -> Vec<String> {
    let orders = ["created_at", "updated_at"]
        .into_iter()
        .flat_map(|by| ["asc", "desc"].map(|direction| format!("{filter}&order_by={by}&sort={direction}")));
    let pages = found / 20;
    let deep = [pages / 2, pages * 19 / 20].into_iter().filter(|page| *page > 1);
    orders.chain(deep.map(|page| format!("{filter}&order_by=updated_at&page={page}"))).collect()
}

/// The statements that write the issues of one project of the town.
pub(crate) fn statements(kind: Kind, stack: &Stack) -> Vec<String> {
    let Stack { issues: count, labels: label_count, milestones: milestone_count, writer, others, seed } = *stack;
    let mut dice = Dice::new(seed);
    let mut statements = vec![format!("UPDATE projects SET visibility = 20, archived = FALSE WHERE id = {PROJECT}")];
    let quiet = |word: &str| {
        ["issues", "issue_labels"].map(|table| format!("ALTER TABLE {table} {word} TRIGGER USER")).join(";")
    };
    if kind == Kind::Postgres {
        // A row that is counted up for each of many in one transaction is slow there, and it never happens.
        statements.push(quiet("DISABLE"));
    }
    let named = |number: u64, what: &str| format!("({},{PROJECT},'{what}-{number}'", number + 1);
    let labels: Vec<String> = (0..label_count)
        .map(|number| format!("{},'label-{number}','#428BCA',{START},{START})", named(number, "label")))
        .collect();
    town::insert(&mut statements, "labels", "id,project_id,title,title_key,color,created_at,updated_at", &labels);
    let milestones: Vec<String> = (0..milestone_count)
        .map(|number| format!("{},{},{START},{START})", named(number, "milestone"), number + 1))
        .collect();
    town::insert(&mut statements, "milestones", "id,project_id,title,iid,created_at,updated_at", &milestones);
    let (mut issues, mut texts, mut labeled) = (Vec::new(), Vec::new(), Vec::new());
    for id in 1..=count {
        let author = if id.is_multiple_of(count / writer.1) { writer.0 } else { dice.within(others.0, others.1) };
        let assignee = if dice.below(3) == 0 { dice.within(others.0, others.1).to_string() } else { "NULL".into() };
        let (closed, confidential) = (dice.below(10) < 6, dice.below(100) == 0);
        let milestone = 1 + dice.below(milestone_count);
        let (created, updated) = (START + id * MINUTE, START + (count + dice.below(10 * count)) * MINUTE);
        let what = match dice.below(10) {
            _ if id.is_multiple_of((count / 20).max(1)) => RARE_WORD,
            0..3 => COMMON_WORD,
            _ => "library",
        };
        let mut words = || (0..5).map(|_| dice.word()).collect::<Vec<_>>().join(" ");
        let title = format!("The {what} loses {} when it starts", words());
        let description = format!("It was seen {} times. {}", id % 7, "Nobody knows why it happens. ".repeat(10));
        let search = format!("{title}\u{1}{description}\u{1}\u{1}").to_lowercase();
        let copied = format!("{closed},{confidential},{milestone},{created},{updated}");
        issues.push(format!("({id},{PROJECT},{id},{author},{assignee},{copied},'{title}','{description}')"));
        texts.push(format!("({id},'{search}')"));
        let mut own = vec![1 + dice.within(1, label_count / 2 - 1), 1 + dice.within(label_count / 2, label_count - 1)];
        // A label that half of them carry.
        if dice.below(2) == 0 {
            own.push(1);
        }
        labeled.extend(own.iter().map(|label| format!("({id},{label},{copied})")));
    }
    let copied = "closed,confidential,milestone_id,created_at,updated_at";
    let columns = format!("id,project_id,iid,author_id,assignee_id,{copied},title,description");
    town::insert(&mut statements, "issues", &columns, &issues);
    town::insert(&mut statements, "issue_texts", "issue_id,search_text", &texts);
    town::insert(&mut statements, "issue_labels", &format!("issue_id,label_id,{copied}"), &labeled);
    if kind == Kind::Postgres {
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
        statements.push(quiet("ENABLE"));
    }
    statements.push(format!(
        "UPDATE issue_books SET last_issue = {count}, last_milestone = {milestone_count} WHERE project_id = {PROJECT}"
    ));
    statements
}
