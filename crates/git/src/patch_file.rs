//! The differences of a commit as a file that `git apply` and `git am` accept.

use std::fmt::Write as _;

use jiff::{Timestamp, tz::Offset};
use model::{
    Commit, Oid,
    objects::{FileDiff, Signature},
};

use crate::{
    Repository, Result,
    patch::{Whitespace, quote},
};

impl Repository {
    /// Returns the differences of a commit from its first parent; `None` if they are too large to be complete.
    pub fn diff_file(&self, id: Oid) -> Result<Option<String>> {
        let (files, _, _) = self.whole_commit_diff(id, Whitespace::Significant)?;
        let is_complete = |file: &FileDiff| !file.too_large;
        Ok(files.iter().all(is_complete).then(|| {
            let mut text = String::new();
            for file in &files {
                write_file(&mut text, file);
            }
            text
        }))
    }

    /// Returns a commit with its differences in the format of an email; `None` if they are too large to be complete.
    pub fn patch_file(&self, commit: &Commit) -> Result<Option<String>> {
        let Some(diff) = self.diff_file(commit.id)? else { return Ok(None) };
        let (subject, body) = split_message(&commit.message);
        let mut text = format!("From {} Mon Sep 17 00:00:00 2001\n", commit.id);
        let Signature { name, email, .. } = &commit.author;
        let _ = writeln!(text, "From: {} <{}>", one_line(name), one_line(email));
        let _ = writeln!(text, "Date: {}\nSubject: [PATCH] {subject}", email_date(&commit.author));
        if !text.is_ascii() || !body.is_ascii() {
            text.push_str(
                "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n",
            );
        }
        text.push('\n');
        if !body.is_empty() {
            text.push_str(&body);
            text.push('\n');
        }
        let _ = writeln!(text, "---\n\n{diff}-- \n2.0\n");
        Ok(Some(text))
    }
}

/// Returns the first paragraph of a message in one line, and the rest.
fn split_message(message: &str) -> (String, String) {
    let message = message.trim_start_matches('\n');
    let (subject, body) = message.split_once("\n\n").unwrap_or((message, ""));
    (one_line(subject), body.trim_matches('\n').to_owned())
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn email_date(signature: &Signature) -> String {
    let moment = Timestamp::from_second(signature.seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    let offset = Offset::from_seconds(signature.offset).unwrap_or(Offset::UTC);
    offset.to_datetime(moment).strftime("%a, %-d %b %Y %H:%M:%S ").to_string() + &zone(signature.offset)
}

fn zone(seconds: i32) -> String {
    let minutes = seconds.abs() / 60;
    format!("{}{:02}{:02}", if seconds < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
}

fn write_file(text: &mut String, file: &FileDiff) {
    let _ = writeln!(text, "diff --git {} {}", quote("a/", &file.old_path), quote("b/", &file.new_path));
    match (file.old_mode, file.new_mode) {
        (None, Some(mode)) => drop(writeln!(text, "new file mode {mode:06o}")),
        (Some(mode), None) => drop(writeln!(text, "deleted file mode {mode:06o}")),
        (Some(old), Some(new)) if old != new => drop(writeln!(text, "old mode {old:06o}\nnew mode {new:06o}")),
        _ => {}
    }
    if file.renamed {
        let _ = writeln!(text, "rename from {}\nrename to {}", quote("", &file.old_path), quote("", &file.new_path));
    }
    text.push_str(&file.diff);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_subject_of_one_line() {
        let check = |message: &str, subject: &str, body: &str| {
            assert_eq!(split_message(message), (subject.to_owned(), body.to_owned()), "{message:?}");
        };
        check("one\n", "one", "");
        check("one\ntwo\n\nbody\n\nmore\n", "one two", "body\n\nmore");
        check("", "", "");
    }

    #[test]
    fn a_date_has_the_format_of_emails() {
        let author = Signature { name: String::new(), email: String::new(), seconds: 1_500_000_000, offset: -12_600 };
        assert_eq!(email_date(&author), "Thu, 13 Jul 2017 23:10:00 -0330");
    }
}
