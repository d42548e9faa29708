//! The OpenAPI document of the API, read once into what the reference shows.

use serde_json::Value;

/// The reference of the API.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiDocument {
    pub(crate) tags: Vec<ApiTag>,
}

/// A resource of the API.
#[derive(Clone, Debug)]
pub(crate) struct ApiTag {
    pub(crate) name: String,
    /// The name in URLs.
    pub(crate) slug: String,
    pub(crate) description: String,
    pub(crate) operations: Vec<Operation>,
    /// The objects in responses of the operations, which refer to each other.
    pub(crate) objects: Vec<Object>,
}

/// A method of a path.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) summary: String,
    /// Whether a token is required.
    pub(crate) needs_token: bool,
    /// Parameters in the path, the query and the body.
    pub(crate) parameters: Vec<Property>,
    /// The success statuses with the type of the response.
    pub(crate) responses: Vec<(String, Type)>,
    /// The statuses of errors that are specific to the operation.
    pub(crate) errors: String,
}

/// A parameter or a field of an object.
#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub(crate) name: String,
    /// Where a parameter is expected.
    pub(crate) place: &'static str,
    pub(crate) required: bool,
    pub(crate) kind: Type,
    pub(crate) description: String,
}

/// An object in responses.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) fields: Vec<Property>,
}

/// A type as text, and the object that it refers to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Type {
    pub(crate) text: String,
    pub(crate) object: Option<String>,
}

/// Statuses that every operation may return.
const COMMON_STATUSES: [&str; 9] = ["400", "408", "413", "414", "415", "429", "500", "503", "507"];
const REF_PREFIX: &str = "#/components/schemas/";

impl ApiDocument {
    /// Reads a document. One that has another form has an empty reference.
    pub(crate) fn parse(document: &[u8]) -> Self {
        let Ok(document) = serde_json::from_slice::<Value>(document) else { return Self::default() };
        let schemas = &document["components"]["schemas"];
        let prefix = text(&document["servers"][0]["url"]);
        let tag = |tag: &Value| {
            let name = text(&tag["name"]);
            let operations = operations(&document["paths"], &name, &prefix);
            ApiTag {
                slug: name.to_lowercase().replace(' ', "-"),
                description: text(&tag["description"]),
                objects: objects(&operations, schemas),
                operations,
                name,
            }
        };
        Self { tags: items(&document["tags"]).map(tag).collect() }
    }

    /// Returns the resource with a name in URLs.
    pub(crate) fn tag(&self, slug: &str) -> Option<&ApiTag> {
        self.tags.iter().find(|tag| tag.slug == slug)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Returns the operations of a resource.
fn operations(paths: &Value, tag: &str, prefix: &str) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, methods) in entries(paths) {
        for (method, operation) in entries(methods) {
            if !items(&operation["tags"]).any(|name| name == tag) {
                continue;
            }
            found.push(read_operation(&format!("{prefix}{path}"), method, operation));
        }
    }
    found
}

fn read_operation(path: &str, method: &str, operation: &Value) -> Operation {
    let parameters = items(&operation["parameters"]).map(|parameter| Property {
        name: text(&parameter["name"]),
        place: if parameter["in"] == "path" { "path" } else { "query" },
        required: parameter["required"] == true,
        kind: Type::of(&parameter["schema"]),
        description: text(&parameter["description"]),
    });
    // All content types of a body have the same schema.
    let body = entries(&operation["requestBody"]["content"]).next().map(|(_, content)| &content["schema"]);
    let body = body.into_iter().flat_map(|schema| properties(schema, "body"));
    let (successes, errors): (Vec<_>, Vec<_>) =
        entries(&operation["responses"]).partition(|(status, _)| status.starts_with('2'));
    let responses = successes.into_iter().map(|(status, response)| {
        let content = entries(&response["content"]).next();
        let kind = match content {
            Some((kind, content)) if kind == "application/json" => Type::of(&content["schema"]),
            Some((kind, _)) => Type { text: kind.clone(), object: None },
            None => Type { text: "no content".to_owned(), object: None },
        };
        (status.clone(), kind)
    });
    let mut errors: Vec<&str> = errors
        .into_iter()
        .map(|(status, _)| status.as_str())
        .filter(|status| !COMMON_STATUSES.contains(status))
        .collect();
    errors.sort_unstable();
    let security: Vec<&Value> = items(&operation["security"]).collect();
    Operation {
        id: text(&operation["operationId"]),
        method: method.to_uppercase(),
        path: path.to_owned(),
        summary: text(&operation["summary"]),
        needs_token: !security.is_empty()
            && security.iter().all(|kind| kind.as_object().is_some_and(|kind| !kind.is_empty())),
        parameters: parameters.chain(body).collect(),
        responses: responses.collect(),
        errors: errors.join(", "),
    }
}

/// Returns the fields of an object.
fn properties(schema: &Value, place: &'static str) -> Vec<Property> {
    let required: Vec<&str> = items(&schema["required"]).filter_map(Value::as_str).collect();
    let own = entries(&schema["properties"]).map(|(name, schema)| Property {
        name: name.clone(),
        place,
        required: required.contains(&name.as_str()),
        kind: Type::of(schema),
        description: text(&schema["description"]),
    });
    // The fields of a flattened struct.
    let parts = ["allOf"].into_iter().flat_map(|key| items(&schema[key])).flat_map(|part| properties(part, place));
    own.chain(parts).collect()
}

/// Returns the objects that the responses of operations consist of.
fn objects(operations: &[Operation], schemas: &Value) -> Vec<Object> {
    let mut pending: Vec<String> = operations
        .iter()
        .flat_map(|operation| operation.responses.iter().filter_map(|(_, kind)| kind.object.clone()))
        .collect();
    pending.reverse();
    let mut found: Vec<Object> = Vec::new();
    while let Some(name) = pending.pop() {
        let schema = &schemas[&name];
        if found.iter().any(|object| object.name == name) || schema.is_null() {
            continue;
        }
        let fields = properties(schema, "");
        pending.extend(fields.iter().rev().filter_map(|field| field.kind.object.clone()));
        found.push(Object { description: text(&schema["description"]), fields, name });
    }
    found
}

/// Returns the name of an object without the suffix that all structs with JSON have.
fn display_name(name: &str) -> &str {
    name.strip_suffix("Json").unwrap_or(name)
}

impl Object {
    /// Returns the name for readers.
    pub(crate) fn display_name(&self) -> &str {
        display_name(&self.name)
    }
}

impl Type {
    /// Describes a schema.
    fn of(schema: &Value) -> Self {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix(REF_PREFIX)) {
            return Self { text: display_name(name).to_owned(), object: Some(name.to_owned()) };
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let choices: Vec<Self> =
                items(&schema[key]).filter(|choice| choice["type"] != "null").map(Self::of).collect();
            if let Some(first) = choices.first() {
                let texts: Vec<&str> = choices.iter().map(|choice| choice.text.as_str()).collect();
                let nullable = items(&schema[key]).any(|choice| choice["type"] == "null");
                let suffix = if nullable { " or null" } else { "" };
                return Self { text: format!("{}{suffix}", texts.join(" or ")), object: first.object.clone() };
            }
        }
        if !schema["enum"].is_null() {
            let values: Vec<String> = items(&schema["enum"])
                .map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
                .collect();
            return Self { text: format!("one of {}", values.join(", ")), object: None };
        }
        let names: Vec<&str> = match &schema["type"] {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => vec!["any"],
        };
        if names.contains(&"array") {
            let Self { text, object } = Self::of(&schema["items"]);
            return Self { text: format!("list of {text}"), object };
        }
        let format = schema["format"].as_str().filter(|format| ["date", "date-time", "binary"].contains(format));
        let name = |name: &&str| match (*name, format) {
            ("string", Some(format)) => format.to_owned(),
            (name, _) => name.to_owned(),
        };
        Self { text: names.iter().map(name).collect::<Vec<_>>().join(" or "), object: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_becomes_a_reference() {
        let document = serde_json::json!({
            "servers": [{ "url": "/api/v3" }],
            "tags": [{ "name": "SSH keys", "description": "Keys" }],
            "paths": { "/user/keys": {
                "get": {
                    "operationId": "list", "summary": "List keys", "tags": ["SSH keys"],
                    "security": [{ "privateToken": [] }],
                    "parameters": [{ "name": "page", "in": "query", "schema": { "type": "integer" } }],
                    "responses": {
                        "200": { "content": { "application/json": { "schema": {
                            "type": "array", "items": { "$ref": "#/components/schemas/KeyJson" } } } } },
                        "401": {}, "500": {},
                    },
                },
                "post": { "tags": ["Others"] },
            } },
            "components": { "schemas": { "KeyJson": {
                "description": "A key",
                "properties": { "user": { "anyOf": [{ "$ref": "#/components/schemas/User" }, { "type": "null" }] } },
            }, "User": { "properties": { "since": { "type": ["string", "null"], "format": "date" } } } } },
        });
        let document = ApiDocument::parse(document.to_string().as_bytes());
        let tag = document.tag("ssh-keys").expect("a tag");
        let [operation] = tag.operations.as_slice() else { panic!("{tag:?}") };
        assert_eq!((operation.method.as_str(), operation.path.as_str()), ("GET", "/api/v3/user/keys"));
        assert!(operation.needs_token);
        assert_eq!(operation.errors, "401");
        assert_eq!(operation.responses[0].1.text, "list of Key");
        let fields = |at: usize| {
            let fields = &tag.objects[at].fields;
            fields.iter().map(|field| format!("{}: {}", field.name, field.kind.text)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(fields(0), "user: User or null");
        assert_eq!(fields(1), "since: date or null");
        assert!(ApiDocument::parse(b"no JSON").tags.is_empty());
    }
}
