//! Namespaces in which the current user can create projects.

use forge::namespaces;
use model::Namespace;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::CallerCx,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::Reply,
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Namespaces).get(
        "/namespaces",
        "List the namespaces of the current user, or all namespaces for administrators",
        list,
    )
}

async fn list(cx: CallerCx, Params(params): Params<ListNamespaces>, paging: Paging) -> Reply<Paged<NamespaceJson>> {
    let search = params.map(|params| params.0);
    let reply = cx.read_list(move |tx| {
        let found = namespaces::list(tx, &search, &paging.page)?;
        Ok(paging.reply(found, NamespaceJson::from))
    });
    Ok(reply.await?)
}

struct ListNamespaces(Option<String>);

impl FromParams for ListNamespaces {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(
            from.text("search", "Only namespaces whose name or path contains this text")
                .filter(|text| !text.is_empty()),
        )
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
        Self { id: id.get(), name, path, kind: kind.as_str(), full_path }
    }
}
