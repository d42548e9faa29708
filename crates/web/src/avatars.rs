//! The avatar on pages with settings: the image, a form to upload another one, and a button to remove it.

use axum::body::Body;
use forge::avatars::{self, AvatarTarget};
use model::avatars::NewAvatar;

use crate::{
    context::PageCx,
    error::PageError,
    fields::{Field, Form},
    form_errors::FormErrors,
};

/// The part of a page for an avatar, which `avatar.html` shows.
pub(crate) struct AvatarSection {
    /// The URL of the image; `None` if there is none to show.
    pub(crate) image: Option<String>,
    pub(crate) is_uploaded: bool,
    /// The URL that the forms are sent to.
    pub(crate) action: String,
    pub(crate) form: Form,
}

impl AvatarSection {
    pub(crate) fn new(action: String, image: Option<String>, is_uploaded: bool, errors: &FormErrors) -> Self {
        let hint = "A PNG, JPEG, GIF or WebP image of at most 200 KB. A square is best.";
        let field = Field::input("avatar", "Avatar", "file").hint(hint).required();
        Self { image, is_uploaded, action, form: Form::new(vec![field], errors) }
    }
}

/// Uploads or removes an avatar, as the submitted form says; returns the messages for the form if the file is not accepted.
pub(crate) async fn change(cx: &PageCx, body: Body, target: AvatarTarget) -> Result<FormErrors, PageError> {
    let (fields, file) = cx.form_with_file(body).await?;
    let changed = match file {
        _ if fields.is_checked("remove") => avatars::remove(cx.forge(), cx.caller(), target).await,
        Some(file) => {
            let file = NewAvatar { file_name: file.name, bytes: file.bytes };
            avatars::set(cx.forge(), cx.caller(), target, file).await
        }
        None => return Ok(FormErrors::one("avatar", "is missing: choose a file")),
    };
    match changed {
        Ok(()) => Ok(FormErrors::default()),
        Err(error) => FormErrors::by_field(error),
    }
}
