//! A partial update of one field.

/// What an update does to a field: leaves it, empties it, or gives it a new value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// The field was not mentioned.
    #[default]
    Keep,
    /// The field is emptied.
    Clear,
    /// The field gets this value.
    Set(T),
}

impl<T> Change<T> {
    /// Reads an optional parameter: absent means keep.
    pub fn from_option(value: Option<T>) -> Self {
        value.map_or(Self::Keep, Self::Set)
    }

    /// The new value, if there is one.
    pub fn set(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Keep | Self::Clear => None,
        }
    }

    /// What becomes of a field that held this.
    pub fn over(self, old: Option<T>) -> Option<T> {
        match self {
            Self::Keep => old,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl Change<String> {
    /// Reads an optional text in which the empty text empties the field.
    pub fn from_text(value: Option<String>) -> Self {
        match value {
            None => Self::Keep,
            Some(text) if text.is_empty() => Self::Clear,
            Some(text) => Self::Set(text),
        }
    }

    /// Reads an optional text that may not be emptied: the empty text keeps the old one.
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
    fn a_change_says_what_a_field_holds_then() {
        assert_eq!(Change::Keep.over(Some(1)), Some(1));
        assert_eq!(Change::Clear.over(Some(1)), None);
        assert_eq!(Change::Set(2).over(Some(1)), Some(2));
    }
}
