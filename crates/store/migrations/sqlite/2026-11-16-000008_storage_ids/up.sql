-- Where the repository and the files of each project lie, and which data folder belongs to this database.

CREATE TABLE project_storage (
    project_id INTEGER PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    -- Names of files are made from this, never from the number, which another database gives again.
    storage_id TEXT NOT NULL UNIQUE CHECK (length(storage_id) BETWEEN 1 AND 64 AND storage_id NOT GLOB '*[^0-9a-f]*')
);
-- Older projects stay where they are: in places that are named by their numbers.
INSERT INTO project_storage (project_id, storage_id) SELECT id, CAST(id AS TEXT) FROM projects;
CREATE TRIGGER projects_stored AFTER INSERT ON projects BEGIN
    INSERT INTO project_storage (project_id, storage_id) VALUES (new.id, lower(hex(randomblob(16))));
END;

-- One row, or none before the first start.
CREATE TABLE instance (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    instance_id TEXT NOT NULL,
    -- The data folder holds a copy of these, which is written after each change here.
    generation INTEGER NOT NULL,
    mark TEXT NOT NULL,
    previous_mark TEXT,
    -- A value that only the instance key gives.
    key_check BLOB
);
