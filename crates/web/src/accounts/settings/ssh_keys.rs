//! The SSH keys of the user.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Unvalidated,
    keys::{self, UnparsedKey},
};
use model::{Key, KeyId, Page};

use super::{SettingsHead, done, frame};
use crate::{
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    paging::{self, Pager},
    response, text,
};

pub(crate) const PATH: &str = "/-/user_settings/ssh_keys";

const KEYS_PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "accounts/settings/ssh_keys.html")]
struct KeysTemplate {
    layout: Layout,
    head: SettingsHead,
    keys: Vec<Key>,
    pager: Pager,
    form: Form,
}

/// Shows the keys.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, &Fields::default(), &FormErrors::default()).await
}

async fn render(cx: &PageCx, typed: &Fields, errors: &FormErrors) -> PageResult {
    let page = match cx.method {
        axum::http::Method::POST => Unvalidated::valid(Page { number: 1, size: KEYS_PER_PAGE }),
        _ => paging::requested(&cx.query(), KEYS_PER_PAGE),
    };
    let (viewer, found) = cx.read(move |tx| keys::list_own(tx, &page)).await?;
    let (layout, head) = frame(cx, viewer, PATH)?;
    let key = Field::area("key", "Public key", 4)
        .value(typed.get("key"))
        .required()
        .hint("The content of a file such as ~/.ssh/id_ed25519.pub. Never the file without .pub, which is secret.");
    let title = Field::text("title", "Title")
        .value(typed.get("title"))
        .max_length(255)
        .hint("If it is empty, the comment at the end of the key is used.");
    let template = KeysTemplate {
        layout,
        head,
        pager: Pager::of(&cx.uri, &cx.query(), &found),
        keys: found.items,
        form: Form::new(vec![key, title], errors),
    };
    response::page_with_status(errors.status(), &template)
}

/// Adds a key.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let clean = |name: &str| fields.text(name);
    let (key, title) = (clean("key"), clean("title"));
    let title = if title.is_empty() { model::keys::comment(&key) } else { title };
    let key = Unvalidated::valid(UnparsedKey { title, key });
    match cx.write(move |tx| keys::create_own(tx, &key)).await {
        Ok(_) => Ok(done(PATH, "key-added")),
        // Whatever is wrong with the fingerprint is wrong with the key.
        Err(error) => render(&cx, &fields, &FormErrors::by_field(error)?.merged("fingerprint", "key")).await,
    }
}

/// Removes a key.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let id = KeyId::new(cx.number("id")?);
    let deleted = cx.write(move |tx| keys::delete_own(tx, id)).await?;
    deleted.map(|_| done(PATH, "key-removed")).ok_or(StatusCode::NOT_FOUND.into())
}
