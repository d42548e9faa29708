//! Help, with the reference of the API.

use testkit::TestForge;

const MAX_HTML: usize = 50 << 10;

#[tokio::test]
async fn the_reference_has_a_page_for_each_resource_with_all_operations() {
    let forge = TestForge::start().await;
    let visitor = forge.browser();
    let index = visitor.get("/help/api").await;
    assert_eq!(index.code(), 200);
    let document = forge.anonymous().get("/openapi.json").await.json();
    let operations = |tag: &serde_json::Value| {
        let methods = document["paths"].as_object().into_iter().flatten().flat_map(|(path, methods)| {
            methods.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
        });
        methods
            .filter(|(_, _, operation)| operation["tags"][0] == *tag)
            .map(|(path, method, _)| format!("<code>{} /api/v3{path}</code>", method.to_uppercase()))
            .collect::<Vec<_>>()
    };
    let tags = document["tags"].as_array().expect("tags");
    assert!(tags.len() > 20, "{tags:?}");
    for tag in tags {
        let name = tag["name"].as_str().expect("a name");
        let path = format!("/help/api/{}", name.to_lowercase().replace(' ', "-"));
        assert!(index.text.contains(&format!("href=\"{path}\"")), "{path}: {index}");
        let page = visitor.get_with(&path, &[("accept-encoding", "gzip")]).await;
        assert_eq!(page.code(), 200, "{path}");
        assert!(page.bytes.len() <= MAX_HTML, "{path}: {}", page.bytes.len());
        for operation in operations(&tag["name"]) {
            assert!(page.text.contains(&operation), "{operation}: {page}");
        }
        // Every link within the page leads somewhere.
        for target in page.text.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(page.text.contains(&format!("id=\"{target}\"")), "{path}#{target}");
        }
    }
    let issues = visitor.get("/help/api/issues").await;
    for part in ["confidential", "boolean", "in the path", "Requires a token.", "id=\"object-"] {
        assert!(issues.text.contains(part), "{part}: {issues}");
    }
    assert_eq!(visitor.get("/help/api/nothing").await.code(), 404);
}

#[tokio::test]
async fn the_markdown_guide_shows_examples_and_their_results() {
    let forge = TestForge::start().await;
    let visitor = forge.browser();
    assert!(visitor.get("/explore").await.text.contains("href=\"/help\""));
    assert!(visitor.get("/help").await.text.contains("href=\"/help/markdown\""));
    let guide = visitor.get("/help/markdown").await;
    assert_eq!(guide.code(), 200);
    for part in
        ["**strong emphasis**", "<strong>strong emphasis</strong>", "<kbd>Ctrl</kbd>", "<table", "<del>deleted</del>"]
    {
        assert!(guide.text.contains(part), "{part}: {guide}");
    }
    for part in
        ["<code>#1</code>", "<code>@user</code>", "<code>~label</code>", "<code>%milestone</code>", "Attachments"]
    {
        assert!(guide.text.contains(part), "{part}: {guide}");
    }
    assert!(visitor.get("/help/keyboard").await.text.contains("Skip to content"));
}
