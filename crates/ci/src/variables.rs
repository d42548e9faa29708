//! Variables of a file and their expansion in texts.

use std::collections::BTreeMap;

use crate::budget::MAX_EXPANDED_BYTES;
use crate::config_error::{ConfigError, KeyPath};
use crate::value::{Map, Value};

/// Variables by name.
pub type Variables = BTreeMap<String, String>;

/// Reads `variables`. Numbers and booleans become texts: GitLab 8.14 refused them, but later files use them.
pub(crate) fn read(value: &Value, key_path: KeyPath<'_>) -> Result<Variables, ConfigError> {
    let error = || key_path.error("config should be a hash of key value pairs");
    let map = value.as_map().ok_or_else(error)?;
    map.iter()
        .map(|(key, value)| {
            let text = match value {
                Value::Map(described) => read_described(described),
                other => other.scalar_text(),
            };
            Ok((key.text.clone(), text.ok_or_else(error)?))
        })
        .collect()
}

/// Reads the long form; its description is for forms that ask for values.
fn read_described(map: &Map) -> Option<String> {
    let known = |key: &str| matches!(key, "value" | "description" | "options" | "expand");
    if !map.iter().all(|(key, _)| known(&key.text)) {
        return None;
    }
    map.get("value").map_or_else(|| Some(String::new()), Value::scalar_text)
}

/// Expands `$NAME`, `${NAME}` and `%NAME%` in a text; `$$` is a dollar sign.
///
/// Unknown variables are empty and values are not expanded again. Returns `None` if the result is too long.
pub fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(index) = rest.find(['$', '%']) {
        out.push_str(&rest[..index]);
        let after = &rest[index + 1..];
        let is_percent = rest[index..].starts_with('%');
        let found =
            if is_percent { after.split_once('%').filter(|(name, _)| is_name(name)) } else { split_name(after) };
        let Some((name, remainder)) = found else {
            out.push(if is_percent { '%' } else { '$' });
            rest = if is_percent { after } else { after.strip_prefix('$').unwrap_or(after) };
            continue;
        };
        out.push_str(lookup(name).unwrap_or_default());
        if out.len() > MAX_EXPANDED_BYTES {
            return None;
        }
        rest = remainder;
    }
    out.push_str(rest);
    (out.len() <= MAX_EXPANDED_BYTES).then_some(out)
}

/// Splits the name of a variable off the text after a dollar sign.
fn split_name(after: &str) -> Option<(&str, &str)> {
    if let Some(braced) = after.strip_prefix('{') {
        return braced.split_once('}').filter(|(name, _)| is_name(name));
    }
    let end = after.find(|ch: char| !ch.is_ascii_alphanumeric() && ch != '_').unwrap_or(after.len());
    let (name, remainder) = after.split_at(end);
    is_name(name).then_some((name, remainder))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.chars().all(|ch| ch.is_ascii_alphanumeric() || ch == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let lookup = |name: &str| match name {
            "A" => Some("1"),
            "B_2" => Some("$A"),
            _ => None,
        };
        assert_eq!(expand(text, lookup).as_deref(), Some(expected), "{text}");
    }

    #[test]
    fn variables_are_expanded_once() {
        check("a $A b", "a 1 b");
        check("${A}x", "1x");
        check("$Ax", "");
        check("$B_2", "$A");
        check("%A%", "1");
        check("100% of $A", "100% of 1");
        check("$$A", "$A");
        check("$", "$");
        check("${A", "${A");
        check("$1 ${}", "$1 ${}");
        check("é$A", "é1");
    }

    #[test]
    fn the_expanded_length_is_limited() {
        let large = "x".repeat(1000);
        assert_eq!(expand(&"$X".repeat(1000), |_| Some(large.as_str())), None);
    }
}
