//! How a runner and a server get to know each other.

use runner::{Error, Registration, read_token, register, unregister, verify, write_token};

use crate::server::{REGISTRATION, RUNNER, Server};

fn wishes(tags: &[&str], run_untagged: bool) -> Registration {
    Registration {
        description: "a machine".to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        run_untagged,
        locked: false,
    }
}

#[tokio::test]
async fn a_runner_registers_is_verified_and_leaves() {
    let server = Server::start().await;
    let token = register(&server.url, REGISTRATION, &wishes(&["a", "b"], false)).await.expect("registered");
    assert_eq!(token, RUNNER);
    verify(&server.url, &token).await.expect("known");
    unregister(&server.url, &token).await.expect("gone");
}

#[tokio::test]
async fn errors_tell_what_to_do_and_hold_no_token() {
    let server = Server::start().await;
    let error = register(&server.url, "s3cret", &wishes(&[], true)).await.expect_err("refused");
    assert_eq!(
        error.to_string(),
        "the server does not know this registration token; take the one that the project or the administrator shows"
    );
    let error = register(&server.url, REGISTRATION, &wishes(&["bad"], true)).await.expect_err("refused");
    assert_eq!(error.to_string(), r#"the server does not take this runner: {"message":"tags are bad"}"#);
    let error = register(&server.url, REGISTRATION, &wishes(&[], false)).await.expect_err("refused");
    assert!(error.to_string().starts_with("a runner without tags would get no job at all"), "{error}");
    for error in [verify(&server.url, "s3cret").await, unregister(&server.url, "s3cret").await] {
        let error = error.expect_err("refused");
        assert_eq!(error.to_string(), "the server does not know this runner's token; register the runner anew");
    }
    let nowhere = "http://127.0.0.1:1";
    let error = verify(nowhere, RUNNER).await.expect_err("nobody there");
    assert!(matches!(&error, Error::Unreachable(words) if words.contains(nowhere)), "{error}");
    let error = verify("git.example.com", RUNNER).await.expect_err("no address");
    assert!(error.to_string().contains("give one such as https://git.example.com"), "{error}");
    server.set_away(true);
    let error = verify(&server.url, RUNNER).await.expect_err("away");
    assert!(error.to_string().contains("503"), "{error}");
}

#[test]
fn tokens_are_kept_where_only_their_owner_reads_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/token");
    assert_eq!(read_token(&path).expect("nothing there"), None);
    write_token(&path, "first").expect("written");
    write_token(&path, "second").expect("written");
    assert_eq!(read_token(&path).expect("read").as_deref(), Some("second"));
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("set");
    let error = read_token(&path).expect_err("others can read it").to_string();
    assert!(error.contains("change its mode to 600") && !error.contains("second"), "{error}");
}
