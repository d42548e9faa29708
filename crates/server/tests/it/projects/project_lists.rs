//! Lists of projects: access, filters, order and pagination.

use insta::assert_snapshot;
use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge};

const LISTS: [&str; 5] =
    ["/projects", "/projects/visible", "/projects/owned", "/projects/starred", "/groups/acme/projects"];

/// Percent-encodes a text for a query.
fn encoded(text: &str) -> String {
    let hex: Vec<String> = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    hex.concat()
}

/// Creates Ann, an administrator who owns the group `acme`.
async fn ann_of_acme(forge: &TestForge) -> (TestClient, i64) {
    let ann = forge.user("ann").await;
    let acme = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    forge.set_admin(&ann, true);
    (ann, acme)
}

/// Creates a project that is in all lists.
async fn listed(ann: &TestClient, acme: i64, body: Value) -> i64 {
    let mut body = body;
    body["namespace_id"] = json!(acme);
    let id = ann.make("/projects", body).await;
    assert_eq!(ann.post(&format!("/projects/{id}/star"), json!({})).await.code(), 201);
    id
}

#[tokio::test]
async fn each_list_shows_the_projects_that_its_caller_can_see() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let eve = forge.external("eve").await;
    let acme = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    for (client, name, namespace, level) in [
        (&ann, "private", None, 0),
        (&ann, "internal", None, 10),
        (&ann, "open", None, 20),
        (&ann, "group-private", Some(acme), 0),
        (&ann, "group-public", Some(acme), 20),
        (&bob, "bobs", None, 0),
        (&root, "roots", None, 0),
    ] {
        let body = json!({ "name": name, "namespace_id": namespace, "visibility_level": level });
        client.make("/projects", body).await;
    }
    // Bob is a guest of one project, Eve of the group.
    ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 10 })).await;
    ann.make("/groups/acme/members", json!({ "user_id": eve.id.get(), "access_level": 10 })).await;
    let mut table = String::new();
    for (name, client) in [("root", &root), ("ann", &ann), ("bob", &bob), ("eve", &eve)] {
        for list in ["/projects", "/projects/visible", "/projects/owned", "/groups/acme/projects"] {
            let answer = client.get(&format!("{list}?order_by=id&sort=asc")).await;
            assert_eq!(answer.header("x-total"), answer.json().as_array().map_or(0, Vec::len).to_string());
            table += format!("{name:<6}{list:<24}{}", answer.join_field("id")).trim_end();
            table += "\n";
        }
    }
    assert_snapshot!(table, @r"
    root  /projects               7
    root  /projects/visible       2 3 5 7
    root  /projects/owned         7
    root  /groups/acme/projects   4 5
    ann   /projects               1 2 3 4 5
    ann   /projects/visible       1 2 3 4 5
    ann   /projects/owned         1 2 3 4 5
    ann   /groups/acme/projects   4 5
    bob   /projects               1 6
    bob   /projects/visible       1 2 3 5 6
    bob   /projects/owned         6
    bob   /groups/acme/projects   5
    eve   /projects               4 5
    eve   /projects/visible       3 4 5
    eve   /projects/owned
    eve   /groups/acme/projects   4 5
    ");
    assert_eq!(root.get("/projects/all?order_by=id&sort=asc").await.join_field("id"), "1 2 3 4 5 6 7");
    assert_eq!(root.get("/projects/all").await.header("x-total"), "7");
    for client in [&ann, &bob, &eve] {
        assert_eq!(client.get("/projects/all").await.json(), json!({ "message": "403 Forbidden" }));
    }
    // A search finds only projects of its list.
    for (client, ids) in [(&root, "2 3 5 7"), (&ann, "1 2 3 4 5"), (&bob, "1 2 3 5"), (&eve, "3 4 5")] {
        let mut searched = String::new();
        for text in ["i", "group-p", "roots"] {
            searched +=
                &client.get(&format!("/projects/visible?order_by=id&sort=asc&search={text}")).await.join_field("id");
            searched += " ";
        }
        for id in searched.split_whitespace() {
            assert!(ids.split(' ').any(|seen| seen == id), "{searched} is more than {ids}");
        }
        let by_path = client.get("/projects/search/i?order_by=id&sort=asc").await;
        assert_eq!(
            by_path.join_field("id"),
            client.get("/projects/visible?order_by=id&sort=asc&search=i").await.join_field("id")
        );
        assert_eq!(by_path.json()[0].get("permissions"), None);
    }
    assert_eq!(root.get("/projects/all?search=bobs").await.join_field("id"), "6");
    assert_eq!(ann.get("/projects/visible?search=bobs").await.text, "[]");
}

#[tokio::test]
async fn permissions_are_those_of_the_caller() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    ann.make("/projects", json!({ "name": "x", "namespace_id": acme, "visibility_level": 20 })).await;
    ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 20 })).await;
    ann.make("/groups/acme/members", json!({ "user_id": bob.id.get(), "access_level": 10 })).await;
    bob.post("/projects/1/star", json!({})).await;
    let access = |level: i64| json!({ "access_level": level, "notification_level": 3 });
    for list in ["/projects", "/projects/visible"] {
        let seen = bob.get(list).await.json()[0]["permissions"].clone();
        assert_eq!(seen, json!({ "project_access": access(20), "group_access": access(10) }), "{list}");
    }
    for list in ["/projects/starred", "/groups/acme/projects", "/projects/search/x"] {
        assert_eq!(bob.get(list).await.json()[0].get("permissions"), None, "{list}");
    }
    let stranger = forge.user("stranger").await;
    let seen = stranger.get("/projects/visible").await.json()[0]["permissions"].clone();
    assert_eq!(seen, json!({ "project_access": null, "group_access": null }));
}

#[tokio::test]
async fn a_starred_project_that_becomes_private_is_hidden() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let eve = forge.external("eve").await;
    ann.make("/projects", json!({ "name": "x", "visibility_level": 20 })).await;
    ann.make("/projects", json!({ "name": "y", "visibility_level": 20 })).await;
    for client in [&ann, &bob, &eve, &root] {
        for id in [1, 2] {
            client.post(&format!("/projects/{id}/star"), json!({})).await;
        }
        assert_eq!(client.get("/projects/starred").await.join_field("id"), "2 1");
    }
    ann.put("/projects/1", json!({ "name": "x", "visibility_level": 0 })).await;
    ann.put("/projects/2", json!({ "name": "y", "visibility_level": 10 })).await;
    for (client, ids, total) in [(&ann, "2 1", "2"), (&bob, "2", "1"), (&eve, "", "0"), (&root, "2", "1")] {
        let starred = client.get("/projects/starred").await;
        assert_eq!((starred.join_field("id").as_str(), starred.header("x-total")), (ids, total));
    }
    // The star is kept, and the project is listed again once the user can see it.
    assert_eq!(ann.get("/projects/1").await.json()["star_count"], 4);
    ann.make("/projects/1/members", json!({ "user_id": eve.id.get(), "access_level": 10 })).await;
    assert_eq!(eve.get("/projects/starred").await.join_field("id"), "1");
}

#[tokio::test]
async fn every_order_is_ascending_or_descending_and_ties_are_ordered_by_id() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    let names = [("b", "z"), ("B 2", "Y"), ("a", "x"), ("_c", "w-1"), ("Äh", "w_1"), ("zebra", "W.1")];
    for (number, (name, path)) in names.into_iter().enumerate() {
        let level = [0, 10, 20][number % 3];
        listed(&ann, acme, json!({ "name": name, "path": path, "visibility_level": level })).await;
    }
    ann.post("/projects/6/archive", json!({})).await;
    // Half of them at the same time.
    for (column, hours) in
        [("created_at", [1, 2, 1, 2, 1, 2]), ("updated_at", [2, 2, 1, 1, 3, 3]), ("last_activity_at", [1; 6])]
    {
        for (id, hour) in (1..).zip(hours) {
            forge.execute_sql(&format!("UPDATE projects SET {column} = {hour}000000000 WHERE id = {id}"));
        }
    }
    let lists = LISTS.into_iter().chain(["/projects/all"]);
    for list in lists {
        for (order, ids) in [
            ("id", "1 2 3 4 5 6"),
            ("name", "4 3 1 2 6 5"),
            ("path", "4 6 5 3 2 1"),
            ("created_at", "1 3 5 2 4 6"),
            ("updated_at", "3 4 1 2 5 6"),
            ("last_activity_at", "1 2 3 4 5 6"),
        ] {
            let backwards: Vec<&str> = ids.split(' ').rev().collect();
            for (sort, ids) in [("asc", ids.to_owned()), ("desc", backwards.join(" "))] {
                let url = format!("{list}?order_by={order}&sort={sort}");
                assert_eq!(ann.get(&url).await.join_field("id"), ids, "{url}");
                // The same in pages, and with a search that matches all.
                let mut pages = Vec::new();
                for page in 1..=3 {
                    pages.push(ann.get(&format!("{url}&per_page=2&page={page}")).await.join_field("id"));
                }
                assert_eq!(pages.join(" "), ids, "{url}");
                for search in ["acme", "ac"] {
                    assert_eq!(
                        ann.get(&format!("{url}&search={search}")).await.join_field("id"),
                        ids,
                        "{url} {search}"
                    );
                }
            }
        }
    }
    let first = ann.get("/groups/acme/projects?ci_enabled_first=true&order_by=name&sort=asc").await;
    assert_eq!(first.join_field("id"), "4 3 1 2 6 5");
    for (id, name) in [(4, "_c"), (1, "b")] {
        let changes = json!({ "name": name, "builds_enabled": false });
        assert_eq!(ann.put(&format!("/projects/{id}"), changes).await.code(), 200);
    }
    let first = ann.get("/groups/acme/projects?ci_enabled_first=true&order_by=name&sort=asc").await;
    assert_eq!(first.join_field("id"), "3 2 6 5 4 1");
}

/// Pages are merged from buckets of projects, by visibility and namespace or membership.
#[tokio::test]
async fn all_pages_of_a_list_have_its_order_and_its_total() {
    let forge = TestForge::start().await;
    let (ann, _) = ann_of_acme(&forge).await;
    let bot = forge.user("bot").await;
    // Three groups with projects in four buckets each, in no order.
    for (number, group) in ["one", "two", "three"].into_iter().enumerate() {
        let group = ann.make("/groups", json!({ "name": group, "path": group })).await;
        for nth in 0..7 {
            let level = [0, 10, 20][nth % 3];
            let body = json!({ "name": format!("{} {number}", nth * 5 % 7), "visibility_level": level });
            let id = listed(&ann, group, body).await;
            forge.execute_sql(&format!("UPDATE projects SET created_at = {}000000 WHERE id = {id}", id * 8 % 21 / 2));
            if nth % 4 == 1 {
                ann.post(&format!("/projects/{id}/archive"), json!({})).await;
            }
            // The bot is a member of two in three projects, in one of them until tomorrow.
            if id % 3 != 0 {
                let expires_at = (id == 8).then_some("2026-01-03");
                let member = json!({ "user_id": bot.id.get(), "access_level": 30, "expires_at": expires_at });
                ann.make(&format!("/projects/{id}/members"), member).await;
            }
        }
    }
    forge.clock.advance(SignedDuration::from_hours(48));
    let all = ann.get("/projects/all?per_page=100").await.json();
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), 21);
    let id = |project: &Value| project["id"].as_i64().expect("an id");
    let is_member = |project: &Value| id(project) % 3 != 0 && id(project) != 8;
    let is_visible = |project: &Value| is_member(project) || project["visibility_level"] != 0;
    for (user, list, is_in_list) in [
        (&bot, "/projects", &is_member as &dyn Fn(&Value) -> bool),
        (&bot, "/projects/visible", &is_visible),
        (&ann, "/projects", &|_| true),
        (&ann, "/projects/owned", &|_| true),
        (&ann, "/projects/visible", &|_| true),
    ] {
        for (filter, matches) in [
            ("", (|_| true) as fn(&Value) -> bool),
            ("&archived=true", |project| project["archived"] == true),
            ("&visibility=private", |project| project["visibility_level"] == 0),
        ] {
            for order in ["id", "created_at", "name"] {
                let mut expected: Vec<&Value> =
                    all.iter().filter(|project| is_in_list(project) && matches(project)).collect();
                expected.sort_by_key(|project| (project[order].to_string().to_lowercase(), id(project)));
                if order == "id" {
                    expected.sort_by_key(|project| id(project));
                }
                for sort in ["asc", "desc"] {
                    let mut found = Vec::new();
                    for page in 1..=8 {
                        let url = format!("{list}?order_by={order}&sort={sort}&per_page=3&page={page}{filter}");
                        let answer = user.get(&url).await;
                        assert_eq!(answer.header("x-total"), expected.len().to_string(), "{url}");
                        found.extend(answer.json().as_array().expect("a list").iter().map(&id));
                    }
                    let ids: Vec<i64> = expected.iter().map(|project| id(project)).collect();
                    assert_eq!(found, ids, "{list} {order} {sort}{filter}");
                    expected.reverse();
                }
            }
        }
    }
}

#[tokio::test]
async fn filters_can_be_combined() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    let mut id = 0;
    for level in [0, 10, 20] {
        for archived in [false, true] {
            for name in ["apple", "pear"] {
                let name = format!("{name} {level} {archived}");
                id = listed(&ann, acme, json!({ "name": name, "visibility_level": level })).await;
                if archived {
                    ann.post(&format!("/projects/{id}/archive"), json!({})).await;
                }
            }
        }
    }
    assert_eq!(id, 12);
    for list in LISTS.into_iter().chain(["/projects/all"]) {
        for (query, ids) in [
            ("visibility=private", "1 2 3 4"),
            ("visibility=internal", "5 6 7 8"),
            ("visibility=public", "9 10 11 12"),
            ("archived=true", "3 4 7 8 11 12"),
            ("archived=false", "1 2 5 6 9 10"),
            ("visibility=private&archived=true", "3 4"),
            ("visibility=internal&archived=false", "5 6"),
            ("visibility=public&archived=1", "11 12"),
            ("search=apple", "1 3 5 7 9 11"),
            ("search=APPLE&archived=no", "1 5 9"),
            ("search=pear&visibility=internal", "6 8"),
            ("search=pear&visibility=public&archived=true", "12"),
            ("search=pe&visibility=public&archived=true", "12"),
            ("search=plum", ""),
            ("search=", "1 2 3 4 5 6 7 8 9 10 11 12"),
            ("archived=&visibility=&order_by=id", "1 2 3 4 5 6 7 8 9 10 11 12"),
        ] {
            let url = format!("{list}?{query}&order_by=id&sort=asc");
            let answer = ann.get(&url).await;
            assert_eq!(answer.join_field("id"), ids, "{url}");
            let total = ids.split_whitespace().count().to_string();
            assert_eq!(answer.header("x-total"), total, "{url}");
            let second = ann.get(&format!("{url}&per_page=1&page=2")).await;
            assert_eq!(second.join_field("id"), ids.split_whitespace().nth(1).unwrap_or_default(), "{url}");
            assert_eq!(second.header("x-total-pages"), total, "{url}");
        }
    }
}

#[tokio::test]
async fn totals_follow_every_change() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    for number in 0..9 {
        let level = [0, 10, 20][number % 3];
        listed(&ann, acme, json!({ "name": format!("p{number}"), "visibility_level": level })).await;
    }
    let bob = forge.user("bob").await;
    let totals = async || {
        let mut totals = Vec::new();
        for (client, query) in [
            (&ann, "all?"),
            (&ann, "all?archived=true"),
            (&ann, "visible?"),
            (&bob, "visible?"),
            (&bob, "visible?visibility=public"),
            (&bob, "visible?archived=false"),
        ] {
            let answer = client.get(&format!("/projects/{query}&per_page=100")).await;
            let (total, items) = (answer.header("x-total").to_owned(), answer.json().as_array().map_or(0, Vec::len));
            assert_eq!(total, items.to_string(), "{query}");
            totals.push(total);
        }
        totals.join(" ")
    };
    assert_eq!(totals().await, "9 0 9 6 3 6");
    ann.post("/projects/3/archive", json!({})).await;
    ann.post("/projects/3/archive", json!({})).await;
    assert_eq!(totals().await, "9 1 9 6 3 5");
    ann.put("/projects/1", json!({ "name": "p0", "visibility_level": 20 })).await;
    assert_eq!(totals().await, "9 1 9 7 4 6");
    let quiet = ann.make("/groups", json!({ "name": "quiet", "path": "quiet", "visibility_level": 0 })).await;
    ann.post(&format!("/groups/{quiet}/projects/3"), json!({})).await;
    assert_eq!(totals().await, "9 1 9 6 3 6");
    ann.delete("/projects/2").await;
    assert_eq!(totals().await, "8 1 8 5 3 5");
    forge.run_due_tasks().await;
    assert_eq!(totals().await, "8 1 8 5 3 5");
    ann.post("/projects/3/unarchive", json!({})).await;
    assert_eq!(totals().await, "8 0 8 5 3 5");
    ann.delete("/groups/acme").await;
    assert_eq!(totals().await, "1 0 1 0 0 0");
}

#[tokio::test]
async fn a_long_list_is_paginated() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    for number in 1..=23 {
        let level = [0, 10, 20][number % 3];
        listed(&ann, acme, json!({ "name": format!("p{number}"), "visibility_level": level })).await;
    }
    let numbers = |from: i64, to: i64| {
        let numbers: Vec<String> = (to..=from).rev().map(|number| number.to_string()).collect();
        numbers.join(" ")
    };
    for list in LISTS.into_iter().chain(["/projects/all"]) {
        let first = ann.get(list).await;
        assert_eq!(first.join_field("id"), numbers(23, 4), "{list}");
        for (header, value) in [
            ("x-total", "23"),
            ("x-total-pages", "2"),
            ("x-per-page", "20"),
            ("x-page", "1"),
            ("x-next-page", "2"),
            ("x-prev-page", ""),
        ] {
            assert_eq!(first.header(header), value, "{list} {header}");
        }
        let second = ann.get(&format!("{list}?page=2&search=p")).await;
        assert_eq!(second.join_field("id"), numbers(3, 1), "{list}");
        assert_eq!((second.header("x-next-page"), second.header("x-prev-page")), ("", "1"), "{list}");
        let here = format!("http://gable.test/api/v3{list}");
        let link =
            |number: i64, relation: &str| format!("<{here}?page={number}&per_page=20&search=p>; rel=\"{relation}\"");
        assert_eq!(second.header("link"), [link(1, "prev"), link(1, "first"), link(2, "last")].join(", "));
        assert_eq!(ann.get(&format!("{list}?per_page=7&page=3")).await.join_field("id"), numbers(9, 3), "{list}");
        let beyond = ann.get(&format!("{list}?page=2147483647&per_page=100")).await;
        assert_eq!((beyond.text.as_str(), beyond.header("x-total")), ("[]", "23"), "{list}");
        for empty in ["?page=0&per_page=0", "?page=&per_page="] {
            let answer = ann.get(&format!("{list}{empty}")).await;
            assert_eq!((answer.header("x-page"), answer.header("x-per-page")), ("1", "20"), "{list}{empty}");
        }
        assert_eq!(ann.get(&format!("{list}?per_page=5000")).await.header("x-per-page"), "100", "{list}");
    }
    assert_eq!(ann.head("/projects/visible").await.header("x-total"), "23");
}

/// Four projects whose fields contain characters that are special in LIKE patterns and full-text queries.
#[tokio::test]
async fn a_search_is_literal_and_ignores_case() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    for (name, path, description) in [
        ("Ünïcode École", "plain", "ПРИВЕТ мир"),
        ("under_score", "a-b.c", "100% \"quoted\" it's C:\\dir"),
        ("underXscore", "other", "AND OR NOT NEAR( * ^ : { } name : x"),
        ("日本語 x", "japan", "𝒳 emoji 🚀🚀🚀 tab\tand\nbreak"),
    ] {
        listed(&ann, acme, json!({ "name": name, "path": path, "description": description })).await;
    }
    let cases = [
        ("ünïcode", "1"),
        ("ÜNÏCODE", "1"),
        ("école", "1"),
        ("ÉC", "1"),
        ("Ï", "1"),
        ("привет", "1"),
        ("МИР", "1"),
        ("р", "1"),
        ("under_score", "2"),
        ("r_s", "2"),
        ("_", "2"),
        ("%", "2"),
        ("0%", "2"),
        ("100%", "2"),
        ("1%0", ""),
        ("%%%", ""),
        ("\"", "2"),
        ("\"quoted\"", "2"),
        ("it's", "2"),
        ("'", "2"),
        ("\\", "2"),
        ("c:\\d", "2"),
        ("\\\\\\", ""),
        ("a-b.c", "2"),
        ("b.c", "2"),
        ("near(", "3"),
        ("* ^", "3"),
        ("*", "3"),
        ("name : x", "3"),
        ("not near", "3"),
        ("underxscore", "3"),
        ("under", "2 3"),
        ("日本語", "4"),
        ("本語", "4"),
        ("語", "4"),
        ("語 X", "4"),
        ("🚀🚀🚀", "4"),
        ("🚀", "4"),
        ("𝒳", "4"),
        ("tab\tand\nb", "4"),
        ("acme", "1 2 3 4"),
        ("cm", "1 2 3 4"),
        ("m", "1 2 3 4"),
        ("acme/plain", ""),
        ("nowhere", ""),
        ("zq", ""),
        (" ", "1 2 3 4"),
        ("   ", ""),
    ];
    for list in LISTS.into_iter().chain(["/projects/all"]) {
        for (text, ids) in cases {
            let answer = ann.get(&format!("{list}?order_by=id&sort=asc&search={}", encoded(text))).await;
            assert_eq!(answer.join_field("id"), ids, "{list} {text:?}");
            assert_eq!(answer.header("x-total"), ids.split_whitespace().count().to_string(), "{list} {text:?}");
        }
        let nul = ann.get(&format!("{list}?search=a%00b")).await;
        assert_eq!((nul.code(), nul.json()), (400, json!({ "error": "search is invalid" })), "{list}");
        let endless = ann.get(&format!("{list}?search={}", "u".repeat(3000))).await;
        assert_eq!((endless.text.as_str(), endless.header("x-total")), ("[]", "0"), "{list}");
        let long = ann.get(&format!("{list}?search={}", "u".repeat(2000))).await;
        assert_eq!(long.text, "[]", "{list}");
    }
    for (text, ids) in cases.into_iter().filter(|(text, _)| !text.trim().is_empty()) {
        let found = ann.get(&format!("/projects/search/{}?order_by=id&sort=asc", encoded(text))).await;
        assert_eq!(found.join_field("id"), ids, "{text:?}");
    }
    assert_eq!(ann.get("/projects/search/a%00b").await.json(), json!({ "error": "query is invalid" }));
}

/// Name, path and description are searched separately.
#[tokio::test]
async fn a_search_does_not_match_across_fields() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    listed(&ann, acme, json!({ "name": "Rocket", "path": "ship", "description": "flies" })).await;
    for list in LISTS.into_iter().chain(["/projects/all"]) {
        for text in
            ["rocketship", "rocket ship", "rocket\nship", "t\ns", "\n", "shipflies", "ship\nflies", "acmerocket"]
        {
            assert_eq!(ann.get(&format!("{list}?search={}", encoded(text))).await.text, "[]", "{list} {text:?}");
        }
    }
}

/// SQLite's index finds texts with some trigrams of the search text, in any order and at any distance.
#[tokio::test]
async fn a_search_finds_only_contiguous_text() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    for (name, path, description) in [
        ("planetarium", "one", "the word"),
        ("planet arium", "two", "two words"),
        ("ariumplanet", "three", "the parts in the wrong order"),
        ("pla netari um", "four", "every third letter starts a part"),
        ("other", "five", "has planetarium in its description"),
    ] {
        listed(&ann, acme, json!({ "name": name, "path": path, "description": description })).await;
    }
    for list in LISTS.into_iter().chain(["/projects/all"]) {
        for (text, expected) in [
            ("planetarium", "1 5"),
            ("PLANETARIUM", "1 5"),
            ("planet", "1 2 3 5"),
            ("arium", "1 2 3 5"),
            ("netari", "1 4 5"),
            ("planetarian", ""),
            // The name of the group.
            ("acme", "1 2 3 4 5"),
        ] {
            let found = ann.get(&format!("{list}?order_by=id&sort=asc&search={text}")).await;
            assert_eq!(found.join_field("id"), expected, "{list} {text}");
            let number = expected.split_whitespace().count();
            assert_eq!(found.header("x-total"), number.to_string(), "{list} {text}");
        }
    }
}

/// A final sigma has its own lower-case form, which does not apply inside a word.
#[tokio::test]
async fn a_part_of_a_greek_word_is_found() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    listed(&ann, acme, json!({ "name": "ΟΔΟΣΗΜΑ", "path": "sign" })).await;
    listed(&ann, acme, json!({ "name": "ΟΔΟΣ", "path": "street" })).await;
    for list in LISTS.into_iter().chain(["/projects/all"]) {
        for text in ["ΟΔΟΣ", "οδοσ", "ΔΟΣ"] {
            let found = ann.get(&format!("{list}?order_by=id&sort=asc&search={}", encoded(text))).await;
            assert_eq!(found.join_field("id"), "1 2", "{list} {text}");
        }
    }
}

#[tokio::test]
async fn a_search_finds_changed_fields() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    listed(&ann, acme, json!({ "name": "Rocket", "path": "rocket", "description": "flies" })).await;
    let found = async |text: &str| {
        let mut found = Vec::new();
        for list in LISTS.into_iter().chain(["/projects/all"]) {
            found.push(ann.get(&format!("{list}?search={text}")).await.header("x-total").to_owned());
        }
        found.dedup();
        found.join(" ")
    };
    assert_eq!((found("rocket").await, found("flies").await, found("fl").await), ("1".into(), "1".into(), "1".into()));
    ann.put("/projects/1", json!({ "name": "Boat", "path": "boat", "description": "" })).await;
    assert_eq!((found("rocket").await, found("flies").await, found("oat").await), ("0".into(), "0".into(), "1".into()));
    ann.put("/groups/acme", json!({ "name": "Harbour" })).await;
    assert_eq!((found("acme").await, found("harb").await, found("ha").await), ("0".into(), "1".into(), "1".into()));
}

#[tokio::test]
async fn every_list_rejects_invalid_values() {
    let forge = TestForge::start().await;
    let (ann, _) = ann_of_acme(&forge).await;
    for list in LISTS.into_iter().chain(["/projects/all"]) {
        let wrong = "archived=perhaps&visibility=20&search[]=x&order_by=stars&sort=ASC&simple=2";
        let answer = ann.get(&format!("{list}?{wrong}")).await;
        let text = "archived is invalid, visibility does not have a valid value, search is invalid, \
                    order_by does not have a valid value, sort does not have a valid value, simple is invalid";
        assert_eq!(answer.code(), 400, "{list}");
        let error = answer.json()["error"].as_str().expect("a text").to_owned();
        let (mut parameters, mut expected): (Vec<&str>, Vec<&str>) =
            (error.split(", ").collect(), text.split(", ").collect());
        parameters.sort_unstable();
        expected.sort_unstable();
        assert_eq!(parameters, expected, "{list}");
        assert_eq!(forge.anonymous().get(&format!("{list}?{wrong}")).await.code(), 401, "{list}");
    }
    assert_eq!(
        ann.get("/groups/acme/projects?ci_enabled_first=maybe").await.json(),
        json!({ "error": "ci_enabled_first is invalid" })
    );
    assert_eq!(
        ann.get("/projects/search/x?order_by=stars").await.json(),
        json!({ "error": "order_by does not have a valid value" })
    );
}

#[tokio::test]
async fn a_simple_list_shows_few_fields() {
    let forge = TestForge::start().await;
    let (ann, acme) = ann_of_acme(&forge).await;
    listed(&ann, acme, json!({ "name": "Rocket" })).await;
    for list in LISTS.into_iter().chain(["/projects/all", "/projects/search/rocket"]) {
        for simple in ["true", "1", "yes"] {
            let answer = ann.get(&format!("{list}?simple={simple}")).await;
            assert_eq!(
                answer.text,
                r#"[{"id":1,"http_url_to_repo":"http://gable.test/acme/rocket.git","web_url":"http://gable.test/acme/rocket","name":"Rocket","name_with_namespace":"acme / Rocket","path":"rocket","path_with_namespace":"acme/rocket"}]"#,
                "{list}"
            );
        }
        assert!(ann.get(&format!("{list}?simple=false")).await.json()[0]["namespace"].is_object(), "{list}");
    }
}
