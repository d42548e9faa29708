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

const NEW_BRANCH: Make = |tx, _| {
    let site = tx.yard();
    new_branch(tx, site.id, tx.owner(site))
};
const NEW_TAG: Make = |tx, _| new_tag(tx, None);
const RELEASED_TAG: Make = |tx, _| new_tag(tx, Some("What is new"));

fn branches() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/repository/branches", READ, Shape::Full("commit"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{}/repository/branches", tx.read_from()))
        }),
        Route::read("GET /projects/{id}/repository/branches/{branch}", READ, Shape::Object("commit"), |tx, _| {
            let branch = tx.dice.below(tx.world.scale().branches as u64);
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/repository/branches/walk-{branch:04}"))
        }),
        Route::write(
            "PUT /projects/{id}/repository/branches/{branch}/protect",
            200,
            Shape::Object("commit"),
            |tx, _| protect(tx, "stable"),
        )
        .after(|ask, _| ask.above().below("PUT", "unprotect")),
        Route::write(
            "PUT /projects/{id}/repository/branches/{branch}/unprotect",
            200,
            Shape::Object("commit"),
            |_, made| made.ask.above().below("PUT", "unprotect"),
        )
        .before(&[|tx, _| protect(tx, "next")]),
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
        .before(&[|tx, _| {
            let site = tx.mill();
            new_branch(tx, site.id, tx.owner(site))
        }]),
    ]
}

fn tags() -> Vec<Route> {
    let gone = |ask: &Ask, _: &serde_json::Value| ask.above().with("DELETE");
    vec![
        Route::read("GET /projects/{id}/repository/tags", READ, Shape::Full("commit"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{}/repository/tags", tx.read_from()))
        }),
        Route::read("GET /projects/{id}/repository/tags/{tag_name}", READ, Shape::Object("commit"), |tx, _| {
            let tag = tx.dice.below(tx.world.scale().tags as u64);
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/repository/tags/v{tag:04}"))
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
        Route::read("GET /projects/{id}/repository/tree", READ, Shape::Full("mode"), |tx, _| {
            let query = tx.pick(&["", "?path=src", "?path=src/street-07", "?path=src/street-05&ref_name=walk-0010"]);
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/repository/tree{query}"))
        }),
        Route::read("GET /projects/{id}/repository/blobs/{sha}", READ, Shape::Bytes(500), |tx, _| {
            let file = tx.dice.below(100);
            let target = format!("/projects/{LARGE}/repository/blobs/main?filepath={FOLDER}/house-{file:02}.txt");
            Ask::get(tx.somebody(), target)
        }),
        Route::read("GET /projects/{id}/repository/raw_blobs/{sha}", READ, Shape::Bytes(500), |tx, _| {
            let place = tx.place_in(tx.facts.blobs.len());
            let blob = tx.facts.blobs[place].clone();
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/repository/raw_blobs/{blob}"))
        }),
        Route::read("GET /projects/{id}/repository/archive", READ, Shape::Bytes(500), |tx, _| {
            // One out of fifty is of the large repository.
            let project = if tx.dice.below(50) == 0 { LARGE } else { tx.shelf().id };
            Ask::get(tx.somebody(), format!("/projects/{project}/repository/archive"))
        }),
    ]
}

fn history() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/repository/compare", READ, Shape::Object("diffs"), |tx, _| {
            // The two comparisons of the load model: 4 commits, and 200 commits with as many files.
            let (to, span) = (tx.dice.below(50), tx.pick(&[4, 200]));
            let [from, to] = [to + span, to].map(|at| {
                let at = usize::try_from(at).unwrap_or(0).min(tx.facts.commits.len() - 1);
                tx.facts.commits[at].clone()
            });
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/repository/compare?from={from}&to={to}"))
        }),
        Route::read("GET /projects/{id}/repository/contributors", READ, Shape::Full("commits"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{}/repository/contributors", tx.read_from()))
        }),
        // Not of the contract, but of the load model.
        Route::read("GET /projects/{id}/repository/commits", READ, Shape::Full("short_id"), |tx, _| {
            let page = tx.dice.below(20);
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/repository/commits?page={page}"))
        }),
        Route::read("GET /projects/{id}/repository/commits/{sha}/diff", READ, Shape::List, |tx, _| {
            let place = tx.place_in(tx.facts.commits.len());
            let commit = tx.facts.commits[place].clone();
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/repository/commits/{commit}/diff"))
        }),
    ]
}

fn new_branch(tx: &mut Scene<'_>, project: u64, token: String) -> Ask {
    let new = json!({ "branch_name": tx.name(), "ref": "master" });
    Ask::post(token, format!("/projects/{project}/repository/branches"), &new)
}

fn new_tag(tx: &mut Scene<'_>, release: Option<&str>) -> Ask {
    let site = tx.yard();
    let new = json!({ "tag_name": tx.name(), "ref": "master", "message": "A tag", "release_description": release });
    Ask::post(tx.owner(site), format!("/projects/{}/repository/tags", site.id), &new)
}

fn protect(tx: &mut Scene<'_>, branch: &str) -> Ask {
    let site = tx.yard();
    let target = format!("/projects/{}/repository/branches/{branch}/protect", site.id);
    Ask { method: "PUT", target, token: tx.owner(site), body: None }
}

fn release(made: &Prepared, method: &'static str) -> Ask {
    let tag = made.answer["name"].as_str().unwrap_or_default();
    let target = format!("{}/{tag}/release", made.ask.target);
    let ask = Ask::post(made.ask.token.clone(), target, &json!({ "description": "What is new, and what is not" }));
    Ask { method, ..ask }
}
