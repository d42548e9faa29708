//! Labels: what issues are about, in a word and a color.

use crate::{
    Change, Violations,
    text::{has_control, strip_tags},
};

/// The color of a label that nobody gave one.
pub const DEFAULT_COLOR: &str = "#428BCA";
/// How long titles and descriptions of labels may be.
pub const LONGEST: usize = 255;
/// The largest priority.
pub const LAST_PRIORITY: i64 = i32::MAX as i64;

/// A label of a project, as one user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Number of the label.
    pub id: i64,
    /// The project that it belongs to.
    pub project: i64,
    /// What it is called; unique in the project.
    pub title: String,
    /// `#` and six hexadecimal digits.
    pub color: String,
    /// What it stands for.
    pub description: Option<String>,
    /// The less, the more urgent.
    pub priority: Option<i64>,
    /// How many open issues carry it, of those that the user sees.
    pub open_issues: i64,
    /// How many closed issues carry it, of those that the user sees.
    pub closed_issues: i64,
    /// Whether the user follows it.
    pub subscribed: bool,
}

/// A label that is about to be made.
#[derive(Clone, Debug)]
pub struct NewLabel {
    /// What it shall be called.
    pub title: String,
    /// Its color.
    pub color: String,
    /// What it stands for.
    pub description: Option<String>,
    /// The less, the more urgent.
    pub priority: Option<i64>,
}

/// What an edit changes about a label.
#[derive(Clone, Debug, Default)]
pub struct LabelChanges {
    /// What it shall be called.
    pub title: Option<String>,
    /// Its color.
    pub color: Option<String>,
    /// What it stands for.
    pub description: Change<String>,
    /// The less, the more urgent.
    pub priority: Change<i64>,
}

/// Which label of a project is meant.
#[derive(Clone, Debug)]
pub enum LabelRef {
    /// By number, or else by a title that looks like one.
    Number(i64, String),
    /// By title.
    Title(String),
}

/// A title as it is kept: without tags, with entities read back, and without blanks around it. What somebody escaped to be
/// safe is the same label as what nobody escaped.
pub fn clean_title(text: &str) -> String {
    html_escape::decode_html_entities(&strip_tags(text)).trim().to_owned()
}

/// A color as it is kept: in the long form, since that is what clients are promised.
pub fn clean_color(color: &str) -> String {
    match color.strip_prefix('#') {
        Some(digits) if digits.len() == 3 && digits.is_ascii() => {
            ['#'].into_iter().chain(digits.chars().flat_map(|digit| [digit, digit])).collect()
        }
        _ => color.to_owned(),
    }
}

/// What is wrong with the parts of a label, of which title and color were cleaned.
pub fn check(title: &str, color: &str, description: Option<&str>, priority: Option<i64>) -> Result<(), Violations> {
    let mut violations = Violations::new();
    violations.unless(!title.is_empty(), "title", "can't be blank");
    // Issues name their labels in one text, with commas in between.
    violations.unless(!title.is_empty() && !title.contains(',') && !has_control(title), "title", "is invalid");
    violations.longest("title", title, LONGEST);
    violations.unless(is_color(color), "color", "must be a valid color code");
    violations.longest("description", description.unwrap_or_default(), LONGEST);
    violations.unless(priority.is_none_or(|priority| priority >= 0), "priority", "must be greater than or equal to 0");
    violations.into_result()
}

/// Whether this is `#` with six hexadecimal digits.
fn is_color(color: &str) -> bool {
    let digits = color.strip_prefix('#').unwrap_or_default();
    digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_loses_tags_entities_and_blanks_around_it() {
        let check = |text, expected| assert_eq!(clean_title(text), expected, "{text}");
        check("bug", "bug");
        check("  to do \n", "to do");
        check("<b>bold</b> <script>", "bold");
        check("R&amp;D", "R&D");
        check("R&D & more", "R&D & more");
        check("&lt;b&gt; &quot;x&quot; &#39;y&#39;", "<b> \"x\" 'y'");
        // Read once, not until nothing is left to read.
        check("&amp;lt;", "&lt;");
        check("&copy; & &#60;&#x3e; &nothing;", "© & <> &nothing;");
        check("size<10", "size<10");
        check("a < b?", "a < b?");
        check("é&amp;ü", "é&ü");
        check("<b></b>", "");
        check(" ", "");
    }

    #[test]
    fn every_part_of_a_label_has_its_rule() {
        let told = |title: &str, color: &str, description: Option<&str>, priority| {
            check(title, &clean_color(color), description, priority).err().map(|violations| violations.to_string())
        };
        let title = |title: &str| told(title, "#fff", None, None);
        let long = "é".repeat(255);
        assert_eq!(title("What? & why / how.json"), None);
        assert_eq!(title(&long), None);
        assert_eq!(title(&format!("{long}x")).as_deref(), Some("title is too long (maximum is 255 characters)"));
        assert_eq!(title("a,b").as_deref(), Some("title is invalid"));
        assert_eq!(title("a\nb").as_deref(), Some("title is invalid"));
        assert_eq!((clean_color("#aBc"), clean_color("#d9534f")), ("#aaBBcc".into(), "#d9534f".into()));
        assert_eq!(title("").as_deref(), Some("title can't be blank, is invalid"));
        let color = |color: &str| told("bug", color, None, None);
        for good in ["#fff", "#FFAABB", "#d9534f", DEFAULT_COLOR] {
            assert_eq!(color(good), None, "{good}");
        }
        for bad in ["", "#", "fff", "ffaabb", "#ffff", "#fffffg", "red", "#ffaabb ", "#ffaabbccd", "##ffaab", "#éé"] {
            assert_eq!(color(bad).as_deref(), Some("color must be a valid color code"), "{bad}");
        }
        assert_eq!(told("bug", "#fff", Some(&long), Some(0)), None);
        assert_eq!(
            told("bug", "red", Some(&format!("{long}x")), Some(-1)).as_deref(),
            Some(
                "color must be a valid color code; description is too long (maximum is 255 characters); \
                 priority must be greater than or equal to 0"
            )
        );
    }
}
