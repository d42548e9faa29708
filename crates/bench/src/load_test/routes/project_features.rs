//! Requests to labels, boards, hooks and pipelines.

use serde_json::json;

use super::{MakeRequest, READ_FACTOR, ResponseShape, Route};
use crate::{
    load_test::request_generator::{ApiRequest, Prepared, RequestGenerator, number, root},
    seed::{BOARD_LISTS, dataset::LARGE_PROJECT},
};

/// The URL of created hooks, which does not resolve.
const RECEIVER: &str = "https://hooks.invalid/here";
/// The URL of the hooks of the data set.
const PRESENT: &str = "http://127.0.0.1:9/hook";

pub(super) fn routes() -> Vec<Route> {
    [labels(), boards(), hooks(), pipelines()].into_iter().flatten().collect()
}

fn labels() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/labels", READ_FACTOR, ResponseShape::NonEmptyList("color"), |generator, _| {
            ApiRequest::get(generator.user_token(), format!("/projects/{LARGE_PROJECT}/labels"))
        }),
        Route::write("POST /projects/{id}/labels", 200, ResponseShape::Object("id"), NEW_LABEL).after(remove_label),
        Route::write("PUT /projects/{id}/labels", 200, ResponseShape::Object("id"), |generator, _| {
            let seeded = generator.write_project();
            let color = generator.pick(&["#428BCA", "#D9534F", "#5CB85C"]);
            ApiRequest::put(
                generator.owner_token(seeded),
                format!("/projects/{}/labels", seeded.id),
                &json!({ "name": "bug", "color": color }),
            )
        }),
        Route::write("DELETE /projects/{id}/labels", 200, ResponseShape::Object("id"), |_, created| {
            remove_label(&created.request, &created.response)
        })
        .before(&[NEW_LABEL]),
        Route::write(
            "POST /projects/{id}/labels/{label_id}/subscription",
            201,
            ResponseShape::Object("id"),
            |generator, _| subscription(generator, "bug"),
        )
        .after(|request, _| request.with_method("DELETE")),
        Route::write(
            "DELETE /projects/{id}/labels/{label_id}/subscription",
            200,
            ResponseShape::Object("id"),
            |_, created| created.request.with_method("DELETE"),
        )
        .before(&[|generator, _| subscription(generator, "idea")]),
    ]
}

const NEW_LABEL: MakeRequest = |generator, _| {
    let seeded = generator.write_project();
    let new = json!({ "name": generator.unique_name(), "color": "#FFAABB" });
    ApiRequest::post(generator.owner_token(seeded), format!("/projects/{}/labels", seeded.id), &new)
};

fn remove_label(request: &ApiRequest, created: &serde_json::Value) -> ApiRequest {
    let name = created["name"].as_str().unwrap_or_default();
    ApiRequest::delete(request.token.clone(), format!("{}?name={name}", request.target))
}

fn subscription(generator: &mut RequestGenerator<'_>, label: &str) -> ApiRequest {
    let seeded = generator.write_project();
    let target = format!("/projects/{}/labels/{}/subscription", seeded.id, RequestGenerator::label_id(seeded, label));
    ApiRequest { method: "POST", target, token: generator.owner_token(seeded), body: None }
}

fn boards() -> Vec<Route> {
    // A project and its board have the same id.
    vec![
        Route::read("GET /projects/{id}/boards", READ_FACTOR, ResponseShape::NonEmptyList("lists"), |generator, _| {
            ApiRequest::get(generator.user_token(), format!("/projects/{LARGE_PROJECT}/boards"))
        }),
        Route::read(
            "GET /projects/{id}/boards/{board_id}/lists",
            READ_FACTOR,
            ResponseShape::NonEmptyList("label"),
            |generator, _| {
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{LARGE_PROJECT}/boards/{LARGE_PROJECT}/lists"),
                )
            },
        ),
        Route::read(
            "GET /projects/{id}/boards/{board_id}/lists/{list_id}",
            READ_FACTOR,
            ResponseShape::Object("label"),
            |generator, _| {
                let list = generator.rng.range(1, BOARD_LISTS);
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{LARGE_PROJECT}/boards/{LARGE_PROJECT}/lists/{list}"),
                )
            },
        ),
        Route::write(
            "POST /projects/{id}/boards/{board_id}/lists",
            200,
            ResponseShape::Object("label"),
            |generator, _| new_list(generator),
        )
        .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write(
            "PUT /projects/{id}/boards/{board_id}/lists/{list_id}",
            200,
            ResponseShape::Object("label"),
            |generator, _| {
                let seeded = generator.write_project();
                let target =
                    format!("/projects/{0}/boards/{0}/lists/{1}", seeded.id, RequestGenerator::list_id(seeded));
                ApiRequest::put(generator.owner_token(seeded), target, &json!({ "position": 0 }))
            },
        )
        .after(|request, _| ApiRequest::put(request.token.clone(), request.target.clone(), &json!({ "position": 1 }))),
        Route::write(
            "DELETE /projects/{id}/boards/{board_id}/lists/{list_id}",
            200,
            ResponseShape::Object("label"),
            |_, created| created.request.child("DELETE", &number(&created.response["id"])),
        )
        .before(&[|generator, _| new_list(generator)]),
    ]
}

fn new_list(generator: &mut RequestGenerator<'_>) -> ApiRequest {
    let seeded = generator.write_project();
    // The label without a list.
    let new = json!({ "label_id": RequestGenerator::label_id(seeded, "later") });
    ApiRequest::post(generator.owner_token(seeded), format!("/projects/{0}/boards/{0}/lists", seeded.id), &new)
}

fn hooks() -> Vec<Route> {
    vec![
        Route::read("GET /projects/{id}/hooks", READ_FACTOR, ResponseShape::NonEmptyList("url"), |generator, _| {
            let seeded = generator.write_project();
            ApiRequest::get(generator.owner_token(seeded), format!("/projects/{}/hooks", seeded.id))
        }),
        Route::read("GET /projects/{id}/hooks/{hook_id}", READ_FACTOR, ResponseShape::Object("url"), |generator, _| {
            let seeded = generator.write_project();
            ApiRequest::get(
                generator.owner_token(seeded),
                format!("/projects/{}/hooks/{}", seeded.id, RequestGenerator::hook_id(seeded)),
            )
        }),
        Route::write("POST /projects/{id}/hooks", 201, ResponseShape::Object("url"), NEW_HOOK)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write("PUT /projects/{id}/hooks/{hook_id}", 200, ResponseShape::Object("url"), |generator, _| {
            let seeded = generator.write_project();
            let target = format!("/projects/{}/hooks/{}", seeded.id, RequestGenerator::hook_id(seeded));
            ApiRequest::put(generator.owner_token(seeded), target, &json!({ "url": PRESENT, "issues_events": true }))
        }),
        Route::write("DELETE /projects/{id}/hooks/{hook_id}", 200, ResponseShape::Object("url"), |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[NEW_HOOK]),
        Route::read("GET /hooks", READ_FACTOR, ResponseShape::NonEmptyList("url"), |_, _| {
            ApiRequest::get(root(), "/hooks".into())
        }),
        Route::write("POST /hooks", 201, ResponseShape::NonEmptyList("url"), NEW_SYSTEM_HOOK)
            .after(|request, created| request.child("DELETE", &number(&created[0]["id"]))),
        // It sends a webhook and waits for the response, so it counts as a write.
        Route::write("GET /hooks/{id}", 200, ResponseShape::Object("event_name"), |_, _| {
            ApiRequest::get(root(), "/hooks/1".into())
        }),
        Route::write("DELETE /hooks/{id}", 200, ResponseShape::Object("url"), |_, created| {
            created.request.child("DELETE", &number(&created.response[0]["id"]))
        })
        .before(&[NEW_SYSTEM_HOOK]),
    ]
}

const NEW_HOOK: MakeRequest = |generator, _| {
    let seeded = generator.write_project();
    let new = json!({ "url": RECEIVER, "push_events": false, "note_events": true, "token": "a-secret" });
    ApiRequest::post(generator.owner_token(seeded), format!("/projects/{}/hooks", seeded.id), &new)
};

const NEW_SYSTEM_HOOK: MakeRequest =
    |_, _| ApiRequest::post(root(), "/hooks".into(), &json!({ "url": RECEIVER, "push_events": false }));

fn pipelines() -> Vec<Route> {
    vec![
        Route::read(
            "GET /projects/{id}/pipelines",
            READ_FACTOR,
            ResponseShape::NonEmptyList("status"),
            |generator, _| {
                ApiRequest::get(
                    generator.user_token(),
                    format!("/projects/{}/pipelines", generator.readable_project_id()),
                )
            },
        ),
        Route::read(
            "GET /projects/{id}/pipelines/{pipeline_id}",
            READ_FACTOR,
            ResponseShape::Object("status"),
            |generator, _| {
                let pipeline = generator.rng.range(1, generator.dataset.issues().min(1000));
                ApiRequest::get(generator.user_token(), format!("/projects/{LARGE_PROJECT}/pipelines/{pipeline}"))
            },
        ),
        Route::write("POST /projects/{id}/pipeline", 201, ResponseShape::Object("status"), NEW_PIPELINE).after(cancel),
        Route::write(
            "POST /projects/{id}/pipelines/{pipeline_id}/retry",
            201,
            ResponseShape::Object("status"),
            |_, created| created.request.parent().child("POST", "retry"),
        )
        .before(&[NEW_PIPELINE, CANCEL])
        .after(|request, _| request.parent().child("POST", "cancel")),
        Route::write(
            "POST /projects/{id}/pipelines/{pipeline_id}/cancel",
            200,
            ResponseShape::Object("status"),
            CANCEL,
        )
        .before(&[NEW_PIPELINE]),
    ]
}

const NEW_PIPELINE: MakeRequest = |generator, _| {
    let seeded = generator.write_project();
    ApiRequest::post(
        generator.owner_token(seeded),
        format!("/projects/{}/pipeline", seeded.id),
        &json!({ "ref": "master" }),
    )
};

const CANCEL: MakeRequest = |_, created: &Prepared| cancel(&created.request, &created.response);

fn cancel(request: &ApiRequest, created: &serde_json::Value) -> ApiRequest {
    let step = format!("pipelines/{}/cancel", number(&created["id"]));
    request.parent().child("POST", &step)
}
