//! Text rules that several domain types share.

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

/// Removes everything that looks like an HTML tag, in one pass over the text.
///
/// A tag extends to its `>`, or to the end of the text. A `<` that opens no tag is kept only if the remaining text cannot
/// turn it into one: `a < b` and `1<2` are kept, `<<b>script>` is not.
pub fn strip_tags(text: &str) -> String {
    let mut stripped = String::with_capacity(text.len());
    let mut inside = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '>' if inside => inside = false,
            _ if inside => {}
            '<' if characters.peek().is_some_and(|next| next.is_alphabetic() || "/!?<".contains(*next)) => {
                inside = true;
            }
            _ => stripped.push(c),
        }
    }
    stripped
}

/// Returns whether a text contains a control character.
pub fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// Folds the case of a text for comparison. Each letter is folded by itself, so that a part of a word folds as it does
/// inside the word (`str::to_lowercase` maps a Greek sigma differently at the end of a word).
pub fn fold_case(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c }).collect()
}

/// Returns whether a character is a hyphen or a dash.
pub fn is_dash(c: char) -> bool {
    c == '-' || matches!(c, '\u{2010}'..='\u{2015}')
}

/// Returns whether a character is an emoji. The ranges are those of Unicode, with space for future ones.
pub fn is_emoji(c: char) -> bool {
    matches!(c, '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2194}'..='\u{21AA}' | '\u{231A}'..='\u{23FF}'
        | '\u{25AA}'..='\u{27BF}' | '\u{2934}'..='\u{2B55}' | '\u{3030}' | '\u{303D}' | '\u{3297}' | '\u{3299}'
        | '\u{1F000}'..='\u{1FAFF}')
}

/// Returns whether a name consists of characters that `letter` accepts, with their combining marks and joiners. A joiner
/// that does not follow an emoji is refused, because it would make two names look the same.
pub fn is_name_made_of(name: &str, letter: impl Fn(char) -> bool) -> bool {
    let mut previous = ' ';
    name.chars().all(|c| {
        let is_joiner = c == '\u{200D}' && (is_emoji(previous) || modifies_emoji(previous));
        let is_mark = previous != ' ' && (is_combining_mark(c) || (c != '\u{200D}' && modifies_emoji(c)));
        previous = c;
        letter(c) || is_joiner || is_mark
    })
}

/// Returns whether a character only joins or modifies the emoji before it.
fn modifies_emoji(c: char) -> bool {
    matches!(c, '\u{200D}' | '\u{FE0F}' | '\u{20E3}')
}

/// Removes the accents of Latin letters; everything else is kept.
pub fn strip_accents(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.nfd().filter(|c| !is_combining_mark(*c)) {
        match c {
            'ß' => plain.push_str("ss"),
            'æ' => plain.push_str("ae"),
            'Æ' => plain.push_str("AE"),
            'œ' => plain.push_str("oe"),
            'Œ' => plain.push_str("OE"),
            'ø' => plain.push('o'),
            'Ø' => plain.push('O'),
            'ł' => plain.push('l'),
            'Ł' => plain.push('L'),
            'đ' | 'ð' => plain.push('d'),
            'Đ' | 'Ð' => plain.push('D'),
            'þ' => plain.push_str("th"),
            'Þ' => plain.push_str("Th"),
            'ı' => plain.push('i'),
            c => plain.push(c),
        }
    }
    plain
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_stripped_and_arithmetic_is_kept() {
        let check = |text, expected| assert_eq!(strip_tags(text), expected);
        check("Ann <b>Lee</b>", "Ann Lee");
        check("<script>alert(1)</script>", "alert(1)");
        check("a < b > c", "a < b > c");
        check("<!-- x -->y", "y");
        check("open <b", "open ");
        check("<<b>script>alert(1)<<b>/script>", "script>alert(1)/script>");
        check("1 <2 and 3 > 2", "1 <2 and 3 > 2");
        check("I <3 U, a<-b, size<10", "I <3 U, a<-b, size<10");
        check("1 <2<b>3", "1 <23");
        check("plain", "plain");
    }
}
