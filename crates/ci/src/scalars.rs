//! Plain scalars of YAML 1.1 as GitLab's parser reads them, without dates and base 60.

use crate::value::Value;

/// Reads a plain scalar as null, a boolean, a number or a text.
pub(crate) fn read_plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    // Most scalars are words; the first character distinguishes them from numbers.
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return Value::Text(text.to_owned());
    }
    read_integer(text).or_else(|| read_float(text)).unwrap_or_else(|| Value::Text(text.to_owned()))
}

fn read_integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = if let Some(rest) = digits.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = digits.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = digits.strip_prefix("0o") {
        (8, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let plain: String = digits.chars().filter(|&ch| ch != '_').collect();
    if !plain.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    // A number out of range stays a text.
    let number = i64::from_str_radix(&plain, radix).ok()?;
    Some(Value::Int(if negative { -number } else { number }))
}

fn read_float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    // Rust also parses words such as `inf`; require a digit and a point.
    let digits = unsigned.chars().any(|ch| ch.is_ascii_digit());
    let shape = unsigned.chars().all(|ch| ch.is_ascii_digit() || matches!(ch, '.' | 'e' | 'E' | '+' | '-' | '_'));
    let fraction = unsigned.contains('.');
    if !(digits && shape && fraction) {
        return None;
    }
    text.replace('_', "").parse().ok().map(Value::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Value) {
        assert_eq!(read_plain(text), expected, "{text}");
    }

    #[test]
    fn plain_scalars_are_typed_as_in_gitlab() {
        check("", Value::Null);
        check("~", Value::Null);
        check("yes", Value::Bool(true));
        check("off", Value::Bool(false));
        check("y", Value::Text("y".into()));
        check("42", Value::Int(42));
        check("-7", Value::Int(-7));
        check("1_000", Value::Int(1000));
        check("0755", Value::Int(493));
        check("0x1f", Value::Int(31));
        check("089", Value::Text("089".into()));
        check("1.10", Value::Float(1.1));
        check("1.2.3", Value::Text("1.2.3".into()));
        check(".hidden", Value::Text(".hidden".into()));
        check("1e3", Value::Text("1e3".into()));
        check("2016-11-01", Value::Text("2016-11-01".into()));
        check("99999999999999999999", Value::Text("99999999999999999999".into()));
        check("-", Value::Text("-".into()));
        check("3 mins", Value::Text("3 mins".into()));
    }
}
