//! A loader for YAML that never builds more than the budget allows.
//!
//! The parser hands out events; aliases are resolved here, and each copy is paid for before it is made. Positions are
//! told in the errors of this file and not kept: once `extends` and includes have merged values from several places,
//! a line would mislead more often than it helps.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use crate::budget::{Budget, MAX_DEPTH, MAX_FILE_BYTES, Weight};
use crate::invalid::Invalid;
use crate::scalars::read_plain;
use crate::value::{Key, Map, Value};

/// Loads the one document of a file.
pub(crate) fn load(text: &str, budget: &mut Budget) -> Result<Value, Invalid> {
    if text.len() > MAX_FILE_BYTES {
        return Err(Invalid::new(format!(
            "The file is too large: it has {} bytes, at most {MAX_FILE_BYTES} are allowed",
            text.len()
        )));
    }
    let mut loader = Loader { budget, open: Vec::new(), anchors: HashMap::new(), root: None, documents: 0 };
    for step in Parser::new_from_str(text) {
        let (event, span) = step.map_err(|error| at(*error.marker(), error.info()))?;
        loader.take(event, span.start)?;
    }
    Ok(loader.root.unwrap_or(Value::Null))
}

fn at(marker: Marker, text: &str) -> Invalid {
    Invalid::new(format!("{text} at line {} column {}", marker.line(), marker.col() + 1))
}

struct Loader<'a> {
    budget: &'a mut Budget,
    open: Vec<Open>,
    anchors: HashMap<usize, (Value, Weight)>,
    root: Option<Value>,
    documents: usize,
}

/// A list or a mapping whose end has not been seen yet.
struct Open {
    anchor: usize,
    kind: Kind,
}

enum Kind {
    List { items: Vec<Value>, is_reference: bool },
    Map { map: Map, key: Option<Key>, is_merge: bool },
}

impl Loader<'_> {
    fn take(&mut self, event: Event<'_>, marker: Marker) -> Result<(), Invalid> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if text.contains('\0') {
                    // A database may refuse such a text much later and much less clearly.
                    return Err(at(marker, "a text must not contain the character NUL"));
                }
                let value = read_scalar(&text, style, tag.as_deref(), marker)?;
                let is_merge = style == ScalarStyle::Plain && text == "<<";
                self.budget.charge(value.weight())?;
                self.remember(anchor, &value)?;
                self.place(value, is_merge, marker)
            }
            Event::SequenceStart(anchor, tag) => {
                let is_reference = tag.as_deref().is_some_and(is_reference);
                known_tag(tag.as_deref(), marker)?;
                self.enter(Open { anchor, kind: Kind::List { items: Vec::new(), is_reference } }, marker)
            }
            Event::MappingStart(anchor, tag) => {
                if tag.as_deref().is_some_and(is_reference) {
                    return Err(at(marker, "!reference takes a list, such as !reference [.setup, script]"));
                }
                known_tag(tag.as_deref(), marker)?;
                let kind = Kind::Map { map: Map::default(), key: None, is_merge: false };
                self.enter(Open { anchor, kind }, marker)
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(marker),
            Event::Alias(anchor) => {
                let Some((value, weight)) = self.anchors.get(&anchor) else {
                    return Err(at(marker, "an alias stands inside of what it names"));
                };
                if self.open.len() + weight.height > MAX_DEPTH {
                    return Err(too_deep(marker));
                }
                self.budget.charge(*weight)?;
                let value = value.clone();
                self.place(value, false, marker)
            }
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(at(marker, "only one YAML document is allowed in a file"));
                }
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn enter(&mut self, open: Open, marker: Marker) -> Result<(), Invalid> {
        if self.open.len() == MAX_DEPTH {
            return Err(too_deep(marker));
        }
        self.budget.charge(Weight { nodes: 1, bytes: 0, height: 0 })?;
        self.open.push(open);
        Ok(())
    }

    fn leave(&mut self, marker: Marker) -> Result<(), Invalid> {
        // The parser pairs starts with ends; nothing to close means nothing to do.
        let Some(Open { anchor, kind }) = self.open.pop() else { return Ok(()) };
        let value = match kind {
            Kind::Map { map, .. } => Value::Map(map),
            Kind::List { items, is_reference: false } => Value::List(items),
            Kind::List { items, is_reference: true } => {
                let path: Option<Vec<String>> = items.iter().map(Value::scalar_text).collect();
                match path {
                    Some(path) if !path.is_empty() => Value::Reference(path),
                    _ => return Err(at(marker, "!reference takes a list of names")),
                }
            }
        };
        self.remember(anchor, &value)?;
        self.place(value, false, marker)
    }

    /// Keeps a value that has an anchor; that is a copy like any other.
    fn remember(&mut self, anchor: usize, value: &Value) -> Result<(), Invalid> {
        if anchor != 0 {
            let weight = value.weight();
            self.budget.charge(weight)?;
            self.anchors.insert(anchor, (value.clone(), weight));
        }
        Ok(())
    }

    /// Puts a finished value where it belongs: into the innermost list or mapping, or at the root.
    fn place(&mut self, value: Value, is_merge_key: bool, marker: Marker) -> Result<(), Invalid> {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(value),
            Some(Kind::List { items, .. }) => items.push(value),
            Some(Kind::Map { map, key, is_merge }) => match key.take() {
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

/// Follows `<<`. As in the original it acts where it stands: keys before it are replaced, keys after it win.
fn merge(map: &mut Map, value: Value, marker: Marker) -> Result<(), Invalid> {
    let sources = match value {
        Value::Map(source) => vec![source],
        Value::List(items) => {
            let sources: Option<Vec<Map>> = items
                .into_iter()
                .rev()
                .map(|item| if let Value::Map(source) = item { Some(source) } else { None })
                .collect();
            sources.ok_or_else(|| at(marker, "<< takes a mapping or a list of mappings"))?
        }
        _ => return Err(at(marker, "<< takes a mapping or a list of mappings")),
    };
    for source in sources {
        for (key, value) in source.into_entries() {
            map.insert(key, value);
        }
    }
    Ok(())
}

fn too_deep(marker: Marker) -> Invalid {
    at(marker, &format!("lists and mappings nest too deep, at most {MAX_DEPTH} levels are allowed"))
}

fn read_key(value: &Value, marker: Marker) -> Result<Key, Invalid> {
    match value {
        Value::Text(text) => Ok(Key { text: text.clone(), is_text: true }),
        Value::Null => Ok(Key { text: String::new(), is_text: false }),
        other => match other.scalar_text() {
            Some(text) => Ok(Key { text, is_text: false }),
            None => Err(at(marker, "a key must be a name, not a list or a mapping")),
        },
    }
}

fn read_scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, marker: Marker) -> Result<Value, Invalid> {
    known_tag(tag, marker)?;
    if tag.is_some_and(is_reference) {
        return Err(at(marker, "!reference takes a list, such as !reference [.setup, script]"));
    }
    let says_text = tag.is_some_and(|tag| tag.suffix == "str" || tag.suffix.is_empty());
    if style != ScalarStyle::Plain || says_text || text == "<<" {
        return Ok(Value::Text(text.to_owned()));
    }
    Ok(read_plain(text))
}

fn is_reference(tag: &Tag) -> bool {
    tag.handle == "!" && tag.suffix == "reference"
}

/// Lets tags of YAML itself pass, and `!reference`; whatever else would be an object of somebody's program.
fn known_tag(tag: Option<&Tag>, marker: Marker) -> Result<(), Invalid> {
    match tag {
        None => Ok(()),
        Some(tag) if tag.is_yaml_core_schema() || is_reference(tag) || tag.suffix.is_empty() => Ok(()),
        Some(tag) => Err(at(marker, &format!("unknown tag {tag}"))),
    }
}
