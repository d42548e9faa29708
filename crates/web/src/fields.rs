//! The fields of a form: a label, the value as it was typed, and the message beside it if it was not accepted.

use askama::{Template, filters::HtmlSafe};
use forge::Error;

use crate::error::PageError;

/// A field of a form.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    name: &'static str,
    label: &'static str,
    kind: Kind,
    value: String,
    hint: Option<String>,
    error: Option<String>,
    required: bool,
    max_length: Option<usize>,
    autocomplete: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// An input element of this type.
    Input(&'static str),
    /// A text area with this number of rows.
    Area(u32),
    /// A box that is checked if the value is `1`.
    Checkbox,
}

impl Field {
    /// Creates a field for a line of text.
    pub(crate) fn text(name: &'static str, label: &'static str) -> Self {
        Self::input(name, label, "text")
    }

    /// Creates a field for text of another type, such as `email`.
    pub(crate) fn input(name: &'static str, label: &'static str, kind: &'static str) -> Self {
        Self::new(name, label, Kind::Input(kind))
    }

    /// Creates a field for a password, which is never shown again.
    pub(crate) fn password(name: &'static str, label: &'static str, autocomplete: &'static str) -> Self {
        Self { autocomplete, required: true, ..Self::input(name, label, "password") }
    }

    /// Creates a field for a text of several lines.
    pub(crate) fn area(name: &'static str, label: &'static str, rows: u32) -> Self {
        Self::new(name, label, Kind::Area(rows))
    }

    /// Creates a box to check.
    pub(crate) fn checkbox(name: &'static str, label: &'static str, is_checked: bool) -> Self {
        Self::new(name, label, Kind::Checkbox).value(if is_checked { "1" } else { "" })
    }

    fn new(name: &'static str, label: &'static str, kind: Kind) -> Self {
        Self {
            name,
            label,
            kind,
            value: String::new(),
            hint: None,
            error: None,
            required: false,
            max_length: None,
            autocomplete: "",
        }
    }

    pub(crate) fn value(self, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..self }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub(crate) fn optional(self) -> Self {
        Self { required: false, ..self }
    }

    pub(crate) fn max_length(self, max_length: usize) -> Self {
        Self { max_length: Some(max_length), ..self }
    }

    pub(crate) fn autocomplete(self, autocomplete: &'static str) -> Self {
        Self { autocomplete, ..self }
    }

    /// Returns the ids of the elements that describe the field; empty if there are none.
    fn described_by(&self) -> String {
        let ids = [(self.hint.is_some(), "hint"), (self.error.is_some(), "error")];
        let ids = ids.iter().filter(|(is_shown, _)| *is_shown).map(|(_, id)| format!("{}-{id}", self.name));
        ids.collect::<Vec<_>>().join(" ")
    }
}

/// The fields of a form with their messages. Templates insert it as HTML.
#[derive(Template)]
#[template(path = "form.html")]
pub(crate) struct Form {
    fields: Vec<Field>,
    /// Messages that belong to no field.
    error: Option<String>,
}

impl HtmlSafe for Form {}

impl Form {
    /// Puts each message beside its field; those of no field are above the form.
    pub(crate) fn new(fields: Vec<Field>, errors: &FieldErrors) -> Self {
        let is_field = |name: &str| fields.iter().any(|field| field.name == name);
        let others: Vec<String> = errors
            .0
            .iter()
            .filter(|(name, _)| !is_field(name))
            .map(|(name, text)| if name == "base" { text.clone() } else { format!("{} {text}", capitalized(name)) })
            .collect();
        let fields = fields.into_iter().map(|field| {
            let error = errors.of(field.name).map(|text| format!("{} {text}", field.label));
            Field { error, ..field }
        });
        Self { fields: fields.collect(), error: (!others.is_empty()).then(|| others.join(". ")) }
    }
}

/// The messages for a form that was not accepted, by field.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldErrors(Vec<(String, String)>);

impl FieldErrors {
    /// Creates the message of one field.
    pub(crate) fn one(name: &str, text: impl Into<String>) -> Self {
        Self(vec![(name.to_owned(), text.into())])
    }

    /// Returns the messages of an error that the user can correct in the form; fails with all other errors.
    pub(crate) fn of_error(error: Error) -> Result<Self, PageError> {
        match error {
            Error::Invalid(violations) | Error::Conflicting(violations) => {
                Ok(Self(violations.iter().map(|(name, texts)| (name.to_owned(), texts.join(", "))).collect()))
            }
            // The text starts with the name of the field.
            Error::Taken(text) => match text.split_once(' ') {
                Some((field, rest)) => Ok(Self::one(&field.to_lowercase(), rest)),
                None => Ok(Self::one("base", text)),
            },
            Error::Forbidden(Some(text)) | Error::Refused(text) | Error::LimitReached(text) => {
                Ok(Self::one("base", text))
            }
            error => Err(error.into()),
        }
    }

    /// Returns the message of a field.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the messages with those of a field moved to another one, which has another name in the form.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        for (name, _) in &mut self.0 {
            if name == from {
                to.clone_into(name);
            }
        }
        self
    }

    /// Returns the messages with those of a field that is not in the form moved to one that has no message yet.
    pub(crate) fn merged(mut self, from: &str, to: &str) -> Self {
        if self.of(to).is_some() {
            self.0.retain(|(name, _)| name != from);
        }
        self.renamed(from, to)
    }
}

fn capitalized(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.collect::<String>() + &chars.as_str().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_beside_their_fields() {
        let mut violations = model::Violations::one("name", "can't be blank");
        violations.add("projects_limit", "is <odd>");
        let errors = FieldErrors::of_error(Error::Invalid(violations)).expect("messages");
        let html = Form::new(vec![Field::text("name", "Name").value("\"<b>").hint("Shown to others")], &errors)
            .render()
            .expect("HTML");
        for part in [
            "<label for=\"name\">Name</label>",
            "id=\"name-error\">Name can&#39;t be blank",
            "value=\"&#34;&#60;b&#62;\"",
            "aria-invalid=\"true\" aria-describedby=\"name-hint name-error\"",
            "role=\"alert\">Projects limit is &#60;odd&#62;",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let taken = FieldErrors::of_error(Error::Taken("Email has already been taken".into())).expect("messages");
        assert_eq!(taken.of("email"), Some("has already been taken"));
        assert!(FieldErrors::of_error(Error::Busy).is_err());
    }
}
