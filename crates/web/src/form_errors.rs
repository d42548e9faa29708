//! The messages of a form that was not accepted: each beside its field, the others above the form.

use axum::http::StatusCode;
use forge::Error;
use model::Violations;

use crate::error::PageError;

/// The messages of a form; there are none if it was not submitted yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormErrors {
    /// The names of fields with their messages.
    fields: Vec<(String, Message)>,
    /// The messages that belong to no field.
    general: Vec<String>,
}

/// The message of a field.
#[derive(Clone, Debug)]
enum Message {
    /// What is wrong; the label of the field precedes it, such as in `Title can't be blank`.
    Predicate(String),
    /// A complete sentence.
    Sentence(String),
}

impl FormErrors {
    /// Creates the message of one field: what follows its label.
    pub(crate) fn one(field: &str, predicate: impl Into<String>) -> Self {
        Self { fields: vec![(field.to_owned(), Message::Predicate(predicate.into()))], general: Vec::new() }
    }

    /// Creates the message of one field that is a complete sentence.
    pub(crate) fn sentence(field: &str, text: impl Into<String>) -> Self {
        Self { fields: vec![(field.to_owned(), Message::Sentence(text.into()))], general: Vec::new() }
    }

    /// Creates a message that belongs to no field.
    pub(crate) fn general(text: impl Into<String>) -> Self {
        Self { fields: Vec::new(), general: vec![text.into()] }
    }

    /// Converts an error that the user can correct in a form with these fields; the messages of other fields are shown above
    /// it. Other errors have their own page.
    pub(crate) fn of(error: Error, fields: &[&str]) -> Result<Self, PageError> {
        Ok(Self::by_field(error)?.beside(fields))
    }

    /// Like [`Self::of`], for a [`Form`](crate::fields::Form), which knows its fields.
    pub(crate) fn by_field(error: Error) -> Result<Self, PageError> {
        match error {
            Error::Invalid(violations) | Error::Conflicting(violations) => Ok(violations.into()),
            Error::Taken(text) => match text.split_once(' ') {
                Some((field, predicate)) if predicate == "has already been taken" => {
                    Ok(Self::one(&field.to_lowercase(), predicate))
                }
                _ => Ok(Self::general(text)),
            },
            Error::Forbidden(Some(_))
            | Error::Malformed(_)
            | Error::Refused(_)
            | Error::RefRejected(_)
            | Error::Protected(_)
            | Error::Unprocessable(_)
            | Error::LimitReached(_) => Ok(Self::general(error.to_string())),
            error => Err(error.into()),
        }
    }

    /// Returns the messages with those of all other fields moved above the form.
    pub(crate) fn beside(mut self, fields: &[&str]) -> Self {
        let (shown, others) = self.fields.into_iter().partition(|(field, _)| fields.contains(&field.as_str()));
        self.fields = shown;
        let others: Vec<(String, Message)> = others;
        self.general.extend(others.into_iter().map(|(field, message)| message.after(&name(&field))));
        self
    }

    /// Returns the messages with those of a field moved to another one, which has another name in the form.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        for (field, _) in &mut self.fields {
            if field == from {
                to.clone_into(field);
            }
        }
        self
    }

    /// Returns the messages with those of a field that is not in the form moved to one that has no message yet.
    pub(crate) fn merged(mut self, from: &str, to: &str) -> Self {
        if self.has(to) {
            self.fields.retain(|(field, _)| field != from);
        }
        self.renamed(from, to)
    }

    fn find(&self, field: &str) -> Option<&Message> {
        self.fields.iter().find(|(found, _)| found == field).map(|(_, message)| message)
    }

    /// Returns whether a field has a message.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.find(field).is_some()
    }

    /// Returns whether this is what is wrong with a field.
    pub(crate) fn is(&self, field: &str, predicate: &str) -> bool {
        matches!(self.find(field), Some(Message::Predicate(found)) if found == predicate)
    }

    /// Returns the message of a field with this label.
    pub(crate) fn message(&self, field: &str, label: &str) -> Option<String> {
        self.find(field).map(|message| message.clone().after(label))
    }

    /// Returns the messages that belong to no field.
    pub(crate) fn others(&self) -> &[String] {
        &self.general
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.general.is_empty()
    }

    /// Returns the status of a page with these messages.
    pub(crate) fn status(&self) -> StatusCode {
        if self.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY }
    }
}

impl From<Violations> for FormErrors {
    fn from(violations: Violations) -> Self {
        let mut errors = Self::default();
        for (field, texts) in violations.iter() {
            if field == "base" {
                errors.general.extend(texts.iter().cloned());
            } else {
                errors.fields.push((field.to_owned(), Message::Predicate(texts.join(", "))));
            }
        }
        // `base` repeats the other messages if there are any.
        if !errors.fields.is_empty() {
            errors.general.clear();
        }
        errors
    }
}

impl Message {
    fn after(self, label: &str) -> String {
        match self {
            Self::Predicate(text) => format!("{label} {text}"),
            Self::Sentence(text) => text,
        }
    }
}

/// Returns the name of a field that the form does not have, for the start of a sentence.
fn name(field: &str) -> String {
    match field {
        "visibility_level" => "Visibility".to_owned(),
        "url" | "import_url" => "URL".to_owned(),
        field => {
            let mut letters = field.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            format!("{}{}", first.collect::<String>(), letters.as_str().replace('_', " "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_assigned_to_the_fields_of_the_form() {
        let mut violations = Violations::one("name", "can't be blank");
        violations.add("visibility_level", "public is not allowed in a private group.");
        violations.add("base", "Unable to save project");
        let errors = FormErrors::of(Error::Invalid(violations), &["name"]).expect("a user can correct it");
        assert_eq!(errors.message("name", "Full name").as_deref(), Some("Full name can't be blank"));
        assert_eq!(errors.message("path", "Path"), None);
        assert_eq!(errors.others(), ["Visibility public is not allowed in a private group."]);
        assert_eq!(errors.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let base = FormErrors::of(Error::Invalid(Violations::one("base", "Too many")), &["name"]).expect("a message");
        assert_eq!(base.others(), ["Too many"]);
        assert!(FormErrors::of(Error::NotFound(None), &["name"]).is_err());
        assert_eq!(FormErrors::default().status(), StatusCode::OK);
    }

    #[test]
    fn a_value_that_is_taken_has_its_message_beside_the_field() {
        let taken = |text: &str| FormErrors::by_field(Error::Taken(text.into())).expect("a message");
        assert!(taken("Email has already been taken").is("email", "has already been taken"));
        assert_eq!(taken("Group already shared with this group").others(), ["Group already shared with this group"]);
        let merged = taken("Fingerprint has already been taken").merged("fingerprint", "key");
        assert_eq!(merged.message("key", "Key").as_deref(), Some("Key has already been taken"));
        assert_eq!(FormErrors::sentence("file", "Too large.").message("file", "File").as_deref(), Some("Too large."));
    }
}
