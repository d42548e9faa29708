//! Who may see a project or a group without belonging to it.

/// How far something can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// By those who belong to it.
    Private,
    /// By everybody who is signed in and not external.
    Internal,
    /// By everybody.
    Public,
}

impl Visibility {
    /// Every level, narrowest first.
    pub const ALL: [Self; 3] = [Self::Private, Self::Internal, Self::Public];

    /// The number that is stored and shown.
    pub fn level(self) -> i32 {
        match self {
            Self::Private => 0,
            Self::Internal => 10,
            Self::Public => 20,
        }
    }

    /// The word that filters and messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Internal => "internal",
            Self::Public => "public",
        }
    }

    /// The level behind a number.
    pub fn from_level(level: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|visibility| i64::from(visibility.level()) == level)
    }
}
