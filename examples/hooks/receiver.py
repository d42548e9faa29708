#!/usr/bin/env python3
"""Receives webhooks: checks the token, ignores duplicates, and responds before it processes a payload.

    GABLE_HOOK_TOKEN=<a secret> python3 examples/hooks/receiver.py [PORT]

Then add it to a project (the server needs `--allow-local-network` to reach this machine):

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

TOKEN = os.environ.get("GABLE_HOOK_TOKEN") or sys.exit("set GABLE_HOOK_TOKEN to the token of the webhook")
MAX_BODY_SIZE = 25 << 20

# Deliveries arrive at least once: one whose response came too late is sent again, with the same id.
seen = collections.OrderedDict()
payloads = queue.Queue()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_SIZE:
            return self.respond(413)
        body = self.rfile.read(length)
        token = self.headers.get("X-Gitlab-Token", "")
        if not hmac.compare_digest(token.encode(), TOKEN.encode()):
            return self.respond(401)
        try:
            payload = json.loads(body)
        except ValueError:
            return self.respond(400)
        delivery_id = self.headers.get("X-Gitlab-Event-UUID")
        if delivery_id not in seen:
            seen[delivery_id] = True
            if len(seen) > 10_000:
                seen.popitem(last=False)
            payloads.put((self.headers.get("X-Gitlab-Event", "?"), payload))
        # The server retries a delivery that is not answered within 10 seconds.
        self.respond(200)

    def respond(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def describe(event, payload):
    """Returns one line of text for each kind of event."""
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


def process_payloads():
    while True:
        print(describe(*payloads.get()), flush=True)


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    threading.Thread(target=process_payloads, daemon=True).start()
    print(f"listening on http://127.0.0.1:{port}/", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()


if __name__ == "__main__":
    main()
