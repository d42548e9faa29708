//! What a client asks for in the one line that it may send. No shell ever sees it.

use crate::address;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) service: Service,
    /// The full path of a project; `None` if what was written cannot be one.
    pub(super) project: Option<String>,
}

/// The three programs that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    UploadPack,
    ReceivePack,
    UploadArchive,
}

/// Understands `git-upload-pack 'acme/rocket.git'` and its like; `None` for anything else.
pub(super) fn parse(command: &[u8]) -> Option<Order> {
    let command = std::str::from_utf8(command).ok()?;
    let command = command.strip_prefix("git-").or_else(|| command.strip_prefix("git "))?;
    let (service, path) = command.split_once(' ')?;
    let service = match service {
        "upload-pack" => Service::UploadPack,
        "receive-pack" => Service::ReceivePack,
        "upload-archive" => Service::UploadArchive,
        _ => return None,
    };
    let path = path.strip_prefix('\'')?.strip_suffix('\'')?;
    // No path of a project has what git would have to escape.
    if path.contains(['\'', '\\', '!']) {
        return None;
    }
    let project = address::project(path.strip_prefix('/').unwrap_or(path));
    Some(Order { service, project })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_three_programs_are_understood() {
        let check = |command: &str, service, project: &str| {
            assert_eq!(
                parse(command.as_bytes()),
                Some(Order { service, project: Some(project.to_owned()) }),
                "{command}"
            );
        };
        check("git-upload-pack 'acme/rocket.git'", Service::UploadPack, "acme/rocket");
        check("git-receive-pack '/acme/rocket.git'", Service::ReceivePack, "acme/rocket");
        check("git upload-pack 'acme/rocket'", Service::UploadPack, "acme/rocket");
        check("git-upload-archive 'a/b/c.git'", Service::UploadArchive, "a/b/c");
        for odd in [
            "git-upload-pack '../../etc/passwd'",
            "git-upload-pack '-x/y'",
            "git-upload-pack ''",
            "git-upload-pack '~/a/b'",
        ] {
            assert_eq!(parse(odd.as_bytes()).map(|order| order.project), Some(None), "{odd}");
        }
    }

    #[test]
    fn lesson_02_nothing_else_is_a_command() {
        for bad in [
            "",
            "sh",
            "git-upload-pack",
            "git-upload-pack acme/rocket.git",
            "git-upload-pack \"acme/rocket.git\"",
            "git-upload-pack 'acme/rocket.git' --exec=id",
            "git-upload-pack --exec=id 'acme/rocket.git'",
            "git-upload-pack 'a/b'; id",
            "git-upload-pack 'a/b'\nid",
            "git-upload-pack 'a/b''c'",
            "git-upload-pack 'a'\\''b/c'",
            "git-upload-pack  'a/b'",
            " git-upload-pack 'a/b'",
            "git-upload-pack 'a/b' ",
            "/usr/bin/git-upload-pack 'a/b'",
            "git-shell 'a/b'",
            "git-lfs-authenticate 'a/b' download",
            "git  upload-pack 'a/b'",
            "env --split-string id",
            "git-upload-pack '",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(parse(b"git-upload-pack 'a/\xff'"), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_refused_or_names_a_plain_project(bytes: Vec<u8>, path in "\\PC{0,40}") {
            let _ = parse(&bytes);
            if let Some(Order { project: Some(project), .. }) = parse(format!("git-upload-pack '{path}'").as_bytes()) {
                prop_assert!(project.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte)));
                prop_assert!(project.split('/').all(|segment| !segment.is_empty() && segment != ".."));
            }
        }
    }
}
