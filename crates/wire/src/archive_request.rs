//! The request of `git archive --remote`.
//!
//! Git prefers a tag to a branch of the same name, while Gable prefers the branch everywhere. So the name of a branch is
//! replaced by its full ref name.

use std::io;

use tokio::io::AsyncRead;

use crate::pkt::{self, Packet};

/// The maximum number of arguments that git accepts.
const MAX_ARGUMENTS: usize = 64;
/// Options with a value, after `=` or as the next argument. Others are refused: `--add-file` would reveal files of the server.
const WITH_VALUE: [&str; 3] = ["--format", "--prefix", "--mtime"];
/// Options without a value, besides `-0` to `-9`.
const WITHOUT_VALUE: [&str; 7] = ["--list", "-l", "--verbose", "-v", "--worktree-attributes", "--no-prefix", "--"];
const ARGUMENT: &str = "argument ";

/// Reads a complete request and returns it rewritten for git. A refused request fails with [`io::ErrorKind::InvalidInput`] and a
/// message for the client.
pub(crate) async fn read(
    input: &mut (impl AsyncRead + Unpin),
    is_branch: impl Fn(&str) -> bool,
) -> io::Result<Vec<u8>> {
    let refuse = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text.to_owned());
    let (mut request, mut buffer) = (Vec::new(), Vec::new());
    let mut arguments = Arguments::default();
    for _ in 0..=MAX_ARGUMENTS {
        match pkt::read(input, &mut buffer).await? {
            Some(packet @ Packet::Data(_)) => {
                let argument = packet.text().and_then(|text| text.strip_prefix(ARGUMENT));
                let argument = argument.ok_or_else(|| refuse("malformed archive request"))?;
                let is_tree = match arguments.classify(argument) {
                    Argument::Refused => return Err(refuse(&format!("unsupported option {argument}"))),
                    Argument::Tree => true,
                    Argument::Other => false,
                };
                let full =
                    if is_tree && argument.split(':').next().is_some_and(&is_branch) { "refs/heads/" } else { "" };
                pkt::line(&mut request, format_args!("{ARGUMENT}{full}{argument}"));
            }
            Some(Packet::Flush) => {
                pkt::flush(&mut request);
                return Ok(request);
            }
            _ => return Err(refuse("malformed archive request")),
        }
    }
    Err(refuse("too many arguments"))
}

/// The state of the argument parser.
#[derive(Default)]
struct Arguments {
    has_tree: bool,
    expects_value: bool,
    has_ended_options: bool,
}

/// The kind of an argument.
enum Argument {
    /// An option that is not supported.
    Refused,
    /// The tree to archive: the first argument that is neither an option nor the value of one.
    Tree,
    /// Anything else.
    Other,
}

impl Arguments {
    fn classify(&mut self, argument: &str) -> Argument {
        if std::mem::take(&mut self.expects_value) {
            return Argument::Other;
        }
        if !self.has_ended_options && argument.starts_with('-') {
            self.has_ended_options = argument == "--";
            self.expects_value = WITH_VALUE.contains(&argument);
            let has_value = || argument.split_once('=').is_some_and(|(name, _)| WITH_VALUE.contains(&name));
            let is_level = || matches!(argument.as_bytes(), [b'-', b'0'..=b'9']);
            let is_known = self.expects_value || WITHOUT_VALUE.contains(&argument) || has_value() || is_level();
            return if is_known { Argument::Other } else { Argument::Refused };
        }
        if std::mem::replace(&mut self.has_tree, true) { Argument::Other } else { Argument::Tree }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: &[&str]) -> Vec<u8> {
        let mut request = Vec::new();
        for argument in arguments {
            pkt::line(&mut request, format_args!("{ARGUMENT}{argument}"));
        }
        pkt::flush(&mut request);
        request
    }

    async fn rewritten(arguments: &[&str]) -> Vec<String> {
        let request = request(arguments);
        let read = read(&mut &request[..], |name| matches!(name, "main" | "dist")).await.expect("a request");
        let texts = pkt::packets(&read).map(|packet| packet.expect("a packet"));
        texts.filter_map(|packet| Some(packet.text()?.strip_prefix(ARGUMENT)?.to_owned())).collect()
    }

    #[tokio::test]
    async fn a_branch_is_replaced_by_its_full_ref_name() {
        assert_eq!(rewritten(&["--format=tar", "main", "dist"]).await, ["--format=tar", "refs/heads/main", "dist"]);
        assert_eq!(rewritten(&["main:docs"]).await, ["refs/heads/main:docs"]);
        assert_eq!(rewritten(&["--", "main"]).await, ["--", "refs/heads/main"]);
    }

    #[tokio::test]
    async fn option_values_and_other_names_are_unchanged() {
        assert_eq!(rewritten(&["--prefix", "dist", "main"]).await, ["--prefix", "dist", "refs/heads/main"]);
        assert_eq!(rewritten(&["v1", "main"]).await, ["v1", "main"]);
        assert_eq!(rewritten(&["HEAD"]).await, ["HEAD"]);
    }

    #[tokio::test]
    async fn malformed_requests_and_unsupported_options_are_refused() {
        for bad in [&b"0001"[..], b"zzzz", &b"000eargument x".repeat(MAX_ARGUMENTS + 2)] {
            assert!(read(&mut &bad[..], |_| false).await.is_err());
        }
        for option in ["--add-file=/etc/passwd", "--add-virtual-file=a:b", "--pref", "--output=x", "-o", "--remote=x"] {
            let refused = read(&mut &request(&[option, "main"])[..], |_| true).await.expect_err("a refusal");
            assert_eq!(refused.to_string(), format!("unsupported option {option}"));
        }
    }
}
