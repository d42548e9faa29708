//! The output of a job as HTML: colours, sections that fold, and lines as a terminal would show them in the end.
//!
//! A log that grows is rendered part by part. A part ends with a [`LogState`], from which the next one continues.

mod terminal;

use std::{fmt, str::FromStr};

use self::terminal::{Line, Style};
use crate::{Markup, plain};

/// The maximum number of bytes of a log that a page shows.
pub const MAX_BYTES: u64 = 512 << 10;
/// The maximum number of lines that a page shows.
const MAX_LINES: usize = 10_000;
/// The maximum number of sections within each other.
const MAX_SECTIONS: usize = 8;
/// The maximum length of the name of a section.
const MAX_NAME_BYTES: usize = 100;

/// Where the rendering of a log continues: always at the beginning of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// The offset in bytes.
    pub offset: u64,
    /// The number of lines before it.
    line: u64,
    style: Style,
    /// The names of the open sections.
    sections: Vec<String>,
}

impl LogState {
    /// Creates the state at an offset before which nothing is shown.
    pub fn at(offset: u64) -> Self {
        Self { offset, ..Self::default() }
    }

    /// Returns the number of lines that were rendered.
    #[cfg(test)]
    pub fn lines(&self) -> u64 {
        self.line
    }
}

impl fmt::Display for LogState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Style { foreground, background, flags } = self.style;
        let (foreground, background) = (foreground.unwrap_or(9), background.unwrap_or(9));
        write!(f, "{}:{}:{foreground}:{background}:{flags}:{}", self.offset, self.line, self.sections.join(","))
    }
}

impl FromStr for LogState {
    type Err = ();

    /// Parses the text that a page has sent back; it may be anything.
    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.splitn(6, ':').collect();
        let [offset, line, foreground, background, flags, sections] = parts[..] else { return Err(()) };
        let color = |text: &str| match text.parse::<u8>() {
            Ok(color @ 0..=7) => Ok(Some(color)),
            Ok(9) => Ok(None),
            _ => Err(()),
        };
        let sections: Vec<String> =
            sections.split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        if sections.len() > MAX_SECTIONS || !sections.iter().all(|name| name_length(name) == name.len()) {
            return Err(());
        }
        let style = Style {
            foreground: color(foreground)?,
            background: color(background)?,
            flags: flags.parse().map_err(drop)?,
        };
        Ok(Self { offset: offset.parse().map_err(drop)?, line: line.parse().map_err(drop)?, style, sections })
    }
}

/// Returns the offset in the last bytes of a log at which a page begins to show it: the beginning of a line.
pub fn first_shown(bytes: &[u8], is_whole: bool) -> usize {
    let ends = bytes.iter().enumerate().rev().filter(|(at, byte)| **byte == b'\n' && at + 1 < bytes.len());
    let too_many = ends.map(|(at, _)| at + 1).nth(MAX_LINES - 1);
    let after_break = || bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    too_many.unwrap_or_else(|| if is_whole { 0 } else { after_break() })
}

/// Renders the part of a log that begins at a state. The last line is rendered but not included in the returned state if
/// more may be appended to it.
pub fn render(bytes: &[u8], start: LogState, is_complete: bool) -> (Markup, LogState) {
    let mut renderer = Renderer { html: String::with_capacity(bytes.len() * 2), state: start };
    for _ in &renderer.state.sections {
        renderer.html.push_str("<details open data-continued>");
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, length) = end.map_or((rest, rest.len()), |at| (&rest[..at], at + 1));
        let text = String::from_utf8_lossy(line);
        // A line without an end that is longer than a page must not be read again and again.
        if end.is_some() || is_complete || length as u64 >= MAX_BYTES {
            renderer.line(&text);
            renderer.state.offset += length as u64;
        } else {
            renderer.partial_line(&text);
        }
        rest = &rest[length..];
    }
    for _ in &renderer.state.sections {
        renderer.html.push_str("</details>");
    }
    (Markup(renderer.html), renderer.state)
}

/// Renders the last lines of a log without numbers.
pub fn render_end(bytes: &[u8], lines: usize) -> Markup {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: Vec<&str> = text.lines().rev().filter(|line| !line.trim().is_empty()).take(lines).collect();
    shown.reverse();
    let (mut html, mut style) = (String::new(), Style::default());
    for line in shown {
        let cells = Line::read(line, &mut style);
        cells.write(&mut html);
        html.push('\n');
    }
    Markup(html)
}

struct Renderer {
    html: String,
    state: LogState,
}

impl Renderer {
    /// Renders a complete line, with the markers of sections in it.
    fn line(&mut self, text: &str) {
        let mut rest = text;
        let mut is_first = true;
        while let Some(marker) = Marker::find(rest) {
            self.text(&rest[..marker.start], false);
            rest = &rest[marker.end..];
            if marker.opens {
                let header_end = Marker::find(rest).map_or(rest.len(), |next| next.start);
                self.open_section(&marker, &rest[..header_end]);
                rest = &rest[header_end..];
            } else {
                self.close_section(marker.name);
            }
            is_first = false;
        }
        self.text(rest, is_first);
    }

    /// Renders text as a line, unless it is empty and needs none.
    fn text(&mut self, text: &str, even_if_empty: bool) {
        let cells = Line::read(text, &mut self.state.style);
        if even_if_empty || !cells.is_empty() {
            self.state.line += 1;
            self.numbered("<div class=\"l\">", &cells);
            self.html.push_str("</div>");
        }
    }

    /// Renders a line to which more may be appended. It is rendered again with the next part.
    fn partial_line(&mut self, text: &str) {
        let mut style = self.state.style;
        let cells = Line::read(text, &mut style);
        self.state.line += 1;
        self.numbered("<div class=\"l\" data-partial>", &cells);
        self.html.push_str("</div>");
        self.state.line -= 1;
    }

    fn numbered(&mut self, element: &str, cells: &Line) {
        let number = self.state.line;
        self.html.push_str(element);
        self.html.push_str(&format!("<a id=\"L{number}\" href=\"#L{number}\" tabindex=\"-1\">{number}</a><span>"));
        cells.write(&mut self.html);
        self.html.push_str("</span>");
    }

    fn open_section(&mut self, marker: &Marker<'_>, header: &str) {
        if self.state.sections.len() == MAX_SECTIONS {
            self.text(header, false);
            return;
        }
        let cells = Line::read(header, &mut self.state.style);
        self.state.line += 1;
        let (number, open) = (self.state.line, if marker.is_collapsed { "" } else { " open" });
        self.html.push_str(&format!(
            "<details{open}><summary class=\"l\"><span id=\"L{number}\" class=\"number\">{number}</span><span>"
        ));
        if cells.is_empty() {
            plain::escape_into(&mut self.html, marker.name);
        }
        cells.write(&mut self.html);
        self.html.push_str("</span></summary>");
        self.state.sections.push(marker.name.to_owned());
    }

    /// Closes a section, and those within it. The end of a section that is not open has no effect.
    fn close_section(&mut self, name: &str) {
        if let Some(at) = self.state.sections.iter().rposition(|open| open == name) {
            for _ in self.state.sections.drain(at..) {
                self.html.push_str("</details>");
            }
        }
    }
}

/// The beginning or the end of a section, such as `section_start:1700000000:build[collapsed=true]` and a carriage return.
struct Marker<'a> {
    start: usize,
    end: usize,
    opens: bool,
    name: &'a str,
    is_collapsed: bool,
}

impl<'a> Marker<'a> {
    /// Returns the first marker in a line.
    fn find(text: &'a str) -> Option<Self> {
        text.match_indices("section_").find_map(|(start, _)| Self::parse(text, start))
    }

    fn parse(text: &'a str, start: usize) -> Option<Self> {
        let rest = text[start..].strip_prefix("section_")?;
        let (opens, rest) = match rest.strip_prefix("start:") {
            Some(rest) => (true, rest),
            None => (false, rest.strip_prefix("end:")?),
        };
        let time = rest.find(|c: char| !c.is_ascii_digit()).filter(|length| (1..=20).contains(length))?;
        let rest = rest[time..].strip_prefix(':')?;
        let length = name_length(rest);
        let (name, rest) = rest.split_at_checked(length).filter(|(name, _)| !name.is_empty())?;
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').filter(|(options, _)| options.len() <= MAX_NAME_BYTES)?,
            None => ("", rest),
        };
        let rest = rest.strip_prefix('\r')?;
        let end = text.len() - rest.len();
        Some(Self { start, end, opens, name, is_collapsed: options.contains("collapsed=true") })
    }
}

/// Returns the length of the name of a section at the beginning of a text; 0 if it is too long.
fn name_length(text: &str) -> usize {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let length = text.bytes().take(MAX_NAME_BYTES + 1).take_while(|byte| is_letter(*byte)).count();
    if length > MAX_NAME_BYTES { 0 } else { length }
}

#[cfg(test)]
mod tests {
    use super::{terminal::MAX_LINE_CHARS, *};

    /// Renders a whole log, and returns only what is in its lines.
    fn shown(log: &str) -> String {
        let (html, _) = render(log.as_bytes(), LogState::default(), true);
        let mut text = html.to_string();
        for number in 1..20 {
            let anchor = format!("<a id=\"L{number}\" href=\"#L{number}\" tabindex=\"-1\">{number}</a>");
            text = text
                .replace(&anchor, "")
                .replace(&format!("<span id=\"L{number}\" class=\"number\">{number}</span>"), "");
        }
        text.replace("<div class=\"l\"><span>", "").replace("</span></div>", "\n").replace(" class=\"l\"", "")
    }

    #[test]
    fn colours_become_classes() {
        let check = |log: &str, expected: &str| assert_eq!(shown(log), expected, "{log:?}");
        check("plain\n", "plain\n");
        check("\u{1b}[31mred\u{1b}[0m x\n", "<span class=\"a1\">red</span> x\n");
        check("\u{1b}[1;32;44mx\u{1b}[39;49;22my\n", "<span class=\"a2 g4 ab\">x</span>y\n");
        check("\u{1b}[91mx\u{1b}[mx\n", "<span class=\"a1\">x</span>x\n");
        check(
            "\u{1b}[38;5;196mx\u{1b}[38;2;0;200;10my\u{1b}[38;5;8mz\n",
            "<span class=\"a1\">x</span><span class=\"a2\">y</span><span class=\"a0\">z</span>\n",
        );
        // A style lasts until it is changed.
        check("\u{1b}[33ma\nb\n", "<span class=\"a3\">a</span>\n<span class=\"a3\">b</span>\n");
        check("\u{1b}]0;title\u{7}a\u{1b}[2Jb\u{1b}(Bc\u{1b}[?25hd\u{1b}[999999999999me\n", "abcde\n");
        check("a\u{1b}", "a\n");
        check("a\u{1b}[1;", "a\n");
    }

    #[test]
    fn a_line_is_shown_as_a_terminal_shows_it_in_the_end() {
        let check = |log: &str, expected: &str| assert_eq!(shown(log), expected, "{log:?}");
        check("10%\r50%\r100%\n", "100%\n");
        check("longer\rshort\n", "shortr\n");
        check("longer\r\u{1b}[Kshort\r\n", "short\n");
        check("abc\u{8}\u{8}X\n", "aXc\n");
        check("a\r\nb\r\n", "a\nb\n");
        check("\n\nx", "\n\nx\n");
        check("abc\u{1b}[2Kd\n", "   d\n");
        check("abc\r\u{1b}[1KX\n", "Xbc\n");
    }

    #[test]
    fn hostile_output_stays_text() {
        let check = |log: &str, expected: &str| assert_eq!(shown(log), expected, "{log:?}");
        check("<script>alert('1')</script>\n", "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\n");
        check("a\u{202e}b\u{1}\0c\n", "a<span class=\"control\">U+202E</span>b\u{fffd}c\n");
        let long = "x".repeat(MAX_LINE_CHARS + 5);
        assert!(shown(&long).ends_with("x<span class=\"muted\"> … the line is longer</span>\n"));
        assert!(shown(&long).len() < MAX_LINE_CHARS + 100);
        check("section_start:1:<b>\rx\n", "xection_start:1:&lt;b&gt;\n");
        let (html, _) = render(b"\xff\xfe\n", LogState::default(), true);
        assert!(html.to_string().contains("\u{fffd}\u{fffd}"));
        let deep = (0..1000).map(|at| format!("section_start:1:s{at}\r\u{1b}[0Kx\n")).collect::<Vec<_>>().concat();
        let (html, state) = render(deep.as_bytes(), LogState::default(), true);
        assert_eq!(html.to_string().matches("<details").count(), MAX_SECTIONS);
        assert_eq!(html.to_string().matches("</details>").count(), MAX_SECTIONS);
        assert_eq!(state.sections.len(), MAX_SECTIONS);
    }

    #[test]
    fn sections_fold() {
        let check = |log: &str, expected: &str| assert_eq!(shown(log), expected, "{log:?}");
        check(
            "a\n\u{1b}[0Ksection_start:1700000000:build\r\u{1b}[0KBuilding\nmake\nsection_end:1700000005:build\r\u{1b}[0Kb\n",
            "a\n<details open><summary><span>Building</span></summary>make\n</details>b\n",
        );
        check(
            "section_start:1:x[collapsed=true]\r\u{1b}[0K\nsection_start:1:y\r\u{1b}[0KY\nsection_end:2:x\r\u{1b}[0K\n",
            "<details><summary><span>x</span></summary><details open><summary><span>Y</span></summary></details></details>",
        );
        check("section_end:1:unknown\r\u{1b}[0Kx\n", "x\n");
        check("section_start:1:open\r\u{1b}[0KO\nx", "<details open><summary><span>O</span></summary>x\n</details>");
    }

    #[test]
    fn a_growing_log_continues_where_it_was() {
        let log = "one\n\u{1b}[31msection_start:1:s\r\u{1b}[0KS\ntwo\nthr";
        let (html, state) = render(log.as_bytes(), LogState::default(), false);
        assert!(html.to_string().contains("data-partial><a id=\"L4\""), "{html}");
        assert_eq!(state.offset, log.len() as u64 - 3);
        assert_eq!(state.lines(), 3);
        let parsed: LogState = state.to_string().parse().expect("a state");
        assert_eq!(parsed, state);
        let (html, state) = render(b"three\nsection_end:2:s\r\x1b[0Kend", parsed, true);
        assert_eq!(
            html.to_string(),
            "<details open data-continued><div class=\"l\"><a id=\"L4\" href=\"#L4\" tabindex=\"-1\">4</a><span>\
             <span class=\"a1\">three</span></span></div></details><div class=\"l\"><a id=\"L5\" href=\"#L5\" \
             tabindex=\"-1\">5</a><span><span class=\"a1\">end</span></span></div>"
        );
        assert!(state.sections.is_empty());
        for bad in ["", "1", "1:2:3:4:5", "x:0:9:9:0:", "0:0:8:9:0:", "0:0:9:9:0:<b>", "0:0:9:9:300:", "-1:0:9:9:0:"] {
            assert!(bad.parse::<LogState>().is_err(), "{bad}");
        }
        // Progress without a line break does not keep the offset at its beginning for good.
        let endless = vec![b'.'; usize::try_from(MAX_BYTES).expect("small")];
        assert_eq!(render(&endless, LogState::default(), false).1.offset, MAX_BYTES);
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        assert_eq!(first_shown(b"a\nb\n", true), 0);
        assert_eq!(first_shown(b"end of a line\nb\n", false), 14);
        assert_eq!(first_shown(b"no break", false), 0);
        let many = b"x\n".repeat(MAX_LINES + 3);
        assert_eq!(first_shown(&many, true), 6);
        assert_eq!(
            render_end(b"a\n\n\x1b[31mb\nc\n", 2).to_string(),
            "<span class=\"a1\">b</span>\n<span class=\"a1\">c</span>\n"
        );
    }
}
