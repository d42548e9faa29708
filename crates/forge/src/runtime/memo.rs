//! Answers that a thread remembers for as long as the embedded database has not changed.
//!
//! SQLite counts the commits of all other connections, those of other processes included, and tells the number for next
//! to nothing. While it stands, reading again would find the same. What also depends on the hour (the end of a token, the
//! day on which a membership ends) is looked at anew.

use std::{any::Any, collections::HashMap};

use model::{Time, Token, members::day_of};

use crate::caller::Identity;

/// How many answers are remembered before the older half is forgotten.
const KEPT: usize = 512;

/// What an answer was given to: who was asking, and for what.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) identity: Identity,
    pub(crate) subject: String,
}

/// An answer, and what it rests on.
pub(crate) struct Remembered {
    /// The version of the database before it was read.
    pub(crate) version: i64,
    /// When it was given.
    pub(crate) at: Time,
    /// The token that proved who was asking.
    pub(crate) token: Option<Token>,
    /// Who that was, for the log.
    pub(crate) user: Option<i64>,
    pub(crate) acting_as: Option<i64>,
    pub(crate) answer: Box<dyn Any>,
}

impl Remembered {
    /// Whether reading again would find the same.
    fn stands(&self, version: i64, now: Time) -> bool {
        let alive = self.token.as_ref().and_then(|token| token.expires_at).is_none_or(|end| now < end);
        self.version == version && alive && day_of(self.at) == day_of(now)
    }
}

/// The answers of one thread, in two halves of which the older is forgotten as a whole.
#[derive(Default)]
pub(crate) struct Memo {
    younger: HashMap<Question, Remembered>,
    older: HashMap<Question, Remembered>,
}

impl Memo {
    /// What is remembered, if it still stands.
    pub(crate) fn read_cached(&mut self, question: &Question, version: i64, now: Time) -> Option<&Remembered> {
        if let Some(found) = self.older.remove(question) {
            self.remember(question.clone(), found);
        }
        self.younger.get(question).filter(|found| found.stands(version, now))
    }

    pub(crate) fn remember(&mut self, question: Question, remembered: Remembered) {
        if self.younger.len() >= KEPT / 2 {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(question, remembered);
    }
}
