//! The pages that show which commit changed what.

use std::time::Duration;

use serde_json::json;
use testkit::{
    LocalRepository, TestForge, TestResponse,
    browser::{Browser, form_token},
};

use super::code_pages::forge_with_repository;

/// Returns the row of a table that contains a text.
fn row<'a>(page: &'a TestResponse, text: &str) -> &'a str {
    let found = page.text.split("<tr").find(|row| row.contains(text));
    found.unwrap_or_else(|| panic!("{text}: {page}"))
}

/// Opens a folder; reloads it while last commits are searched for, which takes longer on a busy machine.
async fn complete_folder(visitor: &Browser, path: &str) -> TestResponse {
    for _ in 0..100 {
        let page = visitor.get(path).await;
        if !page.text.contains("still being searched for") {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the last commits of {path} are not found");
}

#[tokio::test]
async fn folders_show_the_last_commit_of_each_entry() {
    let local = LocalRepository::new();
    local.write("src/deep/one.rs", "1\n");
    local.write("docs/guide.md", "1\n");
    let first = local.commit("Start <here>");
    local.git(&["switch", "--quiet", "--create", "topic"]);
    let topic = local.commit_file("src/deep/two.rs", "2\n");
    local.git(&["switch", "--quiet", "master"]);
    let second = local.commit_file("docs/guide.md", "2\n");
    local.git(&["merge", "--quiet", "--no-ff", "--message", "Merge topic", "topic"]);
    let merge = local.git(&["rev-parse", "HEAD"]);
    local.write("module", "");
    let last = local.commit_file("README.md", "x\n");
    let (_forge, visitor) = forge_with_repository(&local).await;
    let home = complete_folder(&visitor, "/ann/rocket").await;
    for (entry, commit) in [("/tree/master/src\"", &topic), ("/tree/master/docs\"", &second), ("README.md\"", &last)] {
        let row = row(&home, entry);
        assert!(row.contains(&format!("href=\"/ann/rocket/-/commit/{commit}\"")), "{entry}: {row}");
        assert!(row.contains("<time "), "{row}");
    }
    assert!(!row(&home, "/tree/master/src\"").contains(&merge), "{home}");
    let folder = complete_folder(&visitor, "/ann/rocket/-/tree/master/src/deep").await;
    assert!(row(&folder, "one.rs").contains(&first), "{folder}");
    assert!(row(&folder, "one.rs").contains("Start &lt;here&gt;"), "{folder}");
    assert!(row(&folder, "two.rs").contains(&topic), "{folder}");
}

#[tokio::test]
async fn blame_shows_the_commit_of_each_line() {
    let local = LocalRepository::new();
    local.write("data.bin", [0_u8, 1]);
    let first = local.commit_file("old.rs", "fn one() {}\nfn two() {}\nfn three() {}\n");
    local.git(&["mv", "old.rs", "new.rs"]);
    local.commit("Rename");
    let last = local.commit_file("new.rs", "fn one() {}\nlet <two> = 2;\nfn three() {}\n");
    let (_forge, visitor) = forge_with_repository(&local).await;
    let blob = visitor.get("/ann/rocket/-/blob/master/new.rs").await;
    assert!(blob.text.contains("href=\"/ann/rocket/-/blame/master/new.rs\""), "{blob}");
    let page = visitor.get("/ann/rocket/-/blame/master/new.rs").await;
    assert_eq!(page.code(), 200);
    for (line, commit) in [("L1", &first), ("L2", &last), ("L3", &first)] {
        assert!(row(&page, &format!("id=\"{line}\"")).contains(commit.as_str()), "{line}: {page}");
    }
    assert!(page.text.contains("&lt;two&gt;") && page.text.contains("Ann Author"), "{page}");
    assert!(!page.text.contains("ann@example.org"), "addresses are not shown: {page}");
    let binary = visitor.get("/ann/rocket/-/blame/master/data.bin").await;
    assert!(binary.text.contains("This is a binary file."), "{binary}");
    for missing in ["master", "master/gone", "gone/new.rs"] {
        assert_eq!(visitor.get(&format!("/ann/rocket/-/blame/{missing}")).await.code(), 404, "{missing}");
    }
}

#[tokio::test]
async fn a_file_of_20_000_lines_is_shown_with_its_commits() {
    let local = LocalRepository::new();
    let text = |marker: &str| -> String {
        (0..20_000).map(|line| if line % 40 == 0 { format!("{marker}\n") } else { format!("{line}\n") }).collect()
    };
    for marker in ["one", "two", "three"] {
        local.commit_file("many.txt", text(marker));
    }
    let (_forge, visitor) = forge_with_repository(&local).await;
    for page in ["blame", "blob"] {
        let page = visitor.get(&format!("/ann/rocket/-/{page}/master/many.txt")).await;
        assert!(page.text.contains("id=\"L20000\""), "{}", page.code());
    }
}

#[tokio::test]
async fn a_commit_has_comments_refs_and_downloads() {
    let local = LocalRepository::new();
    local.commit_file("a.txt", "one\n");
    let second = local.commit_file("a.txt", "two\n");
    local.git(&["tag", "v1"]);
    local.git(&["branch", "topic"]);
    local.commit_file("b.txt", "x\n");
    let (forge, visitor) = forge_with_repository(&local).await;
    forge.user("bob").await;
    let bob = forge.signed_in_browser("bob").await;
    let url = format!("/ann/rocket/-/commit/{second}");
    let page = bob.get(&url).await;
    for part in ["/-/tree/topic\"", "/-/tree/master\"", "/-/tree/v1\"", ".patch\"", ".diff\"", "<h2 id=\"comments\">"] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    let comment = async |note: &str| {
        let token = form_token(&bob.get(&url).await.text);
        let fields = [("form_token", token.as_str()), ("note", note)];
        bob.post(&format!("{url}/notes"), &[("sec-fetch-site", "same-origin")], &fields).await
    };
    let created = comment("Is it **two**?\r\n<script>alert(1)</script>").await;
    assert_eq!((created.code(), created.header("location")), (303, &*format!("{url}#note_1")));
    let page = visitor.get(&url).await;
    assert!(page.text.contains("<strong>two</strong>") && !page.text.contains("<script>"), "{page}");
    assert!(!page.text.contains("name=\"note\""), "visitors cannot comment: {page}");
    let empty = comment("  ").await;
    assert_eq!(empty.code(), 422);
    assert!(empty.text.contains("aria-invalid=\"true\""), "{empty}");
    let diff = visitor.get(&format!("{url}.diff")).await;
    assert_eq!(diff.header("content-type"), "text/plain; charset=utf-8");
    let expected = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n";
    assert_eq!(diff.text, expected);
    let patch = visitor.get(&format!("{url}.patch")).await;
    assert!(patch.text.contains("\nSubject: [PATCH] Add a.txt\n") && patch.text.contains(expected), "{patch}");
    assert!(patch.header("content-disposition").starts_with("attachment"));
    for missing in ["0000000.patch", "0000000000000000000000000000000000000000.diff", "master.patch"] {
        assert_eq!(visitor.get(&format!("/ann/rocket/-/commit/{missing}")).await.code(), 404, "{missing}");
    }
}

#[tokio::test]
async fn a_guest_of_a_private_project_cannot_comment_on_commits() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    ann.make("/projects", json!({ "name": "x" })).await;
    ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 10 })).await;
    let local = LocalRepository::new();
    local.commit_file("a", "1\n");
    forge.push_all(&ann, model::ProjectId::new(1), &local).await;
    let guest = forge.signed_in_browser("bob").await;
    let token = form_token(&guest.get("/ann/x").await.text);
    let fields = [("form_token", token.as_str()), ("note", "x")];
    let refused = guest.post("/ann/x/-/commit/master/notes", &[("sec-fetch-site", "same-origin")], &fields).await;
    assert_eq!(refused.code(), 403);
}

#[tokio::test]
async fn history_is_grouped_by_day_and_contributors_are_counted() {
    let local = LocalRepository::new();
    for number in 0..3 {
        local.commit_file("a.txt", format!("{number}\n"));
    }
    let (_forge, visitor) = forge_with_repository(&local).await;
    let history = visitor.get("/ann/rocket/-/commits/master").await;
    assert_eq!(history.text.matches("scope=\"rowgroup\"").count(), 1, "{history}");
    assert!(history.text.contains("1 February 2015") && history.text.contains("/-/graphs/master\""), "{history}");
    let page = visitor.get("/ann/rocket/-/graphs/master").await;
    for part in ["3 commits without merges, by 1 author", "<rect x=\"0\"", "Ann Author", "3 commits from 26 Jan 2015"] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(!page.text.contains("ann@example.org"), "addresses are not shown: {page}");
    assert_eq!(visitor.get("/ann/rocket/-/graphs/gone").await.code(), 404);
}

#[tokio::test]
async fn files_are_found_by_a_part_of_their_path() {
    let local = LocalRepository::new();
    local.write("src/Main.rs", "");
    local.write("src/main_test.rs", "");
    local.write("docs/<b>.md", "");
    local.commit_file("README.md", "x\n");
    let (_forge, visitor) = forge_with_repository(&local).await;
    let find = async |search: &str| visitor.get(&format!("/ann/rocket/-/find_file/master?search={search}")).await;
    let found = find("main+src").await;
    assert!(found.text.contains("2 files") && found.text.contains("/-/blob/master/src/Main.rs\""), "{found}");
    assert!(!found.text.contains("README"), "{found}");
    let hostile = find("%3Cb%3E").await;
    assert!(hostile.text.contains("&lt;b&gt;.md") && !hostile.text.contains("<b>"), "{hostile}");
    assert!(find("%00nothing").await.text.contains("No file has such a path."));
    assert!(find("").await.text.contains("4 files"));
    assert_eq!(visitor.get("/ann/rocket/-/find_file/gone").await.code(), 404);
}

#[tokio::test]
async fn drawings_are_images_and_tables_are_tables() {
    let local = LocalRepository::new();
    local.write("drawing.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>");
    local.write("data.csv", "name,count\n<b>,\"1,5\"\n");
    local.commit_file("README.md", "![d](drawing.svg)\n");
    let (_forge, visitor) = forge_with_repository(&local).await;
    let page = visitor.get("/ann/rocket/-/blob/master/drawing.svg").await;
    assert!(page.text.contains("<img src=\"/ann/rocket/-/raw/master/drawing.svg\""), "{page}");
    assert!(page.text.contains("?plain=1") && !page.text.contains("<script>"), "{page}");
    let source = visitor.get("/ann/rocket/-/blob/master/drawing.svg?plain=1").await;
    assert!(source.text.contains("id=\"L1\"") && !source.text.contains("<script>"), "{source}");
    let home = visitor.get("/ann/rocket").await;
    assert!(home.text.contains("src=\"/ann/rocket/-/raw/master/drawing.svg\""), "{home}");
    let table = visitor.get("/ann/rocket/-/blob/master/data.csv").await;
    assert!(table.text.contains("<th scope=\"col\"><bdi>count</bdi></th>"), "{table}");
    assert!(table.text.contains("<td><bdi>&lt;b&gt;</bdi></td><td><bdi>1,5</bdi></td>"), "{table}");
    assert!(visitor.get("/ann/rocket/-/blob/master/data.csv?plain=1").await.text.contains("id=\"L2\""));
}

#[tokio::test]
async fn authors_with_an_account_are_links() {
    let local = LocalRepository::new();
    local.commit_file("start.txt", "0\n");
    local.git(&["branch", "root"]);
    let first = local.commit_file("a.txt", "1\n");
    local.git(&["branch", "old"]);
    local.write("b.txt", "2\n");
    local.git(&["add", "."]);
    local.git(&["commit", "--quiet", "--message", "By somebody else", "--author", "Eve <eve@example.net>"]);
    let (forge, visitor) = forge_with_repository(&local).await;
    let link = "<a href=\"/ann\"><bdi>Ann Author</bdi></a>";
    let bob = forge.user("bob").await;
    let browser = forge.signed_in_browser("bob").await;
    // An address that a user only added proves nothing.
    assert_eq!(bob.post("/user/emails", json!({ "email": "eve@example.net" })).await.code(), 201);
    let pages = [
        "/ann/rocket/-/commits/master".to_owned(),
        format!("/ann/rocket/-/commit/{first}"),
        "/ann/rocket/-/tree/old".to_owned(),
        "/ann/rocket/-/compare/root...master".to_owned(),
        "/search?scope=commits&project=ann/rocket&search=a.txt".to_owned(),
    ];
    for page in &pages {
        let shown = browser.get(page).await;
        assert_eq!(shown.code(), 200, "{page}: {shown}");
        assert!(shown.text.contains(link), "{page}: {shown}");
        assert!(!shown.text.contains("<a href=\"/bob\"><bdi>Eve"), "{page}: {shown}");
        // Visitors who are not signed in cannot list users.
        let public = visitor.get(page).await;
        assert!(public.text.contains("<bdi>Ann Author</bdi>") && !public.text.contains(link), "{page}: {public}");
    }
    let admin = forge.admin().await;
    assert_eq!(admin.put("/users/1/block", json!({})).await.code(), 200);
    assert!(!browser.get(&pages[0]).await.text.contains(link));
}
