//! Differences on the pages of commits and comparisons.

use testkit::LocalRepository;

use super::code_pages::forge_with_repository;

#[tokio::test]
async fn changed_words_renames_modes_and_images_are_shown() {
    let local = LocalRepository::new();
    local.write("main.rs", "fn main() {\n    call(one, two);\n}\n");
    local.write("old name.txt", "1\n2\n3\n4\n");
    local.write("image.png", [0_u8, 1, 2]);
    local.write("drawing.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n");
    local.write("run.sh", "#!/bin/sh\n");
    local.write("gone.txt", "x\n");
    let first = local.commit("First");
    local.write("main.rs", "fn main() {\n    call(one, 2, three);\n    more();\n}\n");
    local.git(&["mv", "old name.txt", "new <name>.txt"]);
    local.write("image.png", [0_u8, 3, 4]);
    local.write("drawing.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>\n");
    std::fs::remove_file(local.path().join("gone.txt")).expect("removed");
    local.git(&["add", "--all"]);
    local.git(&["update-index", "--chmod=+x", "run.sh"]);
    local.git(&["commit", "--quiet", "--message", "Second"]);
    let second = local.git(&["rev-parse", "HEAD"]);
    let (_forge, visitor) = forge_with_repository(&local).await;
    for path in [format!("commit/{second}"), format!("compare/{first}...{second}")] {
        let page = visitor.get(&format!("/ann/rocket/-/{path}")).await;
        assert_eq!(page.code(), 200, "{page}");
        for part in [
            "call(one, <del>two</del>);",
            "call(one, <ins>2, three</ins>);",
            "<bdi>old name.txt</bdi> → <bdi>new &lt;name&gt;.txt</bdi> <span class=\"muted\">renamed</span>",
            "mode changed 100644 → 100755",
            &format!("<img src=\"/ann/rocket/-/raw/{first}/image.png\""),
            &format!("<img src=\"/ann/rocket/-/raw/{second}/image.png\""),
            &format!("<img src=\"/ann/rocket/-/raw/{second}/drawing.svg\""),
            "<a href=\"#file-1\">",
            "<details open><summary>",
            "href=\"?w=1\"",
            "&lt;script&gt;",
        ] {
            assert!(page.text.contains(part), "{part}: {page}");
        }
        assert!(!page.text.contains("<script>"), "{page}");
        assert!(!page.text.contains("aria-label=\"View file gone.txt\""), "{page}");
    }
}

#[tokio::test]
async fn changes_of_white_space_can_be_hidden() {
    let local = LocalRepository::new();
    local.write("a.txt", "one\ntwo\nthree\n");
    local.commit_file("b.txt", "x y\n");
    local.write("a.txt", "    one\ntwo\nfour\n");
    let second = local.commit_file("b.txt", "x  y\n");
    let (_forge, visitor) = forge_with_repository(&local).await;
    let all = visitor.get(&format!("/ann/rocket/-/commit/{second}")).await;
    assert!(all.text.contains("<ins>    </ins>one") && all.text.contains("three"), "{all}");
    let hidden = visitor.get(&format!("/ann/rocket/-/commit/{second}?w=1")).await;
    assert!(!hidden.text.contains("<ins>    </ins>") && hidden.text.contains("four"), "{hidden}");
    assert!(hidden.text.contains("Only white space was changed.") && hidden.text.contains("href=\"?w=0\""), "{hidden}");
}

#[tokio::test]
async fn a_difference_of_300_files_is_shown() {
    let local = LocalRepository::new();
    for version in 0..2 {
        for number in 0..300 {
            let lines: Vec<String> = (0..8).map(|line| format!("let value_{line} = {};\n", line * version)).collect();
            local.write(&format!("src/file_{number}.rs"), format!("// {number}\n{}", lines.concat()));
        }
        local.commit(&format!("Version {version}"));
    }
    let (_forge, visitor) = forge_with_repository(&local).await;
    let page = visitor.get("/ann/rocket/-/commit/master").await;
    assert!(page.text.contains("id=\"file-300\"") && page.text.contains("300 changed files"), "{}", page.code());
}
