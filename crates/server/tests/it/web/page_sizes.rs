//! The sizes of pages and assets, compressed, against the limits.

use testkit::{LocalRepository, TestForge, TestResponse, browser::Browser};

use super::code_pages::forge_with_repository;

const MAX_HTML: usize = 50 << 10;
const MAX_CSS: usize = 20 << 10;
const MAX_SCRIPT: usize = 30 << 10;
const MAX_FIRST_VISIT: usize = 100 << 10;

const COMPRESSED: &[(&str, &str)] = &[("accept-encoding", "gzip")];

async fn get(browser: &Browser, path: &str) -> TestResponse {
    let response = browser.get_with(path, COMPRESSED).await;
    assert_eq!((response.code(), response.header("content-encoding")), (200, "gzip"), "{path}");
    response
}

fn assets(html: &str) -> Vec<String> {
    let mut urls: Vec<String> =
        html.split('"').filter(|part| part.starts_with("/assets/")).map(ToOwned::to_owned).collect();
    urls.sort();
    urls.dedup();
    urls
}

#[tokio::test]
async fn pages_and_assets_are_small() {
    let local = LocalRepository::new();
    for number in 0..400 {
        local.write(&format!("src/module_{number}.rs"), format!("pub fn function_{number}() {{}}\n"));
    }
    local.write("large.rs", include_str!("page_sizes.rs").repeat(10));
    local.commit_file(
        "README.md",
        format!("# Rocket\n\n{}", "A paragraph with **some** [links](x.md).\n\n".repeat(100)),
    );
    for number in 0..60 {
        local.commit_file(&format!("src/module_{number}.rs"), format!("pub fn function_{number}() {{ changed(); }}\n"));
    }
    let (forge, visitor) = forge_with_repository(&local).await;
    let mut table = String::new();
    for path in [
        "/explore",
        "/users/sign_in",
        "/ann",
        "/ann/rocket",
        "/ann/rocket/-/tree/master/src",
        "/ann/rocket/-/blob/master/large.rs",
        "/ann/rocket/-/commits/master",
        "/ann/rocket/-/commit/master",
        "/ann/rocket/-/branches",
        "/ann/rocket/-/compare/master~60...master",
    ] {
        let path = path.replace("master~60", &local.git(&["rev-parse", "HEAD~60"]));
        let page = get(&visitor, &path).await;
        let first_visit: usize = {
            let mut sum = page.bytes.len();
            let urls = assets(&page.text);
            assert!(urls.len() <= 3, "{urls:?}");
            for url in urls {
                sum += visitor.get_with(&url, COMPRESSED).await.bytes.len();
            }
            sum
        };
        table += &format!("{:>7} {first_visit:>7} {path}\n", page.bytes.len());
        assert!(page.bytes.len() <= MAX_HTML && first_visit <= MAX_FIRST_VISIT, "{table}");
    }
    #[expect(clippy::print_stdout, reason = "shown with --nocapture")]
    {
        println!("   html   first visit, bytes\n{table}");
    }
    drop(forge);
}

#[tokio::test]
async fn assets_are_cached_for_good_under_a_name_that_changes_with_them() {
    let forge = TestForge::start().await;
    let visitor = forge.browser();
    let page = visitor.get("/explore").await;
    let stylesheet = assets(&page.text).into_iter().find(|url| url.ends_with(".css")).expect("a stylesheet");
    let css = get(&visitor, &stylesheet).await;
    assert_eq!(css.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(css.header("content-type"), "text/css; charset=utf-8");
    assert!(css.bytes.len() <= MAX_CSS, "{}", css.bytes.len());
    let plain = visitor.get(&stylesheet).await;
    assert_eq!((plain.header("content-encoding"), &plain.text), ("", &css.text));
    let script = assets(&page.text).into_iter().find(|url| url.ends_with(".js")).expect("a script");
    let script = get(&visitor, &script).await;
    assert_eq!(script.header("content-type"), "text/javascript; charset=utf-8");
    assert!(script.bytes.len() <= MAX_SCRIPT, "{}", script.bytes.len());
    for missing in ["/assets/style.css", "/assets/style-0000000000000000.css", "/assets/../Cargo.toml"] {
        assert_eq!(visitor.get(missing).await.code(), 404, "{missing}");
    }
}
