//! The requests of the list benchmark.

use std::fmt;

use crate::{
    list_dataset::{COMMON_WORD, GUEST_TOKEN, LARGE_GROUP, MEMBER_TOKEN, MIDDLE_GROUP, RARE_WORD},
    server::TOKEN,
};

/// A search term that is too short for the trigram index.
const TWO_LETTERS: &str = "qu";
const ORDERS: [&str; 6] = ["id", "name", "path", "created_at", "updated_at", "last_activity_at"];

/// The user who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchUser {
    Administrator,
    Member,
    Guest,
}

impl BenchUser {
    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::Administrator => TOKEN,
            Self::Member => MEMBER_TOKEN,
            Self::Guest => GUEST_TOKEN,
        }
    }
}

impl fmt::Display for BenchUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Administrator => "admin",
            Self::Member => "member",
            Self::Guest => "external",
        })
    }
}

/// A list, requested by a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) user: BenchUser,
    pub(crate) path: String,
    /// The name in reports.
    pub(crate) name: String,
}

/// A request for a list.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) route: Route,
    /// The query string.
    pub(crate) query: String,
}

impl Case {
    /// Returns the request target.
    pub(crate) fn target(&self) -> String {
        let (path, query) = (&self.route.path, &self.query);
        let mark = if query.is_empty() { "" } else { "?" };
        format!("/api/v3{path}{mark}{query}")
    }
}

/// Returns all cases, grouped by route.
pub(crate) fn all() -> Vec<Case> {
    use BenchUser::{Administrator, Guest, Member};
    let mut cases = Vec::new();
    let mut add = |user, path: &str, name: &str, queries: &[String]| {
        let route = Route { user, path: path.to_owned(), name: name.to_owned() };
        cases.extend(queries.iter().map(|query| Case { route: route.clone(), query: query.clone() }));
    };
    // All sort orders for the users whose lists are the most expensive, some for the others.
    let (projects, short_queries) = (project_queries(&ORDERS), project_queries(&ORDERS[..1]));
    for (user, path, queries) in [
        (Member, "/projects", &projects),
        (Member, "/projects/visible", &projects),
        (Member, "/projects/owned", &projects),
        (Member, "/projects/starred", &projects),
        (Guest, "/projects/visible", &short_queries),
        (Administrator, "/projects/visible", &short_queries),
        (Administrator, "/projects/all", &projects),
    ] {
        add(user, path, path, queries);
    }
    for (user, word, columns) in [
        (Member, RARE_WORD, &ORDERS[..1]),
        (Member, COMMON_WORD, &ORDERS),
        (Member, TWO_LETTERS, &ORDERS[..1]),
        (Guest, COMMON_WORD, &ORDERS[..1]),
    ] {
        let path = format!("/projects/search/{word}");
        add(user, &path, &path, &[orders(columns), owned_strings(&["page=50"])].concat());
    }
    for (user, group, size, queries) in [
        (Member, MIDDLE_GROUP, "middle", &short_queries),
        (Member, LARGE_GROUP, "large", &projects),
        (Administrator, LARGE_GROUP, "large", &short_queries),
    ] {
        let (path, name) = (format!("/groups/{group}/projects"), format!("/groups/:{size}/projects"));
        add(user, &path, &name, queries);
        add(user, &path, &name, &owned_strings(&["ci_enabled_first=true"]));
    }
    let (groups, available) = (group_queries(""), group_queries("all_available=true"));
    add(Member, "/groups", "/groups", &groups);
    add(Administrator, "/groups", "/groups", &groups);
    add(Member, "/groups", "/groups?all_available", &available);
    add(Guest, "/groups", "/groups?all_available", &available);
    add(Member, "/groups/owned", "/groups/owned", &owned_strings(&["", "page=2"]));
    let namespaces = [owned_strings(&["", "page=50"]), searches()].concat();
    add(Member, "/namespaces", "/namespaces", &namespaces);
    add(Administrator, "/namespaces", "/namespaces", &namespaces);
    let members = owned_strings(&["", "page=20", "query=zephyr", "query=qu", "query=user77"]);
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
    let others = [owned_strings(&["simple=true", "page=50", &found_in_order]), owned_strings(&filters)].concat();
    [orders(columns), searches(), others].concat()
}

fn group_queries(prefix: &str) -> Vec<String> {
    let own = [orders(&["name", "path"]), searches(), owned_strings(&["page=40", "skip_groups[]=2003"])].concat();
    let join = |query: String| if prefix.is_empty() { query } else { format!("{prefix}&{query}") };
    own.into_iter().map(join).collect()
}

fn orders(columns: &[&str]) -> Vec<String> {
    columns.iter().flat_map(|by| ["asc", "desc"].map(|sort| format!("order_by={by}&sort={sort}"))).collect()
}

fn searches() -> Vec<String> {
    [RARE_WORD, COMMON_WORD, "river", TWO_LETTERS].map(|word| format!("search={word}")).into()
}

fn owned_strings(queries: &[&str]) -> Vec<String> {
    queries.iter().map(|query| (*query).to_owned()).collect()
}
