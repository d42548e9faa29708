//! The list of users, and new users.

use askama::Template;
use axum::body::Body;
use forge::{
    Unvalidated,
    users::{self, NewUserRequest},
};
use model::{
    User, UserState,
    users::{MAX_TEXT_LENGTH, NewUser, UserFilter},
};

use super::{AdminHead, done, enter, form, frame};
use crate::{
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    links,
    paging::{self, Pager},
    response, text,
};

pub(super) const PATH: &str = "/admin/users";

const USERS_PER_PAGE: i64 = 50;

/// The filters to choose from: value, label.
const FILTERS: [(&str, &str); 4] =
    [("", "all"), ("active", "active"), ("blocked", "blocked"), ("external", "external")];

#[derive(Template)]
#[template(path = "admin/users.html")]
struct UsersTemplate {
    layout: Layout,
    head: AdminHead,
    search: String,
    /// Value, label, and whether it is the current one.
    filters: Vec<(&'static str, &'static str, bool)>,
    users: Vec<User>,
    pager: Pager,
}

#[derive(Template)]
#[template(path = "admin/new_user.html")]
struct NewUserTemplate {
    layout: Layout,
    head: AdminHead,
    form: Form,
}

/// Lists users.
pub(crate) async fn list(cx: PageCx) -> PageResult {
    enter(&cx).await?;
    let query = cx.query();
    let search = query.text("search");
    let chosen = query.get("filter").to_owned();
    let page = paging::requested(&query, USERS_PER_PAGE);
    let filter = Unvalidated::valid(UserFilter {
        search: Some(search.clone()).filter(|search| !search.is_empty()),
        active: chosen == "active",
        blocked: chosen == "blocked",
        external: chosen == "external",
        ..UserFilter::default()
    });
    let (viewer, found) = cx.read_list(move |tx| users::list(tx, &filter, &page)).await?;
    let (layout, head) = frame(&cx, viewer, PATH, "Users")?;
    response::page(&UsersTemplate {
        layout,
        head,
        search,
        filters: FILTERS.iter().map(|(value, label)| (*value, *label, *value == chosen)).collect(),
        pager: Pager::of(&cx.uri, &query, &found),
        users: found.items,
    })
}

/// Shows the form for a new user.
pub(crate) async fn new(cx: PageCx) -> PageResult {
    render(&cx, &Fields::default(), &FormErrors::default()).await
}

async fn render(cx: &PageCx, typed: &Fields, errors: &FormErrors) -> PageResult {
    let (layout, head) = frame(cx, cx.viewer().await?, PATH, "New user")?;
    let text = |name, label| Field::text(name, label).value(typed.get(name)).required().max_length(MAX_TEXT_LENGTH);
    let is_checked = |name: &str| typed.get(name) == "1";
    let fields = vec![
        text("username", "Username").autocomplete("off"),
        text("name", "Name").autocomplete("off"),
        Field::input("email", "Email address", "email").value(typed.get("email")).required().autocomplete("off"),
        Field::password("password", "Password", "new-password").hint("8 to 128 characters."),
        Field::checkbox("admin", "Administrator", is_checked("admin")),
        Field::checkbox("external", "External: sees no internal projects, creates none", is_checked("external")),
    ];
    let template = NewUserTemplate { layout, head, form: Form::new(fields, errors) };
    response::page_with_status(errors.status(), &template)
}

/// Creates a user.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = form(&cx, body).await?;
    let text = |name: &str| fields.text(name);
    let user = NewUser {
        admin: fields.get("admin") == "1",
        external: fields.get("external") == "1",
        ..NewUser::new(&text("username"), &text("email"), &text("name"))
    };
    let request = Unvalidated::valid(NewUserRequest { user, password: fields.get("password").to_owned() });
    let created = match cx.run_blocking(move |cx| users::prepare_create(cx, &request)).await {
        Ok((_, prepared)) => cx.write(move |tx| users::create(tx, &prepared)).await,
        Err(error) => Err(error),
    };
    match created {
        Ok(user) => Ok(done(&format!("{PATH}/{}", links::encode_path(&user.username)), "created")),
        Err(error) => render(&cx, &fields, &FormErrors::by_field(error)?).await,
    }
}
