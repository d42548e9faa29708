//! The context of a request: its caller, and the project or the group in its path.
//!
//! A handler takes one of these and runs one use case with it. The credentials are verified inside the transaction.

use axum::{extract::FromRequestParts, http::request::Parts};
use forge::{BlockingContext, Caller, Forge, GroupRef, ProjectRef, ReadTx, Result, WriteTx};

use crate::{
    App,
    error::ApiError,
    extract::{Credentials, GroupInPath, ProjectInPath},
    routes::{ArgDoc, OperationDoc},
};

/// The caller of a request.
#[derive(Clone)]
pub(crate) struct CallerCx {
    pub(crate) forge: Forge,
    pub(crate) caller: Caller,
}

/// The caller of a request about a project.
#[derive(Clone)]
pub(crate) struct ProjectCx {
    pub(crate) forge: Forge,
    pub(crate) caller: Caller,
    pub(crate) project: ProjectRef,
}

/// The caller of a request about a group.
pub(crate) struct GroupCx {
    pub(crate) forge: Forge,
    pub(crate) caller: Caller,
    pub(crate) group: GroupRef,
}

impl CallerCx {
    /// Runs a use case that reads, on a reader thread.
    pub(crate) async fn read<T, F>(self, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        self.forge.read(self.caller, f).await
    }

    /// Runs a use case that reads a page of a list, on a standby of the database if there is one.
    pub(crate) async fn read_list<T, F>(self, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        self.forge.read_list(self.caller, f).await
    }

    /// Runs a use case that reads a few rows by key, on the calling thread where that is faster.
    pub(crate) async fn read_inline<T, F>(self, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        self.forge.read_inline(self.caller, f).await
    }

    /// Runs a use case that writes, in a transaction that is durable when this returns.
    pub(crate) async fn write<T, F>(self, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        self.forge.write(self.caller, f).await
    }

    /// Runs a long-running use case, on a blocking thread.
    pub(crate) async fn run_blocking<T, F>(self, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut BlockingContext<'_>) -> Result<T> + Send + 'static,
    {
        self.forge.run_blocking(self.caller, f).await
    }
}

/// Implements the methods of a context with a subject that every use case takes.
macro_rules! context_with_subject {
    ($context:ident, $subject:ident: $type:ty) => {
        impl $context {
            /// Runs a use case that reads, on a reader thread.
            pub(crate) async fn read<T, F>(self, mut f: F) -> Result<T>
            where
                T: Send + 'static,
                F: FnMut(&mut ReadTx<'_>, &$type) -> Result<T> + Send + 'static,
            {
                let $subject = self.$subject;
                self.forge.read(self.caller, move |tx| f(tx, &$subject)).await
            }

            /// Runs a use case that reads a page of a list, on a standby of the database if there is one.
            pub(crate) async fn read_list<T, F>(self, mut f: F) -> Result<T>
            where
                T: Send + 'static,
                F: FnMut(&mut ReadTx<'_>, &$type) -> Result<T> + Send + 'static,
            {
                let $subject = self.$subject;
                self.forge.read_list(self.caller, move |tx| f(tx, &$subject)).await
            }

            /// Runs a use case that writes, in a transaction that is durable when this returns.
            pub(crate) async fn write<T, F>(self, mut f: F) -> Result<T>
            where
                T: Send + 'static,
                F: FnMut(&mut WriteTx<'_>, &$type) -> Result<T> + Send + 'static,
            {
                let $subject = self.$subject;
                self.forge.write(self.caller, move |tx| f(tx, &$subject)).await
            }
        }
    };
}
context_with_subject!(ProjectCx, project: ProjectRef);
context_with_subject!(GroupCx, group: GroupRef);

impl ProjectCx {
    /// Runs a use case that reads a few rows by key, on the calling thread where that is faster.
    pub(crate) async fn read_inline<T, F>(self, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>, &ProjectRef) -> Result<T> + Send + 'static,
    {
        let project = self.project;
        self.forge.read_inline(self.caller, move |tx| f(tx, &project)).await
    }

    /// Runs a long-running use case, on a blocking thread.
    pub(crate) async fn run_blocking<T, F>(self, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut BlockingContext<'_>, &ProjectRef) -> Result<T> + Send + 'static,
    {
        let project = self.project;
        self.forge.run_blocking(self.caller, move |cx| f(cx, &project)).await
    }
}

impl FromRequestParts<App> for CallerCx {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> std::result::Result<Self, Self::Rejection> {
        let Credentials(caller) = Credentials::from_request_parts(parts, app).await?;
        Ok(Self { forge: app.forge().clone(), caller })
    }
}

impl FromRequestParts<App> for ProjectCx {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> std::result::Result<Self, Self::Rejection> {
        let CallerCx { forge, caller } = CallerCx::from_request_parts(parts, app).await?;
        let ProjectInPath(project) = ProjectInPath::from_request_parts(parts, app).await?;
        Ok(Self { forge, caller, project })
    }
}

impl FromRequestParts<App> for GroupCx {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> std::result::Result<Self, Self::Rejection> {
        let CallerCx { forge, caller } = CallerCx::from_request_parts(parts, app).await?;
        let GroupInPath(group) = GroupInPath::from_request_parts(parts, app).await?;
        Ok(Self { forge, caller, group })
    }
}

impl ArgDoc for CallerCx {
    fn describe(operation: &mut OperationDoc) {
        Credentials::describe(operation);
    }
}

impl ArgDoc for ProjectCx {
    fn describe(operation: &mut OperationDoc) {
        Credentials::describe(operation);
        ProjectInPath::describe(operation);
    }
}

impl ArgDoc for GroupCx {
    fn describe(operation: &mut OperationDoc) {
        Credentials::describe(operation);
        GroupInPath::describe(operation);
    }
}
