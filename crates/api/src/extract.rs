//! Extractors: who is asking, and which thing is meant.

use axum::{
    extract::{FromRequestParts, RawPathParams, State},
    http::{HeaderMap, Method, header, request::Parts},
};
use forge::{Caller, Error, GroupRef, ProjectRef, Unvalidated, outgoing::DEPTH};
use model::{labels::LabelRef, tokens::Secret};
use serde_json::json;

use crate::{
    access_log::Footprint,
    error::ApiError,
    params::{Bag, bag_of},
    routes::{ArgDoc, OperationDoc},
    site::Site,
};

/// Who is asking, as far as they show it; the forge finds out whether it is true.
pub(crate) struct Credentials(pub(crate) Caller);

impl<S: Send + Sync> FromRequestParts<S> for Credentials {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let bag = bag_of(parts);
        let (private, bearer) = (text(&parts.headers, "private-token"), bearer(&parts.headers));
        if bearer.is_some() && bag.mentions("access_token") {
            return Err(ApiError::TwoTokens);
        }
        // The parameter wins over the header, even if it is empty.
        let private = if bag.mentions("private_token") { bag.text("private_token") } else { private };
        let carriers = [private, bag.text("access_token"), bearer, bag.text("bearer_token")];
        let tokens = carriers.into_iter().flatten().filter(|token| !token.is_empty());
        let caller = Caller::with_tokens(tokens).acting_as(sudo(&bag, parts)?).led_by_hooks(depth(parts)?);
        Ok(Self(caller.noted_in(Footprint::of(&parts.extensions).who())))
    }
}

/// How many hooks have led to a request, one by the other. Past a few it is refused to change anything: a hook that leads
/// back to what it tells of would go on for ever.
fn depth(parts: &Parts) -> Result<i32, ApiError> {
    const DEEPEST: i32 = 3;
    let depth = text(&parts.headers, DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0);
    if depth > DEEPEST && !parts.method.is_safe() {
        let told = "Hooks have led to this request one by the other; what they tell of must not lead back to them.";
        return Err(ApiError::Forge(Error::Refused(told.into())));
    }
    Ok(depth)
}

/// Who is asking, as far as the headers show it.
pub fn shown_by(headers: &HeaderMap) -> Caller {
    Caller::with_tokens(text(headers, "private-token").into_iter().chain(bearer(headers)))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whom the caller wants to act as. What cannot be understood is refused: a call that was meant to run with the rights of
/// another must not run with those of the administrator.
fn sudo(bag: &Bag, parts: &Parts) -> Result<Option<String>, ApiError> {
    let malformed = || ApiError::Forge(Error::Malformed(vec!["sudo is invalid".to_owned()]));
    if bag.mentions("sudo") {
        let target = bag.text("sudo").filter(|target| !target.is_empty());
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

/// The numbers in a path, in their order. Anything but digits does not fit the route.
pub(crate) struct Numbers<const N: usize>(pub(crate) [i64; N]);

impl<S: Send + Sync, const N: usize> FromRequestParts<S> for Numbers<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::NoRoute)?;
        let mut numbers = [0; N];
        let mut segments = params.iter();
        for number in &mut numbers {
            let (_, segment) = segments.next().ok_or(ApiError::NoRoute)?;
            *number = number_in(segment).ok_or(ApiError::NoRoute)?;
        }
        Ok(Self(numbers))
    }
}

impl<const N: usize> ArgDoc for Numbers<N> {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
    }
}

/// The project that a path means, by number or by its full path with the slashes encoded.
pub(crate) struct InProject(pub(crate) ProjectRef);

impl<S: Send + Sync> FromRequestParts<S> for InProject {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = segment(parts, state, "id").await?;
        Ok(Self(project_ref(segment)))
    }
}

impl ArgDoc for InProject {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
        operation.path_schemas.push(("id", json!({ "type": ["integer", "string"] })));
    }
}

/// A second project that a path means.
pub(crate) struct OtherProject(pub(crate) ProjectRef);

impl<S: Send + Sync> FromRequestParts<S> for OtherProject {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = segment(parts, state, "project_id").await?;
        Ok(Self(project_ref(segment)))
    }
}

impl ArgDoc for OtherProject {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
        operation.path_schemas.push(("project_id", json!({ "type": ["integer", "string"] })));
    }
}

/// The group that a path means, by number or by its full path.
pub(crate) struct InGroup(pub(crate) GroupRef);

impl<S: Send + Sync> FromRequestParts<S> for InGroup {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = segment(parts, state, "id").await?;
        Ok(Self(number_in(&segment).map_or_else(|| GroupRef::Path(findable(segment)), GroupRef::Id)))
    }
}

impl ArgDoc for InGroup {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
        operation.path_schemas.push(("id", json!({ "type": ["integer", "string"] })));
    }
}

/// The user that the rest of a path means. Anything but digits is malformed.
pub(crate) struct UserNumber(pub(crate) Unvalidated<i64>);

/// The group that the rest of a path means. Anything but digits is malformed.
pub(crate) struct GroupNumber(pub(crate) Unvalidated<i64>);

/// The key that the rest of a path means. Anything but digits is malformed.
pub(crate) struct KeyNumber(pub(crate) Unvalidated<i64>);

/// The issue that a path means, by its number on the instance. Anything but digits is malformed.
pub(crate) struct IssueNumber(pub(crate) Unvalidated<i64>);

/// The note that a path means. Anything but digits is malformed.
pub(crate) struct NoteNumber(pub(crate) Unvalidated<i64>);

/// The milestone that a path means. Anything but digits is malformed.
pub(crate) struct MilestoneNumber(pub(crate) Unvalidated<i64>);

/// The board that a path means. Anything but digits is malformed.
pub(crate) struct BoardNumber(pub(crate) Unvalidated<i64>);

/// The list of a board that a path means. Anything but digits is malformed.
pub(crate) struct ListNumber(pub(crate) Unvalidated<i64>);

/// The hook of a project that a path means. Anything but digits is malformed.
pub(crate) struct HookNumber(pub(crate) Unvalidated<i64>);

/// The hook of the instance that a path means. Anything but digits is malformed.
pub(crate) struct SystemHookNumber(pub(crate) Unvalidated<i64>);

/// The line of a log that a path means. Anything but digits is malformed.
pub(crate) struct DeliveryNumber(pub(crate) Unvalidated<i64>);

/// The pipeline that a path means. Anything but digits is malformed.
pub(crate) struct PipelineNumber(pub(crate) Unvalidated<i64>);

/// The build that a path means. Anything but digits is malformed.
pub(crate) struct BuildNumber(pub(crate) Unvalidated<i64>);

/// The runner that a path means. Anything but digits is malformed.
pub(crate) struct RunnerNumber(pub(crate) Unvalidated<i64>);

/// The runner of a project that a path means. Anything but digits is malformed.
pub(crate) struct ProjectRunnerNumber(pub(crate) Unvalidated<i64>);

/// An extractor of one part of the path, as a number.
macro_rules! number_in_path {
    ($extractor:ident, $name:literal) => {
        impl<S: Send + Sync> FromRequestParts<S> for $extractor {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
                let segment = segment(parts, state, $name).await?;
                Ok(Self(given_number($name, &segment)))
            }
        }

        impl ArgDoc for $extractor {
            fn describe(operation: &mut OperationDoc) {
                operation.looks_up = true;
            }
        }
    };
}
number_in_path!(UserNumber, "user_id");
number_in_path!(GroupNumber, "group_id");
number_in_path!(KeyNumber, "key_id");
number_in_path!(IssueNumber, "issue_id");
number_in_path!(NoteNumber, "note_id");
number_in_path!(MilestoneNumber, "milestone_id");
number_in_path!(BoardNumber, "board_id");
number_in_path!(ListNumber, "list_id");
number_in_path!(HookNumber, "hook_id");
number_in_path!(SystemHookNumber, "id");
number_in_path!(DeliveryNumber, "delivery_id");
number_in_path!(PipelineNumber, "pipeline_id");
number_in_path!(BuildNumber, "build_id");
number_in_path!(RunnerNumber, "id");
number_in_path!(ProjectRunnerNumber, "runner_id");

/// The words that somebody looks for in a path.
pub(crate) struct Query(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(segment(parts, state, "query").await?))
    }
}

impl ArgDoc for Query {
    fn describe(operation: &mut OperationDoc) {
        operation.path_schemas.push(("query", json!({ "type": "string" })));
    }
}

/// The branch that a path means.
pub(crate) struct BranchName(pub(crate) String);

/// The tag that a path means.
pub(crate) struct TagName(pub(crate) String);

/// What a path says of a commit or a file: an id, or the name of a branch or a tag.
pub(crate) struct Revision(pub(crate) String);

/// The ending of a path that says in which form something is wanted.
pub(crate) struct FormatName(pub(crate) String);

/// What a hook is tried out with.
pub(crate) struct TriggerName(pub(crate) String);

/// The branch or the tag that a path means.
pub(crate) struct RefInPath(pub(crate) String);

/// The variable that a path means.
pub(crate) struct VariableKey(pub(crate) String);

/// The token of the trigger that a path means.
pub(crate) struct TriggerToken(pub(crate) Secret);

/// The branch or the tag whose files a path means.
pub(crate) struct RefSegment(pub(crate) String);

/// An extractor of one part of the path, as text.
macro_rules! part_of_path {
    ($extractor:ident, $name:literal) => {
        impl<S: Send + Sync> FromRequestParts<S> for $extractor {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
                Ok(Self(segment(parts, state, $name).await?))
            }
        }

        impl ArgDoc for $extractor {
            fn describe(operation: &mut OperationDoc) {
                operation.looks_up = true;
                operation.path_schemas.push(($name, json!({ "type": "string" })));
            }
        }
    };
}
part_of_path!(BranchName, "branch");
part_of_path!(TagName, "tag_name");
part_of_path!(Revision, "sha");
part_of_path!(FormatName, "format");
part_of_path!(TriggerName, "trigger");
part_of_path!(RefInPath, "ref");
part_of_path!(RefSegment, "ref_name");
part_of_path!(VariableKey, "key");

impl<S: Send + Sync> FromRequestParts<S> for TriggerToken {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Secret::new(segment(parts, state, "token").await?)))
    }
}

impl ArgDoc for TriggerToken {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
        operation.path_schemas.push(("token", json!({ "type": "string" })));
    }
}

/// The label that a path means, by number or by its title.
pub(crate) struct LabelName(pub(crate) LabelRef);

impl<S: Send + Sync> FromRequestParts<S> for LabelName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let segment = segment(parts, state, "label_id").await?;
        // No title has NUL, and PostgreSQL does not even look for it.
        let title = if segment.contains('\0') { String::new() } else { segment };
        Ok(Self(match number_in(&title) {
            Some(number) => LabelRef::Number(number, title),
            None => LabelRef::Title(title),
        }))
    }
}

impl ArgDoc for LabelName {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
        operation.path_schemas.push(("label_id", json!({ "type": ["integer", "string"] })));
    }
}

/// A named part of the path, decoded.
async fn segment<S: Send + Sync>(parts: &mut Parts, state: &S, name: &str) -> Result<String, ApiError> {
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::NoRoute)?;
    let found = params.iter().find(|(known, _)| *known == name);
    found.map(|(_, segment)| segment.to_owned()).ok_or(ApiError::NoRoute)
}

fn project_ref(segment: String) -> ProjectRef {
    number_in(&segment).map_or_else(|| ProjectRef::Path(findable(segment)), ProjectRef::Id)
}

/// A segment of digits as a number; one too large for any id finds nothing.
fn number_in(segment: &str) -> Option<i64> {
    let digits = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| segment.parse().unwrap_or(i64::MAX))
}

fn given_number(name: &str, segment: &str) -> Unvalidated<i64> {
    Unvalidated::new(number_in(segment).ok_or_else(|| vec![format!("{name} is invalid")]))
}

/// A path that can be looked for: nothing has a control character, and PostgreSQL does not even look for NUL.
fn findable(path: String) -> String {
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
