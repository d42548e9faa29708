"""Tests of deploy keys, forks, commits, events, uploads and shares with python-gitlab."""

import gitlab
import pytest
import requests

# Fixtures are found by their names.
from python_gitlab import (  # noqa: F401
    ann,
    filled_project,
    ids,
    new_group,
    new_key,
    new_project,
    owner,
    refused,
    root,
    sign_in,
)


def test_a_deploy_key_is_added_enabled_elsewhere_and_removed(owner):
    project, other = new_project(owner, "deployed"), new_project(owner, "deployed")
    key = project.keys.create({"title": "server", "key": new_key()})
    assert (key.title, project.keys.get(key.id).key) == ("server", key.key)
    other.keys.enable(key.id)
    assert ids(other.keys.list()) == {key.id}
    other.keys.disable(key.id)
    assert other.keys.list() == []
    with refused(gitlab.GitlabCreateError, 400):
        project.keys.create({"title": "again", "key": "ssh-ed25519 nonsense"})
    key.delete()
    assert project.keys.list() == []


def test_a_fork_relation_is_created_and_removed(root, owner):
    source = filled_project(owner)
    group = new_group(owner, "forks")
    fork = source.forks.create({"namespace": group.path})
    assert fork.forked_from_project["id"] == source.id
    copy = owner.projects.get(fork.id)
    assert copy.repository_blob("master", "README.md") == b"hello\n"
    copy.delete_fork_relation()
    assert not hasattr(owner.projects.get(fork.id), "forked_from_project")
    root.projects.get(fork.id).create_fork_relation(source.id)
    assert owner.projects.get(fork.id).forked_from_project["id"] == source.id


def test_comments_on_a_commit_are_created_and_listed(owner):
    commit = filled_project(owner).commits.get("master")
    commit.comments.create({"note": "Nice", "path": "src/main.rs", "line": 1, "line_type": "new"})
    (comment,) = commit.comments.list()
    assert (comment.note, comment.path, comment.line, comment.line_type) == ("Nice", "src/main.rs", 1, "new")
    assert comment.author["username"] == owner.user.username


def test_the_status_of_a_commit_is_set_and_listed(owner):
    commit = filled_project(owner).commits.get("master")
    created = commit.statuses.create({"state": "success", "name": "outside", "target_url": "https://example.org/1"})
    assert (created.status, created.name, created.target_url) == ("success", "outside", "https://example.org/1")
    assert [(status.name, status.status) for status in commit.statuses.list()] == [("outside", "success")]


def test_several_changes_make_one_commit(owner):
    project = filled_project(owner)
    actions = [
        {"action": "create", "file_path": "docs/notes.txt", "content": "one"},
        {"action": "move", "file_path": "HELLO.md", "previous_path": "README.md", "content": "hello\n"},
        {"action": "delete", "file_path": "src/main.rs"},
    ]
    commit = project.commits.create({"branch_name": "master", "commit_message": "Rearrange", "actions": actions})
    assert commit.title == "Rearrange"
    assert [entry["path"] for entry in project.repository_tree()] == ["docs", "HELLO.md"]


def test_a_commit_is_not_cherry_picked(owner):
    # The contract has no such route, and neither has Gable.
    commit = filled_project(owner).commits.get("master")
    with refused(gitlab.GitlabOperationError, 404):
        commit.cherry_pick("master")


def test_events_of_a_project_are_listed(owner):
    project = filled_project(owner)
    project.issues.create({"title": "It leaks"})
    events = project.events.list()
    assert [event.action_name for event in events] == ["opened", "pushed to", "pushed new", "created"]
    assert (events[0].target_title, events[0].author_username) == ("It leaks", owner.user.username)
    assert events[1].data["commits"][0]["message"] == "Add src/main.rs"


def test_a_file_is_uploaded_by_the_library(owner):
    project = new_project(owner, "files")
    sent = project.upload("notes.txt", filedata=b"one")
    assert (sent["alt"], sent["markdown"]) == ("notes.txt", f"[notes.txt]({sent['url']})")
    fetched = requests.get(project.web_url + sent["url"], headers={"PRIVATE-TOKEN": owner.private_token})
    assert (fetched.status_code, fetched.content) == (200, b"one")


def test_issues_of_a_group_are_listed(owner):
    group = new_group(owner, "acme")
    project = new_project(owner, "house", namespace_id=group.id)
    project.issues.create({"title": "It leaks", "labels": "roof"})
    assert [issue.title for issue in group.issues.list()] == ["It leaks"]
    assert [issue.title for issue in group.issues.list(labels="roof")] == ["It leaks"]
    assert group.issues.list(state="closed") == []


def test_a_share_is_removed(owner, ann):
    project, group = new_project(owner, "common"), new_group(owner, "team")
    group.members.create({"user_id": ann.id, "access_level": gitlab.DEVELOPER_ACCESS})
    project.share(group.id, gitlab.REPORTER_ACCESS)
    client = sign_in(ann)
    assert client.projects.get(project.id).id == project.id
    project.unshare(group.id)
    with refused(gitlab.GitlabGetError, 404):
        client.projects.get(project.id)


def test_a_note_is_removed(owner):
    issue = new_project(owner, "noted").issues.create({"title": "It leaks"})
    note = issue.notes.create({"body": "It *still* does"})
    # Version 3 has the route, but the client has no method for it.
    with pytest.raises(NotImplementedError):
        note.delete()


def test_the_release_of_a_tag_is_changed(owner):
    project = filled_project(owner)
    tag = project.tags.create({"tag_name": "v2.0", "ref": "master"})
    tag.set_release_description("Great")
    assert project.tags.get("v2.0").release.description == "Great"
    tag.set_release_description("Greater")
    assert project.tags.get("v2.0").release.description == "Greater"


@pytest.mark.parametrize("missing", ["broadcastmessages", "snippets", "todos", "licenses", "deploykeys", "gitignores"])
def test_missing_resources_of_the_instance_are_not_found(root, missing):
    with refused(gitlab.GitlabListError, 404):
        getattr(root, missing).list()
