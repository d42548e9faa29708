//! Resolves `extends`: a job inherits the keys of other jobs.

use std::collections::HashMap;

use crate::budget::{Budget, MAX_CHAIN_LENGTH};
use crate::config_error::ConfigError;
use crate::fields::text_or_texts;
use crate::value::{Map, Value};

/// Resolves `extends` in every entry at the top level of the file.
pub(crate) fn resolve(root: Map, budget: &mut Budget) -> Result<Map, ConfigError> {
    let names: Vec<String> = root
        .iter()
        // `variables` may have a variable of that name.
        .filter(|(key, value)| {
            key.text != "variables" && value.as_map().is_some_and(|map| map.get("extends").is_some())
        })
        .map(|(key, _)| key.text.clone())
        .collect();
    if names.is_empty() {
        return Ok(root);
    }
    let mut resolver = ExtendsResolver { root, budget, resolved: HashMap::new(), stack: Vec::new() };
    for name in &names {
        resolver.resolve(name)?;
    }
    Ok(resolver.root)
}

struct ExtendsResolver<'a> {
    root: Map,
    budget: &'a mut Budget,
    /// The resolved entries, with the length of the chain below each.
    resolved: HashMap<String, usize>,
    /// The entries being resolved, outermost first.
    stack: Vec<String>,
}

impl ExtendsResolver<'_> {
    /// Resolves an entry in place; returns the length of the chain below it.
    fn resolve(&mut self, name: &str) -> Result<usize, ConfigError> {
        if let Some(chain_length) = self.resolved.get(name) {
            return Ok(*chain_length);
        }
        if self.stack.iter().any(|open| open == name) {
            return Err(ConfigError::new(format!("{}: circular dependency detected in `extends`", self.stack[0])));
        }
        if self.stack.len() > MAX_CHAIN_LENGTH {
            return Err(self.too_deep());
        }
        let Some(own) = self.root.get(name).and_then(Value::as_map) else { return Ok(0) };
        let Some(extends) = own.get("extends") else {
            self.resolved.insert(name.to_owned(), 0);
            return Ok(0);
        };
        let bases = text_or_texts(extends).ok_or_else(|| {
            ConfigError::new(format!("jobs:{name}:extends config should be an array of strings or a string"))
        })?;
        let unknown: Vec<&str> =
            bases.iter().filter(|base| self.root.get(base).is_none()).map(String::as_str).collect();
        if !unknown.is_empty() {
            return Err(ConfigError::new(format!("{name}: unknown keys in `extends` (`{}`)", unknown.join("`, `"))));
        }
        let wrong: Vec<&str> = bases
            .iter()
            .filter(|base| self.root.get(base).and_then(Value::as_map).is_none())
            .map(String::as_str)
            .collect();
        if !wrong.is_empty() {
            return Err(ConfigError::new(format!(
                "{name}: invalid base hashes in `extends` (`{}`)",
                wrong.join("`, `")
            )));
        }
        self.stack.push(name.to_owned());
        let mut chain_length = 0;
        let mut merged = Map::default();
        for base in &bases {
            chain_length = chain_length.max(self.resolve(base)? + 1);
            if let Some(base) = self.root.get(base).and_then(Value::as_map) {
                merged.deep_merge(base.charged_clone(self.budget)?);
            }
        }
        if self.stack.len() + chain_length > MAX_CHAIN_LENGTH + 1 {
            return Err(self.too_deep());
        }
        self.stack.pop();
        if let Some(own) = self.root.get(name).and_then(Value::as_map) {
            merged.deep_merge(own.charged_clone(self.budget)?);
        }
        merged.remove("extends");
        self.root.replace(name, Value::Map(merged));
        self.resolved.insert(name.to_owned(), chain_length);
        Ok(chain_length)
    }

    fn too_deep(&self) -> ConfigError {
        ConfigError::new(format!("{}: nesting too deep in `extends`", self.stack[0]))
    }
}
