-- The storage ids of projects, and the record that binds the database to its data folder.

CREATE TABLE project_storage (
    project_id BIGINT PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    -- File paths contain this id and not the project id, because another database assigns the same project ids.
    storage_id TEXT NOT NULL UNIQUE CHECK (storage_id ~ '^[0-9a-f]{1,64}$')
);
-- Existing projects keep their paths, which contain the project id.
INSERT INTO project_storage (project_id, storage_id) SELECT id, id::text FROM projects;
-- Assigns a random storage id to a new project.
CREATE FUNCTION projects_stored() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A UUID has 122 random bits, so two of them are used.
    INSERT INTO project_storage (project_id, storage_id)
    VALUES (new.id, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
    RETURN NULL;
END $$;
CREATE TRIGGER projects_stored AFTER INSERT ON projects FOR EACH ROW EXECUTE FUNCTION projects_stored();

-- The identity of the instance: one row, or none before the first start.
CREATE TABLE instance (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    instance_id TEXT NOT NULL,
    -- The generation and its random mark. The data folder has a copy, which is updated after each change of this row.
    generation BIGINT NOT NULL,
    mark TEXT NOT NULL,
    previous_mark TEXT,
    -- The check value of the instance key.
    key_check BYTEA
);
