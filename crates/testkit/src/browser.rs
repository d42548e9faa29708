//! A visitor of the web interface: keeps cookies and submits forms, as a browser does.

use std::{
    collections::BTreeMap,
    io::Read as _,
    sync::{Mutex, PoisonError},
};

use api::HttpService;
use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request, header},
};

use crate::{PASSWORD, TestForge, TestResponse};

/// The names and values of the cookies of a visitor.
pub type Cookies = BTreeMap<String, String>;

/// A visitor without or with a session.
pub struct Browser {
    service: HttpService,
    cookies: Mutex<Cookies>,
}

impl TestForge {
    /// Returns a visitor who is not signed in.
    pub fn browser(&self) -> Browser {
        self.browser_with(Cookies::new())
    }

    /// Returns a visitor with these cookies, such as those of another copy of the forge.
    pub fn browser_with(&self, cookies: Cookies) -> Browser {
        Browser { service: self.service.clone(), cookies: Mutex::new(cookies) }
    }

    /// Signs a user in with the password that all test users have.
    pub async fn signed_in_browser(&self, username: &str) -> Browser {
        let browser = self.browser();
        let response = browser.sign_in(username, PASSWORD).await;
        assert_eq!(response.code(), 303, "{response}");
        browser
    }
}

impl Browser {
    /// Opens a page.
    pub async fn get(&self, path: &str) -> TestResponse {
        self.send(Method::GET, path, &[], "").await
    }

    /// Opens a page with further headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        self.send(Method::GET, path, headers, "").await
    }

    /// Submits a form with these fields only.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> TestResponse {
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let pairs: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        let form = (header::CONTENT_TYPE.as_str(), "application/x-www-form-urlencoded");
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain([form]).collect();
        self.send(Method::POST, path, &headers, &pairs.join("&")).await
    }

    /// Opens a page and submits a form with its token.
    pub async fn submit(&self, page: &str, to: &str, fields: &[(&str, &str)]) -> TestResponse {
        let token = form_token(&self.get(page).await.text);
        let fields: Vec<(&str, &str)> = [("form_token", token.as_str())].iter().chain(fields).copied().collect();
        self.post(to, &[("sec-fetch-site", "same-origin")], &fields).await
    }

    /// Opens a page and submits a form with its token and a file, which is given by its name and content.
    pub async fn submit_file(
        &self,
        page: &str,
        to: &str,
        fields: &[(&str, &str)],
        (name, content): (&str, impl AsRef<[u8]>),
    ) -> TestResponse {
        const BOUNDARY: &str = "b0undary";
        let token = form_token(&self.get(page).await.text);
        let part = |header: &str, value: &str| {
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {header}\r\n\r\n{value}\r\n")
        };
        let mut head = part("name=\"form_token\"", &token);
        for (field, value) in fields {
            head += &part(&format!("name=\"{field}\""), value);
        }
        let file = format!("form-data; name=\"file\"; filename=\"{name}\"");
        head += &format!("--{BOUNDARY}\r\nContent-Disposition: {file}\r\n\r\n");
        let body = [head.as_bytes(), content.as_ref(), format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat();
        let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
        let headers = [("sec-fetch-site", "same-origin"), (header::CONTENT_TYPE.as_str(), content_type.as_str())];
        self.send_bytes(Method::POST, to, &headers, body).await
    }

    /// Fills in and submits the sign-in form.
    pub async fn sign_in(&self, username: &str, password: &str) -> TestResponse {
        let form = self.get("/users/sign_in").await;
        let token = form_token(&form.text);
        let fields = [("form_token", token.as_str()), ("login", username), ("password", password)];
        self.post("/users/sign_in", &[("sec-fetch-site", "same-origin")], &fields).await
    }

    /// Returns all cookies.
    pub fn cookies(&self) -> Cookies {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a cookie.
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Sends a request with the cookies, keeps those of the response, and decompresses it.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> TestResponse {
        self.send_bytes(method, path, headers, body.into()).await
    }

    async fn send_bytes(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> TestResponse {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "gable.test");
        let cookies: Vec<String> = {
            let cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
            cookies.iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        if !cookies.is_empty() {
            request = request.header(header::COOKIE, cookies.join("; "));
        }
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            request = request.header(name, HeaderValue::from_str(value).expect("a header value"));
        }
        let request = request.body(Body::from(body)).expect("a well-formed request");
        let mut response = TestResponse::read(self.service.handle(request).await).await;
        for cookie in response.headers.get_all(header::SET_COOKIE) {
            let cookie = cookie.to_str().expect("text");
            let (name, value) = cookie.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            let mut cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
            if cookie.contains("Max-Age=0") {
                cookies.remove(name);
            } else {
                cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        if response.header("content-encoding") == "gzip" {
            let mut text = String::new();
            let mut decoder = flate2::read::GzDecoder::new(response.bytes.as_slice());
            decoder.read_to_string(&mut text).expect("compressed text");
            response.text = text;
        }
        response
    }
}

/// Returns the token in the last form of a page.
pub fn form_token(html: &str) -> String {
    let marker = "name=\"form_token\" value=\"";
    let start = html.rfind(marker).unwrap_or_else(|| panic!("no form: {html}")) + marker.len();
    html[start..].split('"').next().unwrap_or_default().to_owned()
}
