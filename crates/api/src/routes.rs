//! Routes with their descriptions, from which the OpenAPI document and the table of the access tests are derived.

use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{MethodFilter, MethodRouter, on},
};
use forge::traces::JobCredentials;
use model::tokens::Digest;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use crate::{
    App,
    file_part::{FileLimit, WithFile},
    file_response::{Download, RawText},
    openapi::Tag,
    paging::Paged,
    params::ParamDoc,
    raw_body::WithRawBody,
    reply::{CachedJson, Created, CreatedSecret, NoContent, OkJson, Reply, StreamedJson, WithStatus},
    request_body::LargeBodyAuth,
    request_params::{WithLargeParams, WithParams},
    runner::{ci_v1, v4},
};

/// The routes of one version of the API, or of a resource in it.
pub struct Routes {
    /// The tag of the routes that are added next.
    tag: Tag,
    handlers: Vec<(&'static str, MethodRouter<App>)>,
    table: Vec<RouteDoc>,
}

/// The description of a route.
#[derive(Clone)]
pub struct RouteDoc {
    /// The method.
    pub method: Method,
    /// The path below the version prefix, with parameters in braces.
    pub path: &'static str,
    /// The summary in the OpenAPI document.
    pub summary: &'static str,
    pub(crate) tag: Tag,
    pub(crate) operation: OperationDoc,
    pub(crate) extra_statuses: Vec<u16>,
}

/// The description of a handler, derived from its signature.
#[derive(Clone, Default)]
pub(crate) struct OperationDoc {
    pub(crate) params: Vec<ParamDoc>,
    pub(crate) authenticated: bool,
    /// Whether anonymous requests are allowed for public resources.
    pub(crate) allow_anonymous: bool,
    pub(crate) may_be_missing: bool,
    pub(crate) paged: bool,
    pub(crate) limits_sign_ins: bool,
    pub(crate) takes_file: bool,
    pub(crate) status: u16,
    pub(crate) path_params: Vec<PathParamDoc>,
    pub(crate) schema: Option<fn(&mut SchemaGenerator) -> Schema>,
    /// The content types of a response that is not JSON.
    pub(crate) content_types: &'static [&'static str],
    /// Whether the status may be 201 instead, depending on the dialect.
    pub(crate) or_created: bool,
}

/// The description of a path parameter.
#[derive(Clone)]
pub(crate) struct PathParamDoc {
    pub(crate) name: &'static str,
    /// The schema, unless the parameter is an ID.
    pub(crate) schema: Option<Value>,
    pub(crate) description: &'static str,
}

impl OperationDoc {
    /// Describes a path parameter; without a schema it is an ID.
    pub(crate) fn add_path_param(&mut self, name: &'static str, schema: Option<Value>, description: &'static str) {
        self.path_params.push(PathParamDoc { name, schema, description });
    }
}

/// An argument of a handler that describes what it reads.
pub(crate) trait ArgDoc {
    fn describe(operation: &mut OperationDoc);
}

/// A success response that describes itself.
pub(crate) trait ReplyDoc {
    fn describe(operation: &mut OperationDoc);
}

/// A handler whose signature describes the operation.
pub(crate) trait Documented<Args> {
    fn describe() -> OperationDoc;
}

macro_rules! documented {
    ($($arg:ident),*) => {
        impl<F, Fut, R, $($arg),*> Documented<($($arg,)*)> for F
        where
            F: Fn($($arg),*) -> Fut,
            Fut: Future<Output = Reply<R>>,
            R: ReplyDoc,
            $($arg: ArgDoc),*
        {
            fn describe() -> OperationDoc {
                let mut operation = OperationDoc::default();
                $($arg::describe(&mut operation);)*
                R::describe(&mut operation);
                operation
            }
        }
    };
}
/// Implements [`Documented`] for handlers with every number of arguments that axum supports.
macro_rules! documented_up_to {
    () => { documented!(); };
    ($first:ident $(, $rest:ident)*) => {
        documented!($first $(, $rest)*);
        documented_up_to!($($rest),*);
    };
}
documented_up_to!(A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13, A14, A15, A16);

impl<T: JsonSchema> ReplyDoc for OkJson<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.schema = Some(SchemaGenerator::subschema_for::<T>);
    }
}

impl<T: JsonSchema> ReplyDoc for Created<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 201;
        operation.schema = Some(SchemaGenerator::subschema_for::<T>);
    }
}

impl<T: JsonSchema> ReplyDoc for CreatedSecret<T> {
    fn describe(operation: &mut OperationDoc) {
        Created::<T>::describe(operation);
    }
}

impl<T: JsonSchema> ReplyDoc for CachedJson<T> {
    fn describe(operation: &mut OperationDoc) {
        OkJson::<T>::describe(operation);
    }
}

impl<T: JsonSchema> ReplyDoc for StreamedJson<T> {
    fn describe(operation: &mut OperationDoc) {
        OkJson::<T>::describe(operation);
    }
}

impl<T: JsonSchema> ReplyDoc for WithStatus<T> {
    fn describe(operation: &mut OperationDoc) {
        OkJson::<T>::describe(operation);
        operation.or_created = true;
    }
}

impl ReplyDoc for RawText {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.content_types = &["text/plain"];
    }
}

impl ReplyDoc for Download {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.content_types = &["application/octet-stream", "application/zip"];
    }
}

impl ReplyDoc for NoContent {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 204;
    }
}

impl<T: JsonSchema> ReplyDoc for Paged<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.schema = Some(SchemaGenerator::subschema_for::<Vec<T>>);
    }
}

impl Routes {
    /// Creates an empty set for routes with this tag.
    pub(crate) fn new(tag: Tag) -> Self {
        Self { tag, handlers: Vec::new(), table: Vec::new() }
    }

    /// Returns all routes in the order of declaration.
    pub fn table(&self) -> &[RouteDoc] {
        &self.table
    }

    pub(crate) fn get<H, T, D>(self, path: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.add(Method::GET, MethodFilter::GET, path, summary, handler)
    }

    pub(crate) fn post<H, T, D>(self, path: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.add(Method::POST, MethodFilter::POST, path, summary, handler)
    }

    /// Adds a `POST` of a file, which is streamed to the handler.
    pub(crate) fn post_file<H, T, D>(self, path: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.post_file_with_limit(App::upload_limit, path, summary, handler)
    }

    /// Adds a `POST` of a file with another maximum size.
    pub(crate) fn post_file_with_limit<H, T, D>(
        mut self,
        max_size: FileLimit,
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.handlers.push((path, on(MethodFilter::POST, WithFile(max_size, handler))));
        self.describe(Method::POST, path, summary, H::describe());
        self
    }

    /// Adds a `PATCH` with a raw body. A large body is read only from clients with a token for the job.
    pub(crate) fn patch_raw<H, T, D>(
        mut self,
        job_credentials: fn(Vec<Digest>) -> JobCredentials,
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.handlers.push((path, on(MethodFilter::PATCH, WithRawBody(job_credentials, handler))));
        self.describe(Method::PATCH, path, summary, H::describe());
        self
    }

    /// Adds a `PUT` with another maximum body size; clients with a token for the job in their headers have a separate memory
    /// budget.
    pub(crate) fn put_with_limit<H, T, D>(
        mut self,
        max_size: usize,
        job_credentials: fn(Vec<Digest>) -> JobCredentials,
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.handlers.push((
            path,
            on(MethodFilter::PUT, WithLargeParams(max_size, LargeBodyAuth::Job(job_credentials), handler)),
        ));
        self.describe(Method::PUT, path, summary, H::describe());
        self
    }

    pub(crate) fn put<H, T, D>(self, path: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.add(Method::PUT, MethodFilter::PUT, path, summary, handler)
    }

    pub(crate) fn delete<H, T, D>(self, path: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.add(Method::DELETE, MethodFilter::DELETE, path, summary, handler)
    }

    /// Adds error statuses to the description of the last route.
    pub(crate) fn with_statuses(mut self, statuses: &[u16]) -> Self {
        if let Some(route) = self.table.last_mut() {
            route.extra_statuses.extend_from_slice(statuses);
        }
        self
    }

    /// Declares that the last route allows anonymous requests for public projects.
    pub(crate) fn allow_anonymous(mut self) -> Self {
        if let Some(route) = self.table.last_mut() {
            route.operation.allow_anonymous = true;
        }
        self
    }

    /// Adds all routes of another set, which keep their tags.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.handlers.extend(other.handlers);
        self.table.extend(other.table);
        self
    }

    /// Returns a router for the routes below a prefix. Not nested, which would cost every request.
    pub(crate) fn into_router(self, prefix: &str) -> Router<App> {
        let routes = self.handlers.into_iter();
        routes.fold(Router::new(), |router, (path, handler)| router.route(&format!("{prefix}{path}"), handler))
    }

    fn add<H, T, D>(
        mut self,
        method: Method,
        filter: MethodFilter,
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        // HEAD is served wherever GET is.
        let filter = if method == Method::GET { filter.or(MethodFilter::HEAD) } else { filter };
        let operation = H::describe();
        self.handlers.push((path, on(filter, WithParams(handler, operation.paged))));
        self.describe(method, path, summary, operation);
        self
    }

    fn describe(&mut self, method: Method, path: &'static str, summary: &'static str, operation: OperationDoc) {
        let tag = self.tag;
        self.table.push(RouteDoc { method, path, summary, tag, operation, extra_statuses: Vec::new() });
    }
}

/// Returns all routes of version 3, for tests and documentation.
pub fn v3() -> Vec<RouteDoc> {
    crate::v3::routes().table().to_vec()
}

/// Returns all routes of the runner protocols, each with the prefix below which it is served.
pub fn runner_protocols() -> Vec<(&'static str, RouteDoc)> {
    let with_prefix = |prefix: &'static str, routes: Routes| routes.table.into_iter().map(move |route| (prefix, route));
    with_prefix(v4::PREFIX, v4::routes()).chain(with_prefix(ci_v1::PREFIX, ci_v1::routes())).collect()
}
