//! Patterns of paths: `*` and `?` inside a name, `**` for any number of names, `[a-z]` and `{one,two}`.

/// How many patterns `{a,b}` may become.
const MOST_BRANCHES: usize = 256;

/// A set of patterns.
#[derive(Default)]
pub(crate) struct Globs(Vec<Vec<String>>);

impl Globs {
    /// The patterns, and those that lead out of the project, which are left out.
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = &'a str>, project: &str) -> (Self, Vec<String>) {
        let (mut globs, mut outside) = (Vec::new(), Vec::new());
        for pattern in patterns {
            let inside = pattern.strip_prefix(project).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let relative = inside.map_or(pattern, |rest| rest.trim_start_matches('/'));
            let names: Vec<&str> = relative.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
            if pattern.is_empty() {
                continue;
            }
            if relative.starts_with('/') || names.contains(&"..") {
                outside.push(pattern.to_owned());
                continue;
            }
            // The whole project is meant by its own folder.
            let text = if names.is_empty() { "**".to_owned() } else { names.join("/") };
            for branch in branches(&text) {
                globs.push(branch.split('/').map(ToOwned::to_owned).collect());
            }
        }
        (Self(globs), outside)
    }

    /// Whether a path is meant, or a folder above it.
    pub(crate) fn take(&self, path: &[&str]) -> bool {
        self.0.iter().any(|pattern| matches_prefix(pattern, path))
    }

    /// Whether something below this folder could be meant.
    pub(crate) fn may_take_below(&self, folder: &[&str]) -> bool {
        self.0.iter().any(|pattern| {
            let plain = pattern.iter().take_while(|name| !name.contains(['*', '?', '[', '\\']));
            plain.zip(folder).all(|(name, found)| name == found)
        })
    }
}

/// Whether the pattern means the path or a folder above it; takes time in proportion to the product of both lengths.
fn matches_prefix(pattern: &[String], path: &[&str]) -> bool {
    // `reach[n]`: what was looked at of the pattern so far can mean the first n names.
    let mut reach = vec![false; path.len() + 1];
    reach[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if part == "**" {
            let mut open = false;
            for (place, reached) in reach.iter().enumerate() {
                open |= reached;
                next[place] = open;
            }
        } else {
            for (place, name) in path.iter().enumerate() {
                next[place + 1] = reach[place] && matches_name(part.as_bytes(), name.as_bytes());
            }
        }
        reach = next;
    }
    // The project folder itself is never what is meant.
    reach.iter().skip(1).any(|reached| *reached)
}

fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Where the last star stands, and how much it has swallowed.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, place));
            at += 1;
        } else if let Some(after) = one(pattern, at, name[place]) {
            at = after;
            place += 1;
        } else if let Some((before, swallowed)) = star {
            star = Some((before, swallowed + 1));
            (at, place) = (before + 1, swallowed + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

/// Where the pattern goes on if it takes this letter here.
fn one(pattern: &[u8], at: usize, letter: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == letter).then_some(at + 2),
        b'[' => {
            let end = at + 2 + pattern.get(at + 2..)?.iter().position(|byte| *byte == b']')?;
            let (negated, class) = match &pattern[at + 1..end] {
                [b'!' | b'^', class @ ..] => (true, class),
                class => (false, class),
            };
            let mut found = false;
            let mut rest = class;
            while let Some((&first, after)) = rest.split_first() {
                if let [b'-', last, after @ ..] = after {
                    found |= (first..=*last).contains(&letter);
                    rest = after;
                } else {
                    found |= first == letter;
                    rest = after;
                }
            }
            (found != negated).then_some(end + 1)
        }
        plain => (plain == letter).then_some(at + 1),
    }
}

/// The patterns that `{a,b}` stands for, as far as they are not too many.
fn branches(text: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(next) = open.pop() {
        let inner = next.find('}').and_then(|end| next[..end].rfind('{').map(|start| (start, end)));
        match inner {
            Some((start, end)) if open.len() + done.len() < MOST_BRANCHES => {
                for choice in next[start + 1..end].split(',') {
                    open.push(format!("{}{choice}{}", &next[..start], &next[end + 1..]));
                }
            }
            _ => done.push(next),
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, path: &str, expected: bool) {
        let (globs, _) = Globs::new([pattern], "/builds/7/rocket");
        let names: Vec<&str> = path.split('/').collect();
        assert_eq!(globs.take(&names), expected, "{pattern} and {path}");
        if expected {
            assert!(globs.may_take_below(&names[..names.len() - 1]), "{pattern} and what is below {path}");
        }
    }

    #[test]
    fn patterns_mean_files_and_whole_folders() {
        check("out", "out/a/b.txt", true);
        check("out/", "out/a", true);
        check("./out/*.txt", "out/a.txt", true);
        check("out/*.txt", "out/a/b.txt", false);
        check("out/*", "out/a/b.txt", true);
        check("*.txt", "a.txt", true);
        check("*.txt", "out/a.txt", false);
        check("**/*.txt", "a.txt", true);
        check("**/*.txt", "out/deep/a.txt", true);
        check("out/**/x", "out/x", true);
        check("out/**", "other/x", false);
        check("/builds/7/rocket/out", "out/a", true);
        check("/builds/7/rocket", "anything/a", true);
        check("a?c[0-9][!x].{jpg,png}", "abc7y.png", true);
        check("a?c[0-9][!x].{jpg,png}", "abc7x.png", false);
        check(".", "a", true);
        check("*a*b*c", "xxaxxbxxc", true);
        check("*a*b*c", "xxaxxcxxb", false);
    }

    #[test]
    fn patterns_that_lead_out_are_left_out() {
        let (globs, outside) =
            Globs::new(["../x", "/etc/passwd", "a/../../b", "", "/builds/7/rocketeer"], "/builds/7/rocket");
        assert!(globs.0.is_empty());
        assert_eq!(outside, ["../x", "/etc/passwd", "a/../../b", "/builds/7/rocketeer"]);
    }

    #[test]
    fn braces_do_not_explode() {
        assert!(branches(&"{a,b}".repeat(100)).len() <= MOST_BRANCHES + 1);
    }
}
