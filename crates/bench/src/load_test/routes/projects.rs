//! Requests to groups and projects.

use serde_json::json;

use super::{MIN_FACTOR, PROJECT_LIST_FACTOR, READ_FACTOR, ResponseShape, Route};
use crate::load_test::{
    request_generator::{ApiRequest, Prepared, RequestGenerator, number, root},
    routes::MakeRequest,
};

pub(super) fn groups() -> Vec<Route> {
    vec![
        Route::read("GET /groups", READ_FACTOR, ResponseShape::List, |generator, _| {
            let query =
                generator.pick(&["", "?all_available=true", "?search=river", "?all_available=true&order_by=path"]);
            ApiRequest::get(generator.user_token(), format!("/groups{query}"))
        }),
        Route::read("GET /groups/owned", READ_FACTOR, ResponseShape::List, |generator, _| {
            ApiRequest::get(generator.user_token(), "/groups/owned".into())
        }),
        Route::read("GET /groups/{id}/projects", MIN_FACTOR, ResponseShape::List, |generator, _| {
            ApiRequest::get(generator.user_token(), format!("/groups/{}/projects", generator.visible_group().id))
        }),
        Route::read("GET /groups/{id}", MIN_FACTOR, ResponseShape::Object("projects"), |generator, _| {
            ApiRequest::get(generator.user_token(), format!("/groups/{}", generator.visible_group().id))
        }),
        Route::write("POST /groups", 201, ResponseShape::Object("id"), new_group)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write(
            "POST /groups/{id}/projects/{project_id}",
            201,
            ResponseShape::Object("id"),
            |generator, created| {
                let group = generator.write_project().group;
                let target = format!(
                    "/groups/{}/projects/{}",
                    generator.dataset.groups[group].id,
                    number(&created.response["id"])
                );
                ApiRequest { method: "POST", target, token: root(), body: None }
            },
        )
        .before(&[|generator, _| new_project_as(generator, root())])
        .after(|request, _| {
            let project = request.target.rsplit('/').next().unwrap_or_default();
            ApiRequest::delete(root(), format!("/projects/{project}"))
        }),
        Route::write("PUT /groups/{id}", 200, ResponseShape::Object("projects"), |generator, _| {
            let seeded = generator.write_project();
            let description = json!({ "description": format!("The team of {}", seeded.words.0) });
            ApiRequest::put(
                generator.owner_token(seeded),
                format!("/groups/{}", generator.dataset.group_of(seeded).id),
                &description,
            )
        }),
        Route::write("DELETE /groups/{id}", 200, ResponseShape::Anything, |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[new_group]),
    ]
}

const NEW_PROJECT: MakeRequest = |generator, _| {
    let token = generator.user_token();
    new_project_as(generator, token)
};

pub(super) fn projects() -> Vec<Route> {
    let mut routes = vec![
        Route::read("GET /projects", PROJECT_LIST_FACTOR, ResponseShape::List, |generator, _| {
            ApiRequest::get(generator.user_token(), "/projects".into())
        }),
        Route::read("GET /projects/visible", READ_FACTOR, ResponseShape::NonEmptyList("id"), |generator, _| {
            let query =
                generator.pick(&["", "?simple=true", "?order_by=name&sort=asc", "?search=river", "?visibility=public"]);
            ApiRequest::get(generator.user_token(), format!("/projects/visible{query}"))
        }),
        Route::read("GET /projects/owned", READ_FACTOR, ResponseShape::List, |generator, _| {
            ApiRequest::get(generator.user_token(), "/projects/owned".into())
        }),
        Route::read("GET /projects/starred", READ_FACTOR, ResponseShape::List, |generator, _| {
            ApiRequest::get(generator.user_token(), "/projects/starred".into())
        }),
        Route::read("GET /projects/all", READ_FACTOR, ResponseShape::NonEmptyList("id"), |generator, _| {
            let middle = format!("?page={}", generator.dataset.projects.len() / 40);
            let query = generator.pick(&["", "?order_by=last_activity_at", "?search=service", &middle]);
            ApiRequest::get(root(), format!("/projects/all{query}"))
        }),
        Route::read("GET /projects/{id}", READ_FACTOR, ResponseShape::Object("id"), |generator, _| {
            ApiRequest::get(generator.user_token(), format!("/projects/{}", generator.visible_project().id))
        }),
        Route::read(
            "GET /projects/{id}/events",
            READ_FACTOR,
            ResponseShape::NonEmptyList("action_name"),
            |generator, _| {
                ApiRequest::get(generator.user_token(), format!("/projects/{}/events", generator.readable_project_id()))
            },
        ),
    ];
    routes.extend(changes());
    routes
}

fn changes() -> Vec<Route> {
    vec![
        Route::write("POST /projects/{id}/star", 201, ResponseShape::Object("id"), star)
            .after(|request, _| request.with_method("DELETE")),
        Route::write("DELETE /projects/{id}/star", 200, ResponseShape::Object("id"), |_, created| {
            created.request.with_method("DELETE")
        })
        .before(&[star]),
        Route::write("POST /projects/{id}/archive", 201, ResponseShape::Object("id"), |generator, _| {
            let project = generator.cleanup_project();
            ApiRequest {
                method: "POST",
                target: format!("/projects/{}/archive", project.id),
                token: root(),
                body: None,
            }
        })
        .after(|request, _| request.parent().child("POST", "unarchive")),
        Route::write("POST /projects/{id}/unarchive", 201, ResponseShape::Object("id"), |generator, _| {
            let seeded = generator.write_project();
            ApiRequest {
                method: "POST",
                target: format!("/projects/{}/unarchive", seeded.id),
                token: generator.owner_token(seeded),
                body: None,
            }
        }),
        Route::write("DELETE /projects/{id}", 200, ResponseShape::Anything, |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[NEW_PROJECT]),
        Route::write("POST /projects/fork/{id}", 201, ResponseShape::Object("id"), |generator, _| {
            let (source, user_id) = (generator.read_project().id, generator.user_id());
            let to = json!({ "namespace": user_id });
            ApiRequest::post(crate::seed::dataset::token_of(user_id), format!("/projects/fork/{source}"), &to)
        })
        .after(|request, created| {
            ApiRequest::delete(request.token.clone(), format!("/projects/{}", number(&created["id"])))
        }),
        Route::write("POST /projects/{id}/uploads", 201, ResponseShape::Object("url"), |generator, _| {
            let seeded = generator.write_project();
            let body = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"notes.txt\"\r\n\
                 Content-Type: text/plain\r\n\r\n{}\r\n--{BOUNDARY}--\r\n",
                "A line of notes.\n".repeat(500)
            );
            let body = Some(("multipart/form-data; boundary=a-boundary-of-the-load", body));
            ApiRequest {
                method: "POST",
                target: format!("/projects/{}/uploads", seeded.id),
                token: generator.owner_token(seeded),
                body,
            }
        }),
        Route::write("POST /projects/{id}/share", 201, ResponseShape::Object("group_access"), |generator, _| {
            let seeded = generator.write_project();
            // A group that is visible to the owner, who is not a member.
            let mut others =
                generator.dataset.groups.iter().cycle().skip(seeded.group + 7).take(generator.dataset.groups.len());
            let group = others.find(|group| group.visibility > 0).map(|group| group.id);
            let with = json!({ "group_id": group, "group_access": 20 });
            ApiRequest::post(generator.owner_token(seeded), format!("/projects/{}/share", seeded.id), &with)
        })
        .after(|request, created| request.child("DELETE", &number(&created["group_id"]))),
        Route::write("POST /projects", 201, ResponseShape::Object("id"), NEW_PROJECT)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write("POST /projects/user/{user_id}", 201, ResponseShape::Object("id"), |generator, _| {
            let name = json!({ "name": generator.unique_name() });
            ApiRequest::post(root(), format!("/projects/user/{}", generator.user_id()), &name)
        })
        .after(|_, created| ApiRequest::delete(root(), format!("/projects/{}", number(&created["id"])))),
        Route::write("PUT /projects/{id}", 200, ResponseShape::Object("id"), |generator, _| {
            let seeded = generator.write_project();
            let text = json!({ "name": seeded.name(), "description": format!("What {} is for", seeded.words.1) });
            ApiRequest::put(generator.owner_token(seeded), format!("/projects/{}", seeded.id), &text)
        }),
    ]
}

const BOUNDARY: &str = "a-boundary-of-the-load";

fn new_group(generator: &mut RequestGenerator<'_>, _: &Prepared) -> ApiRequest {
    let name = generator.unique_name();
    ApiRequest::post(generator.user_token(), "/groups".into(), &json!({ "name": name, "path": name }))
}

fn new_project_as(generator: &mut RequestGenerator<'_>, token: String) -> ApiRequest {
    ApiRequest::post(
        token,
        "/projects".into(),
        &json!({ "name": generator.unique_name(), "description": "For a moment" }),
    )
}

fn star(generator: &mut RequestGenerator<'_>, _: &Prepared) -> ApiRequest {
    // The administrator has no stars in the data set.
    let seeded = generator.write_project();
    ApiRequest { method: "POST", target: format!("/projects/{}/star", seeded.id), token: root(), body: None }
}
