//! Namespaces: where one could put a project.

use axum::extract::State;
use forge::{Forge, namespaces};
use model::Namespace;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    extract::Credentials,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::Reply,
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new().get("/namespaces", "Lists namespaces: all for administrators, their own for others", list)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<FindNamespaces>,
    paging: Paging,
) -> Reply<Paged<NamespaceJson>> {
    let (search, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| namespaces::list(tx, &search, &page)).await?;
    Ok(paging.answer(found.map(NamespaceJson::from)))
}

struct FindNamespaces(Option<String>);

impl FromParams for FindNamespaces {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.text("search", "A part of name or path").filter(|text| !text.is_empty()))
    }
}

/// A namespace in a list.
#[derive(Serialize, JsonSchema)]
struct NamespaceJson {
    id: i64,
    name: String,
    path: String,
    kind: &'static str,
    full_path: String,
}

impl From<Namespace> for NamespaceJson {
    fn from(namespace: Namespace) -> Self {
        let Namespace { id, name, path, kind, full_path, .. } = namespace;
        Self { id, name, path, kind: kind.as_str(), full_path }
    }
}
