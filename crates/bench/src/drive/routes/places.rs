//! Groups and projects.

use serde_json::json;

use super::{LEAST, PROJECT_LIST, READ, Route, Shape};
use crate::drive::{
    routes::Make,
    scene::{Ask, Prepared, Scene, number, root},
};

pub(super) fn groups() -> Vec<Route> {
    vec![
        Route::read("GET /groups", READ, Shape::List, |tx, _| {
            let query = tx.pick(&["", "?all_available=true", "?search=river", "?all_available=true&order_by=path"]);
            Ask::get(tx.somebody(), format!("/groups{query}"))
        }),
        Route::read("GET /groups/owned", READ, Shape::List, |tx, _| Ask::get(tx.somebody(), "/groups/owned".into())),
        Route::read("GET /groups/{id}/projects", LEAST, Shape::List, |tx, _| {
            Ask::get(tx.somebody(), format!("/groups/{}/projects", tx.open_group().id))
        }),
        Route::read("GET /groups/{id}", LEAST, Shape::Object("projects"), |tx, _| {
            Ask::get(tx.somebody(), format!("/groups/{}", tx.open_group().id))
        }),
        Route::write("POST /groups", 201, Shape::Object("id"), new_group)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("POST /groups/{id}/projects/{project_id}", 201, Shape::Object("id"), |tx, made| {
            let group = tx.yard().group;
            let target = format!("/groups/{}/projects/{}", tx.world.groups[group].id, number(&made.answer["id"]));
            Ask { method: "POST", target, token: root(), body: None }
        })
        .before(&[|tx, _| new_project_as(tx, root())])
        .after(|ask, _| {
            let project = ask.target.rsplit('/').next().unwrap_or_default();
            Ask::delete(root(), format!("/projects/{project}"))
        }),
        Route::write("PUT /groups/{id}", 200, Shape::Object("projects"), |tx, _| {
            let site = tx.yard();
            let description = json!({ "description": format!("The team of {}", site.words.0) });
            Ask::put(tx.owner(site), format!("/groups/{}", tx.world.group_of(site).id), &description)
        }),
        Route::write("DELETE /groups/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[new_group]),
    ]
}

const NEW_PROJECT: Make = |tx, _| {
    let token = tx.somebody();
    new_project_as(tx, token)
};

pub(super) fn projects() -> Vec<Route> {
    let mut routes = vec![
        Route::read("GET /projects", PROJECT_LIST, Shape::List, |tx, _| Ask::get(tx.somebody(), "/projects".into())),
        Route::read("GET /projects/visible", READ, Shape::Full("id"), |tx, _| {
            let query =
                tx.pick(&["", "?simple=true", "?order_by=name&sort=asc", "?search=river", "?visibility=public"]);
            Ask::get(tx.somebody(), format!("/projects/visible{query}"))
        }),
        Route::read("GET /projects/owned", READ, Shape::List, |tx, _| {
            Ask::get(tx.somebody(), "/projects/owned".into())
        }),
        Route::read("GET /projects/starred", READ, Shape::List, |tx, _| {
            Ask::get(tx.somebody(), "/projects/starred".into())
        }),
        Route::read("GET /projects/all", READ, Shape::Full("id"), |tx, _| {
            let middle = format!("?page={}", tx.world.sites.len() / 40);
            let query = tx.pick(&["", "?order_by=last_activity_at", "?search=service", &middle]);
            Ask::get(root(), format!("/projects/all{query}"))
        }),
        Route::read("GET /projects/{id}", READ, Shape::Object("id"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{}", tx.open().id))
        }),
        Route::read("GET /projects/{id}/events", READ, Shape::Full("action_name"), |tx, _| {
            Ask::get(tx.somebody(), format!("/projects/{}/events", tx.read_from()))
        }),
    ];
    routes.extend(changes());
    routes
}

fn changes() -> Vec<Route> {
    vec![
        Route::write("POST /projects/{id}/star", 201, Shape::Object("id"), star).after(|ask, _| ask.with("DELETE")),
        Route::write("DELETE /projects/{id}/star", 200, Shape::Object("id"), |_, made| made.ask.with("DELETE"))
            .before(&[star]),
        Route::write("POST /projects/{id}/archive", 201, Shape::Object("id"), |tx, _| {
            let project = tx.mill();
            Ask { method: "POST", target: format!("/projects/{}/archive", project.id), token: root(), body: None }
        })
        .after(|ask, _| ask.above().below("POST", "unarchive")),
        Route::write("POST /projects/{id}/unarchive", 201, Shape::Object("id"), |tx, _| {
            let site = tx.yard();
            Ask {
                method: "POST",
                target: format!("/projects/{}/unarchive", site.id),
                token: tx.owner(site),
                body: None,
            }
        }),
        Route::write("DELETE /projects/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_PROJECT]),
        Route::write("POST /projects/fork/{id}", 201, Shape::Object("id"), |tx, _| {
            let (source, person) = (tx.shelf().id, tx.person());
            let to = json!({ "namespace": person });
            Ask::post(crate::seed::world::token_of(person), format!("/projects/fork/{source}"), &to)
        })
        .after(|ask, made| Ask::delete(ask.token.clone(), format!("/projects/{}", number(&made["id"])))),
        Route::write("POST /projects/{id}/uploads", 201, Shape::Object("url"), |tx, _| {
            let site = tx.yard();
            let body = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"notes.txt\"\r\n\
                 Content-Type: text/plain\r\n\r\n{}\r\n--{BOUNDARY}--\r\n",
                "A line of notes.\n".repeat(500)
            );
            let body = Some(("multipart/form-data; boundary=a-boundary-of-the-load", body));
            Ask { method: "POST", target: format!("/projects/{}/uploads", site.id), token: tx.owner(site), body }
        }),
        Route::write("POST /projects/{id}/share", 201, Shape::Object("group_access"), |tx, _| {
            let site = tx.yard();
            // One that its owner sees without being a member.
            let mut others = tx.world.groups.iter().cycle().skip(site.group + 7).take(tx.world.groups.len());
            let group = others.find(|group| group.visibility > 0).map(|group| group.id);
            let with = json!({ "group_id": group, "group_access": 20 });
            Ask::post(tx.owner(site), format!("/projects/{}/share", site.id), &with)
        })
        .after(|ask, made| ask.below("DELETE", &number(&made["group_id"]))),
        Route::write("POST /projects", 201, Shape::Object("id"), NEW_PROJECT)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("POST /projects/user/{user_id}", 201, Shape::Object("id"), |tx, _| {
            let name = json!({ "name": tx.name() });
            Ask::post(root(), format!("/projects/user/{}", tx.person()), &name)
        })
        .after(|_, made| Ask::delete(root(), format!("/projects/{}", number(&made["id"])))),
        Route::write("PUT /projects/{id}", 200, Shape::Object("id"), |tx, _| {
            let site = tx.yard();
            let text = json!({ "name": site.name(), "description": format!("What {} is for", site.words.1) });
            Ask::put(tx.owner(site), format!("/projects/{}", site.id), &text)
        }),
    ]
}

const BOUNDARY: &str = "a-boundary-of-the-load";

fn new_group(tx: &mut Scene<'_>, _: &Prepared) -> Ask {
    let name = tx.name();
    Ask::post(tx.somebody(), "/groups".into(), &json!({ "name": name, "path": name }))
}

fn new_project_as(tx: &mut Scene<'_>, token: String) -> Ask {
    Ask::post(token, "/projects".into(), &json!({ "name": tx.name(), "description": "For a moment" }))
}

fn star(tx: &mut Scene<'_>, _: &Prepared) -> Ask {
    // The administrator of the data set has starred nothing.
    let site = tx.yard();
    Ask { method: "POST", target: format!("/projects/{}/star", site.id), token: root(), body: None }
}
