//! The two runner protocols, a folder each: that of GitLab Runner 9 and later (`v4`), and the older one (`ci_v1`). The files
//! beside them hold what both share.
//!
//! Runners present tokens of their own, in bodies and headers; the credentials of users are not accepted here.

pub(crate) mod artifacts;
pub(crate) mod ci_v1;
pub(crate) mod v4;

mod credentials;
mod params;
mod replies;

pub(crate) use credentials::tokens;
