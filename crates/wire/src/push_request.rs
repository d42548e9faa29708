//! Parses the request of a push: the list of commands and the push options, which precede the pack.

use std::{collections::HashSet, io};

use model::{Oid, RefChange, RefName};
use tokio::io::AsyncRead;

use crate::pkt::{self, Packet};

/// The maximum number of ref changes in one push.
const MAX_COMMANDS: usize = 10_000;
/// The maximum number of `shallow` lines.
const MAX_SHALLOW: usize = 100_000;
/// The maximum number of push options.
const MAX_OPTIONS: usize = 1_000;
/// The maximum length of a command: two ids and a ref name.
const MAX_COMMAND_LENGTH: usize = 1024;
/// The maximum length of a push option, in bytes.
const MAX_OPTION_LENGTH: usize = 4 * 1024;

/// The request of a push, without the pack.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PushRequest {
    pub(crate) commands: Vec<RefCommand>,
    pub(crate) options: Vec<String>,
    pub(crate) capabilities: Capabilities,
}

/// The capabilities that the client has selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) report_status: bool,
    pub(crate) side_band: bool,
    pub(crate) atomic: bool,
    push_options: bool,
}

/// The change of one ref, or why it is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefCommand {
    /// The bytes of the ref name as sent by the client, for the report.
    pub(crate) name: Vec<u8>,
    pub(crate) change: Result<RefChange, InvalidCommand>,
}

/// Why the change of a ref is invalid; the texts are those of git where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidCommand {
    #[error("the ref name is not valid UTF-8")]
    NameNotUtf8,
    #[error("funny refname")]
    InvalidName,
    #[error("deleting a non-existent ref")]
    DeletesMissingRef,
    #[error("multiple updates for one ref")]
    DuplicateRef,
}

/// Why a request could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushRequestError {
    #[error("malformed pkt-line")]
    MalformedPacket,
    #[error("malformed command; expected `old new name`")]
    MalformedCommand,
    #[error("the ref name is too long")]
    RefNameTooLong,
    #[error("too many ref changes in one push")]
    TooManyCommands,
    #[error("the list of commands is incomplete")]
    IncompleteCommands,
    #[error("too many shallow commits")]
    TooManyShallowCommits,
    #[error("signed pushes are not supported")]
    SignedPush,
    #[error("unsupported object format; use sha1")]
    UnsupportedObjectFormat,
    #[error("a push option is not plain text")]
    InvalidOption,
    #[error("a push option is too long")]
    OptionTooLong,
    #[error("too many push options")]
    TooManyOptions,
    #[error("the list of push options is incomplete")]
    IncompleteOptions,
    /// The client disconnected.
    #[error("{0}")]
    Disconnected(#[source] io::Error),
}

impl RefCommand {
    /// Returns whether the command deletes a ref, so that it needs no pack.
    fn is_delete(&self, new: &str) -> bool {
        self.change.as_ref().map_or(new == Oid::ZERO, |change| change.new.is_none())
    }
}

/// Reads a request and returns it with whether a pack follows; `None` if there are no commands.
pub(crate) async fn read(
    input: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(PushRequest, bool)>, PushRequestError> {
    let mut request = PushRequest::default();
    let (mut buffer, mut shallow, mut pack, mut names) = (Vec::new(), 0, false, HashSet::new());
    loop {
        let line = match pkt::read(input, &mut buffer).await? {
            Some(Packet::Data(line)) => line,
            Some(Packet::Flush) => break,
            // A client with nothing to push may disconnect.
            None if request.commands.is_empty() => return Ok(None),
            _ => return Err(PushRequestError::IncompleteCommands),
        };
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"shallow ") {
            // The shallow boundary is not needed: the pushed objects must be complete together with the repository.
            shallow += 1;
            if shallow > MAX_SHALLOW {
                return Err(PushRequestError::TooManyShallowCommits);
            }
            continue;
        }
        if line.starts_with(b"push-cert") {
            return Err(PushRequestError::SignedPush);
        }
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let text = parts.next().unwrap_or_default();
        if let Some(capabilities) = parts.next()
            && request.commands.is_empty()
        {
            request.capabilities = Capabilities::parse(&String::from_utf8_lossy(capabilities))?;
        }
        if text.len() > MAX_COMMAND_LENGTH {
            return Err(PushRequestError::RefNameTooLong);
        }
        let (mut command, new) = parse(text)?;
        if !names.insert(command.name.clone()) {
            command.change = Err(InvalidCommand::DuplicateRef);
        }
        pack |= !command.is_delete(&new);
        request.commands.push(command);
        if request.commands.len() > MAX_COMMANDS {
            return Err(PushRequestError::TooManyCommands);
        }
    }
    if request.commands.is_empty() {
        return Ok(None);
    }
    if request.capabilities.push_options {
        request.options = read_options(input, &mut buffer).await?;
    }
    Ok(Some((request, pack)))
}

async fn read_options(
    input: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Result<Vec<String>, PushRequestError> {
    let mut options = Vec::new();
    loop {
        match pkt::read(input, buffer).await? {
            Some(Packet::Flush) => return Ok(options),
            Some(packet @ Packet::Data(data)) if data.len() <= MAX_OPTION_LENGTH => {
                let option = packet.text().filter(|text| !text.contains(|c: char| c.is_control()));
                options.push(option.ok_or(PushRequestError::InvalidOption)?.to_owned());
            }
            Some(Packet::Data(_)) => return Err(PushRequestError::OptionTooLong),
            _ => return Err(PushRequestError::IncompleteOptions),
        }
        if options.len() > MAX_OPTIONS {
            return Err(PushRequestError::TooManyOptions);
        }
    }
}

impl Capabilities {
    fn parse(text: &str) -> Result<Self, PushRequestError> {
        let mut capabilities = Self::default();
        for capability in text.split(' ') {
            match capability {
                "report-status" => capabilities.report_status = true,
                "side-band-64k" => capabilities.side_band = true,
                "atomic" => capabilities.atomic = true,
                "push-options" => capabilities.push_options = true,
                _ if capability.strip_prefix("object-format=").is_some_and(|format| format != "sha1") => {
                    return Err(PushRequestError::UnsupportedObjectFormat);
                }
                _ => {}
            }
        }
        Ok(capabilities)
    }
}

/// Parses a line `old new name`; also returns the new id as text.
fn parse(line: &[u8]) -> Result<(RefCommand, String), PushRequestError> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (Some(old), Some(new), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(PushRequestError::MalformedCommand);
    };
    let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return Err(PushRequestError::MalformedCommand);
    };
    let id = |text: &str| match text {
        Oid::ZERO => Ok(None),
        _ => text.parse::<Oid>().map(Some).map_err(|_| PushRequestError::MalformedCommand),
    };
    let (old, changed) = (id(old)?, id(new)?);
    // The name is not converted lossily: with replacement characters it would name another ref.
    let change = match std::str::from_utf8(name).map(RefName::new) {
        Err(_) => Err(InvalidCommand::NameNotUtf8),
        Ok(None) => Err(InvalidCommand::InvalidName),
        Ok(Some(_)) if old.is_none() && changed.is_none() => Err(InvalidCommand::DeletesMissingRef),
        Ok(Some(name)) => Ok(RefChange { name, old, new: changed }),
    };
    // The name is sent back in a line of the report.
    let name = name.iter().map(|byte| if byte.is_ascii_control() { b'?' } else { *byte }).collect();
    Ok((RefCommand { name, change }, new.to_owned()))
}

impl From<io::Error> for PushRequestError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::MalformedPacket,
            _ => Self::Disconnected(error),
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

    fn read_all(bytes: &[u8]) -> Result<Option<(PushRequest, bool)>, PushRequestError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { read(&mut &*bytes).await })
    }

    fn lines(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            if *line == "--" { pkt::flush(&mut out) } else { pkt::data(&mut out, line.as_bytes()) }
        }
        out
    }

    fn change(name: &str, old: Option<u8>, new: Option<u8>) -> RefCommand {
        let oid = |digit: u8| Oid([digit; 20]);
        let change = RefChange { name: RefName::new(name).expect("a name"), old: old.map(oid), new: new.map(oid) };
        RefCommand { name: name.as_bytes().to_vec(), change: Ok(change) }
    }

    #[test]
    fn commands_capabilities_and_options_are_parsed() {
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
        let (request, pack) = read_all(&bytes).expect("understood").expect("something");
        let commands = vec![
            change("refs/heads/new", None, Some(0x11)),
            change("refs/heads/main", Some(0x11), Some(0x22)),
            change("refs/tags/v1", Some(0x22), None),
        ];
        let capabilities = Capabilities { report_status: true, side_band: true, atomic: true, push_options: true };
        let options = vec!["ci.skip".to_owned(), "topic=a b".to_owned()];
        assert_eq!(request, PushRequest { commands, options, capabilities });
        assert!(pack);
    }

    #[test]
    fn no_pack_follows_deletions_alone() {
        let (_, pack) = read_all(&lines(&[&format!("{A} {ZERO} refs/heads/a\0"), "--"])).expect("fine").expect("some");
        assert!(!pack);
        // A client sends its pack also for a name that is refused.
        let (_, pack) = read_all(&lines(&[&format!("{A} {B} refs/heads/..\0"), "--"])).expect("fine").expect("some");
        assert!(pack);
        let (_, pack) = read_all(&lines(&[&format!("{A} {ZERO} HEAD\0"), "--"])).expect("fine").expect("some");
        assert!(!pack);
        assert!(matches!(read_all(&lines(&["--"])), Ok(None)));
        assert!(matches!(read_all(b""), Ok(None)));
    }

    #[test]
    fn a_name_that_git_would_misread_is_refused_alone() {
        for name in
            ["HEAD", "refs/heads/-x", "refs/heads/a..b", "refs/../../config", "refs/heads/x.lock", "refs/heads/a\nb"]
        {
            let bytes =
                lines(&[&format!("{ZERO} {A} {name}\0report-status"), &format!("{ZERO} {A} refs/heads/fine"), "--"]);
            let (request, _) = read_all(&bytes).expect("understood").expect("something");
            assert_eq!(request.commands[0].change, Err(InvalidCommand::InvalidName), "{name:?}");
            assert!(request.commands[1].change.is_ok() && !request.commands[0].name.contains(&b'\n'));
        }
        let twice = lines(&[&format!("{ZERO} {A} refs/heads/a\0"), &format!("{A} {B} refs/heads/a"), "--"]);
        let (request, _) = read_all(&twice).expect("understood").expect("something");
        assert_eq!(request.commands[1].change, Err(InvalidCommand::DuplicateRef));
        let nothing = lines(&[&format!("{ZERO} {ZERO} refs/heads/a\0"), "--"]);
        let (request, _) = read_all(&nothing).expect("understood").expect("something");
        assert_eq!(request.commands[0].change, Err(InvalidCommand::DeletesMissingRef));
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_refused_and_reported_byte_by_byte() {
        let mut out = Vec::new();
        for name in [&b"refs/heads/\xff\xfe"[..], b"refs/heads/fine", "refs/heads/\u{fffd}\u{fffd}".as_bytes()] {
            pkt::data(&mut out, &[format!("{ZERO} {A} ").as_bytes(), name].concat());
        }
        pkt::flush(&mut out);
        let (request, _) = read_all(&out).expect("understood").expect("something");
        assert_eq!(request.commands[0].name, b"refs/heads/\xff\xfe");
        assert_eq!(request.commands[0].change, Err(InvalidCommand::NameNotUtf8));
        assert_eq!(request.commands[1], change("refs/heads/fine", None, Some(0x11)));
        // The name that a lossy conversion of the first one would produce is another ref.
        assert_eq!(request.commands[2], change("refs/heads/\u{fffd}\u{fffd}", None, Some(0x11)));
        let mut not_an_id = Vec::new();
        pkt::data(&mut not_an_id, &[&b"\xff"[..], format!("{ZERO} {A} refs/heads/a").as_bytes()].concat());
        pkt::flush(&mut not_an_id);
        assert!(matches!(read_all(&not_an_id), Err(PushRequestError::MalformedCommand)));
    }

    #[test]
    fn push_options_are_plain_text_and_limited_in_number() {
        let with = |options: &[&str]| {
            let first = format!("{ZERO} {A} refs/heads/a\0push-options");
            let all: Vec<&str> = [&first, "--"].into_iter().chain(options.iter().copied()).chain(["--"]).collect();
            read_all(&lines(&all)).map(|found| found.expect("something").0.options)
        };
        assert_eq!(with(&["a;b=c", "x: y"]).expect("plain text"), ["a;b=c", "x: y"]);
        for bad in ["a\nb", "a\rb", "a\0b"] {
            assert!(matches!(with(&[bad]), Err(PushRequestError::InvalidOption)), "{bad:?}");
        }
        assert!(matches!(with(&["x"; 1_001]), Err(PushRequestError::TooManyOptions)));
        assert!(matches!(with(&[&"x".repeat(5_000)]), Err(PushRequestError::OptionTooLong)));
        assert_eq!(with(&["x"; 1_000]).expect("not too many").len(), 1_000);
    }

    #[test]
    fn oversized_truncated_and_signed_requests_are_refused() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(read_all(bytes).expect_err(expected).to_string(), expected);
        };
        let many: Vec<String> = (0..=MAX_COMMANDS).map(|number| format!("{ZERO} {A} refs/heads/b{number}")).collect();
        check(&lines(&many.iter().map(String::as_str).collect::<Vec<_>>()), "too many ref changes in one push");
        check(&lines(&[&format!("{ZERO} {A} refs/heads/a\0")]), "the list of commands is incomplete");
        check(&lines(&["push-cert\0report-status"]), "signed pushes are not supported");
        check(&lines(&["hello"]), "malformed command; expected `old new name`");
        check(
            &lines(&[&format!("{ZERO} {A} refs/heads/a\0object-format=sha256")]),
            "unsupported object format; use sha1",
        );
        check(b"GET / HTTP/1.1", "malformed pkt-line");
    }

    #[test]
    fn a_shallow_client_may_push() {
        let bytes = lines(&[&format!("shallow {B}"), &format!("{ZERO} {A} refs/heads/a\0atomic"), "--"]);
        let (request, _) = read_all(&bytes).expect("understood").expect("something");
        assert_eq!(request.commands, [change("refs/heads/a", None, Some(0x11))]);
        assert!(request.capabilities.atomic);
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(bytes: Vec<u8>, texts in proptest::collection::vec(".{0,30}", 0..8)) {
            let _ = read_all(&bytes);
            let _ = read_all(&lines(&texts.iter().map(String::as_str).collect::<Vec<_>>()));
        }

        #[test]
        fn a_written_request_is_parsed_back(
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
            let (request, _) = read_all(&out).expect("understood").expect("something");
            let found: Vec<RefChange> = request.commands.into_iter().map(|command| command.change.expect("fine")).collect();
            prop_assert_eq!(found, changes);
        }
    }
}
