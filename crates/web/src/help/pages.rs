//! The index, the Markdown guide and the use of the keyboard.

use std::sync::LazyLock;

use askama::Template;

use crate::{
    context::PageCx,
    error::PageResult,
    layout::Layout,
    links::ProjectLinks,
    response,
    text::{
        Markup,
        markdown::{self, Source},
    },
};

#[derive(Template)]
#[template(path = "help/index.html")]
struct IndexTemplate {
    layout: Layout,
}

#[derive(Template)]
#[template(path = "help/keyboard.html")]
struct KeyboardTemplate {
    layout: Layout,
}

#[derive(Template)]
#[template(path = "help/markdown.html")]
struct MarkdownTemplate {
    layout: Layout,
    parts: &'static [GuidePart],
}

/// A part of the guide: an explanation, then an example as it is typed and as it is shown.
struct GuidePart {
    explanation: Markup,
    example: Option<(String, Markup)>,
}

const GUIDE: &str = include_str!("../../assets/help/markdown.md");
const EXAMPLE_START: &str = "````markdown\n";
const EXAMPLE_END: &str = "\n````\n";

/// The guide never changes, so it is rendered once.
static GUIDE_PARTS: LazyLock<Vec<GuidePart>> = LazyLock::new(|| {
    let source = Source::Project(ProjectLinks::new("help"));
    let render = |text: &str| markdown::render(text, &source);
    let mut parts = Vec::new();
    let mut rest = GUIDE;
    while let Some((explanation, after)) = rest.split_once(EXAMPLE_START) {
        let (example, after) = after.split_once(EXAMPLE_END).unwrap_or((after, ""));
        parts
            .push(GuidePart { explanation: render(explanation), example: Some((example.to_owned(), render(example))) });
        rest = after;
    }
    if !rest.trim().is_empty() {
        parts.push(GuidePart { explanation: render(rest), example: None });
    }
    parts
});

pub(crate) async fn index(cx: PageCx) -> PageResult {
    let layout = Layout::new(&cx, cx.viewer().await?, "Help");
    response::page(&IndexTemplate { layout })
}

pub(crate) async fn keyboard(cx: PageCx) -> PageResult {
    let layout = Layout::new(&cx, cx.viewer().await?, "Keyboard · Help");
    response::page(&KeyboardTemplate { layout })
}

pub(crate) async fn markdown_guide(cx: PageCx) -> PageResult {
    let layout = Layout::new(&cx, cx.viewer().await?, "Markdown · Help");
    response::page(&MarkdownTemplate { layout, parts: &GUIDE_PARTS })
}
