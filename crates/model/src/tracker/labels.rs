//! Labels of issues.

use crate::{
    Change, LabelId, ProjectId, Violations,
    text::{has_control, strip_tags},
};

/// The color of a label that is created without one.
pub const DEFAULT_COLOR: &str = "#428BCA";
/// The maximum length of titles and descriptions of labels, in characters.
pub const MAX_LENGTH: usize = 255;
/// The maximum priority.
pub const MAX_PRIORITY: i64 = i32::MAX as i64;

/// A label of a project, as seen by one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The label id.
    pub id: LabelId,
    /// The project id.
    pub project: ProjectId,
    /// The title; unique within the project.
    pub title: String,
    /// The color, as `#` and six hexadecimal digits.
    pub color: String,
    /// The description.
    pub description: Option<String>,
    /// The priority; lower is more urgent.
    pub priority: Option<i64>,
    /// The number of open issues with the label that are visible to the user.
    pub open_issues: i64,
    /// The number of closed issues with the label that are visible to the user.
    pub closed_issues: i64,
    /// Whether the user is subscribed.
    pub subscribed: bool,
}

/// What a label looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSummary {
    /// The label id.
    pub id: LabelId,
    /// The title.
    pub title: String,
    /// The color, as `#` and six hexadecimal digits.
    pub color: String,
}

/// A label to create.
#[derive(Clone, Debug)]
pub struct NewLabel {
    /// The title.
    pub title: String,
    /// The color.
    pub color: String,
    /// The description.
    pub description: Option<String>,
    /// The priority; lower is more urgent.
    pub priority: Option<i64>,
}

/// The fields of a label to change.
#[derive(Clone, Debug, Default)]
pub struct LabelChanges {
    /// The title.
    pub title: Option<String>,
    /// The color.
    pub color: Option<String>,
    /// The description.
    pub description: Change<String>,
    /// The priority; lower is more urgent.
    pub priority: Change<i64>,
}

/// A reference to a label of a project.
#[derive(Clone, Debug)]
pub enum LabelRef {
    /// By id or, if no label has it, by a title that looks like a number.
    Number(LabelId, String),
    /// By title.
    Title(String),
}

/// Returns a title in the form in which it is stored: without HTML tags, with entities decoded, and trimmed. Clients
/// that escape titles and clients that do not thus name the same label.
pub fn clean_title(text: &str) -> String {
    html_escape::decode_html_entities(&strip_tags(text)).trim().to_owned()
}

/// Returns a color in the six-digit form in which it is stored and which the contract promises.
pub fn clean_color(color: &str) -> String {
    match color.strip_prefix('#') {
        Some(digits) if digits.len() == 3 && digits.is_ascii() => {
            ['#'].into_iter().chain(digits.chars().flat_map(|digit| [digit, digit])).collect()
        }
        _ => color.to_owned(),
    }
}

/// Validates the fields of a label; title and color must already be cleaned.
pub fn check(title: &str, color: &str, description: Option<&str>, priority: Option<i64>) -> Result<(), Violations> {
    let mut violations = Violations::new();
    violations.require(!title.is_empty(), "title", "can't be blank");
    // Requests send the labels of an issue as a comma-separated list.
    violations.require(!title.is_empty() && !title.contains(',') && !has_control(title), "title", "is invalid");
    violations.max_length("title", title, MAX_LENGTH);
    violations.require(is_color(color), "color", "must be a valid color code");
    violations.max_length("description", description.unwrap_or_default(), MAX_LENGTH);
    violations.require(priority.is_none_or(|priority| priority >= 0), "priority", "must be greater than or equal to 0");
    violations.into_result()
}

/// Returns whether the color is `#` and six hexadecimal digits.
fn is_color(color: &str) -> bool {
    let digits = color.strip_prefix('#').unwrap_or_default();
    digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_loses_tags_entities_and_surrounding_whitespace() {
        let check = |text, expected| assert_eq!(clean_title(text), expected, "{text}");
        check("bug", "bug");
        check("  to do \n", "to do");
        check("<b>bold</b> <script>", "bold");
        check("R&amp;D", "R&D");
        check("R&D & more", "R&D & more");
        check("&lt;b&gt; &quot;x&quot; &#39;y&#39;", "<b> \"x\" 'y'");
        // Entities are decoded once, not recursively.
        check("&amp;lt;", "&lt;");
        check("&copy; & &#60;&#x3e; &nothing;", "© & <> &nothing;");
        check("size<10", "size<10");
        check("a < b?", "a < b?");
        check("é&amp;ü", "é&ü");
        check("<b></b>", "");
        check(" ", "");
    }

    #[test]
    fn every_field_of_a_label_is_validated() {
        let violations_of = |title: &str, color: &str, description: Option<&str>, priority| {
            check(title, &clean_color(color), description, priority).err().map(|violations| violations.to_string())
        };
        let title = |title: &str| violations_of(title, "#fff", None, None);
        let long = "é".repeat(255);
        assert_eq!(title("What? & why / how.json"), None);
        assert_eq!(title(&long), None);
        assert_eq!(title(&format!("{long}x")).as_deref(), Some("title is too long (maximum is 255 characters)"));
        assert_eq!(title("a,b").as_deref(), Some("title is invalid"));
        assert_eq!(title("a\nb").as_deref(), Some("title is invalid"));
        assert_eq!((clean_color("#aBc"), clean_color("#d9534f")), ("#aaBBcc".into(), "#d9534f".into()));
        assert_eq!(title("").as_deref(), Some("title can't be blank, is invalid"));
        let color = |color: &str| violations_of("bug", color, None, None);
        for good in ["#fff", "#FFAABB", "#d9534f", DEFAULT_COLOR] {
            assert_eq!(color(good), None, "{good}");
        }
        for bad in ["", "#", "fff", "ffaabb", "#ffff", "#fffffg", "red", "#ffaabb ", "#ffaabbccd", "##ffaab", "#éé"] {
            assert_eq!(color(bad).as_deref(), Some("color must be a valid color code"), "{bad}");
        }
        assert_eq!(violations_of("bug", "#fff", Some(&long), Some(0)), None);
        assert_eq!(
            violations_of("bug", "red", Some(&format!("{long}x")), Some(-1)).as_deref(),
            Some(
                "color must be a valid color code; description is too long (maximum is 255 characters); \
                 priority must be greater than or equal to 0"
            )
        );
    }
}
