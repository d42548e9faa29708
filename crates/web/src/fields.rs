//! The fields of a form: a label, the value as it was typed, and the message beside it if it was not accepted.

use askama::{Template, filters::HtmlSafe};

use crate::form_errors::FormErrors;

/// A field of a form.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    name: &'static str,
    label: &'static str,
    kind: Kind,
    value: String,
    hint: Option<String>,
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
}

/// The fields of a form with their messages. Templates insert it as HTML.
#[derive(Template)]
#[template(path = "form.html")]
pub(crate) struct Form {
    fields: Vec<Field>,
    errors: FormErrors,
}

impl HtmlSafe for Form {}

impl Form {
    /// Puts each message beside its field; those of no field are above the form.
    pub(crate) fn new(fields: Vec<Field>, errors: &FormErrors) -> Self {
        let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        let errors = errors.clone().beside(&names);
        Self { fields, errors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_beside_their_fields() {
        let mut violations = model::Violations::one("name", "can't be blank");
        violations.add("projects_limit", "is <odd>");
        let errors = FormErrors::from(violations);
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
    }
}
