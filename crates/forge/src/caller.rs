//! Who asks: first what they show, then who they are.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use model::{Scope, Token, User, UserState, tokens::Digest};
use store::Conn;

use crate::{Error, Result};

/// What somebody shows to be let in; proved inside the transaction that acts on it.
///
/// A block, a revocation or an expiry therefore counts from the moment it is committed, and a request needs no second
/// trip to the database for its identity.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    proof: Proof,
    sudo: Option<String>,
    noted_in: Option<Arc<Noted>>,
    depth: i32,
}

/// Who a caller turned out to be, for the log.
#[derive(Debug, Default)]
pub struct Noted {
    user: OnceLock<i64>,
    acting_as: OnceLock<i64>,
}

impl Noted {
    /// The number of the user who called.
    pub fn user(&self) -> Option<i64> {
        self.user.get().copied()
    }

    /// The number of the user as whom an administrator acted.
    pub fn acting_as(&self) -> Option<i64> {
        self.acting_as.get().copied()
    }
}

/// What a caller shows: the same tokens, acting as the same user.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    digests: Vec<Digest>,
    sudo: Option<String>,
}

/// The hash of a password; it does not print.
#[derive(Clone)]
pub(crate) struct PasswordHash(pub(crate) String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

#[derive(Clone, Debug, Default)]
enum Proof {
    /// Nothing, or tokens of which the first good one counts.
    #[default]
    Nothing,
    Tokens(Vec<Digest>),
    /// A user whose password was checked a moment ago, with the hash it was checked against.
    Password(i64, PasswordHash),
    /// A user for whom the service finishes what they began.
    OnBehalfOf(i64),
    /// An SSH key, by its fingerprint, with which somebody has signed a moment ago.
    SshKey(String),
    /// The token of a job.
    JobToken(Digest),
    /// The service itself, or its operator at the command line.
    System,
}

/// Who somebody has proved to be.
#[derive(Clone, Debug)]
pub enum Actor {
    /// Nobody in particular.
    Anonymous,
    /// A user who may come in.
    User {
        /// Who.
        user: Box<User>,
        /// What the proof opens.
        scopes: Vec<Scope>,
    },
    /// A machine that holds a deploy key.
    DeployKey {
        /// What the key is called.
        title: String,
        /// The projects that it opens.
        projects: Vec<i64>,
    },
    /// A job that runs at this moment, by its token.
    Job {
        /// The user who started it, whose rights it has; `None` if a trigger did.
        user: Option<Box<User>>,
        /// The project that it belongs to.
        project: i64,
        /// The pipeline that it belongs to.
        pipeline: i64,
    },
    /// The service itself, or its operator at the command line.
    System,
}

impl Caller {
    /// Somebody who shows nothing.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Somebody who shows tokens; the first good one counts.
    pub fn with_tokens<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Self {
        let digests: Vec<_> = tokens.into_iter().map(Digest::of).collect();
        let proof = if digests.is_empty() { Proof::Nothing } else { Proof::Tokens(digests) };
        Self { proof, ..Self::default() }
    }

    /// Whether there is anything to prove.
    pub fn shows_something(&self) -> bool {
        !matches!(self.proof, Proof::Nothing)
    }

    /// The service itself, or its operator at the command line.
    pub fn system() -> Self {
        Self { proof: Proof::System, ..Self::default() }
    }

    /// A user whose password fits this hash. It counts for as long as the user has this password.
    pub(crate) fn with_checked_password(user: i64, hash: PasswordHash) -> Self {
        Self { proof: Proof::Password(user, hash), ..Self::default() }
    }

    /// A user for whom the service finishes what they began; it has the rights that the user has by then.
    pub(crate) fn on_behalf_of(user: i64) -> Self {
        Self { proof: Proof::OnBehalfOf(user), ..Self::default() }
    }

    /// Somebody who has signed with the SSH key of this fingerprint, or is about to.
    pub(crate) fn with_ssh_key(fingerprint: String) -> Self {
        Self { proof: Proof::SshKey(fingerprint), ..Self::default() }
    }

    /// A job that shows its token; it opens something only while the job runs.
    pub fn with_job_token(token: &str) -> Self {
        Self { proof: Proof::JobToken(Digest::of(token)), ..Self::default() }
    }

    /// The same caller, acting as another user by number or name.
    pub fn acting_as(mut self, sudo: Option<String>) -> Self {
        self.sudo = sudo;
        self
    }

    /// The same caller, led here by so many hooks, one by the other.
    pub fn led_by_hooks(mut self, depth: i32) -> Self {
        self.depth = depth;
        self
    }

    /// How many hooks have led here, one by the other.
    pub(crate) fn depth(&self) -> i32 {
        self.depth
    }

    /// What this caller shows, as something to compare; `None` if it is no token.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match &self.proof {
            Proof::Tokens(digests) => Some(Identity { digests: digests.clone(), sudo: self.sudo.clone() }),
            Proof::Nothing
            | Proof::Password(..)
            | Proof::OnBehalfOf(_)
            | Proof::SshKey(_)
            | Proof::JobToken(_)
            | Proof::System => None,
        }
    }

    /// Who this caller was found to be.
    pub(crate) fn noted(&self) -> (Option<i64>, Option<i64>) {
        self.noted_in.as_ref().map_or((None, None), |noted| (noted.user(), noted.acting_as()))
    }

    /// Notes who this caller is known to be.
    pub(crate) fn note(&self, user: Option<i64>, acting_as: Option<i64>) {
        let Some(noted) = &self.noted_in else { return };
        for (place, id) in [(&noted.user, user), (&noted.acting_as, acting_as)] {
            if let Some(id) = id {
                let _ = place.set(id);
            }
        }
    }

    /// The same caller, of whom it is noted in this place who they turn out to be.
    pub fn noted_in(mut self, place: Arc<Noted>) -> Self {
        self.noted_in = Some(place);
        self
    }
}

impl Actor {
    /// The user, if it is one.
    pub fn user(&self) -> Option<&User> {
        match self {
            Self::User { user, .. } => Some(user),
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { .. } | Self::System => None,
        }
    }

    /// What to call them, if they are anybody in particular.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::User { user, .. } => Some(user.name.clone()),
            Self::DeployKey { title, .. } => Some(title.clone()),
            Self::Anonymous | Self::Job { .. } | Self::System => None,
        }
    }

    /// Whether a deploy key opens this project.
    pub(crate) fn has_key_to(&self, project: i64) -> bool {
        matches!(self, Self::DeployKey { projects, .. } if projects.contains(&project))
    }

    /// Whether a job reads its own project whatever its starter is to that project: a trigger started it, or an
    /// administrator. All other jobs have the rights that their starter has at this moment.
    pub(crate) fn has_own_rights_to(&self, project: i64) -> bool {
        matches!(self, Self::Job { user, project: own, .. }
            if *own == project && user.as_deref().is_none_or(|user| user.admin))
    }

    /// Whether this is an administrator, or the service itself.
    pub fn is_admin(&self) -> bool {
        match self {
            Self::User { user, .. } => user.admin,
            Self::System => true,
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { .. } => false,
        }
    }
}

/// An actor with the token that proved it.
pub(crate) struct Proved {
    pub(crate) actor: Actor,
    pub(crate) token: Option<Token>,
}

/// Finds out who the caller is.
pub(crate) fn prove(db: &mut Conn, caller: &Caller, now: model::Time) -> Result<Proved> {
    let proved = match &caller.proof {
        Proof::Nothing => Proved { actor: Actor::Anonymous, token: None },
        Proof::System => Proved { actor: Actor::System, token: None },
        Proof::Password(id, hash) => {
            // The password may have changed since it was checked.
            let stands = store::users::password_hash(db, *id)?.is_some_and(|now| now == hash.0);
            let actor = if stands { prove_by_id(db, *id)? } else { Actor::Anonymous };
            Proved { actor, token: None }
        }
        Proof::OnBehalfOf(id) => Proved { actor: prove_by_id(db, *id)?, token: None },
        Proof::SshKey(fingerprint) => Proved { actor: prove_by_key(db, fingerprint)?, token: None },
        Proof::Tokens(digests) => prove_by_tokens(db, digests, now)?,
        Proof::JobToken(digest) => Proved { actor: prove_by_job_token(db, digest)?, token: None },
    };
    let note = |of: fn(&Noted) -> &OnceLock<i64>, user: Option<&User>| {
        if let (Some(noted), Some(user)) = (&caller.noted_in, user) {
            let _ = of(noted).set(user.id);
        }
    };
    note(|noted| &noted.user, proved.actor.user());
    match (&caller.sudo, &proved.actor) {
        (None, _) | (_, Actor::Anonymous | Actor::DeployKey { .. } | Actor::Job { .. } | Actor::System) => Ok(proved),
        (Some(target), Actor::User { user, scopes }) => {
            if !user.admin || !scopes.contains(&Scope::Api) {
                return Err(Error::forbidden("Must be admin to use sudo"));
            }
            let actor = act_as(db, target)?;
            note(|noted| &noted.acting_as, actor.user());
            Ok(Proved { actor, token: proved.token })
        }
    }
}

pub(crate) fn prove_by_id(db: &mut Conn, id: i64) -> Result<Actor> {
    let user = store::users::by_id(db, id)?.filter(|user| user.state == UserState::Active);
    Ok(user.map_or(Actor::Anonymous, |user| Actor::User { user: Box::new(user), scopes: vec![Scope::Api] }))
}

fn prove_by_key(db: &mut Conn, fingerprint: &str) -> Result<Actor> {
    if let Some(user) = store::keys::holder(db, fingerprint)? {
        let active = user.state == UserState::Active;
        let actor = Actor::User { user: Box::new(user), scopes: vec![Scope::Api] };
        return Ok(if active { actor } else { Actor::Anonymous });
    }
    let found = store::deploy_keys::by_fingerprint(db, fingerprint)?;
    Ok(found.map_or(Actor::Anonymous, |(key, projects)| Actor::DeployKey { title: key.title, projects }))
}

pub(crate) fn prove_by_job_token(db: &mut Conn, digest: &Digest) -> Result<Actor> {
    let Some(job) = store::build_runs::running(db, digest)? else { return Ok(Actor::Anonymous) };
    let user = match job.user {
        None if job.triggered => None,
        // The user who started it was removed.
        None => return Ok(Actor::Anonymous),
        Some(id) => match store::users::by_id(db, id)?.filter(|user| user.state == UserState::Active) {
            Some(user) => Some(Box::new(user)),
            // Whoever is kept out is so with everything that runs on their behalf.
            None => return Ok(Actor::Anonymous),
        },
    };
    Ok(Actor::Job { user, project: job.project, pipeline: job.pipeline })
}

fn prove_by_tokens(db: &mut Conn, digests: &[Digest], now: model::Time) -> Result<Proved> {
    for digest in digests {
        if let Some((token, user)) = store::tokens::find(db, digest)?
            && token.is_active(now)
            && user.state == UserState::Active
        {
            let actor = Actor::User { user: Box::new(user), scopes: token.scopes.clone() };
            return Ok(Proved { actor, token: Some(token) });
        }
    }
    Ok(Proved { actor: Actor::Anonymous, token: None })
}

fn act_as(db: &mut Conn, target: &str) -> Result<Actor> {
    let by_number = target.bytes().all(|byte| byte.is_ascii_digit()) && !target.is_empty();
    let user = if by_number {
        target.parse().map_or(Ok(None), |id| store::users::by_id(db, id))?
    } else if model::text::has_control(target) {
        // No username has one, and PostgreSQL refuses to look for NUL.
        None
    } else {
        store::users::by_username(db, target)?
    };
    let user = user.ok_or_else(|| Error::NotFound(format!("No user id or username for: {target}")))?;
    if user.state != UserState::Active {
        return Ok(Actor::Anonymous);
    }
    Ok(Actor::User { user: Box::new(user), scopes: vec![Scope::Api] })
}
