//! Groups and projects.

use serde_json::json;

use super::{LEAST, PROJECT_LIST, READ, Route, Shape};
use crate::drive::{
    routes::Make,
    scene::{Ask, Prepared, Scene, number, root},
};

pub(super) fn groups() -> Vec<Route> {
    vec![
        Route::read("GET /groups", READ, Shape::List, |it, _| {
            let query = it.pick(&["", "?all_available=true", "?search=river", "?all_available=true&order_by=path"]);
            Ask::get(it.somebody(), format!("/groups{query}"))
        }),
        Route::read("GET /groups/owned", READ, Shape::List, |it, _| Ask::get(it.somebody(), "/groups/owned".into())),
        Route::read("GET /groups/{id}/projects", LEAST, Shape::List, |it, _| {
            Ask::get(it.somebody(), format!("/groups/{}/projects", it.open_group().id))
        }),
        Route::read("GET /groups/{id}", LEAST, Shape::Object("projects"), |it, _| {
            Ask::get(it.somebody(), format!("/groups/{}", it.open_group().id))
        }),
        Route::write("POST /groups", 201, Shape::Object("id"), new_group)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("POST /groups/{id}/projects/{project_id}", 201, Shape::Object("id"), |it, made| {
            let group = it.yard().group;
            let target = format!("/groups/{}/projects/{}", it.world.groups[group].id, number(&made.answer["id"]));
            Ask { method: "POST", target, token: root(), body: None }
        })
        .before(&[|it, _| new_project_as(it, root())])
        .after(|ask, _| {
            let project = ask.target.rsplit('/').next().unwrap_or_default();
            Ask::delete(root(), format!("/projects/{project}"))
        }),
        Route::write("PUT /groups/{id}", 200, Shape::Object("projects"), |it, _| {
            let site = it.yard();
            let description = json!({ "description": format!("The team of {}", site.words.0) });
            Ask::put(it.owner(site), format!("/groups/{}", it.world.group_of(site).id), &description)
        }),
        Route::write("DELETE /groups/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[new_group]),
    ]
}

const NEW_PROJECT: Make = |it, _| {
    let token = it.somebody();
    new_project_as(it, token)
};

pub(super) fn projects() -> Vec<Route> {
    let mut routes = vec![
        Route::read("GET /projects", PROJECT_LIST, Shape::List, |it, _| Ask::get(it.somebody(), "/projects".into())),
        Route::read("GET /projects/visible", READ, Shape::Full("id"), |it, _| {
            let query =
                it.pick(&["", "?simple=true", "?order_by=name&sort=asc", "?search=river", "?visibility=public"]);
            Ask::get(it.somebody(), format!("/projects/visible{query}"))
        }),
        Route::read("GET /projects/owned", READ, Shape::List, |it, _| {
            Ask::get(it.somebody(), "/projects/owned".into())
        }),
        Route::read("GET /projects/starred", READ, Shape::List, |it, _| {
            Ask::get(it.somebody(), "/projects/starred".into())
        }),
        Route::read("GET /projects/all", READ, Shape::Full("id"), |it, _| {
            let middle = format!("?page={}", it.world.sites.len() / 40);
            let query = it.pick(&["", "?order_by=last_activity_at", "?search=service", &middle]);
            Ask::get(root(), format!("/projects/all{query}"))
        }),
        Route::read("GET /projects/{id}", READ, Shape::Object("id"), |it, _| {
            Ask::get(it.somebody(), format!("/projects/{}", it.open().id))
        }),
        Route::read("GET /projects/{id}/events", READ, Shape::Full("action_name"), |it, _| {
            Ask::get(it.somebody(), format!("/projects/{}/events", it.read_from()))
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
        Route::write("POST /projects/{id}/archive", 201, Shape::Object("id"), |it, _| {
            let project = it.mill();
            Ask { method: "POST", target: format!("/projects/{}/archive", project.id), token: root(), body: None }
        })
        .after(|ask, _| ask.above().below("POST", "unarchive")),
        Route::write("POST /projects/{id}/unarchive", 201, Shape::Object("id"), |it, _| {
            let site = it.yard();
            Ask {
                method: "POST",
                target: format!("/projects/{}/unarchive", site.id),
                token: it.owner(site),
                body: None,
            }
        }),
        Route::write("DELETE /projects/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_PROJECT]),
        Route::write("POST /projects/fork/{id}", 201, Shape::Object("id"), |it, _| {
            let (source, person) = (it.shelf().id, it.person());
            let to = json!({ "namespace": person });
            Ask::post(crate::seed::world::token_of(person), format!("/projects/fork/{source}"), &to)
        })
        .after(|ask, made| Ask::delete(ask.token.clone(), format!("/projects/{}", number(&made["id"])))),
        Route::write("POST /projects/{id}/uploads", 201, Shape::Object("url"), |it, _| {
            let site = it.yard();
            let body = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"notes.txt\"\r\n\
                 Content-Type: text/plain\r\n\r\n{}\r\n--{BOUNDARY}--\r\n",
                "A line of notes.\n".repeat(500)
            );
            let body = Some(("multipart/form-data; boundary=a-boundary-of-the-load", body));
            Ask { method: "POST", target: format!("/projects/{}/uploads", site.id), token: it.owner(site), body }
        }),
        Route::write("POST /projects/{id}/share", 201, Shape::Object("group_access"), |it, _| {
            let site = it.yard();
            // One that its owner sees without being a member.
            let mut others = it.world.groups.iter().cycle().skip(site.group + 7).take(it.world.groups.len());
            let group = others.find(|group| group.visibility > 0).map(|group| group.id);
            let with = json!({ "group_id": group, "group_access": 20 });
            Ask::post(it.owner(site), format!("/projects/{}/share", site.id), &with)
        })
        .after(|ask, made| ask.below("DELETE", &number(&made["group_id"]))),
        Route::write("POST /projects", 201, Shape::Object("id"), NEW_PROJECT)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("POST /projects/user/{user_id}", 201, Shape::Object("id"), |it, _| {
            let name = json!({ "name": it.name() });
            Ask::post(root(), format!("/projects/user/{}", it.person()), &name)
        })
        .after(|_, made| Ask::delete(root(), format!("/projects/{}", number(&made["id"])))),
        Route::write("PUT /projects/{id}", 200, Shape::Object("id"), |it, _| {
            let site = it.yard();
            let text = json!({ "name": site.name(), "description": format!("What {} is for", site.words.1) });
            Ask::put(it.owner(site), format!("/projects/{}", site.id), &text)
        }),
    ]
}

const BOUNDARY: &str = "a-boundary-of-the-load";

fn new_group(it: &mut Scene<'_>, _: &Prepared) -> Ask {
    let name = it.name();
    Ask::post(it.somebody(), "/groups".into(), &json!({ "name": name, "path": name }))
}

fn new_project_as(it: &mut Scene<'_>, token: String) -> Ask {
    Ask::post(token, "/projects".into(), &json!({ "name": it.name(), "description": "For a moment" }))
}

fn star(it: &mut Scene<'_>, _: &Prepared) -> Ask {
    // The administrator of the data set has starred nothing.
    let site = it.yard();
    Ask { method: "POST", target: format!("/projects/{}/star", site.id), token: root(), body: None }
}
