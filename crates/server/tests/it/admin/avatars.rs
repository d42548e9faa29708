//! Uploaded avatars in backups, and in the checks of `gable doctor`.

use std::{fs, path::PathBuf};

use serde_json::json;

use crate::support::{HttpResponse, ServerProcess, TestInstance};

const CONTENT: &str = "GIF89a the pixels of ann";
const URL: &str = "/uploads/-/system/user/avatar/2/ann.gif";

/// Returns the token in the last form of a page, and the cookie of the response.
fn form(page: &HttpResponse) -> (String, String) {
    let (_, after) = page.text.rsplit_once("name=\"form_token\" value=\"").unwrap_or_else(|| panic!("no form: {page}"));
    let token = after.split('"').next().unwrap_or_default().to_owned();
    (token, cookie(page))
}

fn cookie(response: &HttpResponse) -> String {
    response.header("set-cookie").and_then(|text| text.split(';').next()).unwrap_or_default().to_owned()
}

/// Creates the user `ann` (2), who uploads an avatar.
fn upload_avatar(server: &ServerProcess) {
    let user = json!({ "username": "ann", "name": "Ann", "email": "ann@example.org", "password": "correct horse", "confirm": false });
    let created = server.root().post("/api/v3/users", &user);
    assert_eq!((created.status, &created.json()["id"]), (201, &json!(2)), "{created}");
    let browser = server.anonymous_without_redirects();
    let (token, before) = form(&browser.get("/users/sign_in"));
    let same_origin = ("sec-fetch-site", "same-origin");
    let headers = [same_origin, ("cookie", &*before), ("content-type", "application/x-www-form-urlencoded")];
    let fields = format!("form_token={token}&login=ann&password=correct+horse");
    let signed_in = browser.try_send("POST", "/users/sign_in", &headers, &fields).expect("a response");
    assert_eq!(signed_in.status, 303, "{signed_in}");
    let session = signed_in.headers_named("set-cookie").map(|text| text.split(';').next().unwrap_or_default());
    let session = session.collect::<Vec<_>>().join("; ");
    let (token, _) = form(&browser.get_with("/-/user_settings/profile", &[("cookie", &session)]));
    let headers = [same_origin, ("cookie", &*session), ("content-type", "multipart/form-data; boundary=edge")];
    let body = format!(
        "--edge\r\ncontent-disposition: form-data; name=\"form_token\"\r\n\r\n{token}\r\n\
         --edge\r\ncontent-disposition: form-data; name=\"avatar\"; filename=\"ann.gif\"\r\n\r\n{CONTENT}\r\n--edge--\r\n"
    );
    let uploaded = browser.try_send("POST", "/-/user_settings/profile/avatar", &headers, &body).expect("a response");
    assert_eq!(uploaded.status, 303, "{uploaded}");
    assert_eq!(server.anonymous().get(URL).text, CONTENT);
}

/// Returns the folder of the only avatar.
fn folder(instance: &TestInstance) -> PathBuf {
    let mut folders = fs::read_dir(instance.data().join("files/avatars")).expect("a folder");
    folders.next().expect("one").expect("an entry").path()
}

#[test]
fn an_avatar_is_restored_from_a_backup() {
    let instance = TestInstance::new();
    let server = instance.start();
    upload_avatar(&server);
    let file = instance.file("backup.tar", "");
    fs::remove_file(&file).expect("removed");
    instance.gable(&["backup", &file]).finish().succeeded();
    server.stop();
    let other = TestInstance::new();
    other.gable(&["restore", &file]).finish().succeeded();
    let restored = other.start();
    assert_eq!(restored.anonymous().get(URL).text, CONTENT);
    let user = restored.root().get("/api/v3/users/2").json();
    assert!(user["avatar_url"].as_str().is_some_and(|url| url.ends_with(URL)), "{user}");
    restored.stop();
}

#[test]
fn the_doctor_finds_avatars_without_files_and_files_without_rows() {
    let instance = TestInstance::new();
    let server = instance.start();
    upload_avatar(&server);
    server.stop();
    let doctor = |more: &[&str]| instance.gable(&["doctor"]).args(more).finish().combined_output();
    let healthy = doctor(&[]);
    assert!(healthy.contains("ok       avatars: every row has its file"), "{healthy}");
    assert!(healthy.contains("ok       avatars without rows: there are none"), "{healthy}");
    let folder = folder(&instance);
    fs::rename(folder.join("1"), folder.join("7")).expect("renamed");
    let damaged = doctor(&[]);
    assert!(damaged.contains("avatars: 1 files are missing or truncated, such as 1"), "{damaged}");
    assert!(damaged.contains("avatars without rows: 1 are not in the database"), "{damaged}");
    doctor(&["--fix", "--forget-missing"]);
    let fixed = doctor(&[]);
    assert!(fixed.contains("ok       avatars: every row has its file"), "{fixed}");
    assert_eq!(instance.count("SELECT count(*) FROM avatars"), 0);
    assert_eq!(instance.count("SELECT count(*) FROM users WHERE avatar IS NOT NULL"), 0);
}
