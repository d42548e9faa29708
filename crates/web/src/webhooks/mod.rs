//! Pages of the webhooks of a project and their deliveries.

pub(crate) mod deliveries;
mod hooks;

use crate::routes::{Route, get, post};

pub(crate) const ROUTES: &[Route] = &[
    get!("/{project}/-/hooks", hooks::list),
    post!("/{project}/-/hooks", hooks::create),
    get!("/{project}/-/hooks/{hook}/edit", hooks::show),
    post!("/{project}/-/hooks/{hook}/edit", hooks::update),
    post!("/{project}/-/hooks/{hook}/test", hooks::test),
    post!("/{project}/-/hooks/{hook}/delete", hooks::delete),
    get!("/{project}/-/hooks/{hook}/hook_logs/{delivery}", deliveries::show),
    post!("/{project}/-/hooks/{hook}/hook_logs/{delivery}/retry", deliveries::resend),
];
