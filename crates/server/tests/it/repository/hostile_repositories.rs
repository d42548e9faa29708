//! Repositories crafted to exhaust memory, read through every route of the real binary by 16 concurrent clients within an
//! address space of 512 MB. The repositories are stored without the checks of a push, which refuses most of them.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use model::ProjectId;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    repository::git_clients::{GitServer, Transport, make_project},
    support::{GableCommand, ROOT_TOKEN, ServerProcess, TestInstance, UNLIMITED},
};

/// The address space of the server and its child processes, in kilobytes.
const ADDRESS_SPACE: &str = "524288";
/// The maximum memory of the server, in bytes.
const MAX_MEMORY: u64 = 300 << 20;
/// The number of concurrent clients.
const CLIENTS: usize = 16;
/// The number of bytes after which a client disconnects.
const MAX_READ: usize = 256 << 10;
/// The maximum duration of a response; generous, because the machine may be busy.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);

/// A large size: sixteen of them do not fit into memory.
const LARGE: usize = 24 << 20;

/// Starts a server with a limited address space, as an operator would. Clients may stall for as long as a test takes on a
/// busy machine.
pub(crate) fn start_limited(instance: &TestInstance) -> ServerProcess {
    let script = format!("ulimit -v {ADDRESS_SPACE} && exec \"$0\" \"$@\"");
    let gable = env!("CARGO_BIN_EXE_gable");
    let command = GableCommand::new("sh").args(&["-c", &script, gable, "serve", "--listen", "127.0.0.1:0"]);
    command
        .args(&["--client-timeout-seconds", "30m"])
        .args(UNLIMITED)
        .for_instance(instance)
        .with_root_credentials()
        .start()
}

/// A project, and a repository for it.
struct Target {
    id: i64,
    folder: TempDir,
}

impl Target {
    /// Creates a public project, and a repository with one small commit on `master`.
    fn make(server: &ServerProcess, name: &str) -> Self {
        let made = server.root().post("/api/v3/projects", &json!({ "name": name, "visibility_level": 20 }));
        assert_eq!(made.status, 201, "{}", made.text);
        let id = made.json()["id"].as_i64().expect("a number");
        let target = Self { id, folder: tempfile::tempdir().expect("a folder") };
        target.git(&["init", "-q", "--bare", "-b", "master"]);
        let blob = target.text_object("blob", "x\n".into());
        let tree = target.tree_of(&format!("100644 blob {blob}\tREADME\n"));
        target.set("refs/heads/master", &target.commit(&tree, "", AUTHOR, "first"));
        target
    }

    /// Gives the project its repository.
    fn publish(&self, instance: &TestInstance) {
        instance.store_repository(ProjectId::new(self.id), self.folder.path());
    }

    /// Runs git with input and returns its output.
    fn git_with(&self, arguments: &[&str], write: impl FnOnce(&mut dyn std::io::Write) + Send + 'static) -> String {
        let mut command = Command::new("git");
        command
            .env("GIT_DIR", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.args(["-c", "core.looseCompression=1", "-c", "pack.compression=1", "-c", "safe.directory=*"]);
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("git runs");
        let mut input = std::io::BufWriter::with_capacity(1 << 20, child.stdin.take().expect("a pipe"));
        let writer = thread::spawn(move || {
            write(&mut input);
            let _ = input.flush();
        });
        let output = child.wait_with_output().expect("git ends");
        writer.join().expect("written");
        assert!(output.status.success(), "git {arguments:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    fn git(&self, arguments: &[&str]) -> String {
        self.git_with(arguments, |_| {})
    }

    /// Writes an object with arbitrary content.
    fn object(&self, kind: &str, write: impl FnOnce(&mut dyn std::io::Write) + Send + 'static) -> String {
        self.git_with(&["hash-object", "-t", kind, "--literally", "-w", "--stdin"], write)
    }

    fn text_object(&self, kind: &str, text: String) -> String {
        self.object(kind, move |out| drop(out.write_all(text.as_bytes())))
    }

    /// Writes a commit with arbitrary headers after the tree.
    fn commit(&self, tree: &str, parents: &str, author: &str, message: &str) -> String {
        let text = format!("tree {tree}\n{parents}author {author}\ncommitter C <c@d> 1 +0000\n\n{message}");
        self.text_object("commit", text)
    }

    fn set(&self, name: &str, id: &str) {
        self.git(&["update-ref", name, id]);
    }

    fn first_tree(&self) -> String {
        self.git(&["rev-parse", "master^{tree}"])
    }

    /// Writes a tree.
    fn tree_of(&self, entries: &str) -> String {
        let entries = entries.to_owned();
        self.git_with(&["mktree"], move |out| drop(out.write_all(entries.as_bytes())))
    }
}

const AUTHOR: &str = "A <a@b> 1 +0000";

fn zeros(out: &mut dyn std::io::Write, mut left: usize) {
    let chunk = vec![0; 1 << 20];
    while left > 0 {
        let count = left.min(chunk.len());
        if out.write_all(&chunk[..count]).is_err() {
            return;
        }
        left -= count;
    }
}

/// A kind of hostile repository, and how it is created.
type Hostile = (&'static str, fn(&Target));

const HOSTILE: &[Hostile] = &[
    ("huge tag message", |target| {
        let head = target.git(&["rev-parse", "master"]);
        let text = format!("object {head}\ntype commit\ntag huge\ntagger {AUTHOR}\n\n{}", "m".repeat(LARGE));
        let tag = target.text_object("tag", text);
        target.set("refs/tags/v1", &tag);
    }),
    ("huge commit message", |target| {
        let commit = target.commit(&target.first_tree(), "", AUTHOR, &"m".repeat(LARGE));
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
    }),
    ("many large commit messages", |target| {
        let tree = target.first_tree();
        let mut parent = String::new();
        for number in 0..40 {
            let id = target.commit(&tree, &parent, AUTHOR, &format!("{number}{}", "\x01".repeat(300_000)));
            target.set("refs/heads/master", &id);
            target.set(&format!("refs/tags/v{number}"), &id);
            parent = format!("parent {id}\n");
        }
        target.set("refs/tags/v1", &target.git(&["rev-parse", "master"]));
    }),
    ("huge author", |target| {
        let author = format!("{} <{}> 1 +0000", "n".repeat(LARGE), "e".repeat(LARGE));
        let commit = target.commit(&target.first_tree(), "", &author, "m");
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
    }),
    ("huge extra header", |target| {
        let author = format!("{AUTHOR}\nextra {}", "x".repeat(LARGE));
        let commit = target.commit(&target.first_tree(), "", &author, "m");
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
    }),
    ("huge tree", |target| {
        let blob = target.text_object("blob", "x".into());
        let id: Vec<u8> =
            (0..20).map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).expect("digits")).collect();
        let tree = target.object("tree", move |out| {
            for number in 0..LARGE / 35 {
                let entry = [format!("100644 f{number:07}\0").as_bytes(), &id].concat();
                if out.write_all(&entry).is_err() {
                    return;
                }
            }
        });
        let commit = target.commit(&tree, "", AUTHOR, "m");
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
    }),
    ("tree bomb", |target| {
        let blob = target.text_object("blob", "x".into());
        let mut tree =
            target.tree_of(&(0..16).fold(String::new(), |all, n| all + &format!("100644 blob {blob}\tf{n}\n")));
        for _ in 0..10 {
            tree = target.tree_of(&(0..16).fold(String::new(), |all, n| all + &format!("040000 tree {tree}\td{n}\n")));
        }
        let commit = target.commit(&tree, "", AUTHOR, "m");
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
    }),
    ("deep folders of large trees", |target| {
        let blob = target.text_object("blob", "x".into());
        let files = (0..3000).fold(String::new(), |all, n| all + &format!("100644 blob {blob}\tf{n:032}\n"));
        let mut tree = target.tree_of(&files);
        for _ in 0..30 {
            tree = target.tree_of(&format!("{files}040000 tree {tree}\tz\n"));
        }
        let attributes = target.text_object("blob", "a b\n".repeat(30_000));
        let tree = target.tree_of(&format!("100644 blob {attributes}\t.gitattributes\n040000 tree {tree}\tz\n"));
        let commit = target.commit(&tree, "", AUTHOR, "m");
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
    }),
    ("huge blob", |target| {
        let blob = target.object("blob", |out| zeros(out, 6 * LARGE));
        huge_file(target, &blob);
        target.git(&["repack", "-adq", "--window=0"]);
    }),
    ("tag at a huge blob", |target| {
        let blob = target.object("blob", |out| zeros(out, 6 * LARGE));
        huge_file(target, &blob);
        target.set("refs/tags/v1", &blob);
        let text = format!("object {blob}\ntype blob\ntag b\ntagger {AUTHOR}\n\nm");
        target.set("refs/tags/annotated", &target.text_object("tag", text));
    }),
    ("delta bomb", |target| {
        // Versions of a file that git stores as deltas, the first of them incompressible.
        let line = |number: u64| format!("{:016x}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let text: String = (0..24_000).map(line).collect();
        let blobs: Vec<String> = (0..4)
            .map(|number| {
                let text = text.clone();
                target.object("blob", move |out| {
                    for round in 0..60 {
                        let _ = write!(out, "{number} {round}\n{text}");
                    }
                })
            })
            .collect();
        let tree = blobs.iter().enumerate();
        let tree = tree.fold(String::new(), |all, (n, blob)| all + &format!("100644 blob {blob}\tf{n}\n"));
        let tree = target.tree_of(&format!("{tree}100644 blob {}\thuge\n", blobs[3]));
        let commit = target.commit(&tree, "", AUTHOR, "m");
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
        target.git(&["-c", "pack.threads=1", "repack", "-adfq", "--window=2", "--depth=50"]);
    }),
    ("chain of tags, tag at a tree", |target| {
        let tree = target.first_tree();
        target.set("refs/tags/tree", &tree);
        let mut id = target.git(&["rev-parse", "master"]);
        let mut kind = "commit";
        for _ in 0..200 {
            id = target.text_object("tag", format!("object {id}\ntype {kind}\ntag t\ntagger {AUTHOR}\n\nm"));
            kind = "tag";
        }
        target.set("refs/tags/v1", &id);
    }),
    ("many refs", |target| {
        let head = target.git(&["rev-parse", "master"]);
        let mut list = String::from("# pack-refs with: peeled fully-peeled sorted \n");
        for (kind, count) in [("heads/b", 50_000), ("tags/v", 50_000)] {
            for number in 0..count {
                let _ = writeln!(list, "{head} refs/{kind}{number:06}");
            }
        }
        let _ = writeln!(list, "{head} refs/tags/v1");
        fs::write(target.folder.path().join("packed-refs"), list).expect("written");
    }),
    ("many parents, again and again", |target| {
        let tree = target.first_tree();
        let parents = (0..200).fold(String::new(), |all, n| {
            all + &format!("parent {}\n", target.commit(&tree, "", AUTHOR, &format!("m{n}")))
        });
        let parents = parents.repeat(25);
        let mut last = String::new();
        for number in 0..10 {
            let id = target.commit(&tree, &format!("{last}{parents}"), AUTHOR, &format!("octopus {number}"));
            target.set("refs/heads/master", &id);
            target.set("refs/tags/v1", &id);
            last = format!("parent {id}\n");
        }
    }),
    ("many lines, long lines and many files", |target| {
        let lines = target.object("blob", |out| {
            for _ in 0..2_000_000 {
                let _ = out.write_all(b"\n");
            }
        });
        let line = target.object("blob", |out| {
            let chunk = vec![b'x'; 1 << 20];
            for _ in 0..30 {
                let _ = out.write_all(&chunk);
            }
        });
        let files = (0..300).fold(String::new(), |all, n| all + &format!("100644 blob {lines}\tf{n:06}\n"));
        let tree = target.tree_of(&format!("{files}100644 blob {line}\thuge\n"));
        let parent = target.git(&["rev-parse", "master"]);
        let commit = target.commit(&tree, &format!("parent {parent}\n"), AUTHOR, "m");
        target.set("refs/heads/master", &commit);
        target.set("refs/tags/v1", &commit);
    }),
    ("long history", |target| {
        let tree = target.first_tree();
        target.git_with(&["fast-import", "--quiet", "--force"], move |out| {
            for number in 0..3_000 {
                let text = format!("{number}");
                let _ = write!(
                    out,
                    "commit refs/heads/master\ncommitter N{} <e{number}@x> {number} +0000\ndata {}\n{text}\nM 040000 {tree} \n",
                    "n".repeat(500),
                    text.len()
                );
            }
        });
        target.set("refs/tags/v1", &target.git(&["rev-parse", "master"]));
    }),
];

fn huge_file(target: &Target, blob: &str) {
    let attributes = target.text_object("blob", "huge export-subst\n".into());
    let ci = target.text_object("blob", "job: { script: [x] }\n".into());
    let tree = target.tree_of(&format!(
        "100644 blob {attributes}\t.gitattributes\n100644 blob {ci}\t.gitlab-ci.yml\n100644 blob {blob}\thuge\n120000 blob {blob}\tlink\n"
    ));
    let parent = target.git(&["rev-parse", "master"]);
    let commit = target.commit(&tree, &format!("parent {parent}\n"), AUTHOR, "m");
    target.set("refs/heads/master", &commit);
    target.set("refs/tags/v1", &commit);
}

/// A named request with its body.
pub(crate) struct Route {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    pub(crate) body: Option<(&'static str, Vec<u8>)>,
    pub(crate) version: Option<&'static str>,
    pub(crate) encoding: Option<&'static str>,
}

fn line(text: &str) -> String {
    format!("{:04x}{text}\n", text.len() + 5)
}

/// Returns every route that reads a repository.
fn routes(target: &Target, name: &str, head: &str, blob: &str) -> Vec<Route> {
    let api = |route: &str| format!("/api/v3/projects/{}{route}", target.id);
    let get = |name, route: &str| Route { name, path: api(route), body: None, version: None, encoding: None };
    let repository = |name, route: &str| get(name, &format!("/repository{route}"));
    let project = format!("/root/{name}.git");
    let refs = |name, version| Route {
        name,
        path: format!("{project}/info/refs?service=git-upload-pack"),
        body: None,
        version,
        encoding: None,
    };
    let fetch = |name, version, body: String| Route {
        name,
        path: format!("{project}/git-upload-pack"),
        body: Some(("application/x-git-upload-pack-request", body.into_bytes())),
        version,
        encoding: None,
    };
    let want = format!("want {head}");
    vec![
        repository("branches", "/branches?per_page=100"),
        repository("branch", "/branches/master"),
        repository("tags", "/tags?per_page=100"),
        repository("tag", "/tags/v1"),
        repository("commits", "/commits?per_page=100"),
        repository("commits of a path", "/commits?per_page=100&path=README"),
        repository("commits, far", "/commits?per_page=100&page=150"),
        repository("commit", "/commits/master"),
        repository("commit by tag", "/commits/v1"),
        repository("diff", "/commits/master/diff"),
        repository("comments", "/commits/master/comments"),
        repository("statuses", "/commits/master/statuses"),
        repository("builds of a commit", "/commits/master/builds"),
        repository("compare", "/compare?from=v1&to=master"),
        repository("compare with the first", "/compare?from=first&to=master"),
        repository("tree", "/tree"),
        repository("tree, far", "/tree?per_page=100&page=15000"),
        repository("tree recursive", "/tree?recursive=true&per_page=100"),
        repository("tree recursive, far", "/tree?recursive=true&per_page=100&page=15000"),
        repository("file", "/files?file_path=huge&ref=master"),
        repository("raw file", "/blobs/master?filepath=huge"),
        repository("raw file of a commit", "/commits/master/blob?filepath=huge"),
        repository("raw blob", &format!("/raw_blobs/{blob}")),
        repository("archive", "/archive"),
        repository("archive.tar", "/archive.tar"),
        repository("archive.zip", "/archive.zip"),
        repository("archive.tar.bz2", "/archive.tar.bz2"),
        repository("contributors", "/contributors"),
        get("events", "/events"),
        get("issues", "/issues"),
        get("pipelines", "/pipelines"),
        get("builds", "/builds"),
        get("project", ""),
        refs("refs, version 0", None),
        refs("refs, version 1", Some("version=1")),
        refs("refs, version 2", Some("version=2")),
        fetch("ls-refs", Some("version=2"), format!("{}00010000", line("command=ls-refs"))),
        fetch("clone, version 0", None, format!("{}0000{}", line(&format!("{want} ofs-delta")), line("done"))),
        fetch("clone", Some("version=2"), format!("{}0001{}{}0000", line("command=fetch"), line(&want), line("done"))),
        fetch(
            "fetch without blobs",
            Some("version=2"),
            format!("{}0001{}{}{}0000", line("command=fetch"), line("filter blob:none"), line(&want), line("done")),
        ),
        fetch(
            "fetch one commit",
            Some("version=2"),
            format!("{}0001{}{}{}0000", line("command=fetch"), line("deepen 1"), line(&want), line("done")),
        ),
    ]
}

/// Returns the documented routes below `/repository` that are not covered by the requests.
fn missing_routes(server: &ServerProcess, routes: &[Route]) -> Vec<String> {
    let document = server.root().get("/api/v3/openapi.json").json();
    let documented = document["paths"].as_object().expect("paths").iter();
    let read = documented.filter(|(path, methods)| path.contains("/repository/") && methods.get("get").is_some());
    let is_covered = |pattern: &str| {
        let pattern: Vec<&str> = pattern.trim_start_matches("/api/v3").split('/').collect();
        routes.iter().any(|route| {
            let path = route.path.trim_start_matches("/api/v3").split('?').next().unwrap_or_default();
            let path: Vec<&str> = path.split('/').collect();
            let fits = |(pattern, part): (&&str, &&str)| match pattern.split_once('{') {
                Some((start, _)) => part.starts_with(start),
                None => pattern == part,
            };
            path.len() == pattern.len() && pattern.iter().zip(&path).all(fits)
        })
    };
    read.map(|(path, _)| path.clone()).filter(|path| !is_covered(path)).collect()
}

/// Sends a request and reads a part of the response; returns its status and the bytes.
pub(crate) fn send_request(address: &str, route: &Route) -> Result<(u16, Vec<u8>), std::io::Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let method = if route.body.is_some() { "POST" } else { "GET" };
    let mut head = format!("{method} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", route.path);
    if route.path.starts_with("/api") {
        let _ = write!(head, "PRIVATE-TOKEN: {ROOT_TOKEN}\r\n");
    }
    if let Some(version) = route.version {
        let _ = write!(head, "Git-Protocol: {version}\r\n");
    }
    if let Some(encoding) = route.encoding {
        let _ = write!(head, "Content-Encoding: {encoding}\r\n");
    }
    let body = route.body.as_ref().map_or(&[][..], |(_, body)| body);
    if let Some((kind, body)) = &route.body {
        let _ = write!(head, "Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    // After an early refusal the connection may be closed.
    let _ = stream.write_all(body);
    let (mut found, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    while found.len() < MAX_READ {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => found.extend_from_slice(&chunk[..count]),
            Err(_) if !found.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    let status =
        found.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("no status"))?;
    Ok((status, found))
}

/// Sends a request with many concurrent clients and returns their statuses as text.
fn send_concurrently(server: &ServerProcess, route: &Route) -> String {
    let statuses: BTreeSet<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| send_request(server.address(), route))).collect();
        let answers = clients.into_iter().map(|client| client.join().expect("a client does not panic"));
        answers.map(|answer| answer.map_or_else(|error| error.to_string(), |(status, _)| status.to_string())).collect()
    });
    statuses.into_iter().collect::<Vec<_>>().join(" ")
}

/// The repositories that the suite reads. The whole table is slow in an unoptimised build; `GABLE_HOSTILE=all` reads
/// every repository.
const IN_EVERY_RUN: [&str; 4] = ["tree bomb", "huge tag message", "huge blob", "tag at a huge blob"];

fn selected() -> impl Iterator<Item = &'static Hostile> {
    HOSTILE.iter().filter(|(name, _)| is_full_run() || IN_EVERY_RUN.contains(name))
}

fn is_full_run() -> bool {
    std::env::var("GABLE_HOSTILE").is_ok_and(|value| value == "all")
}

#[test]
fn no_repository_exhausts_the_memory_of_the_server() {
    let instance = TestInstance::embedded();
    let server = start_limited(&instance);
    let mut table = String::new();
    let mut failures = Vec::new();
    for (number, (hostile, make)) in selected().enumerate() {
        let start = Instant::now();
        let name = format!("hostile-{number}");
        let target = Target::make(&server, &name);
        let first = target.git(&["rev-parse", "master"]);
        target.set("refs/heads/first", &first);
        make(&target);
        target.publish(&instance);
        let head = target.git(&["rev-parse", "master"]);
        let entry = target.git(&["ls-tree", "master", "--", "huge"]);
        let blob = entry.split_whitespace().nth(2).unwrap_or("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391").to_owned();
        let made = start.elapsed();
        let routes = routes(&target, &name, &head, &blob);
        assert_eq!(missing_routes(&server, &routes), Vec::<String>::new());
        for route in routes {
            let start = Instant::now();
            let statuses = send_concurrently(&server, &route);
            let peak = server.peak_memory();
            let _ = writeln!(
                table,
                "{hostile} | {} | {statuses} | {} MB | {} ms",
                route.name,
                peak >> 20,
                start.elapsed().as_millis()
            );
            // Oversized content is a client error, and too many concurrent requests get 429; nothing is a server error.
            // In an unoptimised build on a busy machine some clients may time out waiting for others, but never all
            // of them.
            let is_refused = |status: &str| status == "429" || status == "503" && !is_full_run();
            let is_served = |status: &str| matches!(status, "200" | "400" | "404");
            let mut statuses_of_all = statuses.split(' ');
            let is_answered = statuses.split(' ').any(is_served)
                && statuses_of_all.all(|status| is_served(status) || is_refused(status));
            if !is_answered || peak > MAX_MEMORY {
                failures.push(format!("{hostile} | {} | {statuses} | {} MB", route.name, peak >> 20));
            }
        }
        let _ = writeln!(
            table,
            "{hostile} was made in {} ms and read in {} ms",
            made.as_millis(),
            start.elapsed().saturating_sub(made).as_millis()
        );
    }
    eprintln!("{table}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Sends a request and does not read the response.
fn send_without_reading(address: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connected");
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    stream
}

#[test]
fn clients_that_do_not_read_keep_no_responses_in_memory() {
    const FILE: usize = 30 << 20;
    let instance = TestInstance::embedded();
    let server = start_limited(&instance);
    let target = Target::make(&server, "stalled");
    let blob = target.object("blob", |out| zeros(out, FILE));
    let tree = target.tree_of(&format!("100644 blob {blob}\thuge\n"));
    let mut parent = String::new();
    for number in 0..100 {
        let id = target.commit(&tree, &parent, AUTHOR, &format!("{number}{}", "\x01".repeat(50_000)));
        target.set("refs/heads/master", &id);
        parent = format!("parent {id}\n");
    }
    target.publish(&instance);
    let api = format!("/api/v3/projects/{}/repository", target.id);
    let routes = [
        format!("{api}/files?file_path=huge&ref=master"),
        format!("{api}/blobs/master?filepath=huge"),
        format!("{api}/commits?per_page=100"),
    ];
    let mut stalled: Vec<Vec<TcpStream>> = Vec::new();
    for route in &routes {
        stalled.push((0..100).map(|_| send_without_reading(server.address(), route)).collect());
        // All of them are served: the first byte is available.
        for stream in stalled.last().expect("some") {
            stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).expect("set");
            assert_eq!(stream.peek(&mut [0]).expect("an answer has begun"), 1);
        }
        assert_eq!(server.root().get(&format!("{api}/branches")).status, 200, "others are answered");
        let peak = server.peak_memory();
        assert!(peak < MAX_MEMORY, "{} MB after {route}", peak >> 20);
    }
    // A client that reads eventually gets everything.
    let mut answer = Vec::new();
    stalled[0][57].read_to_end(&mut answer).expect("the whole answer");
    let body = answer.windows(4).position(|part| part == b"\r\n\r\n").map(|at| &answer[at + 4..]).expect("a body");
    let file: serde_json::Value = serde_json::from_slice(body).expect("JSON");
    assert_eq!((file["size"].as_u64(), file["blob_id"].as_str()), (Some(FILE as u64), Some(&*blob)));
    let content = file["content"].as_str().expect("a text");
    assert_eq!(content.len(), FILE.div_ceil(3) * 4);
    assert!(content.trim_end_matches('=').bytes().all(|byte| byte == b'A'));
    let mut answer = String::new();
    stalled[2][99].read_to_string(&mut answer).expect("the whole answer");
    let commits: serde_json::Value =
        serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
    let messages: Vec<&str> =
        commits.as_array().expect("a list").iter().filter_map(|commit| commit["message"].as_str()).collect();
    assert_eq!((messages.len(), messages[0].len()), (100, 50_002));
    assert!(messages[99].ends_with("[the rest of this message is too long to be shown]"), "{}", messages[99].len());
}

#[test]
fn an_archive_bomb_is_refused_before_it_starts() {
    let instance = TestInstance::embedded();
    let server = start_limited(&instance);
    let target = Target::make(&server, "bomb");
    // 90 entries of one folder with two entries of one file: 9 GB in the archive, and almost nothing on disk.
    let blob = target.object("blob", |out| zeros(out, 50 << 20));
    let folder = target.tree_of(&format!("100644 blob {blob}\ta\n100644 blob {blob}\tb\n"));
    let folders = |count| (0..count).fold(String::new(), |all, n| all + &format!("040000 tree {folder}\td{n}\n"));
    let tree = target.tree_of(&folders(90));
    target.set("refs/heads/master", &target.commit(&tree, "", AUTHOR, "m"));
    let few = target.tree_of(&folders(1));
    target.set("refs/heads/few", &target.commit(&few, "", AUTHOR, "m"));
    target.publish(&instance);
    let api = format!("/api/v3/projects/{}/repository", target.id);
    for kind in ["tar", "tar.gz", "tar.bz2", "zip"] {
        let refused = server.root().get(&format!("{api}/archive.{kind}"));
        let message = json!({ "message": "the files have more than 8 GB together, which is too much for an archive" });
        assert_eq!((refused.status, refused.json()), (400, message), "{kind}");
    }
    let path = format!("{api}/archive.tar?sha=few");
    let route = Route { name: "archive", path, body: None, version: None, encoding: None };
    assert_eq!(send_request(server.address(), &route).expect("an answer").0, 200);
}

#[test]
fn oversized_objects_are_refused_by_every_kind_of_write() {
    for transport in [Transport::Http, Transport::Ssh] {
        let setup = GitServer::start_with(&["--max-body-size", "16777216"]);
        let ann = setup.person("ann");
        let id = make_project(&ann, "rocket", 0);
        let url = setup.url(Some(&ann), transport, "ann/rocket");
        setup.git_ok(Some(&ann), ".", &["clone", "-q", &url, "ann"]);
        setup.git_ok(None, "ann", &["checkout", "-q", "-b", "main"]);
        let first = setup.commit("ann", "README.md", "hello\n");
        setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);

        let long = setup.path("long");
        fs::write(&long, "m".repeat(2 << 20)).expect("written");
        let long = long.to_str().expect("a path");
        setup.git_ok(None, "ann", &["tag", "-a", "-F", long, "long"]);
        let tag = setup.git_ok(None, "ann", &["rev-parse", "long"]);
        let refused = setup.git_refused(Some(&ann), "ann", &["push", "origin", "long"]);
        assert!(refused.contains(&format!("the tag {tag} has 2.0 MB; the limit is 1 MB")), "{refused}");

        setup.git_ok(None, "ann", &["commit", "-q", "--allow-empty", "-F", long]);
        let commit = setup.git_ok(None, "ann", &["rev-parse", "HEAD"]);
        let refused = setup.git_refused(Some(&ann), "ann", &["push", "origin", "HEAD:topic"]);
        assert!(refused.contains(&format!("the commit {commit} has 2.0 MB; the limit is 1 MB")), "{refused}");

        let tree = setup.path("tree");
        let blob: Vec<u8> = (0..20).collect();
        let entries = (0..250_000).flat_map(|n: u32| [format!("160000 f{n:07}\0").as_bytes(), &blob].concat());
        fs::write(&tree, entries.collect::<Vec<u8>>()).expect("written");
        let tree = setup.git_ok(None, "ann", &["hash-object", "-t", "tree", "-w", tree.to_str().expect("a path")]);
        let commit = setup.git_ok(None, "ann", &["commit-tree", "-m", "m", &tree]);
        let refused = setup.git_refused(Some(&ann), "ann", &["push", "origin", &format!("{commit}:refs/heads/topic")]);
        assert!(refused.contains(&format!("the tree {tree} has 8.5 MB; the limit is 8 MB")), "{refused}");

        // Nothing of it was stored, and objects within the limits are still accepted.
        let refs = setup.git_ok(Some(&ann), "ann", &["ls-remote", "origin"]);
        assert_eq!(refs, format!("{first}\tHEAD\n{first}\trefs/heads/main"));
        fs::write(setup.path("short"), "m".repeat(500_000)).expect("written");
        let short = setup.path("short");
        setup.git_ok(None, "ann", &["tag", "-a", "-F", short.to_str().expect("a path"), "short", &first]);
        setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "short"]);
        let shown = ann.client.get(&format!("/api/v3/projects/{id}/repository/tags/short")).json();
        assert_eq!(shown["message"].as_str().map(str::len), Some(500_000));

        let api = format!("/api/v3/projects/{id}/repository");
        let message = "m".repeat(2 << 20);
        let file = json!({ "file_path": "a", "branch_name": "main", "content": "x", "commit_message": message });
        let refused = ann.client.post(&format!("{api}/files"), &file);
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.text.contains("has 2.0 MB; the limit is 1 MB"), "{}", refused.text);
        let tag = json!({ "tag_name": "api", "ref": "main", "message": message });
        let refused = ann.client.post(&format!("{api}/tags"), &tag);
        // The status of refused tags in GitLab.
        assert_eq!(refused.status, 405, "{}", refused.text);
        assert!(refused.text.contains("has 2.0 MB; the limit is 1 MB"), "{}", refused.text);
    }
}
