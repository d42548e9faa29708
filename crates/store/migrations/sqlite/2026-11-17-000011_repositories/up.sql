-- Repositories: their refs, and the packs that hold their objects. Object ids are 40 hexadecimal digits.

-- A project has a repository after its first push.
CREATE TABLE repositories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    -- Increased by each change of refs.
    generation INTEGER NOT NULL DEFAULT 0,
    -- Increased when packs are replaced. A push whose objects were checked against an older list of packs is checked again.
    pack_epoch INTEGER NOT NULL DEFAULT 0,
    -- The size of all refs as lines of a packed-refs file.
    refs_bytes INTEGER NOT NULL DEFAULT 0,
    -- When objects may have become unreachable that are not in a pack of their own yet; null if every object in the other
    -- packs is reachable.
    unreachable_since INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX repositories_project_key ON repositories (project_id);
CREATE INDEX repositories_unreachable_idx ON repositories (unreachable_since) WHERE unreachable_since IS NOT NULL;

-- A ref. Names are in byte order, so that the refs below a folder are a range of the primary key.
CREATE TABLE refs (
    repository_id INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    -- The full name, such as `refs/heads/main`.
    name TEXT NOT NULL,
    target TEXT NOT NULL,
    -- The object that an annotated tag finally refers to; null if the target is not a tag object.
    peeled TEXT,
    PRIMARY KEY (repository_id, name)
) STRICT, WITHOUT ROWID;

-- A pack file, which is never modified. Repositories can share it.
CREATE TABLE packs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The key of its files in the store, without an extension. A key is never used again.
    file_key TEXT NOT NULL,
    -- The checksum of the content; two packs may have the same one.
    checksum TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    objects INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX packs_file_key ON packs (file_key);

-- A pack of a repository. A fork copies these rows and not the files.
CREATE TABLE repository_packs (
    repository_id INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    -- Without a cascade: the row of a pack cannot be deleted while a repository has the pack.
    pack_id INTEGER NOT NULL REFERENCES packs (id),
    -- When other packs replaced it; null while it is live. Running reads may use a dead pack for a while.
    dead_since INTEGER,
    -- When its objects were found to be unreachable; null if some are reachable.
    unreachable_since INTEGER,
    PRIMARY KEY (repository_id, pack_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX repository_packs_pack_idx ON repository_packs (pack_id);
CREATE INDEX repository_packs_dead_idx ON repository_packs (dead_since) WHERE dead_since IS NOT NULL;
CREATE INDEX repository_packs_unreachable_idx ON repository_packs (unreachable_since)
    WHERE unreachable_since IS NOT NULL AND dead_since IS NULL;

-- A project whose repository an earlier version may have written, with refs in files. The next start of the server converts
-- the repository and deletes the row.
CREATE TABLE unconverted_repositories (
    project_id INTEGER PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE
) STRICT;
INSERT INTO unconverted_repositories (project_id) SELECT id FROM projects WHERE deleted_at IS NULL;

-- Interrupted pushes leave nothing to settle any more.
DELETE FROM jobs WHERE kind = 'settle_pushes';
