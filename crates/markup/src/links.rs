//! The URLs of pages.

use model::objects::ArchiveFormat;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The page with the sign-in form.
pub const SIGN_IN: &str = "/users/sign_in";

/// The formats of archives that pages link to.
pub const ARCHIVE_FORMATS: [ArchiveFormat; 3] = [ArchiveFormat::Zip, ArchiveFormat::TarGz, ArchiveFormat::TarBz2];

/// Characters that stay as they are in a path.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@').remove(b'+');
/// Characters that stay as they are in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Encodes a path.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Encodes a value in a query.
pub fn encode_query(value: &str) -> String {
    utf8_percent_encode(value, QUERY).to_string()
}

/// Returns the URL of the page of a user, a group or a project.
pub fn page(full_path: &str) -> String {
    format!("/{}", encode_path(full_path))
}

/// Returns the URL of a page of a group, such as `group_members`.
pub fn in_group(full_path: &str, word: &str) -> String {
    format!("/groups/{}/-/{word}", encode_path(full_path))
}

/// Returns the URL of the sign-in form that leads back to a path.
pub fn sign_in(return_to: &str) -> String {
    match return_to {
        "/" | "" => SIGN_IN.to_owned(),
        path => format!("{SIGN_IN}?return_to={}", encode_query(path)),
    }
}

/// Returns the path if it leads to a page of this server, and not to another host.
pub fn local_path(path: &str) -> Option<&str> {
    let is_local = path.starts_with('/') && !path.starts_with("//") && !path.contains('\\');
    let is_clean = path.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    (is_local && is_clean && !path.starts_with(SIGN_IN)).then_some(path)
}

/// The URLs of the pages of a project.
#[derive(Clone, Debug)]
pub struct ProjectLinks {
    home: String,
}

impl ProjectLinks {
    /// Returns the URLs of the project with a full path.
    pub fn new(full_path: &str) -> Self {
        Self { home: page(full_path) }
    }

    /// Returns the URL of the home page.
    pub fn home(&self) -> &str {
        &self.home
    }

    /// Returns the URL of a page without a location, such as `branches`.
    pub fn to(&self, word: &str) -> String {
        format!("{}/-/{word}", self.home)
    }

    /// Returns the URL of a folder.
    pub fn tree(&self, revision: &str, path: &str) -> String {
        self.at("tree", revision, path)
    }

    /// Returns the URL of a file.
    pub fn blob(&self, revision: &str, path: &str) -> String {
        self.at("blob", revision, path)
    }

    /// Returns the URL of the content of a file.
    pub fn raw(&self, revision: &str, path: &str) -> String {
        self.at("raw", revision, path)
    }

    /// Returns the URL of a file with the commit of each line.
    pub fn blame(&self, revision: &str, path: &str) -> String {
        self.at("blame", revision, path)
    }

    /// Returns the URL of the form that changes a file.
    pub fn edit(&self, branch: &str, path: &str) -> String {
        self.at("edit", branch, path)
    }

    /// Returns the URL of the form that deletes a file.
    pub fn delete(&self, branch: &str, path: &str) -> String {
        self.at("delete", branch, path)
    }

    /// Returns the URL of the form for a new file in a folder.
    pub fn new_file(&self, branch: &str, folder: &str) -> String {
        self.at("new", branch, folder)
    }

    /// Returns the URL of the page with the contributors of a revision.
    pub fn graphs(&self, revision: &str) -> String {
        self.at("graphs", revision, "")
    }

    /// Returns the URL of the search for a file by name.
    pub fn find_file(&self, revision: &str) -> String {
        self.at("find_file", revision, "")
    }

    /// Returns the URL of the history of a path.
    pub fn commits(&self, revision: &str, path: &str) -> String {
        self.at("commits", revision, path)
    }

    /// Returns the URL of a commit.
    pub fn commit(&self, id: &str) -> String {
        self.at("commit", id, "")
    }

    /// Returns the URL of a comparison.
    pub fn compare(&self, from: &str, to: &str) -> String {
        format!("{}/-/compare/{}...{}", self.home, encode_path(from), encode_path(to))
    }

    /// Returns the URL of an issue.
    pub fn issue(&self, iid: impl std::fmt::Display) -> String {
        format!("{}/-/issues/{iid}", self.home)
    }

    /// Returns the URL of a pipeline.
    pub fn pipeline(&self, id: impl std::fmt::Display) -> String {
        format!("{}/-/pipelines/{id}", self.home)
    }

    /// Returns the URL of a job.
    pub fn job(&self, id: impl std::fmt::Display) -> String {
        format!("{}/-/jobs/{id}", self.home)
    }

    /// Returns the URL of a milestone.
    pub fn milestone(&self, iid: impl std::fmt::Display) -> String {
        format!("{}/-/milestones/{iid}", self.home)
    }

    /// Returns the archives of a revision: the names of the formats, and the URLs.
    pub fn archives(&self, project: &str, revision: &str) -> Vec<(&'static str, String)> {
        let archive = |format: ArchiveFormat| {
            let extension = format.extension();
            let name = format!("{project}-{}.{extension}", revision.replace('/', "-"));
            (extension, self.at("archive", revision, &name))
        };
        ARCHIVE_FORMATS.into_iter().map(archive).collect()
    }

    /// Returns the URL of the release of a tag.
    pub fn release(&self, tag: &str) -> String {
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
