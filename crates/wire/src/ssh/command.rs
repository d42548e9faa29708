//! Parses the command of an SSH client. It is never passed to a shell.

use crate::project_path;

/// A command of an SSH client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SshCommand {
    pub(super) program: GitProgram,
    /// The full path of a project; `None` if it is malformed.
    pub(super) project: Option<String>,
}

/// The supported git programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GitProgram {
    UploadPack,
    ReceivePack,
    UploadArchive,
}

/// Parses a command such as `git-upload-pack 'acme/rocket.git'`; `None` for anything else.
pub(super) fn parse(command: &[u8]) -> Option<SshCommand> {
    let command = std::str::from_utf8(command).ok()?;
    let command = command.strip_prefix("git-").or_else(|| command.strip_prefix("git "))?;
    let (program, path) = command.split_once(' ')?;
    let program = match program {
        "upload-pack" => GitProgram::UploadPack,
        "receive-pack" => GitProgram::ReceivePack,
        "upload-archive" => GitProgram::UploadArchive,
        _ => return None,
    };
    let path = path.strip_prefix('\'')?.strip_suffix('\'')?;
    // Characters that git would escape do not occur in project paths.
    if path.contains(['\'', '\\', '!']) {
        return None;
    }
    let project = project_path::parse(path.strip_prefix('/').unwrap_or(path));
    Some(SshCommand { program, project })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_three_programs_are_parsed() {
        let check = |command: &str, program, project: &str| {
            assert_eq!(
                parse(command.as_bytes()),
                Some(SshCommand { program, project: Some(project.to_owned()) }),
                "{command}"
            );
        };
        check("git-upload-pack 'acme/rocket.git'", GitProgram::UploadPack, "acme/rocket");
        check("git-receive-pack '/acme/rocket.git'", GitProgram::ReceivePack, "acme/rocket");
        check("git upload-pack 'acme/rocket'", GitProgram::UploadPack, "acme/rocket");
        check("git-upload-archive 'a/b/c.git'", GitProgram::UploadArchive, "a/b/c");
        for odd in [
            "git-upload-pack '../../etc/passwd'",
            "git-upload-pack '-x/y'",
            "git-upload-pack ''",
            "git-upload-pack '~/a/b'",
        ] {
            assert_eq!(parse(odd.as_bytes()).map(|command| command.project), Some(None), "{odd}");
        }
    }

    #[test]
    fn other_commands_are_refused() {
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
        fn arbitrary_input_is_refused_or_a_plain_path(bytes: Vec<u8>, path in "\\PC{0,40}") {
            let _ = parse(&bytes);
            if let Some(SshCommand { project: Some(project), .. }) = parse(format!("git-upload-pack '{path}'").as_bytes()) {
                prop_assert!(project.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte)));
                prop_assert!(project.split('/').all(|segment| !segment.is_empty() && segment != ".."));
            }
        }
    }
}
