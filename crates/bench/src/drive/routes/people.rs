//! Users, their keys and their addresses.

use serde_json::json;

use super::{Make, READ, Route, Shape};
use crate::{
    drive::scene::{Ask, number, root},
    seed::world::token_of,
};

pub(super) fn routes() -> Vec<Route> {
    [users(), keys(), emails()].into_iter().flatten().collect()
}

const NEW_USER: Make = |tx, _| {
    let name = tx.name();
    let new = json!({ "username": name, "email": format!("{name}@example.org"), "name": "For A Moment", "password": "battery-staple" });
    Ask::post(root(), "/users".into(), &new)
};
const BLOCK: Make = |tx, _| {
    let target = format!("/users/{}/block", tx.blockable());
    Ask { method: "PUT", target, token: root(), body: None }
};

fn users() -> Vec<Route> {
    vec![
        Route::read("GET /users", READ, Shape::Full("username"), |tx, _| {
            let middle = format!("?page={}", tx.world.users / 40);
            let query = tx.pick(&["", &middle, "?search=user4", "?active=true", "?username=user17"]);
            let token = if tx.dice.below(4) == 0 { root() } else { tx.somebody() };
            Ask::get(token, format!("/users{query}"))
        }),
        Route::read("GET /users/{id}", READ, Shape::Object("username"), |tx, _| {
            Ask::get(tx.somebody(), format!("/users/{}", tx.person()))
        }),
        Route::write("POST /users", 201, Shape::Object("username"), NEW_USER)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("PUT /users/{id}", 200, Shape::Object("username"), |tx, _| {
            Ask::put(root(), format!("/users/{}", tx.person()), &json!({ "bio": "Somebody who does things" }))
        }),
        Route::write("DELETE /users/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_USER]),
        Route::read("GET /user", READ, Shape::Object("username"), |tx, _| Ask::get(tx.somebody(), "/user".into())),
        Route::write("PUT /users/{id}/block", 200, Shape::Anything, BLOCK)
            .after(|ask, _| ask.above().below("PUT", "unblock")),
        Route::write("PUT /users/{id}/unblock", 200, Shape::Anything, |_, made| {
            made.ask.above().below("PUT", "unblock")
        })
        .before(&[BLOCK]),
        Route::read("GET /users/{id}/events", READ, Shape::List, |tx, _| {
            Ask::get(tx.somebody(), format!("/users/{}/events", tx.person()))
        }),
    ]
}

const NEW_KEY: Make = |tx, _| {
    let new = json!({ "title": "desk", "key": tx.key() });
    Ask::post(tx.somebody(), "/user/keys".into(), &new)
};
const NEW_KEY_OF_A_USER: Make = |tx, _| {
    let new = json!({ "title": "desk", "key": tx.key() });
    Ask::post(root(), format!("/users/{}/keys", tx.person()), &new)
};

fn keys() -> Vec<Route> {
    vec![
        Route::read("GET /user/keys", READ, Shape::Full("key"), |tx, _| {
            Ask::get(token_of(tx.keyed().0), "/user/keys".into())
        }),
        Route::read("GET /users/{uid}/keys", READ, Shape::Full("key"), |tx, _| {
            Ask::get(root(), format!("/users/{}/keys", tx.keyed().0))
        }),
        Route::read("GET /user/keys/{id}", READ, Shape::Object("key"), |tx, _| {
            let (user, key) = tx.keyed();
            Ask::get(token_of(user), format!("/user/keys/{key}"))
        }),
        Route::write("POST /user/keys", 201, Shape::Object("key"), NEW_KEY)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("POST /users/{uid}/keys", 201, Shape::Object("key"), NEW_KEY_OF_A_USER)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("DELETE /user/keys/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_KEY]),
        Route::write("DELETE /users/{uid}/keys/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_KEY_OF_A_USER]),
    ]
}

const NEW_EMAIL: Make = |tx, _| {
    let new = json!({ "email": format!("{}@example.org", tx.name()) });
    Ask::post(tx.somebody(), "/user/emails".into(), &new)
};
const NEW_EMAIL_OF_A_USER: Make = |tx, _| {
    let new = json!({ "email": format!("{}@example.org", tx.name()) });
    Ask::post(root(), format!("/users/{}/emails", tx.person()), &new)
};

fn emails() -> Vec<Route> {
    vec![
        Route::read("GET /user/emails", READ, Shape::Full("email"), |tx, _| {
            Ask::get(token_of(tx.addressed().0), "/user/emails".into())
        }),
        Route::read("GET /users/{uid}/emails", READ, Shape::Full("email"), |tx, _| {
            Ask::get(root(), format!("/users/{}/emails", tx.addressed().0))
        }),
        Route::read("GET /user/emails/{id}", READ, Shape::Object("email"), |tx, _| {
            let (user, email) = tx.addressed();
            Ask::get(token_of(user), format!("/user/emails/{email}"))
        }),
        Route::write("POST /user/emails", 201, Shape::Object("email"), NEW_EMAIL)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("POST /users/{uid}/emails", 201, Shape::Object("email"), NEW_EMAIL_OF_A_USER)
            .after(|ask, made| ask.below("DELETE", &number(&made["id"]))),
        Route::write("DELETE /user/emails/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_EMAIL]),
        Route::write("DELETE /users/{uid}/emails/{id}", 200, Shape::Anything, |_, made| {
            made.ask.below("DELETE", &number(&made.answer["id"]))
        })
        .before(&[NEW_EMAIL_OF_A_USER]),
    ]
}
