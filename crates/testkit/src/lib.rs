//! A whole forge inside a test, in one line: the real router on a real database, called in process.
//!
//! `GABLE_TEST_DATABASE=postgres://…` runs the same tests on PostgreSQL, each in a database of its own.

mod answer;
mod clock;
mod database;
mod dump;
pub mod faults;
pub mod fields;
mod ground;
mod local;
mod pipelines;
mod post;
pub mod receiver;
pub mod repository;
pub mod rows;

use std::{fs, num::NonZeroU32, path::Path, sync::Arc};

use api::{App, AppOptions, CourierDoor, Dialect, Door, Guards};
use axum::{
    Router,
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request, header},
};
use files::{Files, disk_space::Room, logs::Logs, spool::Spools};
use forge::{
    Caller, Forge, Options, Unvalidated,
    passwords::PasswordCost,
    tasks, tokens,
    users::{self, Registration},
};
use git::Repositories;
use model::{Scope, Site, Time, Visibility, groups::NewGroup, users::NewUser};
use serde_json::Value;
use webhooks::{Clerk, TimeFormat};

pub use answer::Answer;
pub use clock::TestClock;
use ground::Ground;
pub use ground::Kept;
pub use local::LocalRepository;
pub use post::RunningRounds;

/// The password of every user that a test makes.
pub const PASSWORD: &str = "correct horse battery";

/// A forge of its own for one test.
pub struct TestForge {
    /// The way in, below HTTP.
    pub forge: Forge,
    /// The hour, for the test to choose.
    pub clock: Arc<TestClock>,
    door: Door,
    ground: Ground,
}

/// How a test's forge differs from the usual one.
pub struct Setup {
    dialect: Dialect,
    external_url: Option<String>,
    body_limit: usize,
    upload_limit: u64,
    artifact_limit: u64,
    sign_ins_per_minute: Option<NonZeroU32>,
    guards: Guards,
    allow_local_network: bool,
    courier: Option<CourierDoor>,
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
            upload_limit: 10 << 20,
            artifact_limit: 10 << 20,
            sign_ins_per_minute: None,
            guards: Guards::default(),
            allow_local_network: false,
            courier: None,
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

    /// Takes larger or smaller files.
    pub fn upload_limit(mut self, bytes: u64) -> Self {
        self.upload_limit = bytes;
        self
    }

    /// Takes larger or smaller files from jobs.
    pub fn artifact_limit(mut self, bytes: u64) -> Self {
        self.artifact_limit = bytes;
        self
    }

    /// Throttles sign-ins.
    pub fn sign_ins_per_minute(mut self, count: u32) -> Self {
        self.sign_ins_per_minute = NonZeroU32::new(count);
        self
    }

    /// Keeps itself usable in this way.
    pub fn guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// Talks to addresses of its own network.
    pub fn allow_local_network(mut self) -> Self {
        self.allow_local_network = true;
        self
    }

    /// Lets somebody bring messages to hooks that are tried out.
    pub fn courier(mut self, door: CourierDoor) -> Self {
        self.courier = Some(door);
        self
    }

    /// Serves further routes beside the interface.
    pub fn beside(mut self, router: Router) -> Self {
        self.beside = router;
        self
    }

    /// Starts it.
    pub async fn start(self) -> TestForge {
        self.start_on(Ground::fresh().await)
    }

    fn start_on(self, ground: Ground) -> TestForge {
        let Ground { database, files, git, .. } = &ground;
        let options = Options {
            database: database.database.clone(),
            files: Files::in_folder(files.path()).expect("a place for files"),
            logs: Logs::in_folder(&git.path().join("traces")).expect("a place for traces"),
            repositories: Repositories::in_folder(&git.path().join("repositories")).expect("a place for them"),
            spools: Spools::in_folder(&git.path().join("cache"), 64 << 20).expect("a place for a cache"),
            room: Room::around(git.path(), 0),
            allow_local_network: self.allow_local_network,
            max_push_size: None,
            payload_renderer: Arc::new(Clerk::new(
                Site::new(self.external_url.as_deref().unwrap_or("http://gable.test"), Some(22)),
                TimeFormat::Original,
            )),
            readers: 2,
            blocking: 1,
            clock: Arc::clone(&ground.clock) as _,
            secrets: Arc::clone(&ground.secrets) as _,
            password_cost: PasswordCost::cheap(),
            default_projects_limit: 10,
            instance_key: ground.instance_key.clone(),
        };
        let forge = on_own_thread(|| Forge::start(options).expect("a forge starts"));
        let app = App::new(AppOptions {
            forge: forge.clone(),
            dialect: self.dialect,
            external_url: self.external_url,
            body_limit: self.body_limit,
            upload_limit: self.upload_limit,
            artifact_limit: self.artifact_limit,
            sign_ins_per_minute: self.sign_ins_per_minute,
            guards: self.guards,
            ssh_port: Some(22),
            git: None,
            courier: self.courier,
            access_log: Arc::new(|_| {}),
        });
        TestForge { door: Door::new(&app, self.beside), forge, clock: Arc::clone(&ground.clock), ground }
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
            .write(Caller::system(), move |tx| tokens::create(tx, &username, "test", &scopes, expires_at))
            .await;
        let (_, secret) = created.expect("a token");
        Client { token: Some(secret.reveal().to_owned()), ..client.clone() }
    }

    /// Does something to the database behind the forge's back.
    pub fn behind_the_back<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        let database = &self.ground.database.database;
        on_own_thread(move || f(&mut database.connect_writer().expect("a connection")))
    }

    /// Does many things to the database behind the forge's back, in one transaction.
    pub fn in_one_go<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        self.behind_the_back(|db| {
            db.begin_writing().expect("a transaction");
            let answer = f(db);
            db.commit().expect("committed");
            answer
        })
    }

    /// Tries something on a connection that only reads.
    pub fn on_a_reading_connection<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        let database = &self.ground.database.database;
        on_own_thread(move || f(&mut database.connect_reader().expect("a connection")))
    }

    /// Does all background work that is due.
    pub async fn do_all_jobs(&self) {
        while tasks::work_once(&self.forge).await.expect("worked") {}
    }

    /// A group below another, as no client can make one yet.
    pub fn group_below(&self, parent: i64, path: &str, visibility: Visibility) -> i64 {
        let now = self.forge.now();
        let new = NewGroup {
            name: path.to_owned(),
            path: path.to_owned(),
            description: String::new(),
            visibility,
            lfs_enabled: None,
            request_access_enabled: false,
        };
        self.behind_the_back(|db| {
            let parent = store::namespaces::by_id(db, parent).expect("asked").expect("a group");
            store::groups::insert(db, &new, Some(&parent), now).expect("a group below")
        })
    }

    /// All rows of all tables as text, for tests that compare or search them.
    pub fn dump(&self) -> String {
        self.behind_the_back(dump::dump)
    }

    /// The folder with all files.
    pub fn files_folder(&self) -> &Path {
        self.ground.files.path()
    }

    /// All files that there are, finished or not, by their paths, in which projects have their numbers.
    pub fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.ground.files.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let path = path.strip_prefix(self.ground.files.path()).expect("inside").display().to_string();
                    found.push(self.with_number(path));
                }
            }
        }
        found.sort();
        found
    }

    fn with_number(&self, path: String) -> String {
        let [kind, storage, file] = path.split('/').collect::<Vec<_>>()[..] else { return path };
        let project = self.behind_the_back(|db| store::checks::project_at(db, storage).expect("asked"));
        project.map_or_else(|| path.clone(), |project| format!("{kind}/{project}/{file}"))
    }

    /// The folder with the uploads or the artifacts of a project.
    pub fn files_of(&self, kind: &str, project: i64) -> std::path::PathBuf {
        self.files_folder().join(kind).join(self.storage_of(project).as_str())
    }

    /// The folder with the traces of a project.
    pub fn traces_of(&self, project: i64) -> std::path::PathBuf {
        self.traces_folder().join(self.storage_of(project).as_str())
    }

    /// The folder with all traces.
    pub fn traces_folder(&self) -> std::path::PathBuf {
        self.ground.git.path().join("traces")
    }

    async fn username(&self, id: i64) -> String {
        let user = self.forge.read(Caller::system(), move |tx| users::get(tx, id)).await;
        user.expect("a known user").username
    }

    async fn add(&self, user: NewUser) -> Client {
        let username = user.username.clone();
        let given = Unvalidated::good(Registration { user, password: PASSWORD.to_owned() });
        let ready = self.forge.run_blocking(Caller::system(), move |tx| users::prepare_registration(tx, &given)).await;
        let ready = ready.expect("a good registration");
        let created = self
            .forge
            .write(Caller::system(), move |tx| {
                let user = users::create(tx, &ready)?;
                let (_, secret) = tokens::create(tx, &username, "test", &[Scope::Api], None)?;
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

    /// `POST` that makes something; answers its number.
    pub async fn make(&self, path: &str, body: Value) -> i64 {
        let made = self.post(path, body).await;
        assert_eq!(made.code(), 201, "{made}");
        let body = made.json();
        let id = &body.get(0).unwrap_or(&body)["id"];
        id.as_i64().unwrap_or_else(|| panic!("no number: {made}"))
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

    /// `GET` of a page beside the interface.
    pub async fn page(&self, path: &str) -> Answer {
        self.page_with(Method::GET, path, &[]).await
    }

    /// Any method on a page beside the interface, with further headers.
    pub async fn page_with(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = headers.iter().fold(self.request_to(method, path), |request, (name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            request.header(name, HeaderValue::from_str(value).expect("a header value"))
        });
        self.send(request, Body::empty()).await
    }

    /// The beginning of a request with this client's token; a path with `/-/`, `/api/` or `/ci/` stands as it is.
    pub fn request(&self, method: Method, path: &str) -> axum::http::request::Builder {
        let absolute = ["/-/", "/api/", "/ci/api/"].iter().any(|prefix| path.starts_with(prefix));
        if absolute { self.request_to(method, path) } else { self.request_to(method, &format!("/api/v3{path}")) }
    }

    fn request_to(&self, method: Method, uri: &str) -> axum::http::request::Builder {
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
