//! The document says what the routes do.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::Value;
use testkit::TestForge;

async fn document() -> Value {
    TestForge::start().await.anonymous().get("/openapi.json").await.json()
}

#[tokio::test]
async fn the_document_has_every_route_and_no_other() {
    let document = document().await;
    let mut described = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for method in operations.as_object().expect("operations").keys() {
            described.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let served: BTreeSet<String> =
        api::routes::v3().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(described, served);
}

#[tokio::test]
async fn every_operation_tells_its_parameters_statuses_and_shape() {
    let document = document().await;
    let mut ids = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let name = format!("{method} {path}");
            assert!(ids.insert(operation["operationId"].to_string()), "{name} has an id of its own");
            assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 10), "{name} has a summary");
            let statuses = operation["responses"].as_object().expect("responses");
            if !statuses.contains_key("204") {
                let success = statuses.get("200").or(statuses.get("201")).expect("a success");
                let content = success["content"].as_object().expect("a content");
                assert!(content.values().all(|kind| kind["schema"].is_object()), "{name} has a shape");
            }
            let in_path = path.matches('{').count();
            let parameters = operation["parameters"].as_array().expect("parameters");
            assert_eq!(parameters.iter().filter(|parameter| parameter["in"] == "path").count(), in_path, "{name}");
            let open = ["/session", "/openapi.json", "/ci/lint"].contains(&path.as_str());
            assert_eq!(operation["security"].is_null(), open, "{name}");
        }
    }
    let create = &document["paths"]["/users"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(create["required"], serde_json::json!(["email", "password", "username", "name"]));
    assert_eq!(create["properties"]["projects_limit"]["type"], "integer");
    let list = document["paths"]["/users"]["get"]["parameters"].as_array().expect("parameters");
    let names: Vec<_> = list.iter().map(|parameter| parameter["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["username", "search", "active", "blocked", "external", "page", "per_page"]);
}

/// The contract's section on users, line by line.
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
fn the_written_documentation_lists_every_route() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let text = std::fs::read_to_string(path).expect("docs/api.md");
    let listed: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for route in api::routes::v3() {
        let row = format!("{} {}", route.method, route.path);
        assert!(listed.contains(row.as_str()), "docs/api.md misses {row}");
    }
}
