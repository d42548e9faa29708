//! The versions of git's protocol.

/// A version that both sides may speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    #[default]
    Zero,
    One,
    Two,
}

impl Version {
    /// The highest version that a client asks for, as in `version=2`; what is unknown counts for nothing.
    pub(crate) fn asked_for(text: &str) -> Self {
        let keys = text.split(':').filter_map(Self::of_key);
        keys.max_by_key(|version| *version as u8).unwrap_or_default()
    }

    /// What one key of the wish means.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        match key {
            "version=0" => Some(Self::Zero),
            "version=1" => Some(Self::One),
            "version=2" => Some(Self::Two),
            _ => None,
        }
    }

    /// What a program of git has to find in its environment; never a text that came from outside.
    pub(crate) fn for_git(self) -> Option<&'static str> {
        match self {
            Self::Zero => None,
            Self::One => Some("version=1"),
            Self::Two => Some("version=2"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_known_version_counts() {
        for (text, expected) in [
            ("version=2", Version::Two),
            ("version=1", Version::One),
            ("version=0", Version::Zero),
            ("version=1:version=2", Version::Two),
            ("version=3:foo:version=1", Version::One),
            ("version=3", Version::Zero),
            ("", Version::Zero),
            ("version=2\nX=1", Version::Zero),
        ] {
            assert_eq!(Version::asked_for(text), expected, "{text:?}");
        }
    }
}
