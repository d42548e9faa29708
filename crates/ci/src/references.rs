//! Resolves `!reference [job, key]`: a value copied from elsewhere in the file.

use crate::budget::{Budget, MAX_CHAIN_LENGTH};
use crate::config_error::ConfigError;
use crate::value::{Map, Value};

/// Resolves every reference of a file; a file without references is returned unchanged.
pub(crate) fn resolve(mut root: Map, budget: &mut Budget) -> Result<Map, ConfigError> {
    if !root.iter().any(|(_, value)| has_reference(value)) {
        return Ok(root);
    }
    let source = root.charged_clone(budget)?;
    for (_, value) in root.values_mut() {
        resolve_value(value, &source, budget, 0)?;
    }
    Ok(root)
}

fn has_reference(value: &Value) -> bool {
    match value {
        Value::Reference(_) => true,
        Value::List(items) => items.iter().any(has_reference),
        Value::Map(map) => map.iter().any(|(_, value)| has_reference(value)),
        _ => false,
    }
}

fn resolve_value(value: &mut Value, source: &Map, budget: &mut Budget, chain: usize) -> Result<(), ConfigError> {
    match value {
        Value::List(items) => items.iter_mut().try_for_each(|item| resolve_value(item, source, budget, chain)),
        Value::Map(map) => map.values_mut().try_for_each(|(_, value)| resolve_value(value, source, budget, chain)),
        Value::Reference(path) => {
            let written = format!("!reference [{}]", path.join(", "));
            if chain == MAX_CHAIN_LENGTH {
                return Err(ConfigError::new(format!("{written} is part of a circular or too long chain")));
            }
            let found = find(path, source).ok_or_else(|| ConfigError::new(format!("{written} could not be found")))?;
            let mut found = found.charged_clone(budget)?;
            resolve_value(&mut found, source, budget, chain + 1)?;
            *value = found;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn find<'a>(path: &[String], source: &'a Map) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(source.get(first)?, |value, key| value.as_map()?.get(key))
}
