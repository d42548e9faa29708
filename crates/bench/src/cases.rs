//! Everything that a list can be asked for.

use std::fmt;

use crate::{
    server::TOKEN,
    town::{COMMON_WORD, GUEST_TOKEN, LARGE_GROUP, MEMBER_TOKEN, MIDDLE_GROUP, RARE_WORD},
};

/// Two letters are too few for an index over words.
const TWO_LETTERS: &str = "qu";
const ORDERS: [&str; 6] = ["id", "name", "path", "created_at", "updated_at", "last_activity_at"];

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    Administrator,
    Member,
    Guest,
}

impl Asker {
    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::Administrator => TOKEN,
            Self::Member => MEMBER_TOKEN,
            Self::Guest => GUEST_TOKEN,
        }
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Administrator => "admin",
            Self::Member => "member",
            Self::Guest => "external",
        })
    }
}

/// A list as somebody sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) asker: Asker,
    pub(crate) path: String,
    /// What it is called in a table.
    pub(crate) name: String,
}

/// One request for a list.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) route: Route,
    /// What is asked for beside the first page in the usual order.
    pub(crate) query: String,
}

impl Case {
    /// The path with the query, as it is sent.
    pub(crate) fn target(&self) -> String {
        let (path, query) = (&self.route.path, &self.query);
        let mark = if query.is_empty() { "" } else { "?" };
        format!("/api/v3{path}{mark}{query}")
    }
}

/// Every case, route by route.
pub(crate) fn all() -> Vec<Case> {
    use Asker::{Administrator, Guest, Member};
    let mut cases = Vec::new();
    let mut add = |asker, path: &str, name: &str, queries: &[String]| {
        let route = Route { asker, path: path.to_owned(), name: name.to_owned() };
        cases.extend(queries.iter().map(|query| Case { route: route.clone(), query: query.clone() }));
    };
    // In every order as those see it who are hardest to answer; as others see it, in some.
    let (projects, some) = (project_queries(&ORDERS), project_queries(&ORDERS[..1]));
    for (asker, path, queries) in [
        (Member, "/projects", &projects),
        (Member, "/projects/visible", &projects),
        (Member, "/projects/owned", &projects),
        (Member, "/projects/starred", &projects),
        (Guest, "/projects/visible", &some),
        (Administrator, "/projects/visible", &some),
        (Administrator, "/projects/all", &projects),
    ] {
        add(asker, path, path, queries);
    }
    for (asker, word, columns) in [
        (Member, RARE_WORD, &ORDERS[..1]),
        (Member, COMMON_WORD, &ORDERS),
        (Member, TWO_LETTERS, &ORDERS[..1]),
        (Guest, COMMON_WORD, &ORDERS[..1]),
    ] {
        let path = format!("/projects/search/{word}");
        add(asker, &path, &path, &[orders(columns), words(&["page=50"])].concat());
    }
    for (asker, group, size, queries) in [
        (Member, MIDDLE_GROUP, "middle", &some),
        (Member, LARGE_GROUP, "large", &projects),
        (Administrator, LARGE_GROUP, "large", &some),
    ] {
        let (path, name) = (format!("/groups/{group}/projects"), format!("/groups/:{size}/projects"));
        add(asker, &path, &name, queries);
        add(asker, &path, &name, &words(&["ci_enabled_first=true"]));
    }
    let (groups, available) = (group_queries(""), group_queries("all_available=true"));
    add(Member, "/groups", "/groups", &groups);
    add(Administrator, "/groups", "/groups", &groups);
    add(Member, "/groups", "/groups?all_available", &available);
    add(Guest, "/groups", "/groups?all_available", &available);
    add(Member, "/groups/owned", "/groups/owned", &words(&["", "page=2"]));
    let namespaces = [words(&["", "page=50"]), searches()].concat();
    add(Member, "/namespaces", "/namespaces", &namespaces);
    add(Administrator, "/namespaces", "/namespaces", &namespaces);
    let members = words(&["", "page=20", "query=zephyr", "query=qu", "query=user77"]);
    add(Member, &format!("/groups/{LARGE_GROUP}/members"), "/groups/:large/members", &members);
    cases
}

fn project_queries(columns: &[&str]) -> Vec<String> {
    let filters = [
        "archived=true",
        "archived=false",
        "visibility=private",
        "visibility=internal",
        "visibility=public",
        "archived=false&visibility=public&order_by=name&sort=asc",
        "archived=false&search=river&order_by=last_activity_at",
    ];
    let found_in_order = format!("search={COMMON_WORD}&order_by=name&sort=asc");
    let others = [words(&["simple=true", "page=50", &found_in_order]), words(&filters)].concat();
    [orders(columns), searches(), others].concat()
}

fn group_queries(with: &str) -> Vec<String> {
    let own = [orders(&["name", "path"]), searches(), words(&["page=40", "skip_groups[]=2003"])].concat();
    let join = |query: String| if with.is_empty() { query } else { format!("{with}&{query}") };
    own.into_iter().map(join).collect()
}

fn orders(columns: &[&str]) -> Vec<String> {
    columns.iter().flat_map(|by| ["asc", "desc"].map(|sort| format!("order_by={by}&sort={sort}"))).collect()
}

fn searches() -> Vec<String> {
    [RARE_WORD, COMMON_WORD, "river", TWO_LETTERS].map(|word| format!("search={word}")).into()
}

fn words(queries: &[&str]) -> Vec<String> {
    queries.iter().map(|query| (*query).to_owned()).collect()
}
