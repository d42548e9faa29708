"""Tests of issues, labels, boards, notes, milestones and hooks with python-gitlab."""

import gitlab

# Fixtures are found by their names.
from python_gitlab import DIALECT, ids, made, new_project, owner, refused, root  # noqa: F401


def test_an_issue_is_created_listed_changed_and_removed(owner):
    project = new_project(owner, "troubled")
    milestone = project.milestones.create({"title": "1.0", "due_date": "2026-12-31"})
    given = {"title": "Cracked tile", "description": "Left", "labels": "bug,heat shield", "milestone_id": milestone.id}
    issue = project.issues.create(given)
    assert (issue.iid, issue.state, issue.labels) == (1, "opened", ["bug", "heat shield"])
    assert (issue.author.username, issue.milestone.title, issue.assignee) == (owner.user.username, "1.0", None)
    project.issues.create({"title": "Other"})
    assert [issue.title for issue in project.issues.list(labels="bug")] == ["Cracked tile"]
    assert [issue.title for issue in project.issues.list(order_by="created_at", sort="asc")] == ["Cracked tile", "Other"]
    assert [issue.title for issue in owner.issues.list(all=True) if issue.project_id == project.id] == ["Other", "Cracked tile"]
    assert [issue.title for issue in milestone.issues()] == ["Cracked tile"]
    issue.title = "Broken tile"
    issue.labels = ["bug"]
    issue.save(state_event="close")
    found = project.issues.get(issue.id)
    assert (found.title, found.state, found.labels) == ("Broken tile", "closed", ["bug"])
    assert project.issues.list(state="closed")[0].id == issue.id
    issue.unsubscribe()
    assert project.issues.get(issue.id).subscribed is False
    elsewhere = new_project(owner, "elsewhere")
    issue.move(elsewhere.id)
    assert [issue.title for issue in elsewhere.issues.list()] == ["Broken tile"]
    with refused(gitlab.GitlabCreateError, 400):
        project.issues.create({"title": "x" * 256})
    found.delete()
    with refused(gitlab.GitlabGetError, 404, "404 Not found"):
        project.issues.get(found.id)


def test_an_issue_is_subscribed_to(owner):
    project = new_project(owner, "troubled")
    issue = project.issues.create({"title": "Cracked tile"})
    issue.unsubscribe()
    issue.subscribe()
    assert project.issues.get(issue.id).subscribed is True


# Labels and boards


def labeled_project(client):
    """Creates a project with three labels."""
    project = new_project(client, "labeled")
    for name in ("bug", "to do/later?", "done"):
        made(lambda: project.labels.create({"name": name, "color": "#D9534F"}))
    return project


def test_a_label_is_created_changed_subscribed_to_and_removed(owner):
    project = labeled_project(owner)
    assert [label.name for label in project.labels.list()] == ["bug", "done", "to do/later?"]
    label = project.labels.get("bug")
    assert (label.color, label.description, label.priority, label.subscribed) == ("#D9534F", None, None, False)
    assert (label.open_issues_count, label.closed_issues_count, label.open_merge_requests_count) == (0, 0, 0)
    label.new_name, label.color, label.description = "defect", "#123456", "Broken"
    label.save()
    label = project.labels.get("defect")
    assert (label.color, label.description) == ("#123456", "Broken")
    label.subscribe()
    assert label.subscribed is True and project.labels.get("defect").subscribed is True
    label.unsubscribe()
    assert label.subscribed is False
    with refused(gitlab.GitlabCreateError, 409, "Label already exists"):
        project.labels.create({"name": "defect", "color": "#fff"})
    with refused(gitlab.GitlabCreateError, 400, {"color": ["must be a valid color code"]}):
        project.labels.create({"name": "new", "color": "red"})
    label.delete()
    assert [label.name for label in project.labels.list()] == ["done", "to do/later?"]
    with refused(gitlab.GitlabDeleteError, 404, "404 Label Not Found"):
        project.labels.delete("defect")


def test_lists_of_a_board_are_created_moved_and_removed(owner):
    project = labeled_project(owner)
    lists = project.boards.list()[0].lists
    assert lists.list() == []
    labels = {label.name: label.id for label in project.labels.list()}
    for name in labels:
        made(lambda: lists.create({"label_id": labels[name]}))

    def shown():
        return [(kept.label.name, kept.position) for kept in lists.list()]

    assert shown() == [("bug", 0), ("done", 1), ("to do/later?", 2)]
    last = lists.list()[-1]
    last.position = 0
    last.save()
    assert shown() == [("to do/later?", 0), ("bug", 1), ("done", 2)]
    with refused(gitlab.GitlabUpdateError, 400, {"error": "List could not be moved!"}):
        last.save()
    with refused(gitlab.GitlabCreateError, 400, {"error": "Label not found!"}):
        lists.create({"label_id": 999_999})
    with refused(gitlab.GitlabCreateError, 400, {"label_id": ["has already been taken"]}):
        lists.create({"label_id": labels["bug"]})
    lists.get(last.id).delete()
    assert shown() == [("bug", 0), ("done", 1)]
    assert [kept.position for kept in project.boards.list()[0].lists.list()] == [0, 1]


# Notes and milestones


def test_a_note_is_created_and_changed(owner):
    project = new_project(owner, "noted")
    issue = project.issues.create({"title": "It leaks"})
    note = issue.notes.create({"body": "It *still* does", "created_at": "2016-03-11T03:45:40Z"})
    assert (note.body, note.system, note.author.username) == ("It *still* does", False, owner.user.username)
    assert note.created_at == "2016-03-11T03:45:40.000Z"
    note.body = "Not any more"
    note.save()
    assert issue.notes.get(note.id).body == "Not any more"
    assert [(kept.id, kept.noteable_id) for kept in issue.notes.list()] == [(note.id, issue.id)]
    with refused(gitlab.GitlabCreateError, 400, {"note": ["can't be blank"]}):
        issue.notes.create({"body": " "})
    with refused(gitlab.GitlabGetError, 404, "404 Not found"):
        issue.notes.get(999_999)


def test_a_milestone_is_created_given_issues_and_closed(owner):
    project = new_project(owner, "planned")
    milestone = project.milestones.create({"title": "1.0", "due_date": "2026-03-01"})
    assert (milestone.iid, milestone.state, milestone.start_date) == (1, "active", None)
    project.issues.create({"title": "It leaks", "milestone_id": milestone.id})
    assert [issue.title for issue in milestone.issues()] == ["It leaks"]
    milestone.state_event, milestone.description = "close", "Done"
    milestone.save()
    milestone = project.milestones.get(milestone.id)
    assert (milestone.state, milestone.description, milestone.due_date) == ("closed", "Done", "2026-03-01")
    project.milestones.create({"title": "2.0"})
    assert [kept.title for kept in project.milestones.list()] == ["1.0", "2.0"]
    assert [kept.title for kept in project.milestones.list(state="active")] == ["2.0"]
    assert [kept.title for kept in project.milestones.list(iid=1)] == ["1.0"]
    with refused(gitlab.GitlabCreateError, 400, {"title": ["has already been taken"]}):
        project.milestones.create({"title": "2.0"})


# Hooks


def test_a_hook_of_a_project_is_created_changed_and_removed(owner):
    project = new_project(owner, "hooked")
    url = "https://example.org/hook?key=1"
    hook = project.hooks.create({"url": url, "token": "s3cret", "issues_events": True})
    assert (hook.url, hook.project_id, hook.push_events, hook.issues_events) == (url, project.id, True, True)
    assert (hook.enable_ssl_verification, hook.wiki_page_events) == (True, False)
    hook.push_events, hook.note_events = False, True
    hook.save()
    hook = project.hooks.get(hook.id)
    assert (hook.url, hook.push_events, hook.issues_events, hook.note_events) == (url, False, True, True)
    assert not hasattr(hook, "token")
    assert ids(project.hooks.list()) == {hook.id}
    with refused(gitlab.GitlabCreateError, 422):
        project.hooks.create({"url": "ftp://example.org"})
    with refused(gitlab.GitlabGetError, 404, "404 Not found"):
        project.hooks.get(999_999)
    hook.delete()
    assert project.hooks.list() == []
    if DIALECT == "spec":
        hook.delete()
    else:
        with refused(gitlab.GitlabDeleteError, 404, f"404 Error deleting hook {hook.id} Not Found"):
            hook.delete()


def test_credentials_of_a_hook_are_kept_by_a_change_with_the_masked_url(owner):
    project = new_project(owner, "hooked")
    hook = project.hooks.create({"url": "https://user:hunter2@example.org/hook"})
    assert hook.url == "https://*****:*****@example.org/hook"
    hook.tag_push_events = True
    hook.save()
    assert (hook.url, hook.tag_push_events) == ("https://*****:*****@example.org/hook", True)


def test_a_system_hook_is_created_tested_and_removed(root, owner):
    url = "http://127.0.0.1:9/hook"
    hook = root.hooks.create({"url": url})
    if DIALECT == "spec":
        # The contract returns it in an array, which this client cannot read.
        hook = root.hooks.list()[0]
    assert (hook.url, hasattr(hook, "token")) == ("http://127.0.0.1:9/hook", False)
    assert hook.id in ids(root.hooks.list())
    # The receiver does not respond, which the response does not show.
    sample = root.hooks.get(hook.id)
    assert (sample.event_name, sample.name, sample.path) == ("project_create", "Ruby", "ruby")
    with refused(gitlab.GitlabCreateError, 400, {"url": ["must be a valid URL"]}):
        root.hooks.create({"url": "http://169.254.169.254/"})
    with refused(gitlab.GitlabListError, 403, "403 Forbidden"):
        owner.hooks.list()
    hook.delete()
    assert hook.id not in ids(root.hooks.list())
    with refused(gitlab.GitlabDeleteError, 404, "404 System hook Not Found"):
        hook.delete()
