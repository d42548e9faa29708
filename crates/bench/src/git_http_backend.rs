//! `git http-backend` behind a minimal HTTP server, as a reference for pushes. It supports only the requests of stock
//! git.

use std::{
    collections::HashMap,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result};

/// Serves the repositories in a folder until the program ends; returns the address.
pub(crate) fn serve(root: &Path) -> Result<SocketAddr> {
    let context = "cannot serve git http-backend";
    let listener = TcpListener::bind("127.0.0.1:0").context(context)?;
    let address = listener.local_addr().context(context)?;
    let root = root.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let root = root.clone();
            thread::spawn(move || handle_connection(&stream, &root));
        }
    });
    Ok(address)
}

/// Answers the requests of one connection.
fn handle_connection(stream: &TcpStream, root: &Path) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_ascii_whitespace().map(ToOwned::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let response = run_backend(root, &method, &target, &headers, &body)?;
        (&mut &*stream).write_all(&response)?;
    }
}

fn run_backend(
    root: &Path,
    method: &str,
    target: &str,
    headers: &HashMap<String, String>,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method)
        .env("REMOTE_USER", "bench")
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(body)?;
    }
    let output = child.wait_with_output()?.stdout;
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").map_or(output.len(), |at| at + 4);
    let (head, content) = output.split_at(end);
    let head = String::from_utf8_lossy(head);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let rest = head.trim_end();
    let start = format!("HTTP/1.1 {status}\r\n{rest}\r\nContent-Length: {}\r\n\r\n", content.len());
    Ok([start.as_bytes(), content].concat())
}
