//! What the page with the CI settings of a project shows.

use model::{Page, Runner, Slice, tokens::Secret};

use crate::{
    ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    browse::InProject,
    runners,
    triggers::{self, TriggerDetail},
    variables::{self, DecryptedVariable},
};

/// The maximum numbers of runners and triggers that the page shows.
const MAX_RUNNERS: i64 = 50;
const MAX_TRIGGERS: i64 = 50;

/// The CI settings of a project.
pub struct CiSettings {
    /// A page of the variables, oldest first.
    pub variables: Slice<DecryptedVariable>,
    /// The runners of the project and the shared ones; the first of them if there are many.
    pub runners: Slice<Runner>,
    /// The specific runners among them that are enabled for this project only.
    pub exclusive_runners: Vec<model::RunnerId>,
    /// Runners of other projects that the visitor can enable.
    pub available_runners: Vec<Runner>,
    /// The triggers; the first of them if there are many.
    pub triggers: Slice<TriggerDetail>,
    /// The token that registers runners for the project.
    pub registration_token: Secret,
}

/// Returns the CI settings of a project with a page of its variables.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<InProject<CiSettings>> {
    let found = tx.project(project, ProjectAbility::AdministerCi)?;
    let variables = variables::list(tx, project, page)?;
    let first = |size: i64| Unvalidated::valid(Page { number: 1, size });
    let runners = runners::list_of_project(tx, project, &Unvalidated::valid(None), &first(MAX_RUNNERS))?;
    let mut exclusive_runners = Vec::new();
    for runner in runners.items.iter().filter(|runner| !runner.is_shared) {
        if store::runners::count_projects(tx.db(), runner.id)? == 1 {
            exclusive_runners.push(runner.id);
        }
    }
    let viewer = tx.viewer();
    let available_runners = store::runners::list_enableable(tx.db(), &viewer, found.id, MAX_RUNNERS)?;
    let triggers = triggers::list(tx, project, &first(MAX_TRIGGERS))?;
    let registration_token = tx.shared().instance_key.runners_token(found.id, &found.runners_seed);
    let value = CiSettings { variables, runners, exclusive_runners, available_runners, triggers, registration_token };
    Ok(InProject { project: found, value })
}
