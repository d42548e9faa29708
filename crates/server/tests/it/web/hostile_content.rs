//! Texts that try to break pages: scripts, long lines, invalid characters.

use testkit::LocalRepository;

use super::code_pages::forge_with_repository;

const HOSTILE_README: &str = "# Title <script>alert(1)</script>

<script src=\"https://evil.example/x.js\"></script>
<img src=x onerror=alert(1)>
<svg onload=alert(1)><animate onbegin=alert(1)></svg>
<style>body { display: none }</style>
<form action=\"https://evil.example\"><input name=password type=password><button>Sign in</button></form>
<iframe src=\"https://evil.example\"></iframe>
<a href=\"javascript:alert(1)\" onclick=alert(1) style=\"position:fixed\">x</a>
[y](javascript:alert(1)) [z](vbscript:x) [w](data:text/html,x)
![pixel](https://evil.example/pixel.png)
<p id=\"main\" class=\"site\">named like the page</p>

```html
<script>alert(2)</script>
```

right-to-left: \u{202e}txt.exe
";

#[tokio::test]
async fn a_hostile_readme_is_harmless() {
    let local = LocalRepository::new();
    local.write("<img src=x onerror=alert(1)>.md", "x");
    local.write("a\u{202e}gpj.exe", "x");
    local.commit_file("README.md", HOSTILE_README);
    local.git(&["commit", "--quiet", "--allow-empty", "--message", "<script>alert(3)</script> \u{202e}title"]);
    let (_forge, visitor) = forge_with_repository(&local).await;
    for path in
        ["", "/-/blob/master/README.md", "/-/blob/master/README.md?plain=1", "/-/commits/master", "/-/commit/master"]
    {
        let page = visitor.get(&format!("/ann/rocket{path}")).await;
        assert_eq!(page.code(), 200, "{path}");
        let html = page.text.to_lowercase().replace("<script defer src=\"/assets/script-", "");
        // Special elements are shown as text.
        let tags = html.split('<').filter_map(|part| part.split_once('>')).map(|(tag, _)| format!("<{tag}>"));
        let tags = tags.collect::<Vec<_>>().concat();
        assert!(!html.contains('\u{202e}'), "{page}");
        for bad in [
            "<script",
            "<svg",
            "<style",
            "<iframe",
            "<img src=x",
            "style=\"",
            "href=\"javascript",
            "href=\"vbscript",
            "href=\"data:",
            "action=\"https://evil",
            "src=\"https://evil",
            "<input name=\"password\"",
            "id=\"main\" class",
        ] {
            assert!(!tags.contains(bad), "{path} contains {bad}: {page}");
        }
        assert!(!html.contains("<img") || path.is_empty() || path.ends_with(".md"), "{path}");
        assert!(!html.split('<').any(|tag| tag.split('>').next().is_some_and(|tag| tag.contains(" on"))), "{page}");
    }
    let home = visitor.get("/ann/rocket").await;
    assert!(home.text.contains("&lt;img src=x onerror=alert(1)&gt;.md"), "{home}");
    assert!(home.text.contains("<span class=\"control\">U+202E</span>"), "{home}");
    assert!(home.text.contains("id=\"user-content-main\""), "{home}");
}

#[tokio::test]
async fn a_line_of_five_megabytes_is_not_shown() {
    let local = LocalRepository::new();
    local.write("long.js", "x".repeat(5 << 20));
    local.write("half.js", "let x = '".to_owned() + &"y".repeat(300 << 10) + "';\nlet z = 1;\n");
    local.commit_file("README.md", "long ".repeat(200 << 10));
    let (_forge, visitor) = forge_with_repository(&local).await;
    let page = visitor.get("/ann/rocket/-/blob/master/long.js").await;
    assert!(page.text.contains("too large to be shown") && page.text.contains("5.0 MB"), "{}", page.code());
    assert!(page.text.len() < 10_000);
    let raw = visitor.get("/ann/rocket/-/raw/master/long.js").await;
    assert_eq!((raw.code(), raw.bytes.len()), (200, 5 << 20));
    // A long line in a smaller file is shown without colours.
    let page = visitor.get("/ann/rocket/-/blob/master/half.js").await;
    assert!(page.code() == 200 && page.text.len() < 400 << 10);
    assert_eq!(visitor.get("/ann/rocket").await.code(), 200);
    assert_eq!(visitor.get("/ann/rocket/-/commit/master").await.code(), 200);
}

#[tokio::test]
async fn a_large_file_stays_within_the_limits() {
    let local = LocalRepository::new();
    local.write("many.rs", "let x = 1;\n".repeat(20_000));
    local.write("more.rs", "x\n".repeat(20_001));
    local.commit_file("README.md", "x");
    let (_forge, visitor) = forge_with_repository(&local).await;
    let page = visitor.get("/ann/rocket/-/blob/master/many.rs").await;
    assert!(page.text.contains("id=\"L20000\""), "{}", page.code());
    assert!(visitor.get("/ann/rocket/-/blob/master/more.rs").await.text.contains("too large to be shown"));
}

#[tokio::test]
async fn invalid_text_is_shown_with_replacement_characters() {
    let local = LocalRepository::new();
    local.write("latin1.txt", b"caf\xe9 \xff\xfe\n");
    local.write("control.txt", b"a\x1b[31mred\x07\r\n");
    local.commit_file("README.md", "# caf\u{e9}");
    local.write("README.md", b"# broken \xe9\xff\n");
    local.git(&["commit", "--quiet", "--all", "--message", "broken"]);
    let (_forge, visitor) = forge_with_repository(&local).await;
    let page = visitor.get("/ann/rocket/-/blob/master/latin1.txt").await;
    assert!(page.text.contains("caf\u{fffd} \u{fffd}\u{fffd}"), "{page}");
    let page = visitor.get("/ann/rocket/-/blob/master/control.txt").await;
    assert!(page.text.contains("a\u{fffd}[31mred\u{fffd}"), "{page}");
    let home = visitor.get("/ann/rocket").await;
    assert!(home.text.contains("broken \u{fffd}\u{fffd}"), "{home}");
    assert_eq!(visitor.get("/ann/rocket/-/commit/master").await.code(), 200);
}
