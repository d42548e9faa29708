//! Small rules about text that several nouns share.

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

/// Removes everything that looks like an HTML tag, in one pass over the text.
///
/// A tag goes on to its `>`, or to the end of the text. A `<` that opens no tag stays only if what is left could not make
/// it one: `a < b` and `1<2` are arithmetic, `<<b>script>` is not.
pub fn strip_tags(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut inside = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '>' if inside => inside = false,
            _ if inside => {}
            '<' if characters.peek().is_some_and(|next| next.is_alphabetic() || "/!?<".contains(*next)) => {
                inside = true;
            }
            _ => kept.push(c),
        }
    }
    kept
}

/// Whether a text holds a character that no name or address needs.
pub fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// A text without regard to case: each letter for itself, so that a part of a word folds as it does inside the word. (The
/// usual lower case writes a Greek sigma in two ways, by whether it ends a word.)
pub fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c }).collect()
}

/// Whether this is one of the dashes that people write.
pub fn is_dash(c: char) -> bool {
    c == '-' || matches!(c, '\u{2010}'..='\u{2015}')
}

/// Whether this is a picture among letters. The ranges are those that pictures have in Unicode, with some room to grow.
pub fn is_emoji(c: char) -> bool {
    matches!(c, '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2194}'..='\u{21AA}' | '\u{231A}'..='\u{23FF}'
        | '\u{25AA}'..='\u{27BF}' | '\u{2934}'..='\u{2B55}' | '\u{3030}' | '\u{303D}' | '\u{3297}' | '\u{3299}'
        | '\u{1F000}'..='\u{1FAFF}')
}

/// Whether all letters of a name are of this kind, with the marks and joiners that belong to them. A joiner without a
/// picture before it would make two names that look the same.
pub fn is_name_of(name: &str, letter: impl Fn(char) -> bool) -> bool {
    let mut before = ' ';
    name.chars().all(|c| {
        let joined = c == '\u{200D}' && (is_emoji(before) || joins_emojis(before));
        let marked = before != ' ' && (is_combining_mark(c) || (c != '\u{200D}' && joins_emojis(c)));
        before = c;
        letter(c) || joined || marked
    })
}

/// Whether this only joins or tints the picture before it.
fn joins_emojis(c: char) -> bool {
    matches!(c, '\u{200D}' | '\u{FE0F}' | '\u{20E3}')
}

/// Latin letters without their accents; everything else stays.
pub fn without_accents(text: &str) -> String {
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
        check("1 <2 and 3 > 2", "1 <2 and 3 > 2");
        check("I <3 U, a<-b, size<10", "I <3 U, a<-b, size<10");
        check("1 <2<b>3", "1 <23");
        check("plain", "plain");
    }
}
