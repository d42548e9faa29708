//! Markdown as HTML. The result goes through a sanitizer, so that nothing in a text can run scripts, load files of other
//! hosts, or look like a part of the page around it.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    fmt,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use ammonia::{Builder, UrlRelative};
use comrak::{
    Anchorizer, Arena, Options,
    adapters::{HeadingAdapter, HeadingMeta, SyntaxHighlighterAdapter},
    format_html_with_plugins,
    nodes::{AstNode, NodeValue, Sourcepos},
    options::Plugins,
    try_parse_document,
};

use html5ever::{
    LocalName,
    tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts},
};

use crate::{
    Markup, highlight,
    links::{self, ProjectLinks},
    plain,
    references::ReferenceLinks,
};

/// Longer texts are shown as they are, in bytes.
const MAX_BYTES: usize = forge::references::MAX_RENDERED_BYTES;
/// The time after which a text is shown as it is.
const TIME_LIMIT: Duration = Duration::from_millis(300);
/// The time for highlighting all code in a text.
const HIGHLIGHT_TIME_LIMIT: Duration = Duration::from_millis(100);
/// The maximum depth of nested quotes, lists and so on; deeper texts are shown as they are.
const MAX_DEPTH: usize = 100;
/// The maximum number of HTML tags in a text; with more it is shown as it is.
const MAX_TAGS: usize = 5000;
/// The maximum size of the rendered HTML, in bytes.
const MAX_HTML_BYTES: usize = 4 << 20;
/// Prepended to all ids, so that a text cannot have an element with an id of the page around it.
const ID_PREFIX: &str = "user-content-";

/// The scheme of links to what a text refers to, until the sanitizer has seen them: their paths are those of pages, and not of
/// files in the repository.
const REFERENCE_SCHEME: &str = "gable-reference";

/// Where relative links of a text lead to.
#[derive(Clone, Debug)]
pub enum Source {
    /// To files of the repository.
    File(SourceFile),
    /// To uploads of the project.
    Project(ProjectLinks),
    /// To pages of the server.
    Server,
}

/// The file that contains a text, which relative links start from.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The URLs of the project.
    pub links: ProjectLinks,
    /// The branch, the tag or the commit.
    pub revision: String,
    /// The path of the file.
    pub path: String,
}

/// Returns whether a file contains Markdown.
pub fn is_markdown(path: &str) -> bool {
    let extension = path.rsplit('.').next().unwrap_or_default();
    ["md", "markdown", "mkd", "mdown"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Renders a text without links for its references.
pub fn render(text: &str, source: &Source) -> Markup {
    try_render(text, source, None, Destination::Page).map_or_else(|| plain::preformatted(text), Markup)
}

/// Renders a text with links for its references.
pub fn render_with(text: &str, source: &Source, references: &ReferenceLinks) -> Markup {
    try_render(text, source, Some(references), Destination::Page).map_or_else(|| plain::preformatted(text), Markup)
}

/// Renders a text for a client that shows it anywhere: links have the URL of the server, and headings keep their levels.
pub fn render_standalone(text: &str, source: &Source, references: &ReferenceLinks, root_url: &str) -> Markup {
    let destination = Destination::Elsewhere { root_url };
    try_render(text, source, Some(references), destination).map_or_else(|| plain::preformatted(text), Markup)
}

/// Where the HTML of a text is shown.
#[derive(Clone, Copy)]
enum Destination<'a> {
    /// On a page of this server, below the title of the page.
    Page,
    /// Anywhere else; the URL of the server has no trailing slash.
    Elsewhere { root_url: &'a str },
}

fn try_render(
    text: &str,
    source: &Source,
    references: Option<&ReferenceLinks>,
    destination: Destination<'_>,
) -> Option<String> {
    if text.len() > MAX_BYTES {
        return None;
    }
    // Characters that reorder text could make it look different from what it is.
    let text: Cow<'_, str> = if text.contains(plain::is_bidi_control) {
        text.replace(plain::is_bidi_control, "\u{fffd}").into()
    } else {
        text.into()
    };
    let options = options();
    let arena = Arena::new();
    let deadline = Instant::now() + TIME_LIMIT;
    let root = try_parse_document(&arena, &text, &options, &|| Instant::now() >= deadline).ok()?;
    if !is_moderate(root) {
        return None;
    }
    escape_special_elements(root);
    replace_foreign_images(root);
    replace_checkboxes(root, &arena);
    if let Some(references) = references {
        link_references(root, &arena, references);
    }
    let highlighter = Highlighter::default();
    let mut plugins = Plugins::default();
    plugins.render.codefence_syntax_highlighter = Some(&highlighter);
    let lowered_by = u8::from(matches!(destination, Destination::Page));
    let headings = Headings { anchorizer: Mutex::default(), lowered_by };
    plugins.render.heading_adapter = Some(&headings);
    let mut html = String::with_capacity(text.len() * 2);
    format_html_with_plugins(root, &options, &mut html, &plugins).ok()?;
    let is_small = html.len() <= MAX_HTML_BYTES && SanitizerCost::of(&html).is_moderate();
    is_small.then(|| sanitize(&html, source, destination))
}

fn options() -> Options<'static> {
    let mut options = Options::default();
    options.extension.strikethrough = true;
    options.extension.table = true;
    options.extension.autolink = true;
    options.extension.tasklist = true;
    options.extension.footnotes = true;
    options.extension.front_matter_delimiter = Some("---".to_owned());
    // Escaped characters have nodes of their own, so that they are no part of a reference.
    options.render.escaped_char_spans = true;
    // The sanitizer decides which HTML is allowed.
    options.render.r#unsafe = true;
    options
}

/// Returns whether a text can be rendered and sanitized in a short time.
fn is_moderate<'a>(root: &'a AstNode<'a>) -> bool {
    let mut tags = 0;
    let mut pending = vec![(root, 0)];
    while let Some((node, depth)) = pending.pop() {
        if let NodeValue::HtmlBlock(block) = &node.data().value {
            tags += block.literal.matches('<').count();
        }
        if matches!(node.data().value, NodeValue::HtmlInline(_)) {
            tags += 1;
        }
        if depth > MAX_DEPTH || tags > MAX_TAGS {
            return false;
        }
        pending.extend(node.children().map(|child| (child, depth + 1)));
    }
    true
}

/// Elements with content that a parser of HTML reads in another way. None of them is allowed.
const SPECIAL_ELEMENTS: [&str; 14] = [
    "![cdata[",
    "frameset",
    "iframe",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "script",
    "select",
    "style",
    "template",
    "textarea",
    "title",
    "xmp",
];

/// Shows the tags of special elements as text, so that [`SanitizerCost`] reads a text as the sanitizer does.
fn escape_special_elements<'a>(root: &'a AstNode<'a>) {
    for node in root.descendants() {
        match &mut node.data_mut().value {
            NodeValue::HtmlBlock(block) => block.literal = escape_special_tags(&block.literal),
            NodeValue::HtmlInline(literal) => *literal = escape_special_tags(literal),
            _ => {}
        }
    }
}

fn escape_special_tags(html: &str) -> String {
    let mut parts = html.split('<');
    let mut escaped = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.strip_prefix('/').unwrap_or(part).as_bytes();
        let starts_with = |special: &&str| {
            name.get(..special.len()).is_some_and(|start| start.eq_ignore_ascii_case(special.as_bytes()))
        };
        escaped.push_str(if SPECIAL_ELEMENTS.iter().any(starts_with) { "&lt;" } else { "<" });
        escaped.push_str(part);
    }
    escaped
}

/// An upper bound of what the sanitizer creates. Parsers of HTML repeat formatting elements that are not closed in each
/// paragraph that follows, with their attributes, so a small text can become a large document.
#[derive(Default)]
struct SanitizerCost {
    state: RefCell<OpenElements>,
    elements: Cell<usize>,
    bytes: Cell<usize>,
}

/// The elements that are not closed at a place in a text.
#[derive(Default)]
struct OpenElements {
    /// The names of all elements, the innermost last, with what is repeated of them.
    names: Vec<(LocalName, Option<Repeated>)>,
    /// How many formatting elements with the same attributes are open.
    formatting: HashMap<String, usize>,
    count: usize,
    bytes: usize,
}

/// A formatting element that is repeated.
struct Repeated {
    key: String,
    size: usize,
}

impl SanitizerCost {
    const MAX_ELEMENTS: usize = 1_000_000;
    const MAX_BYTES: usize = 64 << 20;
    /// The number of elements that a misplaced end of a formatting element can create.
    const PER_MISPLACED_END: usize = 32;

    fn of(html: &str) -> Self {
        let tokenizer = Tokenizer::new(Self::default(), TokenizerOpts::default());
        let input = BufferQueue::default();
        input.push_back(html.into());
        let _ = tokenizer.feed(&input);
        tokenizer.end();
        tokenizer.sink
    }

    fn is_moderate(&self) -> bool {
        self.elements.get() <= Self::MAX_ELEMENTS && self.bytes.get() <= Self::MAX_BYTES
    }

    fn add(&self, factor: usize) {
        let state = self.state.borrow();
        self.elements.set(self.elements.get().saturating_add(factor + state.count));
        self.bytes.set(self.bytes.get().saturating_add(factor.saturating_mul(state.bytes)));
    }
}

impl OpenElements {
    /// The elements that are repeated.
    const FORMATTING: [&str; 14] =
        ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"];
    /// The elements that have no end.
    const VOID: [&str; 13] =
        ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"];
    /// A parser repeats at most three equal elements.
    const MAX_EQUAL: usize = 3;

    fn start(&mut self, tag: &Tag) {
        if Self::VOID.contains(&&*tag.name) {
            return;
        }
        let repeated = Self::FORMATTING.contains(&&*tag.name).then(|| {
            let mut key = tag.name.to_string();
            for attribute in &tag.attrs {
                key.extend(["\0", &attribute.name.local, "\0", &attribute.value]);
            }
            let size = key.len();
            let seen = self.formatting.entry(key.clone()).or_default();
            *seen += 1;
            if *seen <= Self::MAX_EQUAL {
                self.count += 1;
                self.bytes += size;
            }
            Repeated { key, size }
        });
        self.names.push((tag.name.clone(), repeated));
    }

    /// Ends the innermost element, if it has the name of the tag; returns whether it has. Otherwise nothing is ended, as a parser
    /// may do.
    fn end(&mut self, tag: &Tag) -> bool {
        let Some((_, repeated)) = self.names.pop_if(|(name, _)| *name == tag.name) else { return false };
        if let Some(Repeated { key, size }) = repeated
            && let Some(seen) = self.formatting.get_mut(&key)
        {
            *seen -= 1;
            if *seen < Self::MAX_EQUAL {
                self.count -= 1;
                self.bytes -= size;
            }
        }
        true
    }
}

impl TokenSink for SanitizerCost {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        // The rest does not matter.
        if self.is_moderate() {
            match token {
                Token::TagToken(tag) if tag.kind == TagKind::StartTag => {
                    self.add(1);
                    self.state.borrow_mut().start(&tag);
                }
                Token::TagToken(tag) => {
                    let is_nested = self.state.borrow_mut().end(&tag);
                    let is_misplaced = !is_nested && OpenElements::FORMATTING.contains(&&*tag.name);
                    self.add(if is_misplaced { Self::PER_MISPLACED_END } else { 1 });
                }
                Token::CharacterTokens(_) => self.add(1),
                _ => {}
            }
        }
        TokenSinkResult::Continue
    }
}

/// Turns images of other hosts into links, because loading them would tell those hosts who reads the page.
fn replace_foreign_images<'a>(root: &'a AstNode<'a>) {
    for node in root.descendants() {
        let in_link = node.ancestors().skip(1).any(|node| matches!(node.data().value, NodeValue::Link(_)));
        let mut data = node.data_mut();
        if let NodeValue::Image(image) = &data.value
            && is_foreign(&image.url)
        {
            let link = image.clone();
            data.value = if in_link { NodeValue::Emph } else { NodeValue::Link(link) };
        }
    }
}

/// Replaces the check boxes of lists by characters: an input without a label means nothing to a screen reader.
fn replace_checkboxes<'a>(root: &'a AstNode<'a>, arena: &'a Arena<'a>) {
    for node in root.descendants() {
        let NodeValue::TaskItem(item) = &node.data().value else { continue };
        let text = if item.symbol.is_some() { "☑ " } else { "☐ " };
        if let Some(first) = node.first_child() {
            first.prepend(arena.alloc(NodeValue::Text(text.into()).into()));
        }
    }
}

/// Replaces the references in texts outside of links by links.
fn link_references<'a>(root: &'a AstNode<'a>, arena: &'a Arena<'a>, references: &ReferenceLinks) {
    let prefix = format!("{REFERENCE_SCHEME}:");
    let texts: Vec<&'a AstNode<'a>> =
        root.descendants().filter(|node| matches!(node.data().value, NodeValue::Text(_))).collect();
    for node in texts {
        let NodeValue::Text(text) = node.data().value.clone() else { continue };
        let parts = references.split(&text, &prefix);
        if parts.is_empty() || node.ancestors().any(|node| matches!(node.data().value, NodeValue::Link(_))) {
            continue;
        }
        for (before, html) in parts {
            let values = [NodeValue::Text(before.to_owned().into()), NodeValue::HtmlInline(html)];
            for value in values {
                node.insert_before(arena.alloc(value.into()));
            }
        }
        node.detach();
    }
}

/// Returns whether a URL leads to another host, or has a scheme.
fn is_foreign(url: &str) -> bool {
    // Browsers ignore these characters.
    let url = url.replace(['\t', '\r', '\n'], "");
    let url = url.trim_start_matches(|letter: char| letter <= ' ');
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    let has_scheme = scheme.is_some_and(|scheme| !scheme.is_empty() && !scheme.contains(['/', '?', '#']));
    has_scheme || url.starts_with("//") || url.starts_with("\\\\") || url.starts_with("/\\")
}

/// Highlights code blocks.
#[derive(Default)]
struct Highlighter {
    /// Set at the first block, when the grammars are loaded.
    deadline: OnceLock<Instant>,
}

impl SyntaxHighlighterAdapter for Highlighter {
    fn write_highlighted(&self, output: &mut dyn fmt::Write, language: Option<&str>, code: &str) -> fmt::Result {
        let language = language.unwrap_or_default().split([' ', ',']).next().unwrap_or_default();
        highlight::load_grammars();
        let deadline = *self.deadline.get_or_init(|| Instant::now() + HIGHLIGHT_TIME_LIMIT);
        output.write_str(&highlight::highlight_block(language, code, deadline))
    }

    fn write_pre_tag(&self, output: &mut dyn fmt::Write, _: HashMap<&'static str, Cow<'_, str>>) -> fmt::Result {
        output.write_str("<pre>")
    }

    fn write_code_tag(&self, output: &mut dyn fmt::Write, _: HashMap<&'static str, Cow<'_, str>>) -> fmt::Result {
        output.write_str("<code>")
    }
}

/// Renders headings with ids, and some levels lower.
struct Headings {
    anchorizer: Mutex<Anchorizer>,
    lowered_by: u8,
}

impl Headings {
    fn level(&self, heading: &HeadingMeta) -> u8 {
        (heading.level + self.lowered_by).min(6)
    }
}

impl HeadingAdapter for Headings {
    fn enter(&self, output: &mut dyn fmt::Write, heading: &HeadingMeta, _: Option<Sourcepos>) -> fmt::Result {
        let id = self.anchorizer.lock().unwrap_or_else(PoisonError::into_inner).anchorize(&heading.content);
        let mut escaped = String::new();
        plain::escape_into(&mut escaped, &id);
        write!(output, "<h{} id=\"{escaped}\">", self.level(heading))
    }

    fn exit(&self, output: &mut dyn fmt::Write, heading: &HeadingMeta) -> fmt::Result {
        write!(output, "</h{}>", self.level(heading))
    }
}

fn sanitize(html: &str, source: &Source, destination: Destination<'_>) -> String {
    let source = source.clone();
    let root_url = match destination {
        Destination::Page => String::new(),
        Destination::Elsewhere { root_url } => root_url.to_owned(),
    };
    let mut builder = Builder::default();
    builder
        .add_tags(["section", "details", "summary"])
        .rm_tags(["map", "area", "article", "aside", "footer", "header", "nav"])
        .add_tag_attributes("details", ["open"])
        .add_tag_attributes("td", ["align"])
        .add_tag_attributes("th", ["align"])
        .add_tag_attributes("p", ["align"])
        .add_tag_attributes("div", ["align"])
        .add_generic_attributes(["id"])
        .add_allowed_classes("span", ["c", "e", "n", "s", "k", "f", "t", "control"])
        .add_allowed_classes("section", ["footnotes"])
        .add_allowed_classes("a", ["tag"])
        .id_prefix(Some(ID_PREFIX))
        .url_schemes(HashSet::from(["http", "https", "mailto", "ssh", "git", "irc", "ircs", "xmpp", REFERENCE_SCHEME]))
        .url_relative(UrlRelative::PassThrough)
        .link_rel(Some("nofollow noopener noreferrer"))
        .attribute_filter(move |element, attribute, value| match (element, attribute) {
            ("a", "href") => rewrite_link(value, &source).map(|url| with_root(url, &root_url)),
            ("img", "src") => rewrite_image(value, &source).map(|url| with_root(url, &root_url)),
            _ => Some(value.into()),
        });
    align_by_class(builder.clean(html).to_string())
}

/// Replaces the attribute `align`, which HTML no longer has, by classes. In sanitized HTML, `<` begins a tag.
fn align_by_class(mut html: String) -> String {
    if html.contains(" align=\"") {
        for element in ["td", "th", "p", "div"] {
            for side in ["left", "center", "right"] {
                html = html
                    .replace(&format!("<{element} align=\"{side}\">"), &format!("<{element} class=\"align-{side}\">"));
            }
        }
    }
    html
}

/// Prepends the URL of the server to a path.
fn with_root<'a>(url: Cow<'a, str>, root_url: &str) -> Cow<'a, str> {
    if url.starts_with('/') && !is_foreign(&url) { format!("{root_url}{url}").into() } else { url }
}

/// Rewrites a link: relative ones lead to files of the repository or to uploads, and anchors to the prefixed ids of the text.
fn rewrite_link<'a>(url: &'a str, source: &Source) -> Option<Cow<'a, str>> {
    if let Some(path) = url.strip_prefix(REFERENCE_SCHEME).and_then(|rest| rest.strip_prefix(':')) {
        // A text can contain this scheme, too.
        return links::local_path(path).map(Into::into);
    }
    if let Some(anchor) = url.strip_prefix('#') {
        return Some(format!("#{ID_PREFIX}{anchor}").into());
    }
    if is_foreign(url) || url.is_empty() {
        return Some(url.into());
    }
    let file = match source {
        Source::File(file) => file,
        Source::Project(links) => return Some(rewrite_upload(url, links)),
        Source::Server => return Some(url.into()),
    };
    let (path, rest) = split_path(url);
    let rest = rest.replacen('#', &format!("#{ID_PREFIX}"), 1);
    let path = resolve(&file.path, path)?;
    let to = match path.as_str() {
        "" => file.links.tree(&file.revision, ""),
        path => file.links.blob(&file.revision, path),
    };
    Some(format!("{to}{rest}").into())
}

/// Rewrites the URL of an image of this server; images of other hosts lose their URL.
fn rewrite_image<'a>(url: &'a str, source: &Source) -> Option<Cow<'a, str>> {
    if is_foreign(url) {
        return None;
    }
    match source {
        Source::File(file) => {
            let (path, _) = split_path(url);
            Some(file.links.raw(&file.revision, &resolve(&file.path, path)?).into())
        }
        Source::Project(links) => Some(rewrite_upload(url, links)),
        Source::Server => Some(url.into()),
    }
}

/// Rewrites the URL of an upload, which is relative to its project.
fn rewrite_upload<'a>(url: &'a str, links: &ProjectLinks) -> Cow<'a, str> {
    if url.starts_with("/uploads/") { format!("{}{url}", links.home()).into() } else { url.into() }
}

/// Splits a URL before its query or fragment.
fn split_path(url: &str) -> (&str, &str) {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    url.split_at(end)
}

/// Resolves a relative path against that of a file. A leading slash means the root of the repository. `None` if the path leads
/// out of the repository.
fn resolve(file: &str, path: &str) -> Option<String> {
    let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut segments: Vec<&str> = if path.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.iter().any(|segment| !segment.is_empty()).then(|| segments.pop())?),
            segment => segments.push(segment),
        }
    }
    let segments: Vec<&str> = segments.into_iter().filter(|segment| !segment.is_empty()).collect();
    Some(segments.join("/"))
}

#[cfg(test)]
mod tests {
    use forge::references::References;

    use super::*;

    fn html(text: &str) -> String {
        let links = ProjectLinks::new("ann/rocket");
        let file = SourceFile { links, revision: "main".into(), path: "docs/guide.md".into() };
        render(text, &Source::File(file)).to_string()
    }

    #[test]
    fn markdown_is_rendered() {
        assert_eq!(
            html("# Title\n\n- [x] *done*\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n"),
            "<h2 id=\"user-content-title\">Title</h2>\n<ul>\n<li> ☑ <em>done</em></li>\n</ul>\n<table>\n<thead>\n\
             <tr>\n<th>a</th>\n<th class=\"align-right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n\
             <td class=\"align-right\">2</td>\n</tr>\n</tbody>\n</table>\n"
        );
    }

    #[test]
    fn scripts_are_removed() {
        for hostile in [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "<svg onload=alert(1)><script>alert(1)</script></svg>",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html;base64,PHNjcmlwdD4=)",
            "<a href=\"&#106;avascript:alert(1)\">x</a>",
            "<iframe src=\"https://evil.example\"></iframe>",
            "<style>body{display:none}</style>",
            "<p style=\"position:fixed\">x</p>",
            "<form action=\"https://evil.example\"><input type=password name=password></form>",
            "<base href=\"https://evil.example\">",
            "<meta http-equiv=refresh content=\"0;url=https://evil.example\">",
            "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
            "<link rel=stylesheet href=https://evil.example/x.css>",
            "```html\n<script>alert(1)</script>\n```",
        ] {
            // Special elements are shown as text.
            let html = html(hostile).to_lowercase();
            let tags = html.split('<').filter_map(|part| part.split_once('>')).map(|(tag, _)| format!("<{tag}>"));
            let tags = tags.collect::<Vec<_>>().concat();
            for bad in [
                "<script",
                "onerror=",
                "onload=",
                "href=\"javascript",
                "href=\"data",
                "<iframe",
                "<style",
                "style=",
                "<form",
                "password",
                "<base",
                "<meta",
                "<link",
                "<svg",
            ] {
                assert!(!tags.contains(bad), "{hostile} became {html}");
            }
        }
    }

    #[test]
    fn relative_links_lead_to_the_repository() {
        let check = |text: &str, expected: &str| {
            let html = html(text);
            assert!(html.contains(expected), "{text}: {html}");
        };
        check("[x](other.md)", "href=\"/ann/rocket/-/blob/main/docs/other.md\"");
        check("[x](../src/a.rs#L3)", "href=\"/ann/rocket/-/blob/main/src/a.rs#user-content-L3\"");
        check("[x](/LICENSE)", "href=\"/ann/rocket/-/blob/main/LICENSE\"");
        check("[x](#part)", "href=\"#user-content-part\"");
        check("[x](https://example.org/)", "href=\"https://example.org/\"");
        check("![x](logo.png)", "src=\"/ann/rocket/-/raw/main/docs/logo.png\"");
        check("<img src=\"logo.png\" alt=\"x\">", "src=\"/ann/rocket/-/raw/main/docs/logo.png\"");
        assert!(!html("[x](../../../etc/passwd)").contains("href"));
        assert!(!html("![x](https://evil.example/pixel.png)").contains("<img"));
        assert!(!html("<img src=\"//evil.example/pixel.png\">").contains("evil"));
        assert!(html("![alt](https://example.org/a.png)").contains("href=\"https://example.org/a.png\""));
    }

    #[test]
    fn links_of_issues_lead_to_uploads() {
        let source = Source::Project(ProjectLinks::new("ann/rocket"));
        let html = render("![x](/uploads/abc/x.png) [y](/ann)", &source).to_string();
        assert!(html.contains("src=\"/ann/rocket/uploads/abc/x.png\"") && html.contains("href=\"/ann\""), "{html}");
    }

    #[test]
    fn links_of_standalone_texts_have_the_url_of_the_server() {
        let check = |text: &str, source: &Source, expected: &str| {
            let none = ReferenceLinks::new(References::default(), None);
            assert_eq!(
                render_standalone(text, source, &none, "https://git.example/sub").to_string(),
                expected,
                "{text}"
            );
        };
        let rel = "rel=\"nofollow noopener noreferrer\"";
        check("# A\n###### B", &Source::Server, "<h1 id=\"user-content-a\">A</h1>\n<h6 id=\"user-content-b\">B</h6>");
        check("[x](/ann)", &Source::Server, &format!("<p><a href=\"https://git.example/sub/ann\" {rel}>x</a></p>\n"));
        check("[x](#a)", &Source::Server, &format!("<p><a href=\"#user-content-a\" {rel}>x</a></p>\n"));
        check("[x](//evil.example)", &Source::Server, &format!("<p><a href=\"//evil.example\" {rel}>x</a></p>\n"));
        check(
            "![x](/uploads/abc/x.png)",
            &Source::Project(ProjectLinks::new("ann/rocket")),
            "<p><img src=\"https://git.example/sub/ann/rocket/uploads/abc/x.png\" alt=\"x\"></p>\n",
        );
    }

    #[test]
    fn the_scheme_of_references_leads_to_pages_only() {
        assert!(html("[x](gable-reference:/ann)").contains("href=\"/ann\""));
        for hostile in ["gable-reference:javascript:alert(1)", "gable-reference://evil.example", "gable-reference:x"] {
            let html = html(&format!("[x]({hostile})"));
            assert!(!html.contains("href"), "{hostile} became {html}");
        }
    }

    #[test]
    fn images_of_other_hosts_are_recognized_as_browsers_do() {
        let foreign =
            [" //evil.example/p", "/\t/evil.example/p", "\u{1}https://evil.example", "ht\ntps://evil.example"];
        for url in foreign {
            assert!(is_foreign(url), "{url:?}");
        }
        assert!(!is_foreign("docs/a b.png") && !is_foreign("/uploads/x.png"));
    }

    #[test]
    fn elements_that_are_not_closed_do_not_multiply() {
        let many = |count: usize, tag: &dyn Fn(usize) -> String| (0..count).map(tag).collect::<Vec<_>>().concat();
        let paragraphs = "a\n\n".repeat(20_000);
        let attributes = many(2000, &|number| format!("<b x={number}>"));
        let long = "x".repeat(50_000);
        for bomb in [
            format!("<p>{attributes}{}", "<p>a".repeat(2000)),
            format!("<p>{attributes}\n\n{paragraphs}"),
            format!("<p><a title=\"{long}\">\n\n{paragraphs}"),
            format!("<p><b title='{long}'>\n\n{paragraphs}"),
            // The rest must not be hidden in an element with another kind of content.
            format!("<p><svg><style><b x=\"</style></svg>{attributes}\n\n{paragraphs}"),
            format!("<p><textarea><i x=\"</textarea>{attributes}\n\n{paragraphs}"),
            format!("<p><svg><![CDATA[><b x=\"]]></svg>{attributes}\n\n{paragraphs}"),
        ] {
            assert!(html(&bomb).len() < 2 * bomb.len() + 200_000, "{}", &bomb[..80]);
        }
        // Ordinary documents are not affected, whatever their length.
        let row = "<tr><td><strong>a</strong></td><td><code>b</code></td><td><a href=\"https://example.org/c\">c</a></td></tr>\n";
        assert!(SanitizerCost::of(&row.repeat(10_000)).is_moderate());
    }

    #[test]
    fn bombs_are_shown_as_plain_text_in_a_short_time() {
        let start = Instant::now();
        for bomb in [
            ">".repeat(100_000),
            "<div>".repeat(50_000),
            "[".repeat(200_000),
            "*a **a ".repeat(40_000),
            "- ".repeat(50_000),
            "![[".repeat(50_000),
            "`".repeat(100_000),
            "a".repeat(MAX_BYTES + 1),
            format!("{}\n{}\n", "|x".repeat(10_000), "|-".repeat(10_000)),
        ] {
            assert!(html(&bomb).len() < 8 << 20);
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }

    #[test]
    fn characters_that_reorder_text_are_replaced() {
        assert_eq!(html("a\u{202e}b"), "<p>a\u{fffd}b</p>\n");
    }
}
