//! Starts a complete forge inside a test: the real router on a real database, called in process.
//!
//! `GABLE_TEST_DATABASE=postgres://…` runs the same tests on PostgreSQL, each in its own database.
//! `GABLE_TEST_STORE=bucket` stores the files of all of them in a bucket of an S3 server in this process.

pub mod browser;
pub mod bucket;
pub mod bulk;
mod clock;
mod database;
mod dump;
pub mod faults;
pub mod fixtures;
mod local_repository;
pub mod nodes;
pub mod payload_schema;
mod pipelines;
pub mod receiver;
pub mod repository;
mod resources;
mod response;
mod stored_repositories;
pub mod tcp_proxy;
mod webhook_deliveries;

use std::{
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
};

use api::{App, AppOptions, Dialect, HttpService, LimitOptions, PageHandler, WebhookSender};
use axum::{
    Router,
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request, header},
};
use files::{disk_space::DiskSpace, logs::Logs, spool::Spools};
use forge::{
    Caller, Forge, Options, Unvalidated,
    clock::Clock,
    passwords::PasswordHasher,
    rate_limiter::NetworkRateLimiter,
    tasks, tokens,
    traces::LogStore,
    users::{self, NewUserRequest},
};
use git::Repositories;
use model::{
    Change, NamespaceId, ProjectId, Scope, Site, Time, UserId, Visibility,
    groups::NewGroup,
    users::{NewUser, UserChanges},
};
use serde_json::Value;
use store::Database;
use web::{Pages, PagesOptions};
use webhooks::{JsonPayloadRenderer, TimeFormat};

pub use clock::TestClock;
pub use local_repository::LocalRepository;
use resources::ForgeResources;
pub use resources::ForgeTemplate;
pub use response::TestResponse;
pub use webhook_deliveries::RunningDispatcher;

/// The password of every user that a test creates.
pub const PASSWORD: &str = "correct horse battery";

/// A forge for one test.
pub struct TestForge {
    /// The use cases below HTTP.
    pub forge: Forge,
    /// The clock of the forge, set by the test.
    pub clock: Arc<TestClock>,
    service: HttpService,
    resources: ForgeResources,
}

/// Configures a [`TestForge`].
pub struct TestForgeBuilder {
    dialect: Dialect,
    external_url: Option<String>,
    body_limit: usize,
    upload_limit: u64,
    artifact_limit: u64,
    sign_ins_per_minute: Option<NonZeroU32>,
    limit_options: LimitOptions,
    allow_local_network: bool,
    webhook_sender: Option<WebhookSender>,
    extra_routes: Router,
    segmented_traces: bool,
}

/// A client of the REST API, anonymous or with the token of a user.
#[derive(Clone)]
pub struct TestClient {
    service: HttpService,
    /// The id of the user.
    pub id: UserId,
    /// The private token; `None` for an anonymous client.
    pub token: Option<String>,
}

impl Default for TestForgeBuilder {
    fn default() -> Self {
        Self {
            dialect: Dialect::Spec,
            external_url: None,
            body_limit: 1 << 20,
            upload_limit: 10 << 20,
            artifact_limit: 10 << 20,
            sign_ins_per_minute: None,
            limit_options: LimitOptions::default(),
            allow_local_network: false,
            webhook_sender: None,
            extra_routes: Router::new(),
            segmented_traces: false,
        }
    }
}

impl TestForgeBuilder {
    /// Sets the API dialect.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Sets the external URL.
    pub fn external_url(mut self, url: &str) -> Self {
        self.external_url = Some(url.to_owned());
        self
    }

    /// Sets the maximum size of a request body.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Sets the maximum size of an upload.
    pub fn upload_limit(mut self, bytes: u64) -> Self {
        self.upload_limit = bytes;
        self
    }

    /// Sets the maximum size of job artifacts.
    pub fn artifact_limit(mut self, bytes: u64) -> Self {
        self.artifact_limit = bytes;
        self
    }

    /// Limits the rate of sign-ins.
    pub fn sign_ins_per_minute(mut self, count: u32) -> Self {
        self.sign_ins_per_minute = NonZeroU32::new(count);
        self
    }

    /// Sets the request limits.
    pub fn limit_options(mut self, limit_options: LimitOptions) -> Self {
        self.limit_options = limit_options;
        self
    }

    /// Allows outgoing requests to local addresses.
    pub fn allow_local_network(mut self) -> Self {
        self.allow_local_network = true;
        self
    }

    /// Sets the sender of test deliveries.
    pub fn webhook_sender(mut self, sender: WebhookSender) -> Self {
        self.webhook_sender = Some(sender);
        self
    }

    /// Serves further routes beside those of the API.
    pub fn extra_routes(mut self, router: Router) -> Self {
        self.extra_routes = router;
        self
    }

    /// Stores traces in segments, as on several nodes, instead of a folder.
    pub fn segmented_traces(mut self) -> Self {
        self.segmented_traces = true;
        self
    }

    /// Starts the forge with an empty database.
    pub async fn start(self) -> TestForge {
        self.start_on(ForgeResources::create().await)
    }

    fn start_on(self, resources: ForgeResources) -> TestForge {
        let database = resources.database.database.clone();
        let clock = Arc::clone(&resources.clock) as _;
        let (forge, service) = self.start_node(&resources, database, clock, resources.git.path());
        TestForge { service, forge, clock: Arc::clone(&resources.clock), resources }
    }

    /// Starts a forge on resources that it may share with others, with a folder for its caches.
    fn start_node(
        self,
        resources: &ForgeResources,
        database: Database,
        clock: Arc<dyn Clock>,
        caches: &Path,
    ) -> (Forge, HttpService) {
        let ForgeResources { git, .. } = resources;
        let options = Options {
            database,
            read_replica: None,
            files: resources.open_files(caches),
            logs: if self.segmented_traces {
                LogStore::Segments
            } else {
                LogStore::Folder(Logs::open(&git.path().join("traces")).expect("the traces folder opens"))
            },
            repositories: Repositories::open_folder(&caches.join("repositories"))
                .expect("the repositories folder opens"),
            spools: Spools::open(&caches.join("cache"), 64 << 20).expect("the cache folder opens"),
            disk_space: DiskSpace::new(git.path(), 0),
            allow_local_network: self.allow_local_network,
            max_push_size: None,
            payload_renderer: Arc::new(JsonPayloadRenderer::new(
                Site::new(self.external_url.as_deref().unwrap_or("http://gable.test"), Some(22)),
                TimeFormat::Gitlab,
            )),
            readers: 2,
            blocking: 1,
            clock,
            secrets: Arc::clone(&resources.secrets) as _,
            password_hasher: PasswordHasher::for_tests(),
            default_projects_limit: 10,
            instance_key: resources.instance_key.clone(),
        };
        let forge = on_own_thread(|| Forge::start(options).expect("a forge starts"));
        let sign_in_limiter = Arc::new(NetworkRateLimiter::per_minute(self.sign_ins_per_minute));
        let pages = Pages::new(PagesOptions {
            forge: forge.clone(),
            sign_in_limiter: Arc::clone(&sign_in_limiter),
            api_document: api::openapi_document,
            upload_limit: self.upload_limit,
            settings: vec![("external-url", "http://gable.test".to_owned())],
        });
        let app = App::new(AppOptions {
            forge: forge.clone(),
            dialect: self.dialect,
            external_url: self.external_url,
            body_limit: self.body_limit,
            upload_limit: self.upload_limit,
            artifact_limit: self.artifact_limit,
            sign_in_limiter,
            limit_options: self.limit_options,
            ssh_port: Some(22),
            external_ssh: None,
            git: None,
            pages: Some(page_handler(pages)),
            webhook_sender: self.webhook_sender,
            access_log: Arc::new(|_| {}),
        });
        (forge, HttpService::new(&app, self.extra_routes))
    }
}

impl TestForge {
    /// Starts an empty forge with the default configuration.
    pub async fn start() -> Self {
        TestForgeBuilder::default().start().await
    }

    /// Returns a builder with the default configuration.
    pub fn builder() -> TestForgeBuilder {
        TestForgeBuilder::default()
    }

    /// Returns a client without a token.
    pub fn anonymous(&self) -> TestClient {
        TestClient { service: self.service.clone(), id: UserId::ANONYMOUS, token: None }
    }

    /// Creates an administrator named `root`.
    pub async fn admin(&self) -> TestClient {
        self.create_user(NewUser { admin: true, ..new_user("root") }).await
    }

    /// Creates a user.
    pub async fn user(&self, username: &str) -> TestClient {
        self.create_user(new_user(username)).await
    }

    /// Creates an external user.
    pub async fn external(&self, username: &str) -> TestClient {
        self.create_user(NewUser { external: true, ..new_user(username) }).await
    }

    /// Makes a user an administrator, or takes the right away.
    pub fn set_admin(&self, client: &TestClient, admin: bool) {
        let changes = UserChanges { admin: Change::Set(admin), ..UserChanges::default() };
        let now = self.forge.now();
        self.in_transaction(|db| {
            let user = store::users::by_id(db, client.id).expect("asked").expect("a user");
            store::users::update(db, &user, &changes, None, now).expect("changed");
        });
    }

    /// Creates another token of a user and returns a client that uses it.
    pub async fn client_with_token(
        &self,
        client: &TestClient,
        scopes: &[Scope],
        expires_at: Option<Time>,
    ) -> TestClient {
        let (id, scopes) = (client.id, scopes.to_vec());
        let username = self.username(id).await;
        let created = self
            .forge
            .write(Caller::system(), move |tx| tokens::create(tx, &username, "test", &scopes, expires_at))
            .await;
        let (_, secret) = created.expect("a token");
        TestClient { token: Some(secret.reveal().to_owned()), ..client.clone() }
    }

    /// Calls a function with a writing database connection that bypasses the forge.
    pub fn with_connection<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        let database = &self.resources.database.database;
        on_own_thread(move || f(&mut database.connect_writer().expect("a connection")))
    }

    /// Like [`Self::with_connection`], in one transaction.
    pub fn in_transaction<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        self.with_connection(|db| {
            db.begin_writing().expect("a transaction");
            let result = f(db);
            db.commit().expect("committed");
            result
        })
    }

    /// Executes an SQL statement, for states that neither a request nor `store` produces.
    pub fn execute_sql(&self, statement: &str) {
        self.in_transaction(|db| fixtures::execute_sql(db, statement));
    }

    /// Calls a function with a read-only database connection.
    pub fn with_read_connection<T: Send>(&self, f: impl FnOnce(&mut store::Conn) -> T + Send) -> T {
        let database = &self.resources.database.database;
        on_own_thread(move || f(&mut database.connect_reader().expect("a connection")))
    }

    /// Runs all background tasks that are due.
    pub async fn run_due_tasks(&self) {
        while tasks::run_next(&self.forge).await.expect("worked") {}
    }

    /// Inserts a subgroup, which the API cannot create; returns its id.
    pub fn insert_subgroup(&self, parent: NamespaceId, path: &str, visibility: Visibility) -> NamespaceId {
        let now = self.forge.now();
        let new = NewGroup {
            name: path.to_owned(),
            path: path.to_owned(),
            description: String::new(),
            visibility,
            lfs_enabled: None,
            request_access_enabled: false,
        };
        self.with_connection(|db| {
            let parent = store::namespaces::by_id(db, parent).expect("asked").expect("a group");
            store::groups::insert(db, &new, Some(&parent), now).expect("a group below")
        })
    }

    /// Returns all rows of all tables as text.
    pub fn dump(&self) -> String {
        self.with_connection(dump::dump)
    }

    /// Returns the folder of uploads, artifacts and packs.
    pub fn files_folder(&self) -> &Path {
        self.resources.files.path()
    }

    /// Returns whether the files are in a bucket.
    pub fn uses_bucket(&self) -> bool {
        bucket::TestBucket::of_all_tests().is_some()
    }

    /// Leaves what a server leaves that was killed while it wrote a file: part of it under another name. A bucket contains only
    /// complete objects, so there the whole file is left. Returns the path as [`Self::files`] does.
    pub fn plant_unfinished_file(&self, key: &str) -> String {
        let name = if self.uses_bucket() { key.to_owned() } else { format!("{key}#1") };
        let path = self.files_folder().join(&name);
        fs::create_dir_all(path.parent().expect("a key has a folder")).expect("a folder");
        fs::write(path, "half").expect("written");
        self.with_project_id(name)
    }

    /// Returns the paths of all uploads and artifacts, complete or not, with the storage id replaced by the project id.
    pub fn files(&self) -> Vec<String> {
        self.files_in(&["uploads", "artifacts"])
    }

    /// Returns the paths of the files of all avatars, complete or not.
    pub fn avatar_files(&self) -> Vec<String> {
        self.files_in(&["avatars"])
    }

    /// Returns the paths of the files of all packs, complete or not.
    pub fn pack_files(&self) -> Vec<String> {
        self.files_in(&["packs"])
    }

    /// Returns the paths of the objects with parts of traces, complete or not.
    pub fn trace_objects(&self) -> Vec<String> {
        self.files_in(&["traces"])
    }

    fn files_in(&self, kinds: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let folders = kinds.iter().map(|kind| self.files_folder().join(kind));
        let mut folders: Vec<PathBuf> = folders.filter(|folder| folder.exists()).collect();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let path = path.strip_prefix(self.resources.files.path()).expect("inside").display().to_string();
                    found.push(self.with_project_id(path));
                }
            }
        }
        found.sort();
        found
    }

    fn with_project_id(&self, path: String) -> String {
        let [kind, storage, file] = path.split('/').collect::<Vec<_>>()[..] else { return path };
        let project = self.with_connection(|db| store::checks::project_by_storage(db, storage).expect("asked"));
        project.map_or_else(|| path.clone(), |project| format!("{kind}/{project}/{file}"))
    }

    /// Returns the folder with the uploads or the artifacts of a project.
    pub fn project_files_folder(&self, kind: &str, project: ProjectId) -> PathBuf {
        self.files_folder().join(kind).join(self.storage_of(project).as_str())
    }

    /// Returns the folder with the traces of a project.
    pub fn project_traces_folder(&self, project: ProjectId) -> PathBuf {
        self.traces_folder().join(self.storage_of(project).as_str())
    }

    /// Returns the folder with all traces.
    pub fn traces_folder(&self) -> PathBuf {
        self.resources.git.path().join("traces")
    }

    async fn username(&self, id: UserId) -> String {
        let user = self.forge.read(Caller::system(), move |tx| users::get(tx, id)).await;
        user.expect("a known user").username
    }

    async fn create_user(&self, user: NewUser) -> TestClient {
        let username = user.username.clone();
        let request = Unvalidated::valid(NewUserRequest { user, password: PASSWORD.to_owned() });
        let prepared = self.forge.run_blocking(Caller::system(), move |cx| users::prepare_create(cx, &request)).await;
        let prepared = prepared.expect("a valid user");
        let created = self
            .forge
            .write(Caller::system(), move |tx| {
                let user = users::create(tx, &prepared)?;
                let (_, secret) = tokens::create(tx, &username, "test", &[Scope::Api], None)?;
                Ok((user.id, secret))
            })
            .await;
        let (id, secret) = created.expect("a user");
        TestClient { service: self.service.clone(), id, token: Some(secret.reveal().to_owned()) }
    }
}

fn page_handler(pages: Pages) -> PageHandler {
    let error_pages = pages.clone();
    PageHandler {
        serve: Arc::new(move |request, origin| {
            let pages = pages.clone();
            Box::pin(async move { pages.serve(request, origin).await })
        }),
        error_page: Arc::new(move |status, request_id| error_pages.error_page(status, request_id)),
    }
}

fn new_user(username: &str) -> NewUser {
    NewUser::new(username, &format!("{}@example.org", username.to_lowercase()), username)
}

/// Runs a function on a new thread: PostgreSQL connections start a runtime, which panics on a thread that has one.
fn on_own_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(f).join().expect("the thread does not panic"))
}

impl TestClient {
    /// Returns the same client with another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Sends a `GET` below `/api/v3`.
    pub async fn get(&self, path: &str) -> TestResponse {
        self.send(self.request(Method::GET, path), Body::empty()).await
    }

    /// Sends a `HEAD` below `/api/v3`.
    pub async fn head(&self, path: &str) -> TestResponse {
        self.send(self.request(Method::HEAD, path), Body::empty()).await
    }

    /// Sends a `POST` with JSON below `/api/v3`.
    pub async fn post(&self, path: &str, body: Value) -> TestResponse {
        self.json(Method::POST, path, body).await
    }

    /// Sends a `POST` that must create something; returns its id.
    pub async fn make(&self, path: &str, body: Value) -> i64 {
        let made = self.post(path, body).await;
        assert_eq!(made.code(), 201, "{made}");
        let body = made.json();
        let id = &body.get(0).unwrap_or(&body)["id"];
        id.as_i64().unwrap_or_else(|| panic!("no id: {made}"))
    }

    /// Sends a `PUT` with JSON below `/api/v3`.
    pub async fn put(&self, path: &str, body: Value) -> TestResponse {
        self.json(Method::PUT, path, body).await
    }

    /// Sends a `DELETE` below `/api/v3`.
    pub async fn delete(&self, path: &str) -> TestResponse {
        self.send(self.request(Method::DELETE, path), Body::empty()).await
    }

    /// Sends a JSON body with any method below `/api/v3`.
    pub async fn json(&self, method: Method, path: &str, body: Value) -> TestResponse {
        let request = self.request(method, path).header(header::CONTENT_TYPE, "application/json");
        self.send(request, Body::from(body.to_string())).await
    }

    /// Sends a body of any content type with any method below `/api/v3`.
    pub async fn body(&self, method: Method, path: &str, content_type: &str, body: impl Into<Body>) -> TestResponse {
        let request = self.request(method, path).header(header::CONTENT_TYPE, content_type);
        self.send(request, body.into()).await
    }

    /// Sends a `GET` with further headers below `/api/v3`.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        let mut request = self.request(Method::GET, path);
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            request = request.header(name, HeaderValue::from_str(value).expect("a header value"));
        }
        self.send(request, Body::empty()).await
    }

    /// Sends a `GET` to a path outside the API.
    pub async fn page(&self, path: &str) -> TestResponse {
        self.page_with(Method::GET, path, &[]).await
    }

    /// Sends any method to a path outside the API, with further headers.
    pub async fn page_with(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        let request = headers.iter().fold(self.request_to(method, path), |request, (name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            request.header(name, HeaderValue::from_str(value).expect("a header value"))
        });
        self.send(request, Body::empty()).await
    }

    /// Begins a request with this client's token below `/api/v3`; paths that start with `/-/`, `/api/` or `/ci/api/` are
    /// used unchanged.
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

    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: axum::http::request::Builder, body: Body) -> TestResponse {
        let request = request.body(body).expect("a well-formed request");
        TestResponse::read(self.service.handle(request).await).await
    }
}
