#!/usr/bin/env python3
"""From a token to a finished pipeline, with python-gitlab:

    pip install python-gitlab==1.4.0     # the last one that speaks version 3
    gable serve --runner 1
    GABLE_TOKEN=<the token> python examples/python.py
"""

import os
import sys
import time

import gitlab

URL = os.environ.get("GABLE_URL", "http://127.0.0.1:8080")
TOKEN = os.environ.get("GABLE_TOKEN") or sys.exit("set GABLE_TOKEN to a token, such as the one that the first start has printed")

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
    print(f"I am {forge.user.username}.")

    project = forge.projects.create({"name": f"hello-python-{os.getpid()}", "description": "Made by Python"})
    try:
        use(project)
    finally:
        project.delete()
        print("The project is gone again.")


def use(project):
    project.files.create({
        "file_path": ".gitlab-ci.yml",
        "branch_name": "master",
        "content": CI_FILE,
        "commit_message": "Say hello",
    })
    print("Its files:", *[entry["path"] for entry in project.repository_tree()])

    milestone = project.milestones.create({"title": "1.0"})
    issue = project.issues.create({"title": "Say goodbye, too", "labels": "idea", "milestone_id": milestone.id})
    issue.notes.create({"body": "Politely."})
    issue.save(state_event="close")
    print(f"Issue #{issue.iid} is {project.issues.get(issue.id).state}.")

    pipeline = wait_for(project, project.pipelines.list()[0].id)
    print(f"Pipeline {pipeline.id}: {pipeline.status}.")
    (build,) = project.builds.list()
    print(build.trace().decode())
    if pipeline.status != "success":
        sys.exit("the pipeline did not succeed")
    print(f"It left {len(build.artifacts())} bytes behind.")


def wait_for(project, pipeline_id):
    """Waits until a runner has finished the pipeline, for a minute at most."""
    for _ in range(60):
        pipeline = project.pipelines.get(pipeline_id)
        if pipeline.status in ("success", "failed", "canceled"):
            return pipeline
        time.sleep(1)
    sys.exit(f"pipeline {pipeline_id} still is {pipeline.status}; is there a runner?")


if __name__ == "__main__":
    main()
