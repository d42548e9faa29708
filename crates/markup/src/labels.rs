//! Labels of issues: the title beside a drawing in the color of the label, which keeps the text readable with any color.

use model::labels::LabelSummary;

use crate::{Markup, plain};

/// Returns the title of a label with its color.
pub fn name(title: &str, color: &str) -> Markup {
    let mut html = String::from(
        "<svg class=\"swatch\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><circle cx=\"5\" cy=\"5\" r=\"4\" fill=\"",
    );
    plain::escape_into(&mut html, color);
    html.push_str("\"/></svg>");
    html.push_str(&plain::line(title).0);
    Markup(html)
}

/// Returns a label that leads to a page, such as the issues with the label.
pub fn chip(label: &LabelSummary, url: &str) -> Markup {
    let mut html = String::from("<a class=\"tag label\" href=\"");
    plain::escape_into(&mut html, url);
    html.push_str("\">");
    html.push_str(&name(&label.title, &label.color).0);
    html.push_str("</a>");
    Markup(html)
}

#[cfg(test)]
mod tests {
    use model::LabelId;

    use super::*;

    #[test]
    fn a_label_has_its_color_beside_its_title() {
        let label = LabelSummary { id: LabelId::new(1), title: "<b>".into(), color: "#FF0000\"".into() };
        let html = chip(&label, "/a?b=\"c").to_string();
        assert!(html.contains("fill=\"#FF0000&quot;\"") && html.contains("<bdi>&lt;b&gt;</bdi>"), "{html}");
        assert!(html.starts_with("<a class=\"tag label\" href=\"/a?b=&quot;c\">"), "{html}");
    }
}
