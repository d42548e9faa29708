-- The storage ids of projects, and the record that binds the database to its data folder.

CREATE TABLE project_storage (
    project_id INTEGER PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    -- File paths contain this id and not the project id, because another database assigns the same project ids.
    storage_id TEXT NOT NULL UNIQUE CHECK (length(storage_id) BETWEEN 1 AND 64 AND storage_id NOT GLOB '*[^0-9a-f]*')
);
-- Existing projects keep their paths, which contain the project id.
INSERT INTO project_storage (project_id, storage_id) SELECT id, CAST(id AS TEXT) FROM projects;
-- Assigns a random storage id to a new project.
CREATE TRIGGER projects_stored AFTER INSERT ON projects BEGIN
    INSERT INTO project_storage (project_id, storage_id) VALUES (new.id, lower(hex(randomblob(16))));
END;

-- The identity of the instance: one row, or none before the first start.
CREATE TABLE instance (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    instance_id TEXT NOT NULL,
    -- The generation and its random mark. The data folder has a copy, which is updated after each change of this row.
    generation INTEGER NOT NULL,
    mark TEXT NOT NULL,
    previous_mark TEXT,
    -- The check value of the instance key.
    key_check BLOB
);
