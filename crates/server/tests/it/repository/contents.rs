//! Contents of a repository: trees, raw files, archives, comparisons, contributors.

use std::{
    fs,
    io::{Cursor, Read as _, Write as _},
    os::unix::ffi::OsStrExt as _,
    process::{Command, Stdio},
};

use api::Dialect;
use axum::http::Method;
use forge::{ProjectRef, Unvalidated, contents};
use insta::assert_snapshot;
use model::{ProjectId, objects::ArchiveFormat};
use serde_json::{Value, json};
use testkit::{LocalRepository, TestForge, TestResponse};

use crate::repository::branches::RepositoryFixture;

const PROJECT: ProjectId = ProjectId::new(1);
const REPOSITORY: &str = "/projects/1/repository";

fn texts(list: &Value, field: &str) -> Vec<String> {
    let items = list.as_array().expect("a list");
    items.iter().map(|item| item[field].as_str().unwrap_or("-").to_owned()).collect()
}

#[tokio::test]
async fn an_empty_repository_has_no_contents() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "x" })).await;
    let mut table = String::new();
    let branch = json!({ "branch_name": "b", "ref": "master" });
    let tag = json!({ "tag_name": "t", "ref": "master" });
    for (method, path, body) in [
        ("GET", "branches", json!({})),
        ("GET", "branches/x", json!({})),
        ("POST", "branches", branch),
        ("DELETE", "branches/x", json!({})),
        ("PUT", "branches/x/protect", json!({})),
        ("GET", "tags", json!({})),
        ("GET", "tags/x", json!({})),
        ("POST", "tags", tag),
        ("DELETE", "tags/x", json!({})),
        ("POST", "tags/x/release", json!({ "description": "d" })),
        ("GET", "tree", json!({})),
        ("GET", "blobs/x?filepath=y", json!({})),
        ("GET", "raw_blobs/x", json!({})),
        ("GET", "archive", json!({})),
        ("GET", "compare?from=a&to=b", json!({})),
        ("GET", "contributors", json!({})),
        ("GET", "commits", json!({})),
        ("GET", "commits/x", json!({})),
        ("GET", "files?file_path=x&ref=y", json!({})),
        ("DELETE", "merged_branches", json!({})),
    ] {
        let answer = ann.json(method.parse().expect("a method"), &format!("{REPOSITORY}/{path}"), body).await;
        table += &format!("{method:<7}{path:<26}{} {}\n", answer.code(), answer.text);
    }
    assert_snapshot!(table, @r#"
    GET    branches                  200 []
    GET    branches/x                404 {"message":"404 Branch Not Found"}
    POST   branches                  400 {"message":"Invalid reference name"}
    DELETE branches/x                404 {"message":"No such branch"}
    PUT    branches/x/protect        404 {"message":"404 Branch Not Found"}
    GET    tags                      200 []
    GET    tags/x                    404 {"message":"404 Tag Not Found"}
    POST   tags                      405 {"message":"Target master is invalid"}
    DELETE tags/x                    404 {"message":"No such tag"}
    POST   tags/x/release            404 {"message":"Tag does not exist"}
    GET    tree                      404 {"message":"404 Tree Not Found"}
    GET    blobs/x?filepath=y        404 {"message":"404 Commit Not Found"}
    GET    raw_blobs/x               404 {"message":"404 Blob Not Found"}
    GET    archive                   404 {"message":"404 File Not Found"}
    GET    compare?from=a&to=b       404 {"message":"404 Ref Not Found"}
    GET    contributors              404 {"message":"404 Not Found"}
    GET    commits                   200 []
    GET    commits/x                 404 {"message":"404 Commit Not Found"}
    GET    files?file_path=x&ref=y   404 {"message":"404 Commit Not Found"}
    DELETE merged_branches           200 200
    "#);
    let first = json!({ "file_path": "a", "branch_name": "trunk", "content": "c", "commit_message": "m" });
    assert_eq!(ann.post(&format!("{REPOSITORY}/files"), first).await.code(), 201);
    assert_eq!(ann.get("/projects/1").await.json()["default_branch"], "trunk");
    assert_eq!(ann.get(&format!("{REPOSITORY}/tree")).await.join_field("name"), "a");
}

#[tokio::test]
async fn a_folder_lists_folders_then_files_then_submodules() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    local.write("a-file", "x");
    local.write("b/deep/c", "x");
    local.write("run.sh", "#!\n");
    std::os::unix::fs::symlink("README.md", local.path().join("link")).expect("a link");
    local.git(&["add", "--all"]);
    local.git(&["update-index", "--chmod=+x", "run.sh"]);
    local.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},module", commits[0])]);
    local.git(&["commit", "--quiet", "--message", "all kinds"]);
    forge.push_all(ann, PROJECT, local).await;
    let tree = ann.get(&format!("{REPOSITORY}/tree")).await.json();
    assert_eq!(texts(&tree, "name").join(" "), "b src README.md a-file link run.sh module");
    assert_eq!(texts(&tree, "type").join(" "), "tree tree blob blob blob blob commit");
    assert_eq!(texts(&tree, "mode").join(" "), "040000 040000 100644 100644 120000 100755 160000");
    assert_eq!(tree[6]["id"], json!(commits[0]));
    let all = ann.get(&format!("{REPOSITORY}/tree?recursive=true")).await.json();
    assert_eq!(texts(&all, "path").join(" "), "b b/deep src README.md a-file b/deep/c link run.sh src/main.rs module");
    for (path, expected) in [
        ("b", "b/deep"),
        ("b/", "b/deep"),
        ("/b/deep/", "b/deep/c"),
        ("", "b src README.md a-file link run.sh module"),
        ("/", "b src README.md a-file link run.sh module"),
        ("README.md", ""),
        ("nowhere", ""),
        ("../b", ""),
        ("-x", ""),
        ("link", ""),
        ("module", ""),
    ] {
        let tree = ann.get(&format!("{REPOSITORY}/tree?path={path}")).await;
        assert_eq!((tree.code(), texts(&tree.json(), "path").join(" ")), (200, expected.to_owned()), "{path}");
    }
    // Only the name of a file and the target of a link are visible.
    assert_eq!(ann.get(&format!("{REPOSITORY}/blobs/master?filepath=link")).await.text, "README.md");
    assert_eq!(ann.get(&format!("{REPOSITORY}/blobs/master?filepath=module")).await.code(), 404);
    assert_eq!(ann.get(&format!("{REPOSITORY}/tree?ref_name={}", commits[0])).await.join_field("name"), "README.md");
    let unknown = ann.get(&format!("{REPOSITORY}/tree?ref_name=nowhere")).await;
    assert_eq!((unknown.code(), unknown.json()), (404, json!({ "message": "404 Tree Not Found" })));
    assert_eq!(ann.get(&format!("{REPOSITORY}/tree?recursive=perhaps")).await.code(), 400);
}

#[tokio::test]
async fn a_large_folder_is_listed_in_pages() {
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let fixture = RepositoryFixture::start_with_dialect(dialect).await;
        let RepositoryFixture { forge, ann, local, .. } = &fixture;
        for number in 0..45 {
            local.write(&format!("many/{number:02}"), "x");
        }
        local.commit("many");
        forge.push_all(ann, PROJECT, local).await;
        let first = ann.get(&format!("{REPOSITORY}/tree?path=many")).await;
        let shown = if dialect == Dialect::Spec { 20 } else { 45 };
        assert_eq!((first.json().as_array().map(Vec::len), first.header("x-total")), (Some(shown), "45"));
        for recursive in [false, true] {
            let path = format!("{REPOSITORY}/tree?path=many&page=3&per_page=20&recursive={recursive}");
            assert_eq!(ann.get(&path).await.join_field("name"), "40 41 42 43 44");
        }
    }
}

#[tokio::test]
async fn a_file_is_sent_unchanged() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    let binary: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    local.write("bin", &binary);
    local.write("dir/ä b.txt", "crlf\r\n\u{fffd}");
    local.write("empty", "");
    local.commit("files");
    local.git(&["branch", "feature/x.y"]);
    forge.push_all(ann, PROJECT, local).await;
    let sent = ann.get(&format!("{REPOSITORY}/blobs/master?filepath=bin")).await;
    assert_eq!((sent.code(), sent.header("content-type"), sent.header("content-length")), (200, "text/plain", "70000"));
    assert_eq!(sent.bytes, binary);
    for path in [
        "blobs/feature%2Fx.y?filepath=dir/%C3%A4%20b.txt",
        "blobs/master?filepath=/dir/%C3%A4+b.txt",
        "commits/feature%2Fx.y/blob?filepath=dir%2F%C3%A4%20b.txt",
    ] {
        assert_eq!(ann.get(&format!("{REPOSITORY}/{path}")).await.bytes, "crlf\r\n\u{fffd}".as_bytes(), "{path}");
    }
    let empty = ann.get(&format!("{REPOSITORY}/blobs/master?filepath=empty")).await;
    assert_eq!((empty.code(), empty.header("content-length"), empty.bytes.len()), (200, "0", 0));
    assert_eq!(ann.get(&format!("{REPOSITORY}/blobs/{}?filepath=README.md", &commits[0][..7])).await.text, "one\n");
    let cases = [
        ("blobs/nowhere?filepath=bin", 404, json!({ "message": "404 Commit Not Found" })),
        ("blobs/master?filepath=nowhere", 404, json!({ "message": "404 File Not Found" })),
        ("blobs/master?filepath=dir", 404, json!({ "message": "404 File Not Found" })),
        ("blobs/master?filepath=bin/x", 404, json!({ "message": "404 File Not Found" })),
        ("blobs/master?filepath=../bin", 404, json!({ "message": "404 File Not Found" })),
        ("blobs/master?filepath=", 404, json!({ "message": "404 File Not Found" })),
        ("blobs/master", 400, json!({ "error": "filepath is missing" })),
        ("blobs/master?filepath=%00", 400, json!({ "error": "filepath is invalid" })),
        ("blobs/master?filepath=%ff", 400, json!({ "error": "filepath is invalid" })),
        ("raw_blobs/nowhere", 404, json!({ "message": "404 Blob Not Found" })),
        ("raw_blobs/master", 404, json!({ "message": "404 Blob Not Found" })),
    ];
    for (path, code, body) in cases {
        let answer = ann.get(&format!("{REPOSITORY}/{path}")).await;
        assert_eq!((answer.code(), answer.json()), (code, body), "{path}");
    }
    let id = local.git(&["rev-parse", "HEAD:bin"]);
    assert_eq!(ann.get(&format!("{REPOSITORY}/raw_blobs/{id}")).await.bytes, binary);
    assert_eq!(ann.get(&format!("{REPOSITORY}/raw_blobs/{}", &id[..10])).await.bytes, binary);
    assert_eq!(ann.get(&format!("{REPOSITORY}/raw_blobs/{}", commits[0])).await.code(), 404, "a commit is no file");
}

/// Browsers must not execute the content of a file.
#[tokio::test]
async fn a_file_is_always_sent_as_text() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    let page = "<html><script>alert(1)</script></html>";
    for name in ["x.html", "x.svg", "x.js", "x.pdf", "x.ipynb"] {
        local.write(name, page);
    }
    local.commit("hostile");
    forge.push_all(ann, PROJECT, local).await;
    let id = local.git(&["rev-parse", "HEAD:x.html"]);
    let mut answers: Vec<TestResponse> = vec![ann.get(&format!("{REPOSITORY}/raw_blobs/{id}")).await];
    for name in ["x.html", "x.svg", "x.js", "x.pdf", "x.ipynb"] {
        answers.push(ann.get(&format!("{REPOSITORY}/blobs/master?filepath={name}")).await);
    }
    for answer in answers {
        assert_eq!((answer.code(), answer.text.as_str()), (200, page));
        assert_eq!(answer.header("content-type"), "text/plain");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("content-security-policy"), "default-src 'none'; sandbox");
        assert_eq!(answer.header("cache-control"), "private, no-cache");
    }
    let archive = ann.get(&format!("{REPOSITORY}/archive.zip")).await;
    assert_eq!(archive.header("x-content-type-options"), "nosniff");
    assert!(archive.header("content-disposition").starts_with("attachment; "));
}

#[tokio::test]
async fn a_cached_file_is_not_sent_again() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    local.write("large", vec![b'x'; 3 << 20]);
    local.commit("large");
    forge.push_all(ann, PROJECT, local).await;
    for name in ["README.md", "large"] {
        let path = format!("{REPOSITORY}/blobs/master?filepath={name}");
        let tag = format!("\"{}\"", local.git(&["rev-parse", &format!("HEAD:{name}")]));
        let known = ann.get_with(&path, &[("if-none-match", &tag)]).await;
        assert_eq!((known.code(), known.text.as_str(), known.header("etag")), (304, "", tag.as_str()));
        let other = ann.get_with(&path, &[("if-none-match", "\"other\"")]).await;
        assert_eq!((other.code(), other.header("etag")), (200, tag.as_str()));
        let head = ann.head(&path).await;
        assert_eq!((head.code(), head.bytes.len()), (200, 0));
        assert_eq!(head.header("content-length"), other.header("content-length"));
    }
    assert_eq!(forge.anonymous().head(&format!("{REPOSITORY}/blobs/master?filepath=large")).await.code(), 404);
}

#[tokio::test]
async fn a_large_file_is_sent_completely_to_concurrent_clients() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    let large: Vec<u8> = (0_u32..1 << 20).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    local.write("large", &large);
    local.commit("large");
    forge.push_all(ann, PROJECT, local).await;
    let path = format!("{REPOSITORY}/blobs/master?filepath=large");
    let responses = futures_util::future::join_all((0..8).map(|_| ann.get(&path))).await;
    for sent in responses {
        assert_eq!((sent.code(), sent.header("content-length")), (200, "4194304"));
        assert!(sent.bytes == large, "all of it, in order");
    }
    // The content is also available embedded in JSON.
    let file = ann.get(&format!("{REPOSITORY}/files?ref=master&file_path=large")).await.json();
    assert_eq!(file["size"], json!(4_194_304));
}

fn members_of_tar(bytes: &[u8], filter: &[&str]) -> Vec<String> {
    let mut tar = Command::new("tar")
        .args(filter)
        .args(["-t", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar is installed");
    let mut input = tar.stdin.take().expect("a pipe");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = tar.wait_with_output().expect("ended");
    let _ = writer.join();
    assert!(output.status.success(), "an archive");
    String::from_utf8_lossy(&output.stdout).lines().map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn archives_have_four_formats() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, commits, .. } = &fixture;
    let name = format!("x-master-{}", commits[1]);
    let expected =
        [format!("{name}/"), format!("{name}/README.md"), format!("{name}/src/"), format!("{name}/src/main.rs")];
    for (endings, extension, filter) in [
        (&["", ".tar.gz", ".tgz", ".gz", "?format=tar.gz"][..], "tar.gz", "-z"),
        (&[".tar.bz2", ".tbz", ".tbz2", ".tb2", ".bz2", "?format=tar.bz2"], "tar.bz2", "-j"),
        (&[".tar", "?format=tar"], "tar", "--no-auto-compress"),
    ] {
        for ending in endings {
            let archive = ann.get(&format!("{REPOSITORY}/archive{ending}")).await;
            assert_eq!((archive.code(), archive.header("content-type")), (200, "application/octet-stream"), "{ending}");
            let disposition = format!("attachment; filename=\"{name}.{extension}\"");
            assert_eq!(archive.header("content-disposition"), disposition);
            assert_eq!(archive.header("content-transfer-encoding"), "binary");
            assert_eq!(archive.header("cache-control"), "private");
            assert_eq!(members_of_tar(&archive.bytes, &[filter]), expected, "{ending}");
        }
    }
    let zip = ann.get(&format!("{REPOSITORY}/archive.zip")).await;
    assert_eq!(zip.header("content-type"), "application/zip");
    let mut zip = zip::ZipArchive::new(Cursor::new(zip.bytes)).expect("a zip file");
    let mut text = String::new();
    let mut readme = zip.by_name(&format!("{name}/README.md")).expect("in it");
    readme.read_to_string(&mut text).expect("read");
    assert_eq!(text, "one\n");
}

#[tokio::test]
async fn an_archive_is_named_after_the_requested_revision() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    local.git(&["branch", "feature/x.y", &commits[0]]);
    local.git(&["branch", "qu\"ote\u{e4}", &commits[0]]);
    local.git(&["tag", "-a", "v1", "-m", "m", &commits[0]]);
    forge.push_all(ann, PROJECT, local).await;
    let first = &commits[0];
    for (sha, expected) in [
        ("feature%2Fx.y", format!("filename=\"x-feature-x.y-{first}.tar.gz\"")),
        ("v1", format!("filename=\"x-v1-{first}.tar.gz\"")),
        (first, format!("filename=\"x-{first}-{first}.tar.gz\"")),
        (
            "qu%22ote%C3%A4",
            format!("filename=\"x-qu-ote_-{first}.tar.gz\"; filename*=UTF-8''x-qu-ote%C3%A4-{first}.tar.gz"),
        ),
    ] {
        let archive = ann.get(&format!("{REPOSITORY}/archive?sha={sha}")).await;
        assert_eq!(archive.header("content-disposition"), format!("attachment; {expected}"));
    }
    let folder = &members_of_tar(&ann.get(&format!("{REPOSITORY}/archive.tar?sha=feature/x.y")).await.bytes, &[])[0];
    assert_eq!(*folder, format!("x-feature-x.y-{first}/"));
    let unknown = ann.get(&format!("{REPOSITORY}/archive?sha=nowhere")).await;
    assert_eq!((unknown.code(), unknown.json()), (404, json!({ "message": "404 File Not Found" })));
    assert_eq!(ann.get(&format!("{REPOSITORY}/archive.rar")).await.json(), json!({ "error": "404 Not Found" }));
    let format = ann.get(&format!("{REPOSITORY}/archive?format=rar")).await;
    assert_eq!((format.code(), format.json()), (400, json!({ "error": "format does not have a valid value" })));
}

#[tokio::test]
async fn the_second_download_of_an_archive_is_cached() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, .. } = &fixture;
    let first = ann.get(&format!("{REPOSITORY}/archive")).await;
    let second = ann.get(&format!("{REPOSITORY}/archive")).await;
    assert_eq!(first.bytes, second.bytes);
    assert_eq!(second.header("content-length"), second.bytes.len().to_string());
    let head = ann.head(&format!("{REPOSITORY}/archive")).await;
    assert_eq!((head.code(), head.bytes.len()), (200, 0));
    assert_eq!(head.header("content-disposition"), first.header("content-disposition"));
}

#[tokio::test]
async fn few_archives_are_made_at_once_and_nothing_else_waits_for_them() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, commits, .. } = &fixture;
    let held = contents::download_slot(&forge.forge).await.expect("free");
    let also = contents::download_slot(&forge.forge).await.expect("free");
    // Two clients request the same archive, and one requests another.
    let path = format!("{REPOSITORY}/archive.tar");
    let (first, second) = tokio::join!(ann.get(&path), ann.get(&path));
    for refused in [first, second] {
        assert_eq!((refused.code(), refused.header("retry-after")), (503, "1"), "{refused}");
        assert_eq!(refused.json(), json!({ "message": "503 Service Unavailable" }));
    }
    // Other blocking work has its own threads.
    let compared = ann.get(&format!("{REPOSITORY}/compare?from={}&to={}", commits[0], commits[1])).await;
    assert_eq!(compared.code(), 200, "{compared}");
    let waiting = tokio::spawn({
        let (ann, path) = (ann.clone(), path.clone());
        async move { ann.get(&path).await }
    });
    tokio::task::yield_now().await;
    drop(held);
    let made = waiting.await.expect("no panic");
    assert_eq!(made.code(), 200, "{made}");
    assert_eq!(members_of_tar(&made.bytes, &[]).len(), 4);
    // A cached archive needs no slot.
    let held = contents::download_slot(&forge.forge).await.expect("free");
    assert_eq!(ann.get(&path).await.bytes, made.bytes);
    drop((held, also));
}

#[tokio::test]
async fn a_comparison_starts_at_the_merge_base() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    local.git(&["switch", "--quiet", "--create", "topic"]);
    local.write("README.md", "one\ntwo\n");
    let first = local.commit("Say more");
    local.git(&["mv", "src/main.rs", "src/lib.rs"]);
    local.write("bin", [0, 1, 2]);
    fs::remove_file(local.path().join("README.md")).expect("removed");
    let second = local.commit("Move");
    local.git(&["switch", "--quiet", "master"]);
    local.commit_file("elsewhere", "not in the comparison\n");
    forge.push_all(ann, PROJECT, local).await;
    let compared = ann.get(&format!("{REPOSITORY}/compare?from=master&to=%20topic%20")).await.json();
    assert_eq!(texts(&compared["commits"], "id"), [first.clone(), second.clone()]);
    assert_eq!(compared["commit"], compared["commits"][1]);
    assert_eq!((&compared["compare_timeout"], &compared["compare_same_ref"]), (&json!(false), &json!(false)));
    assert_snapshot!(serde_json::to_string_pretty(&compared["diffs"]).expect("JSON"), @r#"
    [
      {
        "old_path": "README.md",
        "new_path": "README.md",
        "a_mode": "100644",
        "b_mode": "0",
        "diff": "--- a/README.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n",
        "new_file": false,
        "renamed_file": false,
        "deleted_file": true
      },
      {
        "old_path": "bin",
        "new_path": "bin",
        "a_mode": "0",
        "b_mode": "100644",
        "diff": "Binary files /dev/null and b/bin differ\n",
        "new_file": true,
        "renamed_file": false,
        "deleted_file": false
      },
      {
        "old_path": "src/main.rs",
        "new_path": "src/lib.rs",
        "a_mode": "100644",
        "b_mode": "100644",
        "diff": "",
        "new_file": false,
        "renamed_file": true,
        "deleted_file": false
      }
    ]
    "#);
    let added = ann.get(&format!("{REPOSITORY}/compare?from={}&to={first}", commits[1])).await.json();
    assert_eq!(added["diffs"][0]["diff"], "--- a/README.md\n+++ b/README.md\n@@ -1 +1,2 @@\n one\n+two\n");
    let nothing = |same: bool| json!({ "commit": null, "commits": [], "diffs": [], "compare_timeout": false, "compare_same_ref": same });
    for (from, to, expected) in [("master", "master", nothing(true)), ("topic", commits[0].as_str(), nothing(false))] {
        let answer = ann.get(&format!("{REPOSITORY}/compare?from={from}&to={to}")).await;
        assert_eq!((answer.code(), answer.json()), (200, expected), "{from} {to}");
    }
    for (from, to) in [("nowhere", "master"), ("master", "nowhere"), ("--help", "-x")] {
        let answer = ann.get(&format!("{REPOSITORY}/compare?from={from}&to={to}")).await;
        assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Ref Not Found"}"#), "{from} {to}");
    }
    let missing = ann.get(&format!("{REPOSITORY}/compare")).await;
    assert_eq!((missing.code(), missing.json()), (400, json!({ "error": "from is missing, to is missing" })));
    let summary = &compared["commits"][0];
    assert_eq!(summary["short_id"], json!(first[..8]));
    assert_eq!((&summary["title"], &summary["message"]), (&json!("Say more"), &json!("Say more\n")));
}

#[tokio::test]
async fn in_the_dialect_gitlab_a_comparison_with_an_unknown_ref_is_empty() {
    let fixture = RepositoryFixture::start_with_dialect(Dialect::Gitlab).await;
    for (from, to) in [("nowhere", "master"), ("master", "nowhere")] {
        let answer = fixture.ann.get(&format!("{REPOSITORY}/compare?from={from}&to={to}")).await;
        assert_eq!(
            (answer.code(), answer.text.as_str()),
            (200, r#"{"commit":null,"commits":[],"diffs":[],"compare_timeout":false,"compare_same_ref":false}"#)
        );
    }
}

#[tokio::test]
async fn contributors_are_ordered_by_their_newest_commits() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    local.git(&["switch", "--quiet", "--create", "side"]);
    local.commit_file("side", "x");
    local.git(&["switch", "--quiet", "master"]);
    local.write("b", "x");
    local.git(&["add", "--all"]);
    local.git(&["commit", "--quiet", "--message", "by Bob", "--author", "Bob <bob@example.org>"]);
    local.git(&["merge", "--quiet", "--no-ff", "--message", "merge", "side"]);
    forge.push_all(ann, PROJECT, local).await;
    assert_snapshot!(ann.get(&format!("{REPOSITORY}/contributors")).await, @r#"
    200 OK
    [{"name":"Bob","email":"bob@example.org","commits":1,"additions":0,"deletions":0},{"name":"Ann Author","email":"ann@example.org","commits":3,"additions":0,"deletions":0}]
    "#);
    let page = ann.get(&format!("{REPOSITORY}/contributors?page=2&per_page=1")).await;
    assert_eq!((page.join_field("email").as_str(), page.header("x-total")), ("ann@example.org", "2"));
}

#[tokio::test]
async fn invalid_utf_8_is_replaced() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(local.path().join(name), b"\xff\xfe\n").expect("written");
    local.git(&["add", "--all"]);
    local.git(&["-c", "i18n.commitEncoding=UTF-8", "commit", "--quiet", "--message", "latin"]);
    forge.push_all(ann, PROJECT, local).await;
    let tree = ann.get(&format!("{REPOSITORY}/tree")).await;
    assert_eq!(texts(&tree.json(), "name").join(" "), "src README.md caf\u{fffd}.txt");
    let id = tree.json()[2]["id"].clone();
    let raw = ann.get(&format!("{REPOSITORY}/raw_blobs/{}", id.as_str().expect("an id"))).await;
    assert_eq!(raw.bytes, b"\xff\xfe\n");
    let diff = ann.get(&format!("{REPOSITORY}/commits/master/diff")).await.json();
    assert_eq!(diff[0]["new_path"], "caf\u{fffd}.txt");
}

/// No name or number in a request may cause unbounded work.
#[tokio::test]
async fn requests_with_hostile_names_and_numbers_end_soon() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, .. } = &fixture;
    let (long, deep) = ("x".repeat(8_000), "a/".repeat(3_000));
    for path in [
        "tree?path=DEEP",
        "tree?ref_name=LONG",
        "tree?ref_name=master%5E%5E%5E%5E%5E%5E%5E%5E",
        "tree?ref_name=master~99999999999",
        "tree?page=2147483647&per_page=100",
        "branches?page=2147483647&per_page=9223372036854775807",
        "branches/LONG",
        "tags/DEEP",
        "blobs/LONG?filepath=DEEP",
        "raw_blobs/LONG",
        "archive?sha=LONG",
        "compare?from=LONG&to=LONG",
        "commits?page=2147483647&per_page=100",
        "commits?path=DEEP&since=0000-01-01T00:00:00Z",
        "commits/%00",
        "commits/a%0Ab",
        "commits/LONG/diff",
        "contributors?page=2147483647",
        "files?ref=LONG&file_path=DEEP",
        "commits?ref_name=:/x",
        "commits?ref_name=@%7B1%7D",
        "commits?ref_name=master@%7Bupstream%7D",
    ] {
        let responses = path.replace("LONG", &long).replace("DEEP", &deep);
        let answer = ann.get(&format!("{REPOSITORY}/{responses}")).await;
        assert!(answer.code() < 500, "{path}: {} {:.200}", answer.code(), answer.text);
    }
}

#[tokio::test]
async fn code_of_public_projects_is_public_and_of_private_ones_for_reporters() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, .. } = &fixture;
    let (guest, reporter, stranger) =
        (forge.user("guest").await, forge.user("reporter").await, forge.user("stranger").await);
    for (member, level) in [(&guest, 10), (&reporter, 20)] {
        ann.make("/projects/1/members", json!({ "user_id": member.id.get(), "access_level": level })).await;
    }
    let paths = [
        "tree",
        "blobs/master?filepath=README.md",
        "archive",
        "compare?from=master&to=master",
        "contributors",
        "files?ref=master&file_path=README.md",
    ];
    for (visibility, expected) in [(0, [404, 404, 403, 200]), (10, [404, 200, 200, 200]), (20, [200; 4])] {
        ann.put("/projects/1", json!({ "name": "x", "visibility_level": visibility })).await;
        for path in paths {
            let path = format!("{REPOSITORY}/{path}");
            let mut codes = Vec::new();
            for client in [&forge.anonymous(), &stranger, &guest, &reporter] {
                codes.push(client.get(&path).await.code());
            }
            assert_eq!(codes, expected, "{visibility} {path}");
        }
    }
    // Malformed parameters are reported last.
    ann.put("/projects/1", json!({ "name": "x", "visibility_level": 0 })).await;
    assert_eq!(guest.get(&format!("{REPOSITORY}/compare")).await.code(), 403);
    assert_eq!(reporter.get(&format!("{REPOSITORY}/compare")).await.code(), 400);
    assert_eq!(reporter.json(Method::POST, &format!("{REPOSITORY}/tree"), json!({})).await.code(), 405);
}

#[tokio::test]
async fn a_cached_archive_is_never_of_another_project() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, .. } = &fixture;
    let eve = forge.user("eve").await;
    let own = ProjectId::new(eve.make("/projects", json!({ "name": "x" })).await);
    let local = LocalRepository::new();
    local.commit_file("mine", "x");
    forge.push_all(&eve, own, &local).await;
    assert_eq!(ann.get(&format!("{REPOSITORY}/archive.tar")).await.code(), 200);
    assert_eq!(eve.get(&format!("{REPOSITORY}/archive.tar")).await.code(), 404);
    let members = members_of_tar(&eve.get(&format!("/projects/{own}/repository/archive.tar")).await.bytes, &[]);
    assert!(members[1].ends_with("/mine"), "{members:?}");
}

#[tokio::test]
async fn an_abandoned_download_does_not_affect_the_next() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    let noise: Vec<u8> = (0_u32..1 << 20).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    local.write("noise", &noise);
    let commit = local.commit("noise");
    forge.push_all(ann, PROJECT, local).await;
    let caller = || forge::Caller::with_tokens(ann.token.as_deref());
    for _ in 0..3 {
        let options = Unvalidated::valid((Some("master".to_owned()), ArchiveFormat::Tar));
        let find = move |tx: &mut forge::ReadTx<'_>| contents::archive(tx, &ProjectRef::Id(PROJECT), &options);
        let archive = forge.forge.read(caller(), find).await.expect("an archive");
        assert_eq!(
            (archive.commit.to_string(), archive.name.as_str()),
            (commit.clone(), &*format!("x-master-{commit}"))
        );
        drop(contents::read_archive(&forge.forge, archive).await.expect("a beginning"));
    }
    let whole = ann.get(&format!("{REPOSITORY}/archive.tar")).await;
    assert!(whole.bytes.len() > noise.len(), "{}", whole.bytes.len());
    assert_eq!(members_of_tar(&whole.bytes, &[]).len(), 5);
    assert_eq!(ann.get(&format!("{REPOSITORY}/archive.tar?sha={}", commits[0])).await.code(), 200);
}
