-- Groups, projects, their members, and the counters and indexes for their lists.

-- Settings of a group. A personal namespace is always public and has the defaults.
ALTER TABLE namespaces ADD COLUMN visibility INTEGER NOT NULL DEFAULT 20 CHECK (visibility IN (0, 10, 20));
ALTER TABLE namespaces ADD COLUMN share_with_group_lock INTEGER NOT NULL DEFAULT 0;
ALTER TABLE namespaces ADD COLUMN request_access_enabled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE namespaces ADD COLUMN lfs_enabled INTEGER;
-- Name and path in lower case, for ordering lists and for searches; both engines agree on them.
ALTER TABLE namespaces ADD COLUMN name_key TEXT NOT NULL DEFAULT '';
ALTER TABLE namespaces ADD COLUMN path_key TEXT NOT NULL DEFAULT '';
UPDATE namespaces SET name_key = lower(name), path_key = lower(path);
CREATE INDEX namespaces_name_idx ON namespaces (kind, name_key, id);
CREATE INDEX namespaces_path_idx ON namespaces (kind, path_key, id);
CREATE UNIQUE INDEX namespaces_group_name_key ON namespaces (coalesce(parent_id, 0), name_key) WHERE kind = 'group';

-- A namespace and one of its ancestors, or the namespace itself: a role in a group applies to all its descendants.
CREATE TABLE namespace_ancestors (
    namespace_id INTEGER NOT NULL REFERENCES namespaces (id) ON DELETE CASCADE,
    ancestor_id INTEGER NOT NULL REFERENCES namespaces (id) ON DELETE CASCADE,
    PRIMARY KEY (namespace_id, ancestor_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX namespace_ancestors_below_idx ON namespace_ancestors (ancestor_id, namespace_id);
INSERT INTO namespace_ancestors (namespace_id, ancestor_id) SELECT id, id FROM namespaces;
-- Adds the ancestors of a new namespace.
CREATE TRIGGER namespaces_climb AFTER INSERT ON namespaces BEGIN
    INSERT INTO namespace_ancestors (namespace_id, ancestor_id)
    SELECT new.id, new.id
    UNION ALL
    SELECT new.id, ancestor_id FROM namespace_ancestors WHERE namespace_id = new.parent_id;
END;

CREATE TABLE group_members (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id INTEGER NOT NULL REFERENCES namespaces (id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    access_level INTEGER NOT NULL CHECK (access_level IN (10, 20, 30, 40, 50)),
    -- When the membership expires; it is no longer valid at this time.
    expires_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX group_members_key ON group_members (group_id, user_id);
CREATE INDEX group_members_user_idx ON group_members (user_id, group_id, access_level, expires_at);
CREATE INDEX group_members_newest_idx ON group_members (group_id, id);
CREATE INDEX group_members_expiry_idx ON group_members (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE projects (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Null for a soft-deleted project: queries by namespace do not find it, and its path can be reused.
    namespace_id INTEGER REFERENCES namespaces (id) ON DELETE RESTRICT,
    -- The user who created the project; the id stays when the user is deleted.
    creator_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    name_key TEXT NOT NULL,
    path_key TEXT NOT NULL,
    search_text TEXT NOT NULL,
    description TEXT,
    visibility INTEGER NOT NULL CHECK (visibility IN (0, 10, 20)),
    archived INTEGER NOT NULL DEFAULT 0,
    star_count INTEGER NOT NULL DEFAULT 0,
    forks_count INTEGER NOT NULL DEFAULT 0,
    issues_enabled INTEGER NOT NULL,
    merge_requests_enabled INTEGER NOT NULL,
    wiki_enabled INTEGER NOT NULL,
    builds_enabled INTEGER NOT NULL,
    snippets_enabled INTEGER NOT NULL,
    container_registry_enabled INTEGER NOT NULL,
    shared_runners_enabled INTEGER NOT NULL,
    public_builds INTEGER NOT NULL,
    only_allow_merge_if_build_succeeds INTEGER NOT NULL,
    only_allow_merge_if_all_discussions_are_resolved INTEGER NOT NULL,
    request_access_enabled INTEGER NOT NULL,
    lfs_enabled INTEGER,
    -- The seed that the runner registration token is derived from, with the instance key. The token itself is not
    -- stored.
    runners_seed BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_activity_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CHECK ((namespace_id IS NULL) = (deleted_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX projects_path_key ON projects (namespace_id, path_key);
CREATE UNIQUE INDEX projects_name_key ON projects (namespace_id, name_key);
-- Each visibility bucket (one visibility, archived or not) has an index for every order of a list.
CREATE INDEX projects_by_id_idx ON projects (visibility, archived, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_name_idx ON projects (visibility, archived, name_key, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_path_idx ON projects (visibility, archived, path_key, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_created_idx ON projects (visibility, archived, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_updated_idx ON projects (visibility, archived, updated_at, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_activity_idx ON projects (visibility, archived, last_activity_at, id) WHERE deleted_at IS NULL;

-- The number of projects in a visibility bucket, so that a list does not count them. Each bucket has eight stripes,
-- which reduces contention between concurrent transactions; its total is their sum. Triggers keep it up to date.
CREATE TABLE project_counts (
    visibility INTEGER NOT NULL,
    archived INTEGER NOT NULL,
    stripe INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (visibility, archived, stripe)
) STRICT, WITHOUT ROWID;
WITH RECURSIVE stripes (stripe) AS (SELECT 0 UNION ALL SELECT stripe + 1 FROM stripes WHERE stripe < 7)
INSERT INTO project_counts (visibility, archived, stripe, amount)
SELECT visibility, archived, stripe, 0
FROM (SELECT 0 AS visibility UNION ALL SELECT 10 UNION ALL SELECT 20)
CROSS JOIN (SELECT 0 AS archived UNION ALL SELECT 1)
CROSS JOIN stripes;

-- The number of projects in the personal namespace, for `projects_limit` and `can_create_project`. Triggers keep it up
-- to date.
ALTER TABLE users ADD COLUMN personal_projects INTEGER NOT NULL DEFAULT 0;

-- These three triggers keep `project_counts` and `personal_projects` up to date.
CREATE TRIGGER projects_arrive AFTER INSERT ON projects BEGIN
    UPDATE project_counts SET amount = amount + 1
    WHERE new.deleted_at IS NULL AND visibility = new.visibility AND archived = new.archived AND stripe = new.id & 7;
    UPDATE users SET personal_projects = personal_projects + 1
    WHERE id = (SELECT owner_id FROM namespaces WHERE id = new.namespace_id);
END;
CREATE TRIGGER projects_move AFTER UPDATE OF namespace_id, visibility, archived, deleted_at ON projects
WHEN old.namespace_id IS NOT new.namespace_id OR old.visibility <> new.visibility OR old.archived <> new.archived BEGIN
    UPDATE project_counts SET amount = amount - 1
    WHERE old.deleted_at IS NULL AND visibility = old.visibility AND archived = old.archived AND stripe = old.id & 7;
    UPDATE project_counts SET amount = amount + 1
    WHERE new.deleted_at IS NULL AND visibility = new.visibility AND archived = new.archived AND stripe = new.id & 7;
    UPDATE users SET personal_projects = personal_projects - 1
    WHERE old.namespace_id IS NOT new.namespace_id
        AND id = (SELECT owner_id FROM namespaces WHERE id = old.namespace_id);
    UPDATE users SET personal_projects = personal_projects + 1
    WHERE old.namespace_id IS NOT new.namespace_id
        AND id = (SELECT owner_id FROM namespaces WHERE id = new.namespace_id);
END;
CREATE TRIGGER projects_leave AFTER DELETE ON projects BEGIN
    UPDATE project_counts SET amount = amount - 1
    WHERE old.deleted_at IS NULL AND visibility = old.visibility AND archived = old.archived AND stripe = old.id & 7;
    UPDATE users SET personal_projects = personal_projects - 1
    WHERE id = (SELECT owner_id FROM namespaces WHERE id = old.namespace_id);
END;

-- A trigram index, so that a substring search reads only rows that may match. Triggers keep it up to date.
CREATE VIRTUAL TABLE project_search USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'trigram case_sensitive 1'
);
-- The trigrams of the index, for searches of fewer than three characters.
CREATE VIRTUAL TABLE project_trigrams USING fts5vocab (project_search, instance);
CREATE TRIGGER projects_indexed AFTER INSERT ON projects BEGIN
    INSERT INTO project_search (rowid, text) VALUES (new.id, new.search_text);
END;
CREATE TRIGGER projects_reindexed AFTER UPDATE OF search_text ON projects WHEN old.search_text <> new.search_text BEGIN
    UPDATE project_search SET text = new.search_text WHERE rowid = new.id;
END;
CREATE TRIGGER projects_unindexed AFTER DELETE ON projects BEGIN
    DELETE FROM project_search WHERE rowid = old.id;
END;
CREATE VIRTUAL TABLE namespace_search USING fts5 (
    name, content = '', contentless_delete = 1, tokenize = 'trigram case_sensitive 1'
);
INSERT INTO namespace_search (rowid, name) SELECT id, name_key FROM namespaces;
CREATE TRIGGER namespaces_indexed AFTER INSERT ON namespaces BEGIN
    INSERT INTO namespace_search (rowid, name) VALUES (new.id, new.name_key);
END;
CREATE TRIGGER namespaces_reindexed AFTER UPDATE OF name_key ON namespaces WHEN old.name_key <> new.name_key BEGIN
    UPDATE namespace_search SET name = new.name_key WHERE rowid = new.id;
END;
CREATE TRIGGER namespaces_unindexed AFTER DELETE ON namespaces BEGIN
    DELETE FROM namespace_search WHERE rowid = old.id;
END;

CREATE TABLE project_members (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    access_level INTEGER NOT NULL CHECK (access_level IN (10, 20, 30, 40)),
    expires_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX project_members_key ON project_members (project_id, user_id);
CREATE INDEX project_members_user_idx ON project_members (user_id, project_id, access_level, expires_at);
CREATE INDEX project_members_newest_idx ON project_members (project_id, id);
CREATE INDEX project_members_expiry_idx ON project_members (expires_at) WHERE expires_at IS NOT NULL;

-- A project that is shared with a group, and the maximum access level of the members of the group.
CREATE TABLE project_shares (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    group_id INTEGER NOT NULL REFERENCES namespaces (id) ON DELETE CASCADE,
    group_access INTEGER NOT NULL CHECK (group_access IN (10, 20, 30, 40)),
    expires_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX project_shares_key ON project_shares (project_id, group_id);
CREATE INDEX project_shares_group_idx ON project_shares (group_id, project_id, group_access, expires_at);
CREATE INDEX project_shares_expiry_idx ON project_shares (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE project_stars (
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, project_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX project_stars_project_idx ON project_stars (project_id);
-- These two triggers keep `star_count` up to date.
CREATE TRIGGER stars_rise AFTER INSERT ON project_stars BEGIN
    UPDATE projects SET star_count = star_count + 1 WHERE id = new.project_id;
END;
CREATE TRIGGER stars_set AFTER DELETE ON project_stars BEGIN
    UPDATE projects SET star_count = star_count - 1 WHERE id = old.project_id;
END;

-- A file uploaded to be linked from Markdown text. The row is inserted before the file is written and deleted after the
-- file is removed, so that every file has a row.
CREATE TABLE uploads (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE RESTRICT,
    user_id INTEGER NOT NULL,
    secret TEXT NOT NULL,
    name TEXT NOT NULL,
    size INTEGER,
    complete INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX uploads_secret_key ON uploads (secret);
CREATE INDEX uploads_project_idx ON uploads (project_id, id);
CREATE INDEX uploads_incomplete_idx ON uploads (created_at) WHERE NOT complete;
