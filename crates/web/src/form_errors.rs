//! The messages of a form that was not accepted, each beside its field.

use axum::http::StatusCode;
use forge::Error;
use model::Violations;

use crate::error::PageError;

/// The messages of a form; there are none if it was not submitted yet.
#[derive(Debug, Default)]
pub(crate) struct FormErrors {
    /// The names of fields with their messages.
    fields: Vec<(&'static str, String)>,
    /// The messages that belong to no field.
    general: Vec<String>,
}

impl FormErrors {
    /// Creates the message of one field.
    pub(crate) fn one(field: &'static str, text: impl Into<String>) -> Self {
        Self { fields: vec![(field, text.into())], general: Vec::new() }
    }

    /// Creates a message that belongs to no field.
    pub(crate) fn general(text: impl Into<String>) -> Self {
        Self { fields: Vec::new(), general: vec![text.into()] }
    }

    /// Converts an error that the user can correct in a form with these fields. Other errors have their own page.
    pub(crate) fn of(error: Error, fields: &[&'static str]) -> Result<Self, PageError> {
        match error {
            Error::Invalid(violations) | Error::Conflicting(violations) => Ok(Self::of_violations(&violations, fields)),
            Error::Malformed(_)
            | Error::Taken(_)
            | Error::Refused(_)
            | Error::RefRejected(_)
            | Error::Protected(_)
            | Error::Unprocessable(_)
            | Error::LimitReached(_) => Ok(Self::general(error.to_string())),
            error => Err(error.into()),
        }
    }

    fn of_violations(violations: &Violations, fields: &[&'static str]) -> Self {
        let mut errors = Self::default();
        // `base` repeats the other messages if there are any.
        let has_others = violations.iter().any(|(field, _)| field != "base");
        for (field, texts) in violations.iter().filter(|(field, _)| !has_others || *field != "base") {
            let known = fields.iter().find(|known| **known == field);
            match known {
                Some(known) => errors.fields.push((*known, sentence(field, &texts.join(", ")))),
                None if field == "base" => errors.general.extend(texts.iter().cloned()),
                None => errors.general.push(sentence(field, &texts.join(", "))),
            }
        }
        errors
    }

    /// Returns the message of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| *found == name).map(|(_, text)| text.as_str())
    }

    /// Returns the messages that belong to no field.
    pub(crate) fn others(&self) -> &[String] {
        &self.general
    }

    /// Returns the status of a page with these messages.
    pub(crate) fn status(&self) -> StatusCode {
        let is_empty = self.fields.is_empty() && self.general.is_empty();
        if is_empty { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY }
    }
}

/// Returns a message that starts with the name of its field, as the form calls it.
fn sentence(field: &str, text: &str) -> String {
    let name = match field {
        "visibility_level" => "Visibility".to_owned(),
        "url" | "import_url" => "URL".to_owned(),
        field => {
            let mut letters = field.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            format!("{}{}", first.collect::<String>(), letters.as_str().replace('_', " "))
        }
    };
    format!("{name} {text}")
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
        assert_eq!(errors.get("name"), Some("Name can't be blank"));
        assert_eq!(errors.get("path"), None);
        assert_eq!(errors.others(), ["Visibility public is not allowed in a private group."]);
        assert_eq!(errors.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let base = FormErrors::of(Error::Invalid(Violations::one("base", "Too many")), &["name"]).expect("a message");
        assert_eq!(base.others(), ["Too many"]);
        assert!(FormErrors::of(Error::NotFound(None), &["name"]).is_err());
        assert_eq!(FormErrors::default().status(), StatusCode::OK);
    }
}
