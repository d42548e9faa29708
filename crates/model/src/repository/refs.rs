//! Ref names and ref changes.

use std::fmt;

use crate::Oid;

/// The prefix of refs that belong to the service and are hidden from clients.
pub const HIDDEN_PREFIX: &str = "refs/gable/";
const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
/// The maximum length of a ref name; more would not fit into a file name with `.lock`.
const MAX_LENGTH: usize = 240;

/// The full, well-formed name of a ref, such as `refs/heads/main`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

/// The kind of a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefKind {
    /// Below `refs/heads/`.
    Branch,
    /// Below `refs/tags/`.
    Tag,
    /// Any other ref.
    Other,
}

impl RefName {
    /// Parses a full name; `None` if git or Gable does not allow it.
    pub fn new(name: &str) -> Option<Self> {
        let short = name.strip_prefix("refs/")?;
        // A ref is at least two levels deep; `refs/stash` and the like belong to work trees.
        let short_name = short.strip_prefix("heads/").or_else(|| short.strip_prefix("tags/"));
        let is_valid = short_name.map_or_else(|| short.contains('/') && is_well_formed(short), is_acceptable);
        (is_valid && name.len() <= MAX_LENGTH).then(|| Self(name.to_owned()))
    }

    /// Returns the name of a branch.
    pub fn branch(name: &str) -> Option<Self> {
        Self::new(&format!("{HEADS}{name}"))
    }

    /// Returns the name of a tag.
    pub fn tag(name: &str) -> Option<Self> {
        Self::new(&format!("{TAGS}{name}"))
    }

    /// Returns the full name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the kind of the ref.
    pub fn kind(&self) -> RefKind {
        if self.0.starts_with(HEADS) {
            RefKind::Branch
        } else if self.0.starts_with(TAGS) {
            RefKind::Tag
        } else {
            RefKind::Other
        }
    }

    /// Returns the short name of a branch or tag, such as `main`; the full name of other refs.
    pub fn short(&self) -> &str {
        self.0.strip_prefix(HEADS).or_else(|| self.0.strip_prefix(TAGS)).unwrap_or(&self.0)
    }

    /// Returns the short name, if it is a branch.
    pub fn as_branch(&self) -> Option<&str> {
        self.0.strip_prefix(HEADS)
    }

    /// Returns the short name, if it is a tag.
    pub fn as_tag(&self) -> Option<&str> {
        self.0.strip_prefix(TAGS)
    }

    /// Returns whether a branch or tag is named like a full object id. Such names cannot be created, because they are ambiguous
    /// with commits.
    pub fn looks_like_oid(&self) -> bool {
        self.kind() != RefKind::Other && self.short().parse::<Oid>().is_ok()
    }

    /// Returns whether the ref belongs to the service.
    pub fn is_hidden(&self) -> bool {
        self.0.starts_with(HIDDEN_PREFIX)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A change of one ref: a creation, update or deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefChange {
    /// The name of the ref.
    pub name: RefName,
    /// The current target; `None` to create the ref.
    pub old: Option<Oid>,
    /// The new target; `None` to delete the ref.
    pub new: Option<Oid>,
}

/// Returns whether a branch or tag may have this name: as git, except for names that look like options or full refs.
fn is_acceptable(name: &str) -> bool {
    is_well_formed(name)
        && !name.starts_with('-')
        && name != "HEAD"
        && !name.starts_with("refs/heads/")
        && !name.starts_with("refs/remotes/")
        && !name.starts_with("refs/tags/")
}

/// Returns whether git allows a name below `refs/`.
fn is_well_formed(name: &str) -> bool {
    const FORBIDDEN: &[char] = &[' ', '~', '^', ':', '?', '*', '[', '\\', '\x7f'];
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    !name.is_empty()
        && name.split('/').all(part)
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(|c: char| c.is_control() || FORBIDDEN.contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_names_are_refused() {
        for good in ["main", "a/b", "x.y", "@", "ä", "a-b", "feature/x.y", "a@b", "v1.0", "head", "a;b", "$(id)", "a|b"]
        {
            assert_eq!(RefName::branch(good).expect(good).as_branch(), Some(good));
            assert_eq!(RefName::tag(good).expect(good).short(), good);
        }
        let long = "x".repeat(300);
        let bad = [
            "",
            "-x",
            "--upload-pack=id",
            "HEAD",
            "a..b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a.",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "/a",
            "a/",
            "a//b",
            "a@{b",
            "a\nb",
            "a\0b",
            "a\x7f",
            "refs/heads/a",
            "refs/remotes/a",
            "refs/tags/x",
            &long,
        ];
        for bad in bad {
            assert_eq!(RefName::branch(bad), None, "{bad:?}");
            assert_eq!(RefName::tag(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_name_of_40_hexadecimal_digits_looks_like_an_oid() {
        let id = "0123456789abcdef0123456789ABCDEF01234567";
        for name in [RefName::branch(id), RefName::tag(id)] {
            assert!(name.expect("a name").looks_like_oid());
        }
        let longer = format!("{id}8");
        for other in [&id[1..], &longer, "master", "0123456789abcdef0123456789abcdef0123456g"] {
            assert!(!RefName::branch(other).expect("a name").looks_like_oid(), "{other}");
        }
        assert!(!RefName::new(&format!("refs/notes/{id}")).expect("a name").looks_like_oid());
    }

    #[test]
    fn a_full_name_starts_with_refs() {
        for bad in ["HEAD", "main", "refs/heads", "refs/heads/", "refs/stash", "heads/x", "refs//x", "refs/../x/y"] {
            assert_eq!(RefName::new(bad), None, "{bad:?}");
        }
        let note = RefName::new("refs/notes/commits").expect("a name");
        assert_eq!((note.kind(), note.short(), note.is_hidden()), (RefKind::Other, "refs/notes/commits", false));
        assert!(RefName::new("refs/gable/keep/1").expect("a name").is_hidden());
    }
}
