-- Increased before objects are dropped from a repository: a push that was inspected before is inspected again. Packs that
-- are combined do not change it.
ALTER TABLE repositories ADD COLUMN drop_epoch BIGINT NOT NULL DEFAULT 0;
