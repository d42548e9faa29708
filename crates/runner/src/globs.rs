//! The globs that select the files of artifacts and caches.

use ci::{Glob, GlobSemantics};

/// A set of globs.
#[derive(Default)]
pub(crate) struct Globs(Vec<Glob>);

impl Globs {
    /// Compiles patterns; returns separately those that point outside the project. Malformed patterns match nothing.
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
            // The project folder means everything in it.
            let text = if names.is_empty() { "**".to_owned() } else { names.join("/") };
            globs.extend(Glob::compile(&text, GlobSemantics::Doublestar));
        }
        (Self(globs), outside)
    }

    /// Returns whether a path or one of its parents matches.
    pub(crate) fn matches(&self, path: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(path))
    }

    /// Returns whether something below this folder could match.
    pub(crate) fn may_match_below(&self, folder: &str) -> bool {
        self.0.iter().any(|glob| glob.may_match_below(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, path: &str, expected: bool) {
        let (globs, _) = Globs::new([pattern], "/builds/7/rocket");
        assert_eq!(globs.matches(path), expected, "{pattern} and {path}");
        if expected {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            assert!(globs.may_match_below(folder), "{pattern} and what is below {folder}");
        }
    }

    #[test]
    fn patterns_match_files_and_whole_folders() {
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
    fn patterns_outside_the_project_are_ignored() {
        let (globs, outside) =
            Globs::new(["../x", "/etc/passwd", "a/../../b", "", "/builds/7/rocketeer"], "/builds/7/rocket");
        assert!(globs.0.is_empty());
        assert_eq!(outside, ["../x", "/etc/passwd", "a/../../b", "/builds/7/rocketeer"]);
    }

    #[test]
    fn malformed_patterns_match_nothing() {
        let (globs, outside) = Globs::new(["[", "a{b", "x\\"], "/builds/7/rocket");
        assert!(globs.0.is_empty());
        assert!(outside.is_empty());
    }
}
