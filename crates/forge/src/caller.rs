//! Authentication: the credentials of a request, and the actor that they prove.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use model::{PipelineId, ProjectId, Scope, Site, Token, User, UserId, UserState, WebSession, tokens::Digest};
use store::Conn;

use crate::{Error, Result, lookups::Lookups};

/// The originator of a request with its credentials, which are checked inside the transaction that uses them.
///
/// A block, a revocation or an expiry therefore takes effect as soon as it is committed, and a request needs no second
/// round trip to the database to authenticate.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    credential: Credential,
    sudo: Option<String>,
    log_identity: Option<Arc<LogIdentity>>,
    hook_depth: i32,
}

/// The ids of an authenticated caller, for the access log.
#[derive(Debug, Default)]
pub struct LogIdentity {
    user: OnceLock<UserId>,
    acting_as: OnceLock<UserId>,
}

impl LogIdentity {
    /// Returns the id of the authenticated user.
    pub fn user(&self) -> Option<UserId> {
        self.user.get().copied()
    }

    /// Returns the id of the user as whom an administrator acted.
    pub fn acting_as(&self) -> Option<UserId> {
        self.acting_as.get().copied()
    }
}

/// What the server knows about a request besides its content, for an interface that it passes the request to.
#[derive(Clone)]
pub struct RequestOrigin {
    /// The URL under which the client reached the server.
    pub site: Site,
    /// Whether the client used TLS, to the server or to a proxy.
    pub is_secure: bool,
    /// The address of the client.
    pub address: IpAddr,
    /// The id of the request in the log.
    pub request_id: String,
    /// Where the authenticated user is recorded for the log.
    pub log_identity: Arc<LogIdentity>,
    /// Records the name of the route for the log.
    pub record_route: Arc<dyn Fn(&'static str) + Send + Sync>,
}

/// The tokens and the sudo target of a caller, as a part of the key of the read cache.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallerKey {
    digests: Vec<Digest>,
    sudo: Option<String>,
}

/// The hash of a password; its `Debug` output is redacted.
#[derive(Clone)]
pub(crate) struct PasswordHash(pub(crate) String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

#[derive(Clone, Debug, Default)]
enum Credential {
    #[default]
    None,
    /// Access tokens, of which the first valid one is used.
    Tokens(Vec<Digest>),
    /// The id of a user whose password was just verified, with the hash it was verified against.
    Password(UserId, PasswordHash),
    /// The id of a user for whom the server completes earlier work.
    OnBehalfOf(UserId),
    /// The fingerprint of an SSH key whose owner has just signed with it.
    SshKey(String),
    /// The token of a CI job.
    JobToken(Digest),
    /// A session of the web interface.
    WebSession(Digest),
    /// The server itself, or its operator at the command line.
    System,
}

/// The authenticated originator of a request.
#[derive(Clone, Debug)]
pub enum Actor {
    /// No valid credentials.
    Anonymous,
    /// An active user.
    User {
        /// The user.
        user: Box<User>,
        /// The scopes of the credentials.
        scopes: Vec<Scope>,
    },
    /// A machine with a deploy key.
    DeployKey {
        /// The title of the key.
        title: String,
        /// The ids of the projects that have the key.
        projects: Vec<ProjectId>,
    },
    /// A running CI job.
    Job {
        /// The user who started the job, whose rights it has; `None` if a trigger started it.
        user: Option<Box<User>>,
        /// The id of its project.
        project: ProjectId,
        /// The id of its pipeline.
        pipeline: PipelineId,
    },
    /// The server itself, or its operator at the command line.
    System,
}

impl Caller {
    /// Creates a caller without credentials.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Returns whether this is the server itself, or its operator at the command line.
    pub(crate) fn is_system(&self) -> bool {
        matches!(self.credential, Credential::System)
    }

    /// Creates a caller with access tokens, of which the first valid one is used.
    pub fn with_tokens<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Self {
        let digests: Vec<_> = tokens.into_iter().map(Digest::of).collect();
        let credential = if digests.is_empty() { Credential::None } else { Credential::Tokens(digests) };
        Self { credential, ..Self::default() }
    }

    /// Returns whether the caller presents credentials, valid or not.
    pub fn has_credentials(&self) -> bool {
        !matches!(self.credential, Credential::None)
    }

    /// Creates the caller for the server itself, or for its operator at the command line.
    pub fn system() -> Self {
        Self { credential: Credential::System, ..Self::default() }
    }

    /// Creates a caller whose password matched this hash. It is valid for as long as the user has this password.
    pub(crate) fn with_verified_password(user: UserId, hash: PasswordHash) -> Self {
        Self { credential: Credential::Password(user, hash), ..Self::default() }
    }

    /// Creates a caller with the current rights of a user, for work that the server completes later.
    pub(crate) fn on_behalf_of(user: UserId) -> Self {
        Self { credential: Credential::OnBehalfOf(user), ..Self::default() }
    }

    /// Creates a caller who has signed with the SSH key of this fingerprint, or is about to.
    pub(crate) fn with_ssh_key(fingerprint: String) -> Self {
        Self { credential: Credential::SshKey(fingerprint), ..Self::default() }
    }

    /// Creates a caller with the token of a CI job, which is valid while the job runs.
    pub fn with_job_token(token: &str) -> Self {
        Self { credential: Credential::JobToken(Digest::of(token)), ..Self::default() }
    }

    /// Creates a caller with the secret of a session of the web interface.
    pub fn with_web_session(secret: &str) -> Self {
        Self { credential: Credential::WebSession(Digest::of(secret)), ..Self::default() }
    }

    /// Makes the caller act as another user, given by id or username.
    pub fn acting_as(mut self, sudo: Option<String>) -> Self {
        self.sudo = sudo;
        self
    }

    /// Sets the length of the chain of webhooks that caused the request.
    pub fn with_hook_depth(mut self, hook_depth: i32) -> Self {
        self.hook_depth = hook_depth;
        self
    }

    /// Returns the length of the chain of webhooks that caused the request.
    pub(crate) fn hook_depth(&self) -> i32 {
        self.hook_depth
    }

    /// Returns the key under which reads of this caller are cached; `None` unless it presents tokens.
    pub(crate) fn cache_key(&self) -> Option<CallerKey> {
        match &self.credential {
            Credential::Tokens(digests) => Some(CallerKey { digests: digests.clone(), sudo: self.sudo.clone() }),
            Credential::None
            | Credential::Password(..)
            | Credential::OnBehalfOf(_)
            | Credential::SshKey(_)
            | Credential::JobToken(_)
            | Credential::WebSession(_)
            | Credential::System => None,
        }
    }

    /// Returns the ids recorded for the log: of the user, and of the user as whom they act.
    pub(crate) fn logged_ids(&self) -> (Option<UserId>, Option<UserId>) {
        self.log_identity.as_ref().map_or((None, None), |identity| (identity.user(), identity.acting_as()))
    }

    /// Records the ids of an authenticated caller for the log.
    pub(crate) fn record_ids(&self, user: Option<UserId>, acting_as: Option<UserId>) {
        let Some(identity) = &self.log_identity else { return };
        for (cell, id) in [(&identity.user, user), (&identity.acting_as, acting_as)] {
            if let Some(id) = id {
                let _ = cell.set(id);
            }
        }
    }

    /// Sets where the ids of the authenticated caller are recorded for the log.
    pub fn with_log_identity(mut self, log_identity: Arc<LogIdentity>) -> Self {
        self.log_identity = Some(log_identity);
        self
    }
}

impl Actor {
    /// Returns the user, if the actor is one.
    pub fn user(&self) -> Option<&User> {
        match self {
            Self::User { user, .. } => Some(user),
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { .. } | Self::System => None,
        }
    }

    /// Returns the name of the user or the title of the deploy key.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::User { user, .. } => Some(user.name.clone()),
            Self::DeployKey { title, .. } => Some(title.clone()),
            Self::Anonymous | Self::Job { .. } | Self::System => None,
        }
    }

    /// Returns whether the actor has a deploy key of this project.
    pub(crate) fn has_deploy_key_for(&self, project: ProjectId) -> bool {
        matches!(self, Self::DeployKey { projects, .. } if projects.contains(&project))
    }

    /// Returns whether the actor is a job that may read its own project regardless of memberships, because a trigger or
    /// an administrator started it. All other jobs have the current rights of the user who started them.
    pub(crate) fn has_job_access_to(&self, project: ProjectId) -> bool {
        matches!(self, Self::Job { user, project: own, .. }
            if *own == project && user.as_deref().is_none_or(|user| user.admin))
    }

    /// Returns whether the actor is an administrator or the server itself.
    pub fn is_admin(&self) -> bool {
        match self {
            Self::User { user, .. } => user.admin,
            Self::System => true,
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { .. } => false,
        }
    }
}

/// An actor, and the token or the session that authenticated it.
pub(crate) struct Authenticated {
    pub(crate) actor: Actor,
    pub(crate) token: Option<Token>,
    pub(crate) web_session: Option<WebSession>,
}

impl From<Actor> for Authenticated {
    fn from(actor: Actor) -> Self {
        Self { actor, token: None, web_session: None }
    }
}

/// Authenticates a caller and applies sudo; invalid credentials make it anonymous.
pub(crate) fn authenticate(
    db: &mut Conn,
    lookups: Option<&mut Lookups>,
    caller: &Caller,
    now: model::Time,
) -> Result<Authenticated> {
    let authenticated: Authenticated = match &caller.credential {
        Credential::None => Actor::Anonymous.into(),
        Credential::System => Actor::System.into(),
        Credential::Password(id, hash) => {
            // The password may have changed since it was verified.
            let unchanged = store::users::password_hash(db, *id)?.is_some_and(|current| current == hash.0);
            let actor = if unchanged { authenticate_user_id(db, *id)? } else { Actor::Anonymous };
            actor.into()
        }
        Credential::OnBehalfOf(id) => authenticate_user_id(db, *id)?.into(),
        Credential::SshKey(fingerprint) => authenticate_ssh_key(db, fingerprint)?.into(),
        Credential::Tokens(digests) => authenticate_tokens(db, lookups, digests, now)?,
        Credential::JobToken(digest) => authenticate_job_token(db, digest)?.into(),
        Credential::WebSession(digest) => authenticate_web_session(db, digest, now)?,
    };
    caller.record_ids(authenticated.actor.user().map(|user| user.id), None);
    match (&caller.sudo, &authenticated.actor) {
        (None, _) | (_, Actor::Anonymous | Actor::DeployKey { .. } | Actor::Job { .. } | Actor::System) => {
            Ok(authenticated)
        }
        (Some(target), Actor::User { user, scopes }) => {
            if !user.admin || !scopes.contains(&Scope::Api) {
                return Err(Error::forbidden("Must be admin to use sudo"));
            }
            let actor = resolve_sudo(db, target)?;
            caller.record_ids(None, actor.user().map(|user| user.id));
            Ok(Authenticated { actor, ..authenticated })
        }
    }
}

pub(crate) fn authenticate_user_id(db: &mut Conn, id: UserId) -> Result<Actor> {
    let user = store::users::by_id(db, id)?.filter(|user| user.state == UserState::Active);
    Ok(user.map_or(Actor::Anonymous, |user| Actor::User { user: Box::new(user), scopes: vec![Scope::Api] }))
}

fn authenticate_ssh_key(db: &mut Conn, fingerprint: &str) -> Result<Actor> {
    if let Some(user) = store::keys::holder(db, fingerprint)? {
        let active = user.state == UserState::Active;
        let actor = Actor::User { user: Box::new(user), scopes: vec![Scope::Api] };
        return Ok(if active { actor } else { Actor::Anonymous });
    }
    let found = store::deploy_keys::by_fingerprint(db, fingerprint)?;
    Ok(found.map_or(Actor::Anonymous, |(key, projects)| Actor::DeployKey { title: key.title, projects }))
}

pub(crate) fn authenticate_job_token(db: &mut Conn, digest: &Digest) -> Result<Actor> {
    let Some(job) = store::job_runs::running_by_token(db, digest)? else { return Ok(Actor::Anonymous) };
    let user = match job.user {
        None if job.triggered => None,
        // The user who started it was removed.
        None => return Ok(Actor::Anonymous),
        Some(id) => match store::users::by_id(db, id)?.filter(|user| user.state == UserState::Active) {
            Some(user) => Some(Box::new(user)),
            // A blocked user also loses the jobs that run on their behalf.
            None => return Ok(Actor::Anonymous),
        },
    };
    Ok(Actor::Job { user, project: job.project, pipeline: job.pipeline })
}

fn authenticate_tokens(
    db: &mut Conn,
    mut lookups: Option<&mut Lookups>,
    digests: &[Digest],
    now: model::Time,
) -> Result<Authenticated> {
    for digest in digests {
        let mut find = || Ok(store::tokens::find(db, digest)?);
        let found = match &mut lookups {
            Some(lookups) => lookups.token(digest, find)?,
            None => find()?,
        };
        if let Some((token, user)) = found
            && token.is_active(now)
            && user.state == UserState::Active
        {
            let actor = Actor::User { user: Box::new(user), scopes: token.scopes.clone() };
            return Ok(Authenticated { actor, token: Some(token), web_session: None });
        }
    }
    Ok(Actor::Anonymous.into())
}

fn authenticate_web_session(db: &mut Conn, digest: &Digest, now: model::Time) -> Result<Authenticated> {
    let found = store::web_sessions::find(db, digest)?;
    match found.filter(|(session, user)| session.is_active(now) && user.state == UserState::Active) {
        Some((session, user)) => {
            let actor = Actor::User { user: Box::new(user), scopes: vec![Scope::Api] };
            Ok(Authenticated { actor, token: None, web_session: Some(session) })
        }
        None => Ok(Actor::Anonymous.into()),
    }
}

fn resolve_sudo(db: &mut Conn, target: &str) -> Result<Actor> {
    let is_id = target.bytes().all(|byte| byte.is_ascii_digit()) && !target.is_empty();
    let user = if is_id {
        target.parse().map_or(Ok(None), |id| store::users::by_id(db, id))?
    } else if model::text::has_control(target) {
        // No username contains one, and PostgreSQL refuses NUL in a query.
        None
    } else {
        store::users::by_username(db, target)?
    };
    let user = user.ok_or_else(|| Error::not_found(format!("No user id or username for: {target}")))?;
    if user.state != UserState::Active {
        return Ok(Actor::Anonymous);
    }
    Ok(Actor::User { user: Box::new(user), scopes: vec![Scope::Api] })
}
