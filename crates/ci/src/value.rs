//! What a YAML file says, before anybody knows what it means.

use std::collections::HashMap;

use crate::budget::{Budget, MAX_CHAIN, Weight};
use crate::invalid::Invalid;

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
    /// `!reference [job, key]`, until it is followed.
    Reference(Vec<String>),
}

/// The key of a mapping. Numbers and booleans are keys too, but no names of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) is_text: bool,
}

/// A mapping in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map {
    entries: Vec<(Key, Value)>,
    /// Filled once a mapping is large: files are hostile, and looking through a long list for each key is quadratic.
    index: HashMap<String, usize>,
}

/// Up to this size a mapping is searched from its beginning.
const SMALL: usize = 16;

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

    /// Finds the value of a key; an empty value counts as absent, as in the original.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|at| &self.entries[at].1).filter(|value| **value != Value::Null)
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

    /// Sets a key; one that is there keeps its position.
    pub(crate) fn insert(&mut self, key: Key, value: Value) {
        if let Some(at) = self.position(&key.text) {
            self.entries[at] = (key, value);
            return;
        }
        if !self.index.is_empty() {
            self.index.insert(key.text.clone(), self.entries.len());
        }
        self.entries.push((key, value));
        if self.index.is_empty() && self.entries.len() > SMALL {
            self.index = self.entries.iter().enumerate().map(|(at, (key, _))| (key.text.clone(), at)).collect();
        }
    }

    /// Replaces the value of a key that is there.
    pub(crate) fn replace(&mut self, key: &str, value: Value) {
        if let Some(at) = self.position(key) {
            self.entries[at].1 = value;
        }
    }

    /// Takes a key out.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.position(key)?;
        let (_, value) = self.entries.remove(at);
        if !self.index.is_empty() {
            self.index = self.entries.iter().enumerate().map(|(at, (key, _))| (key.text.clone(), at)).collect();
        }
        Some(value)
    }

    /// Lays another mapping over this one: mappings are merged, everything else is replaced.
    pub(crate) fn merge_deeply(&mut self, over: Map) {
        for (key, value) in over.entries {
            let below = self.position(&key.text).map(|at| &mut self.entries[at].1);
            match (below, value) {
                (Some(Value::Map(below)), Value::Map(over)) => below.merge_deeply(over),
                (_, value) => self.insert(key, value),
            }
        }
    }

    pub(crate) fn weight(&self) -> Weight {
        let mut sum = Weight { nodes: 1, bytes: 0, height: 0 };
        for (key, value) in &self.entries {
            let weight = value.weight();
            sum.nodes += weight.nodes + 1;
            sum.bytes += weight.bytes + key.text.len();
            sum.height = sum.height.max(weight.height);
        }
        sum.height += 1;
        sum
    }

    /// Copies the mapping if the budget allows it.
    pub(crate) fn copy(&self, budget: &mut Budget) -> Result<Map, Invalid> {
        budget.charge(self.weight())?;
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

    /// The text of a scalar, as the original turns numbers and booleans into texts.
    pub(crate) fn scalar_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Int(number) => Some(number.to_string()),
            Self::Float(number) => Some(format!("{number:?}")),
            Self::Bool(yes) => Some(yes.to_string()),
            Self::Null | Self::List(_) | Self::Map(_) | Self::Reference(_) => None,
        }
    }

    /// A list of texts and nothing else.
    pub(crate) fn texts(&self) -> Option<Vec<String>> {
        self.as_list()?.iter().map(|item| item.as_text().map(ToOwned::to_owned)).collect()
    }

    /// A list of texts that may hold lists again, as aliases and references make them.
    pub(crate) fn lines(&self) -> Option<Vec<String>> {
        let items = self.as_list()?;
        flatten(items)?.into_iter().map(|item| item.as_text().map(ToOwned::to_owned)).collect()
    }

    pub(crate) fn weight(&self) -> Weight {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) => Weight { nodes: 1, bytes: 0, height: 0 },
            Self::Text(text) => Weight { nodes: 1, bytes: text.len(), height: 0 },
            Self::Reference(path) => Weight { nodes: 1, bytes: path.iter().map(String::len).sum(), height: 0 },
            Self::Map(map) => map.weight(),
            Self::List(items) => {
                items.iter().map(Self::weight).fold(Weight { nodes: 1, bytes: 0, height: 1 }, |sum, item| Weight {
                    nodes: sum.nodes + item.nodes,
                    bytes: sum.bytes + item.bytes,
                    height: sum.height.max(item.height + 1),
                })
            }
        }
    }

    /// Copies the value if the budget allows it.
    pub(crate) fn copy(&self, budget: &mut Budget) -> Result<Value, Invalid> {
        budget.charge(self.weight())?;
        Ok(self.clone())
    }
}

/// The items of a list with the lists among them opened, or nothing if they nest too deep.
pub(crate) fn flatten(items: &[Value]) -> Option<Vec<&Value>> {
    fn open<'a>(items: &'a [Value], depth: usize, flat: &mut Vec<&'a Value>) -> Option<()> {
        for item in items {
            match item {
                Value::List(_) if depth == MAX_CHAIN => return None,
                Value::List(inner) => open(inner, depth + 1, flat)?,
                other => flat.push(other),
            }
        }
        Some(())
    }
    let mut flat = Vec::with_capacity(items.len());
    open(items, 0, &mut flat)?;
    Some(flat)
}
