//! A line of output with escape sequences, as a terminal shows it in the end.

use crate::plain;

/// The maximum number of characters of a line.
pub(super) const MAX_LINE_CHARS: usize = 10_000;
/// The maximum number of parameters of an escape sequence.
const MAX_PARAMETERS: usize = 32;

const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';
const BACKSPACE: char = '\u{8}';

/// How characters look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// One of the eight colours of a terminal; bright ones look like the others.
    pub(super) foreground: Option<u8>,
    pub(super) background: Option<u8>,
    pub(super) flags: u8,
}

const BOLD: u8 = 1;
const DIM: u8 = 2;
const ITALIC: u8 = 4;
const UNDERLINED: u8 = 8;
const INVERSE: u8 = 16;
const STRUCK: u8 = 32;
/// The flags with their classes.
const FLAG_CLASSES: [(u8, &str); 6] =
    [(BOLD, "ab"), (DIM, "ad"), (ITALIC, "ai"), (UNDERLINED, "au"), (INVERSE, "ar"), (STRUCK, "as")];

/// The characters of a line, after everything that overwrites them.
#[derive(Default)]
pub(super) struct Line {
    cells: Vec<(char, Style)>,
    is_cut: bool,
}

impl Line {
    /// Executes a line as a terminal does.
    pub(super) fn read(text: &str, style: &mut Style) -> Self {
        let mut line = Self::default();
        let mut cursor = 0_usize;
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '\r' => cursor = 0,
                BACKSPACE => cursor = cursor.saturating_sub(1),
                ESCAPE => match Sequence::read(&mut rest) {
                    Sequence::Style(parameters) => style.apply(&parameters),
                    Sequence::EraseLine(mode) => line.erase(mode, cursor),
                    Sequence::Other => {}
                },
                '\0' | BELL => {}
                _ if cursor >= MAX_LINE_CHARS => line.is_cut = true,
                c => {
                    match line.cells.get_mut(cursor) {
                        Some(cell) => *cell = (c, *style),
                        None => line.cells.push((c, *style)),
                    }
                    cursor += 1;
                }
            }
        }
        line
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    fn erase(&mut self, mode: u16, cursor: usize) {
        match mode {
            0 => self.cells.truncate(cursor),
            1 => self.cells.iter_mut().take(cursor + 1).for_each(|cell| *cell = (' ', Style::default())),
            _ => {
                self.cells.truncate(cursor);
                self.cells.fill((' ', Style::default()));
            }
        }
    }

    /// Appends the line as HTML, with one element for each run of characters that look the same.
    pub(super) fn write(&self, html: &mut String) {
        let mut run = String::new();
        for same in self.cells.chunk_by(|one, other| one.1 == other.1) {
            run.clear();
            run.extend(same.iter().map(|(c, _)| c));
            let style = same.first().map(|(_, style)| *style).unwrap_or_default();
            if style == Style::default() {
                plain::escape_into(html, &run);
            } else {
                html.push_str(&format!("<span class=\"{}\">", style.classes()));
                plain::escape_into(html, &run);
                html.push_str("</span>");
            }
        }
        if self.is_cut {
            html.push_str("<span class=\"muted\"> … the line is longer</span>");
        }
    }
}

/// An escape sequence.
enum Sequence {
    /// Changes the style.
    Style(Vec<u16>),
    /// Erases a part of the line.
    EraseLine(u16),
    /// Something that a page does not show.
    Other,
}

impl Sequence {
    /// Reads what follows an escape character.
    fn read(rest: &mut std::str::Chars<'_>) -> Self {
        match rest.clone().next() {
            Some('[') => {
                rest.next();
                Self::read_control(rest)
            }
            // A text for the terminal, such as its title, ends with a bell or with `ESC \`.
            Some(']' | 'P' | '^' | '_') => {
                while let Some(c) = rest.next() {
                    if c == BELL || c == ESCAPE {
                        if c == ESCAPE && rest.as_str().starts_with('\\') {
                            rest.next();
                        }
                        break;
                    }
                }
                Self::Other
            }
            Some('(' | ')') => {
                rest.next();
                rest.next();
                Self::Other
            }
            Some('\u{20}'..='\u{7e}') => {
                rest.next();
                Self::Other
            }
            _ => Self::Other,
        }
    }

    fn read_control(rest: &mut std::str::Chars<'_>) -> Self {
        let (mut parameters, mut number, mut is_private) = (Vec::new(), 0_u16, false);
        loop {
            // A sequence that is not well-formed ends before the character that does not belong to it.
            let Some(c @ '\u{20}'..='\u{7e}') = rest.clone().next() else { return Self::Other };
            rest.next();
            match c {
                '0'..='9' => {
                    let digit = c.to_digit(10).and_then(|digit| u16::try_from(digit).ok()).unwrap_or_default();
                    number = number.saturating_mul(10).saturating_add(digit);
                }
                ';' | ':' => {
                    if parameters.len() < MAX_PARAMETERS {
                        parameters.push(number);
                    }
                    number = 0;
                }
                '\u{20}'..='\u{3f}' => is_private = true,
                'm' if !is_private => {
                    parameters.push(number);
                    return Self::Style(parameters);
                }
                'K' if !is_private => return Self::EraseLine(number),
                _ => return Self::Other,
            }
        }
    }
}

impl Style {
    fn apply(&mut self, parameters: &[u16]) {
        let mut parameters = parameters.iter().copied();
        while let Some(parameter) = parameters.next() {
            match parameter {
                0 => *self = Self::default(),
                1 => self.flags |= BOLD,
                2 => self.flags |= DIM,
                3 => self.flags |= ITALIC,
                4 => self.flags |= UNDERLINED,
                7 => self.flags |= INVERSE,
                9 => self.flags |= STRUCK,
                22 => self.flags &= !(BOLD | DIM),
                23 => self.flags &= !ITALIC,
                24 => self.flags &= !UNDERLINED,
                27 => self.flags &= !INVERSE,
                29 => self.flags &= !STRUCK,
                30..=37 => self.foreground = index(parameter - 30),
                38 => self.foreground = extended_color(&mut parameters).or(self.foreground),
                39 => self.foreground = None,
                40..=47 => self.background = index(parameter - 40),
                48 => self.background = extended_color(&mut parameters).or(self.background),
                49 => self.background = None,
                90..=97 => self.foreground = index(parameter - 90),
                100..=107 => self.background = index(parameter - 100),
                _ => {}
            }
        }
    }

    fn classes(self) -> String {
        let foreground = self.foreground.map(|color| format!("a{color}"));
        let background = self.background.map(|color| format!("g{color}"));
        let flags =
            FLAG_CLASSES.iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, class)| (*class).to_owned());
        foreground.into_iter().chain(background).chain(flags).collect::<Vec<_>>().join(" ")
    }
}

fn index(color: u16) -> Option<u8> {
    u8::try_from(color % 8).ok()
}

/// Returns the nearest of the eight colours for a colour of the larger palettes.
fn extended_color(parameters: &mut impl Iterator<Item = u16>) -> Option<u8> {
    match parameters.next()? {
        5 => match parameters.next()? {
            color @ 0..16 => index(color),
            color @ 16..232 => {
                let color = color - 16;
                nearest([color / 36 * 51, color / 6 % 6 * 51, color % 6 * 51])
            }
            color @ 232..256 => nearest([(color - 232) * 10 + 8; 3]),
            _ => None,
        },
        2 => nearest([parameters.next()?, parameters.next()?, parameters.next()?]),
        _ => None,
    }
}

fn nearest(color: [u16; 3]) -> Option<u8> {
    let strongest = color.into_iter().max()?;
    if strongest < 64 {
        return Some(0);
    }
    // Red, green and blue are the bits of the number of a colour.
    let bits = color.into_iter().enumerate().filter(|(_, part)| u32::from(*part) * 5 >= u32::from(strongest) * 3);
    Some(bits.map(|(at, _)| 1 << at).sum())
}
