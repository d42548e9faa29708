//! Branches, tags, files and what is computed from history.

use serde_json::json;

use super::{Make, READ, Route, Shape};
use crate::{
    drive::scene::{Ask, Prepared, Scene},
    seed::world::LARGE,
};

/// The folder of the large repository that is read.
pub(crate) const FOLDER: &str = "src/street-07";

pub(super) fn routes() -> Vec<Route> {
    [branches(), tags(), contents(), history()].into_iter().flatten().collect()
}

const NEW_BRANCH: Make = |it, _| {
    let site = it.yard();
    new_branch(it, site.id, it.owner(site))
};
const NEW_TAG: Make = |it, _| new_tag(it, None);
const RELEASED_TAG: Make = |it, _| new_tag(it, Some("What is new"));

fn branches() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/repository/branches", READ, Shape::Full("commit"), |it, _| {
            Ask::get(it.somebody(), format!("/projects/{}/repository/branches", it.read_from()))
        }),
        Route::read("GET /projects/{id}/repository/branches/{branch}", READ, Shape::Object("commit"), |it, _| {
            let branch = it.dice.below(it.world.scale().branches as u64);
            Ask::get(it.somebody(), format!("/projects/{LARGE}/repository/branches/walk-{branch:04}"))
        }),
        Route::write(
            "PUT /projects/{id}/repository/branches/{branch}/protect",
            200,
            Shape::Object("commit"),
            |it, _| protect(it, "stable"),
        )
        .after(|ask, _| ask.above().below("PUT", "unprotect")),
        Route::write(
            "PUT /projects/{id}/repository/branches/{branch}/unprotect",
            200,
            Shape::Object("commit"),
            |_, made| made.ask.above().below("PUT", "unprotect"),
        )
        .before(&[|it, _| protect(it, "next")]),
        Route::write("POST /projects/{id}/repository/branches", 200, Shape::Object("commit"), NEW_BRANCH)
            .after(|ask, made| ask.below("DELETE", made["name"].as_str().unwrap_or_default())),
        Route::write(
            "DELETE /projects/{id}/repository/branches/{branch}",
            200,
            Shape::Object("branch_name"),
            |_, made| made.ask.below("DELETE", made.answer["name"].as_str().unwrap_or_default()),
        )
        .before(&[NEW_BRANCH]),
        Route::write("DELETE /projects/{id}/repository/merged_branches", 200, Shape::Anything, |_, made| {
            made.ask.above().below("DELETE", "merged_branches")
        })
        .before(&[|it, _| {
            let site = it.mill();
            new_branch(it, site.id, it.owner(site))
        }]),
    ]
}

fn tags() -> Vec<Route> {
    let gone = |ask: &Ask, _: &serde_json::Value| ask.above().with("DELETE");
    vec![
        Route::read("GET /projects/{id}/repository/tags", READ, Shape::Full("commit"), |it, _| {
            Ask::get(it.somebody(), format!("/projects/{}/repository/tags", it.read_from()))
        }),
        Route::read("GET /projects/{id}/repository/tags/{tag_name}", READ, Shape::Object("commit"), |it, _| {
            let tag = it.dice.below(it.world.scale().tags as u64);
            Ask::get(it.somebody(), format!("/projects/{LARGE}/repository/tags/v{tag:04}"))
        }),
        Route::write("POST /projects/{id}/repository/tags", 201, Shape::Object("commit"), NEW_TAG)
            .after(|ask, made| ask.below("DELETE", made["name"].as_str().unwrap_or_default())),
        Route::write("DELETE /projects/{id}/repository/tags/{tag_name}", 200, Shape::Object("tag_name"), |_, made| {
            made.ask.below("DELETE", made.answer["name"].as_str().unwrap_or_default())
        })
        .before(&[NEW_TAG]),
        Route::write(
            "POST /projects/{id}/repository/tags/{tag_name}/release",
            201,
            Shape::Object("tag_name"),
            |_, made| release(made, "POST"),
        )
        .before(&[NEW_TAG])
        .after(gone),
        Route::write(
            "PUT /projects/{id}/repository/tags/{tag_name}/release",
            200,
            Shape::Object("tag_name"),
            |_, made| release(made, "PUT"),
        )
        .before(&[RELEASED_TAG])
        .after(gone),
    ]
}

fn contents() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/repository/tree", READ, Shape::Full("mode"), |it, _| {
            let query = it.pick(&["", "?path=src", "?path=src/street-07", "?path=src/street-05&ref_name=walk-0010"]);
            Ask::get(it.somebody(), format!("/projects/{LARGE}/repository/tree{query}"))
        }),
        Route::read("GET /projects/{id}/repository/blobs/{sha}", READ, Shape::Bytes(500), |it, _| {
            let file = it.dice.below(100);
            let target = format!("/projects/{LARGE}/repository/blobs/main?filepath={FOLDER}/house-{file:02}.txt");
            Ask::get(it.somebody(), target)
        }),
        Route::read("GET /projects/{id}/repository/raw_blobs/{sha}", READ, Shape::Bytes(500), |it, _| {
            let place = it.place_in(it.facts.blobs.len());
            let blob = it.facts.blobs[place].clone();
            Ask::get(it.somebody(), format!("/projects/{LARGE}/repository/raw_blobs/{blob}"))
        }),
        Route::read("GET /projects/{id}/repository/archive", READ, Shape::Bytes(500), |it, _| {
            // One out of fifty is of the large repository.
            let project = if it.dice.below(50) == 0 { LARGE } else { it.shelf().id };
            Ask::get(it.somebody(), format!("/projects/{project}/repository/archive"))
        }),
    ]
}

fn history() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/repository/compare", READ, Shape::Object("diffs"), |it, _| {
            // The two comparisons of the load model: 4 commits, and 200 commits with as many files.
            let (to, span) = (it.dice.below(50), it.pick(&[4, 200]));
            let [from, to] = [to + span, to].map(|at| {
                let at = usize::try_from(at).unwrap_or(0).min(it.facts.commits.len() - 1);
                it.facts.commits[at].clone()
            });
            Ask::get(it.somebody(), format!("/projects/{LARGE}/repository/compare?from={from}&to={to}"))
        }),
        Route::read("GET /projects/{id}/repository/contributors", READ, Shape::Full("commits"), |it, _| {
            Ask::get(it.somebody(), format!("/projects/{}/repository/contributors", it.read_from()))
        }),
        // Not of the contract, but of the load model.
        Route::read("GET /projects/{id}/repository/commits", READ, Shape::Full("short_id"), |it, _| {
            let page = it.dice.below(20);
            Ask::get(it.somebody(), format!("/projects/{LARGE}/repository/commits?page={page}"))
        }),
        Route::read("GET /projects/{id}/repository/commits/{sha}/diff", READ, Shape::List, |it, _| {
            let place = it.place_in(it.facts.commits.len());
            let commit = it.facts.commits[place].clone();
            Ask::get(it.somebody(), format!("/projects/{LARGE}/repository/commits/{commit}/diff"))
        }),
    ]
}

fn new_branch(it: &mut Scene<'_>, project: u64, token: String) -> Ask {
    let new = json!({ "branch_name": it.name(), "ref": "master" });
    Ask::post(token, format!("/projects/{project}/repository/branches"), &new)
}

fn new_tag(it: &mut Scene<'_>, release: Option<&str>) -> Ask {
    let site = it.yard();
    let new = json!({ "tag_name": it.name(), "ref": "master", "message": "A tag", "release_description": release });
    Ask::post(it.owner(site), format!("/projects/{}/repository/tags", site.id), &new)
}

fn protect(it: &mut Scene<'_>, branch: &str) -> Ask {
    let site = it.yard();
    let target = format!("/projects/{}/repository/branches/{branch}/protect", site.id);
    Ask { method: "PUT", target, token: it.owner(site), body: None }
}

fn release(made: &Prepared, method: &'static str) -> Ask {
    let tag = made.answer["name"].as_str().unwrap_or_default();
    let target = format!("{}/{tag}/release", made.ask.target);
    let ask = Ask::post(made.ask.token.clone(), target, &json!({ "description": "What is new, and what is not" }));
    Ask { method, ..ask }
}
