//! Moving aside what belongs to nobody, without ever leaving the folders of the service.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink},
    path::{Path, PathBuf},
};

use super::{Finding, NAMED, Wishes};

/// What belongs to nobody, and is moved aside if that is asked for. It lies in the folder `root`.
pub(super) fn lost(wishes: &Wishes, check: &'static str, kind: &str, root: &Path, paths: Vec<PathBuf>) -> Vec<Finding> {
    if paths.is_empty() {
        return vec![Finding::fine(check, "there are none")];
    }
    if wishes.beside_server {
        return vec![maybe(check, &paths)];
    }
    let place = wishes.lost_and_found.join(kind);
    let ownerless = |paths: &[PathBuf]| {
        let text = format!("{} belong to nobody: {}", paths.len(), named(paths));
        Finding::warning(check, text, format!("move them to {}", place.display()))
    };
    if !wishes.fix {
        return vec![ownerless(&paths)];
    }
    let (mut moved, mut stuck) = (Vec::new(), Vec::new());
    for path in paths {
        match move_aside(&path, root, &place) {
            Ok(()) => moved.push(path),
            Err(error) => stuck.push((path, error)),
        }
    }
    let mut findings = Vec::new();
    if !moved.is_empty() {
        findings.push(ownerless(&moved).fixed());
    }
    if let Some((path, error)) = stuck.first() {
        let such = path.display();
        let text = format!("{} belong to nobody and cannot be moved, such as {such}: {error}", stuck.len());
        let remedy = format!("put that right and run this again, or move them to {} by hand", place.display());
        findings.push(Finding::problem(check, text, remedy));
    }
    findings
}

/// Links in the place of folders that are in use.
pub(super) fn linked(check: &'static str, paths: &[PathBuf]) -> Option<Finding> {
    let text = format!("{} folders are links, and what lies behind is not looked at: {}", paths.len(), named(paths));
    let remedy = "put the folders themselves there; only files, repositories and traces may be links";
    (!paths.is_empty()).then(|| Finding::warning(check, text, remedy))
}

/// Beside a server, what is just coming in or on its way out looks like what belongs to nobody.
fn maybe(check: &'static str, paths: &[PathBuf]) -> Finding {
    let text = format!("{} look like it: {}", paths.len(), named(paths));
    Finding::warning(check, text, "stop the server and look again; nothing is moved beside it")
}

fn named(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

/// Moves a file, a folder or a link itself, under a name that keeps the number of the folder above.
fn move_aside(path: &Path, root: &Path, place: &Path) -> io::Result<()> {
    let above = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    if !above.canonicalize()?.starts_with(root.canonicalize()?) {
        return Err(io::Error::other("it lies behind a link, outside the data folder"));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(place)?;
    let parts: Vec<_> = path.iter().rev().take(2).collect();
    let name = parts.iter().rev().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("-");
    let target = free_name(place, &name)?;
    match fs::rename(path, &target) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => carry_over(path, &target)?,
        renamed => renamed?,
    }
    sync(place)?;
    sync(above)
}

/// A path under which nothing is yet, so that nothing is written over.
fn free_name(place: &Path, name: &str) -> io::Result<PathBuf> {
    let names = std::iter::once(name.to_owned()).chain((2..10_000).map(|nth| format!("{name}.{nth}")));
    let mut paths = names.map(|name| place.join(name));
    paths.find(|path| fs::symlink_metadata(path).is_err()).ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}

/// Moves to another file system: what was there goes once the copy is on disk.
fn carry_over(path: &Path, target: &Path) -> io::Result<()> {
    let mut fresh = target.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let copied = copy(path, &fresh).and_then(|()| fs::rename(&fresh, target));
    if let Err(error) = copied {
        // The first trouble is the one to tell.
        let _ = remove(&fresh);
        return Err(error);
    }
    target.parent().map_or(Ok(()), sync)?;
    remove(path)
}

/// Copies durably; links stay links.
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
    fn what_is_carried_to_another_disk_is_whole_there_and_gone_here() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to, outside) = (folder.path().join("from"), folder.path().join("to"), folder.path().join("outside"));
        fs::create_dir_all(from.join("refs/heads")).expect("a folder");
        fs::create_dir(&outside).expect("a folder");
        fs::write(outside.join("precious"), "kept").expect("written");
        fs::write(from.join("refs/heads/master"), "1234").expect("written");
        symlink(&outside, from.join("link")).expect("a link");
        carry_over(&from, &to).expect("carried over");
        assert_eq!(fs::read_to_string(to.join("refs/heads/master")).expect("read"), "1234");
        assert_eq!(fs::read_link(to.join("link")).expect("a link"), outside);
        assert_eq!(fs::read_to_string(outside.join("precious")).expect("read"), "kept");
        assert!(!from.exists() && !folder.path().join("to.new").exists());
    }

    #[test]
    fn nothing_is_moved_from_behind_a_link_and_nothing_is_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, place, outside) =
            (folder.path().join("root"), folder.path().join("place"), folder.path().join("outside"));
        fs::create_dir_all(root.join("1")).expect("a folder");
        fs::create_dir(&outside).expect("a folder");
        fs::write(outside.join("precious"), "kept").expect("written");
        symlink(&outside, root.join("2")).expect("a link");
        let error = move_aside(&root.join("2/precious"), &root, &place).expect_err("refused");
        assert_eq!(error.to_string(), "it lies behind a link, outside the data folder");
        assert!(outside.join("precious").exists());
        for text in ["first", "second"] {
            fs::write(root.join("1/a"), text).expect("written");
            move_aside(&root.join("1/a"), &root, &place).expect("moved");
        }
        assert_eq!(fs::read_to_string(place.join("1-a")).expect("read"), "first");
        assert_eq!(fs::read_to_string(place.join("1-a.2")).expect("read"), "second");
    }
}
