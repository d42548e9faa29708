//! Links for references in texts of users, such as `#12` and `@user`.

use std::fmt::Write as _;

use forge::{
    BlockingContext,
    references::{self, ReferenceTarget, References},
};
use model::{
    Project,
    text_references::{self, TextReference},
};

use crate::{
    Markup,
    links::{self, ProjectLinks},
    plain,
};

/// The number of characters of the id of a commit in a link.
const SHORT_ID_LENGTH: usize = 8;

/// The references of the texts on a page, as seen by the visitor.
#[derive(Clone, Debug)]
pub struct ReferenceLinks {
    found: References,
    /// The URLs of the project that the texts belong to.
    links: Option<ProjectLinks>,
}

impl ReferenceLinks {
    /// Looks up the references in texts that belong to a project.
    pub fn resolve<'a>(
        cx: &mut BlockingContext<'_>,
        project: &Project,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> forge::Result<Self> {
        let found = references::resolve(cx, project.id, texts.into_iter())?;
        Ok(Self::new(found, Some(project)))
    }

    /// Returns links for references that were looked up in a text of a project, or of none.
    pub fn new(found: References, project: Option<&Project>) -> Self {
        Self { found, links: project.map(|project| ProjectLinks::new(&project.full_path())) }
    }

    /// Splits a text at its references; the second part of each pair is the HTML of a reference after the text. `prefix` is
    /// prepended to the URLs.
    pub(crate) fn split<'a>(&self, text: &'a str, prefix: &str) -> Vec<(&'a str, String)> {
        if self.found.is_empty() {
            return Vec::new();
        }
        let (mut parts, mut end) = (Vec::new(), 0);
        for (range, reference) in text_references::find(text) {
            let Some(target) = self.found.get(&reference) else { continue };
            let Some(html) = self.html(&reference, target, &text[range.clone()], prefix) else { continue };
            parts.push((&text[end..range.start], html));
            end = range.end;
        }
        if !parts.is_empty() {
            parts.push((&text[end..], String::new()));
        }
        parts
    }

    /// Returns a plain text, such as the message of a commit, with links.
    pub fn plain(&self, text: &str) -> Markup {
        let parts = self.split(text, "");
        if text.is_empty() || parts.is_empty() {
            return if text.is_empty() { Markup::default() } else { plain::line(text) };
        }
        let mut html = String::from("<bdi>");
        for (text, reference) in parts {
            plain::escape_into(&mut html, text);
            html.push_str(&reference);
        }
        html.push_str("</bdi>");
        Markup(html)
    }

    /// Returns the link of a reference that was written as `typed`.
    fn html(&self, reference: &TextReference, target: &ReferenceTarget, typed: &str, prefix: &str) -> Option<String> {
        let (url, text, title) = match target {
            ReferenceTarget::Issue { project, iid, title, closed } => {
                let closed = if *closed { " (closed)" } else { "" };
                (ProjectLinks::new(project).issue(iid), format!("{typed}{closed}"), title)
            }
            ReferenceTarget::Namespace { path, name } => (links::page(path), typed.to_owned(), name),
            ReferenceTarget::Label { title } => {
                let url =
                    format!("{}?label_name%5B%5D={}", self.links.as_ref()?.to("issues"), links::encode_query(title));
                (url, title.clone(), title)
            }
            ReferenceTarget::Milestone { iid, title } => {
                (self.links.as_ref()?.milestone(iid), format!("%{title}"), title)
            }
            ReferenceTarget::Commit { id, title } => {
                let short = typed.get(..SHORT_ID_LENGTH).unwrap_or(typed);
                (self.links.as_ref()?.commit(&id.to_string()), short.to_owned(), title)
            }
        };
        let mut html = String::from("<a");
        if matches!(reference, TextReference::Label(_)) {
            html.push_str(" class=\"tag\"");
        }
        let mut attribute = |name: &str, value: &str| {
            let _ = write!(html, " {name}=\"");
            // Attributes have no markup that could show characters that reorder text.
            plain::escape_into(&mut html, &value.replace(plain::is_bidi_control, "\u{fffd}"));
            html.push('"');
        };
        attribute("href", &format!("{prefix}{url}"));
        if !matches!(reference, TextReference::Label(_)) {
            attribute("title", title);
        }
        html.push('>');
        html.push_str(&plain::line(text).0);
        html.push_str("</a>");
        Some(html)
    }
}
