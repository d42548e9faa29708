//! Labels, boards, hooks and pipelines.

use serde_json::json;

use super::{Make, READ, Route, Shape};
use crate::{
    drive::scene::{Ask, Prepared, Scene, number, root},
    seed::{LISTS, world::LARGE},
};

/// Where hooks lead that are made for a moment; nobody answers by that name.
const RECEIVER: &str = "https://hooks.invalid/here";
/// Where the hooks lead that came with the data set.
const PRESENT: &str = "http://127.0.0.1:9/hook";

pub(super) fn routes() -> Vec<Route> {
    [labels(), boards(), hooks(), pipelines()].into_iter().flatten().collect()
}

fn labels() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/labels", READ, Shape::Full("color"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/labels"))
        }),
        Route::write("POST /projects/{id}/labels", 200, Shape::Object("id"), NEW_LABEL).after(remove_label),
        Route::write("PUT /projects/{id}/labels", 200, Shape::Object("id"), |tx, _| {
            let site = tx.yard();
            let color = tx.pick(&["#428BCA", "#D9534F", "#5CB85C"]);
            Ask::put(tx.owner(site), format!("/projects/{}/labels", site.id), &json!({ "name": "bug", "color": color }))
        }),
        Route::write("DELETE /projects/{id}/labels", 200, Shape::Object("id"), |_, made| {
            remove_label(&made.ask, &made.answer)
        })
        .before(&[NEW_LABEL]),
        Route::write("POST /projects/{id}/labels/{label_id}/subscription", 201, Shape::Object("id"), |tx, _| {
            subscription(tx, "bug")
        })
        .after(|ask, _| ask.with("DELETE")),
        Route::write("DELETE /projects/{id}/labels/{label_id}/subscription", 200, Shape::Object("id"), |_, made| {
            made.ask.with("DELETE")
        })
        .before(&[|tx, _| subscription(tx, "idea")]),
    ]
}

const NEW_LABEL: Make = |tx, _| {
    let site = tx.yard();
    let new = json!({ "name": tx.name(), "color": "#FFAABB" });
    Ask::post(tx.owner(site), format!("/projects/{}/labels", site.id), &new)
};

fn remove_label(ask: &Ask, made: &serde_json::Value) -> Ask {
    let name = made["name"].as_str().unwrap_or_default();
    Ask::delete(ask.token.clone(), format!("{}?name={name}", ask.target))
}

fn subscription(tx: &mut Scene<'_>, label: &str) -> Ask {
    let site = tx.yard();
    let target = format!("/projects/{}/labels/{}/subscription", site.id, Scene::label_of(site, label));
    Ask { method: "POST", target, token: tx.owner(site), body: None }
}

fn boards() -> Vec<Route> {
    // A project and its board have the same number.
    vec![
        Route::read("GET /projects/{id}/boards", READ, Shape::Full("lists"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/boards"))
        }),
        Route::read("GET /projects/{id}/boards/{board_id}/lists", READ, Shape::Full("label"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/boards/{LARGE}/lists"))
        }),
        Route::read("GET /projects/{id}/boards/{board_id}/lists/{list_id}", READ, Shape::Object("label"), |tx, _| {
            let list = tx.dice.within(1, LISTS);
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/boards/{LARGE}/lists/{list}"))
        }),
        Route::write("POST /projects/{id}/boards/{board_id}/lists", 200, Shape::Object("label"), |tx, _| new_list(tx))
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("PUT /projects/{id}/boards/{board_id}/lists/{list_id}", 200, Shape::Object("label"), |tx, _| {
            let site = tx.yard();
            let target = format!("/projects/{0}/boards/{0}/lists/{1}", site.id, Scene::list_of(site));
            Ask::put(tx.owner(site), target, &json!({ "position": 0 }))
        })
        .after(|ask, _| Ask::put(ask.token.clone(), ask.target.clone(), &json!({ "position": 1 }))),
        Route::write(
            "DELETE /projects/{id}/boards/{board_id}/lists/{list_id}",
            200,
            Shape::Object("label"),
            |_, made| made.ask.below("DELETE", &number(&made.answer["id"])),
        )
        .before(&[|tx, _| new_list(tx)]),
    ]
}

fn new_list(tx: &mut Scene<'_>) -> Ask {
    let site = tx.yard();
    // The label that has no list yet.
    let new = json!({ "label_id": Scene::label_of(site, "later") });
    Ask::post(tx.owner(site), format!("/projects/{0}/boards/{0}/lists", site.id), &new)
}

fn hooks() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/hooks", READ, Shape::Full("url"), |tx, _| {
            let site = tx.yard();
            Ask::get(tx.owner(site), format!("/projects/{}/hooks", site.id))
        }),
        Route::read("GET /projects/{id}/hooks/{hook_id}", READ, Shape::Object("url"), |tx, _| {
            let site = tx.yard();
            Ask::get(tx.owner(site), format!("/projects/{}/hooks/{}", site.id, Scene::hook_of(site)))
        }),
        Route::write("POST /projects/{id}/hooks", 201, Shape::Object("url"), NEW_HOOK)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("PUT /projects/{id}/hooks/{hook_id}", 200, Shape::Object("url"), |tx, _| {
            let site = tx.yard();
            let target = format!("/projects/{}/hooks/{}", site.id, Scene::hook_of(site));
            Ask::put(tx.owner(site), target, &json!({ "url": PRESENT, "issues_events": true }))
        }),
        Route::write("DELETE /projects/{id}/hooks/{hook_id}", 200, Shape::Object("url"), |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_HOOK]),
        Route::read("GET /hooks", READ, Shape::Full("url"), |_, _| Ask::get(root(), "/hooks".into())),
        Route::write("POST /hooks", 201, Shape::Full("url"), NEW_SYSTEM_HOOK)
            .after(|ask, made| ask.below("DELETE", &number(&made[0]["id"]))),
        // It sends something and waits for the answer, so it counts as what writes.
        Route::write("GET /hooks/{id}", 200, Shape::Object("event_name"), |_, _| Ask::get(root(), "/hooks/1".into())),
        Route::write("DELETE /hooks/{id}", 200, Shape::Object("url"), |_, made| {
            made.ask.below("DELETE", &number(&made.answer[0]["id"]))
        })
        .before(&[NEW_SYSTEM_HOOK]),
    ]
}

const NEW_HOOK: Make = |tx, _| {
    let site = tx.yard();
    let new = json!({ "url": RECEIVER, "push_events": false, "note_events": true, "token": "a-secret" });
    Ask::post(tx.owner(site), format!("/projects/{}/hooks", site.id), &new)
};

const NEW_SYSTEM_HOOK: Make =
    |_, _| Ask::post(root(), "/hooks".into(), &json!({ "url": RECEIVER, "push_events": false }));

fn pipelines() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/pipelines", READ, Shape::Full("status"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{}/pipelines", tx.read_from()))
        }),
        Route::read("GET /projects/{id}/pipelines/{pipeline_id}", READ, Shape::Object("status"), |tx, _| {
            let pipeline = tx.dice.within(1, tx.world.issues().min(1000));
            Ask::get(tx.somebody(), format!("/projects/{LARGE}/pipelines/{pipeline}"))
        }),
        Route::write("POST /projects/{id}/pipeline", 201, Shape::Object("status"), NEW_PIPELINE).after(cancel),
        Route::write("POST /projects/{id}/pipelines/{pipeline_id}/retry", 201, Shape::Object("status"), |_, made| {
            made.ask.above().below("POST", "retry")
        })
        .before(&[NEW_PIPELINE, CANCEL])
        .after(|ask, _| ask.above().below("POST", "cancel")),
        Route::write("POST /projects/{id}/pipelines/{pipeline_id}/cancel", 200, Shape::Object("status"), CANCEL)
            .before(&[NEW_PIPELINE]),
    ]
}

const NEW_PIPELINE: Make = |tx, _| {
    let site = tx.yard();
    Ask::post(tx.owner(site), format!("/projects/{}/pipeline", site.id), &json!({ "ref": "master" }))
};

const CANCEL: Make = |_, made: &Prepared| cancel(&made.ask, &made.answer);

fn cancel(ask: &Ask, made: &serde_json::Value) -> Ask {
    let step = format!("pipelines/{}/cancel", number(&made["id"]));
    ask.above().below("POST", &step)
}
