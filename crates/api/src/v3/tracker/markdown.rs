//! Markdown as HTML, for texts that need not be stored.

use forge::{
    ProjectRef,
    references::{self, ResolvedText, TextPreview},
};
use markup::{
    links::ProjectLinks,
    markdown::{self, Source},
    references::ReferenceLinks,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::CallerCx,
    openapi::Tag,
    params::{FromParams, ParamReader, Params},
    reply::{Created, Reply},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Markdown)
        .post("/markdown", "Render Markdown as HTML", render)
        .allow_anonymous()
        .with_statuses(&[404])
}

/// Renders a text as the pages do: references are links to what the caller can see, and to nothing else.
async fn render(cx: CallerCx, Params(params): Params<RenderMarkdown>, site: Site) -> Reply<Created<HtmlJson>> {
    let preview = params.map(|params| params.0);
    let html = cx
        .run_blocking(move |cx| {
            let ResolvedText { text, project, references } = references::resolve_preview(cx, &preview)?;
            let references = ReferenceLinks::new(references, project.as_ref());
            let source = match project {
                Some(project) => Source::Project(ProjectLinks::new(&project.full_path())),
                None => Source::Server,
            };
            Ok(markdown::render_standalone(&text, &source, &references, site.root()).to_string())
        })
        .await?;
    Ok(Created(HtmlJson { html }))
}

struct RenderMarkdown(TextPreview);

impl FromParams for RenderMarkdown {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let text = from.content("text", true, "The text").unwrap_or_default();
        let gfm = from.flag("gfm", "Whether references such as `#1` and `@user` become links; default: false");
        let project = from.text("project", "The full path of the project that the text belongs to");
        let resolves_references = gfm.unwrap_or(false);
        Self(TextPreview { text, project: project.map(ProjectRef::Path), resolves_references })
    }
}

/// A rendered text.
#[derive(Serialize, JsonSchema)]
struct HtmlJson {
    html: String,
}
