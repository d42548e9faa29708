//! Small rules about text that several nouns share.

/// Removes everything that looks like an HTML tag, in one pass over the text.
///
/// A tag goes on to its `>`, or to the end of the text. A `<` that opens no tag stays only if what is left could not make
/// it one: `a < b` is arithmetic, `<<b>script>` is not.
pub fn strip_tags(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut inside = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '>' if inside => inside = false,
            _ if inside => {}
            '<' if characters.peek().is_some_and(|next| !next.is_whitespace()) => inside = true,
            _ => kept.push(c),
        }
    }
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
        check("open <b", "open ");
        check("<<b>script>alert(1)<<b>/script>", "script>alert(1)/script>");
        check("1 <2 and 3 > 2", "1  2");
        check("plain", "plain");
    }
}
