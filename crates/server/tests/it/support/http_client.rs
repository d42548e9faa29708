//! HTTP requests to a running server.

use std::fmt;

use serde_json::Value;

/// A client of one server, anonymous or with a private token.
#[derive(Clone)]
pub(crate) struct HttpClient {
    pub(super) agent: ureq::Agent,
    pub(super) url: String,
    pub(super) token: Option<String>,
}

/// A response whose body was read completely.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) text: String,
    headers: Vec<(String, String)>,
}

impl HttpClient {
    /// Sends a `GET`.
    pub(crate) fn get(&self, path: &str) -> HttpResponse {
        self.get_with(path, &[])
    }

    /// Sends a `GET` with further headers.
    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        for (name, value) in headers.iter().copied().chain(self.token_header()) {
            request = request.header(name, value);
        }
        request.call().map_or_else(|error| panic!("GET {path}: {error}"), HttpResponse::read)
    }

    /// Like [`Self::get`], but returns an error if the server is gone.
    pub(crate) fn try_get(&self, path: &str) -> Result<HttpResponse, ureq::Error> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.call().map(HttpResponse::read)
    }

    /// Sends a `POST` with JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.try_post(path, body).unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// Sends a `PUT` with JSON; returns an error if the server is gone.
    pub(crate) fn try_put(&self, path: &str, body: &Value) -> Result<HttpResponse, ureq::Error> {
        let mut request = self.agent.put(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.send_json(body).map(HttpResponse::read)
    }

    /// Sends a `DELETE`; returns an error if the server is gone.
    pub(crate) fn try_delete(&self, path: &str) -> Result<HttpResponse, ureq::Error> {
        let mut request = self.agent.delete(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.call().map(HttpResponse::read)
    }

    /// Like [`Self::post`], but returns an error if the server is gone.
    pub(crate) fn try_post(&self, path: &str, body: &Value) -> Result<HttpResponse, ureq::Error> {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.send_json(body).map(HttpResponse::read)
    }

    /// Sends a `PATCH` with text; returns an error if the server is gone.
    pub(crate) fn try_patch(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        text: &str,
    ) -> Result<HttpResponse, ureq::Error> {
        let mut request = self.agent.patch(format!("{}{path}", self.url));
        for (name, value) in headers.iter().copied().chain(self.token_header()) {
            request = request.header(name, value);
        }
        request.send(text).map(HttpResponse::read)
    }

    /// Sends any method with any body; returns an error if the server is gone.
    pub(crate) fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<HttpResponse, ureq::Error> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers.iter().copied().chain(self.token_header()) {
            request = request.header(name, value);
        }
        self.agent.run(request.body(body.to_owned()).expect("a good request")).map(HttpResponse::read)
    }

    /// Uploads a file; returns an error if the server is gone.
    pub(crate) fn try_upload(&self, path: &str, name: &str, content: &str) -> Result<HttpResponse, ureq::Error> {
        let part = format!("content-disposition: form-data; name=\"file\"; filename=\"{name}\"");
        let body = format!("--edge\r\n{part}\r\n\r\n{content}\r\n--edge--\r\n");
        let mut request = self.agent.post(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.header("content-type", "multipart/form-data; boundary=edge").send(body).map(HttpResponse::read)
    }

    fn token_header(&self) -> Option<(&str, &str)> {
        self.token.as_deref().map(|token| ("private-token", token))
    }
}

impl HttpResponse {
    fn read(mut response: ureq::http::Response<ureq::Body>) -> Self {
        let headers = response.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        let headers = headers.collect();
        // If the server dies now, it has already sent the status, which is what counts.
        let text = response.body_mut().read_to_string().unwrap_or_default();
        Self { status: response.status().as_u16(), text, headers }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Parses the body as JSON; `None` if the server died while sending it.
    pub(crate) fn try_json(&self) -> Option<Value> {
        serde_json::from_str(&self.text).ok()
    }

    /// Returns all headers with a name.
    pub(crate) fn headers_named(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(move |(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.text)
    }
}
