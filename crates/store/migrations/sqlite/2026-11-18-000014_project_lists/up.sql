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
ALTER TABLE project_members ADD COLUMN is_listed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE project_members ADD COLUMN project_visibility INTEGER NOT NULL DEFAULT 0;
ALTER TABLE project_members ADD COLUMN project_archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE project_members ADD COLUMN project_created_at INTEGER NOT NULL DEFAULT 0;
UPDATE project_members SET (is_listed, project_visibility, project_archived, project_created_at) = (
    SELECT p.namespace_id IS NOT NULL AND n.owner_id IS NOT project_members.user_id, p.visibility, p.archived, p.created_at
    FROM projects p LEFT JOIN namespaces n ON n.id = p.namespace_id WHERE p.id = project_members.project_id
);
CREATE INDEX project_members_by_id_idx
    ON project_members (user_id, project_visibility, project_archived, project_id, expires_at) WHERE is_listed;
CREATE INDEX project_members_by_created_idx
    ON project_members (user_id, project_visibility, project_archived, project_created_at, project_id, expires_at)
    WHERE is_listed;
-- Finds the expired memberships of a user.
CREATE INDEX project_members_expiring_idx ON project_members (user_id, expires_at) WHERE expires_at IS NOT NULL;

-- The number of projects in a visibility bucket of a namespace. Triggers keep it up to date.
CREATE TABLE namespace_project_counts (
    namespace_id INTEGER NOT NULL REFERENCES namespaces (id) ON DELETE CASCADE,
    visibility INTEGER NOT NULL,
    archived INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (namespace_id, visibility, archived)
) STRICT, WITHOUT ROWID;
INSERT INTO namespace_project_counts (namespace_id, visibility, archived, amount)
SELECT namespace_id, visibility, archived, count(*) FROM projects WHERE namespace_id IS NOT NULL GROUP BY 1, 2, 3;

-- The number of listed memberships of a user in a visibility bucket, with expired ones. Triggers keep it up to date.
CREATE TABLE member_project_counts (
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    visibility INTEGER NOT NULL,
    archived INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (user_id, visibility, archived)
) STRICT, WITHOUT ROWID;
INSERT INTO member_project_counts (user_id, visibility, archived, amount)
SELECT user_id, project_visibility, project_archived, count(*) FROM project_members WHERE is_listed GROUP BY 1, 2, 3;

-- These triggers keep `namespace_project_counts` up to date. A deleted project has no namespace.
CREATE TRIGGER projects_counted_in_namespace AFTER INSERT ON projects WHEN new.namespace_id IS NOT NULL BEGIN
    INSERT INTO namespace_project_counts (namespace_id, visibility, archived, amount)
    VALUES (new.namespace_id, new.visibility, new.archived, 1)
    ON CONFLICT (namespace_id, visibility, archived) DO UPDATE SET amount = amount + 1;
END;
CREATE TRIGGER projects_moved_in_namespace AFTER UPDATE OF namespace_id, visibility, archived ON projects
WHEN old.namespace_id IS NOT new.namespace_id OR old.visibility <> new.visibility OR old.archived <> new.archived BEGIN
    UPDATE namespace_project_counts SET amount = amount - 1
    WHERE namespace_id = old.namespace_id AND visibility = old.visibility AND archived = old.archived;
    DELETE FROM namespace_project_counts WHERE namespace_id = old.namespace_id AND amount = 0;
    INSERT INTO namespace_project_counts (namespace_id, visibility, archived, amount)
    SELECT new.namespace_id, new.visibility, new.archived, 1 WHERE new.namespace_id IS NOT NULL
    ON CONFLICT (namespace_id, visibility, archived) DO UPDATE SET amount = amount + 1;
    UPDATE project_members SET (is_listed, project_visibility, project_archived) = (
        new.namespace_id IS NOT NULL AND user_id IS NOT (SELECT owner_id FROM namespaces WHERE id = new.namespace_id),
        new.visibility, new.archived
    ) WHERE project_id = new.id;
END;
CREATE TRIGGER projects_removed_from_namespace AFTER DELETE ON projects WHEN old.namespace_id IS NOT NULL BEGIN
    UPDATE namespace_project_counts SET amount = amount - 1
    WHERE namespace_id = old.namespace_id AND visibility = old.visibility AND archived = old.archived;
    DELETE FROM namespace_project_counts WHERE namespace_id = old.namespace_id AND amount = 0;
END;

-- These triggers keep the columns of memberships and `member_project_counts` up to date. A new membership is not listed at
-- first, so that it is counted when it becomes listed.
CREATE TRIGGER project_members_listed AFTER INSERT ON project_members BEGIN
    UPDATE project_members SET (is_listed, project_visibility, project_archived, project_created_at) = (
        SELECT p.namespace_id IS NOT NULL AND n.owner_id IS NOT new.user_id, p.visibility, p.archived, p.created_at
        FROM projects p LEFT JOIN namespaces n ON n.id = p.namespace_id WHERE p.id = new.project_id
    ) WHERE id = new.id;
END;
CREATE TRIGGER project_members_counted AFTER UPDATE OF is_listed, project_visibility, project_archived ON project_members
WHEN old.is_listed OR new.is_listed BEGIN
    UPDATE member_project_counts SET amount = amount - 1
    WHERE old.is_listed AND user_id = old.user_id AND visibility = old.project_visibility
        AND archived = old.project_archived;
    DELETE FROM member_project_counts WHERE user_id = old.user_id AND amount = 0;
    INSERT INTO member_project_counts (user_id, visibility, archived, amount)
    SELECT new.user_id, new.project_visibility, new.project_archived, 1 WHERE new.is_listed
    ON CONFLICT (user_id, visibility, archived) DO UPDATE SET amount = amount + 1;
END;
CREATE TRIGGER project_members_uncounted AFTER DELETE ON project_members WHEN old.is_listed BEGIN
    UPDATE member_project_counts SET amount = amount - 1
    WHERE user_id = old.user_id AND visibility = old.project_visibility AND archived = old.project_archived;
    DELETE FROM member_project_counts WHERE user_id = old.user_id AND amount = 0;
END;
