//! Extractors for the credentials of a request and the parameters in its path.

use axum::{
    extract::{FromRequestParts, RawPathParams, State},
    http::{HeaderMap, Method, header, request::Parts},
};
use forge::{Caller, Error, GroupRef, ProjectRef, Unvalidated, outbound_addresses::HOOK_DEPTH_HEADER};
use model::{
    BoardId, BoardListId, DeliveryId, DeployKeyId, HookId, IssueId, JobId, MilestoneId, NamespaceId, NoteId,
    PipelineId, RunnerId, UserId, labels::LabelRef, tokens::Secret,
};
use serde_json::json;

use crate::{
    access_log::AccessLogContext,
    error::ApiError,
    params::{Id, RawParams, raw_params},
    routes::{ArgDoc, OperationDoc},
    site::Site,
};

/// The credentials that a request presents; the forge verifies them.
pub(crate) struct Credentials(pub(crate) Caller);

impl<S: Send + Sync> FromRequestParts<S> for Credentials {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let params = raw_params(parts);
        let (private, bearer) = (header_text(&parts.headers, "private-token"), bearer_token(&parts.headers));
        if bearer.is_some() && params.contains("access_token") {
            return Err(ApiError::DuplicateToken);
        }
        // The parameter wins over the header, even if it is empty.
        let private = if params.contains("private_token") { params.text("private_token") } else { private };
        let candidates = [private, params.text("access_token"), bearer, params.text("bearer_token")];
        let tokens = candidates.into_iter().flatten().filter(|token| !token.is_empty());
        let caller = Caller::with_tokens(tokens).acting_as(sudo(&params, parts)?).with_hook_depth(hook_depth(parts)?);
        Ok(Self(caller.with_log_identity(AccessLogContext::of(&parts.extensions).identity())))
    }
}

/// Returns how many webhooks led to this request, one triggering the next. Past a limit, writes are refused: a webhook that
/// triggers itself would never stop.
fn hook_depth(parts: &Parts) -> Result<i32, ApiError> {
    const MAX_HOOK_DEPTH: i32 = 3;
    let hook_depth =
        header_text(&parts.headers, HOOK_DEPTH_HEADER).and_then(|hook_depth| hook_depth.parse().ok()).unwrap_or(0);
    if hook_depth > MAX_HOOK_DEPTH && !parts.method.is_safe() {
        let message = "too many webhooks have triggered each other; a webhook must not trigger itself";
        return Err(ApiError::Forge(Error::Refused(message.into())));
    }
    Ok(hook_depth)
}

/// Returns the caller with the tokens in the headers, not yet verified.
pub fn caller_from_headers(headers: &HeaderMap) -> Caller {
    Caller::with_tokens(header_text(headers, "private-token").into_iter().chain(bearer_token(headers)))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = header_text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the user as whom the caller wants to act. An invalid value is refused: a call meant to run with the rights of
/// another user must not run with those of the administrator.
fn sudo(params: &RawParams, parts: &Parts) -> Result<Option<String>, ApiError> {
    let malformed = || ApiError::Forge(Error::Malformed(vec!["sudo is invalid".to_owned()]));
    if params.contains("sudo") {
        let target = params.text("sudo").filter(|target| !target.is_empty());
        return target.map(|target| Some(target.to_owned())).ok_or_else(malformed);
    }
    let mut headers = parts.headers.get_all("sudo").iter();
    let Some(header) = headers.next() else { return Ok(None) };
    let target = header.to_str().ok().filter(|target| !target.is_empty() && headers.next().is_none());
    target.map(|target| Some(target.to_owned())).ok_or_else(malformed)
}

impl ArgDoc for Credentials {
    fn describe(operation: &mut OperationDoc) {
        operation.authenticated = true;
    }
}

/// The first ids in a path: one, or a pair in order. A segment with anything but digits does not match the route.
pub(crate) struct IdsInPath<T>(pub(crate) T);

/// What [`IdsInPath`] reads from the first segments of a path.
pub(crate) trait FromSegments: Sized {
    /// Reads the ids; `None` if a segment is missing or has anything but digits.
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self>;
}

impl<T: Id> FromSegments for T {
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        parse_digits(segments.next()?)
    }
}

impl<T: Id, U: Id> FromSegments for (T, U) {
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        Some((parse_digits(segments.next()?)?, parse_digits(segments.next()?)?))
    }
}

impl<S: Send + Sync, T: FromSegments> FromRequestParts<S> for IdsInPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::RouteNotFound)?;
        let mut segments = params.iter().map(|(_, segment)| segment);
        T::read(&mut segments).map(Self).ok_or(ApiError::RouteNotFound)
    }
}

impl<T> ArgDoc for IdsInPath<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.may_be_missing = true;
    }
}

/// The project in a path, by id or by its full path with encoded slashes.
pub(crate) struct ProjectInPath(pub(crate) ProjectRef);

impl<S: Send + Sync> FromRequestParts<S> for ProjectInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = path_segment(parts, state, "id").await?;
        Ok(Self(project_ref(segment)))
    }
}

impl ArgDoc for ProjectInPath {
    fn describe(operation: &mut OperationDoc) {
        let description = "The ID of the project, or its full path with encoded slashes";
        operation.may_be_missing = true;
        operation.add_path_param("id", Some(json!({ "type": ["integer", "string"] })), description);
    }
}

/// A second project in a path.
pub(crate) struct OtherProjectInPath(pub(crate) ProjectRef);

impl<S: Send + Sync> FromRequestParts<S> for OtherProjectInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = path_segment(parts, state, "project_id").await?;
        Ok(Self(project_ref(segment)))
    }
}

impl ArgDoc for OtherProjectInPath {
    fn describe(operation: &mut OperationDoc) {
        let description = "The ID of the project to fork from or to transfer, or its full path with encoded slashes";
        operation.may_be_missing = true;
        operation.add_path_param("project_id", Some(json!({ "type": ["integer", "string"] })), description);
    }
}

/// The group in a path, by id or by its full path.
pub(crate) struct GroupInPath(pub(crate) GroupRef);

impl<S: Send + Sync> FromRequestParts<S> for GroupInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = path_segment(parts, state, "id").await?;
        Ok(Self(parse_digits(&segment).map_or_else(|| GroupRef::Path(lookup_path(segment)), GroupRef::Id)))
    }
}

impl ArgDoc for GroupInPath {
    fn describe(operation: &mut OperationDoc) {
        let description = "The ID of the group, or its full path with encoded slashes";
        operation.may_be_missing = true;
        operation.add_path_param("id", Some(json!({ "type": ["integer", "string"] })), description);
    }
}

/// The id of a user in a path. Anything but digits is malformed.
pub(crate) struct UserIdInPath(pub(crate) Unvalidated<UserId>);

/// The id of a group in a path. Anything but digits is malformed.
pub(crate) struct GroupIdInPath(pub(crate) Unvalidated<NamespaceId>);

/// The id of a key in a path. Anything but digits is malformed.
pub(crate) struct KeyIdInPath(pub(crate) Unvalidated<DeployKeyId>);

/// The global id (not the `iid`) of an issue in a path. Anything but digits is malformed.
pub(crate) struct IssueIdInPath(pub(crate) Unvalidated<IssueId>);

/// The id of a note in a path. Anything but digits is malformed.
pub(crate) struct NoteIdInPath(pub(crate) Unvalidated<NoteId>);

/// The id of a milestone in a path. Anything but digits is malformed.
pub(crate) struct MilestoneIdInPath(pub(crate) Unvalidated<MilestoneId>);

/// The id of a board in a path. Anything but digits is malformed.
pub(crate) struct BoardIdInPath(pub(crate) Unvalidated<BoardId>);

/// The id of a board list in a path. Anything but digits is malformed.
pub(crate) struct ListIdInPath(pub(crate) Unvalidated<BoardListId>);

/// The id of a project hook in a path. Anything but digits is malformed.
pub(crate) struct HookIdInPath(pub(crate) Unvalidated<HookId>);

/// The id of a system hook in a path. Anything but digits is malformed.
pub(crate) struct SystemHookIdInPath(pub(crate) Unvalidated<HookId>);

/// The id of a webhook delivery in a path. Anything but digits is malformed.
pub(crate) struct DeliveryIdInPath(pub(crate) Unvalidated<DeliveryId>);

/// The id of a pipeline in a path. Anything but digits is malformed.
pub(crate) struct PipelineIdInPath(pub(crate) Unvalidated<PipelineId>);

/// The id of a build in a path. Anything but digits is malformed.
pub(crate) struct BuildIdInPath(pub(crate) Unvalidated<JobId>);

/// The id of a runner in a path. Anything but digits is malformed.
pub(crate) struct RunnerIdInPath(pub(crate) Unvalidated<RunnerId>);

/// The id of a runner of a project in a path. Anything but digits is malformed.
pub(crate) struct ProjectRunnerIdInPath(pub(crate) Unvalidated<RunnerId>);

/// Implements an extractor of one path parameter as an id.
macro_rules! id_in_path {
    ($extractor:ident, $name:literal, $description:literal) => {
        impl<S: Send + Sync> FromRequestParts<S> for $extractor {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
                let segment = path_segment(parts, state, $name).await?;
                Ok(Self(parse_id($name, &segment)))
            }
        }

        impl ArgDoc for $extractor {
            fn describe(operation: &mut OperationDoc) {
                operation.may_be_missing = true;
                operation.add_path_param($name, None, $description);
            }
        }
    };
}
id_in_path!(UserIdInPath, "user_id", "The ID of the user");
id_in_path!(GroupIdInPath, "group_id", "The ID of the group");
id_in_path!(KeyIdInPath, "key_id", "The ID of the deploy key");
id_in_path!(IssueIdInPath, "issue_id", "The global ID of the issue, not its number in the project (iid)");
id_in_path!(NoteIdInPath, "note_id", "The ID of the note");
id_in_path!(MilestoneIdInPath, "milestone_id", "The global ID of the milestone, not its number in the project (iid)");
id_in_path!(BoardIdInPath, "board_id", "The ID of the board");
id_in_path!(ListIdInPath, "list_id", "The ID of the board list");
id_in_path!(HookIdInPath, "hook_id", "The ID of the project hook");
id_in_path!(SystemHookIdInPath, "id", "The ID of the system hook");
id_in_path!(DeliveryIdInPath, "delivery_id", "The ID of the delivery");
id_in_path!(PipelineIdInPath, "pipeline_id", "The ID of the pipeline");
id_in_path!(BuildIdInPath, "build_id", "The ID of the build");
id_in_path!(RunnerIdInPath, "id", "The ID of the runner");
id_in_path!(ProjectRunnerIdInPath, "runner_id", "The ID of the runner");

/// The search term in a path.
pub(crate) struct SearchTermInPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for SearchTermInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(path_segment(parts, state, "query").await?))
    }
}

impl ArgDoc for SearchTermInPath {
    fn describe(operation: &mut OperationDoc) {
        operation.add_path_param("query", Some(json!({ "type": "string" })), "The text to search for");
    }
}

/// The name of a branch in a path.
pub(crate) struct BranchInPath(pub(crate) String);

/// The name of a tag in a path.
pub(crate) struct TagInPath(pub(crate) String);

/// The revision in a path: an object id, or the name of a branch or a tag.
pub(crate) struct RevisionInPath(pub(crate) String);

/// The id of a blob in a path.
pub(crate) struct BlobIdInPath(pub(crate) String);

/// The format at the end of a path.
pub(crate) struct FormatInPath(pub(crate) String);

/// The trigger with which a hook is tested.
pub(crate) struct HookTriggerInPath(pub(crate) String);

/// The name of a branch or a tag in a path, as `ref`.
pub(crate) struct RefInPath(pub(crate) String);

/// The key of a variable in a path.
pub(crate) struct VariableKeyInPath(pub(crate) String);

/// The token of a trigger in a path.
pub(crate) struct TriggerTokenInPath(pub(crate) Secret);

/// The name of a branch or a tag in a path, as `ref_name`.
pub(crate) struct RefNameInPath(pub(crate) String);

/// Implements an extractor of one path parameter as text.
macro_rules! text_in_path {
    ($extractor:ident, $name:literal, $description:literal) => {
        impl<S: Send + Sync> FromRequestParts<S> for $extractor {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
                Ok(Self(path_segment(parts, state, $name).await?))
            }
        }

        impl ArgDoc for $extractor {
            fn describe(operation: &mut OperationDoc) {
                operation.may_be_missing = true;
                operation.add_path_param($name, Some(json!({ "type": "string" })), $description);
            }
        }
    };
}
text_in_path!(BranchInPath, "branch", "The name of the branch");
text_in_path!(TagInPath, "tag_name", "The name of the tag");
text_in_path!(RevisionInPath, "sha", "The ID of the commit, or the name of a branch or a tag");
text_in_path!(BlobIdInPath, "sha", "The ID of the blob");
text_in_path!(FormatInPath, "format", "The archive format, such as tar.gz or zip");
text_in_path!(HookTriggerInPath, "trigger", "The kind of event, such as push_events");
text_in_path!(RefInPath, "ref", "The name of the branch or the tag");
text_in_path!(RefNameInPath, "ref_name", "The name of the branch or the tag");
text_in_path!(VariableKeyInPath, "key", "The key of the variable");

impl<S: Send + Sync> FromRequestParts<S> for TriggerTokenInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Secret::new(path_segment(parts, state, "token").await?)))
    }
}

impl ArgDoc for TriggerTokenInPath {
    fn describe(operation: &mut OperationDoc) {
        operation.may_be_missing = true;
        operation.add_path_param("token", Some(json!({ "type": "string" })), "The token of the trigger");
    }
}

/// The label in a path, by id or by its title.
pub(crate) struct LabelInPath(pub(crate) LabelRef);

impl<S: Send + Sync> FromRequestParts<S> for LabelInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = path_segment(parts, state, "label_id").await?;
        // No title contains NUL, and PostgreSQL refuses to search for it.
        let title = if segment.contains('\0') { String::new() } else { segment };
        Ok(Self(match parse_digits(&title) {
            Some(id) => LabelRef::Number(id, title),
            None => LabelRef::Title(title),
        }))
    }
}

impl ArgDoc for LabelInPath {
    fn describe(operation: &mut OperationDoc) {
        operation.may_be_missing = true;
        let schema = json!({ "type": ["integer", "string"] });
        operation.add_path_param("label_id", Some(schema), "The ID or the title of the label");
    }
}

/// Returns a path parameter, decoded.
async fn path_segment<S: Send + Sync>(parts: &mut Parts, state: &S, name: &str) -> Result<String, ApiError> {
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::RouteNotFound)?;
    let param = params.iter().find(|(known, _)| *known == name);
    param.map(|(_, segment)| segment.to_owned()).ok_or(ApiError::RouteNotFound)
}

fn project_ref(segment: String) -> ProjectRef {
    parse_digits(&segment).map_or_else(|| ProjectRef::Path(lookup_path(segment)), ProjectRef::Id)
}

/// Parses a segment of digits; a number too large for any id becomes `i64::MAX`, which matches nothing.
fn parse_digits<T: Id>(segment: &str) -> Option<T> {
    let is_number = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| T::from_number(segment.parse().unwrap_or(i64::MAX)))
}

fn parse_id<T: Id>(name: &str, segment: &str) -> Unvalidated<T> {
    Unvalidated::new(parse_digits(segment).ok_or_else(|| vec![format!("{name} is invalid")]))
}

/// Returns a path that can be looked up: no path has a control character, and PostgreSQL refuses to search for NUL.
fn lookup_path(path: String) -> String {
    if model::text::has_control(&path) { String::new() } else { path }
}

impl<T> ArgDoc for State<T> {
    fn describe(_: &mut OperationDoc) {}
}

impl ArgDoc for Method {
    fn describe(_: &mut OperationDoc) {}
}

impl ArgDoc for HeaderMap {
    fn describe(_: &mut OperationDoc) {}
}

impl ArgDoc for Site {
    fn describe(_: &mut OperationDoc) {}
}
