//! The OpenAPI document matches the routes.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use serde_json::Value;
use testkit::TestForge;

async fn document() -> Value {
    TestForge::start().await.anonymous().get("/openapi.json").await.json()
}

/// Returns the operations of a document, each with its method and path.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    document["paths"].as_object().expect("paths").iter().flat_map(|(path, operations)| {
        let operations = operations.as_object().expect("operations");
        operations.iter().map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
    })
}

#[tokio::test]
async fn the_document_has_every_route_and_no_other() {
    let document = document().await;
    let described: BTreeSet<String> = operations(&document).map(|(name, _)| name).collect();
    let served: BTreeSet<String> =
        api::routes::v3().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(described, served);
}

#[tokio::test]
async fn every_operation_describes_its_parameters_statuses_and_schema() {
    let document = document().await;
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        assert!(ids.insert(operation["operationId"].to_string()), "{name} has a unique id");
        assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 10), "{name} has a summary");
        let statuses = operation["responses"].as_object().expect("responses");
        if !statuses.contains_key("204") {
            let success = statuses.get("200").or(statuses.get("201")).expect("a success");
            let content = success["content"].as_object().expect("a content");
            assert!(content.values().all(|kind| kind["schema"].is_object()), "{name} has a schema");
        }
        let parameters = operation["parameters"].as_array().expect("parameters");
        let (in_path, in_query): (Vec<_>, Vec<_>) = parameters.iter().partition(|parameter| parameter["in"] == "path");
        assert_eq!(in_path.len(), name.matches('{').count(), "{name}");
        for parameter in in_query {
            assert!(parameter["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}: {parameter}");
        }
        let open = ["POST /session", "GET /openapi.json", "POST /ci/lint"].contains(&name.as_str());
        assert_eq!(operation["security"].is_null(), open, "{name}");
    }
    let create = &document["paths"]["/users"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(create["required"], serde_json::json!(["email", "password", "username", "name"]));
    assert_eq!(create["properties"]["projects_limit"]["type"], "integer");
    let list = document["paths"]["/users"]["get"]["parameters"].as_array().expect("parameters");
    let names: Vec<_> = list.iter().map(|parameter| parameter["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["username", "search", "active", "blocked", "external", "page", "per_page"]);
}

#[tokio::test]
async fn every_operation_has_exactly_one_declared_tag() {
    let document = document().await;
    let mut declared = BTreeSet::new();
    for tag in document["tags"].as_array().expect("tags") {
        assert!(tag["description"].as_str().is_some_and(|text| !text.is_empty()), "{tag} has a description");
        assert!(declared.insert(tag["name"].as_str().expect("a name")), "{tag} is declared once");
    }
    let mut used = BTreeSet::new();
    for (name, operation) in operations(&document) {
        let [tag] = operation["tags"].as_array().expect("tags").as_slice() else {
            panic!("{name} has one tag, not {}", operation["tags"]);
        };
        used.insert(tag.as_str().expect("a name"));
    }
    assert_eq!(declared, used);
    assert_eq!(document["paths"]["/users/{id}/block"]["put"]["tags"][0], "Users");
    assert_eq!(document["paths"]["/projects/{id}/repository/branches"]["get"]["tags"][0], "Branches");
}

/// Checks the section on users of the contract.
#[test]
fn all_endpoints_of_the_contracts_users_section_are_there() {
    let served: BTreeSet<(Method, String)> =
        api::routes::v3().into_iter().map(|route| (route.method, route.path.replace("{uid}", "{id}"))).collect();
    let contract = "GET /users\nGET /users/{id}\nPOST /users\nPUT /users/{id}\nDELETE /users/{id}\nGET /user\n\
        GET /user/keys\nGET /users/{id}/keys\nGET /user/keys/{id}\nPOST /user/keys\nPOST /users/{id}/keys\n\
        DELETE /user/keys/{id}\nDELETE /users/{id}/keys/{id}\nGET /user/emails\nGET /users/{id}/emails\n\
        GET /user/emails/{id}\nPOST /user/emails\nPOST /users/{id}/emails\nDELETE /user/emails/{id}\n\
        DELETE /users/{id}/emails/{id}\nPUT /users/{id}/block\nPUT /users/{id}/unblock\nGET /users/{id}/events";
    for line in contract.lines() {
        let (method, path) = line.trim().split_once(' ').expect("a method and a path");
        let method = method.parse().expect("a method");
        assert!(served.contains(&(method, path.to_owned())), "{line} is served");
    }
    assert_eq!(contract.lines().count(), 23);
}

#[test]
fn the_written_documentation_lists_every_route_with_its_summary() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let text = std::fs::read_to_string(path).expect("docs/api.md");
    let (_, section) = text.split_once("\n## Routes\n").expect("a section on routes");
    let (section, _) = section.split_once("\n### Outside of").expect("a section on other paths");
    let mut listed = BTreeMap::new();
    for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (route, summary) = row.split_once("` | ").expect("two columns");
        let summary = summary.strip_suffix(" |").expect("the end of a row");
        assert_eq!(listed.insert(route.to_owned(), summary.to_owned()), None, "{route} is listed once");
    }
    let served: BTreeMap<String, String> = api::routes::v3()
        .into_iter()
        .map(|route| (format!("{} {}", route.method, route.path), route.summary.to_owned()))
        .collect();
    assert_eq!(listed, served);
}
