//! Files uploaded to a project.

use axum::extract::State;
use forge::uploads::{self, UploadError};
use model::Upload;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::ProjectCx,
    error::ApiError,
    file_part::FilePart,
    openapi::Tag,
    reply::{Created, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Uploads).post_file("/projects/{id}/uploads", "Upload a file for use in Markdown", create)
}

async fn create(
    State(app): State<App>,
    ProjectCx { forge, caller, project }: ProjectCx,
    FilePart { name, content }: FilePart,
) -> Reply<Created<UploadJson>> {
    let upload = uploads::receive(&forge, caller, project, name, content, app.upload_limit()).await?;
    Ok(Created(upload.into()))
}

impl From<UploadError<Self>> for ApiError {
    fn from(refusal: UploadError<Self>) -> Self {
        match refusal {
            UploadError::TooLarge => Self::BodyTooLarge,
            UploadError::Source(error) => error,
            UploadError::Forge(error) => Self::Forge(error),
        }
    }
}

/// An uploaded file and the Markdown that links it.
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
