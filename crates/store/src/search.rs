//! Substring search, by trigram index where the term is long enough.

use diesel::sql_types::{BigInt, Bool};

use model::text::fold_case;

use crate::fragment::Fragment;

/// Separates the fields of an indexed text; a term that contains it matches nothing.
pub(crate) const SEPARATOR: &str = "\u{1}";
/// Terminates an indexed text, so that its last letters also begin a trigram.
pub(crate) const END: &str = "\u{1}\u{1}";

const TRIGRAM_LENGTH: usize = 3;

/// A search term with folded case.
#[derive(Clone, Debug)]
pub struct SearchTerm(String);

impl SearchTerm {
    /// Creates a term from user input. One with a control character other than a line break matches nothing.
    pub fn new(text: &str) -> Self {
        Self(fold_case(text))
    }

    fn has_trigram(&self) -> bool {
        self.0.chars().count() >= TRIGRAM_LENGTH
    }

    /// Returns the condition that a column contains the term.
    fn contained_in(&self, column: &str) -> Fragment<Bool> {
        // Unlike `LIKE`, these functions have no wildcards, so a percent sign matches itself.
        Fragment::new("").per_engine("instr(", "strpos(").sql(format!("{column}, ")).text(self.0.clone()).sql(") > 0")
    }

    /// Returns the term as a phrase of SQLite's full-text query syntax.
    fn phrase(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }

    /// Returns the term as a `LIKE` pattern with escaped wildcards.
    fn pattern(&self) -> String {
        format!("%{}%", escape_like(&self.0))
    }

    /// Returns the condition that the project `p` in the namespace `n` matches; for small sets of projects.
    pub(crate) fn in_project(&self) -> Fragment<Bool> {
        Fragment::new("(")
            .append(self.contained_in("p.search_text"))
            .sql(" OR ")
            .append(self.contained_in("n.name_key"))
            .sql(")")
    }

    /// Returns a query for the ids of all matching projects, which uses the index.
    pub(crate) fn projects(&self, postgres: bool) -> Fragment<BigInt> {
        let by_namespace = "SELECT p.id FROM namespaces n JOIN projects p ON p.namespace_id = n.id WHERE ";
        match (self.has_trigram(), postgres) {
            (false, true) => Fragment::new("SELECT p.id AS id FROM projects p WHERE ")
                .append(self.contained_in("p.search_text"))
                .sql(" UNION ")
                .sql(by_namespace)
                .append(self.contained_in("n.name_key")),
            // A shorter term is a prefix of trigrams; the terminator completes the last letters of a text to trigrams.
            (false, false) => Fragment::new("SELECT doc AS id FROM project_trigrams WHERE term >= ")
                .text(self.0.clone())
                .sql(" AND term < ")
                .text(format!("{}{}", self.0, char::MAX))
                .sql(" UNION ")
                .sql(by_namespace)
                .append(self.contained_in("n.name_key")),
            (true, false) => Fragment::new("SELECT rowid AS id FROM project_search WHERE project_search MATCH ")
                .text(self.phrase())
                .sql(
                    " UNION SELECT p.id FROM namespace_search n JOIN projects p ON p.namespace_id = n.rowid \
                     WHERE namespace_search MATCH ",
                )
                .text(self.phrase()),
            (true, true) => Fragment::new("SELECT p.id AS id FROM projects p WHERE p.search_text LIKE ")
                .text(self.pattern())
                .sql(" UNION ")
                .sql(by_namespace)
                .sql("n.name_key LIKE ")
                .text(self.pattern()),
        }
    }

    /// Returns whether no text can contain the term.
    pub(crate) fn matches_nothing(&self) -> bool {
        self.0.contains(SEPARATOR)
    }

    /// Returns the condition that the issue `c` matches.
    pub(crate) fn in_issue(&self, postgres: bool) -> Fragment<Bool> {
        if postgres && self.has_trigram() {
            return Fragment::new("c.id IN (SELECT t.issue_id FROM issue_texts t WHERE t.search_text LIKE ")
                .text(self.pattern())
                .sql(")");
        }
        Fragment::new("EXISTS (SELECT 1 FROM issue_texts t WHERE t.issue_id = c.id AND ")
            .append(self.contained_in("t.search_text"))
            .sql(")")
    }

    /// Returns a query for the ids of all matching issues, which uses SQLite's index.
    pub(crate) fn issues(&self) -> Fragment<BigInt> {
        if self.has_trigram() {
            return Fragment::new("SELECT rowid AS id FROM issue_search WHERE issue_search MATCH ").text(self.phrase());
        }
        Fragment::new("SELECT DISTINCT doc AS id FROM issue_trigrams WHERE term >= ")
            .text(self.0.clone())
            .sql(" AND term < ")
            .text(format!("{}{}", self.0, char::MAX))
    }

    /// Returns a query for the ids of the newest matching issues, which uses the index; for terms that have a trigram.
    pub(crate) fn newest_issues(&self, postgres: bool, limit: i64) -> Fragment<BigInt> {
        let all = if postgres {
            Fragment::new("SELECT t.issue_id AS id FROM issue_texts t WHERE t.search_text LIKE ").text(self.pattern())
        } else {
            self.issues()
        };
        all.sql(" ORDER BY 1 DESC LIMIT ").number(limit)
    }

    /// Returns the condition that the row of `users` matches by a part of its name or username, or by its email address;
    /// `partial_emails` also matches a part of the address.
    pub(crate) fn in_user(&self, partial_emails: bool) -> Fragment<Bool> {
        let address = if partial_emails {
            self.contained_in("users.email")
        } else {
            Fragment::new("users.email = ").text(self.0.clone())
        };
        Fragment::new("(").append(self.contained_in("users.search_text")).sql(" OR ").append(address).sql(")")
    }

    /// Returns the condition that the row of `namespaces` matches by name or path.
    pub(crate) fn in_namespace(&self) -> Fragment<Bool> {
        Fragment::new("(")
            .append(self.contained_in("namespaces.name_key"))
            .sql(" OR ")
            .append(self.contained_in("namespaces.path_key"))
            .sql(")")
    }
}

/// Escapes the wildcards of `LIKE` in a text.
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
