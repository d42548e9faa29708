"""Tests with the installed git and ssh, over HTTP and SSH, against one server.

The server at GABLE_URL and GABLE_SSH_URL was started for this file alone; see crates/xtask/src/clients.rs.
"""

import json
import os
import subprocess
import urllib.parse
import urllib.request

import pytest

URL = os.environ["GABLE_URL"]
SSH_URL = os.environ["GABLE_SSH_URL"]
TOKEN = os.environ["GABLE_ROOT_TOKEN"]


def api(method, path, **body):
    """Sends a request to the API, to prepare a test or to check its result."""
    headers = {"PRIVATE-TOKEN": TOKEN, "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"{URL}/api/v3{path}", data=data, method=method, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


class Person:
    """A user with a home folder, a key and a token."""

    def __init__(self, home, name, token=None):
        self.home, self.name, self.token = home, name, token
        self.key = home / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)

    @property
    def public_key(self):
        return self.key.with_suffix(".pub").read_text().strip()

    def url(self, transport, path):
        if transport == "ssh":
            return f"{SSH_URL}/{path}.git"
        scheme, host = URL.split("://")
        user = f"{self.name}:{self.token}@" if self.token else ""
        return f"{scheme}://{user}{host}/{path}.git"

    def git(self, *arguments, folder=None, fails=False):
        ssh = ["ssh", "-F", "none", "-i", str(self.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        ssh += ["-o", f"UserKnownHostsFile={self.home}/known_hosts", "-o", "StrictHostKeyChecking=accept-new"]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_SSH_COMMAND": " ".join(ssh),
            **{f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER")
               for field, value in (("NAME", self.name), ("EMAIL", f"{self.name}@example.org"))},
        }
        command = ["git", *map(str, arguments)]
        done = subprocess.run(command, cwd=folder or self.home, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode != 0) == fails, f"git {arguments[0]}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout.strip()

    def commit(self, folder, path, content):
        (folder / path).write_text(content)
        self.git("add", path, folder=folder)
        self.git("commit", "-q", "-m", f"Change {path}", folder=folder)
        return self.git("rev-parse", "HEAD", folder=folder)


@pytest.fixture
def root(tmp_path):
    person = Person(make(tmp_path, "root"), "root", TOKEN)
    key = api("POST", "/user/keys", title="desk", key=person.public_key)
    yield person
    api("DELETE", f"/user/keys/{key['id']}")


@pytest.fixture
def project(request):
    name = f"p{abs(hash(request.node.name))}"
    return api("POST", "/projects", name=name)


def make(parent, name):
    folder = parent / name
    folder.mkdir()
    return folder


def pushed(person, project, transport):
    """Returns a clone with one commit that is pushed."""
    work = person.home / "work"
    person.git("clone", "-q", person.url(transport, project["path_with_namespace"]), work)
    person.git("checkout", "-q", "-b", "master", folder=work)
    person.commit(work, "README.md", "hello\n")
    person.git("push", "-q", "-u", "origin", "master", folder=work)
    return work


both = pytest.mark.parametrize("transport", ["http", "ssh"])


@both
def test_pushed_commits_are_cloned(root, project, transport):
    work = pushed(root, project, transport)
    head = root.git("rev-parse", "HEAD", folder=work)
    branch = api("GET", f"/projects/{project['id']}/repository/branches/master")
    assert branch["commit"]["id"] == head
    for other in ("http", "ssh"):
        root.git("clone", "-q", root.url(other, project["path_with_namespace"]), f"by-{other}")
        assert (root.home / f"by-{other}" / "README.md").read_text() == "hello\n"
        root.git("fsck", "--strict", folder=root.home / f"by-{other}")


@both
def test_new_commits_are_fetched_and_pulled(root, project, transport):
    work = pushed(root, project, transport)
    root.git("clone", "-q", root.url(transport, project["path_with_namespace"]), "other")
    head = root.commit(work, "more.txt", "more\n")
    root.git("push", "-q", folder=work)
    root.git("pull", "-q", "--ff-only", folder=root.home / "other")
    assert root.git("rev-parse", "HEAD", folder=root.home / "other") == head


@both
def test_branches_and_tags_are_created_and_deleted(root, project, transport):
    work = pushed(root, project, transport)
    root.git("push", "-q", "origin", "master:feature/x.y", folder=work)
    root.git("tag", "-a", "-m", "First", "v1.0", folder=work)
    root.git("push", "-q", "origin", "v1.0", folder=work)
    refs = root.git("ls-remote", "origin", folder=work)
    names = {line.split("\t")[1] for line in refs.splitlines()}
    assert names == {"HEAD", "refs/heads/feature/x.y", "refs/heads/master", "refs/tags/v1.0", "refs/tags/v1.0^{}"}
    root.git("push", "-q", "origin", "--delete", "feature/x.y", "v1.0", folder=work)
    refs = root.git("ls-remote", "origin", folder=work)
    assert {line.split("\t")[1] for line in refs.splitlines()} == {"HEAD", "refs/heads/master"}


@both
def test_a_shallow_clone_is_deepened(root, project, transport):
    work = pushed(root, project, transport)
    for number in range(3):
        root.commit(work, "README.md", f"{number}\n")
    root.git("push", "-q", folder=work)
    root.git("clone", "-q", "--depth", "1", root.url(transport, project["path_with_namespace"]), "shallow")
    shallow = root.home / "shallow"
    assert root.git("rev-list", "--count", "HEAD", folder=shallow) == "1"
    root.git("fetch", "-q", "--unshallow", folder=shallow)
    assert root.git("rev-list", "--count", "HEAD", folder=shallow) == "4"


@both
def test_a_mirror_push_transfers_all_refs(root, project, transport):
    work = pushed(root, project, transport)
    root.git("push", "-q", "origin", "master:release", folder=work)
    root.git("clone", "-q", "--mirror", root.url(transport, project["path_with_namespace"]), "mirror")
    target = api("POST", "/projects", name=f"{project['name']}-copy")
    root.git("push", "-q", "--mirror", root.url(transport, target["path_with_namespace"]), folder=root.home / "mirror")
    names = [branch["name"] for branch in api("GET", f"/projects/{target['id']}/repository/branches")]
    assert names == ["master", "release"]


@both
def test_a_protected_branch_rejects_a_push_that_is_not_a_fast_forward(root, project, transport):
    work = pushed(root, project, transport)
    root.git("commit", "-q", "--amend", "-m", "Other", folder=work)
    output = root.git("push", "origin", "+master", folder=work, fails=True)
    assert "protected" in output, output


def test_a_wrong_token_is_refused(tmp_path, project):
    stranger = Person(make(tmp_path, "stranger"), "root", "abcdefghijklmnopqrst")
    output = stranger.git("ls-remote", stranger.url("http", project["path_with_namespace"]), fails=True)
    assert "Authentication failed" in output, output


def test_an_unknown_key_is_refused(tmp_path, project):
    stranger = Person(make(tmp_path, "stranger"), "root")
    output = stranger.git("ls-remote", stranger.url("ssh", project["path_with_namespace"]), fails=True)
    assert "Permission denied" in output, output


def test_a_deploy_key_reads_and_does_not_write(tmp_path, root, project):
    pushed(root, project, "http")
    server = Person(make(tmp_path, "server"), "server")
    api("POST", f"/projects/{project['id']}/deploy_keys", title="server", key=server.public_key)
    server.git("clone", "-q", server.url("ssh", project["path_with_namespace"]), "work")
    server.commit(server.home / "work", "more.txt", "more\n")
    output = server.git("push", folder=server.home / "work", fails=True)
    assert "Deploy keys are not allowed to push code." in output, output


def test_a_public_project_is_cloned_without_credentials(tmp_path, root):
    public = api("POST", "/projects", name="open-house", visibility_level=20)
    pushed(root, public, "http")
    anybody = Person(make(tmp_path, "anybody"), "anybody")
    anybody.git("clone", "-q", anybody.url("http", public["path_with_namespace"]), "work")
    assert (anybody.home / "work" / "README.md").read_text() == "hello\n"
    output = anybody.git("push", "origin", "HEAD:other", folder=anybody.home / "work", fails=True)
    assert "could not read Username" in output, output


def test_a_push_starts_a_pipeline(root, project):
    work = pushed(root, project, "ssh")
    sha = root.commit(work, ".gitlab-ci.yml", "test:\n  script: make test\n")
    root.git("push", "-q", folder=work)
    (pipeline,) = api("GET", f"/projects/{project['id']}/pipelines")
    assert (pipeline["sha"], pipeline["ref"], pipeline["status"]) == (sha, "master", "pending")
