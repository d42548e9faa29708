//! Protected branches.

/// The users who may push to or merge into a protected branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PushLevel {
    /// No one.
    NoOne,
    /// Developers and higher roles.
    Developers,
    /// Masters and higher roles.
    Masters,
}

impl PushLevel {
    /// Returns the numeric access level.
    pub fn level(self) -> i32 {
        match self {
            Self::NoOne => 0,
            Self::Developers => 30,
            Self::Masters => 40,
        }
    }

    /// Converts a numeric access level.
    pub fn from_level(level: i32) -> Option<Self> {
        [Self::NoOne, Self::Developers, Self::Masters].into_iter().find(|known| known.level() == level)
    }
}

/// A protection rule for one or more branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The name of a branch; `*` matches any characters.
    pub name: String,
    /// Who may push.
    pub push: PushLevel,
    /// Who may merge.
    pub merge: PushLevel,
}

impl Protection {
    /// Returns whether the rule applies to a branch. Unlike in the globs of CI files, `*` also matches a slash, and no
    /// other character is special.
    pub fn matches(&self, branch: &str) -> bool {
        let mut parts = self.name.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(last) = parts.next_back() else { return branch == first };
        let Some(rest) = branch.strip_prefix(first) else { return false };
        let Some(mut rest) = rest.strip_suffix(last) else { return false };
        // Matching each part as early as possible leaves the most for the others, so no backtracking is needed.
        for part in parts {
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters() {
        let check = |name: &str, branch: &str, expected: bool| {
            let rule = Protection { name: name.into(), push: PushLevel::Masters, merge: PushLevel::Masters };
            assert_eq!(rule.matches(branch), expected, "{name} {branch}");
        };
        check("main", "main", true);
        check("main", "Main", false);
        check("main", "main2", false);
        check("*", "main", true);
        check("*", "", true);
        check("release/*", "release/1/2", true);
        check("release/*", "release/", true);
        check("release/*", "release", false);
        check("*-stable", "8-14-stable", true);
        check("*-stable", "stable", false);
        check("a*a", "a", false);
        check("a*a", "aa", true);
        check("a*b*c", "a-bb-c", true);
        check("a*b*c", "a-c-b", false);
        check("a**b", "ab", true);
        check("*ä*", "xäx", true);
        check("1.x", "1ax", false);
    }

    #[test]
    fn a_long_pattern_is_matched_without_backtracking() {
        let name = format!("{}b", "a*".repeat(100));
        let rule = Protection { name, push: PushLevel::NoOne, merge: PushLevel::NoOne };
        assert!(!rule.matches(&"a".repeat(100_000)));
    }

    #[test]
    fn levels_convert_to_numbers_and_back() {
        for level in [PushLevel::NoOne, PushLevel::Developers, PushLevel::Masters] {
            assert_eq!(PushLevel::from_level(level.level()), Some(level));
        }
        assert_eq!(PushLevel::from_level(10), None);
    }
}
