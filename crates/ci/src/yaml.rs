//! A YAML loader that never builds more than the budget allows.
//!
//! The parser produces events; aliases are resolved here, and each copy is charged before it is made. Only the errors
//! of this file have positions: once `extends` and includes have merged values, a line would mislead more often than
//! help.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use crate::budget::{Budget, MAX_DEPTH, MAX_FILE_BYTES, ValueSize};
use crate::config_error::ConfigError;
use crate::scalars::read_plain;
use crate::value::{Key, Map, Value};

/// Loads the only document of a file.
pub(crate) fn load(text: &str, budget: &mut Budget) -> Result<Value, ConfigError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(ConfigError::new(format!(
            "The file is too large: it has {} bytes, at most {MAX_FILE_BYTES} are allowed",
            text.len()
        )));
    }
    let mut loader = Loader { budget, stack: Vec::new(), anchors: HashMap::new(), root: None, documents: 0 };
    for item in Parser::new_from_str(text) {
        let (event, span) = item.map_err(|error| error_at(*error.marker(), error.info()))?;
        loader.handle_event(event, span.start)?;
    }
    Ok(loader.root.unwrap_or(Value::Null))
}

fn error_at(marker: Marker, text: &str) -> ConfigError {
    ConfigError::new(format!("{text} at line {} column {}", marker.line(), marker.col() + 1))
}

struct Loader<'a> {
    budget: &'a mut Budget,
    stack: Vec<OpenCollection>,
    anchors: HashMap<usize, (Value, ValueSize)>,
    root: Option<Value>,
    documents: usize,
}

/// A list or a mapping whose end has not been read yet.
struct OpenCollection {
    anchor: usize,
    collection: Collection,
}

enum Collection {
    List { items: Vec<Value>, is_reference: bool },
    Map { map: Map, key: Option<Key>, is_merge: bool },
}

impl Loader<'_> {
    fn handle_event(&mut self, event: Event<'_>, marker: Marker) -> Result<(), ConfigError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if text.contains('\0') {
                    // A database may reject such a text much later with a less clear error.
                    return Err(error_at(marker, "a text must not contain the character NUL"));
                }
                let value = read_scalar(&text, style, tag.as_deref(), marker)?;
                let is_merge = style == ScalarStyle::Plain && text == "<<";
                self.budget.charge(value.size())?;
                self.store_anchor(anchor, &value)?;
                self.insert_value(value, is_merge, marker)
            }
            Event::SequenceStart(anchor, tag) => {
                let is_reference = tag.as_deref().is_some_and(is_reference);
                check_tag(tag.as_deref(), marker)?;
                self.open_collection(
                    OpenCollection { anchor, collection: Collection::List { items: Vec::new(), is_reference } },
                    marker,
                )
            }
            Event::MappingStart(anchor, tag) => {
                if tag.as_deref().is_some_and(is_reference) {
                    return Err(error_at(marker, "!reference takes a list, such as !reference [.setup, script]"));
                }
                check_tag(tag.as_deref(), marker)?;
                let collection = Collection::Map { map: Map::default(), key: None, is_merge: false };
                self.open_collection(OpenCollection { anchor, collection }, marker)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close_collection(marker),
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor) else {
                    return Err(error_at(marker, "an alias refers to a value that contains it"));
                };
                if self.stack.len() + size.depth > MAX_DEPTH {
                    return Err(too_deep(marker));
                }
                self.budget.charge(*size)?;
                let value = value.clone();
                self.insert_value(value, false, marker)
            }
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(error_at(marker, "only one YAML document is allowed in a file"));
                }
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn open_collection(&mut self, collection: OpenCollection, marker: Marker) -> Result<(), ConfigError> {
        if self.stack.len() == MAX_DEPTH {
            return Err(too_deep(marker));
        }
        self.budget.charge(ValueSize { nodes: 1, bytes: 0, depth: 0 })?;
        self.stack.push(collection);
        Ok(())
    }

    fn close_collection(&mut self, marker: Marker) -> Result<(), ConfigError> {
        // The parser pairs starts with ends, so this cannot happen.
        let Some(OpenCollection { anchor, collection }) = self.stack.pop() else { return Ok(()) };
        let value = match collection {
            Collection::Map { map, .. } => Value::Map(map),
            Collection::List { items, is_reference: false } => Value::List(items),
            Collection::List { items, is_reference: true } => {
                let path: Option<Vec<String>> = items.iter().map(Value::scalar_text).collect();
                match path {
                    Some(path) if !path.is_empty() => Value::Reference(path),
                    _ => return Err(error_at(marker, "!reference takes a list of names")),
                }
            }
        };
        self.store_anchor(anchor, &value)?;
        self.insert_value(value, false, marker)
    }

    /// Stores a value that has an anchor; this copy is charged like any other.
    fn store_anchor(&mut self, anchor: usize, value: &Value) -> Result<(), ConfigError> {
        if anchor != 0 {
            let size = value.size();
            self.budget.charge(size)?;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        Ok(())
    }

    /// Inserts a finished value into the innermost list or mapping, or as the root.
    fn insert_value(&mut self, value: Value, is_merge_key: bool, marker: Marker) -> Result<(), ConfigError> {
        match self.stack.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(value),
            Some(Collection::List { items, .. }) => items.push(value),
            Some(Collection::Map { map, key, is_merge }) => match key.take() {
                None => {
                    *is_merge = is_merge_key;
                    *key = Some(read_key(&value, marker)?);
                }
                Some(_) if *is_merge => merge(map, value, marker)?,
                Some(name) => map.insert(name, value),
            },
        }
        Ok(())
    }
}

/// Applies `<<` at its position, as in GitLab: keys before it are replaced, keys after it win.
fn merge(map: &mut Map, value: Value, marker: Marker) -> Result<(), ConfigError> {
    let sources = match value {
        Value::Map(source) => vec![source],
        Value::List(items) => {
            let sources: Option<Vec<Map>> = items
                .into_iter()
                .rev()
                .map(|item| if let Value::Map(source) = item { Some(source) } else { None })
                .collect();
            sources.ok_or_else(|| error_at(marker, "<< takes a mapping or a list of mappings"))?
        }
        _ => return Err(error_at(marker, "<< takes a mapping or a list of mappings")),
    };
    for source in sources {
        for (key, value) in source.into_entries() {
            map.insert(key, value);
        }
    }
    Ok(())
}

fn too_deep(marker: Marker) -> ConfigError {
    error_at(marker, &format!("lists and mappings nest too deep, at most {MAX_DEPTH} levels are allowed"))
}

fn read_key(value: &Value, marker: Marker) -> Result<Key, ConfigError> {
    match value {
        Value::Text(text) => Ok(Key { text: text.clone(), is_text: true }),
        Value::Null => Ok(Key { text: String::new(), is_text: false }),
        other => match other.scalar_text() {
            Some(text) => Ok(Key { text, is_text: false }),
            None => Err(error_at(marker, "a key must be a name, not a list or a mapping")),
        },
    }
}

fn read_scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, marker: Marker) -> Result<Value, ConfigError> {
    check_tag(tag, marker)?;
    if tag.is_some_and(is_reference) {
        return Err(error_at(marker, "!reference takes a list, such as !reference [.setup, script]"));
    }
    let has_text_tag = tag.is_some_and(|tag| tag.suffix == "str" || tag.suffix.is_empty());
    if style != ScalarStyle::Plain || has_text_tag || text == "<<" {
        return Ok(Value::Text(text.to_owned()));
    }
    Ok(read_plain(text))
}

fn is_reference(tag: &Tag) -> bool {
    tag.handle == "!" && tag.suffix == "reference"
}

/// Rejects tags other than YAML's own and `!reference`; others would name objects of a program.
fn check_tag(tag: Option<&Tag>, marker: Marker) -> Result<(), ConfigError> {
    match tag {
        None => Ok(()),
        Some(tag) if tag.is_yaml_core_schema() || is_reference(tag) || tag.suffix.is_empty() => Ok(()),
        Some(tag) => Err(error_at(marker, &format!("unknown tag {tag}"))),
    }
}
