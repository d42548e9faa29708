//! Search over everything that a visitor of the web interface can see.

use model::{Issue, Page, Slice};

use crate::{Ability, ReadTx, Result, Unvalidated, projects};

/// The number of newest matching issues among which those that the visitor can see are listed.
pub const MAX_ISSUE_CANDIDATES: i64 = 2000;
/// The length from which issues and code are searched for a text: that of the entries of the search index.
pub const MIN_TEXT_LENGTH: usize = 3;

/// Lists the newest issues that contain a text, in all projects that the visitor can see. A text that is too short or too long
/// matches nothing.
pub fn issues(tx: &mut ReadTx<'_>, text: &str, page: &Unvalidated<Page>) -> Result<Slice<Issue>> {
    tx.authorize(Ability::ViewPages)?;
    let (page, viewer) = (*page.validate()?, tx.viewer());
    if text.chars().count() < MIN_TEXT_LENGTH || projects::cannot_match(Some(text)) {
        return Ok(Slice::empty(page));
    }
    Ok(store::issue_lists::search(tx.db(), &viewer, text, MAX_ISSUE_CANDIDATES, page)?)
}
