//! Plain text as HTML.

use crate::Markup;

/// Returns a short text of a user: a name, a title or a path. Its direction cannot change that of the text around it.
pub fn line(text: impl AsRef<str>) -> Markup {
    let text = text.as_ref();
    let mut html = String::with_capacity(text.len() + 16);
    html.push_str("<bdi>");
    escape_into(&mut html, text);
    html.push_str("</bdi>");
    Markup(html)
}

/// Returns a longer text as it is, with its line breaks.
pub fn preformatted(text: &str) -> Markup {
    let mut html = String::with_capacity(text.len() + 32);
    html.push_str("<pre class=\"plain\">");
    escape_into(&mut html, text);
    html.push_str("</pre>");
    Markup(html)
}

/// Appends a text with everything escaped that HTML treats specially. Characters that reorder text are made visible: with
/// them, code can look different from what a compiler reads.
pub fn escape_into(html: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(needs_escape) {
        html.push_str(&rest[..at]);
        let mut chars = rest[at..].chars();
        match chars.next() {
            Some('&') => html.push_str("&amp;"),
            Some('<') => html.push_str("&lt;"),
            Some('>') => html.push_str("&gt;"),
            Some('"') => html.push_str("&quot;"),
            Some('\'') => html.push_str("&#39;"),
            Some(c) if is_bidi_control(c) => {
                html.push_str(&format!("<span class=\"control\">U+{:04X}</span>", u32::from(c)));
            }
            // Other control characters are not allowed in HTML.
            Some(_) => html.push('\u{fffd}'),
            None => {}
        }
        rest = chars.as_str();
    }
    html.push_str(rest);
}

fn needs_escape(c: char) -> bool {
    matches!(c, '&' | '<' | '>' | '"' | '\'') || is_bidi_control(c) || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// Returns whether a character changes the direction of the text after it.
pub fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let check = |text: &str, expected: &str| {
            let mut html = String::new();
            escape_into(&mut html, text);
            assert_eq!(html, expected, "{text:?}");
        };
        check("a < b && \"c\"", "a &lt; b &amp;&amp; &quot;c&quot;");
        check("<script>alert('x')</script>", "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
        check("a\u{202e}b", "a<span class=\"control\">U+202E</span>b");
        check("a\u{0}\u{1b}\tb\n", "a\u{fffd}\u{fffd}\tb\n");
        check("äöü 日本語", "äöü 日本語");
        assert_eq!(line("<b>").to_string(), "<bdi>&lt;b&gt;</bdi>");
    }
}
