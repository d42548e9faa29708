-- Data about repositories: protected branches, releases, pushes and their events, forks, deploy keys, commit statuses
-- and imports. Object ids are 40 hexadecimal digits.

-- The branch that HEAD points to; null until it exists.
ALTER TABLE projects ADD COLUMN default_branch TEXT;

CREATE TABLE protected_branches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    -- The name of a branch, or a pattern in which `*` matches any sequence of characters.
    name TEXT NOT NULL,
    push_level INTEGER NOT NULL CHECK (push_level IN (0, 30, 40)),
    merge_level INTEGER NOT NULL CHECK (merge_level IN (0, 30, 40)),
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX protected_branches_key ON protected_branches (project_id, name);

CREATE TABLE releases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    tag_name TEXT NOT NULL,
    description TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX releases_key ON releases (project_id, tag_name);

-- An intent: a push that is not complete. The row is inserted before the refs change and deleted afterwards, so that
-- after a crash in between the remaining rows name the pushes to recover.
CREATE TABLE ref_intents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    user_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    -- The new default branch: null keeps the current one, an empty string clears it.
    head TEXT,
    -- A branch protection to add.
    protect_name TEXT,
    protect_push INTEGER,
    protect_merge INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX ref_intents_project_idx ON ref_intents (project_id, id);
CREATE INDEX ref_intents_user_idx ON ref_intents (user_id) WHERE user_id IS NOT NULL;
-- A ref change of an intent.
CREATE TABLE ref_intent_changes (
    intent_id INTEGER NOT NULL REFERENCES ref_intents (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    ref_name TEXT NOT NULL,
    old_oid TEXT,
    new_oid TEXT,
    PRIMARY KEY (intent_id, position)
) STRICT, WITHOUT ROWID;

-- An event in the activity feed. An event of a push that is not complete has an intent and is hidden.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    author_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    action INTEGER NOT NULL,
    target_type TEXT,
    target_id INTEGER,
    intent_id INTEGER REFERENCES ref_intents (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL
) STRICT;
-- The indexes cover all columns that counting needs, so that only the events of one page are read from the table.
CREATE INDEX events_project_idx ON events (project_id, id, action, intent_id);
CREATE INDEX events_author_idx ON events (author_id, id, project_id, action, intent_id);
CREATE INDEX events_places_idx ON events (author_id, project_id, action, intent_id);
CREATE INDEX events_intent_idx ON events (intent_id) WHERE intent_id IS NOT NULL;
-- The ref change of a push event.
CREATE TABLE push_events (
    event_id INTEGER PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    ref_name TEXT NOT NULL,
    -- Object ids: `before` is all zeros if the ref is created, `after` if it is deleted.
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    total_commits INTEGER NOT NULL
) STRICT;
-- A commit of a push event.
CREATE TABLE push_commits (
    event_id INTEGER NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    sha TEXT NOT NULL,
    message TEXT NOT NULL,
    author_name TEXT NOT NULL,
    author_email TEXT NOT NULL,
    seconds INTEGER NOT NULL,
    offset_seconds INTEGER NOT NULL,
    PRIMARY KEY (event_id, position)
) STRICT, WITHOUT ROWID;

-- The fork relation between a project and its source. The row is deleted at once when the fork is soft-deleted, so that
-- the fork is no longer counted, and when the row of the source is deleted; a soft-deleted source is hidden until then.
CREATE TABLE fork_links (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX fork_links_key ON fork_links (project_id);
CREATE INDEX fork_links_source_idx ON fork_links (source_id, project_id);
-- These two triggers keep `forks_count` up to date.
CREATE TRIGGER forks_rise AFTER INSERT ON fork_links BEGIN
    UPDATE projects SET forks_count = forks_count + 1 WHERE id = new.source_id;
END;
CREATE TRIGGER forks_set AFTER DELETE ON fork_links BEGIN
    UPDATE projects SET forks_count = forks_count - 1 WHERE id = old.source_id;
END;
-- Deletes the fork relation of a project that is soft-deleted.
CREATE TRIGGER forks_buried AFTER UPDATE OF deleted_at ON projects
WHEN old.deleted_at IS NULL AND new.deleted_at IS NOT NULL BEGIN
    DELETE FROM fork_links WHERE project_id = new.id;
END;

-- A deploy key: an SSH key that gives access to projects. It is deleted with its last project.
CREATE TABLE deploy_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX deploy_keys_fingerprint_key ON deploy_keys (fingerprint);
CREATE TABLE deploy_key_projects (
    key_id INTEGER NOT NULL REFERENCES deploy_keys (id) ON DELETE CASCADE,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (key_id, project_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX deploy_key_projects_idx ON deploy_key_projects (project_id, key_id);
-- Deletes a deploy key that has no project left.
CREATE TRIGGER deploy_keys_leave AFTER DELETE ON deploy_key_projects BEGIN
    DELETE FROM deploy_keys
    WHERE id = old.key_id AND NOT EXISTS (SELECT 1 FROM deploy_key_projects WHERE key_id = old.key_id);
END;

CREATE TABLE commit_statuses (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    sha TEXT NOT NULL,
    ref_name TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'success', 'failed', 'canceled')),
    target_url TEXT,
    description TEXT,
    allow_failure INTEGER NOT NULL DEFAULT 0,
    author_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER
) STRICT;
CREATE INDEX commit_statuses_commit_idx ON commit_statuses (project_id, sha, ref_name, name, id);
CREATE INDEX commit_statuses_author_idx ON commit_statuses (author_id) WHERE author_id IS NOT NULL;

-- The import of a repository from another server.
CREATE TABLE project_imports (
    project_id INTEGER PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    status TEXT NOT NULL CHECK (status IN ('none', 'scheduled', 'started', 'finished', 'failed')),
    -- The URL without credentials. The credentials are encrypted, and deleted when the import ends.
    url TEXT NOT NULL,
    credentials BLOB,
    error TEXT,
    started_at INTEGER,
    finished_at INTEGER
) STRICT;
