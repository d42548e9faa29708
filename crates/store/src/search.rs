//! Searching for a part of a text, by trigrams where there are enough letters for one.

use diesel::sql_types::{BigInt, Bool};

use model::text::fold;

use crate::fragment::Fragment;

/// Stands between the parts of what is searched; a term that holds it finds nothing.
pub(crate) const SEPARATOR: &str = "\u{1}";
/// Stands at the end of what is searched, so that its last letters begin a trigram too.
pub(crate) const END: &str = "\u{1}\u{1}";

/// Fewer letters make no trigram.
const LETTERS_OF_A_TRIGRAM: usize = 3;

/// A text to search for, in lower case.
#[derive(Clone, Debug)]
pub struct Term(String);

impl Term {
    /// What somebody wants to find, in whatever case. A control character other than a line break is in nothing.
    pub fn new(text: &str) -> Self {
        Self(fold(text))
    }

    fn has_trigram(&self) -> bool {
        self.0.chars().count() >= LETTERS_OF_A_TRIGRAM
    }

    /// Whether a column holds the term.
    fn within(&self, column: &str) -> Fragment<Bool> {
        // `position` has no wildcards, so that a percent sign is one.
        Fragment::new("").either("instr(", "strpos(").sql(format!("{column}, ")).words(self.0.clone()).sql(") > 0")
    }

    /// The term as a phrase in the language of SQLite's index.
    fn phrase(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }

    /// The term as a pattern in which nothing is a wildcard.
    fn pattern(&self) -> String {
        format!("%{}%", escape_like(&self.0))
    }

    /// Whether the project `p`, which lives in the namespace `n`, matches: for the few projects of a known set.
    pub(crate) fn in_project(&self) -> Fragment<Bool> {
        Fragment::new("(").then(self.within("p.search_text")).sql(" OR ").then(self.within("n.name_key")).sql(")")
    }

    /// The numbers of all projects that match, found by index.
    pub(crate) fn projects(&self, postgres: bool) -> Fragment<BigInt> {
        let by_namespace = "SELECT p.id FROM namespaces n JOIN projects p ON p.namespace_id = n.id WHERE ";
        match (self.has_trigram(), postgres) {
            (false, true) => Fragment::new("SELECT p.id AS id FROM projects p WHERE ")
                .then(self.within("p.search_text"))
                .sql(" UNION ")
                .sql(by_namespace)
                .then(self.within("n.name_key")),
            // Fewer letters are the beginning of trigrams; every text ends with what completes its last letters to some.
            (false, false) => Fragment::new("SELECT doc AS id FROM project_trigrams WHERE term >= ")
                .words(self.0.clone())
                .sql(" AND term < ")
                .words(format!("{}{}", self.0, char::MAX))
                .sql(" UNION ")
                .sql(by_namespace)
                .then(self.within("n.name_key")),
            (true, false) => Fragment::new("SELECT rowid AS id FROM project_search WHERE project_search MATCH ")
                .words(self.phrase())
                .sql(
                    " UNION SELECT p.id FROM namespace_search n JOIN projects p ON p.namespace_id = n.rowid \
                     WHERE namespace_search MATCH ",
                )
                .words(self.phrase()),
            (true, true) => Fragment::new("SELECT p.id AS id FROM projects p WHERE p.search_text LIKE ")
                .words(self.pattern())
                .sql(" UNION ")
                .sql(by_namespace)
                .sql("n.name_key LIKE ")
                .words(self.pattern()),
        }
    }

    /// Whether nothing can hold the term.
    pub(crate) fn is_in_nothing(&self) -> bool {
        self.0.contains(SEPARATOR)
    }

    /// Whether the issue `c` matches.
    pub(crate) fn in_issue(&self, postgres: bool) -> Fragment<Bool> {
        if postgres && self.has_trigram() {
            return Fragment::new("c.id IN (SELECT t.issue_id FROM issue_texts t WHERE t.search_text LIKE ")
                .words(self.pattern())
                .sql(")");
        }
        Fragment::new("EXISTS (SELECT 1 FROM issue_texts t WHERE t.issue_id = c.id AND ")
            .then(self.within("t.search_text"))
            .sql(")")
    }

    /// The numbers of all issues that match, found by SQLite's index.
    pub(crate) fn issues(&self) -> Fragment<BigInt> {
        if self.has_trigram() {
            return Fragment::new("SELECT rowid AS id FROM issue_search WHERE issue_search MATCH ")
                .words(self.phrase());
        }
        Fragment::new("SELECT DISTINCT doc AS id FROM issue_trigrams WHERE term >= ")
            .words(self.0.clone())
            .sql(" AND term < ")
            .words(format!("{}{}", self.0, char::MAX))
    }

    /// Whether the row of `users` matches by a part of name or username, or by the address, of which only some may know
    /// a part.
    pub(crate) fn in_user(&self, parts_of_addresses: bool) -> Fragment<Bool> {
        let address = if parts_of_addresses {
            self.within("users.email")
        } else {
            Fragment::new("users.email = ").words(self.0.clone())
        };
        Fragment::new("(").then(self.within("users.search_text")).sql(" OR ").then(address).sql(")")
    }

    /// Whether the row of `namespaces` matches by name or path.
    pub(crate) fn in_namespace(&self) -> Fragment<Bool> {
        Fragment::new("(")
            .then(self.within("namespaces.name_key"))
            .sql(" OR ")
            .then(self.within("namespaces.path_key"))
            .sql(")")
    }
}

/// Makes a text mean itself inside `LIKE`.
pub(crate) fn escape_like(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
