#!/usr/bin/env python3
"""Receives hooks: checks that they come from the forge, takes each once, and answers before it works.

    GABLE_HOOK_TOKEN=<a secret> python examples/hooks/receiver.py [PORT]

Then tell a project about it (the server needs `--allow-local-network` to reach this machine):

    curl --header "PRIVATE-TOKEN: $GABLE_TOKEN" --data url=http://127.0.0.1:9000/ --data token=<the secret> \\
         --data issues_events=true http://127.0.0.1:8080/api/v3/projects/<id>/hooks
"""

import collections
import hmac
import json
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = os.environ.get("GABLE_HOOK_TOKEN") or sys.exit("set GABLE_HOOK_TOKEN to the secret of the hook")
LARGEST = 25 << 20

# Messages come at least once; one that was answered too late comes again, under the same number.
seen = collections.OrderedDict()
work = queue.Queue()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST:
            return self.answer(413)
        body = self.rfile.read(length)
        shown = self.headers.get("X-Gitlab-Token", "")
        if not hmac.compare_digest(shown.encode(), TOKEN.encode()):
            return self.answer(401)
        try:
            payload = json.loads(body)
        except ValueError:
            return self.answer(400)
        number = self.headers.get("X-Gitlab-Event-UUID")
        if number not in seen:
            seen[number] = True
            if len(seen) > 10_000:
                seen.popitem(last=False)
            work.put((self.headers.get("X-Gitlab-Event", "?"), payload))
        # A receiver that works before it answers is one that the server gives up on.
        self.answer(200)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def describe(event, payload):
    """One line for each kind of message."""
    kind = payload.get("object_kind") or payload.get("event_name")
    if kind in ("push", "tag_push"):
        return f"{payload['user_name']} pushed {payload['total_commits_count']} commits to {payload['ref']}"
    if kind == "issue":
        issue = payload["object_attributes"]
        return f"issue #{issue['iid']} {issue.get('action', 'changed')}: {issue['title']}"
    if kind == "note":
        return f"a comment: {payload['object_attributes']['note']}"
    if kind == "build":
        return f"build {payload['build_name']} is {payload['build_status']}"
    if kind == "pipeline":
        return f"pipeline {payload['object_attributes']['id']} is {payload['object_attributes']['status']}"
    return f"{event}: {kind}"


def do_the_work():
    while True:
        print(describe(*work.get()), flush=True)


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    threading.Thread(target=do_the_work, daemon=True).start()
    print(f"listening on http://127.0.0.1:{port}/", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()


if __name__ == "__main__":
    main()
