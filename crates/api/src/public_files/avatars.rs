//! Uploaded avatars under their public path: `/uploads/-/system/{user|project|group}/avatar/{id}/{name}`.
//!
//! Those of projects and groups require permission to see them. Any failure is the same 404.

use axum::{
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use forge::avatars;
use model::{
    NamespaceId, ProjectId, UserId,
    avatars::{Avatar, AvatarOwner},
};

use super::uploads::{hide_error, matches_etag, visitor};
use crate::{
    App,
    error::{ApiError, plain_error},
};

/// The parts of the path.
type AvatarPath = Path<(String, String, String)>;

/// Handles a request for an avatar.
pub(crate) async fn get(State(app): State<App>, path: Result<AvatarPath, PathRejection>, request: Request) -> Response {
    let Ok(Path((kind, id, name))) = path else { return plain_error(StatusCode::NOT_FOUND) };
    match parse_owner(&kind, &id) {
        Some(owner) => respond(app, owner, name, request).await.unwrap_or_else(|error| error.into_response()),
        None => plain_error(StatusCode::NOT_FOUND),
    }
}

fn parse_owner(kind: &str, id: &str) -> Option<AvatarOwner> {
    let id = id.parse().ok().filter(|_| id.bytes().all(|byte| byte.is_ascii_digit()))?;
    match kind {
        "user" => Some(AvatarOwner::User(UserId::new(id))),
        "project" => Some(AvatarOwner::Project(ProjectId::new(id))),
        "group" => Some(AvatarOwner::Group(NamespaceId::new(id))),
        _ => None,
    }
}

async fn respond(app: App, owner: AvatarOwner, name: String, request: Request) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    let cx = visitor(&app, &mut parts).await?;
    let avatar = cx.read_inline(move |tx| avatars::open(tx, owner, &name)).await.map_err(hide_error)?;
    let headers = headers(&avatar, owner);
    if matches_etag(&parts.headers, &headers) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let body = if parts.method == Method::HEAD {
        Body::empty()
    } else {
        Body::from_stream(avatars::read(app.forge(), &avatar).await.map_err(hide_error)?.bytes)
    };
    let length = [(header::CONTENT_LENGTH, avatar.size.unwrap_or_default())];
    Ok((headers, length, body).into_response())
}

/// Returns headers that keep browsers from executing the file. Only avatars of users, which are public, may be kept by shared
/// caches; a new avatar can have the name of the old one, so they are kept for a short time.
fn headers(avatar: &Avatar, owner: AvatarOwner) -> HeaderMap {
    let fixed = HeaderValue::from_static;
    let cache_control = match owner {
        AvatarOwner::User(_) => "public, max-age=300",
        AvatarOwner::Project(_) | AvatarOwner::Group(_) => "private, no-cache",
    };
    let etag = HeaderValue::try_from(format!("\"avatar-{}\"", avatar.id)).expect("numbers are valid in a header");
    HeaderMap::from_iter([
        (header::CONTENT_TYPE, fixed(avatar.image_type.content_type())),
        (header::CONTENT_DISPOSITION, fixed("inline")),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::CONTENT_SECURITY_POLICY, fixed("default-src 'none'; sandbox")),
        (header::CACHE_CONTROL, fixed(cache_control)),
        (header::ETAG, etag),
    ])
}
