//! A whole forge inside a test, in one line: the real router on a real database, called in process.
//!
//! `GABLE_TEST_DATABASE=postgres://…` runs the same tests on PostgreSQL, each in a database of its own.

mod answer;
mod clock;
mod database;
mod dump;

use std::{num::NonZeroU32, sync::Arc};

use api::{App, AppOptions, Dialect, Door};
use axum::{
    Router,
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request, header},
};
use forge::{
    Caller, Forge, Given, Options,
    passwords::PasswordCost,
    tokens,
    users::{self, Registration},
};
use model::{Scope, Time, users::NewUser};
use serde_json::Value;

pub use answer::Answer;
pub use clock::TestClock;
use clock::TestSecrets;
use database::TestDatabase;

/// The password of every user that a test makes.
pub const PASSWORD: &str = "correct horse battery";

/// A forge of its own for one test.
pub struct TestForge {
    /// The way in, below HTTP.
    pub forge: Forge,
    /// The hour, for the test to choose.
    pub clock: Arc<TestClock>,
    door: Door,
    database: TestDatabase,
}

/// How a test's forge differs from the usual one.
pub struct Setup {
    dialect: Dialect,
    external_url: Option<String>,
    body_limit: usize,
    sign_ins_per_minute: Option<NonZeroU32>,
    beside: Router,
}

/// Somebody who calls the forge.
#[derive(Clone)]
pub struct Client {
    door: Door,
    /// The number of the user.
    pub id: i64,
    /// The user's token, or nothing.
    pub token: Option<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            dialect: Dialect::Spec,
            external_url: None,
            body_limit: 1 << 20,
            sign_ins_per_minute: None,
            beside: Router::new(),
        }
    }
}

impl Setup {
    /// Speaks the other dialect.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Is reached under this URL.
    pub fn external_url(mut self, url: &str) -> Self {
        self.external_url = Some(url.to_owned());
        self
    }

    /// Takes larger or smaller bodies.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Throttles sign-ins.
    pub fn sign_ins_per_minute(mut self, count: u32) -> Self {
        self.sign_ins_per_minute = NonZeroU32::new(count);
        self
    }

    /// Serves further routes beside the interface.
    pub fn beside(mut self, router: Router) -> Self {
        self.beside = router;
        self
    }

    /// Starts it.
    pub async fn start(self) -> TestForge {
        let database = TestDatabase::create().await;
        let clock = Arc::new(TestClock::default());
        let options = Options {
            database: database.database.clone(),
            readers: 2,
            heavy: 1,
            clock: Arc::clone(&clock) as _,
            secrets: Arc::new(TestSecrets::default()),
            password_cost: PasswordCost::cheap(),
            default_projects_limit: 10,
        };
        let forge = on_own_thread(|| Forge::start(options).expect("a forge starts"));
        let app = App::new(AppOptions {
            forge: forge.clone(),
            dialect: self.dialect,
            external_url: self.external_url,
            body_limit: self.body_limit,
            sign_ins_per_minute: self.sign_ins_per_minute,
            access_log: Arc::new(|_| {}),
        });
        TestForge { door: Door::new(&app, self.beside), forge, clock, database }
    }
}

impl TestForge {
    /// A forge with nothing in it.
    pub async fn start() -> Self {
        Setup::default().start().await
    }

    /// A forge that differs from the usual one.
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// Somebody without a token.
    pub fn anonymous(&self) -> Client {
        Client { door: self.door.clone(), id: 0, token: None }
    }

    /// An administrator named `root`.
    pub async fn admin(&self) -> Client {
        self.add(NewUser { admin: true, ..plain("root") }).await
    }

    /// A user of this name.
    pub async fn user(&self, username: &str) -> Client {
        self.add(plain(username)).await
    }

    /// An external user of this name.
    pub async fn external(&self, username: &str) -> Client {
        self.add(NewUser { external: true, ..plain(username) }).await
    }

    /// The same user with another token.
    pub async fn with_token(&self, client: &Client, scopes: &[Scope], expires_at: Option<Time>) -> Client {
        let (id, scopes) = (client.id, scopes.to_vec());
        let username = self.username(id).await;
        let created = self
            .forge
            .write(Caller::system(), move |it| tokens::create(it, &username, "test", &scopes, expires_at))
            .await;
        let (_, secret) = created.expect("a token");
        Client { token: Some(secret.reveal().to_owned()), ..client.clone() }
    }

    /// Does something to the database behind the forge's back.
    pub fn behind_the_back<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        let database = &self.database.database;
        on_own_thread(move || f(&mut database.connect_writer().expect("a connection")))
    }

    /// Tries something on a connection that only reads.
    pub fn on_a_reading_connection<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        let database = &self.database.database;
        on_own_thread(move || f(&mut database.connect_reader().expect("a connection")))
    }

    /// All rows of all tables as text, for tests that compare or search them.
    pub fn dump(&self) -> String {
        self.behind_the_back(dump::dump)
    }

    async fn username(&self, id: i64) -> String {
        let user = self.forge.read(Caller::system(), move |it| users::get(it, id)).await;
        user.expect("a known user").username
    }

    async fn add(&self, user: NewUser) -> Client {
        let username = user.username.clone();
        let given = Given::good(Registration { user, password: PASSWORD.to_owned() });
        let ready = self.forge.heavy(Caller::system(), move |it| users::prepare_registration(it, &given)).await;
        let ready = ready.expect("a good registration");
        let created = self
            .forge
            .write(Caller::system(), move |it| {
                let user = users::create(it, &ready)?;
                let (_, secret) = tokens::create(it, &username, "test", &[Scope::Api], None)?;
                Ok((user.id, secret))
            })
            .await;
        let (id, secret) = created.expect("a user");
        Client { door: self.door.clone(), id, token: Some(secret.reveal().to_owned()) }
    }
}

fn plain(username: &str) -> NewUser {
    NewUser::new(username, &format!("{}@example.org", username.to_lowercase()), username)
}

/// PostgreSQL connections bring their own runtime, so they cannot be made on a thread that has one.
fn on_own_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(f).join().expect("the thread ends well"))
}

impl Client {
    /// The same client with another token.
    pub fn showing(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// `GET` below `/api/v3`.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path), Body::empty()).await
    }

    /// `HEAD` below `/api/v3`.
    pub async fn head(&self, path: &str) -> Answer {
        self.send(self.request(Method::HEAD, path), Body::empty()).await
    }

    /// `POST` with JSON below `/api/v3`.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.json(Method::POST, path, body).await
    }

    /// `PUT` with JSON below `/api/v3`.
    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.json(Method::PUT, path, body).await
    }

    /// `DELETE` below `/api/v3`.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path), Body::empty()).await
    }

    /// Any method with a JSON body below `/api/v3`.
    pub async fn json(&self, method: Method, path: &str, body: Value) -> Answer {
        let request = self.request(method, path).header(header::CONTENT_TYPE, "application/json");
        self.send(request, Body::from(body.to_string())).await
    }

    /// Any method with any body below `/api/v3`.
    pub async fn body(&self, method: Method, path: &str, kind: &str, body: impl Into<Body>) -> Answer {
        let request = self.request(method, path).header(header::CONTENT_TYPE, kind);
        self.send(request, body.into()).await
    }

    /// `GET` with further headers below `/api/v3`.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.request(Method::GET, path);
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            request = request.header(name, HeaderValue::from_str(value).expect("a header value"));
        }
        self.send(request, Body::empty()).await
    }

    /// The beginning of a request with this client's token; a path with `/-/` or `/api/` stands as it is.
    pub fn request(&self, method: Method, path: &str) -> axum::http::request::Builder {
        let absolute = path.starts_with("/-/") || path.starts_with("/api/");
        let uri = if absolute { path.to_owned() } else { format!("/api/v3{path}") };
        let request = Request::builder().method(method).uri(uri).header(header::HOST, "gable.test");
        match &self.token {
            Some(token) => request.header("private-token", token),
            None => request,
        }
    }

    /// Sends a request that was put together by hand.
    pub async fn send(&self, request: axum::http::request::Builder, body: Body) -> Answer {
        let request = request.body(body).expect("a well-formed request");
        Answer::read(self.door.answer(request).await).await
    }
}
