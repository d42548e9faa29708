//! The language of `rules: if`: variables, texts, regular expressions, comparisons, `&&`, `||` and parentheses.

use crate::budget::{MAX_DEPTH, MAX_EXPRESSION_BYTES};
use crate::patterns::{Pattern, PatternCache};

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Variable(String),
    Text(String),
    Null,
    Pattern(Pattern),
    Compare(Box<Node>, Comparison, Box<Node>),
    /// Lists rather than pairs, so that a long chain does not nest.
    All(Vec<Node>),
    Any(Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Different,
    Matching,
    NotMatching,
}

impl Expression {
    /// Parses an expression; returns `None` if it is malformed or too long.
    pub(crate) fn parse(text: &str, patterns: &mut PatternCache) -> Option<Self> {
        if text.len() > MAX_EXPRESSION_BYTES {
            return None;
        }
        let mut parser = Parser { rest: text, patterns, depth: 0 };
        let node = parser.any()?;
        parser.rest.trim_start().is_empty().then_some(Self(node))
    }

    /// Evaluates the expression. A lone variable is true if it is set and not empty.
    pub(crate) fn evaluate<'a>(&self, lookup: &impl Fn(&str) -> Option<&'a str>, patterns: &mut PatternCache) -> bool {
        evaluate(&self.0, lookup, patterns)
    }
}

fn evaluate<'a>(node: &Node, lookup: &impl Fn(&str) -> Option<&'a str>, patterns: &mut PatternCache) -> bool {
    match node {
        Node::All(parts) => parts.iter().all(|part| evaluate(part, lookup, patterns)),
        Node::Any(parts) => parts.iter().any(|part| evaluate(part, lookup, patterns)),
        Node::Compare(left, comparison, right) => compare(left, *comparison, right, lookup, patterns),
        Node::Variable(name) => lookup(name).is_some_and(|value| !value.is_empty()),
        Node::Text(text) => !text.is_empty(),
        Node::Pattern(_) => true,
        Node::Null => false,
    }
}

fn compare<'a>(
    left: &Node,
    comparison: Comparison,
    right: &Node,
    lookup: &impl Fn(&str) -> Option<&'a str>,
    patterns: &mut PatternCache,
) -> bool {
    let left = value_of(left, lookup);
    let right_value = value_of(right, lookup);
    let size = |value: Option<&str>| value.map_or(0, str::len);
    // Matching takes several times as long as comparing.
    let factor = if matches!(comparison, Comparison::Matching | Comparison::NotMatching) { 4 } else { 1 };
    if !patterns.charge_bytes(factor * (size(left) + size(right_value))) {
        return false;
    }
    let mut found = || {
        let Some(text) = left else { return false };
        match right {
            Node::Pattern(pattern) => pattern.is_match(text),
            // A variable may hold a pattern; other values match nothing.
            _ => right_value.and_then(|source| patterns.compile(source)).is_some_and(|pattern| pattern.is_match(text)),
        }
    };
    match comparison {
        Comparison::Equal => left == right_value,
        Comparison::Different => left != right_value,
        Comparison::Matching => found(),
        Comparison::NotMatching => !found(),
    }
}

fn value_of<'n, 'a: 'n>(node: &'n Node, lookup: &impl Fn(&str) -> Option<&'a str>) -> Option<&'n str> {
    match node {
        Node::Variable(name) => lookup(name),
        Node::Text(text) => Some(text),
        Node::Pattern(pattern) => Some(pattern.source()),
        Node::Null | Node::Compare(..) | Node::All(_) | Node::Any(_) => None,
    }
}

struct Parser<'a> {
    rest: &'a str,
    patterns: &'a mut PatternCache,
    depth: usize,
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix(word) {
            self.rest = rest;
            return true;
        }
        false
    }

    fn any(&mut self) -> Option<Node> {
        let mut parts = vec![self.all()?];
        while self.take("||") {
            parts.push(self.all()?);
        }
        if parts.len() > 1 { Some(Node::Any(parts)) } else { parts.pop() }
    }

    fn all(&mut self) -> Option<Node> {
        let mut parts = vec![self.comparison()?];
        while self.take("&&") {
            parts.push(self.comparison()?);
        }
        if parts.len() > 1 { Some(Node::All(parts)) } else { parts.pop() }
    }

    fn comparison(&mut self) -> Option<Node> {
        if self.take("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return None;
            }
            let inner = self.any()?;
            self.depth -= 1;
            return self.take(")").then_some(inner);
        }
        let left = self.operand()?;
        let comparison = if self.take("==") {
            Comparison::Equal
        } else if self.take("!=") {
            Comparison::Different
        } else if self.take("=~") {
            Comparison::Matching
        } else if self.take("!~") {
            Comparison::NotMatching
        } else {
            return Some(left);
        };
        let right = self.operand()?;
        Some(Node::Compare(Box::new(left), comparison, Box::new(right)))
    }

    fn operand(&mut self) -> Option<Node> {
        self.rest = self.rest.trim_start();
        let mut chars = self.rest.chars();
        match chars.next()? {
            '$' => {
                let name = self.word(1)?;
                Some(Node::Variable(name))
            }
            quote @ ('"' | '\'') => {
                let (text, rest) = self.rest[1..].split_once(quote)?;
                self.rest = rest;
                Some(Node::Text(text.to_owned()))
            }
            '/' => self.pattern(),
            'n' => (self.word(0)? == "null").then_some(Node::Null),
            _ => None,
        }
    }

    /// Takes letters, digits and underscores after skipping some bytes.
    fn word(&mut self, skip: usize) -> Option<String> {
        let text = &self.rest[skip..];
        let end = text.find(|ch: char| !ch.is_ascii_alphanumeric() && ch != '_').unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then(|| word.to_owned())
    }

    fn pattern(&mut self) -> Option<Node> {
        let bytes = self.rest.as_bytes();
        let mut index = 1;
        while *bytes.get(index)? != b'/' {
            index += if bytes[index] == b'\\' { 2 } else { 1 };
        }
        let flags = bytes[index + 1..].iter().take_while(|flag| flag.is_ascii_lowercase()).count();
        let (source, rest) = self.rest.split_at(index + 1 + flags);
        self.rest = rest;
        self.patterns.compile(source).map(Node::Pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks an expression where BRANCH is main, EMPTY is empty, RE is `/^ma/` and WORD is `ma`.
    fn check(text: &str, expected: Option<bool>) {
        let lookup = |name: &str| match name {
            "BRANCH" => Some("main"),
            "EMPTY" => Some(""),
            "RE" => Some("/^ma/"),
            "WORD" => Some("ma"),
            _ => None,
        };
        let mut patterns = PatternCache::default();
        let found = Expression::parse(text, &mut patterns).map(|parsed| parsed.evaluate(&lookup, &mut patterns));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn variables_are_compared_with_texts_and_null() {
        check("$BRANCH", Some(true));
        check("$EMPTY", Some(false));
        check("$ABSENT", Some(false));
        check(r#"$BRANCH == "main""#, Some(true));
        check("$BRANCH=='main'", Some(true));
        check(r#""main" != $BRANCH"#, Some(false));
        check("$ABSENT == null", Some(true));
        check("$EMPTY == null", Some(false));
        check(r#"$EMPTY == """#, Some(true));
        check(r#"$ABSENT == """#, Some(false));
        check("$BRANCH == $ABSENT", Some(false));
        check("null == null", Some(true));
    }

    #[test]
    fn texts_are_matched_with_patterns() {
        check("$BRANCH =~ /^ma/", Some(true));
        check("$BRANCH !~ /^ma/", Some(false));
        check("$BRANCH =~ /MAIN/i", Some(true));
        check(r"$BRANCH =~ /a\/b/", Some(false));
        check("$BRANCH =~ $RE", Some(true));
        check("$BRANCH =~ $WORD", Some(false));
        check("$ABSENT =~ /x/", Some(false));
        check("$ABSENT !~ /x/", Some(true));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        check("$ABSENT && $ABSENT || $BRANCH", Some(true));
        check("$BRANCH || $ABSENT && $ABSENT", Some(true));
        check("($BRANCH || $ABSENT) && $ABSENT", Some(false));
        check("((($BRANCH)))", Some(true));
        check("$BRANCH =~ /^m/ && ($EMPTY == \"\" || $ABSENT)", Some(true));
    }

    #[test]
    fn malformed_expressions_are_rejected() {
        for text in [
            "",
            " ",
            "$",
            "BRANCH",
            "$A ==",
            "== $A",
            "$A = 'x'",
            "$A == 'x",
            "$A && ",
            "($A",
            "$A)",
            "$A $B",
            "$A =~ /(/",
            "$A =~ /x",
            "nul",
            "nullable",
            "$A == /\\",
            "é",
        ] {
            check(text, None);
        }
        check(&format!("{}$A{}", "(".repeat(1000), ")".repeat(1000)), None);
        check(&"$A || ".repeat(10_000), None);
    }
}
