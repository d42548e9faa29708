//! Sign-in and sign-out.

use askama::Template;
use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use forge::{
    Caller, Error, Unvalidated,
    sessions::{self, PasswordLogin},
    web_sessions,
};
use model::web_sessions::MAX_LIFETIME;

use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    form_tokens,
    forms::Fields,
    layout::Layout,
    links, response,
};

const AFTER_SIGN_IN: &str = "/dashboard";

#[derive(Template)]
#[template(path = "accounts/sign_in.html")]
struct SignInTemplate {
    layout: Layout,
    form_token: String,
    login: String,
    return_to: String,
    error: Option<&'static str>,
}

/// Shows the form.
pub(crate) async fn form(cx: PageCx) -> PageResult {
    let viewer = cx.viewer().await?;
    let return_to = links::local_path(cx.query().get("return_to")).unwrap_or_default().to_owned();
    if viewer.user().is_some() {
        return Ok(response::redirect(if return_to.is_empty() { AFTER_SIGN_IN } else { &return_to }));
    }
    let layout = Layout::new(&cx, viewer, "Sign in");
    render_form(&cx, StatusCode::OK, layout, String::new(), return_to, None)
}

fn render_form(
    cx: &PageCx,
    status: StatusCode,
    layout: Layout,
    login: String,
    return_to: String,
    error: Option<&'static str>,
) -> PageResult {
    let known_secret = cx.cookie(form_tokens::SIGN_IN_COOKIE).map(ToOwned::to_owned);
    let secret = known_secret.clone().unwrap_or_else(|| URL_SAFE_NO_PAD.encode(cx.forge().random_bytes::<32>()));
    let form_token = form_tokens::create(&secret, cx.forge().random_bytes());
    let template = SignInTemplate { layout, form_token, login, return_to, error };
    let mut page = response::page_with_status(status, &template)?;
    if known_secret.is_none() {
        set_cookie(cx, &mut page, form_tokens::SIGN_IN_COOKIE, &secret, "; SameSite=Strict");
    }
    Ok(page)
}

/// Verifies the password and creates a session.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = Fields::read(body).await?;
    form_tokens::check(&cx, &fields, cx.cookie(form_tokens::SIGN_IN_COOKIE))?;
    count_attempt(&cx)?;
    let login = fields.get("login").trim().to_owned();
    let credentials =
        Unvalidated::valid(PasswordLogin { login: login.clone(), password: fields.get("password").to_owned() });
    let verified =
        cx.forge().run_blocking(Caller::anonymous(), move |cx| sessions::verify_password(cx, &credentials)).await;
    let return_to = links::local_path(fields.get("return_to")).unwrap_or_default().to_owned();
    let verified = match verified {
        Ok(verified) => verified,
        Err(Error::Unauthenticated) => {
            sessions::log_failure(cx.forge(), "web", cx.origin.address, &login).await;
            let layout = Layout::new(&cx, cx.viewer().await?, "Sign in");
            let error = Some("The username or the password is wrong.");
            return render_form(&cx, StatusCode::UNPROCESSABLE_ENTITY, layout, login, return_to, error);
        }
        Err(error) => return Err(error.into()),
    };
    let caller = verified.caller().with_log_identity(cx.origin.log_identity.clone());
    let secret = cx.forge().write(caller, move |tx| web_sessions::create(tx, &verified)).await?;
    let mut page = response::redirect(if return_to.is_empty() { AFTER_SIGN_IN } else { &return_to });
    let attributes = format!("; SameSite=Lax; Max-Age={}", MAX_LIFETIME.as_secs());
    set_cookie(&cx, &mut page, session_cookie(&cx), secret.reveal(), &attributes);
    Ok(page)
}

/// Counts an attempt to enter a password; fails if the client network has made too many.
pub(super) fn count_attempt(cx: &PageCx) -> Result<(), PageError> {
    cx.pages.0.sign_in_limiter.check(cx.origin.address).map_err(|wait| {
        metrics::counter!("gable_limited_requests_total", "kind" => "sign_in").increment(1);
        PageError::TooManySignIns(wait.as_secs() + 1)
    })
}

/// Ends the session.
pub(crate) async fn end(cx: PageCx, body: Body) -> PageResult {
    let fields = Fields::read(body).await?;
    let Some(secret) = cx.session() else { return Ok(response::redirect("/")) };
    form_tokens::check(&cx, &fields, Some(secret.reveal()))?;
    match cx.write(move |tx| web_sessions::end(tx, &secret)).await {
        // The session has expired already.
        Ok(()) | Err(Error::Unauthenticated) => {}
        Err(error) => return Err(error.into()),
    }
    let mut page = response::redirect("/");
    set_cookie(&cx, &mut page, session_cookie(&cx), "", "; SameSite=Lax; Max-Age=0");
    Ok(page)
}

fn session_cookie(cx: &PageCx) -> &'static str {
    if cx.origin.is_secure { web_sessions::SECURE_COOKIE } else { web_sessions::COOKIE }
}

fn set_cookie(cx: &PageCx, page: &mut Response, name: &str, value: &str, attributes: &str) {
    let secure = if cx.origin.is_secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly{secure}{attributes}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        page.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
