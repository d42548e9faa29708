//! A partial update of one field.

/// The change of one field in an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// The field was not mentioned.
    #[default]
    Keep,
    /// The field is cleared.
    Clear,
    /// The field gets this value.
    Set(T),
}

impl<T> Change<T> {
    /// Converts an optional parameter: `None` keeps the field.
    pub fn from_option(value: Option<T>) -> Self {
        value.map_or(Self::Keep, Self::Set)
    }

    /// Returns the new value, if there is one.
    pub fn set(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Keep | Self::Clear => None,
        }
    }

    /// Applies the change to the old value of a field and returns the new one.
    pub fn apply_to(self, old: Option<T>) -> Option<T> {
        match self {
            Self::Keep => old,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl Change<String> {
    /// Converts an optional text; the empty text clears the field.
    pub fn from_text(value: Option<String>) -> Self {
        match value {
            None => Self::Keep,
            Some(text) if text.is_empty() => Self::Clear,
            Some(text) => Self::Set(text),
        }
    }

    /// Converts an optional text of a required field; the empty text keeps the old value.
    pub fn from_required_text(value: Option<String>) -> Self {
        Self::from_option(value.filter(|text| !text.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_text_clears_an_optional_field_and_keeps_a_required_one() {
        assert_eq!(Change::from_text(Some(String::new())), Change::Clear);
        assert_eq!(Change::from_required_text(Some(String::new())), Change::Keep);
        assert_eq!(Change::from_text(None), Change::Keep);
        assert_eq!(Change::from_text(Some("x".into())), Change::Set("x".into()));
    }

    #[test]
    fn a_change_is_applied_to_the_old_value() {
        assert_eq!(Change::Keep.apply_to(Some(1)), Some(1));
        assert_eq!(Change::Clear.apply_to(Some(1)), None);
        assert_eq!(Change::Set(2).apply_to(Some(1)), Some(2));
    }
}
