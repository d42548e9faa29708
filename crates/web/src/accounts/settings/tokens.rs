//! The personal access tokens of the user.

use askama::Template;
use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use forge::{
    Unvalidated,
    tokens::{self, TokenRequest},
};
use jiff::civil::Date;
use model::{
    Page, Scope, Token, TokenId,
    tokens::{Secret, TokenFilter},
};

use super::{SettingsHead, current_password, done, frame, no_store, password_errors};
use crate::{
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    paging::{self, Pager},
    response, text, times,
};

pub(crate) const PATH: &str = "/-/user_settings/personal_access_tokens";

const TOKENS_PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "accounts/settings/tokens.html")]
struct TokensTemplate {
    layout: Layout,
    head: SettingsHead,
    /// The token that was just created, with its name; shown only once.
    created: Option<(String, Secret)>,
    tokens: Vec<Token>,
    pager: Pager,
    form: Form,
}

/// Shows the tokens.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, &Fields::default(), &FormErrors::default(), None).await
}

async fn render(cx: &PageCx, typed: &Fields, errors: &FormErrors, created: Option<(String, Secret)>) -> PageResult {
    let page = match cx.method {
        Method::POST => Unvalidated::valid(Page { number: 1, size: TOKENS_PER_PAGE }),
        _ => paging::requested(&cx.query(), TOKENS_PER_PAGE),
    };
    let (viewer, found) = cx
        .read(move |tx| {
            let filter = TokenFilter { user: tx.user_id().ok(), revoked: None, active: Some(true) };
            tokens::search(tx, &Unvalidated::valid(filter), &page)
        })
        .await?;
    let (layout, head) = frame(cx, viewer, PATH)?;
    let is_refused = !errors.is_empty();
    let is_checked = |name: &str, default: bool| if is_refused { typed.get(name) == "1" } else { default };
    let fields = vec![
        Field::text("name", "Name").value(typed.get("name")).required().max_length(255),
        Field::input("expires_at", "Expires on", "date")
            .value(typed.get("expires_at"))
            .hint("The first day on which it is invalid; at most, and if empty, one year from now."),
        Field::checkbox(
            "scope_api",
            "api: everything that you may do, also with git over HTTP",
            is_checked("scope_api", true),
        ),
        Field::checkbox("scope_read_user", "read_user: reading users only", is_checked("scope_read_user", false)),
        Field::password("current_password", "Current password", "current-password"),
    ];
    let template = TokensTemplate {
        layout,
        head,
        created,
        pager: Pager::of(&cx.uri, &cx.query(), &found),
        tokens: found.items,
        form: Form::new(fields, errors),
    };
    let status = if is_refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    response::page_with_status(status, &template)
}

/// Creates a token and shows it.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let expires_on = match fields.get("expires_at").trim() {
        "" => None,
        text => match text.parse::<Date>() {
            Ok(day) => Some(day),
            Err(_) => return render(&cx, &fields, &FormErrors::one("expires_at", "is not a date"), None).await,
        },
    };
    let scopes = Scope::ALL.into_iter().filter(|scope| fields.get(&format!("scope_{}", scope.as_str())) == "1");
    let request = TokenRequest {
        name: fields.get("name").trim().to_owned(),
        scopes: scopes.collect(),
        expires_on,
        current_password: current_password(&cx, &fields)?,
    };
    let request = Unvalidated::valid(request);
    let created = match cx.run_blocking(move |cx| tokens::prepare(cx, &request)).await {
        Ok((_, prepared)) => cx.write(move |tx| tokens::create_own(tx, &prepared)).await,
        Err(error) => Err(error),
    };
    match created {
        Ok((token, secret)) => {
            let created = Some((token.name, secret));
            render(&cx, &Fields::default(), &FormErrors::default(), created).await.map(no_store)
        }
        Err(error) => render(&cx, &fields, &password_errors(&cx, error).await?, None).await,
    }
}

/// Revokes a token.
pub(crate) async fn revoke(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let id = TokenId::new(cx.number("id")?);
    cx.write(move |tx| tokens::revoke_own(tx, id)).await?;
    Ok(done(PATH, "token-revoked"))
}
