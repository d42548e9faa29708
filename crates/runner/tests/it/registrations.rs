//! Registration of runners, and token files.

use runner::{Error, Registration, read_token, register, unregister, verify, write_token};

use crate::fake_server::{FakeServer, REGISTRATION_TOKEN, RUNNER_TOKEN};

fn registration(tags: &[&str], run_untagged: bool) -> Registration {
    Registration {
        description: "a machine".to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        run_untagged,
        locked: false,
    }
}

#[tokio::test]
async fn a_runner_registers_is_verified_and_unregisters() {
    let server = FakeServer::start().await;
    let token = register(&server.url, REGISTRATION_TOKEN, &registration(&["a", "b"], false)).await.expect("registered");
    assert_eq!(token, RUNNER_TOKEN);
    verify(&server.url, &token).await.expect("known");
    unregister(&server.url, &token).await.expect("gone");
}

#[tokio::test]
async fn errors_say_what_to_do_and_contain_no_token() {
    let server = FakeServer::start().await;
    let error = register(&server.url, "s3cret", &registration(&[], true)).await.expect_err("refused");
    assert_eq!(error.to_string(), "unknown registration token; use the token of the project or of the instance");
    let error = register(&server.url, REGISTRATION_TOKEN, &registration(&["bad"], true)).await.expect_err("refused");
    assert_eq!(error.to_string(), r#"the server rejected this runner: {"message":"tags are bad"}"#);
    let error = register(&server.url, REGISTRATION_TOKEN, &registration(&[], false)).await.expect_err("refused");
    assert!(error.to_string().starts_with("a runner without tags that does not run untagged jobs"), "{error}");
    for error in [verify(&server.url, "s3cret").await, unregister(&server.url, "s3cret").await] {
        let error = error.expect_err("refused");
        assert_eq!(error.to_string(), "unknown runner token; register the runner again");
    }
    let nowhere = "http://127.0.0.1:1";
    let error = verify(nowhere, RUNNER_TOKEN).await.expect_err("no server");
    assert!(matches!(&error, Error::Unreachable(words) if words.contains(nowhere)), "{error}");
    let error = verify("git.example.com", RUNNER_TOKEN).await.expect_err("no address");
    assert!(error.to_string().contains("use one such as https://git.example.com"), "{error}");
    server.set_unavailable(true);
    let error = verify(&server.url, RUNNER_TOKEN).await.expect_err("away");
    assert!(error.to_string().contains("503"), "{error}");
}

#[test]
fn token_files_are_readable_by_their_owner_only() {
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
    assert!(error.contains("run `chmod 600`") && !error.contains("second"), "{error}");
}
