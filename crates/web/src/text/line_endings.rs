//! Line endings of files that are edited in a form: browsers send all lines with CRLF.

use gix_imara_diff::{Algorithm, Diff, InternedInput};

/// The mark of the byte order at the beginning of some files.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Returns the text of a file for a form; `None` if a form cannot show it and return it unchanged.
pub(crate) fn editable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let has_lone_return = text.match_indices('\r').any(|(at, _)| text.as_bytes().get(at + 1) != Some(&b'\n'));
    let has_control = text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    (!has_lone_return && !has_control).then_some(text)
}

/// Returns a submitted text with the line endings of the file: unchanged lines keep theirs, and new lines get that of the
/// line above.
pub(crate) fn restore(original: &[u8], typed: &str) -> Vec<u8> {
    let typed = typed.replace("\r\n", "\n");
    let Ok(original) = std::str::from_utf8(original) else { return typed.into_bytes() };
    let (mark, original) = match original.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (BYTE_ORDER_MARK, rest),
        None => ("", original),
    };
    if !original.contains("\r\n") {
        return format!("{mark}{typed}").into_bytes();
    }
    let old: Vec<&str> = original.split_inclusive('\n').collect();
    let new: Vec<&str> = typed.split_inclusive('\n').collect();
    let mut input = InternedInput::default();
    input.update_before(old.iter().map(|line| line.trim_end_matches('\n').trim_end_matches('\r')));
    input.update_after(new.iter().map(|line| line.trim_end_matches('\n')));
    let diff = Diff::compute(Algorithm::Myers, &input);
    let ending = |line: &str| if line.ends_with("\r\n") { "\r\n" } else { "\n" };
    let mut current = old.first().map_or("\n", |line| ending(line));
    let mut old_lines = (0_u32..).zip(&old).filter(|(at, _)| !diff.is_removed(*at));
    let mut text = mark.to_owned();
    for (at, line) in (0_u32..).zip(&new) {
        if !diff.is_added(at)
            && let Some((_, old)) = old_lines.next()
            && old.ends_with('\n')
        {
            current = ending(old);
        }
        text.push_str(line.trim_end_matches('\n'));
        if line.ends_with('\n') {
            text.push_str(current);
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_of_a_file_are_kept() {
        let check = |original: &str, typed: &str, expected: &str| {
            assert_eq!(String::from_utf8(restore(original.as_bytes(), typed)).expect("text"), expected, "{original:?}");
        };
        check("a\nb\n", "a\r\nc\r\nb\r\n", "a\nc\nb\n");
        check("a\r\nb\r\n", "a\r\nc\r\nb\r\n", "a\r\nc\r\nb\r\n");
        check("a\r\nb\nc\r\n", "a\r\nx\r\nb\r\ny\r\nc\r\n", "a\r\nx\r\nb\ny\nc\r\n");
        check("a\r\nb", "a\r\nb\r\nc", "a\r\nb\r\nc");
        check("\u{feff}a\n", "b\r\n", "\u{feff}b\n");
        check("", "a\r\n", "a\n");
    }

    #[test]
    fn some_files_cannot_be_edited_as_text() {
        assert_eq!(editable("a\r\nb\t\n".as_bytes()), Some("a\r\nb\t\n"));
        assert_eq!(editable("\u{feff}a".as_bytes()), Some("a"));
        for bytes in [&b"caf\xe9"[..], b"a\0b", b"a\rb", b"\x1b[31m"] {
            assert_eq!(editable(bytes), None, "{bytes:?}");
        }
    }
}
