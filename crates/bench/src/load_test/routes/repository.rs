//! Requests to branches, tags, files and history.

use serde_json::json;

use super::{MakeRequest, READ_FACTOR, ResponseShape, Route};
use crate::{
    load_test::request_generator::{ApiRequest, Prepared, RequestGenerator},
    seed::dataset::LARGE_PROJECT,
};

/// A folder of the large repository.
pub(crate) const FOLDER: &str = "src/street-07";

pub(super) fn routes() -> Vec<Route> {
    [branches(), tags(), contents(), history()].into_iter().flatten().collect()
}

const NEW_BRANCH: MakeRequest = |generator, _| {
    let seeded = generator.write_project();
    new_branch(generator, seeded.id, generator.owner_token(seeded))
};
const NEW_TAG: MakeRequest = |generator, _| new_tag(generator, None);
const RELEASED_TAG: MakeRequest = |generator, _| new_tag(generator, Some("What is new"));

fn branches() -> Vec<Route> {
    vec![
        Route::read(
            "GET /projects/{id}/repository/branches",
            READ_FACTOR,
            ResponseShape::NonEmptyList("commit"),
            |generator, _| {
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{}/repository/branches", generator.readable_project_id()),
                )
            },
        ),
        Route::read(
            "GET /projects/{id}/repository/branches/{branch}",
            READ_FACTOR,
            ResponseShape::Object("commit"),
            |generator, _| {
                let branch = generator.rng.below(generator.dataset.scale().branches as u64);
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{LARGE_PROJECT}/repository/branches/walk-{branch:04}"),
                )
            },
        ),
        Route::write(
            "PUT /projects/{id}/repository/branches/{branch}/protect",
            200,
            ResponseShape::Object("commit"),
            |generator, _| protect(generator, "stable"),
        )
        .after(|request, _| request.parent().child("PUT", "unprotect")),
        Route::write(
            "PUT /projects/{id}/repository/branches/{branch}/unprotect",
            200,
            ResponseShape::Object("commit"),
            |_, created| created.request.parent().child("PUT", "unprotect"),
        )
        .before(&[|generator, _| protect(generator, "next")]),
        Route::write("POST /projects/{id}/repository/branches", 200, ResponseShape::Object("commit"), NEW_BRANCH)
            .after(|request, created| request.child("DELETE", created["name"].as_str().unwrap_or_default())),
        Route::write(
            "DELETE /projects/{id}/repository/branches/{branch}",
            200,
            ResponseShape::Object("branch_name"),
            |_, created| created.request.child("DELETE", created.response["name"].as_str().unwrap_or_default()),
        )
        .before(&[NEW_BRANCH]),
        Route::write("DELETE /projects/{id}/repository/merged_branches", 200, ResponseShape::Anything, |_, created| {
            created.request.parent().child("DELETE", "merged_branches")
        })
        .before(&[|generator, _| {
            let seeded = generator.cleanup_project();
            new_branch(generator, seeded.id, generator.owner_token(seeded))
        }]),
    ]
}

fn tags() -> Vec<Route> {
    let gone = |request: &ApiRequest, _: &serde_json::Value| request.parent().with_method("DELETE");
    vec![
        Route::read(
            "GET /projects/{id}/repository/tags",
            READ_FACTOR,
            ResponseShape::NonEmptyList("commit"),
            |generator, _| {
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{}/repository/tags", generator.readable_project_id()),
                )
            },
        ),
        Route::read(
            "GET /projects/{id}/repository/tags/{tag_name}",
            READ_FACTOR,
            ResponseShape::Object("commit"),
            |generator, _| {
                let tag = generator.rng.below(generator.dataset.scale().tags as u64);
                ApiRequest::get(generator.user_token(), format!("/projects/{LARGE_PROJECT}/repository/tags/v{tag:04}"))
            },
        ),
        Route::write("POST /projects/{id}/repository/tags", 201, ResponseShape::Object("commit"), NEW_TAG)
            .after(|request, created| request.child("DELETE", created["name"].as_str().unwrap_or_default())),
        Route::write(
            "DELETE /projects/{id}/repository/tags/{tag_name}",
            200,
            ResponseShape::Object("tag_name"),
            |_, created| created.request.child("DELETE", created.response["name"].as_str().unwrap_or_default()),
        )
        .before(&[NEW_TAG]),
        Route::write(
            "POST /projects/{id}/repository/tags/{tag_name}/release",
            201,
            ResponseShape::Object("tag_name"),
            |_, created| release(created, "POST"),
        )
        .before(&[NEW_TAG])
        .after(gone),
        Route::write(
            "PUT /projects/{id}/repository/tags/{tag_name}/release",
            200,
            ResponseShape::Object("tag_name"),
            |_, created| release(created, "PUT"),
        )
        .before(&[RELEASED_TAG])
        .after(gone),
    ]
}

fn contents() -> Vec<Route> {
    vec![
        Route::read(
            "GET /projects/{id}/repository/tree",
            READ_FACTOR,
            ResponseShape::NonEmptyList("mode"),
            |generator, _| {
                let query =
                    generator.pick(&["", "?path=src", "?path=src/street-07", "?path=src/street-05&ref_name=walk-0010"]);
                ApiRequest::get(generator.user_token(), format!("/projects/{LARGE_PROJECT}/repository/tree{query}"))
            },
        ),
        Route::read(
            "GET /projects/{id}/repository/blobs/{sha}",
            READ_FACTOR,
            ResponseShape::Bytes(500),
            |generator, _| {
                let file = generator.rng.below(100);
                let target =
                    format!("/projects/{LARGE_PROJECT}/repository/blobs/main?filepath={FOLDER}/house-{file:02}.txt");
                ApiRequest::get(generator.user_token(), target)
            },
        ),
        Route::read(
            "GET /projects/{id}/repository/raw_blobs/{sha}",
            READ_FACTOR,
            ResponseShape::Bytes(500),
            |generator, _| {
                let index = generator.index_below(generator.repository_ids.blobs.len());
                let blob = generator.repository_ids.blobs[index].clone();
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{LARGE_PROJECT}/repository/raw_blobs/{blob}"),
                )
            },
        ),
        Route::read("GET /projects/{id}/repository/archive", READ_FACTOR, ResponseShape::Bytes(500), |generator, _| {
            // One out of fifty requests is for the large repository.
            let project = if generator.rng.below(50) == 0 { LARGE_PROJECT } else { generator.read_project().id };
            ApiRequest::get(generator.user_token(), format!("/projects/{project}/repository/archive"))
        }),
    ]
}

fn history() -> Vec<Route> {
    vec![
        Route::read(
            "GET /projects/{id}/repository/compare",
            READ_FACTOR,
            ResponseShape::Object("diffs"),
            |generator, _| {
                // The two comparisons of the load model: 4 commits, and 200 commits with as many files.
                let (to, span) = (generator.rng.below(50), generator.pick(&[4, 200]));
                let [from, to] = [to + span, to].map(|at| {
                    let at = usize::try_from(at).unwrap_or(0).min(generator.repository_ids.commits.len() - 1);
                    generator.repository_ids.commits[at].clone()
                });
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{LARGE_PROJECT}/repository/compare?from={from}&to={to}"),
                )
            },
        ),
        Route::read(
            "GET /projects/{id}/repository/contributors",
            READ_FACTOR,
            ResponseShape::NonEmptyList("commits"),
            |generator, _| {
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{}/repository/contributors", generator.readable_project_id()),
                )
            },
        ),
        // Not in the contract, but in the load model.
        Route::read(
            "GET /projects/{id}/repository/commits",
            READ_FACTOR,
            ResponseShape::NonEmptyList("short_id"),
            |generator, _| {
                let page = generator.rng.below(20);
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{LARGE_PROJECT}/repository/commits?page={page}"),
                )
            },
        ),
        Route::read(
            "GET /projects/{id}/repository/commits/{sha}/diff",
            READ_FACTOR,
            ResponseShape::List,
            |generator, _| {
                let index = generator.index_below(generator.repository_ids.commits.len());
                let commit = generator.repository_ids.commits[index].clone();
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{LARGE_PROJECT}/repository/commits/{commit}/diff"),
                )
            },
        ),
    ]
}

fn new_branch(generator: &mut RequestGenerator<'_>, project: u64, token: String) -> ApiRequest {
    let new = json!({ "branch_name": generator.unique_name(), "ref": "master" });
    ApiRequest::post(token, format!("/projects/{project}/repository/branches"), &new)
}

fn new_tag(generator: &mut RequestGenerator<'_>, release: Option<&str>) -> ApiRequest {
    let seeded = generator.write_project();
    let new = json!({ "tag_name": generator.unique_name(), "ref": "master", "message": "A tag", "release_description": release });
    ApiRequest::post(generator.owner_token(seeded), format!("/projects/{}/repository/tags", seeded.id), &new)
}

fn protect(generator: &mut RequestGenerator<'_>, branch: &str) -> ApiRequest {
    let seeded = generator.write_project();
    let target = format!("/projects/{}/repository/branches/{branch}/protect", seeded.id);
    ApiRequest { method: "PUT", target, token: generator.owner_token(seeded), body: None }
}

fn release(created: &Prepared, method: &'static str) -> ApiRequest {
    let tag = created.response["name"].as_str().unwrap_or_default();
    let target = format!("{}/{tag}/release", created.request.target);
    let request = ApiRequest::post(
        created.request.token.clone(),
        target,
        &json!({ "description": "What is new, and what is not" }),
    );
    ApiRequest { method, ..request }
}
