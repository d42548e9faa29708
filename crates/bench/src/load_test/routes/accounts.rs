//! Requests to users, SSH keys and email addresses.

use serde_json::json;

use super::{MakeRequest, READ_FACTOR, ResponseShape, Route};
use crate::{
    load_test::request_generator::{ApiRequest, number, root},
    seed::dataset::token_of,
};

pub(super) fn routes() -> Vec<Route> {
    [users(), keys(), emails()].into_iter().flatten().collect()
}

const NEW_USER: MakeRequest = |generator, _| {
    let name = generator.unique_name();
    let new = json!({ "username": name, "email": format!("{name}@example.org"), "name": "For A Moment", "password": "battery-staple" });
    ApiRequest::post(root(), "/users".into(), &new)
};
const BLOCK: MakeRequest = |generator, _| {
    let target = format!("/users/{}/block", generator.blockable_user());
    ApiRequest { method: "PUT", target, token: root(), body: None }
};

fn users() -> Vec<Route> {
    vec![
        Route::read("GET /users", READ_FACTOR, ResponseShape::NonEmptyList("username"), |generator, _| {
            let middle = format!("?page={}", generator.dataset.users / 40);
            let query = generator.pick(&["", &middle, "?search=user4", "?active=true", "?username=user17"]);
            let token = if generator.rng.below(4) == 0 { root() } else { generator.user_token() };
            ApiRequest::get(token, format!("/users{query}"))
        }),
        Route::read("GET /users/{id}", READ_FACTOR, ResponseShape::Object("username"), |generator, _| {
            ApiRequest::get(generator.user_token(), format!("/users/{}", generator.user_id()))
        }),
        Route::write("POST /users", 201, ResponseShape::Object("username"), NEW_USER)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write("PUT /users/{id}", 200, ResponseShape::Object("username"), |generator, _| {
            ApiRequest::put(
                root(),
                format!("/users/{}", generator.user_id()),
                &json!({ "bio": "A user of the load test" }),
            )
        }),
        Route::write("DELETE /users/{id}", 200, ResponseShape::Anything, |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[NEW_USER]),
        Route::read("GET /user", READ_FACTOR, ResponseShape::Object("username"), |generator, _| {
            ApiRequest::get(generator.user_token(), "/user".into())
        }),
        Route::write("PUT /users/{id}/block", 200, ResponseShape::Anything, BLOCK)
            .after(|request, _| request.parent().child("PUT", "unblock")),
        Route::write("PUT /users/{id}/unblock", 200, ResponseShape::Anything, |_, created| {
            created.request.parent().child("PUT", "unblock")
        })
        .before(&[BLOCK]),
        Route::read("GET /users/{id}/events", READ_FACTOR, ResponseShape::List, |generator, _| {
            ApiRequest::get(generator.user_token(), format!("/users/{}/events", generator.user_id()))
        }),
    ]
}

const NEW_KEY: MakeRequest = |generator, _| {
    let new = json!({ "title": "desk", "key": generator.new_key() });
    ApiRequest::post(generator.user_token(), "/user/keys".into(), &new)
};
const NEW_KEY_OF_A_USER: MakeRequest = |generator, _| {
    let new = json!({ "title": "desk", "key": generator.new_key() });
    ApiRequest::post(root(), format!("/users/{}/keys", generator.user_id()), &new)
};

fn keys() -> Vec<Route> {
    vec![
        Route::read("GET /user/keys", READ_FACTOR, ResponseShape::NonEmptyList("key"), |generator, _| {
            ApiRequest::get(token_of(generator.user_with_key().0), "/user/keys".into())
        }),
        Route::read("GET /users/{uid}/keys", READ_FACTOR, ResponseShape::NonEmptyList("key"), |generator, _| {
            ApiRequest::get(root(), format!("/users/{}/keys", generator.user_with_key().0))
        }),
        Route::read("GET /user/keys/{id}", READ_FACTOR, ResponseShape::Object("key"), |generator, _| {
            let (user, key) = generator.user_with_key();
            ApiRequest::get(token_of(user), format!("/user/keys/{key}"))
        }),
        Route::write("POST /user/keys", 201, ResponseShape::Object("key"), NEW_KEY)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write("POST /users/{uid}/keys", 201, ResponseShape::Object("key"), NEW_KEY_OF_A_USER)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write("DELETE /user/keys/{id}", 200, ResponseShape::Anything, |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[NEW_KEY]),
        Route::write("DELETE /users/{uid}/keys/{id}", 200, ResponseShape::Anything, |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[NEW_KEY_OF_A_USER]),
    ]
}

const NEW_EMAIL: MakeRequest = |generator, _| {
    let new = json!({ "email": format!("{}@example.org", generator.unique_name()) });
    ApiRequest::post(generator.user_token(), "/user/emails".into(), &new)
};
const NEW_EMAIL_OF_A_USER: MakeRequest = |generator, _| {
    let new = json!({ "email": format!("{}@example.org", generator.unique_name()) });
    ApiRequest::post(root(), format!("/users/{}/emails", generator.user_id()), &new)
};

fn emails() -> Vec<Route> {
    vec![
        Route::read("GET /user/emails", READ_FACTOR, ResponseShape::NonEmptyList("email"), |generator, _| {
            ApiRequest::get(token_of(generator.user_with_email().0), "/user/emails".into())
        }),
        Route::read("GET /users/{uid}/emails", READ_FACTOR, ResponseShape::NonEmptyList("email"), |generator, _| {
            ApiRequest::get(root(), format!("/users/{}/emails", generator.user_with_email().0))
        }),
        Route::read("GET /user/emails/{id}", READ_FACTOR, ResponseShape::Object("email"), |generator, _| {
            let (user, email) = generator.user_with_email();
            ApiRequest::get(token_of(user), format!("/user/emails/{email}"))
        }),
        Route::write("POST /user/emails", 201, ResponseShape::Object("email"), NEW_EMAIL)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write("POST /users/{uid}/emails", 201, ResponseShape::Object("email"), NEW_EMAIL_OF_A_USER)
            .after(|request, created| request.child("DELETE", &number(&created["id"]))),
        Route::write("DELETE /user/emails/{id}", 200, ResponseShape::Anything, |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[NEW_EMAIL]),
        Route::write("DELETE /users/{uid}/emails/{id}", 200, ResponseShape::Anything, |_, created| {
            created.request.child("DELETE", &number(&created.response["id"]))
        })
        .before(&[NEW_EMAIL_OF_A_USER]),
    ]
}
