//! Routes that remember what they serve, so that the document and the access table cannot forget one.

use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{MethodFilter, MethodRouter, on},
};
use forge::traces::JobProof;
use model::tokens::Digest;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use crate::{
    App,
    bodies::Prover,
    file_part::{FileLimit, WithFile},
    inbox::{Opened, OpenedUpTo},
    paging::Paged,
    params::ParamDoc,
    raw::{Download, RawText},
    raw_body::WithRawBody,
    reply::{Created, CreatedSecret, Done, Made, NoContent, Recalled, Reply, Streamed},
    runner,
};

/// All routes of a version of the interface.
#[derive(Default)]
pub struct Routes {
    handlers: Vec<(&'static str, MethodRouter<App>)>,
    table: Vec<RouteDoc>,
}

/// One route.
#[derive(Clone)]
pub struct RouteDoc {
    /// The method.
    pub method: Method,
    /// The path below the version, with names in braces.
    pub path: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) operation: OperationDoc,
    pub(crate) also: Vec<u16>,
}

/// What a handler takes and gives, read off its signature.
#[derive(Clone, Default)]
pub(crate) struct OperationDoc {
    pub(crate) params: Vec<ParamDoc>,
    pub(crate) authenticated: bool,
    /// Whether those who show nothing are let in where everybody is.
    pub(crate) open: bool,
    pub(crate) looks_up: bool,
    pub(crate) paged: bool,
    pub(crate) throttled: bool,
    pub(crate) takes_file: bool,
    pub(crate) status: u16,
    /// Names in the path that are not plain numbers.
    pub(crate) path_schemas: Vec<(&'static str, Value)>,
    pub(crate) schema: Option<fn(&mut SchemaGenerator) -> Schema>,
    /// The kinds of an answer that is not JSON.
    pub(crate) kinds: &'static [&'static str],
    /// Whether 201 may be answered as well, where the dialect says so.
    pub(crate) or_created: bool,
}

/// An argument of a handler that can say what it reads.
pub(crate) trait ArgDoc {
    fn describe(operation: &mut OperationDoc);
}

/// A reply that can say what it looks like.
pub(crate) trait ReplyDoc {
    fn describe(operation: &mut OperationDoc);
}

/// A handler whose signature tells all.
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
documented!();
documented!(A);
documented!(A, B);
documented!(A, B, C);
documented!(A, B, C, D);
documented!(A, B, C, D, E);
documented!(A, B, C, D, E, G);
documented!(A, B, C, D, E, G, H);

impl<T: JsonSchema> ReplyDoc for Done<T> {
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

impl<T: JsonSchema> ReplyDoc for Recalled<T> {
    fn describe(operation: &mut OperationDoc) {
        Done::<T>::describe(operation);
    }
}

impl<T: JsonSchema> ReplyDoc for Streamed<T> {
    fn describe(operation: &mut OperationDoc) {
        Done::<T>::describe(operation);
    }
}

impl<T: JsonSchema> ReplyDoc for Made<T> {
    fn describe(operation: &mut OperationDoc) {
        Done::<T>::describe(operation);
        operation.or_created = true;
    }
}

impl ReplyDoc for RawText {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.kinds = &["text/plain"];
    }
}

impl ReplyDoc for Download {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.kinds = &["application/octet-stream", "application/zip"];
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
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// What there is, in the order of declaration.
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

    /// `POST` of a file, which is not read before the handler asks for it.
    pub(crate) fn post_file<H, T, D>(self, path: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.post_file_up_to(App::upload_limit, path, summary, handler)
    }

    /// The same for files that may be larger or smaller than others.
    pub(crate) fn post_file_up_to<H, T, D>(
        mut self,
        most: FileLimit,
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.handlers.push((path, on(MethodFilter::POST, WithFile(most, handler))));
        self.table.push(RouteDoc { method: Method::POST, path, summary, operation: H::describe(), also: Vec::new() });
        self
    }

    /// `PATCH` whose body is bytes and no parameters. A large one is read only from clients with such tokens for the job.
    pub(crate) fn patch_raw<H, T, D>(
        mut self,
        proof: fn(Vec<Digest>) -> JobProof,
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.handlers.push((path, on(MethodFilter::PATCH, WithRawBody(proof, handler))));
        self.table.push(RouteDoc { method: Method::PATCH, path, summary, operation: H::describe(), also: Vec::new() });
        self
    }

    /// `PUT` whose body may be larger than others; clients with such tokens for the job in their headers are preferred.
    pub(crate) fn put_up_to<H, T, D>(
        mut self,
        most: usize,
        proof: fn(Vec<Digest>) -> JobProof,
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App> + Documented<D>,
        T: 'static,
    {
        self.handlers.push((path, on(MethodFilter::PUT, OpenedUpTo(most, Prover::Job(proof), handler))));
        self.table.push(RouteDoc { method: Method::PUT, path, summary, operation: H::describe(), also: Vec::new() });
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

    /// Names statuses of the route just added that its signature does not tell.
    pub(crate) fn also(mut self, statuses: &[u16]) -> Self {
        if let Some(route) = self.table.last_mut() {
            route.also.extend_from_slice(statuses);
        }
        self
    }

    /// Says that the route just added may be asked without a token, where a project is public.
    pub(crate) fn open(mut self) -> Self {
        if let Some(route) = self.table.last_mut() {
            route.operation.open = true;
        }
        self
    }

    /// Adds all routes of another list.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.handlers.extend(other.handlers);
        self.table.extend(other.table);
        self
    }

    /// Serves the routes below a prefix. Flat, because nested routers cost every request.
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
        self.handlers.push((path, on(filter, Opened(handler, operation.paged))));
        self.table.push(RouteDoc { method, path, summary, operation, also: Vec::new() });
        self
    }
}

/// All routes of version 3, for tests and documents.
pub fn v3() -> Vec<RouteDoc> {
    crate::v3::routes().table().to_vec()
}

/// All routes of the protocols of runners, each with the prefix below which it is served.
pub fn runner_protocols() -> Vec<(&'static str, RouteDoc)> {
    let below = |prefix: &'static str, routes: Routes| routes.table.into_iter().map(move |route| (prefix, route));
    below(runner::V4, runner::v4()).chain(below(runner::CI_V1, runner::ci_v1())).collect()
}
