-- Hooks: whom to tell what happens, what there is to tell, and how that went. Comments on commits, of which hooks tell too.

CREATE TABLE hooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Hooks of the instance belong to no project.
    project_id INTEGER REFERENCES projects (id) ON DELETE CASCADE,
    -- Sealed: a URL often holds a secret, and the token is one.
    url BLOB NOT NULL,
    token BLOB,
    -- Host and port of the URL: what is asked of one receiver at a time is limited.
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
    -- When the next delivery is due; null while none waits.
    due_at INTEGER,
    -- Until when somebody is at it.
    leased_until INTEGER,
    -- How many attempts in a row have failed, and since when and why it is paused.
    failures INTEGER NOT NULL DEFAULT 0,
    paused_at INTEGER,
    pause_reason TEXT
) STRICT;
CREATE INDEX hooks_project_idx ON hooks (project_id, id);
CREATE INDEX hooks_due_idx ON hooks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX hooks_paused_idx ON hooks (id) WHERE paused_at IS NOT NULL;

-- What there is to tell. It is written with the change itself, and spread to the hooks afterwards.
CREATE TABLE hook_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    occasion INTEGER NOT NULL,
    -- Not a reference: that a project is gone is told, too.
    project_id INTEGER,
    -- How many hooks have led to it, one by the other.
    depth INTEGER NOT NULL DEFAULT 0,
    -- What makes the numbers of its deliveries.
    seed TEXT NOT NULL,
    -- The push that it is part of, until that has happened, and the ref.
    intent_id INTEGER REFERENCES ref_intents (id) ON DELETE CASCADE,
    ref_name TEXT,
    waiting INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE INDEX hook_events_waiting_idx ON hook_events (id) WHERE waiting AND intent_id IS NULL;
CREATE INDEX hook_events_intent_idx ON hook_events (intent_id) WHERE intent_id IS NOT NULL;

-- One for each hook that is told; afterwards the log.
CREATE TABLE hook_deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hook_id INTEGER NOT NULL REFERENCES hooks (id) ON DELETE CASCADE,
    event_id INTEGER NOT NULL REFERENCES hook_events (id) ON DELETE CASCADE,
    -- 0 waiting, 1 delivered, 2 failed.
    state INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Not before this moment.
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    first_tried_at INTEGER,
    finished_at INTEGER,
    -- How the last attempt went.
    tried_at INTEGER,
    duration INTEGER,
    status INTEGER,
    error TEXT,
    -- Sealed, without credentials.
    sent_to BLOB,
    -- Whether the token and a signature went along.
    signed INTEGER,
    response_headers TEXT,
    response_body TEXT
) STRICT;
CREATE INDEX hook_deliveries_hook_idx ON hook_deliveries (hook_id, id);
CREATE INDEX hook_deliveries_waiting_idx ON hook_deliveries (hook_id, id, due_at, attempts) WHERE state = 0;
CREATE INDEX hook_deliveries_event_idx ON hook_deliveries (event_id);
CREATE INDEX hook_deliveries_finished_idx ON hook_deliveries (finished_at) WHERE finished_at IS NOT NULL;

-- Numbered together with notes.
CREATE TABLE commit_notes (
    id INTEGER PRIMARY KEY,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    sha TEXT NOT NULL,
    author_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    body TEXT NOT NULL,
    -- The line that it is about, if it is about one.
    path TEXT,
    line INTEGER,
    line_type TEXT,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX commit_notes_commit_idx ON commit_notes (project_id, sha, id);
CREATE INDEX commit_notes_author_idx ON commit_notes (author_id) WHERE author_id IS NOT NULL;
ALTER TABLE events ADD COLUMN commit_note_id INTEGER REFERENCES commit_notes (id) ON DELETE CASCADE;
CREATE INDEX events_commit_note_idx ON events (commit_note_id) WHERE commit_note_id IS NOT NULL;
