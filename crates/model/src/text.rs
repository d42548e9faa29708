//! Small rules about text that several nouns share.

/// Removes everything that looks like an HTML tag.
pub fn strip_tags(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let Some(length) = rest[start..].find('>') else { break };
        // `a < b` is arithmetic, not a tag.
        let opens = rest[start + 1..].starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c));
        let end = start + if opens { length + 1 } else { 1 };
        kept.push_str(if opens { &rest[..start] } else { &rest[..end] });
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

/// Whether a text holds a character that no name or address needs.
pub fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_and_arithmetic_stays() {
        let check = |text, expected| assert_eq!(strip_tags(text), expected);
        check("Ann <b>Lee</b>", "Ann Lee");
        check("<script>alert(1)</script>", "alert(1)");
        check("a < b > c", "a < b > c");
        check("<!-- x -->y", "y");
        check("open <b", "open <b");
        check("plain", "plain");
    }
}
