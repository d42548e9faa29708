//! Parses project paths from SSH commands and URLs.

use percent_encoding::percent_decode_str;

/// The maximum length of a project path, in bytes.
const MAX_PATH_LENGTH: usize = 2_000;
/// First segments that belong to the service itself.
const RESERVED_SEGMENTS: [&str; 2] = ["api", "-"];

/// A smart HTTP endpoint of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    InfoRefs,
    UploadPack,
    ReceivePack,
}

/// Parses the full path of a project, with or without `.git`.
pub(crate) fn parse(path: &str) -> Option<String> {
    let path = path.strip_suffix(".git").unwrap_or(path);
    let mut segments = path.split('/');
    let first = segments.next()?;
    let whole = segments.clone().next().is_some() && is_segment(first) && segments.all(is_segment);
    (whole && path.len() <= MAX_PATH_LENGTH && !RESERVED_SEGMENTS.contains(&first)).then(|| path.to_owned())
}

/// Parses the path of a URL into the full path of a project and an endpoint.
pub(crate) fn parse_url(path: &str) -> Option<(String, Endpoint)> {
    let endpoints = [
        ("/info/refs", Endpoint::InfoRefs),
        ("/git-upload-pack", Endpoint::UploadPack),
        ("/git-receive-pack", Endpoint::ReceivePack),
    ];
    let (path, endpoint) =
        endpoints.iter().find_map(|(suffix, endpoint)| Some((path.strip_suffix(suffix)?, *endpoint)))?;
    let decoded = percent_decode_str(path.strip_prefix('/')?).decode_utf8().ok()?;
    // An encoded slash must not turn one segment into two.
    let same_shape = decoded.matches('/').count() == path.matches('/').count() - 1;
    let project = parse(&decoded).filter(|_| same_shape)?;
    Some((project, endpoint))
}

fn is_segment(segment: &str) -> bool {
    !segment.is_empty()
        && !segment.starts_with('-')
        && !segment.bytes().all(|byte| byte == b'.')
        && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_names_a_project_and_an_endpoint() {
        let check = |path: &str, expected: Option<(&str, Endpoint)>| {
            assert_eq!(parse_url(path), expected.map(|(project, endpoint)| (project.to_owned(), endpoint)), "{path}");
        };
        check("/acme/rocket.git/info/refs", Some(("acme/rocket", Endpoint::InfoRefs)));
        check("/acme/rocket/info/refs", Some(("acme/rocket", Endpoint::InfoRefs)));
        check("/a/b/c/d.git/git-upload-pack", Some(("a/b/c/d", Endpoint::UploadPack)));
        check("/acme/rocket/git-receive-pack", Some(("acme/rocket", Endpoint::ReceivePack)));
        check("/acme/r%6Fcket.git/info/refs", Some(("acme/rocket", Endpoint::InfoRefs)));
        check("/acme/x.git.git/info/refs", Some(("acme/x.git", Endpoint::InfoRefs)));
        check("/rocket.git/info/refs", None);
        check("/acme/rocket.git/HEAD", None);
        check("/acme/rocket.git", None);
        check("/info/refs", None);
        check("/api/v3/info/refs", None);
        check("/-/health/info/refs", None);
    }

    #[test]
    fn a_path_cannot_name_a_folder_or_an_option() {
        for bad in [
            "", "/", "a", "a/", "/a/b", "a//b", "a/..", "../a", "a/./b", "a/../b", "-x/y", "x/-y", "a/b c", "a/b;c",
            "a/b\0", "a/b\n", "a/ä", "a/.git", "a/$(id)", "a/`id`", "a\\b/c", "~/a/b", ".../a",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        for bad in [
            "/a%2Fb/info/refs",
            "/a/%2e%2e.git/info/refs",
            "/a/%00b/info/refs",
            "/a/b%2Fc/info/refs",
            "/%ff/b/info/refs",
        ] {
            assert_eq!(parse_url(bad), None, "{bad:?}");
        }
        assert_eq!(parse(&format!("a/{}", "b".repeat(MAX_PATH_LENGTH))), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_refused_or_is_plain(path in "/?(([a-zA-Z0-9_.-]|%2[fF]|%2[eE]|[/~;'\"\\\\ \\PC]){0,40})/info/refs") {
            if let Some((project, _)) = parse_url(&path) {
                prop_assert!(project.split('/').count() >= 2);
                prop_assert!(project.split('/').all(is_segment));
            }
        }
    }
}
