//! Which project somebody means by a path.

use percent_encoding::percent_decode_str;

/// The longest path of a project taken.
const LONGEST: usize = 2_000;
/// First segments below which the service itself lives.
const OURS: [&str; 2] = ["api", "-"];

/// What a request over HTTP is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Refs,
    UploadPack,
    ReceivePack,
}

/// The full path of a project as it was written for SSH, with or without `.git`.
pub(crate) fn project(path: &str) -> Option<String> {
    let path = path.strip_suffix(".git").unwrap_or(path);
    let mut segments = path.split('/');
    let first = segments.next()?;
    let whole = segments.clone().next().is_some() && is_segment(first) && segments.all(is_segment);
    (whole && path.len() <= LONGEST && !OURS.contains(&first)).then(|| path.to_owned())
}

/// The full path of a project and what is asked of it, out of the path of a URL.
pub(crate) fn door(path: &str) -> Option<(String, Door)> {
    let doors =
        [("/info/refs", Door::Refs), ("/git-upload-pack", Door::UploadPack), ("/git-receive-pack", Door::ReceivePack)];
    let (path, door) = doors.iter().find_map(|(end, door)| Some((path.strip_suffix(end)?, *door)))?;
    let decoded = percent_decode_str(path.strip_prefix('/')?).decode_utf8().ok()?;
    // An encoded slash must not turn one segment into two.
    let same_shape = decoded.matches('/').count() == path.matches('/').count() - 1;
    let project = project(&decoded).filter(|_| same_shape)?;
    Some((project, door))
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
    fn a_url_names_a_project_and_a_door() {
        let check = |path: &str, expected: Option<(&str, Door)>| {
            assert_eq!(door(path), expected.map(|(project, door)| (project.to_owned(), door)), "{path}");
        };
        check("/acme/rocket.git/info/refs", Some(("acme/rocket", Door::Refs)));
        check("/acme/rocket/info/refs", Some(("acme/rocket", Door::Refs)));
        check("/a/b/c/d.git/git-upload-pack", Some(("a/b/c/d", Door::UploadPack)));
        check("/acme/rocket/git-receive-pack", Some(("acme/rocket", Door::ReceivePack)));
        check("/acme/r%6Fcket.git/info/refs", Some(("acme/rocket", Door::Refs)));
        check("/acme/x.git.git/info/refs", Some(("acme/x.git", Door::Refs)));
        check("/rocket.git/info/refs", None);
        check("/acme/rocket.git/HEAD", None);
        check("/acme/rocket.git", None);
        check("/info/refs", None);
        check("/api/v3/info/refs", None);
        check("/-/health/info/refs", None);
    }

    #[test]
    fn lesson_03_nothing_in_a_path_reaches_a_folder_or_an_option() {
        for bad in [
            "", "/", "a", "a/", "/a/b", "a//b", "a/..", "../a", "a/./b", "a/../b", "-x/y", "x/-y", "a/b c", "a/b;c",
            "a/b\0", "a/b\n", "a/ä", "a/.git", "a/$(id)", "a/`id`", "a\\b/c", "~/a/b", ".../a",
        ] {
            assert_eq!(project(bad), None, "{bad:?}");
        }
        for bad in [
            "/a%2Fb/info/refs",
            "/a/%2e%2e.git/info/refs",
            "/a/%00b/info/refs",
            "/a/b%2Fc/info/refs",
            "/%ff/b/info/refs",
        ] {
            assert_eq!(door(bad), None, "{bad:?}");
        }
        assert_eq!(project(&format!("a/{}", "b".repeat(LONGEST))), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_refused_or_is_plain(path in "/?(([a-zA-Z0-9_.-]|%2[fF]|%2[eE]|[/~;'\"\\\\ \\PC]){0,40})/info/refs") {
            if let Some((project, _)) = door(&path) {
                prop_assert!(project.split('/').count() >= 2);
                prop_assert!(project.split('/').all(is_segment));
            }
        }
    }
}
