//! Files sent to a project.

use axum::extract::State;
use forge::{
    Forge,
    uploads::{self, Refusal},
};
use model::Upload;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    error::ApiError,
    extract::{Credentials, InProject},
    file_part::FilePart,
    reply::{Created, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new().post_file("/projects/{id}/uploads", "Uploads a file, for use in texts", create)
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    FilePart { name, content }: FilePart,
) -> Reply<Created<UploadJson>> {
    let upload = uploads::receive(&forge, caller, project, name, content, app.upload_limit()).await?;
    Ok(Created(upload.into()))
}

impl From<Refusal<Self>> for ApiError {
    fn from(refusal: Refusal<Self>) -> Self {
        match refusal {
            Refusal::TooLarge => Self::TooLarge,
            Refusal::Source(error) => error,
            Refusal::Forge(error) => Self::Forge(error),
        }
    }
}

/// A file as a text can link it.
#[derive(Serialize, JsonSchema)]
struct UploadJson {
    alt: String,
    url: String,
    markdown: String,
}

impl From<Upload> for UploadJson {
    fn from(upload: Upload) -> Self {
        Self { alt: upload.alt().to_owned(), url: upload.url(), markdown: upload.markdown() }
    }
}
