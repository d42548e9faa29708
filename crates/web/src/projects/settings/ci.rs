//! The CI settings of a project: variables, runners and triggers. Secrets are shown in answers to forms only.

use askama::Template;
use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use forge::{
    Unvalidated,
    browse::InProject,
    ci_setting_pages::{self, CiSettings},
    triggers,
    variables::{self, NewVariable},
};
use model::{Runner, RunnerId, Time, TriggerId, tokens::Secret};

use super::navigation::{SettingsNavigation, SettingsPage};
use crate::{
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    response, text,
};

const VARIABLES_PER_PAGE: i64 = 100;

#[derive(Template)]
#[template(path = "projects/settings/ci.html")]
struct CiTemplate {
    layout: Layout,
    head: ProjectHead,
    navigation: SettingsNavigation,
    variables: Vec<VariableRow>,
    runners: Vec<RunnerRow>,
    /// The number of runners that are not shown.
    more_runners: i64,
    available_runners: Vec<Runner>,
    triggers: Vec<TriggerRow>,
    more_triggers: i64,
    registration_token: Option<String>,
    server_url: String,
    revealed: Revealed,
    fields: Fields,
    errors: FormErrors,
    pager: Pager,
}

struct VariableRow {
    key: String,
    /// The value, if it is revealed; the inner `None` stands for one that cannot be decrypted.
    value: Option<Option<String>>,
}

struct RunnerRow {
    runner: Runner,
    /// Whether it is enabled for this project only.
    is_exclusive: bool,
}

struct TriggerRow {
    id: TriggerId,
    token: Option<String>,
    created_at: Time,
    last_used: Option<Time>,
}

/// Which secrets a page shows.
#[derive(PartialEq, Eq)]
enum Revealed {
    Nothing,
    Variables,
    RegistrationToken,
    Triggers,
    /// The token of the trigger that was just created.
    NewTrigger(String),
}

impl CiTemplate {
    fn runner_url(&self, runner: &Runner, action: &str) -> String {
        self.head.links.to(&format!("runners/{}/{action}", runner.id))
    }

    fn reveals_variables(&self) -> bool {
        self.revealed == Revealed::Variables
    }

    fn reveals_triggers(&self) -> bool {
        self.revealed == Revealed::Triggers
    }
}

/// Shows the settings without secrets.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, Revealed::Nothing, Fields::default(), FormErrors::default()).await
}

/// Shows the settings with the secrets that were asked for.
pub(crate) async fn reveal(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let revealed = match fields.get("reveal") {
        "variables" => Revealed::Variables,
        "registration_token" => Revealed::RegistrationToken,
        "triggers" => Revealed::Triggers,
        _ => Revealed::Nothing,
    };
    render(&cx, revealed, Fields::default(), FormErrors::default()).await
}

/// Adds a variable.
pub(crate) async fn add_variable(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let project = cx.project();
    let new = Unvalidated::valid(NewVariable { key: fields.text("key"), value: value(&fields) });
    match cx.write(move |tx| variables::create(tx, &project, &new)).await {
        Ok(_) => Ok(back(&cx)),
        Err(error) => {
            let errors = FormErrors::of(error, &["key", "value"])?;
            render(&cx, Revealed::Nothing, fields, errors).await
        }
    }
}

/// Sets the value of a variable.
pub(crate) async fn update_variable(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, key) = (cx.project(), cx.params.get("key").to_owned());
    let new = Unvalidated::valid(Some(value(&fields)));
    match cx.write(move |tx| variables::update(tx, &project, &key, &new)).await {
        Ok(_) => Ok(back(&cx)),
        Err(error) => {
            let errors = FormErrors::of(error, &[])?;
            render(&cx, Revealed::Nothing, Fields::default(), errors).await
        }
    }
}

/// Deletes a variable.
pub(crate) async fn delete_variable(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, key) = (cx.project(), cx.params.get("key").to_owned());
    cx.write(move |tx| variables::delete(tx, &project, &key)).await?;
    Ok(back(&cx))
}

/// Creates a trigger and shows its token.
pub(crate) async fn add_trigger(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let project = cx.project();
    match cx.write(move |tx| triggers::create(tx, &project)).await {
        Ok(trigger) => {
            let revealed = Revealed::NewTrigger(trigger.token.reveal().to_owned());
            render(&cx, revealed, Fields::default(), FormErrors::default()).await
        }
        Err(error) => {
            let errors = FormErrors::of(error, &[])?;
            render(&cx, Revealed::Nothing, Fields::default(), errors).await
        }
    }
}

/// Deletes a trigger.
pub(crate) async fn delete_trigger(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), TriggerId::new(cx.number("trigger")?));
    cx.write(move |tx| triggers::delete_by_id(tx, &project, id)).await?;
    Ok(back(&cx))
}

/// Returns the value of a variable as it was typed, blanks included.
fn value(fields: &Fields) -> Secret {
    Secret::new(fields.get("value").replace("\r\n", "\n"))
}

fn back(cx: &PageCx) -> Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).to("settings/ci_cd"))
}

async fn render(cx: &PageCx, revealed: Revealed, fields: Fields, errors: FormErrors) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, VARIABLES_PER_PAGE);
    let (viewer, found) = cx.read(move |tx| ci_setting_pages::get(tx, &project, &page)).await?;
    let InProject { project, value: settings } = found;
    let CiSettings { variables, runners, exclusive_runners, available_runners, triggers, registration_token } =
        settings;
    let url = ProjectLinks::new(&project.full_path()).to("settings/ci_cd");
    let reveal = |secret: &Secret| secret.reveal().to_owned();
    let is_exclusive = |id: RunnerId| exclusive_runners.contains(&id);
    let status = errors.status();
    let template = CiTemplate {
        head: ProjectHead::new(&project, Tab::Settings, &viewer),
        navigation: SettingsNavigation::new(&project, &viewer, SettingsPage::Ci),
        layout: Layout::new(cx, viewer, format!("CI/CD settings · {}", project.full_path())),
        pager: Pager::of(&url.parse().unwrap_or_default(), &query, &variables),
        variables: variables
            .items
            .iter()
            .map(|variable| VariableRow {
                key: variable.key.clone(),
                value: (revealed == Revealed::Variables).then(|| variable.value.as_ref().map(reveal)),
            })
            .collect(),
        more_runners: runners.total.at_least() - count(runners.items.len()),
        runners: runners
            .items
            .into_iter()
            .map(|runner| RunnerRow { is_exclusive: is_exclusive(runner.id), runner })
            .collect(),
        available_runners,
        more_triggers: triggers.total.at_least() - count(triggers.items.len()),
        triggers: triggers
            .items
            .iter()
            .map(|trigger| TriggerRow {
                id: trigger.id,
                token: (revealed == Revealed::Triggers).then(|| reveal(&trigger.token)),
                created_at: trigger.created_at,
                last_used: trigger.last_used,
            })
            .collect(),
        registration_token: (revealed == Revealed::RegistrationToken).then(|| reveal(&registration_token)),
        server_url: cx.origin.site.page("").trim_end_matches('/').to_owned(),
        revealed,
        fields,
        errors,
    };
    let mut page = response::page_with_status(status, &template)?;
    page.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(page)
}

fn count(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}
