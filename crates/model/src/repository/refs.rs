//! Names of branches and tags, and how they change.

use std::fmt;

use crate::Oid;

/// The folder of refs that belong to the service and that nobody else sees.
pub const HIDDEN: &str = "refs/gable/";
const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
/// The longest name of a ref; more does not fit into a file name with its lock.
const LONGEST: usize = 240;

/// The full name of a ref, known to be well formed: `refs/heads/main`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

/// What a ref stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefKind {
    /// Below `refs/heads/`.
    Branch,
    /// Below `refs/tags/`.
    Tag,
    /// Anywhere else.
    Other,
}

impl RefName {
    /// A full name, if git would take it and so would we.
    pub fn new(name: &str) -> Option<Self> {
        let short = name.strip_prefix("refs/")?;
        // A ref lies two levels deep at least; `refs/stash` and the like belong to work trees.
        let below = short.strip_prefix("heads/").or_else(|| short.strip_prefix("tags/"));
        let fits = below.map_or_else(|| short.contains('/') && is_well_formed(short), is_acceptable);
        (fits && name.len() <= LONGEST).then(|| Self(name.to_owned()))
    }

    /// The branch of this name.
    pub fn branch(name: &str) -> Option<Self> {
        Self::new(&format!("{HEADS}{name}"))
    }

    /// The tag of this name.
    pub fn tag(name: &str) -> Option<Self> {
        Self::new(&format!("{TAGS}{name}"))
    }

    /// The full name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it stands for.
    pub fn kind(&self) -> RefKind {
        if self.0.starts_with(HEADS) {
            RefKind::Branch
        } else if self.0.starts_with(TAGS) {
            RefKind::Tag
        } else {
            RefKind::Other
        }
    }

    /// The name as people say it: `main` for a branch or a tag, all of it for others.
    pub fn short(&self) -> &str {
        self.0.strip_prefix(HEADS).or_else(|| self.0.strip_prefix(TAGS)).unwrap_or(&self.0)
    }

    /// The name, if it is one of a branch.
    pub fn as_branch(&self) -> Option<&str> {
        self.0.strip_prefix(HEADS)
    }

    /// The name, if it is one of a tag.
    pub fn as_tag(&self) -> Option<&str> {
        self.0.strip_prefix(TAGS)
    }

    /// Whether it is a branch or a tag that is called like the full id of a commit. None can be created: whoever asks for
    /// that id means the commit.
    pub fn looks_like_an_id(&self) -> bool {
        self.kind() != RefKind::Other && self.short().parse::<Oid>().is_ok()
    }

    /// Whether it belongs to the service itself.
    pub fn is_hidden(&self) -> bool {
        self.0.starts_with(HIDDEN)
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

/// A change of one ref: from what it was, if it was, to what it shall be, if it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefChange {
    /// Which ref.
    pub name: RefName,
    /// What it points to now; `None` if there is none.
    pub old: Option<Oid>,
    /// What it shall point to; `None` removes it.
    pub new: Option<Oid>,
}

/// Whether a branch or a tag may be called this: what git allows, less what is mistaken for an option or for something else.
fn is_acceptable(name: &str) -> bool {
    is_well_formed(name)
        && !name.starts_with('-')
        && name != "HEAD"
        && !name.starts_with("refs/heads/")
        && !name.starts_with("refs/remotes/")
        && !name.starts_with("refs/tags/")
}

/// Whether git takes this as a name below `refs/`.
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
    fn names_are_those_of_git_less_what_could_be_mistaken() {
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
    fn a_name_of_forty_hexadecimal_digits_looks_like_an_id() {
        let id = "0123456789abcdef0123456789ABCDEF01234567";
        for name in [RefName::branch(id), RefName::tag(id)] {
            assert!(name.expect("a name").looks_like_an_id());
        }
        let longer = format!("{id}8");
        for other in [&id[1..], &longer, "master", "0123456789abcdef0123456789abcdef0123456g"] {
            assert!(!RefName::branch(other).expect("a name").looks_like_an_id(), "{other}");
        }
        assert!(!RefName::new(&format!("refs/notes/{id}")).expect("a name").looks_like_an_id());
    }

    #[test]
    fn a_full_name_lies_below_refs() {
        for bad in ["HEAD", "main", "refs/heads", "refs/heads/", "refs/stash", "heads/x", "refs//x", "refs/../x/y"] {
            assert_eq!(RefName::new(bad), None, "{bad:?}");
        }
        let note = RefName::new("refs/notes/commits").expect("a name");
        assert_eq!((note.kind(), note.short(), note.is_hidden()), (RefKind::Other, "refs/notes/commits", false));
        assert!(RefName::new("refs/gable/keep/1").expect("a name").is_hidden());
    }
}
