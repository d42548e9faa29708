"""Tests of CI with python-gitlab: pipelines, builds, triggers, variables, runners.

What a runner does is done by hand here, so that every step happens when the story wants it.
"""

import io
import zipfile

import gitlab
import pytest
import requests

# Fixtures are found by their names.
from python_gitlab import DIALECT, URL, client_fault, ids, new_project, owner, refused, root  # noqa: F401

CI_FILE = """
stages: [test, deploy]

test:
  stage: test
  script: make test
  artifacts:
    paths: [out/]
    expire_in: 1 day

deploy:
  stage: deploy
  when: manual
  script: make deploy
"""


class Runner:
    """A runner of one project, controlled by the test."""

    def __init__(self, project):
        answer = self.post("runners", token=project.runners_token, description="by hand")
        self.id, self.token = answer["id"], answer["token"]

    def post(self, path, **body):
        answer = requests.post(f"{URL}/api/v4/{path}", json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def take(self):
        """Takes the next job."""
        return self.post("jobs/request", token=self.token)

    def finish(self, job, trace, files=None, state="success"):
        """Sends a trace and artifacts, and ends the job."""
        place, token = f"{URL}/api/v4/jobs/{job['id']}", {"JOB-TOKEN": job["token"]}
        appended = requests.patch(f"{place}/trace", data=trace, headers={**token, "Content-Range": f"0-{len(trace) - 1}"})
        assert appended.status_code == 202, appended.text
        if files:
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                for name, content in files.items():
                    archive.writestr(name, content)
            sent = requests.post(f"{place}/artifacts", headers=token, files={"file": ("artifacts.zip", packed.getvalue())})
            assert sent.status_code == 201, sent.text
        ended = requests.put(place, json={"token": job["token"], "state": state})
        assert ended.status_code == 200, ended.text


def built_project(client):
    """Creates a project with a CI file and a pending pipeline."""
    project = new_project(client, "built")
    given = {"file_path": ".gitlab-ci.yml", "branch_name": "master", "content": CI_FILE, "commit_message": "Build"}
    project.files.create(given)
    return client.projects.get(project.id)


def builds_of(project):
    """Returns the latest build of each name."""
    return {build.name: build for build in reversed(project.builds.list())}


def test_a_pipeline_is_started_listed_canceled_and_retried(owner):
    project = built_project(owner)
    assert [(kept.ref, kept.status) for kept in project.pipelines.list()] == [("master", "pending")]
    pipeline = project.pipelines.create({"ref": "master"})
    assert (pipeline.ref, pipeline.status, pipeline.tag) == ("master", "pending", False)
    assert pipeline.sha == project.commits.get("master").id
    assert project.pipelines.get(pipeline.id).user["username"] == owner.user.username
    assert len(project.pipelines.list()) == 2
    with refused(gitlab.GitlabCreateError, 400):
        project.pipelines.create({"ref": "no-such-branch"})
    with refused(gitlab.GitlabGetError, 404):
        project.pipelines.get(999_999)


def test_a_pipeline_is_canceled(owner):
    project = built_project(owner)
    pipeline = project.pipelines.list()[0]
    pipeline.cancel()
    assert (pipeline.status, project.pipelines.get(pipeline.id).status) == ("canceled", "canceled")


def test_a_pipeline_is_retried(owner):
    project = built_project(owner)
    builds_of(project)["test"].cancel()
    pipeline = project.pipelines.list()[0]
    assert pipeline.status == "canceled"
    pipeline.retry()
    # In GitLab 8.14 a pipeline that has run is never pending again.
    assert pipeline.status == ("running" if DIALECT == "gitlab" else "pending")


def test_a_build_is_canceled_and_retried(owner):
    project = built_project(owner)
    build = builds_of(project)["test"]
    assert (build.status, build.stage, build.ref, build.tag) == ("pending", "test", "master", False)
    assert (build.user.username, build.commit.title, build.runner) == (owner.user.username, "Build", None)
    build.cancel()
    assert project.builds.get(build.id).status == "canceled"
    build.retry()
    again = builds_of(project)["test"]
    assert (again.id > build.id, again.status) == (True, "pending")
    again.cancel()
    # There is nothing to erase yet.
    with refused(gitlab.GitlabBuildEraseError, 403):
        again.erase()
    assert ids(project.commits.get("master").builds()) == ids(project.builds.list(all=True))
    assert again.id in ids(project.builds.list(scope="canceled"))
    with refused(gitlab.GitlabGetError, 404):
        project.builds.get(999_999)


def test_traces_and_artifacts_are_fetched_and_erased(owner):
    project = built_project(owner)
    runner = Runner(project)
    job = runner.take()
    assert project.builds.get(job["id"]).status == "running"
    runner.finish(job, b"all is well\n", {"out/thing": "made of bricks"})
    build = project.builds.get(job["id"])
    assert (build.status, build.runner.description) == ("success", "by hand")
    assert build.trace() == b"all is well\n"
    with zipfile.ZipFile(io.BytesIO(build.artifacts())) as archive:
        assert archive.read("out/thing") == b"made of bricks"
    pieces = []
    build.artifacts(streamed=True, action=pieces.append)
    assert b"".join(pieces) == build.artifacts()
    assert build.artifacts_expire_at is not None
    build.keep_artifacts()
    assert project.builds.get(build.id).artifacts_expire_at is None
    assert project.commits.get("master").status == "success"
    build.erase()
    build = project.builds.get(build.id)
    assert (build.erased_at is not None, build.trace()) == (True, b"")
    with refused(gitlab.GitlabGetError, 404):
        build.artifacts()


def test_a_manual_build_is_started(owner):
    project = built_project(owner)
    runner = Runner(project)
    runner.finish(runner.take(), b"tested\n")
    deploy = builds_of(project)["deploy"]
    # Version 3 has no status for manual builds.
    assert deploy.status == "skipped"
    deploy.play()
    assert project.builds.get(deploy.id).status == "pending"


def test_a_variable_is_created_changed_and_removed(owner):
    project = new_project(owner, "variable")
    variable = project.variables.create({"key": "DEPLOY", "value": "yes"})
    assert (variable.key, variable.value) == ("DEPLOY", "yes")
    variable.value = "no"
    variable.save()
    assert project.variables.get("DEPLOY").value == "no"
    assert [kept.key for kept in project.variables.list()] == ["DEPLOY"]
    with refused(gitlab.GitlabCreateError, 400):
        project.variables.create({"key": "not a name", "value": "x"})
    variable.delete()
    assert project.variables.list() == []


def test_a_trigger_is_created_run_and_removed(owner):
    project = built_project(owner)
    trigger = project.triggers.create({})
    assert (project.triggers.get(trigger.token).token, trigger.last_used) == (trigger.token, None)
    project.trigger_build("master", trigger.token, {"DEPLOY": "yes"})
    assert len(project.pipelines.list()) == 2
    assert project.triggers.list()[0].last_used is not None
    with refused(gitlab.GitlabCreateError, 404):
        project.trigger_build("master", "there-is-no-such-token")
    trigger.delete()
    assert project.triggers.list() == []


def test_runners_are_listed_changed_shared_and_removed(root, owner):
    project, other = new_project(owner, "built"), new_project(owner, "other")
    made = Runner(owner.projects.get(project.id))
    runner = owner.runners.get(made.id)
    assert (runner.description, runner.active, runner.is_shared) == ("by hand", True, False)
    runner.description, runner.active, runner.tag_list = "renamed", False, ["linux", "large"]
    runner.save()
    runner = owner.runners.get(made.id)
    assert (runner.description, runner.active, sorted(runner.tag_list)) == ("renamed", False, ["large", "linux"])
    assert ids(owner.runners.list()) == {made.id}
    assert ids(owner.runners.list(scope="paused")) == {made.id}
    assert made.id in ids(root.runners.all()) and made.id in ids(root.runners.all(scope="specific"))
    with refused(gitlab.GitlabListError, 403):
        owner.runners.all()
    other.runners.create({"runner_id": made.id})
    assert ids(other.runners.list()) == {made.id}
    other.runners.delete(made.id)
    assert other.runners.list() == []
    runner.delete()
    assert owner.runners.list() == []
    with refused(gitlab.GitlabGetError, 404):
        owner.runners.get(made.id)


def test_one_runner_of_a_project(owner):
    project = new_project(owner, "built")
    runner = Runner(owner.projects.get(project.id))
    with client_fault("it asks for one, which version 3 has not", gitlab.GitlabGetError, 405):
        project.runners.get(runner.id)


@pytest.mark.parametrize("missing", ["environments", "deployments", "mergerequests", "snippets", "accessrequests", "notes"])
def test_missing_resources_of_a_project_are_not_found(owner, missing):
    project = new_project(owner, "plain")
    with refused(gitlab.GitlabListError, 404):
        getattr(project, missing).list()
