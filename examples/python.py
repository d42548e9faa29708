#!/usr/bin/env python3
"""Creates a project, a file and an issue with python-gitlab, and waits for a pipeline:

    pip install python-gitlab==1.4.0     # the last version that supports API v3
    gable serve --dialect gitlab --runner 1
    GABLE_TOKEN=<the token> python examples/python.py
"""

import os
import sys
import time

import gitlab

URL = os.environ.get("GABLE_URL", "http://127.0.0.1:8080")
TOKEN = os.environ.get("GABLE_TOKEN") or sys.exit("set GABLE_TOKEN to a token, such as the one that the first start prints")

CI_FILE = """
test:
  script:
    - echo "hello from $CI_PROJECT_NAME"
    - date > when.txt
  artifacts:
    paths: [when.txt]
"""


def main():
    forge = gitlab.Gitlab(URL, TOKEN, api_version="3")
    forge.auth()
    print(f"signed in as {forge.user.username}")

    project = forge.projects.create({"name": f"hello-python-{os.getpid()}", "description": "Made by Python"})
    try:
        use(project)
    finally:
        project.delete()
        print("deleted the project")


def use(project):
    project.files.create({
        "file_path": ".gitlab-ci.yml",
        "branch_name": "master",
        "content": CI_FILE,
        "commit_message": "Say hello",
    })
    print("files:", *[entry["path"] for entry in project.repository_tree()])

    milestone = project.milestones.create({"title": "1.0"})
    issue = project.issues.create({"title": "Say goodbye, too", "labels": "idea", "milestone_id": milestone.id})
    issue.notes.create({"body": "Politely."})
    issue.save(state_event="close")
    print(f"issue #{issue.iid} is {project.issues.get(issue.id).state}")

    pipeline = wait_for(project, project.pipelines.list()[0].id)
    print(f"pipeline {pipeline.id}: {pipeline.status}")
    (build,) = project.builds.list()
    print(build.trace().decode())
    if pipeline.status != "success":
        sys.exit("the pipeline did not succeed")
    print(f"artifacts: {len(build.artifacts())} bytes")


def wait_for(project, pipeline_id):
    """Waits until a runner has finished the pipeline, for at most a minute."""
    for _ in range(60):
        pipeline = project.pipelines.get(pipeline_id)
        if pipeline.status in ("success", "failed", "canceled"):
            return pipeline
        time.sleep(1)
    sys.exit(f"pipeline {pipeline_id} is still {pipeline.status}; is a runner registered?")


if __name__ == "__main__":
    main()
