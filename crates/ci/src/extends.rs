//! `extends`: a job that takes over what other jobs say.

use std::collections::HashMap;

use crate::budget::{Budget, MAX_CHAIN};
use crate::entries::text_or_texts;
use crate::invalid::Invalid;
use crate::value::{Map, Value};

/// Follows `extends` in every entry at the top of the file.
pub(crate) fn follow(root: Map, budget: &mut Budget) -> Result<Map, Invalid> {
    let names: Vec<String> = root
        .iter()
        // A variable may be called so too.
        .filter(|(key, value)| {
            key.text != "variables" && value.as_map().is_some_and(|map| map.get("extends").is_some())
        })
        .map(|(key, _)| key.text.clone())
        .collect();
    if names.is_empty() {
        return Ok(root);
    }
    let mut extending = Extending { root, budget, done: HashMap::new(), open: Vec::new() };
    for name in &names {
        extending.resolve(name)?;
    }
    Ok(extending.root)
}

struct Extending<'a> {
    root: Map,
    budget: &'a mut Budget,
    /// The entries that are resolved, with the length of the chain below each.
    done: HashMap<String, usize>,
    /// The entries that are being resolved, outermost first.
    open: Vec<String>,
}

impl Extending<'_> {
    /// Resolves an entry in place, and tells how long the chain below it is.
    fn resolve(&mut self, name: &str) -> Result<usize, Invalid> {
        if let Some(height) = self.done.get(name) {
            return Ok(*height);
        }
        if self.open.iter().any(|open| open == name) {
            return Err(Invalid::new(format!("{}: circular dependency detected in `extends`", self.open[0])));
        }
        if self.open.len() > MAX_CHAIN {
            return Err(self.too_deep());
        }
        let Some(own) = self.root.get(name).and_then(Value::as_map) else { return Ok(0) };
        let Some(extends) = own.get("extends") else {
            self.done.insert(name.to_owned(), 0);
            return Ok(0);
        };
        let bases = text_or_texts(extends).ok_or_else(|| {
            Invalid::new(format!("jobs:{name}:extends config should be an array of strings or a string"))
        })?;
        let unknown: Vec<&str> =
            bases.iter().filter(|base| self.root.get(base).is_none()).map(String::as_str).collect();
        if !unknown.is_empty() {
            return Err(Invalid::new(format!("{name}: unknown keys in `extends` (`{}`)", unknown.join("`, `"))));
        }
        let wrong: Vec<&str> = bases
            .iter()
            .filter(|base| self.root.get(base).and_then(Value::as_map).is_none())
            .map(String::as_str)
            .collect();
        if !wrong.is_empty() {
            return Err(Invalid::new(format!("{name}: invalid base hashes in `extends` (`{}`)", wrong.join("`, `"))));
        }
        self.open.push(name.to_owned());
        let mut height = 0;
        let mut merged = Map::default();
        for base in &bases {
            height = height.max(self.resolve(base)? + 1);
            if let Some(base) = self.root.get(base).and_then(Value::as_map) {
                merged.merge_deeply(base.copy(self.budget)?);
            }
        }
        if self.open.len() + height > MAX_CHAIN + 1 {
            return Err(self.too_deep());
        }
        self.open.pop();
        if let Some(own) = self.root.get(name).and_then(Value::as_map) {
            merged.merge_deeply(own.copy(self.budget)?);
        }
        merged.remove("extends");
        self.root.replace(name, Value::Map(merged));
        self.done.insert(name.to_owned(), height);
        Ok(height)
    }

    fn too_deep(&self) -> Invalid {
        Invalid::new(format!("{}: nesting too deep in `extends`", self.open[0]))
    }
}
