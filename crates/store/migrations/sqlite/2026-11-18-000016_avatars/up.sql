-- Uploaded avatars. The row of a file is inserted before the file and deleted after it; a row without an owner, or one that is not
-- current, waits for its removal.
CREATE TABLE avatars (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    project_id INTEGER REFERENCES projects (id) ON DELETE SET NULL,
    group_id INTEGER REFERENCES namespaces (id) ON DELETE SET NULL,
    storage_id TEXT NOT NULL,
    name TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size INTEGER,
    is_current INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX avatars_user_key ON avatars (user_id) WHERE is_current;
CREATE UNIQUE INDEX avatars_project_key ON avatars (project_id) WHERE is_current;
CREATE UNIQUE INDEX avatars_group_key ON avatars (group_id) WHERE is_current;
CREATE INDEX avatars_user_idx ON avatars (user_id);
CREATE INDEX avatars_project_idx ON avatars (project_id);
CREATE INDEX avatars_group_idx ON avatars (group_id);

-- The name of the current avatar.
ALTER TABLE users ADD COLUMN avatar TEXT;
ALTER TABLE projects ADD COLUMN avatar TEXT;
ALTER TABLE namespaces ADD COLUMN avatar TEXT;
