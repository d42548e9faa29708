//! The values of a YAML file before they are interpreted.

use std::collections::HashMap;

use crate::budget::{Budget, MAX_CHAIN_LENGTH, ValueSize};
use crate::config_error::ConfigError;

/// A value of a YAML file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Map(Map),
    /// `!reference [job, key]`, not yet resolved.
    Reference(Vec<String>),
}

/// The key of a mapping. Numbers and booleans are valid keys, but not valid job names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) is_text: bool,
}

/// A mapping in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map {
    entries: Vec<(Key, Value)>,
    /// Filled once the mapping is large: with a linear search for each key, a hostile file would take quadratic time.
    index: HashMap<String, usize>,
}

/// The maximum number of entries that are searched linearly.
const MAX_UNINDEXED_LEN: usize = 16;

impl Map {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.index.is_empty() {
            self.entries.iter().position(|(known, _)| known.text == key)
        } else {
            self.index.get(key).copied()
        }
    }

    /// Returns the value of a key; an empty value counts as absent, as in GitLab.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|position| &self.entries[position].1).filter(|value| **value != Value::Null)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn into_entries(self) -> impl Iterator<Item = (Key, Value)> {
        self.entries.into_iter()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Value)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// Sets a key; an existing one keeps its position.
    pub(crate) fn insert(&mut self, key: Key, value: Value) {
        if let Some(position) = self.position(&key.text) {
            self.entries[position] = (key, value);
            return;
        }
        if !self.index.is_empty() {
            self.index.insert(key.text.clone(), self.entries.len());
        }
        self.entries.push((key, value));
        if self.index.is_empty() && self.entries.len() > MAX_UNINDEXED_LEN {
            self.index =
                self.entries.iter().enumerate().map(|(position, (key, _))| (key.text.clone(), position)).collect();
        }
    }

    /// Replaces the value of an existing key.
    pub(crate) fn replace(&mut self, key: &str, value: Value) {
        if let Some(position) = self.position(key) {
            self.entries[position].1 = value;
        }
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Value> {
        let position = self.position(key)?;
        let (_, value) = self.entries.remove(position);
        if !self.index.is_empty() {
            self.index =
                self.entries.iter().enumerate().map(|(position, (key, _))| (key.text.clone(), position)).collect();
        }
        Some(value)
    }

    /// Merges another mapping over this one: mappings are merged, everything else is replaced.
    pub(crate) fn deep_merge(&mut self, over: Map) {
        for (key, value) in over.entries {
            let below = self.position(&key.text).map(|position| &mut self.entries[position].1);
            match (below, value) {
                (Some(Value::Map(below)), Value::Map(over)) => below.deep_merge(over),
                (_, value) => self.insert(key, value),
            }
        }
    }

    pub(crate) fn size(&self) -> ValueSize {
        let mut sum = ValueSize { nodes: 1, bytes: 0, depth: 0 };
        for (key, value) in &self.entries {
            let size = value.size();
            sum.nodes += size.nodes + 1;
            sum.bytes += size.bytes + key.text.len();
            sum.depth = sum.depth.max(size.depth);
        }
        sum.depth += 1;
        sum
    }

    /// Clones the mapping and charges its size to the budget.
    pub(crate) fn charged_clone(&self, budget: &mut Budget) -> Result<Map, ConfigError> {
        budget.charge(self.size())?;
        Ok(self.clone())
    }
}

impl Value {
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(yes) = self { Some(*yes) } else { None }
    }

    pub(crate) fn as_int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    pub(crate) fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    pub(crate) fn as_list(&self) -> Option<&[Value]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// Returns the text of a scalar; numbers and booleans are converted as in GitLab.
    pub(crate) fn scalar_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Int(number) => Some(number.to_string()),
            Self::Float(number) => Some(format!("{number:?}")),
            Self::Bool(yes) => Some(yes.to_string()),
            Self::Null | Self::List(_) | Self::Map(_) | Self::Reference(_) => None,
        }
    }

    /// Returns the items of a list of texts.
    pub(crate) fn texts(&self) -> Option<Vec<String>> {
        self.as_list()?.iter().map(|item| item.as_text().map(ToOwned::to_owned)).collect()
    }

    /// Returns the items of a list of texts that may contain nested lists, as aliases and references produce them.
    pub(crate) fn flattened_texts(&self) -> Option<Vec<String>> {
        let items = self.as_list()?;
        flatten(items)?.into_iter().map(|item| item.as_text().map(ToOwned::to_owned)).collect()
    }

    pub(crate) fn size(&self) -> ValueSize {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) => ValueSize { nodes: 1, bytes: 0, depth: 0 },
            Self::Text(text) => ValueSize { nodes: 1, bytes: text.len(), depth: 0 },
            Self::Reference(path) => ValueSize { nodes: 1, bytes: path.iter().map(String::len).sum(), depth: 0 },
            Self::Map(map) => map.size(),
            Self::List(items) => {
                items.iter().map(Self::size).fold(ValueSize { nodes: 1, bytes: 0, depth: 1 }, |sum, item| ValueSize {
                    nodes: sum.nodes + item.nodes,
                    bytes: sum.bytes + item.bytes,
                    depth: sum.depth.max(item.depth + 1),
                })
            }
        }
    }

    /// Clones the value and charges its size to the budget.
    pub(crate) fn charged_clone(&self, budget: &mut Budget) -> Result<Value, ConfigError> {
        budget.charge(self.size())?;
        Ok(self.clone())
    }
}

/// Flattens nested lists; returns `None` if they nest too deep.
pub(crate) fn flatten(items: &[Value]) -> Option<Vec<&Value>> {
    fn push_flattened<'a>(items: &'a [Value], depth: usize, flat: &mut Vec<&'a Value>) -> Option<()> {
        for item in items {
            match item {
                Value::List(_) if depth == MAX_CHAIN_LENGTH => return None,
                Value::List(inner) => push_flattened(inner, depth + 1, flat)?,
                other => flat.push(other),
            }
        }
        Some(())
    }
    let mut flat = Vec::with_capacity(items.len());
    push_flattened(items, 0, &mut flat)?;
    Some(flat)
}
