//! Variables of a file, and putting their values into texts.

use std::collections::BTreeMap;

use crate::budget::MAX_EXPANDED;
use crate::invalid::{Invalid, Place};
use crate::value::{Map, Value};

/// Variables by name.
pub type Variables = BTreeMap<String, String>;

/// Reads `variables`. Numbers and booleans become texts: 8.14 refused them, but files of today use them.
pub(crate) fn read(value: &Value, place: Place<'_>) -> Result<Variables, Invalid> {
    let refuse = || place.invalid("config should be a hash of key value pairs");
    let map = value.as_map().ok_or_else(refuse)?;
    map.iter()
        .map(|(key, value)| {
            let text = match value {
                Value::Map(described) => read_described(described),
                other => other.scalar_text(),
            };
            Ok((key.text.clone(), text.ok_or_else(refuse)?))
        })
        .collect()
}

/// Reads the long form, whose description is for pages that ask for values.
fn read_described(map: &Map) -> Option<String> {
    let known = |key: &str| matches!(key, "value" | "description" | "options" | "expand");
    if !map.iter().all(|(key, _)| known(&key.text)) {
        return None;
    }
    map.get("value").map_or_else(|| Some(String::new()), Value::scalar_text)
}

/// Puts the values of variables into a text: `$NAME`, `${NAME}` and `%NAME%`; `$$` is a dollar sign.
///
/// Unknown variables become nothing, values are not looked at again, and a text that would grow beyond all measure is
/// refused with `None`.
pub fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '%']) {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let is_percent = rest[at..].starts_with('%');
        let found =
            if is_percent { after.split_once('%').filter(|(name, _)| is_name(name)) } else { split_name(after) };
        let Some((name, behind)) = found else {
            out.push(if is_percent { '%' } else { '$' });
            rest = if is_percent { after } else { after.strip_prefix('$').unwrap_or(after) };
            continue;
        };
        out.push_str(lookup(name).unwrap_or_default());
        if out.len() > MAX_EXPANDED {
            return None;
        }
        rest = behind;
    }
    out.push_str(rest);
    (out.len() <= MAX_EXPANDED).then_some(out)
}

/// The name at the beginning of what follows a dollar sign, and what comes after it.
fn split_name(after: &str) -> Option<(&str, &str)> {
    if let Some(braced) = after.strip_prefix('{') {
        return braced.split_once('}').filter(|(name, _)| is_name(name));
    }
    let end = after.find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').unwrap_or(after.len());
    let (name, behind) = after.split_at(end);
    is_name(name).then_some((name, behind))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_')
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
    fn values_are_put_into_texts_once() {
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
    fn growth_has_an_end() {
        let large = "x".repeat(1000);
        assert_eq!(expand(&"$X".repeat(1000), |_| Some(large.as_str())), None);
    }
}
