//! The requests that the load balancer has forwarded, and which of them a restart of a node has interrupted.

use std::fmt;

/// The format of the lines of HTTP requests: the time of the end and the duration in milliseconds, the node, the
/// status, how it ended, the method and the path.
pub(crate) const HTTP_FORMAT: &str = "http %[date(0,ms)] %Ta %s %ST %ts %HM %HP";
/// The format of the lines of SSH connections.
pub(crate) const SSH_FORMAT: &str = "ssh %[date(0,ms)] %Tt %s %ts";
/// The clocks of the balancer and of this program are read at slightly different moments.
const TOLERANCE: u64 = 250;

/// A node has ended between these times, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    pub(crate) node: &'static str,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// An HTTP request or an SSH connection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    start: u64,
    end: u64,
    node: String,
    /// How it ended, as two letters of haproxy: who ended it, and in which phase; `--` is a normal end.
    state: String,
    request: Option<Request>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    status: i32,
    method: String,
    path: String,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let is_http = match words.next()? {
            "http" => true,
            "ssh" => false,
            _ => return None,
        };
        let end: u64 = words.next()?.parse().ok()?;
        // A request that was not received completely has the duration -1.
        let duration: i64 = words.next()?.parse().ok()?;
        let start = end.saturating_sub(u64::try_from(duration).unwrap_or_default());
        let node = words.next()?.to_owned();
        let status = if is_http { words.next()?.parse().ok()? } else { 0 };
        let state = words.next()?.to_owned();
        let request = if is_http {
            Some(Request { status, method: words.next()?.to_owned(), path: words.next()?.to_owned() })
        } else {
            None
        };
        Some(Self { start, end, node, state, request })
    }

    /// Returns whether the server side failed. A client may always close its connection.
    fn is_failed(&self) -> bool {
        let Some(request) = &self.request else { return false };
        let is_ended_by_client = self.state.starts_with(['C', 'c']);
        request.status >= 500 || !(is_ended_by_client || self.state.starts_with(['-', 'L']))
    }

    /// Returns whether the node was restarted while it had the request.
    fn overlaps_any(&self, restarts: &[Restart]) -> bool {
        let (start, end) = (self.start.saturating_sub(TOLERANCE), self.end + TOLERANCE);
        restarts.iter().any(|restart| restart.node == self.node && start <= restart.end && restart.start <= end)
    }

    /// Returns whether the balancer repeats the request on another node: a read to which no response has begun.
    fn is_repeatable(&self) -> bool {
        let is_read = |request: &Request| ["GET", "HEAD", "OPTIONS"].contains(&request.method.as_str());
        self.request.as_ref().is_some_and(is_read) && !self.state.ends_with(['D', 'L'])
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, state, duration) = (&self.node, &self.state, self.end - self.start);
        match &self.request {
            Some(Request { status, method, path }) => {
                write!(formatter, "{method} {path} on {node}: status {status}, state {state}, after {duration} ms")
            }
            None => write!(formatter, "SSH on {node}: state {state}, after {duration} ms"),
        }
    }
}

/// What became of all requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestSummary {
    pub(crate) requests: usize,
    pub(crate) ssh_connections: usize,
    /// Their node was killed before they were answered.
    pub(crate) interrupted: Vec<String>,
    /// They failed for another reason.
    pub(crate) failed: Vec<String>,
}

impl RequestSummary {
    /// Reads the log of the balancer. `kills` are the restarts that may interrupt requests.
    pub(crate) fn read(log: &str, kills: &[Restart]) -> Self {
        let mut summary = Self::default();
        for entry in log.lines().filter_map(Entry::parse) {
            let is_interrupted = entry.overlaps_any(kills);
            if entry.request.is_none() {
                summary.ssh_connections += 1;
                // The end of a connection looks the same whether its server has closed it or was killed.
                if is_interrupted {
                    summary.interrupted.push(entry.to_string());
                }
                continue;
            }
            summary.requests += 1;
            if !entry.is_failed() {
                continue;
            }
            if is_interrupted && !entry.is_repeatable() {
                summary.interrupted.push(entry.to_string());
            } else {
                summary.failed.push(entry.to_string());
            }
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLS: [Restart; 1] = [Restart { node: "node2", start: 100_000, end: 100_600 }];

    fn check(line: &str, interrupted: usize, failed: usize) {
        let summary = RequestSummary::read(line, &KILLS);
        assert_eq!(summary.requests + summary.ssh_connections, 1, "{line}");
        assert_eq!((summary.interrupted.len(), summary.failed.len()), (interrupted, failed), "{line}");
    }

    #[test]
    fn requests_of_a_killed_node_are_interrupted() {
        check("http 100001 40 node2 502 SH POST /api/v3/projects", 1, 0);
        check("http 100001 40 node2 200 SD GET /p/archive", 1, 0);
        check("http 100001 40 node2 -1 SH DELETE /api/v3/projects/1", 1, 0);
        check("http 100400 40 node2 502 SH POST /api/v3/projects", 1, 0);
        check("ssh 100001 700 node2 --", 1, 0);
    }

    #[test]
    fn a_kill_does_not_explain_other_failures() {
        check("http 100001 40 node1 502 SH POST /api/v3/projects", 0, 1);
        check("http 99000 40 node2 502 SH POST /api/v3/projects", 0, 1);
        check("http 104000 40 node2 503 -- POST /api/v3/projects", 0, 1);
        check("http 104000 40 node2 500 -- GET /api/v3/projects", 0, 1);
        check("http 100001 40 <NOSRV> 503 SC GET /", 0, 1);
        // The balancer repeats reads.
        check("http 100001 40 node2 502 SH GET /api/v3/projects", 0, 1);
    }

    #[test]
    fn answers_are_no_failures() {
        check("http 100001 40 node2 201 -- POST /api/v3/projects", 0, 0);
        check("http 100001 40 node2 404 -- GET /api/v3/projects/1", 0, 0);
        check("http 100001 40 node2 200 CD GET /p/archive", 0, 0);
        check("ssh 104000 700 node2 --", 0, 0);
        assert_eq!(RequestSummary::read("[NOTICE] haproxy starts\n", &KILLS).requests, 0);
    }
}
