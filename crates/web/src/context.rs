//! The context of a request for a page: the visitor, the variable parts of the path, and the use cases.

use axum::{
    body::Body,
    http::{HeaderMap, Method, StatusCode, Uri, header, request::Parts},
};
use forge::{
    Ability, Actor, BlockingContext, Caller, Error, Forge, GroupRef, ProjectAbility, ProjectRef, ReadTx, WriteTx,
    caller::RequestOrigin, web_sessions,
};
use model::{Project, Time, User, tokens::Secret};

use crate::{Pages, error::PageError, form_tokens, forms::Fields, routes::PathParams};

/// A request for a page.
#[derive(Clone)]
pub(crate) struct PageCx {
    pub(crate) pages: Pages,
    pub(crate) origin: RequestOrigin,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) params: PathParams,
}

/// The visitor of a page.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    /// Whose rights the visitor has.
    actor: Actor,
    /// The time of the request.
    pub(crate) now: Time,
}

impl Viewer {
    /// Creates a visitor without a session.
    pub(crate) fn anonymous(now: Time) -> Self {
        Self { actor: Actor::Anonymous, now }
    }

    fn of(tx: &ReadTx<'_>) -> Self {
        Self { actor: tx.actor().clone(), now: tx.now() }
    }

    /// Returns the signed-in user.
    pub(crate) fn user(&self) -> Option<&User> {
        self.actor.user()
    }

    /// Returns whether the visitor may do something in the instance.
    pub(crate) fn can(&self, ability: Ability) -> bool {
        self.actor.authorize(ability).is_ok()
    }

    /// Returns whether the visitor may do something in a project that the page shows.
    pub(crate) fn can_in(&self, project: &Project, ability: ProjectAbility) -> bool {
        self.actor.authorize_project(project, ability).is_ok()
    }
}

impl PageCx {
    pub(crate) fn new(pages: Pages, origin: RequestOrigin, parts: Parts, params: PathParams) -> Self {
        Self { pages, origin, method: parts.method, uri: parts.uri, headers: parts.headers, params }
    }

    pub(crate) fn forge(&self) -> &Forge {
        &self.pages.0.forge
    }

    /// Returns the secret of the session in the cookie. Tokens of the API are ignored.
    pub(crate) fn session(&self) -> Option<Secret> {
        let name = if self.origin.is_secure { web_sessions::SECURE_COOKIE } else { web_sessions::COOKIE };
        self.cookie(name).map(|value| Secret::new(value.to_owned()))
    }

    /// Returns the value of a cookie.
    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        let texts = self.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(found, value)| *found == name && !value.is_empty()).map(|(_, value)| value)
    }

    /// Returns the caller with the credentials of the session.
    pub(crate) fn caller(&self) -> Caller {
        let caller = self.session().map_or_else(Caller::anonymous, |secret| Caller::with_web_session(secret.reveal()));
        caller.with_log_identity(self.origin.log_identity.clone())
    }

    /// Returns the project in the path.
    pub(crate) fn project(&self) -> ProjectRef {
        ProjectRef::Path(self.params.subject.clone())
    }

    /// Returns the group in the path.
    pub(crate) fn group(&self) -> GroupRef {
        GroupRef::Path(self.params.subject.clone())
    }

    /// Returns the parameters in the query.
    pub(crate) fn query(&self) -> Fields {
        Fields::parse(self.uri.query().unwrap_or_default())
    }

    /// Reads a submitted form, and checks that the user sent it from a page of this server.
    pub(crate) async fn form(&self, body: Body) -> Result<Fields, PageError> {
        let fields = Fields::read(body).await?;
        self.check_form(&fields)?;
        Ok(fields)
    }

    /// Checks that the user sent a form from a page of this server.
    pub(crate) fn check_form(&self, fields: &Fields) -> Result<(), PageError> {
        let session = self.session().ok_or(PageError::Forge(Error::Unauthenticated))?;
        form_tokens::check(self, fields, Some(session.reveal()))
    }

    /// Returns the number for a variable of the path; fails with 404 if it is none.
    pub(crate) fn number(&self, name: &str) -> Result<i64, PageError> {
        let text = self.params.get(name);
        let number = text.parse::<i64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        number.ok_or(PageError::Status(StatusCode::NOT_FOUND))
    }

    /// Reads who visits the page, and nothing else.
    pub(crate) async fn viewer(&self) -> forge::Result<Viewer> {
        self.forge().read_inline(self.caller(), |tx| Ok(Viewer::of(tx))).await
    }

    /// Runs a use case that reads, on a reader thread.
    pub(crate) async fn read<T, F>(&self, mut f: F) -> forge::Result<(Viewer, T)>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> forge::Result<T> + Send + 'static,
    {
        self.forge()
            .read(self.caller(), move |tx| {
                let viewer = Viewer::of(tx);
                Ok((viewer, f(tx)?))
            })
            .await
    }

    /// Runs a use case that reads a page of a list, on a standby of the database if there is one.
    pub(crate) async fn read_list<T, F>(&self, mut f: F) -> forge::Result<(Viewer, T)>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> forge::Result<T> + Send + 'static,
    {
        self.forge()
            .read_list(self.caller(), move |tx| {
                let viewer = Viewer::of(tx);
                Ok((viewer, f(tx)?))
            })
            .await
    }

    /// Runs a use case that writes, in a transaction that is durable when this returns.
    pub(crate) async fn write<T, F>(&self, f: F) -> forge::Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> forge::Result<T> + Send + 'static,
    {
        self.forge().write(self.caller(), f).await
    }

    /// Runs a use case that takes long, or renders text whose length visitors do not know, on a blocking thread.
    ///
    /// Waits while the client network has too many of them.
    pub(crate) async fn run_blocking<T, F>(&self, mut f: F) -> forge::Result<(Viewer, T)>
    where
        T: Send + 'static,
        F: FnMut(&mut BlockingContext<'_>) -> forge::Result<T> + Send + 'static,
    {
        let Some(_permit) = self.pages.0.page_permits.acquire(self.origin.address).await else {
            metrics::counter!("gable_limited_requests_total", "kind" => "expensive").increment(1);
            return Err(Error::Busy);
        };
        self.forge()
            .run_blocking(self.caller(), move |cx| {
                let viewer = cx.read(|tx| Ok(Viewer::of(tx)))?;
                Ok((viewer, f(cx)?))
            })
            .await
    }
}
