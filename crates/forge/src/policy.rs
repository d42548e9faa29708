//! Who may do what, as tables.

use model::{Scope, User};

use crate::{Actor, Error, Reader, Result};

/// Something one can do to the instance as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// See one's own account.
    ReadOwnAccount,
    /// Change one's own keys and addresses.
    ChangeOwnAccount,
    /// See other users as users see each other.
    ReadUsers,
    /// Create, change, block and remove users, see their keys and addresses.
    AdministerUsers,
    /// Ask which version this is.
    ReadVersion,
    /// See how the service is doing, and steer its background work.
    Operate,
}

/// How close somebody stands to the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Not signed in.
    Anonymous,
    /// Signed in.
    User,
    /// Runs the instance.
    Administrator,
}

impl Ability {
    /// All abilities, for whoever prints the table.
    pub const ALL: [Self; 6] = [
        Self::ReadOwnAccount,
        Self::ChangeOwnAccount,
        Self::ReadUsers,
        Self::AdministerUsers,
        Self::ReadVersion,
        Self::Operate,
    ];
}

/// The least standing that grants an ability.
pub fn least_standing(ability: Ability) -> Standing {
    match ability {
        Ability::ReadOwnAccount | Ability::ChangeOwnAccount | Ability::ReadUsers | Ability::ReadVersion => {
            Standing::User
        }
        Ability::AdministerUsers | Ability::Operate => Standing::Administrator,
    }
}

/// The least scope that a token needs for an ability; `api` opens everything.
pub fn least_scope(ability: Ability) -> Scope {
    match ability {
        Ability::ReadOwnAccount | Ability::ReadUsers => Scope::ReadUser,
        Ability::ChangeOwnAccount | Ability::AdministerUsers | Ability::ReadVersion | Ability::Operate => Scope::Api,
    }
}

impl Actor {
    /// How close this actor stands to the instance.
    pub fn standing(&self) -> Standing {
        match self {
            Self::Anonymous => Standing::Anonymous,
            Self::User { user, .. } if user.admin => Standing::Administrator,
            Self::User { .. } => Standing::User,
            Self::System => Standing::Administrator,
        }
    }

    /// Whether this actor may do this.
    ///
    /// A token without the scope counts as no token at all, as clients of the original expect.
    pub fn check(&self, ability: Ability) -> Result<()> {
        let least = least_standing(ability);
        if let Self::User { scopes, .. } = self
            && !(scopes.contains(&Scope::Api) || scopes.contains(&least_scope(ability)))
        {
            return Err(Error::Unauthenticated);
        }
        match self.standing() {
            standing if standing >= least => Ok(()),
            Standing::Anonymous => Err(Error::Unauthenticated),
            Standing::User | Standing::Administrator => Err(Error::Forbidden(None)),
        }
    }
}

impl Reader<'_> {
    /// The gate to the instance: every use case begins here.
    pub fn may(&self, ability: Ability) -> Result<()> {
        self.actor().check(ability)
    }

    /// The gate to one's own account: answers the number of the user who is asking.
    pub fn my_id(&self, ability: Ability) -> Result<i64> {
        self.may(ability)?;
        self.actor().user().map(|user| user.id).ok_or(Error::Unauthenticated)
    }

    /// The gate to one's own account for use cases that are about nothing else: hands out the user who is asking.
    pub fn take_myself(&mut self, ability: Ability) -> Result<User> {
        self.may(ability)?;
        match self.take_actor() {
            Actor::User { user, .. } => Ok(*user),
            Actor::Anonymous | Actor::System => Err(Error::Unauthenticated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rights, as a table a person can read.
    #[test]
    fn the_table_of_rights() {
        let rows: Vec<String> = Ability::ALL
            .iter()
            .map(|ability| {
                let (standing, scope) = (least_standing(*ability), least_scope(*ability).as_str());
                format!("{:<18}{:<15}{scope}", format!("{ability:?}"), format!("{standing:?}"))
            })
            .collect();
        assert_eq!(
            rows,
            [
                "ReadOwnAccount    User           read_user",
                "ChangeOwnAccount  User           api",
                "ReadUsers         User           read_user",
                "AdministerUsers   Administrator  api",
                "ReadVersion       User           api",
                "Operate           Administrator  api",
            ]
        );
    }
}
