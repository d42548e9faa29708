//! What is asked, how often, and what a good answer is: one row for each route.
//!
//! The factors are those of the published load model. What it does not list has factor 1 if it reads, and [`LEAST`] if it
//! writes; what it lists with less is raised to that, so that percentiles rest on two dozen answers a minute. What is made
//! is removed after the run, and what is removed was made before it, so that the data set keeps its size.

mod people;
mod places;
mod repository;
mod work;

use std::collections::HashSet;

use serde_json::Value;

pub(crate) use repository::FOLDER;

use super::scene::{Ask, Prepared, Scene};
use crate::Outcome;

/// The factor of what is read and not listed.
pub(crate) const READ: f64 = 1.0;
/// The smallest factor, and that of what writes.
pub(crate) const LEAST: f64 = 0.1;
/// The factor of the list of a caller's projects.
pub(crate) const PROJECT_LIST: f64 = 0.15;

/// Every route of the contract, as the service's own description writes them.
pub(crate) const CONTRACT: &str = include_str!("contract.txt");

/// Makes a request of what was prepared for it.
pub(crate) type Make = fn(&mut Scene<'_>, &Prepared) -> Ask;

/// A route.
pub(crate) struct Route {
    /// Method and path.
    pub(crate) name: &'static str,
    pub(crate) factor: f64,
    pub(crate) status: u16,
    pub(crate) shape: Shape,
    /// What is asked before the clock starts, each time, one after the other.
    pub(crate) before: &'static [Make],
    pub(crate) ask: Make,
    /// What puts things back after the run, given the request and its answer.
    pub(crate) after: Option<fn(&Ask, &Value) -> Ask>,
}

/// What a good answer looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A JSON list.
    List,
    /// A JSON list that cannot be empty, with this field in it.
    Full(&'static str),
    /// A JSON object with this field.
    Object(&'static str),
    /// At least so many bytes.
    Bytes(usize),
    /// A text or nothing.
    Anything,
}

impl Shape {
    /// What is wrong with a body, of which the beginning and the end are known.
    pub(crate) fn fault_in(self, start: &[u8], end: Option<u8>, length: usize) -> Option<String> {
        let holds = |field: &str| {
            let wanted = format!("\"{field}\":");
            start.windows(wanted.len()).any(|window| window == wanted.as_bytes())
        };
        let wrapped = |open: u8, close: u8| start.first() == Some(&open) && end == Some(close);
        let fine = match self {
            Self::List => wrapped(b'[', b']'),
            Self::Full(field) => wrapped(b'[', b']') && holds(field),
            Self::Object(field) => wrapped(b'{', b'}') && holds(field),
            Self::Bytes(least) => length >= least,
            Self::Anything => true,
        };
        let shown = || String::from_utf8_lossy(&start[..start.len().min(200)]).into_owned();
        (!fine).then(|| format!("not {self:?}: {}", shown()))
    }
}

impl Route {
    fn read(name: &'static str, factor: f64, shape: Shape, ask: Make) -> Self {
        Self { name, factor, status: 200, shape, before: &[], ask, after: None }
    }

    fn write(name: &'static str, status: u16, shape: Shape, ask: Make) -> Self {
        Self { name, factor: LEAST, status, shape, before: &[], ask, after: None }
    }

    fn before(self, before: &'static [Make]) -> Self {
        Self { before, ..self }
    }

    fn after(self, after: fn(&Ask, &Value) -> Ask) -> Self {
        Self { after: Some(after), ..self }
    }
}

/// All routes that are asked.
pub(crate) fn all() -> Vec<Route> {
    [places::groups(), places::projects(), repository::routes(), work::routes(), people::routes()]
        .into_iter()
        .flatten()
        .collect()
}

/// The routes of the contract, one by one.
pub(crate) fn contract() -> impl Iterator<Item = &'static str> {
    CONTRACT.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Compares the routes with those of the contract and with those that the service says it has.
pub(crate) fn check(openapi: &Value) -> Outcome {
    let asked: HashSet<&str> = all().iter().map(|route| route.name).collect();
    let is_served = |name: &str| {
        let (method, path) = name.split_once(' ').unwrap_or_default();
        openapi["paths"][path].get(method.to_lowercase()).is_some()
    };
    let forgotten: Vec<&str> = contract().filter(|name| !asked.contains(name)).collect();
    let unknown: Vec<&str> = contract().chain(asked.iter().copied()).filter(|name| !is_served(name)).collect();
    match (forgotten.as_slice(), unknown.as_slice()) {
        ([], []) => Ok(()),
        ([], unknown) => Err(format!("the service does not describe {}", unknown.join(", "))),
        (forgotten, _) => Err(format!("nobody asks {}", forgotten.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_contract_is_asked_and_none_twice() {
        let routes = all();
        let names: HashSet<&str> = routes.iter().map(|route| route.name).collect();
        assert_eq!(names.len(), routes.len(), "a route stands twice");
        assert_eq!(contract().count(), 94);
        let forgotten: Vec<&str> = contract().filter(|name| !names.contains(name)).collect();
        assert_eq!(forgotten, Vec::<&str>::new());
    }

    #[test]
    fn no_route_is_too_rare_to_be_judged() {
        let routes = all();
        assert!(routes.iter().all(|route| (LEAST..=READ).contains(&route.factor)));
        let sum: f64 = routes.iter().map(|route| route.factor).sum();
        let rarest = 200.0 * 60.0 * LEAST / sum;
        assert!(rarest >= 20.0, "only {rarest:.0} answers a minute");
    }

    #[test]
    fn a_body_is_looked_at() {
        let check = |shape: Shape, body: &str, fine: bool| {
            let fault = shape.fault_in(body.as_bytes(), body.bytes().last(), body.len());
            assert_eq!(fault.is_none(), fine, "{shape:?} {body}");
        };
        check(Shape::List, "[]", true);
        check(Shape::List, r#"{"message":"404"}"#, false);
        check(Shape::Full("id"), "[]", false);
        check(Shape::Full("id"), r#"[{"id":1}]"#, true);
        check(Shape::Object("id"), r#"{"id":1}"#, true);
        check(Shape::Object("id"), r#"{"message":"no"}"#, false);
        check(Shape::Object("id"), r#"{"id":1"#, false);
        check(Shape::Bytes(3), "ab", false);
        check(Shape::Bytes(3), "abc", true);
        check(Shape::Anything, "", true);
    }

    #[test]
    fn a_route_that_the_service_lacks_is_told() {
        let said = check(&serde_json::json!({ "paths": {} })).expect_err("nothing is served");
        assert!(said.contains("does not describe") && said.contains("GET /groups"), "{said}");
    }
}
