//! Reports orphaned files and moves them aside, without ever following links out of the data folder.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink},
    path::{Path, PathBuf},
};

use super::{DoctorOptions, Finding, MAX_EXAMPLES};

/// Reports files in the folder `root` without a row, and moves them aside if fixing is requested.
pub(super) fn report_orphans(
    options: &DoctorOptions,
    check: &'static str,
    kind: &str,
    root: &Path,
    paths: Vec<PathBuf>,
) -> Vec<Finding> {
    if paths.is_empty() {
        return vec![Finding::ok(check, "there are none")];
    }
    if options.server_running {
        return vec![possible_orphans(check, &paths)];
    }
    let target = options.lost_and_found.join(kind);
    let orphans = |paths: &[PathBuf]| {
        let text = format!("{} are not in the database: {}", paths.len(), examples(paths));
        Finding::warning(check, text, format!("move them to {}", target.display()))
    };
    if !options.fix {
        return vec![orphans(&paths)];
    }
    let (mut moved, mut failed) = (Vec::new(), Vec::new());
    for path in paths {
        match move_aside(&path, root, &target) {
            Ok(()) => moved.push(path),
            Err(error) => failed.push((path, error)),
        }
    }
    let mut findings = Vec::new();
    if !moved.is_empty() {
        findings.push(orphans(&moved).fixed());
    }
    if let Some((path, error)) = failed.first() {
        let example = path.display();
        let text = format!("{} are not in the database and cannot be moved, such as {example}: {error}", failed.len());
        let remedy = format!("correct that and run this again, or move them to {} by hand", target.display());
        findings.push(Finding::problem(check, text, remedy));
    }
    findings
}

/// Reports objects of a bucket without a row. They cannot be moved aside.
pub(super) fn report_unlisted_objects(check: &'static str, keys: &[impl AsRef<str>], remedy: &str) -> Finding {
    if keys.is_empty() {
        return Finding::ok(check, "there are none");
    }
    let paths: Vec<PathBuf> = keys.iter().map(|key| PathBuf::from(key.as_ref())).collect();
    let text = format!("{} objects of the store are not in the database: {}", paths.len(), examples(&paths));
    Finding::warning(check, text, remedy)
}

/// Reports links in the place of folders that are in use.
pub(super) fn report_links(check: &'static str, paths: &[PathBuf]) -> Option<Finding> {
    let text = format!("{} folders are links, whose targets are not checked: {}", paths.len(), examples(paths));
    let remedy = "replace the links by the folders; only files, repositories and traces may be links";
    (!paths.is_empty()).then(|| Finding::warning(check, text, remedy))
}

/// Reports possible orphans while a server is running, which may just be creating or removing the files.
fn possible_orphans(check: &'static str, paths: &[PathBuf]) -> Finding {
    let text = format!("{} may be orphaned: {}", paths.len(), examples(paths));
    Finding::warning(check, text, "stop the server and run this again; nothing is moved while it runs")
}

fn examples(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().take(MAX_EXAMPLES).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(MAX_EXAMPLES);
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

/// Moves a file, a folder or a link itself; its new name starts with the name of its parent folder.
fn move_aside(path: &Path, root: &Path, target: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    if !parent.canonicalize()?.starts_with(root.canonicalize()?) {
        return Err(io::Error::other("it is behind a link, outside the data folder"));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(target)?;
    let parts: Vec<_> = path.iter().rev().take(2).collect();
    let name = parts.iter().rev().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("-");
    let new_path = unused_path(target, &name)?;
    match fs::rename(path, &new_path) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => move_across_devices(path, &new_path)?,
        renamed => renamed?,
    }
    sync(target)?;
    sync(parent)
}

/// Returns a path that does not exist yet, so that nothing is overwritten.
fn unused_path(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let names = std::iter::once(name.to_owned()).chain((2..10_000).map(|nth| format!("{name}.{nth}")));
    let mut paths = names.map(|name| folder.join(name));
    paths.find(|path| fs::symlink_metadata(path).is_err()).ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}

/// Moves to another file system; the original is removed once the copy is on disk.
fn move_across_devices(path: &Path, target: &Path) -> io::Result<()> {
    let mut temporary = target.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let copied = copy(path, &temporary).and_then(|()| fs::rename(&temporary, target));
    if let Err(error) = copied {
        // The first error is the one to report.
        let _ = remove(&temporary);
        return Err(error);
    }
    target.parent().map_or(Ok(()), sync)?;
    remove(path)
}

/// Copies a file, a folder or a link itself, and syncs the copy.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else if kind.is_dir() {
        DirBuilder::new().mode(0o700).create(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        sync(to)
    } else if kind.is_file() {
        let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        io::copy(&mut File::open(from)?, &mut target)?;
        target.sync_all()
    } else {
        Err(io::Error::other(format!("{} is neither a file nor a folder", from.display())))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_across_devices_copies_everything_and_removes_the_original() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to, outside) = (folder.path().join("from"), folder.path().join("to"), folder.path().join("outside"));
        fs::create_dir_all(from.join("refs/heads")).expect("a folder");
        fs::create_dir(&outside).expect("a folder");
        fs::write(outside.join("precious"), "kept").expect("written");
        fs::write(from.join("refs/heads/master"), "1234").expect("written");
        symlink(&outside, from.join("link")).expect("a link");
        move_across_devices(&from, &to).expect("moved");
        assert_eq!(fs::read_to_string(to.join("refs/heads/master")).expect("read"), "1234");
        assert_eq!(fs::read_link(to.join("link")).expect("a link"), outside);
        assert_eq!(fs::read_to_string(outside.join("precious")).expect("read"), "kept");
        assert!(!from.exists() && !folder.path().join("to.new").exists());
    }

    #[test]
    fn nothing_is_moved_from_behind_a_link_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, target, outside) =
            (folder.path().join("root"), folder.path().join("target"), folder.path().join("outside"));
        fs::create_dir_all(root.join("1")).expect("a folder");
        fs::create_dir(&outside).expect("a folder");
        fs::write(outside.join("precious"), "kept").expect("written");
        symlink(&outside, root.join("2")).expect("a link");
        let error = move_aside(&root.join("2/precious"), &root, &target).expect_err("refused");
        assert_eq!(error.to_string(), "it is behind a link, outside the data folder");
        assert!(outside.join("precious").exists());
        for text in ["first", "second"] {
            fs::write(root.join("1/a"), text).expect("written");
            move_aside(&root.join("1/a"), &root, &target).expect("moved");
        }
        assert_eq!(fs::read_to_string(target.join("1-a")).expect("read"), "first");
        assert_eq!(fs::read_to_string(target.join("1-a.2")).expect("read"), "second");
    }
}
