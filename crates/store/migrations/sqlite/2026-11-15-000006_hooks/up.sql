-- Webhooks, webhook events and their deliveries; comments on commits.

CREATE TABLE hooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Null for a system hook.
    project_id INTEGER REFERENCES projects (id) ON DELETE CASCADE,
    -- The URL and the token, encrypted: a URL often contains a secret.
    url BLOB NOT NULL,
    token BLOB,
    -- Host and port of the URL, because the number of concurrent requests to one receiver is limited.
    receiver TEXT NOT NULL,
    enable_ssl_verification INTEGER NOT NULL,
    push_events INTEGER NOT NULL,
    tag_push_events INTEGER NOT NULL,
    issues_events INTEGER NOT NULL DEFAULT 0,
    confidential_issues_events INTEGER NOT NULL DEFAULT 0,
    merge_requests_events INTEGER NOT NULL DEFAULT 0,
    note_events INTEGER NOT NULL DEFAULT 0,
    build_events INTEGER NOT NULL DEFAULT 0,
    pipeline_events INTEGER NOT NULL DEFAULT 0,
    wiki_page_events INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- When the queue of the hook is next due; null if no delivery is pending.
    due_at INTEGER,
    -- When the lease of a dispatcher on the queue ends.
    leased_until INTEGER,
    -- The number of consecutive failed attempts; when and why the hook was paused.
    failures INTEGER NOT NULL DEFAULT 0,
    paused_at INTEGER,
    pause_reason TEXT
) STRICT;
CREATE INDEX hooks_project_idx ON hooks (project_id, id);
CREATE INDEX hooks_due_idx ON hooks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX hooks_paused_idx ON hooks (id) WHERE paused_at IS NOT NULL;

-- A webhook event. It is inserted in the transaction of the change and fanned out to the hooks afterwards: each hook
-- that subscribes to it gets a delivery.
CREATE TABLE hook_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The kind of event.
    occasion INTEGER NOT NULL,
    -- Not a foreign key: the removal of a project is an event as well.
    project_id INTEGER,
    -- The recursion depth: the number of webhooks in the chain of requests that caused the event.
    depth INTEGER NOT NULL DEFAULT 0,
    -- The seed of the UUIDs of its deliveries.
    seed TEXT NOT NULL,
    -- The push that the event belongs to, until it is complete, and the ref.
    intent_id INTEGER REFERENCES ref_intents (id) ON DELETE CASCADE,
    ref_name TEXT,
    -- Whether the event still has to be fanned out.
    waiting INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE INDEX hook_events_waiting_idx ON hook_events (id) WHERE waiting AND intent_id IS NULL;
CREATE INDEX hook_events_intent_idx ON hook_events (intent_id) WHERE intent_id IS NOT NULL;

-- The delivery of an event to a hook: an entry of the per-hook queue while pending, of the delivery log afterwards.
CREATE TABLE hook_deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hook_id INTEGER NOT NULL REFERENCES hooks (id) ON DELETE CASCADE,
    event_id INTEGER NOT NULL REFERENCES hook_events (id) ON DELETE CASCADE,
    -- 0 pending, 1 delivered, 2 failed.
    state INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- The earliest time of the next attempt.
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    first_tried_at INTEGER,
    finished_at INTEGER,
    -- The result of the last attempt.
    tried_at INTEGER,
    duration INTEGER,
    status INTEGER,
    error TEXT,
    -- The URL without credentials, encrypted.
    sent_to BLOB,
    -- Whether the request carried the token and a signature.
    signed INTEGER,
    response_headers TEXT,
    response_body TEXT
) STRICT;
CREATE INDEX hook_deliveries_hook_idx ON hook_deliveries (hook_id, id);
CREATE INDEX hook_deliveries_waiting_idx ON hook_deliveries (hook_id, id, due_at, attempts) WHERE state = 0;
CREATE INDEX hook_deliveries_event_idx ON hook_deliveries (event_id);
CREATE INDEX hook_deliveries_finished_idx ON hook_deliveries (finished_at) WHERE finished_at IS NOT NULL;

-- A comment on a commit. Its id is from the sequence of `notes`: webhook receivers rely on unique ids.
CREATE TABLE commit_notes (
    id INTEGER PRIMARY KEY,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    sha TEXT NOT NULL,
    author_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    body TEXT NOT NULL,
    -- The line that the comment refers to, if any.
    path TEXT,
    line INTEGER,
    line_type TEXT,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX commit_notes_commit_idx ON commit_notes (project_id, sha, id);
CREATE INDEX commit_notes_author_idx ON commit_notes (author_id) WHERE author_id IS NOT NULL;
ALTER TABLE events ADD COLUMN commit_note_id INTEGER REFERENCES commit_notes (id) ON DELETE CASCADE;
CREATE INDEX events_commit_note_idx ON events (commit_note_id) WHERE commit_note_id IS NOT NULL;
