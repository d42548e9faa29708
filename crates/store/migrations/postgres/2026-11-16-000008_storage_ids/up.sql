-- Where the repository and the files of each project lie, and which data folder belongs to this database.

CREATE TABLE project_storage (
    project_id BIGINT PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    -- Names of files are made from this, never from the number, which another database gives again.
    storage_id TEXT NOT NULL UNIQUE CHECK (storage_id ~ '^[0-9a-f]{1,64}$')
);
-- Older projects stay where they are: in places that are named by their numbers.
INSERT INTO project_storage (project_id, storage_id) SELECT id, id::text FROM projects;
CREATE FUNCTION projects_stored() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- One of these has 122 random bits.
    INSERT INTO project_storage (project_id, storage_id)
    VALUES (new.id, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
    RETURN NULL;
END $$;
CREATE TRIGGER projects_stored AFTER INSERT ON projects FOR EACH ROW EXECUTE FUNCTION projects_stored();

-- One row, or none before the first start.
CREATE TABLE instance (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    instance_id TEXT NOT NULL,
    -- The data folder holds a copy of these, which is written after each change here.
    generation BIGINT NOT NULL,
    mark TEXT NOT NULL,
    previous_mark TEXT,
    -- A value that only the instance key gives.
    key_check BYTEA
);
