//! The URLs of pages.

use model::objects::ArchiveFormat;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The page with the sign-in form.
pub(crate) const SIGN_IN: &str = "/users/sign_in";

/// The formats of archives that pages link to.
pub(crate) const ARCHIVE_FORMATS: [ArchiveFormat; 3] =
    [ArchiveFormat::Zip, ArchiveFormat::TarGz, ArchiveFormat::TarBz2];

/// Characters that stay as they are in a path.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@').remove(b'+');
/// Characters that stay as they are in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Encodes a path.
pub(crate) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Encodes a value in a query.
pub(crate) fn encode_query(value: &str) -> String {
    utf8_percent_encode(value, QUERY).to_string()
}

/// Returns the URL of the page of a user, a group or a project.
pub(crate) fn page(full_path: &str) -> String {
    format!("/{}", encode_path(full_path))
}

/// Returns the URL of a page of a group, such as `group_members`.
pub(crate) fn in_group(full_path: &str, word: &str) -> String {
    format!("/groups/{}/-/{word}", encode_path(full_path))
}

/// Returns the URL of the sign-in form that leads back to a path.
pub(crate) fn sign_in(return_to: &str) -> String {
    match return_to {
        "/" | "" => SIGN_IN.to_owned(),
        path => format!("{SIGN_IN}?return_to={}", encode_query(path)),
    }
}

/// Returns the path if it leads to a page of this server, and not to another host.
pub(crate) fn local_path(path: &str) -> Option<&str> {
    let is_local = path.starts_with('/') && !path.starts_with("//") && !path.contains('\\');
    let is_clean = path.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    (is_local && is_clean && !path.starts_with(SIGN_IN)).then_some(path)
}

/// The URLs of the pages of a project.
#[derive(Clone, Debug)]
pub(crate) struct ProjectLinks {
    home: String,
}

impl ProjectLinks {
    pub(crate) fn new(full_path: &str) -> Self {
        Self { home: page(full_path) }
    }

    pub(crate) fn home(&self) -> &str {
        &self.home
    }

    /// Returns the URL of a page without a location, such as `branches`.
    pub(crate) fn to(&self, word: &str) -> String {
        format!("{}/-/{word}", self.home)
    }

    pub(crate) fn tree(&self, revision: &str, path: &str) -> String {
        self.at("tree", revision, path)
    }

    pub(crate) fn blob(&self, revision: &str, path: &str) -> String {
        self.at("blob", revision, path)
    }

    pub(crate) fn raw(&self, revision: &str, path: &str) -> String {
        self.at("raw", revision, path)
    }

    pub(crate) fn blame(&self, revision: &str, path: &str) -> String {
        self.at("blame", revision, path)
    }

    pub(crate) fn edit(&self, branch: &str, path: &str) -> String {
        self.at("edit", branch, path)
    }

    pub(crate) fn delete(&self, branch: &str, path: &str) -> String {
        self.at("delete", branch, path)
    }

    /// Returns the URL of the form for a new file in a folder.
    pub(crate) fn new_file(&self, branch: &str, folder: &str) -> String {
        self.at("new", branch, folder)
    }

    /// Returns the URL of the page with the contributors of a revision.
    pub(crate) fn graphs(&self, revision: &str) -> String {
        self.at("graphs", revision, "")
    }

    pub(crate) fn find_file(&self, revision: &str) -> String {
        self.at("find_file", revision, "")
    }

    pub(crate) fn commits(&self, revision: &str, path: &str) -> String {
        self.at("commits", revision, path)
    }

    pub(crate) fn commit(&self, id: &str) -> String {
        self.at("commit", id, "")
    }

    pub(crate) fn compare(&self, from: &str, to: &str) -> String {
        format!("{}/-/compare/{}...{}", self.home, encode_path(from), encode_path(to))
    }

    pub(crate) fn issue(&self, iid: impl std::fmt::Display) -> String {
        format!("{}/-/issues/{iid}", self.home)
    }

    pub(crate) fn pipeline(&self, id: impl std::fmt::Display) -> String {
        format!("{}/-/pipelines/{id}", self.home)
    }

    pub(crate) fn job(&self, id: impl std::fmt::Display) -> String {
        format!("{}/-/jobs/{id}", self.home)
    }

    /// Returns the archives of a revision: the names of the formats, and the URLs.
    pub(crate) fn archives(&self, project: &str, revision: &str) -> Vec<(&'static str, String)> {
        let archive = |format: ArchiveFormat| {
            let extension = format.extension();
            let name = format!("{project}-{}.{extension}", revision.replace('/', "-"));
            (extension, self.at("archive", revision, &name))
        };
        ARCHIVE_FORMATS.into_iter().map(archive).collect()
    }

    /// Returns the URL of the release of a tag.
    pub(crate) fn release(&self, tag: &str) -> String {
        format!("{}/-/tags/{}/release", self.home, encode_path(tag))
    }

    fn at(&self, word: &str, revision: &str, path: &str) -> String {
        let slash = if path.is_empty() { "" } else { "/" };
        format!("{}/-/{word}/{}{slash}{}", self.home, encode_path(revision), encode_path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_encoded() {
        let links = ProjectLinks::new("ann/rocket");
        assert_eq!(links.blob("a#b", "x y/ä?.md"), "/ann/rocket/-/blob/a%23b/x%20y/%C3%A4%3F.md");
        assert_eq!(links.tree("main", ""), "/ann/rocket/-/tree/main");
        assert_eq!(links.compare("a/b", "v1"), "/ann/rocket/-/compare/a/b...v1");
        assert_eq!(sign_in("/ann/x?page=2"), "/users/sign_in?return_to=/ann/x%3Fpage%3D2");
    }

    #[test]
    fn only_local_paths_are_returned_to() {
        for good in ["/", "/ann/rocket?page=2", "/a//b"] {
            assert_eq!(local_path(good), Some(good));
        }
        for bad in ["", "ann", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "/users/sign_in"] {
            assert_eq!(local_path(bad), None, "{bad:?}");
        }
    }
}
