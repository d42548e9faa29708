//! Contents of files.

use super::{Edit, Fixture, HistoryBuilder, file};

#[test]
fn blobs_are_read_as_they_were_written() {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut history = HistoryBuilder::default();
    history.next(&[Edit::Write("binary", 0o100_644, bytes.clone()), file("empty", "")]);
    let fixture = Fixture::with(history);
    let repository = fixture.open();
    let main = fixture.id("main");
    for (path, expected) in [("binary", &bytes[..]), ("/binary", &bytes), ("empty", b"")] {
        let entry = repository.entry(main, path).expect("looked up").expect("an entry");
        let mut out = Vec::new();
        repository.write_blob(entry.id, &mut out).expect("written");
        assert_eq!(out, expected, "{path}");
        assert_eq!(repository.blob_size(entry.id).expect("a size"), Some(expected.len() as u64));
    }
    assert_eq!(repository.blob_size(main).expect("a size"), None, "a commit is no blob");
    repository.write_blob(main, &mut Vec::new()).expect_err("a commit is no blob");
}

#[test]
fn a_blob_is_found_by_a_prefix_of_its_id() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n")]);
    let fixture = Fixture::with(history);
    let repository = fixture.open();
    let blob = fixture.id("main:a");
    let text = blob.to_string();
    for prefix in [&text[..], &text[..8], &text[..7], &text.to_uppercase()] {
        assert_eq!(repository.find_blob(prefix).expect("looked up"), Some(blob), "{prefix}");
    }
    let (commit, tree) = (fixture.id("main").to_string(), fixture.id("main^{tree}").to_string());
    let long = "a".repeat(10_000);
    for other in [
        &text[..6],
        "",
        &commit,
        &commit[..8],
        &tree,
        "xyzw",
        "-x",
        "a\0bc",
        &"0".repeat(40),
        &format!("{text}0"),
        &long,
    ] {
        assert_eq!(repository.find_blob(other).expect("looked up"), None, "{other}");
    }
}
