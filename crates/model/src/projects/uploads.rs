//! Files uploaded to a project for use in Markdown.

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

use crate::{ProjectId, Time, UploadId, UserId, tokens::Secret};

/// The maximum length of a file name, in bytes.
pub const MAX_NAME_LENGTH: usize = 255;

/// The number of hexadecimal digits in the URL of an upload.
const SECRET_LENGTH: usize = 32;

/// Extensions of files that Markdown embeds instead of linking; the list of GitLab 8.14, which clients know.
const EMBEDDED_EXTENSIONS: &[&str] = &["png", "jpg", "jpeg", "gif", "bmp", "tiff", "mp4", "m4v", "mov", "webm", "ogv"];

/// Extensions and content types that browsers may display inline because they cannot contain scripts: no SVG, HTML, XML or
/// PDF.
const INLINE_CONTENT_TYPES: &[(&str, &str)] = &[
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

/// A file uploaded to a project.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The ID of the upload.
    pub id: UploadId,
    /// The project it belongs to.
    pub project_id: ProjectId,
    /// The ID of the uploader, who may have been deleted.
    pub user_id: UserId,
    /// The part of the URL that makes it unguessable.
    pub secret: Secret,
    /// The file name as returned by [`clean_name`].
    pub name: String,
    /// The size in bytes; `None` until the upload is complete.
    pub size: Option<u64>,
    /// The time at which it was uploaded.
    pub created_at: Time,
}

impl Upload {
    /// Returns the URL relative to the project. Not percent-encoded, as in GitLab 8.14.
    pub fn url(&self) -> String {
        format!("/uploads/{}/{}", self.secret.reveal(), self.name)
    }

    /// Returns the alternative text.
    pub fn alt(&self) -> &str {
        if self.is_embedded() { split_name(&self.name).0 } else { &self.name }
    }

    /// Returns the Markdown that embeds or links the file.
    pub fn markdown(&self) -> String {
        // A clean name contains neither brackets nor parentheses.
        let prefix = if self.is_embedded() { "!" } else { "" };
        format!("{prefix}[{}]({})", self.alt(), self.url())
    }

    /// Returns the content type for inline display, or `None` if the file must be downloaded.
    pub fn inline_content_type(&self) -> Option<&'static str> {
        let extension = extension(&self.name);
        INLINE_CONTENT_TYPES.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind)
    }

    fn is_embedded(&self) -> bool {
        EMBEDDED_EXTENSIONS.contains(&extension(&self.name).as_str())
    }
}

/// Returns a name that is safe in a URL, in Markdown and in a header: the last segment of a path, with `_` in place of
/// everything but letters, digits and `_.-+`.
pub fn clean_name(path: &str) -> String {
    let last = path.rsplit(['/', '\\']).find(|segment| !segment.is_empty()).unwrap_or_default();
    // Composed, so that an accented letter is one character in either Unicode form.
    let mut name: String = last.nfc().map(|c| if is_safe(c) { c } else { '_' }).collect();
    if name.is_empty() {
        return "unnamed".to_owned();
    }
    if name.bytes().all(|byte| byte == b'.') {
        name.insert(0, '_');
    }
    shorten(name)
}

/// Returns whether a text has the form of [`Upload::secret`].
pub fn is_secret(text: &str) -> bool {
    text.len() == SECRET_LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_safe(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c) || "_.-+".contains(c)
}

/// Truncates a name to the maximum length; keeps the extension unless it is too long itself.
fn shorten(name: String) -> String {
    if name.len() <= MAX_NAME_LENGTH {
        return name;
    }
    let (stem, rest) = split_name(&name);
    let (stem, rest) = if rest.len() < MAX_NAME_LENGTH { (stem, rest) } else { (name.as_str(), "") };
    let cut = (0..=MAX_NAME_LENGTH - rest.len()).rev().find(|at| stem.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{rest}", &stem[..cut])
}

/// Splits a name at its last dot; leading dots do not count.
pub(crate) fn split_name(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(dot) if name[..dot].bytes().any(|byte| byte != b'.') => name.split_at(dot),
        _ => (name, ""),
    }
}

/// Returns the text after the last dot, in lower case.
fn extension(name: &str) -> String {
    split_name(name).1.trim_start_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(name: &str) -> Upload {
        Upload {
            id: UploadId::new(1),
            project_id: ProjectId::new(1),
            user_id: UserId::new(1),
            secret: Secret::new("5a".repeat(16)),
            name: name.to_owned(),
            size: Some(1),
            created_at: Time::UNIX_EPOCH,
        }
    }

    #[test]
    fn unsafe_characters_in_a_name_are_replaced() {
        let check = |input: &str, expected: &str| assert_eq!(clean_name(input), expected, "{input:?}");
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
        let check = |input: String, expected: String| {
            let name = clean_name(&input);
            assert!(name.len() <= MAX_NAME_LENGTH);
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
    fn images_and_videos_are_embedded_and_other_files_are_linked() {
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
    fn only_files_that_cannot_contain_scripts_are_shown_inline() {
        let check =
            |name: &str, expected: Option<&str>| assert_eq!(upload(name).inline_content_type(), expected, "{name}");
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
