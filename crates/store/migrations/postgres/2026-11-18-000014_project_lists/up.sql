-- Lists of the projects of a user: their cost depends on the page, not on the number of projects.

-- Each visibility bucket of a namespace has an index for every order of a list.
CREATE INDEX projects_of_namespace_by_id_idx ON projects (namespace_id, visibility, archived, id);
CREATE INDEX projects_of_namespace_by_name_idx ON projects (namespace_id, visibility, archived, name_key, id);
CREATE INDEX projects_of_namespace_by_path_idx ON projects (namespace_id, visibility, archived, path_key, id);
CREATE INDEX projects_of_namespace_by_created_idx ON projects (namespace_id, visibility, archived, created_at, id);
CREATE INDEX projects_of_namespace_by_updated_idx ON projects (namespace_id, visibility, archived, updated_at, id);
CREATE INDEX projects_of_namespace_by_activity_idx ON projects (namespace_id, visibility, archived, last_activity_at, id);

-- The visibility bucket of a membership, and when its project was created: the memberships of a user have an index per bucket
-- for lists by id and by time of creation. Memberships in the personal namespace of the member, who has a role there anyway,
-- and those in deleted projects are not listed. Triggers keep these columns up to date.
ALTER TABLE project_members ADD COLUMN is_listed BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE project_members ADD COLUMN project_visibility INTEGER NOT NULL DEFAULT 0;
ALTER TABLE project_members ADD COLUMN project_archived BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE project_members ADD COLUMN project_created_at BIGINT NOT NULL DEFAULT 0;
UPDATE project_members m SET
    is_listed = p.namespace_id IS NOT NULL AND n.owner_id IS DISTINCT FROM m.user_id,
    project_visibility = p.visibility, project_archived = p.archived, project_created_at = p.created_at
FROM projects p LEFT JOIN namespaces n ON n.id = p.namespace_id WHERE p.id = m.project_id;
CREATE INDEX project_members_by_id_idx
    ON project_members (user_id, project_visibility, project_archived, project_id, expires_at) WHERE is_listed;
CREATE INDEX project_members_by_created_idx
    ON project_members (user_id, project_visibility, project_archived, project_created_at, project_id, expires_at)
    WHERE is_listed;
-- Finds the expired memberships of a user.
CREATE INDEX project_members_expiring_idx ON project_members (user_id, expires_at) WHERE expires_at IS NOT NULL;

-- The number of projects in a visibility bucket of a namespace. Triggers keep it up to date.
CREATE TABLE namespace_project_counts (
    namespace_id BIGINT NOT NULL REFERENCES namespaces (id) ON DELETE CASCADE,
    visibility INTEGER NOT NULL,
    archived BOOLEAN NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (namespace_id, visibility, archived)
) WITH (fillfactor = 50);
INSERT INTO namespace_project_counts (namespace_id, visibility, archived, amount)
SELECT namespace_id, visibility, archived, count(*) FROM projects WHERE namespace_id IS NOT NULL GROUP BY 1, 2, 3;

-- The number of listed memberships of a user in a visibility bucket, with expired ones. Triggers keep it up to date.
CREATE TABLE member_project_counts (
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    visibility INTEGER NOT NULL,
    archived BOOLEAN NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (user_id, visibility, archived)
) WITH (fillfactor = 50);
INSERT INTO member_project_counts (user_id, visibility, archived, amount)
SELECT user_id, project_visibility, project_archived, count(*) FROM project_members WHERE is_listed GROUP BY 1, 2, 3;

-- These triggers keep `namespace_project_counts` up to date. A deleted project has no namespace.
CREATE FUNCTION projects_count_in_namespace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND old.namespace_id IS NOT NULL THEN
        UPDATE namespace_project_counts SET amount = amount - 1
        WHERE namespace_id = old.namespace_id AND visibility = old.visibility AND archived = old.archived;
        DELETE FROM namespace_project_counts WHERE namespace_id = old.namespace_id AND amount = 0;
    END IF;
    IF TG_OP <> 'DELETE' AND new.namespace_id IS NOT NULL THEN
        INSERT INTO namespace_project_counts AS counts (namespace_id, visibility, archived, amount)
        VALUES (new.namespace_id, new.visibility, new.archived, 1)
        ON CONFLICT (namespace_id, visibility, archived) DO UPDATE SET amount = counts.amount + 1;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE project_members m SET
            is_listed = new.namespace_id IS NOT NULL AND m.user_id IS DISTINCT FROM
                (SELECT owner_id FROM namespaces WHERE id = new.namespace_id),
            project_visibility = new.visibility, project_archived = new.archived
        WHERE m.project_id = new.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER projects_counted_in_namespace AFTER INSERT OR DELETE ON projects FOR EACH ROW
EXECUTE FUNCTION projects_count_in_namespace();
CREATE TRIGGER projects_moved_in_namespace AFTER UPDATE OF namespace_id, visibility, archived ON projects FOR EACH ROW
WHEN (old.namespace_id IS DISTINCT FROM new.namespace_id OR old.visibility <> new.visibility
    OR old.archived <> new.archived)
EXECUTE FUNCTION projects_count_in_namespace();

-- These triggers keep the columns of memberships and `member_project_counts` up to date.
CREATE FUNCTION project_members_list() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Waits for a concurrent change of the project, which changes the memberships that it sees.
    SELECT visibility, archived, created_at, namespace_id IS NOT NULL AND new.user_id IS DISTINCT FROM
        (SELECT owner_id FROM namespaces n WHERE n.id = p.namespace_id)
    INTO new.project_visibility, new.project_archived, new.project_created_at, new.is_listed
    FROM projects p WHERE id = new.project_id FOR SHARE OF p;
    -- The project may have been deleted meanwhile; the foreign key then refuses the row.
    new.project_visibility := coalesce(new.project_visibility, 0);
    new.project_archived := coalesce(new.project_archived, FALSE);
    new.project_created_at := coalesce(new.project_created_at, 0);
    new.is_listed := coalesce(new.is_listed, FALSE);
    RETURN new;
END $$;
CREATE TRIGGER project_members_list BEFORE INSERT ON project_members FOR EACH ROW
EXECUTE FUNCTION project_members_list();
CREATE FUNCTION project_members_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND old.is_listed THEN
        UPDATE member_project_counts SET amount = amount - 1
        WHERE user_id = old.user_id AND visibility = old.project_visibility AND archived = old.project_archived;
        DELETE FROM member_project_counts WHERE user_id = old.user_id AND amount = 0;
    END IF;
    IF TG_OP <> 'DELETE' AND new.is_listed THEN
        INSERT INTO member_project_counts AS counts (user_id, visibility, archived, amount)
        VALUES (new.user_id, new.project_visibility, new.project_archived, 1)
        ON CONFLICT (user_id, visibility, archived) DO UPDATE SET amount = counts.amount + 1;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER project_members_counted AFTER INSERT OR DELETE ON project_members FOR EACH ROW
EXECUTE FUNCTION project_members_count();
CREATE TRIGGER project_members_recounted AFTER UPDATE OF is_listed, project_visibility, project_archived
ON project_members FOR EACH ROW EXECUTE FUNCTION project_members_count();
