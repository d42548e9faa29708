//! Roles of members.

/// The role of a user in a project or a group; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads the project and takes part in discussions.
    Guest,
    /// Reads the code.
    Reporter,
    /// Changes the code.
    Developer,
    /// Administers the project.
    Master,
    /// May also transfer and delete; groups have owners, and a personal namespace has exactly one.
    Owner,
}

impl Role {
    /// All roles, lowest first.
    pub const ALL: [Self; 5] = [Self::Guest, Self::Reporter, Self::Developer, Self::Master, Self::Owner];

    /// The access level used in the database and the API.
    pub fn level(self) -> i32 {
        match self {
            Self::Guest => 10,
            Self::Reporter => 20,
            Self::Developer => 30,
            Self::Master => 40,
            Self::Owner => 50,
        }
    }

    /// Returns the role with this access level.
    pub fn from_level(level: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|role| i64::from(role.level()) == level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_survive_a_round_trip_through_their_levels() {
        for role in Role::ALL {
            assert_eq!(Role::from_level(role.level().into()), Some(role));
        }
        assert_eq!(Role::from_level(35), None);
        assert!(Role::Guest < Role::Owner);
    }
}
