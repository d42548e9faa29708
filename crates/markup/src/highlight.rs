//! Syntax highlighting: a few classes instead of colours, so that the stylesheet decides.
//!
//! The grammars are loaded when the first file is shown. Highlighting stops at a deadline; the rest of the file is then shown
//! without colours, and the whole file is highlighted for the next visitor.

use std::{
    num::NonZeroUsize,
    path::Path,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lru::LruCache;
use model::Oid;
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use crate::{Markup, plain::escape_into};

/// The maximum size of a file that is shown, in bytes.
pub const MAX_BYTES: usize = 512 << 10;
/// The maximum number of lines of a file that is shown.
pub const MAX_LINES: usize = 20_000;
/// Longer lines are not highlighted: grammars are slow on them.
const MAX_LINE_BYTES: usize = 4 << 10;
/// The time after which the rest of a file is shown without colours.
const TIME_LIMIT: Duration = Duration::from_millis(150);
/// The time for highlighting such a file after it was shown, for the next visitor.
const LATER_TIME_LIMIT: Duration = Duration::from_secs(5);
/// The maximum total size of cached files, in bytes.
const MAX_CACHE_BYTES: usize = 8 << 20;

static GRAMMARS: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// The scopes of grammars that get a class, most specific first.
static CLASSES: LazyLock<Vec<(Scope, &str)>> = LazyLock::new(|| {
    let classes = [
        ("comment", "c"),
        ("constant.character.escape", "e"),
        ("constant.numeric", "n"),
        ("constant", "n"),
        ("string", "s"),
        ("keyword.operator", ""),
        ("keyword", "k"),
        ("storage.type.function", "k"),
        ("storage", "k"),
        ("entity.name.function", "f"),
        ("support.function", "f"),
        ("support.macro", "f"),
        ("variable.function", "f"),
        ("entity.name.tag", "k"),
        ("entity.name.section", "f"),
        ("entity.name", "t"),
        ("support.type", "t"),
        ("support.class", "t"),
        ("entity.other.attribute-name", "t"),
        ("entity.other.inherited-class", "t"),
        ("markup.heading", "f"),
        ("markup.inserted", "s"),
        ("markup.deleted", "k"),
        ("invalid", ""),
    ];
    let parse = |(name, class)| Scope::new(name).ok().map(|scope| (scope, class));
    classes.into_iter().filter_map(parse).collect()
});

/// The lines of a file as HTML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The lines, without their ends.
    pub lines: Vec<Markup>,
    /// Whether all lines were highlighted before the deadline.
    pub is_complete: bool,
}

/// Loads the grammars, which takes a while the first time.
pub(crate) fn load_grammars() {
    LazyLock::force(&GRAMMARS);
}

/// Returns the grammar for a file, by its name or its first line.
fn grammar_of_file(path: &str, text: &str) -> Option<&'static SyntaxReference> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    let grammars = &*GRAMMARS;
    let by_name = grammars.find_syntax_by_extension(name);
    let by_extension = || extension.and_then(|extension| grammars.find_syntax_by_extension(extension));
    let by_content = || grammars.find_syntax_by_first_line(text.lines().next().unwrap_or_default());
    by_name.or_else(by_extension).or_else(by_content).filter(|grammar| grammar.name != "Plain Text")
}

/// Highlights a block of code in a language, such as `rust`.
pub(crate) fn highlight_block(language: &str, text: &str, deadline: Instant) -> String {
    let grammar = if language.is_empty() { None } else { GRAMMARS.find_syntax_by_token(language) };
    let mut html = String::new();
    for line in highlight(grammar, text, deadline).lines {
        html.push_str(&line.0);
        html.push('\n');
    }
    html
}

fn highlight(grammar: Option<&SyntaxReference>, text: &str, deadline: Instant) -> Lines {
    let mut state = grammar.map(ParseState::new);
    let mut stack = ScopeStack::new();
    let mut is_complete = true;
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut html = String::with_capacity(line.len() + line.len() / 2);
        let is_late = Instant::now() >= deadline;
        if state.is_some() && (is_late || line.len() > MAX_LINE_BYTES) {
            // The state of the grammar after a line that it has not seen is unknown.
            state = None;
            is_complete = !is_late;
        }
        let is_highlighted =
            state.as_mut().is_some_and(|parser| highlight_line(parser, &mut stack, line, &mut html).is_some());
        if !is_highlighted {
            html.clear();
            escape_into(&mut html, line);
            state = None;
        }
        lines.push(Markup(html));
    }
    Lines { lines, is_complete }
}

/// Appends a highlighted line; `None` if the grammar fails.
fn highlight_line(parser: &mut ParseState, stack: &mut ScopeStack, line: &str, html: &mut String) -> Option<()> {
    // The grammars expect the end of the line.
    let operations = parser.parse_line(&format!("{line}\n"), &GRAMMARS).ok()?;
    let mut spans = Spans { html, class: "" };
    let mut start = 0;
    for (at, operation) in operations {
        spans.push(class_of(stack), slice(line, start, at));
        start = at;
        stack.apply(&operation).ok()?;
    }
    spans.push(class_of(stack), slice(line, start, line.len()));
    spans.close();
    Some(())
}

/// Returns a part of a line; the line ends before its newline, which the grammars see.
fn slice(line: &str, start: usize, end: usize) -> &str {
    line.get(start.min(line.len())..end.min(line.len())).unwrap_or_default()
}

/// Returns the class of the innermost scope that has one.
fn class_of(stack: &ScopeStack) -> &'static str {
    for scope in stack.as_slice().iter().rev() {
        if let Some((_, class)) = CLASSES.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope)) {
            return class;
        }
    }
    ""
}

/// Writes spans and joins those of the same class.
struct Spans<'a> {
    html: &'a mut String,
    class: &'static str,
}

impl Spans<'_> {
    fn push(&mut self, class: &'static str, text: &str) {
        if text.is_empty() {
            return;
        }
        // White space looks the same in all classes.
        let class = if text.trim().is_empty() { self.class } else { class };
        if class != self.class {
            self.close();
            if !class.is_empty() {
                self.html.push_str(&format!("<span class=\"{class}\">"));
            }
            self.class = class;
        }
        escape_into(self.html, text);
    }

    fn close(&mut self) {
        if !self.class.is_empty() {
            self.html.push_str("</span>");
        }
        self.class = "";
    }
}

/// Highlighted files by the id of the blob and the name of the file, which selects the grammar.
pub struct HighlightCache {
    cached: Mutex<CachedFiles>,
    is_busy: AtomicBool,
}

struct CachedFiles {
    files: LruCache<(Oid, String), (Arc<Lines>, usize)>,
    bytes: usize,
}

impl Default for HighlightCache {
    fn default() -> Self {
        let capacity = NonZeroUsize::new(4096).expect("not zero");
        let cached = Mutex::new(CachedFiles { files: LruCache::new(capacity), bytes: 0 });
        Self { cached, is_busy: AtomicBool::new(false) }
    }
}

impl HighlightCache {
    /// Highlights a file within a short time, unless it is cached.
    pub fn highlight(&self, id: Oid, path: &str, text: &str) -> Arc<Lines> {
        self.highlight_within(TIME_LIMIT, id, path, text)
    }

    /// Highlights a file for which the time was too short. Does nothing while another file is highlighted this way.
    pub fn highlight_later(&self, id: Oid, path: &str, text: &str) {
        if !self.is_busy.swap(true, Ordering::AcqRel) {
            self.highlight_within(LATER_TIME_LIMIT, id, path, text);
            self.is_busy.store(false, Ordering::Release);
        }
    }

    fn highlight_within(&self, limit: Duration, id: Oid, path: &str, text: &str) -> Arc<Lines> {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let key = (id, name);
        if let Some((lines, _)) = self.lock().files.get(&key) {
            return Arc::clone(lines);
        }
        // Loads the grammars before the time counts.
        let grammar = grammar_of_file(path, text);
        let lines = Arc::new(highlight(grammar, text, Instant::now() + limit));
        if lines.is_complete {
            let bytes = lines.lines.iter().map(|line| line.0.len() + size_of::<Markup>()).sum();
            self.insert(key, &lines, bytes);
        }
        lines
    }

    fn insert(&self, key: (Oid, String), lines: &Arc<Lines>, bytes: usize) {
        if bytes > MAX_CACHE_BYTES / 4 {
            return;
        }
        let mut cached = self.lock();
        cached.bytes += bytes;
        if let Some((_, (_, replaced))) = cached.files.push(key, (Arc::clone(lines), bytes)) {
            cached.bytes -= replaced;
        }
        while cached.bytes > MAX_CACHE_BYTES {
            match cached.files.pop_lru() {
                Some((_, (_, removed))) => cached.bytes -= removed,
                None => break,
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CachedFiles> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(path: &str, text: &str) -> String {
        let grammar = grammar_of_file(path, text);
        let lines = highlight(grammar, text, Instant::now() + Duration::from_secs(60)).lines;
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn code_has_classes() {
        assert_eq!(
            html("src/main.rs", "fn main() { // start\n    let x = \"<a>\";\n}\n"),
            "<span class=\"k\">fn </span><span class=\"f\">main</span>() { <span class=\"c\">// start</span>\n    \
             <span class=\"k\">let</span> x = <span class=\"s\">&quot;&lt;a&gt;&quot;</span>;\n}"
        );
        assert_eq!(html("notes.txt", "a <b>"), "a &lt;b&gt;");
        assert_eq!(
            html("no-extension", "#!/bin/sh\n# x\n"),
            "<span class=\"c\">#!/bin/sh</span>\n<span class=\"c\"># x</span>"
        );
        for name in ["Cargo.toml", "app.ts", "Dockerfile", "Makefile", "a.yml", "x.go", "x.kt", "x.tsx"] {
            assert!(grammar_of_file(name, "").is_some(), "{name}");
        }
    }

    #[test]
    fn a_deadline_and_long_lines_end_the_highlighting() {
        let text = "let x = 1;\n".repeat(100);
        let lines = highlight(grammar_of_file("a.rs", ""), &text, Instant::now());
        assert!(!lines.is_complete && lines.lines.iter().all(|line| !line.0.contains("<span")), "{lines:?}");
        let text = format!("let x = 1;\n{}\nlet y = 2;\n", "x".repeat(MAX_LINE_BYTES + 1));
        let lines = highlight(grammar_of_file("a.rs", ""), &text, Instant::now() + Duration::from_secs(60)).lines;
        assert!(lines[0].0.contains("<span") && !lines[2].0.contains("<span"), "{lines:?}");
    }

    #[test]
    fn highlighted_files_are_cached_by_blob_and_name() {
        let cache = HighlightCache::default();
        let first = cache.highlight(Oid([1; 20]), "src/a.txt", "x");
        assert!(Arc::ptr_eq(&first, &cache.highlight(Oid([1; 20]), "other/a.txt", "x")));
        assert!(!Arc::ptr_eq(&first, &cache.highlight(Oid([1; 20]), "a.md", "x")));
        assert!(!Arc::ptr_eq(&first, &cache.highlight(Oid([2; 20]), "src/a.txt", "x")));
        assert_eq!(cache.lock().files.len(), 3);
    }
}
