//! Archives, compared with those of `git archive`.

use std::io::{self, Cursor, Read as _, Write};

use model::objects::ArchiveFormat;

use super::{CommitSpec, Edit, Fixture, HistoryBuilder, file};

/// An entry of a tar file.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    path: String,
    kind: u8,
    mode: u32,
    time: u64,
    owner: (u64, u64, String, String),
    target: String,
    data: Vec<u8>,
}

fn entries(tar: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(tar);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = Vec::new();
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let mut data = Vec::new();
        entry.read_to_end(&mut data).expect("read");
        let header = entry.header();
        let name = |name: Option<&[u8]>| text(name.expect("a name"));
        found.push(Entry {
            path: text(&entry.path_bytes()),
            kind: header.entry_type().as_byte(),
            mode: header.mode().expect("a mode"),
            time: header.mtime().expect("a time"),
            owner: (
                header.uid().expect("a number"),
                header.gid().expect("a number"),
                name(header.username_bytes()),
                name(header.groupname_bytes()),
            ),
            target: entry.link_name_bytes().map(|target| text(&target)).unwrap_or_default(),
            data,
        });
    }
    found
}

fn archive(fixture: &Fixture, name: &str, format: ArchiveFormat) -> Vec<u8> {
    let mut out = Vec::new();
    fixture.open().archive(fixture.id(name), format, "top-1", &mut out).expect("archived");
    out
}

fn git_archive_entries(fixture: &Fixture, name: &str) -> Vec<Entry> {
    entries(&fixture.git_with(&["archive", "--format=tar", "--prefix=top-1/", name], b""))
}

fn sample_repository() -> Fixture {
    let deep: &'static str =
        format!("{}/file", "a-rather-long-name-of-a-folder/".repeat(9).trim_end_matches('/')).leak();
    let wide: &'static str = "n".repeat(200).leak();
    let mut history = HistoryBuilder::default();
    history.next(&[
        file("README", "hello\n"),
        file("empty", ""),
        file("folder/inner", "x\n"),
        file("ä", "ö\n"),
        file("\"\\344\"", "not UTF-8\n"),
        file("--flag", "x\n"),
        file(deep, "deep\n"),
        file(wide, "wide\n"),
        Edit::Write("run", 0o100_755, b"#!\n".into()),
        Edit::Write("link", 0o120_000, b"../outside".into()),
        Edit::Write("long-link", 0o120_000, "t/".repeat(100).into()),
        Edit::Write("module", 0o160_000, "1".repeat(40).into()),
        Edit::Write("binary", 0o100_644, (0..=255).cycle().take(5000).collect()),
    ]);
    Fixture::with(history)
}

#[test]
fn a_tar_has_the_same_entries_as_that_of_git() {
    let fixture = sample_repository();
    let tar = archive(&fixture, "main", ArchiveFormat::Tar);
    assert_eq!(entries(&tar), git_archive_entries(&fixture, "main"));
    let output = fixture.git_with(&["get-tar-commit-id"], &tar);
    assert_eq!(String::from_utf8(output).expect("UTF-8").trim(), fixture.id("main").to_string());
}

#[test]
fn an_archive_of_an_empty_commit_contains_its_folder() {
    let mut history = HistoryBuilder::default();
    history.next(&[]);
    let fixture = Fixture::with(history);
    let tar = archive(&fixture, "main", ArchiveFormat::Tar);
    assert_eq!(entries(&tar), git_archive_entries(&fixture, "main"));
}

#[test]
fn compressed_tars_contain_the_same_tar() {
    let fixture = sample_repository();
    let tar = archive(&fixture, "main", ArchiveFormat::Tar);
    let mut unpacked = Vec::new();
    let packed = archive(&fixture, "main", ArchiveFormat::TarGz);
    assert_eq!(packed[4..8], [0; 4], "no time is stored");
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).expect("unpacked");
    assert!(unpacked == tar);
    let packed = archive(&fixture, "main", ArchiveFormat::TarBz2);
    unpacked.clear();
    bzip2::read::BzDecoder::new(&packed[..]).read_to_end(&mut unpacked).expect("unpacked");
    assert!(unpacked == tar);
}

#[test]
fn a_zip_contains_files_links_and_folders() {
    let fixture = sample_repository();
    let bytes = archive(&fixture, "main", ArchiveFormat::Zip);
    let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).expect("a zip file");
    assert_eq!(zip.comment(), fixture.id("main").to_string().as_bytes());
    let expected = &git_archive_entries(&fixture, "main")[1..];
    assert_eq!(zip.len(), expected.len());
    for (index, expected) in expected.iter().enumerate() {
        let mut entry = zip.by_index(index).expect("an entry");
        let mut data = Vec::new();
        entry.read_to_end(&mut data).expect("read");
        assert_eq!(String::from_utf8_lossy(entry.name_raw()), expected.path);
        let (mode, contents) = match expected.kind {
            b'5' => (0o040_755, &b""[..]),
            b'2' => (0o120_777, expected.target.as_bytes()),
            _ if expected.mode == 0o775 => (0o100_755, &expected.data[..]),
            _ => (0o100_644, &expected.data[..]),
        };
        assert_eq!(entry.unix_mode(), Some(mode), "{}", expected.path);
        assert!(data == contents, "{}", expected.path);
        let time = entry.last_modified().expect("a time");
        assert_eq!((time.year(), time.month(), time.day(), time.hour(), time.minute()), (2017, 7, 14, 2, 40));
    }
}

#[test]
fn archives_are_reproducible() {
    let fixture = sample_repository();
    for format in [ArchiveFormat::Tar, ArchiveFormat::TarGz, ArchiveFormat::TarBz2, ArchiveFormat::Zip] {
        assert!(archive(&fixture, "main", format) == archive(&fixture, "main", format), "{format:?}");
    }
}

#[test]
fn export_ignore_leaves_files_out() {
    let mut history = HistoryBuilder::default();
    history.next(&[
        file(".gitattributes", "*.secret export-ignore\n/docs export-ignore\n[attr]private export-ignore\nkeys private\nempty/* export-ignore\nsub/deep/only export-ignore\ntrail/ export-ignore\n**/any export-ignore\n!neg export-ignore\n"),
        file(".gitignore", "x\n"),
        file("a.secret", "x\n"),
        file("a.public", "x\n"),
        file("docs/x", "x\n"),
        file("other/docs/x", "x\n"),
        file("keys", "x\n"),
        file("empty/x", "x\n"),
        file("sub/.gitattributes", "*.secret -export-ignore\n*.tmp export-ignore\n"),
        file("sub/b.secret", "x\n"),
        file("sub/b.tmp", "x\n"),
        file("sub/deep/only", "x\n"),
        file("sub/more/c.tmp", "x\n"),
        file("sub/more/d", "x\n"),
        file("z.tmp", "x\n"),
        file("trail/x", "x\n"),
        file("more/trail", "x\n"),
        file("more/any/x", "x\n"),
        file("neg", "x\n"),
        Edit::Write("module.secret", 0o160_000, "1".repeat(40).into()),
    ]);
    let fixture = Fixture::with(history);
    let expected = git_archive_entries(&fixture, "main");
    let tar = archive(&fixture, "main", ArchiveFormat::Tar);
    assert_eq!(entries(&tar), expected);
    let paths: Vec<_> = expected.iter().map(|entry| entry.path.as_str()).collect();
    assert!(paths.contains(&"top-1/sub/b.secret") && !paths.contains(&"top-1/a.secret"));
}

#[test]
fn export_subst_expands_placeholders() {
    let format = "$Format:%H %h %T %t %P %p$\n$Format:%an|%ae|%ad|%aD|%at|%ai|%aI|%as$\n$Format:%cn|%ce|%cd|%cD|%ct|%ci|%cI|%cs$\n\
        [$Format:%s$] [$Format:%b$] [$Format:%B$] [$Format:%d$] [$Format:%D$]\n$Format:100%% of %% %n lines$ $Id$ $Format:open\n";
    let mut history = HistoryBuilder::default();
    let edits = [file(".gitattributes", "*.txt export-subst\n"), file("a.txt", format), file("b", format)];
    let first = history.commit(CommitSpec { edits: &edits, ..CommitSpec::default() });
    let message = "subject\nin two lines\n\nbody\n\nmore\n";
    history.commit(CommitSpec {
        parents: &[first],
        message,
        author: "Änne B <a@b>",
        seconds: 1_234_567_890,
        ..CommitSpec::default()
    });
    let fixture = Fixture::with(history);
    for name in ["main", "main~1"] {
        assert_eq!(
            entries(&archive(&fixture, name, ArchiveFormat::Tar)),
            git_archive_entries(&fixture, name),
            "{name}"
        );
    }
    fixture.git(&["tag", "-a", "-m", "text", "v1", "main"]);
    fixture.git(&["update-ref", "refs/heads/zoo", "main"]);
    fixture.git(&["update-ref", "refs/heads/also", "main"]);
    let found = entries(&archive(&fixture, "main", ArchiveFormat::Tar));
    assert_eq!(found, git_archive_entries(&fixture, "main"));
    let text = String::from_utf8(found.iter().find(|entry| entry.path == "top-1/a.txt").expect("a file").data.clone());
    assert!(text.expect("UTF-8").contains("[ (HEAD -> main, tag: v1, zoo, also)]"));
}

#[test]
fn unsafe_names_are_left_out() {
    let fixture = Fixture::new();
    let blob = fixture.git_with(&["hash-object", "-w", "--stdin"], b"x");
    let id = gix::ObjectId::from_hex(blob.trim_ascii()).expect("an id");
    let mut tree = Vec::new();
    for name in ["..", "..\\evil", ".GIT", "/etc", "good"] {
        tree.extend_from_slice(format!("100644 {name}\0").as_bytes());
        tree.extend_from_slice(id.as_bytes());
    }
    let tree = fixture.git_with(&["hash-object", "-t", "tree", "--literally", "-w", "--stdin"], &tree);
    let tree = String::from_utf8(tree).expect("UTF-8");
    fixture.git(&["update-ref", "refs/heads/main", &fixture.git(&["commit-tree", "-m", "bad", tree.trim()])]);
    let paths: Vec<_> =
        entries(&archive(&fixture, "main", ArchiveFormat::Tar)).into_iter().map(|entry| entry.path).collect();
    assert_eq!(paths, ["pax_global_header", "top-1/", "top-1/good"]);
    let bytes = archive(&fixture, "main", ArchiveFormat::Zip);
    let zip = zip::ZipArchive::new(Cursor::new(bytes)).expect("a zip file");
    assert_eq!(zip.file_names().map(|name| name.expect("a name")).collect::<Vec<_>>(), ["top-1/", "top-1/good"]);
}

/// Accepts a limited number of bytes.
struct LimitedWriter(usize, Vec<u8>);

impl Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.len() + bytes.len() > self.0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_archive_does_not_look_complete() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n"), file("b", "2\n")]);
    let fixture = Fixture::with(history);
    let repository = fixture.open();
    let main = fixture.id("main");
    for format in [ArchiveFormat::Tar, ArchiveFormat::TarGz, ArchiveFormat::TarBz2, ArchiveFormat::Zip] {
        repository.archive(main, format, "x", &mut LimitedWriter(30, Vec::new())).expect_err("the output is closed");
        repository.archive(fixture.id("main^{tree}"), format, "x", &mut Vec::new()).expect_err("a tree is no commit");
    }
    // One of the files is missing.
    let tree = format!("100644 blob {}\ta\n100644 blob {}\tlost\n", fixture.id("main:a"), "1".repeat(40));
    let tree = String::from_utf8(fixture.git_with(&["mktree", "--missing"], tree.as_bytes())).expect("UTF-8");
    let commit = fixture.git(&["commit-tree", "-m", "lost", tree.trim()]).parse().expect("an id");
    let mut out = Vec::new();
    repository.archive(commit, ArchiveFormat::Zip, "x", &mut out).expect_err("a file is missing");
    zip::ZipArchive::new(Cursor::new(out)).expect_err("incomplete");
    let mut out = Vec::new();
    repository.archive(commit, ArchiveFormat::TarGz, "x", &mut out).expect_err("a file is missing");
    flate2::read::GzDecoder::new(&out[..]).read_to_end(&mut Vec::new()).expect_err("incomplete");
}
