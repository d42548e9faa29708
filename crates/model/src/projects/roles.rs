//! Roles: what somebody is to a project or a group.

/// What somebody is to a project or a group; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads, and takes part in talks.
    Guest,
    /// Reads the code.
    Reporter,
    /// Changes the code.
    Developer,
    /// Steers the project.
    Master,
    /// Decides about its existence; a group has owners, and a personal namespace has one.
    Owner,
}

impl Role {
    /// Every role, least first.
    pub const ALL: [Self; 5] = [Self::Guest, Self::Reporter, Self::Developer, Self::Master, Self::Owner];

    /// The number that is stored and shown.
    pub fn level(self) -> i32 {
        match self {
            Self::Guest => 10,
            Self::Reporter => 20,
            Self::Developer => 30,
            Self::Master => 40,
            Self::Owner => 50,
        }
    }

    /// The role behind a number.
    pub fn from_level(level: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|role| i64::from(role.level()) == level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_a_number_and_back() {
        for role in Role::ALL {
            assert_eq!(Role::from_level(role.level().into()), Some(role));
        }
        assert_eq!(Role::from_level(35), None);
        assert!(Role::Guest < Role::Owner);
    }
}
