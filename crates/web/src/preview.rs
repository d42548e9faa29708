//! The preview of a text that is written as Markdown: the form is shown again as it was typed, with the rendered text above it,
//! and nothing is stored.

use forge::ProjectAbility;

use crate::{
    context::PageCx,
    error::PageError,
    forms::Fields,
    links::ProjectLinks,
    text::{
        Markup,
        markdown::{self, Source, SourceFile},
        plain,
        references::ReferenceLinks,
    },
};

/// The name of the button that shows a preview.
const BUTTON: &str = "preview";

/// Returns whether a form was submitted to see a preview.
pub(crate) fn is_requested(fields: &Fields) -> bool {
    fields.has(BUTTON)
}

impl PageCx {
    /// Renders a text as the pages of the project in the path do.
    pub(crate) async fn preview(&self, text: String) -> Result<Markup, PageError> {
        self.render_preview(text, Source::Project).await
    }

    /// Renders the content of a file as its page does. Only Markdown has another look than its source.
    pub(crate) async fn preview_file(&self, branch: &str, path: &str, text: String) -> Result<Markup, PageError> {
        if !markdown::is_markdown(path) {
            return Ok(plain::preformatted(&text));
        }
        let (revision, path) = (branch.to_owned(), path.to_owned());
        let source = move |links| Source::File(SourceFile { links, revision: revision.clone(), path: path.clone() });
        self.render_preview(text, source).await
    }

    async fn render_preview(
        &self,
        text: String,
        source: impl Fn(ProjectLinks) -> Source + Send + 'static,
    ) -> Result<Markup, PageError> {
        let project = self.project();
        let (_, html) = self
            .run_blocking(move |cx| {
                let project = cx.read(|tx| tx.project(&project, ProjectAbility::ViewProject))?;
                let references = ReferenceLinks::resolve(cx, &project, [text.as_str()])?;
                let source = source(ProjectLinks::new(&project.full_path()));
                Ok(markdown::render_with(&text, &source, &references))
            })
            .await?;
        Ok(html)
    }
}
