//! The pages of a repository.

use model::ProjectId;
use serde_json::json;
use testkit::{LocalRepository, TestForge, browser::Browser};

const PROJECT: ProjectId = ProjectId::new(1);

/// A forge with the public project `ann/rocket`, and a visitor.
pub(super) async fn forge_with_repository(local: &LocalRepository) -> (TestForge, Browser) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "Rocket", "path": "rocket", "visibility_level": 20 })).await;
    forge.push_all(&ann, PROJECT, local).await;
    let visitor = forge.browser();
    (forge, visitor)
}

fn repository() -> (LocalRepository, [String; 2]) {
    let local = LocalRepository::new();
    local.write("src/main.rs", "fn main() {\n    println!(\"<1>\");\n}\n");
    local.write("docs/guide.md", "# Guide\n\n[home](../README.md)\n");
    local.write("data.bin", [0_u8, 1, 2, 3]);
    local.write("empty", "");
    local.write("name with #?%.txt", "odd\n");
    let first = local.commit_file("README.md", "# Rocket\n\nSee the [guide](docs/guide.md).\n");
    local.git(&["tag", "v1.0"]);
    let second = local.commit_file("src/main.rs", "fn main() {\n    println!(\"<2>\");\n}\n");
    local.git(&["branch", "topic/one"]);
    (local, [first, second])
}

#[tokio::test]
async fn the_home_page_shows_files_readme_and_clone_urls() {
    let (local, [_, second]) = repository();
    let (_forge, visitor) = forge_with_repository(&local).await;
    let home = visitor.get("/ann/rocket").await;
    assert_eq!(home.code(), 200);
    for part in [
        "<title>ann / Rocket · Gable</title>",
        "http://gable.test/ann/rocket.git",
        "git@gable.test:ann/rocket.git",
        "href=\"/ann/rocket/-/tree/master/src\"",
        "href=\"/ann/rocket/-/blob/master/README.md\"",
        "href=\"/ann/rocket/-/blob/master/name%20with%20%23%3F%25.txt\"",
        "<h2 id=\"user-content-rocket\">Rocket</h2>",
        "href=\"/ann/rocket/-/blob/master/docs/guide.md\"",
        "2 branches",
        "1 tag<",
        &format!("href=\"/ann/rocket/-/commit/{second}\""),
    ] {
        assert!(home.text.contains(part), "{part}: {home}");
    }
    // Paths ignore case, and a slash at the end does not matter.
    assert_eq!(visitor.get("/ann/rocket/").await.code(), 200);
}

#[tokio::test]
async fn an_empty_repository_says_how_to_push() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "x", "visibility_level": 20 })).await;
    let owner = forge.signed_in_browser("ann").await.get("/ann/x").await;
    assert!(owner.text.contains("git remote add origin http://gable.test/ann/x.git"), "{owner}");
    let visitor = forge.browser();
    let page = visitor.get("/ann/x").await;
    assert!(page.text.contains("Nothing was pushed to it yet.") && !page.text.contains("git remote add"), "{page}");
    for path in ["/-/tree/master", "/-/commits/master", "/-/commit/master", "/-/compare"] {
        assert_eq!(visitor.get(&format!("/ann/x{path}")).await.code(), 404, "{path}");
    }
    for path in ["/-/branches", "/-/tags"] {
        assert_eq!(visitor.get(&format!("/ann/x{path}")).await.code(), 200, "{path}");
    }
    assert_eq!(visitor.get("/ann/x/-/commits").await.header("location"), "/ann/x");
}

#[tokio::test]
async fn folders_and_files_are_shown_at_every_kind_of_revision() {
    let (local, [first, _]) = repository();
    let (_forge, visitor) = forge_with_repository(&local).await;
    for revision in ["master", "topic/one", "v1.0", &first, &first[..8]] {
        let tree = visitor.get(&format!("/ann/rocket/-/tree/{revision}/src")).await;
        assert_eq!(tree.code(), 200, "{revision}");
        assert!(tree.text.contains(&format!("href=\"/ann/rocket/-/blob/{revision}/src/main.rs\"")), "{tree}");
        let blob = visitor.get(&format!("/ann/rocket/-/blob/{revision}/src/main.rs")).await;
        assert_eq!(blob.code(), 200, "{revision}");
    }
    let blob = visitor.get("/ann/rocket/-/blob/v1.0/src/main.rs").await;
    let line = "<a id=\"L2\" href=\"#L2\" tabindex=\"-1\">2</a>    <span class=\"f\">println!</span>(<span \
                class=\"s\">&quot;&lt;1&gt;&quot;</span>);";
    assert!(blob.text.contains(line), "{blob}");
    assert!(blob.text.contains("href=\"/ann/rocket/-/raw/v1.0/src/main.rs\""), "{blob}");
    // A folder is not a file, and the other way round.
    assert_eq!(visitor.get("/ann/rocket/-/blob/master/src").await.header("location"), "/ann/rocket/-/tree/master/src");
    let file = visitor.get("/ann/rocket/-/tree/master/README.md").await;
    assert_eq!(file.header("location"), "/ann/rocket/-/blob/master/README.md");
    for path in ["tree/gone", "tree/master/gone", "blob/master/gone", "raw/master/src", "tree/", "blob/master/../x"] {
        assert_eq!(
            visitor.get(&format!("/ann/rocket/-/{path}")).await.code() / 100,
            if path == "tree/" { 3 } else { 4 }
        );
    }
    let markdown = visitor.get("/ann/rocket/-/blob/master/docs/guide.md").await;
    assert!(markdown.text.contains("href=\"/ann/rocket/-/blob/master/README.md\""), "{markdown}");
    let source = visitor.get("/ann/rocket/-/blob/master/docs/guide.md?plain=1").await;
    assert!(source.text.contains("Guide") && !source.text.contains("user-content-guide"), "{source}");
    assert!(visitor.get("/ann/rocket/-/blob/master/data.bin").await.text.contains("This is a binary file."));
    assert!(visitor.get("/ann/rocket/-/blob/master/empty").await.text.contains("This file is empty."));
}

#[tokio::test]
async fn raw_files_are_never_executed() {
    let (local, _) = repository();
    local.write("page.html", "<script>alert(1)</script>");
    local.write("image.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>");
    local.write("image.png", "not really");
    local.commit_file("x", "x");
    let (_forge, visitor) = forge_with_repository(&local).await;
    for (name, content_type, is_download) in [
        ("page.html", "text/plain; charset=utf-8", false),
        ("image.svg", "image/svg+xml", false),
        ("src/main.rs", "text/plain; charset=utf-8", false),
        ("image.png", "image/png", false),
        ("data.bin", "application/octet-stream", true),
    ] {
        let raw = visitor.get(&format!("/ann/rocket/-/raw/master/{name}")).await;
        assert_eq!((raw.code(), raw.header("content-type")), (200, content_type), "{name}");
        assert_eq!(raw.header("x-content-type-options"), "nosniff");
        let styles = if name == "image.svg" { " style-src 'unsafe-inline';" } else { "" };
        assert_eq!(raw.header("content-security-policy"), format!("default-src 'none';{styles} sandbox"));
        assert_eq!(raw.header("content-disposition").starts_with("attachment"), is_download, "{name}");
        let again = visitor
            .get_with(&format!("/ann/rocket/-/raw/master/{name}"), &[("if-none-match", raw.header("etag"))])
            .await;
        assert_eq!((again.code(), again.bytes.len()), (304, 0));
    }
    let odd = visitor.get("/ann/rocket/-/raw/master/name%20with%20%23%3F%25.txt").await;
    assert_eq!(odd.text, "odd\n");
}

#[tokio::test]
async fn the_history_of_a_branch_and_a_file() {
    let (local, [first, second]) = repository();
    let (_forge, visitor) = forge_with_repository(&local).await;
    assert_eq!(visitor.get("/ann/rocket/-/commits").await.header("location"), "/ann/rocket/-/commits/master");
    let history = visitor.get("/ann/rocket/-/commits/master").await;
    let (newer, older) = (history.text.find(&second), history.text.find(&first));
    assert!(newer.is_some() && newer < older, "{history}");
    let of_file = visitor.get("/ann/rocket/-/commits/master/docs/guide.md").await;
    assert!(of_file.text.contains(&first) && !of_file.text.contains(&second), "{of_file}");
    assert_eq!(visitor.get("/ann/rocket/-/commits/master/gone").await.code(), 404);
    assert_eq!(visitor.get("/ann/rocket/-/commits/gone").await.code(), 404);
    assert_eq!(visitor.get("/ann/rocket/-/commits/master?page=50").await.code(), 200);
}

#[tokio::test]
async fn a_commit_shows_its_differences() {
    let (local, [first, second]) = repository();
    let (_forge, visitor) = forge_with_repository(&local).await;
    let page = visitor.get(&format!("/ann/rocket/-/commit/{second}")).await;
    assert_eq!(page.code(), 200);
    for part in [
        "<h1><bdi>Add src/main.rs</bdi></h1>",
        "<tr class=\"del\"><td class=\"ln\">2</td><td class=\"ln\"></td><td>    println!(&quot;&lt;<del>1</del>&gt;&quot;);</td></tr>",
        "<tr class=\"add\"><td class=\"ln\"></td><td class=\"ln\">2</td><td>    println!(&quot;&lt;<ins>2</ins>&gt;&quot;);</td></tr>",
        &format!("href=\"/ann/rocket/-/commit/{first}\""),
        &format!("href=\"/ann/rocket/-/blob/{second}/src/main.rs\""),
    ] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(!page.text.contains("ann@example.org"), "addresses are not shown: {page}");
    assert_eq!(visitor.get(&format!("/ann/rocket/-/commit/{}", &second[..8])).await.code(), 200);
    assert_eq!(visitor.get("/ann/rocket/-/commit/0000000000000000000000000000000000000000").await.code(), 404);
}

#[tokio::test]
async fn branches_tags_and_comparisons() {
    let (local, [_, second]) = repository();
    let (_forge, visitor) = forge_with_repository(&local).await;
    let branches = visitor.get("/ann/rocket/-/branches").await;
    assert!(branches.text.contains("href=\"/ann/rocket/-/tree/topic/one\""), "{branches}");
    assert!(branches.text.contains(">default</span>"), "{branches}");
    let tags = visitor.get("/ann/rocket/-/tags").await;
    assert!(tags.text.contains("href=\"/ann/rocket/-/tree/v1.0\""), "{tags}");
    let form = visitor.get("/ann/rocket/-/compare").await;
    assert!(form.text.contains("<option value=\"topic/one\">"), "{form}");
    let chosen = visitor.get("/ann/rocket/-/compare?from=v1.0&to=topic%2Fone").await;
    assert_eq!(chosen.header("location"), "/ann/rocket/-/compare/v1.0...topic/one");
    let comparison = visitor.get("/ann/rocket/-/compare/v1.0...topic/one").await;
    assert!(comparison.text.contains("1 commit<") && comparison.text.contains(&second), "{comparison}");
    assert!(comparison.text.contains("<ins>2</ins>"), "{comparison}");
    let same = visitor.get("/ann/rocket/-/compare/master...master").await;
    assert!(same.text.contains("has no commits that are not in"), "{same}");
    let unknown = visitor.get("/ann/rocket/-/compare/master...%3Cgone%3E").await;
    assert_eq!(unknown.code(), 404);
    assert!(unknown.text.contains("There is no such branch, tag or commit.") && !unknown.text.contains("<gone>"));
}

#[tokio::test]
async fn old_forms_of_urls_lead_to_the_current_ones() {
    let (local, [first, _]) = repository();
    let (_forge, visitor) = forge_with_repository(&local).await;
    for (old, current) in [
        ("tree/master/src", "/-/tree/master/src"),
        ("blob/master/README.md", "/-/blob/master/README.md"),
        ("raw/master/README.md", "/-/raw/master/README.md"),
        ("commits/topic/one", "/-/commits/topic/one"),
        (&format!("commit/{first}"), &format!("/-/commit/{first}")),
        ("branches", "/-/branches"),
        ("tags", "/-/tags"),
        ("issues?state=closed&search=x", "/-/issues?state=closed&search=x"),
        ("milestones", "/-/milestones"),
        ("compare/a...b", "/-/compare/a...b"),
    ] {
        let moved = visitor.get(&format!("/ann/rocket/{old}")).await;
        assert_eq!((moved.code(), moved.header("location")), (301, &*format!("/ann/rocket{current}")), "{old}");
    }
}

#[tokio::test]
async fn branches_and_tags_are_found_by_a_part_of_their_names() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# x\n");
    for name in ["feature/engine", "feature/Parachute", "fix"] {
        local.git(&["branch", name]);
        local.git(&["tag", &format!("tag-{name}")]);
    }
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    let visitor = forge.browser();
    for (page, prefix) in [("branches", ""), ("tags", "tag-")] {
        let found = visitor.get(&format!("/ann/rocket/-/{page}?search=PARA")).await;
        assert!(found.text.contains(&format!("<bdi>{prefix}feature/Parachute</bdi>")), "{found}");
        assert!(!found.text.contains("engine") && found.text.contains("value=\"PARA\""), "{found}");
        let missing = visitor.get(&format!("/ann/rocket/-/{page}?search=%3Cb%3E")).await;
        assert!(missing.text.contains("has a name with “<bdi>&lt;b&gt;</bdi>”"), "{missing}");
    }
}
