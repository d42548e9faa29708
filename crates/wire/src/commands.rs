//! What a client wants to change, as it says so before it sends a pack.

use std::{collections::HashSet, fmt, io};

use model::{Oid, RefChange, RefName};
use tokio::io::AsyncRead;

use crate::pkt::{self, Packet};

/// How many refs one push may change.
const MOST_COMMANDS: usize = 10_000;
/// How many grafts a shallow client may tell of.
const MOST_SHALLOW: usize = 100_000;
/// How many options may come with a push, and how long each may be.
const MOST_OPTIONS: usize = 1_000;
/// How long a change may be: two ids and a name.
const LONGEST_COMMAND: usize = 1024;
const LONGEST_OPTION: usize = 4 * 1024;

/// All that a client wants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) commands: Vec<Command>,
    pub(crate) options: Vec<String>,
    pub(crate) abilities: Abilities,
}

/// What a client can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) report: bool,
    pub(crate) bands: bool,
    pub(crate) atomic: bool,
    options: bool,
}

/// One change, or why it cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The bytes of the name as the client wrote it, for the report.
    pub(crate) name: Vec<u8>,
    pub(crate) change: Result<RefChange, &'static str>,
}

/// Why a client was not understood.
#[derive(Debug)]
pub(crate) enum NotUnderstood {
    /// It said something that it must not say; tells what.
    Wrong(&'static str),
    /// It went away.
    Gone(io::Error),
}

impl Command {
    /// Whether it only takes a ref away, so that no pack comes for it.
    fn is_delete(&self, new: &str) -> bool {
        self.change.as_ref().map_or(new == Oid::ZERO, |change| change.new.is_none())
    }
}

/// Reads what a client wants; tells also whether a pack follows. `None` if it wants nothing.
pub(crate) async fn read(input: &mut (impl AsyncRead + Unpin)) -> Result<Option<(Wishes, bool)>, NotUnderstood> {
    let mut wishes = Wishes::default();
    let (mut buffer, mut shallow, mut pack, mut names) = (Vec::new(), 0, false, HashSet::new());
    loop {
        let line = match pkt::read(input, &mut buffer).await? {
            Some(Packet::Data(line)) => line,
            Some(Packet::Flush) => break,
            // A client that has nothing to change may simply go.
            None if wishes.commands.is_empty() => return Ok(None),
            _ => return Err(NotUnderstood::Wrong("the list of changes does not end")),
        };
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"shallow ") {
            // Where the client's history ends is of no interest: what it sends is complete with what is here, or refused.
            shallow += 1;
            if shallow > MOST_SHALLOW {
                return Err(NotUnderstood::Wrong("the history is cut in too many places"));
            }
            continue;
        }
        if line.starts_with(b"push-cert") {
            return Err(NotUnderstood::Wrong("signed pushes are not supported"));
        }
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let text = parts.next().unwrap_or_default();
        if let Some(abilities) = parts.next()
            && wishes.commands.is_empty()
        {
            wishes.abilities = Abilities::parse(&String::from_utf8_lossy(abilities))?;
        }
        if text.len() > LONGEST_COMMAND {
            return Err(NotUnderstood::Wrong("the name of a ref is too long"));
        }
        let (mut command, new) = parse(text)?;
        if !names.insert(command.name.clone()) {
            command.change = Err("multiple updates for one ref");
        }
        pack |= !command.is_delete(&new);
        wishes.commands.push(command);
        if wishes.commands.len() > MOST_COMMANDS {
            return Err(NotUnderstood::Wrong("these are too many changes for one push"));
        }
    }
    if wishes.commands.is_empty() {
        return Ok(None);
    }
    if wishes.abilities.options {
        wishes.options = read_options(input, &mut buffer).await?;
    }
    Ok(Some((wishes, pack)))
}

async fn read_options(
    input: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Result<Vec<String>, NotUnderstood> {
    let mut options = Vec::new();
    loop {
        match pkt::read(input, buffer).await? {
            Some(Packet::Flush) => return Ok(options),
            Some(packet @ Packet::Data(data)) if data.len() <= LONGEST_OPTION => {
                let option = packet.text().filter(|text| !text.contains(|c: char| c.is_control()));
                options.push(option.ok_or(NotUnderstood::Wrong("a push option is no plain text"))?.to_owned());
            }
            Some(Packet::Data(_)) => return Err(NotUnderstood::Wrong("a push option is too long")),
            _ => return Err(NotUnderstood::Wrong("the list of push options does not end")),
        }
        if options.len() > MOST_OPTIONS {
            return Err(NotUnderstood::Wrong("these are too many push options"));
        }
    }
}

impl Abilities {
    fn parse(text: &str) -> Result<Self, NotUnderstood> {
        let mut abilities = Self::default();
        for ability in text.split(' ') {
            match ability {
                "report-status" => abilities.report = true,
                "side-band-64k" => abilities.bands = true,
                "atomic" => abilities.atomic = true,
                "push-options" => abilities.options = true,
                _ if ability.strip_prefix("object-format=").is_some_and(|format| format != "sha1") => {
                    return Err(NotUnderstood::Wrong("objects are named by SHA-1 here"));
                }
                _ => {}
            }
        }
        Ok(abilities)
    }
}

/// One line `old new name`, with the new id as text.
fn parse(line: &[u8]) -> Result<(Command, String), NotUnderstood> {
    const WRONG: NotUnderstood = NotUnderstood::Wrong("a change is not written as `old new name`");
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (Some(old), Some(new), Some(name)) = (parts.next(), parts.next(), parts.next()) else { return Err(WRONG) };
    let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else { return Err(WRONG) };
    let id = |text: &str| match text {
        Oid::ZERO => Ok(None),
        _ => text.parse::<Oid>().map(Some).map_err(|_| WRONG),
    };
    let (old, changed) = (id(old)?, id(new)?);
    // A name is never converted: with a replacement character in it, it would be the name of another ref.
    let change = match std::str::from_utf8(name).map(RefName::new) {
        Err(_) => Err("the name of a ref must be valid UTF-8"),
        Ok(None) => Err("funny refname"),
        Ok(Some(_)) if old.is_none() && changed.is_none() => Err("there is nothing to delete"),
        Ok(Some(name)) => Ok(RefChange { name, old, new: changed }),
    };
    // The name goes back to the client in a line of its own.
    let name = name.iter().map(|byte| if byte.is_ascii_control() { b'?' } else { *byte }).collect();
    Ok((Command { name, change }, new.to_owned()))
}

impl From<io::Error> for NotUnderstood {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Wrong("this is not the protocol of git"),
            _ => Self::Gone(error),
        }
    }
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(text) => f.write_str(text),
            Self::Gone(error) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";
    const ZERO: &str = Oid::ZERO;

    fn read_all(bytes: &[u8]) -> Result<Option<(Wishes, bool)>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { read(&mut &*bytes).await }).map_err(|error| error.to_string())
    }

    fn lines(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            if *line == "--" { pkt::flush(&mut out) } else { pkt::data(&mut out, line.as_bytes()) }
        }
        out
    }

    fn change(name: &str, old: Option<u8>, new: Option<u8>) -> Command {
        let oid = |digit: u8| Oid([digit; 20]);
        let change = RefChange { name: RefName::new(name).expect("a name"), old: old.map(oid), new: new.map(oid) };
        Command { name: name.as_bytes().to_vec(), change: Ok(change) }
    }

    #[test]
    fn changes_abilities_and_options_are_understood() {
        let bytes = lines(&[
            &format!(
                "{ZERO} {A} refs/heads/new\0 report-status side-band-64k atomic push-options agent=git/2 object-format=sha1"
            ),
            &format!("{A} {B} refs/heads/main\n"),
            &format!("{B} {ZERO} refs/tags/v1"),
            "--",
            "ci.skip",
            "topic=a b",
            "--",
        ]);
        let (wishes, pack) = read_all(&bytes).expect("understood").expect("something");
        let commands = vec![
            change("refs/heads/new", None, Some(0x11)),
            change("refs/heads/main", Some(0x11), Some(0x22)),
            change("refs/tags/v1", Some(0x22), None),
        ];
        let abilities = Abilities { report: true, bands: true, atomic: true, options: true };
        let options = vec!["ci.skip".to_owned(), "topic=a b".to_owned()];
        assert_eq!(wishes, Wishes { commands, options, abilities });
        assert!(pack);
    }

    #[test]
    fn no_pack_follows_what_is_only_deleted() {
        let (_, pack) = read_all(&lines(&[&format!("{A} {ZERO} refs/heads/a\0"), "--"])).expect("fine").expect("some");
        assert!(!pack);
        // A client sends its pack also for a name that we refuse.
        let (_, pack) = read_all(&lines(&[&format!("{A} {B} refs/heads/..\0"), "--"])).expect("fine").expect("some");
        assert!(pack);
        let (_, pack) = read_all(&lines(&[&format!("{A} {ZERO} HEAD\0"), "--"])).expect("fine").expect("some");
        assert!(!pack);
        assert_eq!(read_all(&lines(&["--"])), Ok(None));
        assert_eq!(read_all(b""), Ok(None));
    }

    #[test]
    fn lesson_03_a_name_that_git_would_misread_is_refused_alone() {
        for name in
            ["HEAD", "refs/heads/-x", "refs/heads/a..b", "refs/../../config", "refs/heads/x.lock", "refs/heads/a\nb"]
        {
            let bytes =
                lines(&[&format!("{ZERO} {A} {name}\0report-status"), &format!("{ZERO} {A} refs/heads/fine"), "--"]);
            let (wishes, _) = read_all(&bytes).expect("understood").expect("something");
            assert_eq!(wishes.commands[0].change, Err("funny refname"), "{name:?}");
            assert!(wishes.commands[1].change.is_ok() && !wishes.commands[0].name.contains(&b'\n'));
        }
        let twice = lines(&[&format!("{ZERO} {A} refs/heads/a\0"), &format!("{A} {B} refs/heads/a"), "--"]);
        let (wishes, _) = read_all(&twice).expect("understood").expect("something");
        assert_eq!(wishes.commands[1].change, Err("multiple updates for one ref"));
        let nothing = lines(&[&format!("{ZERO} {ZERO} refs/heads/a\0"), "--"]);
        let (wishes, _) = read_all(&nothing).expect("understood").expect("something");
        assert_eq!(wishes.commands[0].change, Err("there is nothing to delete"));
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_refused_and_reported_byte_by_byte() {
        let mut out = Vec::new();
        for name in [&b"refs/heads/\xff\xfe"[..], b"refs/heads/fine", "refs/heads/\u{fffd}\u{fffd}".as_bytes()] {
            pkt::data(&mut out, &[format!("{ZERO} {A} ").as_bytes(), name].concat());
        }
        pkt::flush(&mut out);
        let (wishes, _) = read_all(&out).expect("understood").expect("something");
        assert_eq!(wishes.commands[0].name, b"refs/heads/\xff\xfe");
        assert_eq!(wishes.commands[0].change, Err("the name of a ref must be valid UTF-8"));
        assert_eq!(wishes.commands[1], change("refs/heads/fine", None, Some(0x11)));
        // The name that a lossy conversion would have made of the first one is another ref, and not named twice.
        assert_eq!(wishes.commands[2], change("refs/heads/\u{fffd}\u{fffd}", None, Some(0x11)));
        let mut not_an_id = Vec::new();
        pkt::data(&mut not_an_id, &[&b"\xff"[..], format!("{ZERO} {A} refs/heads/a").as_bytes()].concat());
        pkt::flush(&mut not_an_id);
        assert_eq!(read_all(&not_an_id), Err("a change is not written as `old new name`".to_owned()));
    }

    #[test]
    fn lesson_05_options_are_plain_texts_in_bounded_number() {
        let with = |options: &[&str]| {
            let first = format!("{ZERO} {A} refs/heads/a\0push-options");
            let all: Vec<&str> = [&first, "--"].into_iter().chain(options.iter().copied()).chain(["--"]).collect();
            read_all(&lines(&all)).map(|found| found.expect("something").0.options)
        };
        assert_eq!(with(&["a;b=c", "x: y"]), Ok(vec!["a;b=c".to_owned(), "x: y".to_owned()]));
        for bad in ["a\nb", "a\rb", "a\0b"] {
            assert_eq!(with(&[bad]), Err("a push option is no plain text".to_owned()), "{bad:?}");
        }
        assert_eq!(with(&["x"; 1_001]), Err("these are too many push options".to_owned()));
        assert_eq!(with(&[&"x".repeat(5_000)]), Err("a push option is too long".to_owned()));
        assert_eq!(with(&["x"; 1_000]).map(|options| options.len()), Ok(1_000));
    }

    #[test]
    fn what_is_too_much_or_cut_short_or_signed_is_refused() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(read_all(bytes), Err(expected.to_owned()));
        let many: Vec<String> = (0..=MOST_COMMANDS).map(|number| format!("{ZERO} {A} refs/heads/b{number}")).collect();
        check(&lines(&many.iter().map(String::as_str).collect::<Vec<_>>()), "these are too many changes for one push");
        check(&lines(&[&format!("{ZERO} {A} refs/heads/a\0")]), "the list of changes does not end");
        check(&lines(&["push-cert\0report-status"]), "signed pushes are not supported");
        check(&lines(&["hello"]), "a change is not written as `old new name`");
        check(&lines(&[&format!("{ZERO} {A} refs/heads/a\0object-format=sha256")]), "objects are named by SHA-1 here");
        check(b"GET / HTTP/1.1", "this is not the protocol of git");
    }

    #[test]
    fn a_shallow_client_may_push() {
        let bytes = lines(&[&format!("shallow {B}"), &format!("{ZERO} {A} refs/heads/a\0atomic"), "--"]);
        let (wishes, _) = read_all(&bytes).expect("understood").expect("something");
        assert_eq!(wishes.commands, [change("refs/heads/a", None, Some(0x11))]);
        assert!(wishes.abilities.atomic);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic(bytes: Vec<u8>, texts in proptest::collection::vec(".{0,30}", 0..8)) {
            let _ = read_all(&bytes);
            let _ = read_all(&lines(&texts.iter().map(String::as_str).collect::<Vec<_>>()));
        }

        #[test]
        fn what_is_written_is_understood_again(
            names in proptest::collection::btree_set("refs/(heads|tags|notes)/[a-z0-9]{1,9}", 1..20),
            olds: [Option<u8>; 20],
            new: u8,
        ) {
            let id = |digit: Option<u8>| digit.filter(|digit| *digit > 0).map(|digit| Oid([digit; 20]));
            let text = |id: Option<Oid>| id.map_or(ZERO.to_owned(), |id| id.to_string());
            let changes: Vec<RefChange> = names.iter().zip(olds).map(|(name, old)| RefChange {
                name: RefName::new(name).expect("a name"), old: id(old), new: id(Some(new | 1)),
            }).collect();
            let mut out = Vec::new();
            for change in &changes {
                pkt::line(&mut out, format_args!("{} {} {}", text(change.old), text(change.new), change.name));
            }
            pkt::flush(&mut out);
            let (wishes, _) = read_all(&out).expect("understood").expect("something");
            let found: Vec<RefChange> = wishes.commands.into_iter().map(|command| command.change.expect("fine")).collect();
            prop_assert_eq!(found, changes);
        }
    }
}
