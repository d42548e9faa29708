//! Visibility of projects and groups.

/// Who can see a project or a group without being a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Members only.
    Private,
    /// All signed-in users who are not external.
    Internal,
    /// Everyone, signed in or not.
    Public,
}

impl Visibility {
    /// All levels, most restricted first.
    pub const ALL: [Self; 3] = [Self::Private, Self::Internal, Self::Public];

    /// The number used in the database and the API.
    pub fn level(self) -> i32 {
        match self {
            Self::Private => 0,
            Self::Internal => 10,
            Self::Public => 20,
        }
    }

    /// The name used in filters and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Internal => "internal",
            Self::Public => "public",
        }
    }

    /// Returns the visibility with this number.
    pub fn from_level(level: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|visibility| i64::from(visibility.level()) == level)
    }
}
