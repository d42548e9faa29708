//! The first administrator, who is created by the first start.

use anyhow::{Context as _, Result};
use forge::{
    Forge,
    first_start::{self, FirstAdmin, FirstAdminOptions},
};
use model::tokens::Secret;
use tracing::warn;

use crate::{
    data_folder::{DataFolder, ROOT_CREDENTIALS},
    exit::print_line,
    secret_variables::{self, ROOT_PASSWORD, ROOT_TOKEN},
};

/// Reads the credentials that the operator has chosen.
pub(super) fn read_options() -> Result<FirstAdminOptions> {
    let read = |name: &str| Ok::<_, anyhow::Error>(secret_variables::read(name)?.map(Secret::new));
    Ok(FirstAdminOptions { password: read(ROOT_PASSWORD)?, token: read(ROOT_TOKEN)? })
}

/// Creates the first administrator and prints the generated credentials.
pub(super) async fn create(forge: &Forge, folder: &DataFolder, options: FirstAdminOptions) -> Result<()> {
    let context = "cannot create the first administrator";
    let Some(admin) = first_start::plan(forge, options).await.context(context)? else { return Ok(()) };
    let lines = describe(&admin);
    // The file first: after a crash in between, the next start overwrites it.
    let file = if lines.is_empty() {
        None
    } else {
        Some(folder.write_secret(ROOT_CREDENTIALS, &format!("username: {}\n{lines}", admin.username))?)
    };
    let username = admin.username;
    if !first_start::create(forge, admin).await.context(context)? {
        // Another server was faster; these credentials are not valid.
        if let Some(file) = file {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        if first_start::plan(forge, FirstAdminOptions::default()).await.context(context)?.is_some() {
            warn!(
                "there is no administrator, and the username {username} is taken; create one with `gable admin user \
                 create --admin`"
            );
        }
        return Ok(());
    }
    if let Some(file) = file {
        print_line(&format!(
            "created the administrator {username}; these credentials are printed once and stored in {}",
            file.display()
        ));
        print_line(lines.trim_end());
    }
    Ok(())
}

/// Returns the generated credentials, as lines of text.
fn describe(admin: &FirstAdmin) -> String {
    let mut lines = String::new();
    if admin.password_generated {
        lines += &format!("password: {}\n", admin.password.reveal());
    }
    if admin.token_generated {
        lines += &format!("token: {}\n", admin.token.reveal());
        if let Some(end) = admin.token_expires_at {
            lines += &format!("token expires: {}\n", end.strftime("%Y-%m-%d"));
        }
    }
    lines
}
