//! The OpenAPI document, generated from the routes.

mod tags;

use std::collections::BTreeSet;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    params::ParamDoc,
    routes::{RouteDoc, Routes},
};

pub(crate) use tags::Tag;

/// Error statuses that any route may return, with their descriptions.
const COMMON_ERRORS: [(u16, &str); 8] = [
    (400, "The request is malformed or a validation failed"),
    (408, "The body took too long to arrive"),
    (413, "The body is too large"),
    (414, "The path with its query is too long"),
    (415, "The content type of the body is not supported"),
    (500, "Internal server error"),
    (503, "The server is overloaded; retry later"),
    (507, "The disk of the server is full"),
];

const PAGE_HEADERS: [(&str, &str); 7] = [
    ("Link", "Links to the previous, next, first and last page"),
    ("X-Total", "The number of items on all pages; missing if there are more than were counted"),
    ("X-Total-Pages", "The number of pages; missing if there are more than were counted"),
    ("X-Per-Page", "The number of items per page"),
    ("X-Page", "The number of this page"),
    ("X-Next-Page", "The number of the next page, or empty"),
    ("X-Prev-Page", "The number of the previous page, or empty"),
];

/// Returns the document for all routes of a version.
pub(crate) fn document(routes: &Routes) -> Bytes {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes.table() {
        let operation = operation(route, &mut schemas);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    let mut components = schemas.take_definitions(true);
    components.insert("Error".into(), error_schema());
    let tags: BTreeSet<Tag> = routes.table().iter().map(|route| route.tag).collect();
    let tag = |tag: Tag| json!({ "name": tag.name(), "description": tag.description() });
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gable",
            "description": "A git forge with version 3 of the GitLab REST API. \
                            Parameters are accepted in the query and in form, multipart and JSON bodies.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/api/v3" }],
        "tags": tags.into_iter().map(tag).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "privateToken": { "type": "apiKey", "in": "header", "name": "PRIVATE-TOKEN" },
                "bearer": { "type": "http", "scheme": "bearer" },
            },
        },
    });
    Bytes::from(serde_json::to_vec(&document).expect("plain values are serializable"))
}

fn operation(route: &RouteDoc, schemas: &mut SchemaGenerator) -> Value {
    let doc = &route.operation;
    let mut parameters: Vec<Value> = path_names(route.path)
        .map(|name| {
            let known = doc.path_params.iter().find(|param| param.name == name);
            let schema = known.and_then(|param| param.schema.clone());
            let schema = schema.unwrap_or_else(|| json!({ "type": "integer", "minimum": 0, "format": "int64" }));
            let mut parameter = json!({ "name": name, "in": "path", "required": true, "schema": schema });
            if let Some(param) = known {
                parameter["description"] = json!(param.description);
            }
            parameter
        })
        .collect();
    let in_body = matches!(route.method, Method::POST | Method::PUT);
    if !in_body {
        parameters.extend(doc.params.iter().map(query_parameter));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [route.tag.name()],
        "parameters": parameters,
        "responses": responses(route, schemas),
    });
    if in_body && !doc.params.is_empty() {
        operation["requestBody"] = request_body(&doc.params);
    }
    if doc.takes_file {
        operation["requestBody"] = file_body();
    }
    if doc.authenticated {
        let anonymous = doc.allow_anonymous.then(|| json!({}));
        let tokens = [json!({ "privateToken": [] }), json!({ "bearer": [] })];
        operation["security"] = anonymous.into_iter().chain(tokens).collect();
    }
    operation
}

/// Returns the names of the parameters in a path.
fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| segment.strip_suffix('}')?.split_once('{').map(|(_, name)| name))
}

fn operation_id(route: &RouteDoc) -> String {
    let words = route.path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty());
    let words: Vec<&str> = std::iter::once(route.method.as_str()).chain(words).collect();
    words.join("_").to_ascii_lowercase()
}

fn query_parameter(param: &ParamDoc) -> Value {
    json!({
        "name": param.name, "in": "query", "required": param.required,
        "description": param.description, "schema": param.schema,
    })
}

/// Returns the schema of an object whose fields are parameters.
pub(crate) fn object(params: &[ParamDoc]) -> Value {
    let properties: Map<String, Value> = params
        .iter()
        .map(|param| {
            let mut schema = param.schema.clone();
            schema["description"] = json!(param.description);
            (param.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = params.iter().filter(|param| param.required).map(|param| param.name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn request_body(params: &[ParamDoc]) -> Value {
    let schema = object(params);
    let required = params.iter().any(|param| param.required);
    let content: Map<String, Value> = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
        .into_iter()
        .map(|kind| (kind.to_owned(), json!({ "schema": schema })))
        .collect();
    json!({ "required": required, "content": content })
}

/// Returns the schema of a body with a file.
fn file_body() -> Value {
    let file = json!({ "type": "string", "format": "binary", "description": "The file with its name" });
    let schema = json!({ "type": "object", "properties": { "file": file }, "required": ["file"] });
    json!({ "required": true, "content": { "multipart/form-data": { "schema": schema } } })
}

fn responses(route: &RouteDoc, schemas: &mut SchemaGenerator) -> Value {
    let doc = &route.operation;
    let mut responses: Map<String, Value> = Map::new();
    let schema = doc.schema.map(|schema| json!(schema(schemas)));
    let mut success = json!({ "description": if doc.status == 201 { "Created" } else { "Success" } });
    if let Some(schema) = schema {
        success["content"] = json!({ "application/json": { "schema": schema } });
    }
    if !doc.content_types.is_empty() {
        let bytes = |kind: &&str| ((*kind).to_owned(), json!({ "schema": { "type": "string", "format": "binary" } }));
        success["content"] = Value::Object(doc.content_types.iter().map(bytes).collect());
    }
    if doc.paged {
        let headers: Map<String, Value> = PAGE_HEADERS
            .into_iter()
            .map(|(name, text)| (name.to_owned(), json!({ "description": text, "schema": { "type": "string" } })))
            .collect();
        success["headers"] = Value::Object(headers);
    }
    if doc.or_created {
        responses.insert("201".into(), success.clone());
    }
    responses.insert(doc.status.to_string(), success);
    if route.method == Method::GET {
        responses.insert("304".into(), json!({ "description": "Not modified: the client has this version already" }));
    }
    let mut errors: Vec<(u16, &str)> = COMMON_ERRORS.to_vec();
    if doc.authenticated {
        errors.extend([
            (401, "Not authenticated"),
            (403, "Not allowed"),
            (404, "Not found, or hidden from the caller"),
        ]);
    }
    if doc.may_be_missing {
        errors.push((404, "Not found, or hidden from the caller"));
    }
    if route.extra_statuses.contains(&304) {
        responses.insert("304".into(), json!({ "description": "Not modified: there is nothing to change" }));
    }
    errors.extend(route.extra_statuses.iter().map(|status| (*status, reason(*status))));
    errors.sort_by_key(|(status, _)| *status);
    for (status, text) in errors {
        let schema = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
        responses.entry(status.to_string()).or_insert_with(|| json!({ "description": text, "content": schema }));
    }
    let limited = if doc.limits_sign_ins { "Too many sign-in attempts or other requests" } else { "Too many requests" };
    responses.insert(
        "429".into(),
        json!({
            "description": limited,
            "headers": { "Retry-After": { "schema": { "type": "string" } } },
            "content": { "text/plain": { "schema": { "type": "string" } } },
        }),
    );
    Value::Object(responses)
}

/// Returns the standard reason phrase of a status.
fn reason(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error")
}

/// Returns the schema of the two shapes of errors.
fn error_schema() -> Value {
    json!({
        "description": "An error: in `message`, or in `error` if the path, a parameter or the body is malformed",
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "message": {
                        "anyOf": [
                            { "type": "string" },
                            {
                                "type": "object",
                                "additionalProperties": {
                                    "anyOf": [
                                        { "type": "array", "items": { "type": "string" } },
                                        { "type": "string" },
                                    ],
                                },
                            },
                        ],
                    },
                },
                "required": ["message"],
            },
            {
                "type": "object",
                "properties": { "error": { "type": ["string", "array"] }, "error_description": { "type": "string" } },
                "required": ["error"],
            },
        ],
    })
}
