//! Files that were sent to a project, to be linked from texts.

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

use crate::{Time, tokens::Secret};

/// The longest name taken, in bytes.
pub const LONGEST: usize = 255;

/// How many hex digits stand in the URL of an upload.
const SECRET_LENGTH: usize = 32;

/// What is shown in the text itself and not only linked; the original's list, which clients know.
const EMBEDDED: &[&str] = &["png", "jpg", "jpeg", "gif", "bmp", "tiff", "mp4", "m4v", "mov", "webm", "ogv"];

/// What a browser may show by itself, because nothing in it can run. The list is closed: no SVG, HTML, XML or PDF.
const SHOWN: &[(&str, &str)] = &[
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("bmp", "image/bmp"),
    ("tiff", "image/tiff"),
    ("webp", "image/webp"),
    ("mp4", "video/mp4"),
    ("m4v", "video/mp4"),
    ("mov", "video/quicktime"),
    ("webm", "video/webm"),
    ("ogv", "video/ogg"),
];

/// A file that was sent to a project.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Its number.
    pub id: i64,
    /// To which project it was sent.
    pub project_id: i64,
    /// By whom; perhaps no longer a user.
    pub user_id: i64,
    /// What makes its URL impossible to guess.
    pub secret: Secret,
    /// Its name, as [`clean_name`] leaves it.
    pub name: String,
    /// How many bytes it has; unknown while it is under way.
    pub size: Option<u64>,
    /// When it was sent.
    pub created_at: Time,
}

impl Upload {
    /// Where it is found, below the page of the project. Not percent-encoded, as clients of the original expect.
    pub fn url(&self) -> String {
        format!("/uploads/{}/{}", self.secret.reveal(), self.name)
    }

    /// What stands for it where it cannot be shown.
    pub fn alt(&self) -> &str {
        if self.is_embedded() { split_name(&self.name).0 } else { &self.name }
    }

    /// The text that links or shows it.
    pub fn markdown(&self) -> String {
        // A clean name has neither brackets nor parentheses.
        let mark = if self.is_embedded() { "!" } else { "" };
        format!("{mark}[{}]({})", self.alt(), self.url())
    }

    /// The type under which a browser may show it by itself, if it may.
    pub fn shown_as(&self) -> Option<&'static str> {
        let extension = extension(&self.name);
        SHOWN.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind)
    }

    fn is_embedded(&self) -> bool {
        EMBEDDED.contains(&extension(&self.name).as_str())
    }
}

/// A name that is safe in a URL, in a text and in a header: the last part of a path, with `_` for everything but letters,
/// digits and `_.-+`.
pub fn clean_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or_default();
    // Composed, so that a letter with its accent is one letter however it was typed.
    let mut name: String = last.nfc().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.is_empty() {
        return "unnamed".to_owned();
    }
    if name.bytes().all(|byte| byte == b'.') {
        name.insert(0, '_');
    }
    shorten(name)
}

/// Whether this can be what makes the URL of an upload impossible to guess.
pub fn is_secret(text: &str) -> bool {
    text.len() == SECRET_LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c) || "_.-+".contains(c)
}

/// Cuts a name to the longest taken; the extension stays, unless it is no less than the name.
fn shorten(name: String) -> String {
    if name.len() <= LONGEST {
        return name;
    }
    let (stem, rest) = split_name(&name);
    let (stem, rest) = if rest.len() < LONGEST { (stem, rest) } else { (name.as_str(), "") };
    let cut = (0..=LONGEST - rest.len()).rev().find(|at| stem.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{rest}", &stem[..cut])
}

/// A name before and from its last dot; a dot at the beginning does not count.
fn split_name(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(dot) if name[..dot].bytes().any(|byte| byte != b'.') => name.split_at(dot),
        _ => (name, ""),
    }
}

/// What comes after the last dot, in lower case.
fn extension(name: &str) -> String {
    split_name(name).1.trim_start_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(name: &str) -> Upload {
        Upload {
            id: 1,
            project_id: 1,
            user_id: 1,
            secret: Secret::new("5a".repeat(16)),
            name: name.to_owned(),
            size: Some(1),
            created_at: Time::UNIX_EPOCH,
        }
    }

    #[test]
    fn lesson_07_a_name_is_cleaned() {
        let check = |given: &str, expected: &str| assert_eq!(clean_name(given), expected, "{given:?}");
        check("dk.png", "dk.png");
        check("my file (1).txt", "my_file__1_.txt");
        check("../../etc/passwd", "passwd");
        check("..\\..\\boot.ini", "boot.ini");
        check("C:\\Users\\ann\\x.png", "x.png");
        check("folder/", "folder");
        check("a\0b\r\nc\u{202e}gnp.exe", "a_b__c_gnp.exe");
        check("<script>.svg", "_script_.svg");
        check("x](javascript:alert(1)).png", "x__javascript_alert_1__.png");
        check("%2e%2e%2fx", "_2e_2e_2fx");
        check("a+b-c_d.e", "a+b-c_d.e");
        check("Übersicht – März.pdf", "Übersicht___März.pdf");
        check("U\u{308}bersicht.pdf", "Übersicht.pdf");
        check("報告.txt", "報告.txt");
        check("🚀.png", "_.png");
        check(".", "_.");
        check("..", "_..");
        check("...", "_...");
        check("", "unnamed");
        check("/", "unnamed");
        check(" ", "_");
        check(".gitignore", ".gitignore");
    }

    #[test]
    fn a_long_name_keeps_its_extension() {
        let check = |given: String, expected: String| {
            let name = clean_name(&given);
            assert!(name.len() <= LONGEST);
            assert_eq!(name, expected);
        };
        check("x".repeat(255), "x".repeat(255));
        check("x".repeat(256), "x".repeat(255));
        check(format!("{}.png", "x".repeat(300)), format!("{}.png", "x".repeat(251)));
        check(format!("{}.png", "ü".repeat(300)), format!("{}.png", "ü".repeat(125)));
        check(format!("x.{}", "y".repeat(300)), format!("x.{}", "y".repeat(253)));
        check(format!("{}.", ".".repeat(300)), format!("_{}", ".".repeat(254)));
    }

    #[test]
    fn pictures_and_films_are_shown_and_the_rest_is_linked() {
        let check = |name: &str, expected: &str| {
            let url = format!("(/uploads/5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a/{name})");
            assert_eq!(upload(name).markdown(), format!("{expected}{url}"));
        };
        check("dk.png", "![dk]");
        check("DK.JPEG", "![DK]");
        check("a.b.mp4", "![a.b]");
        check("scan.tiff", "![scan]");
        check("notes.txt", "[notes.txt]");
        check("x.svg", "[x.svg]");
        check("png", "[png]");
        check(".png", "[.png]");
    }

    #[test]
    fn lesson_21_a_browser_shows_only_what_cannot_run() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(upload(name).shown_as(), expected, "{name}");
        check("x.png", Some("image/png"));
        check("x.JPG", Some("image/jpeg"));
        check("x.webp", Some("image/webp"));
        check("x.mov", Some("video/quicktime"));
        for name in
            ["x.svg", "x.html", "x.xhtml", "x.xml", "x.pdf", "x.js", "x.swf", "x.png.html", "x", ".png", "x.png."]
        {
            check(name, None);
        }
    }

    #[test]
    fn a_secret_has_32_lower_case_hex_digits() {
        assert!(is_secret("0123456789abcdef0123456789abcdef"));
        for bad in ["", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcde", &"é".repeat(16)] {
            assert!(!is_secret(bad), "{bad}");
        }
    }
}
