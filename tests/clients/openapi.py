"""Checks the server against its own OpenAPI document, with requests that schemathesis generates from it.

The server at GABLE_URL was started for this file alone; see crates/xtask/src/clients.rs.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import requests

URL = os.environ["GABLE_URL"]
DOCUMENT = f"{URL}/api/v3/openapi.json"

# Not checked: that invalid data is rejected and valid data is accepted. The API is lenient (`per_page=1.9`, unknown
# names) and has rules that the document cannot express (a name that is already taken).
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
    "missing_required_header",
    "use_after_free",
    "ensure_resource_availability",
]


def main():
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        statuses = pathlib.Path(folder) / "statuses.json"
        held = run_schemathesis(folder, statuses)
        seen = json.loads(statuses.read_text()) if statuses.exists() else {}
    reached, unreached = show(seen)
    alive = requests.get(f"{URL}/api/v3/user", headers={"PRIVATE-TOKEN": os.environ["GABLE_ROOT_TOKEN"]}).ok
    if not alive:
        print("the administrator lost access during the run, so the results after that are not meaningful")
    failed = len(unreached) + (not held) + (not alive)
    print(f"{reached} passed, {failed} failed in {time.monotonic() - start:.0f} s")
    sys.exit(failed > 0)


def run_schemathesis(folder, statuses):
    here = pathlib.Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(here),
        "SCHEMATHESIS_HOOKS": "openapi_hooks",
        "STATUSES": str(statuses),
        "COLUMNS": "120",
    }
    (pathlib.Path(folder) / "schemathesis.toml").write_text(tokens_of_others())
    command = [sys.executable, "-m", "schemathesis.cli", "run", DOCUMENT]
    command += ["--header", f"PRIVATE-TOKEN: {os.environ['GABLE_ROOT_TOKEN']}", "--checks", ",".join(CHECKS)]
    command += ["--max-examples", "10", "--generation-deterministic", "--continue-on-failure", "--workers", "1"]
    command += ["--no-color", "--warnings", "off", "--suppress-health-check", "all"]
    return subprocess.run(command, cwd=folder, env=environment).returncode == 0


def tokens_of_others():
    """Configures schemathesis to use the token of another user where a request can revoke the access of its caller."""
    root = {"PRIVATE-TOKEN": os.environ["GABLE_ROOT_TOKEN"]}
    lines = []
    for number, operation in enumerate(["PUT /user", "DELETE /personal_access_tokens/self"]):
        name = f"caller{number}"
        user = {"username": name, "name": name, "email": f"{name}@example.org", "password": "battery-staple"}
        made = requests.post(f"{URL}/api/v3/users", json=user, headers=root)
        made.raise_for_status()
        tokens = f"{URL}/api/v3/users/{made.json()['id']}/personal_access_tokens"
        token = requests.post(tokens, json={"name": "fuzzing", "scopes": "api"}, headers=root)
        token.raise_for_status()
        lines += [
            "[[operations]]",
            f'include-name = "{operation}"',
            f'headers = {{ "PRIVATE-TOKEN" = "{token.json()["token"]}" }}',
        ]
    return "\n".join(lines) + "\n"


def show(seen):
    """Prints the statuses of every operation; returns how many succeeded at least once, and the names of the others."""
    paths = requests.get(DOCUMENT).json()["paths"]
    # schemathesis reads the document itself and does not test this route.
    paths.pop("/openapi.json")
    reached, unreached = 0, []
    for path, operations in paths.items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            counts = collections.Counter(seen.get(name, {}))
            counts_text = "  ".join(f"{status}×{count}" for status, count in sorted(counts.items()))
            print(f"{name:32} {counts_text}")
            successes = {status for status in operation["responses"] if status.startswith("2")}
            if successes & counts.keys():
                reached += 1
            else:
                unreached.append(name)
    for name in unreached:
        print(f"never succeeded, so its responses are not tested: {name}")
    return reached, unreached


if __name__ == "__main__":
    main()
