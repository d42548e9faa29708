-- Indexes for foreign keys. They had conditions that a deletion of the referenced row does not meet, so that deleting a project read all
-- jobs and pipelines of the instance, deleting a user all namespaces, and deleting a board all lists.
--
-- The tables are locked in the order in which requests lock them. Requests wait until the migration is finished; in another
-- order, some of them and the migration would wait for each other.
LOCK TABLE namespaces, pipelines, builds, board_lists IN ACCESS EXCLUSIVE MODE;
DROP INDEX builds_project_idx;
CREATE INDEX builds_project_idx ON builds (project_id, kind, id);
DROP INDEX pipelines_commit_idx;
CREATE INDEX pipelines_commit_idx ON pipelines (project_id, sha, id);
DROP INDEX namespaces_owner_key;
CREATE UNIQUE INDEX namespaces_owner_key ON namespaces (owner_id) WHERE owner_id IS NOT NULL;
DROP INDEX board_lists_idx;
CREATE INDEX board_lists_idx ON board_lists (board_id, position);
