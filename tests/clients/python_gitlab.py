"""Tests with python-gitlab, the usual client library for version 3, against the real binary.

The server at GABLE_URL was started for this file alone; see crates/xtask/src/clients.rs.
"""

import base64
import contextlib
import itertools
import os
import struct

import gitlab
import pytest
import requests
from gitlab.v3 import objects

URL = os.environ["GABLE_URL"]
DIALECT = os.environ["GABLE_DIALECT"]
ROOT_TOKEN = os.environ["GABLE_ROOT_TOKEN"]
ROOT_PASSWORD = os.environ["GABLE_ROOT_PASSWORD"]
PASSWORD = "battery-staple"

numbers = itertools.count(1)


@pytest.fixture
def root():
    return sign_in_by_token(ROOT_TOKEN)


@pytest.fixture
def ann(root):
    return new_user(root, "ann")


@pytest.fixture
def owner(root):
    """Returns a client of a user who may create projects."""
    return sign_in(new_user(root, "owner"))


def sign_in_by_token(token):
    client = gitlab.Gitlab(URL, token, api_version="3")
    client.auth()
    return client


def sign_in(user):
    client = gitlab.Gitlab(URL, email=user.email, password=PASSWORD, api_version="3")
    client.auth()
    return client


def new_user(root, name, **more):
    """Creates a user with a unique name."""
    username = f"{name}{next(numbers)}"
    given = {"username": username, "email": f"{username}@example.org", "name": name.title(), "password": PASSWORD}
    return root.users.create({**given, **more})


def new_key():
    """Returns a unique public key."""
    name = b"ssh-ed25519"
    blob = struct.pack(">I", len(name)) + name + struct.pack(">I", 32) + os.urandom(32)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def refused(error, status, message=None):
    """Expects an error of the client library with this status and message."""
    return pytest.raises(error, check=lambda it: it.response_code == status and message in (None, it.error_message))


@contextlib.contextmanager
def client_fault(reason, error, status=None):
    """Expects a known fault of the client: neither passed nor failed, unless the call works."""
    with pytest.raises(error, check=lambda it: status in (None, getattr(it, "response_code", None))):
        yield
    pytest.xfail(reason)


# Signing in


def test_a_sign_in_with_a_password_returns_a_token_that_works(root, ann):
    client = sign_in(ann)
    assert client.user.username == ann.username
    assert len(client.private_token) == 20
    again = sign_in_by_token(client.private_token)
    assert (again.user.id, again.user.email, again.user.is_admin) == (ann.id, ann.email, False)


def test_the_username_signs_in_as_well_as_the_address(ann):
    client = gitlab.Gitlab(URL, email=ann.username, password=PASSWORD, api_version="3")
    client.auth()
    assert client.user.id == ann.id


def test_the_administrator_signs_in_with_the_password_of_the_first_start():
    client = gitlab.Gitlab(URL, email="root", password=ROOT_PASSWORD, api_version="3")
    client.auth()
    assert (client.user.username, client.user.is_admin) == ("root", True)


@pytest.mark.parametrize("login", ["root", "unknown@example.org"])
def test_a_wrong_password_is_an_authentication_error(login):
    with refused(gitlab.GitlabAuthenticationError, 401, "401 Unauthorized"):
        gitlab.Gitlab(URL, email=login, password="wrong-password", api_version="3").auth()


def test_an_unknown_token_is_an_authentication_error():
    with refused(gitlab.GitlabAuthenticationError, 401, "401 Unauthorized"):
        sign_in_by_token("abcdefghijklmnopqrst")


def test_the_version_is_shown_to_users(root):
    version, revision = root.version()
    assert version == "8.14.0"
    assert revision.startswith("gable-")


# Users


def test_the_current_user_has_every_field_of_the_contract(root):
    user = root.user
    assert (user.username, user.name, user.state, user.is_admin) == ("root", "Administrator", "active", True)
    assert (user.web_url, user.theme_id, user.color_scheme_id) == (f"{URL}/root", 2, 1)
    assert (user.identities, user.two_factor_enabled, user.external) == ([], False, False)
    assert (user.can_create_group, user.can_create_project, user.projects_limit) == (True, True, 100_000)
    assert (user.bio, user.location, user.skype, user.linkedin, user.twitter) == (None, None, "", "", "")
    assert user.created_at.endswith("Z") and len(user.created_at) == len("2016-11-22T10:15:30.123Z")
    assert requests.get(user.avatar_url).headers["content-type"].startswith("image/")


def test_a_user_is_created_read_changed_and_removed(root):
    ann = new_user(root, "ann", bio="Builds rockets", website_url="https://example.org", projects_limit=3)
    assert (ann.state, ann.is_admin, ann.bio, ann.projects_limit) == ("active", False, "Builds rockets", 3)
    ann.name, ann.bio, ann.admin = "Ann Other", "", True
    ann.save()
    read = root.users.get(ann.id)
    assert (read.name, read.username, read.is_admin) == ("Ann Other", ann.username, True)
    assert read.website_url == "https://example.org"
    assert not read.bio
    assert ann.delete() is True
    with refused(gitlab.GitlabGetError, 404, "404 User Not Found"):
        root.users.get(ann.id)


def test_a_user_is_removed_by_number(root, ann):
    root.users.delete(ann.id)
    with refused(gitlab.GitlabGetError, 404):
        root.users.get(ann.id)


def test_a_missing_user_cannot_be_removed(root):
    if DIALECT == "gitlab":
        with refused(gitlab.GitlabDeleteError, 404, "404 User Not Found"):
            root.users.delete(999_999)
    else:
        assert root.delete(objects.User, 999_999) is True


def test_users_are_paged_and_the_client_follows_the_links(root):
    created = {new_user(root, "page").id for _ in range(25)}
    assert len(root.users.list()) == 20
    all_ids = [user.id for user in root.users.list(all=True)]
    assert created < set(all_ids)
    assert len(all_ids) == len(set(all_ids)), "no user is listed twice"
    assert all_ids == sorted(all_ids, reverse=True), "newest first"
    assert [user.id for user in root.users.list(all=True, per_page=7)] == all_ids
    assert [user.id for user in root.users.list(page=2, per_page=7)] == all_ids[7:14]
    assert [user.id for user in root.users.list(page=999)] == []


def test_a_search_is_paged_too(root):
    created = [new_user(root, "needle").id for _ in range(5)]
    found = root.users.search("NEEDLE", all=True, per_page=2)
    assert [user.id for user in found] == created[::-1]
    assert root.users.search("there-is-no-such-user") == []


def test_a_user_is_found_by_name(root, ann):
    assert root.users.get_by_username(ann.username).id == ann.id
    with pytest.raises(gitlab.GitlabGetError):
        root.users.get_by_username("there-is-no-such-user")


def test_other_users_see_fewer_fields(root, ann):
    seen = sign_in(new_user(root, "bob")).users.get(ann.id)
    assert (seen.username, seen.name) == (ann.username, ann.name)
    assert not hasattr(seen, "email")


def test_a_blocked_user_cannot_sign_in_until_unblocked(root, ann):
    client = sign_in(ann)
    ann.block()
    assert root.users.get(ann.id).state == "blocked"
    assert ann.id in [user.id for user in root.users.list(blocked=True, all=True)]
    with refused(gitlab.GitlabAuthenticationError, 401):
        client.users.list()
    with refused(gitlab.GitlabAuthenticationError, 401):
        sign_in(ann)
    ann.unblock()
    assert root.users.get(ann.id).state == "active"
    # The session that blocking ended stays invalid.
    with refused(gitlab.GitlabAuthenticationError, 401):
        client.users.list()
    assert sign_in(ann).users.list()


def test_the_last_administrator_cannot_be_blocked_or_removed(root):
    with refused(gitlab.GitlabBlockError, 403):
        root.users.get(root.user.id).block()
    with refused(gitlab.GitlabDeleteError, 403):
        root.users.delete(root.user.id)
    assert root.users.get(root.user.id).state == "active"


# Rejected requests


def test_a_taken_address_or_name_is_a_conflict(root, ann):
    other = {"name": "Other", "password": PASSWORD}
    with refused(gitlab.GitlabCreateError, 409, "Email has already been taken"):
        root.users.create({**other, "email": ann.email, "username": "another"})
    with refused(gitlab.GitlabCreateError, 409, "Username has already been taken"):
        root.users.create({**other, "email": "another@example.org", "username": ann.username})


def test_a_change_to_a_taken_name(root, ann):
    bob = new_user(root, "bob")
    before, bob.username = bob.username, ann.username
    with refused(gitlab.GitlabUpdateError, 409 if DIALECT == "gitlab" else 404, "Username has already been taken"):
        bob.save()
    assert root.users.get(bob.id).username == before


def test_an_invalid_user_is_rejected_with_reasons_by_field(root):
    with pytest.raises(gitlab.GitlabCreateError) as refusal:
        root.users.create({"email": "no address", "username": "a b", "name": "A", "password": "short"})
    assert refusal.value.response_code == 400
    assert refusal.value.error_message["password"] == ["is too short (minimum is 8 characters)"]
    assert refusal.value.error_message["email"] == ["is invalid"]
    assert "username" in refusal.value.error_message


def test_a_missing_parameter_is_named():
    answer = requests.post(f"{URL}/api/v3/users", headers={"PRIVATE-TOKEN": ROOT_TOKEN}, json={"name": "Ann"})
    assert answer.status_code == 400
    assert answer.json() == {"error": "email is missing, password is missing, username is missing"}


def test_others_may_not_administer(root, ann):
    client = sign_in(new_user(root, "bob"))
    with refused(gitlab.GitlabCreateError, 403, "403 Forbidden"):
        new_user(client, "eve")
    with refused(gitlab.GitlabDeleteError, 403, "403 Forbidden"):
        client.users.delete(ann.id)
    with refused(gitlab.GitlabBlockError, 403, "403 Forbidden"):
        client.users.get(ann.id).block()


# Keys and addresses


# The status of a response to invalid keys or addresses of another user.
BAD_DATA_OF_OTHERS = 400 if DIALECT == "gitlab" else 404


def check_keys(keys, refusal_status=400):
    """Adds, lists, reads and removes keys, of the caller or of another user."""
    first = keys.create({"title": "laptop", "key": new_key() + " ann@laptop"})
    second = keys.create({"title": "desk", "key": new_key()})
    assert first.title == "laptop" and first.key.startswith("ssh-ed25519 ")
    assert [key.id for key in keys.list()] == [second.id, first.id]
    assert keys.get(first.id).key == first.key
    with pytest.raises(gitlab.GitlabCreateError) as refusal:
        keys.create({"title": "again", "key": first.key})
    assert refusal.value.response_code == refusal_status
    assert refusal.value.error_message["key"] == ["has already been taken"]
    with refused(gitlab.GitlabCreateError, refusal_status):
        keys.create({"title": "broken", "key": "ssh-ed25519 nonsense"})
    first.delete()
    assert [key.id for key in keys.list()] == [second.id]
    with pytest.raises(gitlab.GitlabGetError):
        keys.get(first.id)


def check_emails(emails, refusal_status=400):
    """Adds, lists and removes addresses, of the caller or of another user."""
    names = [f"further{next(numbers)}@example.org" for _ in range(2)]
    first, second = [emails.create({"email": name}) for name in names]
    assert [first.email, second.email] == names
    assert [email.email for email in emails.list()] == names[::-1]
    with refused(gitlab.GitlabCreateError, refusal_status, {"email": ["has already been taken"]}):
        emails.create({"email": names[0]})
    with refused(gitlab.GitlabCreateError, refusal_status, {"email": ["is invalid"]}):
        emails.create({"email": "no address"})
    first.delete()
    assert [email.email for email in emails.list()] == names[1:]


def test_keys_of_the_caller(ann):
    check_keys(sign_in(ann).user.keys)


def test_keys_of_another_user(root, ann):
    check_keys(root.users.get(ann.id).keys, BAD_DATA_OF_OTHERS)


def test_addresses_of_the_caller(ann):
    client = sign_in(ann)
    check_emails(client.user.emails)
    left = client.user.emails.list()[0]
    assert client.user.emails.get(left.id).email == left.email
    with refused(gitlab.GitlabGetError, 404, "404 Email Not Found"):
        client.user.emails.get(999_999)


def test_addresses_of_another_user(root, ann):
    check_emails(root.users.get(ann.id).emails, BAD_DATA_OF_OTHERS)


def test_keys_of_other_users_cannot_be_read_or_removed(root, ann):
    key = root.users.get(ann.id).keys.create({"title": "laptop", "key": new_key()})
    bob = sign_in(new_user(root, "bob"))
    with refused(gitlab.GitlabGetError, 404, "404 Key Not Found"):
        bob.user.keys.get(key.id)
    bob.user.keys.delete(key.id)
    assert [left.id for left in root.users.get(ann.id).keys.list()] == [key.id]
    with refused(gitlab.GitlabListError, 403, "403 Forbidden"):
        bob.users.get(ann.id).keys.list()


def test_keys_and_addresses_of_a_missing_user(root):
    with refused(gitlab.GitlabListError, 404, "404 User Not Found"):
        root.user_keys.list(user_id=999_999)
    with refused(gitlab.GitlabCreateError, 404, "404 User Not Found"):
        root.user_emails.create({"email": "new@example.org"}, user_id=999_999)


def test_short_lists_are_whole_or_paged(root, ann):
    emails = root.users.get(ann.id).emails
    created = [emails.create({"email": f"many{next(numbers)}@example.org"}).id for _ in range(25)]
    assert len(emails.list()) == (25 if DIALECT == "gitlab" else 20)
    assert [email.id for email in emails.list(all=True)] == created[::-1]
    assert [email.id for email in emails.list(page=3, per_page=10)] == created[:5][::-1]


# Sudo


def test_an_administrator_acts_as_another_user(root, ann):
    for target in (ann.username, ann.id):
        assert objects.CurrentUser(root, None, sudo=target).id == ann.id
    key = root.user.keys.create({"title": "by root", "key": new_key()}, sudo=ann.username)
    assert [kept.id for kept in root.users.get(ann.id).keys.list()] == [key.id]
    assert key.id not in [kept.id for kept in root.user.keys.list()]
    root.user.keys.delete(key.id, sudo=ann.username)
    assert root.users.get(ann.id).keys.list() == []


def test_sudo_gives_no_more_rights_than_the_other_user_has(root, ann):
    with refused(gitlab.GitlabCreateError, 403, "403 Forbidden"):
        new_user(root, "eve", sudo=ann.username)


def test_only_administrators_act_as_another_user(root, ann):
    client = sign_in(ann)
    with refused(gitlab.GitlabListError, 403, "403 Forbidden  - Must be admin to use sudo"):
        client.users.list(sudo="root")
    with refused(gitlab.GitlabListError, 404, "404 No user id or username for: missing-user Not Found"):
        root.users.list(sudo="missing-user")


# Groups, projects and members


def new_group(client, name, **more):
    path = f"{name}{next(numbers)}"
    return client.groups.create({"name": path.title(), "path": path, **more})


def new_project(client, name, **more):
    return client.projects.create({"name": f"{name}{next(numbers)}", **more})


def ids(items):
    return {item.id for item in items}


def test_a_group_is_created_read_changed_and_removed(root):
    group = new_group(root, "acme", description="Rockets", visibility_level=10)
    assert (group.description, group.visibility_level) == ("Rockets", 10)
    group.description = "Larger rockets"
    group.save()
    read = root.groups.get(group.path)
    assert (read.id, read.description, read.shared_projects) == (group.id, "Larger rockets", [])
    assert read.projects.list() == []
    assert group.id in ids(root.groups.search(group.path))
    assert group.delete() is True
    with refused(gitlab.GitlabGetError, 404, "404 Group Not Found"):
        root.groups.get(group.id)


def test_a_project_is_created_read_changed_and_removed(root, ann):
    client = sign_in(ann)
    project = new_project(client, "rocket", description="Flies", wiki_enabled=False)
    assert (project.description, project.wiki_enabled, project.public) == ("Flies", False, False)
    assert project.path_with_namespace == f"{ann.username}/{project.path}"
    assert project.owner.username == ann.username
    project.description = "Flies higher"
    project.save()
    read = client.projects.get(f"{ann.username}/{project.path}")
    assert (read.id, read.description) == (project.id, "Flies higher")
    assert read.permissions["project_access"]["access_level"] == gitlab.MASTER_ACCESS
    assert len(read.runners_token) == 20
    assert project.delete() is True
    with refused(gitlab.GitlabGetError, 404, "404 Project Not Found"):
        client.projects.get(project.id)


def test_every_list_of_projects_shows_its_projects(root, ann):
    client = sign_in(ann)
    own = new_project(client, "own")
    public = new_project(root, "public", visibility_level=20)
    hidden = new_project(root, "hidden")
    assert own.id in ids(client.projects.list()) and public.id not in ids(client.projects.list(all=True))
    assert ids(client.projects.owned()) == {own.id}
    assert client.projects.starred() == []
    assert hidden.id not in ids(client.projects.search(hidden.name))
    assert ids(client.projects.search(public.name)) == {public.id}
    assert {own.id, public.id, hidden.id} <= ids(root.projects.all(all=True))
    with refused(gitlab.GitlabListError, 403):
        client.projects.all()


def test_a_project_is_starred_once_and_unstarred_once(root, ann):
    client = sign_in(ann)
    project = new_project(client, "star")
    assert project.star().star_count == 1
    assert project.star() is project
    assert ids(client.projects.starred()) == {project.id}
    assert project.unstar().star_count == 0
    assert project.unstar() is project


def test_a_project_is_archived_and_unarchived(root):
    project = new_project(root, "old")
    assert project.archive().archived is True
    assert project.unarchive().archived is False


def test_a_project_is_created_for_another_user(root, ann):
    project = root.user_projects.create({"name": "gift"}, user_id=ann.id)
    assert project.path_with_namespace == f"{ann.username}/gift"
    assert sign_in(ann).projects.get(project.id).owner.id == ann.id


def test_a_project_is_shared_and_transferred(root, ann):
    group = new_group(root, "team", visibility_level=0)
    project = new_project(root, "common")
    client = sign_in(ann)
    with refused(gitlab.GitlabGetError, 404):
        client.projects.get(project.id)
    group.members.create({"user_id": ann.id, "access_level": gitlab.DEVELOPER_ACCESS})
    project.share(group.id, gitlab.REPORTER_ACCESS)
    shared = client.projects.get(project.id).shared_with_groups
    assert [(group["group_id"], group["group_access_level"]) for group in shared] == [(group.id, 20)]
    group.transfer_project(project.id)
    moved = client.projects.get(project.id)
    assert moved.path_with_namespace == f"{group.path}/{project.path}"
    assert ids(client.groups.get(group.id).projects.list()) == {project.id}
    assert ids(group.projects.list(order_by="name", sort="asc")) == {project.id}


@pytest.mark.parametrize("kind", ["group", "project"])
def test_members_are_added_changed_and_removed(root, ann, kind):
    place = new_group(root, "place") if kind == "group" else new_project(root, "place")
    member = place.members.create({"user_id": ann.id, "access_level": gitlab.REPORTER_ACCESS})
    assert (member.id, member.username, member.access_level) == (ann.id, ann.username, 20)
    member.access_level = gitlab.MASTER_ACCESS
    member.save()
    assert {member.id: member.access_level for member in place.members.list()}[ann.id] == 40
    member.delete()
    assert ann.id not in ids(place.members.list())


def test_namespaces_are_found(root, ann):
    group = new_group(root, "space")
    found = root.namespaces.list(search=group.path)
    assert [(space.path, space.kind) for space in found] == [(group.path, "group")]
    assert [space.path for space in sign_in(ann).namespaces.list()] == [ann.username]


def test_the_limit_of_projects_is_enforced(root):
    ann = new_user(root, "ann", projects_limit=1)
    client = sign_in(ann)
    new_project(client, "first")
    with refused(gitlab.GitlabCreateError, 403):
        new_project(client, "second")


def test_a_file_is_uploaded_and_fetched(root):
    project = new_project(root, "files")
    headers = {"PRIVATE-TOKEN": ROOT_TOKEN}
    url = f"{URL}/api/v3/projects/{project.id}/uploads"
    sent = requests.post(url, headers=headers, files={"file": ("dk.png", b"\x89PNG", "image/png")})
    assert sent.status_code == 201
    path = sent.json()["url"]
    assert sent.json() == {"alt": "dk", "url": path, "markdown": f"![dk]({path})"}
    fetched = requests.get(project.web_url + path, headers=headers)
    assert (fetched.status_code, fetched.content) == (200, b"\x89PNG")
    assert requests.get(project.web_url + path).status_code == 404


# Repositories


def filled_project(client):
    """Creates a project with two files on its default branch."""
    project = new_project(client, "filled")
    for path, content in [("README.md", "hello\n"), ("src/main.rs", "fn main() {}\n")]:
        given = {"file_path": path, "branch_name": "master", "content": content, "commit_message": f"Add {path}"}
        project.files.create(given)
    return project


def made(create):
    """Creates something with a request that the contract answers with 200; the client expects 201."""
    if DIALECT == "gitlab":
        return create()
    with refused(gitlab.GitlabCreateError, 200):
        create()


def test_a_branch_is_created_protected_listed_and_removed(root):
    project = filled_project(root)
    made(lambda: project.branches.create({"branch_name": "feature/x.y", "ref": "master"}))
    branch = project.branches.get("feature/x.y")
    assert (branch.name, branch.protected, branch.commit["message"]) == ("feature/x.y", False, "Add src/main.rs")
    branch.protect(developers_can_push=True)
    assert project.branches.get("feature/x.y").developers_can_push is True
    branch.unprotect()
    assert [branch.name for branch in project.branches.list()] == ["feature/x.y", "master"]
    branch.delete()
    with refused(gitlab.GitlabGetError, 404, "404 Branch Not Found"):
        project.branches.get("feature/x.y")
    with refused(gitlab.GitlabDeleteError, 405 if DIALECT == "gitlab" else 400, "Cannot remove HEAD branch"):
        project.branches.delete("master")


def test_a_tag_is_created_released_and_removed(root):
    project = filled_project(root)
    tag = project.tags.create({"tag_name": "v1.0", "ref": "master", "message": "First"})
    assert (tag.name, tag.message, tag.release) == ("v1.0", "First", None)
    tag.set_release_description("Great")
    tag.set_release_description("Greater")
    assert project.tags.get("v1.0").release.description == "Greater"
    assert [tag.name for tag in project.tags.list()] == ["v1.0"]
    with refused(gitlab.GitlabCreateError, 400 if DIALECT == "gitlab" else 405, "Tag v1.0 already exists"):
        project.tags.create({"tag_name": "v1.0", "ref": "master"})
    tag.delete()
    assert project.tags.list() == []


def test_a_file_is_read_changed_and_removed(root):
    project = filled_project(root)
    file = project.files.get(file_path="README.md", ref="master")
    assert (file.decode(), file.encoding, file.size) == (b"hello\n", "base64", 6)
    file.content = base64.b64encode(b"other\n").decode()
    file.save(branch_name="master", commit_message="Change it")
    assert project.files.get(file_path="README.md", ref="master").decode() == b"other\n"
    file.delete(branch_name="master", commit_message="Away with it")
    with refused(gitlab.GitlabGetError, 404, "404 File Not Found"):
        project.files.get(file_path="README.md", ref="master")


def test_a_repository_is_read(root):
    project = filled_project(root)
    assert [entry["path"] for entry in project.repository_tree()] == ["src", "README.md"]
    assert project.repository_blob("master", "README.md") == b"hello\n"
    blob = project.repository_tree()[1]["id"]
    assert project.repository_raw_blob(blob) == b"hello\n"
    assert project.repository_archive(sha="master")[:2] == b"\x1f\x8b"
    assert project.repository_contributors()[0]["commits"] == 2
    newest, first = project.commits.list()
    assert (newest.title, first.title) == ("Add src/main.rs", "Add README.md")
    assert project.commits.get("master").stats == {"additions": 1, "deletions": 0, "total": 1}
    assert newest.diff()[0]["new_path"] == "src/main.rs"
    assert first.blob("README.md") == b"hello\n"
    compared = project.repository_compare(first.id, newest.id)
    assert [commit["id"] for commit in compared["commits"]] == [newest.id]
