//! The request mix: for each route the frequency, the requests, and the expected response.
//!
//! The factors are those of the published load model. Routes that it does not list have factor 1 if they read, and
//! [`MIN_FACTOR`] if they write; smaller factors are raised to that, so that percentiles rest on two dozen responses a
//! minute. Created objects are deleted after the run, and deleted objects are created before it, so that the data set
//! keeps its size.

mod accounts;
mod project_features;
mod projects;
mod repository;

use std::collections::HashSet;

use anyhow::{Result, anyhow};
use serde_json::Value;

pub(crate) use repository::FOLDER;

use super::request_generator::{ApiRequest, Prepared, RequestGenerator};

/// The factor of reads that the load model does not list.
pub(crate) const READ_FACTOR: f64 = 1.0;
/// The minimum factor, and the factor of writes.
pub(crate) const MIN_FACTOR: f64 = 0.1;
/// The factor of the list of the user's projects.
pub(crate) const PROJECT_LIST_FACTOR: f64 = 0.15;

/// The routes of the contract, in the notation of the OpenAPI document.
pub(crate) const CONTRACT: &str = include_str!("contract.txt");

/// Creates a request from the data prepared for it.
pub(crate) type MakeRequest = fn(&mut RequestGenerator<'_>, &Prepared) -> ApiRequest;

/// A route of the request mix.
pub(crate) struct Route {
    /// Method and path.
    pub(crate) name: &'static str,
    pub(crate) factor: f64,
    pub(crate) status: u16,
    pub(crate) shape: ResponseShape,
    /// The requests that prepare the data for each request, in order.
    pub(crate) before: &'static [MakeRequest],
    pub(crate) request: MakeRequest,
    /// Returns the request that undoes a request after the run, given its response.
    pub(crate) after: Option<fn(&ApiRequest, &Value) -> ApiRequest>,
}

/// The expected form of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseShape {
    /// A JSON list.
    List,
    /// A non-empty JSON list with this field.
    NonEmptyList(&'static str),
    /// A JSON object with this field.
    Object(&'static str),
    /// At least this number of bytes.
    Bytes(usize),
    /// Any body, or none.
    Anything,
}

impl ResponseShape {
    /// Returns what is wrong with a body, given its beginning, its last byte and its length.
    pub(crate) fn error_in(self, start: &[u8], end: Option<u8>, length: usize) -> Option<String> {
        let holds = |field: &str| {
            let needle = format!("\"{field}\":");
            start.windows(needle.len()).any(|window| window == needle.as_bytes())
        };
        let wrapped = |open: u8, close: u8| start.first() == Some(&open) && end == Some(close);
        let fine = match self {
            Self::List => wrapped(b'[', b']'),
            Self::NonEmptyList(field) => wrapped(b'[', b']') && holds(field),
            Self::Object(field) => wrapped(b'{', b'}') && holds(field),
            Self::Bytes(least) => length >= least,
            Self::Anything => true,
        };
        let excerpt = || String::from_utf8_lossy(&start[..start.len().min(200)]).into_owned();
        (!fine).then(|| format!("not {self:?}: {}", excerpt()))
    }
}

impl Route {
    fn read(name: &'static str, factor: f64, shape: ResponseShape, request: MakeRequest) -> Self {
        Self { name, factor, status: 200, shape, before: &[], request, after: None }
    }

    fn write(name: &'static str, status: u16, shape: ResponseShape, request: MakeRequest) -> Self {
        Self { name, factor: MIN_FACTOR, status, shape, before: &[], request, after: None }
    }

    fn before(self, before: &'static [MakeRequest]) -> Self {
        Self { before, ..self }
    }

    fn after(self, after: fn(&ApiRequest, &Value) -> ApiRequest) -> Self {
        Self { after: Some(after), ..self }
    }
}

/// Returns all routes of the request mix.
pub(crate) fn all() -> Vec<Route> {
    [projects::groups(), projects::projects(), repository::routes(), project_features::routes(), accounts::routes()]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the routes of the contract.
pub(crate) fn contract() -> impl Iterator<Item = &'static str> {
    CONTRACT.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Checks the routes against the contract and against the OpenAPI document of the server.
pub(crate) fn check(openapi: &Value) -> Result<()> {
    let requested: HashSet<&str> = all().iter().map(|route| route.name).collect();
    let is_served = |name: &str| {
        let (method, path) = name.split_once(' ').unwrap_or_default();
        openapi["paths"][path].get(method.to_lowercase()).is_some()
    };
    let missing: Vec<&str> = contract().filter(|name| !requested.contains(name)).collect();
    let unknown: Vec<&str> = contract().chain(requested.iter().copied()).filter(|name| !is_served(name)).collect();
    match (missing.as_slice(), unknown.as_slice()) {
        ([], []) => Ok(()),
        ([], unknown) => Err(anyhow!("the OpenAPI document does not contain {}", unknown.join(", "))),
        (missing, _) => Err(anyhow!("the request mix does not contain {}", missing.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_mix_has_every_route_of_the_contract_once() {
        let routes = all();
        let names: HashSet<&str> = routes.iter().map(|route| route.name).collect();
        assert_eq!(names.len(), routes.len(), "duplicate route");
        assert_eq!(contract().count(), 94);
        let missing: Vec<&str> = contract().filter(|name| !names.contains(name)).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn every_route_is_frequent_enough_for_percentiles() {
        let routes = all();
        assert!(routes.iter().all(|route| (MIN_FACTOR..=READ_FACTOR).contains(&route.factor)));
        let sum: f64 = routes.iter().map(|route| route.factor).sum();
        let rarest = 200.0 * 60.0 * MIN_FACTOR / sum;
        assert!(rarest >= 20.0, "only {rarest:.0} responses a minute");
    }

    #[test]
    fn bodies_are_checked() {
        let check = |shape: ResponseShape, body: &str, fine: bool| {
            let error = shape.error_in(body.as_bytes(), body.bytes().last(), body.len());
            assert_eq!(error.is_none(), fine, "{shape:?} {body}");
        };
        check(ResponseShape::List, "[]", true);
        check(ResponseShape::List, r#"{"message":"404"}"#, false);
        check(ResponseShape::NonEmptyList("id"), "[]", false);
        check(ResponseShape::NonEmptyList("id"), r#"[{"id":1}]"#, true);
        check(ResponseShape::Object("id"), r#"{"id":1}"#, true);
        check(ResponseShape::Object("id"), r#"{"message":"no"}"#, false);
        check(ResponseShape::Object("id"), r#"{"id":1"#, false);
        check(ResponseShape::Bytes(3), "ab", false);
        check(ResponseShape::Bytes(3), "abc", true);
        check(ResponseShape::Anything, "", true);
    }

    #[test]
    fn routes_missing_on_the_server_are_reported() {
        let message = check(&serde_json::json!({ "paths": {} })).expect_err("nothing is served").to_string();
        assert!(message.contains("does not contain") && message.contains("GET /groups"), "{message}");
    }
}
