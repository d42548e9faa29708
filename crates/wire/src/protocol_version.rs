//! Versions of git's wire protocol.

/// A version of git's wire protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProtocolVersion {
    #[default]
    V0,
    V1,
    V2,
}

impl ProtocolVersion {
    /// Parses a `Git-Protocol` header such as `version=2` and returns the highest version in it; unknown keys are ignored.
    pub(crate) fn from_header(text: &str) -> Self {
        let keys = text.split(':').filter_map(Self::from_key);
        keys.max_by_key(|version| *version as u8).unwrap_or_default()
    }

    /// Parses one key of the header.
    pub(crate) fn from_key(key: &str) -> Option<Self> {
        match key {
            "version=0" => Some(Self::V0),
            "version=1" => Some(Self::V1),
            "version=2" => Some(Self::V2),
            _ => None,
        }
    }

    /// Returns the value of `GIT_PROTOCOL` for a git process; never text sent by the client.
    pub(crate) fn env_value(self) -> Option<&'static str> {
        match self {
            Self::V0 => None,
            Self::V1 => Some("version=1"),
            Self::V2 => Some("version=2"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_known_version_counts() {
        for (text, expected) in [
            ("version=2", ProtocolVersion::V2),
            ("version=1", ProtocolVersion::V1),
            ("version=0", ProtocolVersion::V0),
            ("version=1:version=2", ProtocolVersion::V2),
            ("version=3:foo:version=1", ProtocolVersion::V1),
            ("version=3", ProtocolVersion::V0),
            ("", ProtocolVersion::V0),
            ("version=2\nX=1", ProtocolVersion::V0),
        ] {
            assert_eq!(ProtocolVersion::from_header(text), expected, "{text:?}");
        }
    }
}
