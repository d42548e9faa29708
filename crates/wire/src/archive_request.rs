//! The request of `git archive --remote`.
//!
//! Git takes a tag before a branch of the same name, and everything else here takes the branch. So the name of a branch is
//! passed on in full.

use std::io;

use tokio::io::AsyncRead;

use crate::pkt::{self, Packet};

/// How many arguments git accepts.
const MOST_ARGUMENTS: usize = 64;
/// Options whose value may be the next argument.
const WITH_VALUE: [&str; 9] =
    ["--prefix", "--format", "--add-file", "--add-virtual-file", "--mtime", "--output", "-o", "--remote", "--exec"];
const ARGUMENT: &str = "argument ";

/// Reads a request to its end and returns it as git shall read it.
pub(crate) async fn read(
    input: &mut (impl AsyncRead + Unpin),
    is_branch: impl Fn(&str) -> bool,
) -> io::Result<Vec<u8>> {
    let (mut request, mut buffer) = (Vec::new(), Vec::new());
    let mut arguments = Arguments::default();
    for _ in 0..=MOST_ARGUMENTS {
        match pkt::read(input, &mut buffer).await? {
            Some(packet @ Packet::Data(content)) => {
                let argument = packet.text().and_then(|text| text.strip_prefix(ARGUMENT));
                match argument.filter(|argument| arguments.is_tree(argument)) {
                    Some(tree) if tree.split(':').next().is_some_and(&is_branch) => {
                        pkt::line(&mut request, format_args!("{ARGUMENT}refs/heads/{tree}"));
                    }
                    _ => pkt::data(&mut request, content),
                }
            }
            Some(Packet::Flush) => {
                pkt::flush(&mut request);
                return Ok(request);
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "not a request for an archive")),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "too many arguments"))
}

/// What was seen of the arguments so far.
#[derive(Default)]
struct Arguments {
    has_tree: bool,
    expects_value: bool,
    has_ended_options: bool,
}

impl Arguments {
    /// Whether the next argument names what is archived: the first one that is no option and no value of one.
    fn is_tree(&mut self, argument: &str) -> bool {
        if std::mem::take(&mut self.expects_value) {
            return false;
        }
        if !self.has_ended_options && argument.starts_with('-') {
            self.has_ended_options = argument == "--";
            self.expects_value = WITH_VALUE.contains(&argument);
            return false;
        }
        !std::mem::replace(&mut self.has_tree, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn rewritten(arguments: &[&str]) -> Vec<String> {
        let mut request = Vec::new();
        for argument in arguments {
            pkt::line(&mut request, format_args!("{ARGUMENT}{argument}"));
        }
        pkt::flush(&mut request);
        let read = read(&mut &request[..], |name| matches!(name, "main" | "dist")).await.expect("a request");
        let texts = pkt::packets(&read).map(|packet| packet.expect("a packet"));
        texts.filter_map(|packet| Some(packet.text()?.strip_prefix(ARGUMENT)?.to_owned())).collect()
    }

    #[tokio::test]
    async fn the_name_of_a_branch_is_passed_on_in_full() {
        assert_eq!(rewritten(&["--format=tar", "main", "dist"]).await, ["--format=tar", "refs/heads/main", "dist"]);
        assert_eq!(rewritten(&["main:docs"]).await, ["refs/heads/main:docs"]);
        assert_eq!(rewritten(&["--", "main"]).await, ["--", "refs/heads/main"]);
    }

    #[tokio::test]
    async fn values_of_options_and_other_names_stay() {
        assert_eq!(rewritten(&["--prefix", "dist", "main"]).await, ["--prefix", "dist", "refs/heads/main"]);
        assert_eq!(rewritten(&["v1", "main"]).await, ["v1", "main"]);
        assert_eq!(rewritten(&["HEAD"]).await, ["HEAD"]);
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        for bad in [&b"0001"[..], b"zzzz", &b"000eargument x".repeat(MOST_ARGUMENTS + 2)] {
            assert!(read(&mut &bad[..], |_| false).await.is_err());
        }
    }
}
