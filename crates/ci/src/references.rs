//! `!reference [job, key]`: a value that stands elsewhere in the file.

use crate::budget::{Budget, MAX_CHAIN};
use crate::invalid::Invalid;
use crate::value::{Map, Value};

/// Follows every reference of a file; a file without any is left as it is.
pub(crate) fn follow(mut root: Map, budget: &mut Budget) -> Result<Map, Invalid> {
    if !root.iter().any(|(_, value)| has_reference(value)) {
        return Ok(root);
    }
    let source = root.copy(budget)?;
    for (_, value) in root.values_mut() {
        resolve(value, &source, budget, 0)?;
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

fn resolve(value: &mut Value, source: &Map, budget: &mut Budget, chain: usize) -> Result<(), Invalid> {
    match value {
        Value::List(items) => items.iter_mut().try_for_each(|item| resolve(item, source, budget, chain)),
        Value::Map(map) => map.values_mut().try_for_each(|(_, value)| resolve(value, source, budget, chain)),
        Value::Reference(path) => {
            let written = format!("!reference [{}]", path.join(", "));
            if chain == MAX_CHAIN {
                return Err(Invalid::new(format!("{written} is part of a circular or too long chain")));
            }
            let found = find(path, source).ok_or_else(|| Invalid::new(format!("{written} could not be found")))?;
            let mut found = found.copy(budget)?;
            resolve(&mut found, source, budget, chain + 1)?;
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
