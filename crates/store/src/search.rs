//! Substring search, by trigram index where the term is long enough.

use diesel::sql_types::{BigInt, Bool};

use model::text::fold_case;

use crate::fragment::Fragment;

/// Separates the fields of an indexed text; a term that contains it matches nothing.
pub(crate) const SEPARATOR: &str = "\u{1}";
/// Terminates an indexed text, so that its last letters also begin a trigram.
pub(crate) const END: &str = "\u{1}\u{1}";

const TRIGRAM_LENGTH: usize = 3;
/// The maximum number of trigrams of a term that are looked up in SQLite's index.
const MAX_SEARCHED_TRIGRAMS: usize = 4;

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
        quoted(&self.0)
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

    /// Returns a query for the ids of all matching projects, with the given columns of them, which uses the index of
    /// PostgreSQL.
    pub(crate) fn matching_projects(&self, columns: &str) -> Fragment<BigInt> {
        let contained_in = |column: &str| {
            if self.has_trigram() {
                return Fragment::new(format!("{column} LIKE ")).text(self.pattern());
            }
            self.contained_in(column)
        };
        Fragment::new(format!("SELECT p.id{columns} FROM projects p WHERE "))
            .append(contained_in("p.search_text"))
            .sql(format!(
                " UNION SELECT p.id{columns} FROM namespaces n JOIN projects p ON p.namespace_id = n.id WHERE "
            ))
            .append(contained_in("n.name_key"))
    }

    /// Returns a query for the ids of projects, which uses the indexes of SQLite. It finds all that match, and maybe others;
    /// [`Self::confirms_project`] tells them apart.
    pub(crate) fn project_candidates(&self) -> Fragment<BigInt> {
        if self.has_trigram() {
            return Fragment::new("SELECT rowid AS id FROM project_search WHERE project_search MATCH ")
                .text(self.some_trigrams())
                .sql(
                    " UNION SELECT p.id FROM namespace_search n JOIN projects p ON p.namespace_id = n.rowid \
                     WHERE namespace_search MATCH ",
                )
                .text(self.phrase());
        }
        // A shorter term is a prefix of trigrams; the terminator completes the last letters of a text to trigrams.
        Fragment::new("SELECT doc AS id FROM project_trigrams WHERE ")
            .append(self.begins_trigram())
            .sql(" UNION SELECT p.id FROM namespaces n JOIN projects p ON p.namespace_id = n.id WHERE ")
            .append(self.contained_in("n.name_key"))
    }

    /// Returns the condition that the project `p` of [`Self::project_candidates`] matches; `None` if all of them do.
    pub(crate) fn confirms_project(&self) -> Option<Fragment<Bool>> {
        let may_find_others = self.0.chars().count() > TRIGRAM_LENGTH;
        may_find_others.then(|| {
            Fragment::new("(")
                .append(self.contained_in("p.search_text"))
                .sql(" OR p.namespace_id IN (SELECT rowid FROM namespace_search WHERE namespace_search MATCH ")
                .text(self.phrase())
                .sql("))")
        })
    }

    /// Returns some trigrams of the term, from its start to its end, as SQLite's full-text query for texts with all of them.
    ///
    /// SQLite reads every row of each trigram that a query names, so a phrase, which names all of them, takes several times as
    /// long as this and a comparison of what is found.
    fn some_trigrams(&self) -> String {
        let chars: Vec<char> = self.0.chars().collect();
        let last = chars.len().saturating_sub(TRIGRAM_LENGTH);
        let number = chars.len().div_ceil(TRIGRAM_LENGTH).clamp(1, MAX_SEARCHED_TRIGRAMS);
        let trigrams = (0..number).map(|nth| {
            let start = last * nth / (number - 1).max(1);
            quoted(&chars[start..].iter().take(TRIGRAM_LENGTH).collect::<String>())
        });
        trigrams.collect::<Vec<_>>().join(" AND ")
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
        Fragment::new("SELECT DISTINCT doc AS id FROM issue_trigrams WHERE ").append(self.begins_trigram())
    }

    /// Returns a query that counts how often a term without a trigram occurs in the issues of the instance, up to `limit`; it
    /// uses SQLite's index, and takes as long as [`Self::issues`]. Returns `None` if the term has a trigram.
    pub(crate) fn count_in_issues(&self, limit: i64) -> Option<Fragment<BigInt>> {
        (!self.has_trigram()).then(|| {
            Fragment::new("SELECT count(*) FROM (SELECT 1 FROM issue_trigrams WHERE ")
                .append(self.begins_trigram())
                .sql(" LIMIT ")
                .number(limit)
                .sql(") few")
        })
    }

    /// Returns the condition that the trigram in a row of SQLite's index begins with the term.
    fn begins_trigram(&self) -> Fragment<Bool> {
        Fragment::new("term >= ").text(self.0.clone()).sql(" AND term < ").text(format!("{}{}", self.0, char::MAX))
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

/// Returns a text as a string of SQLite's full-text query syntax.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_searched_trigrams_reach_from_the_start_to_the_end_of_a_term() {
        let check = |term: &str, expected: &str| assert_eq!(SearchTerm::new(term).some_trigrams(), expected, "{term}");
        check("abc", "\"abc\"");
        check("abcd", "\"abc\" AND \"bcd\"");
        check("abcdef", "\"abc\" AND \"def\"");
        check("abcdefg", "\"abc\" AND \"cde\" AND \"efg\"");
        check("abcdefghijklmnop", "\"abc\" AND \"efg\" AND \"ijk\" AND \"nop\"");
        check("a\"b\"", "\"a\"\"b\" AND \"\"\"b\"\"\"");
        check("漢字🦀é", "\"漢字🦀\" AND \"字🦀é\"");
    }
}
