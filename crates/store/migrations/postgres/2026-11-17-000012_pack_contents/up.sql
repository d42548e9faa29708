-- The content of a small pack, which has no files in the store: a small push is on disk with its transaction.
CREATE TABLE pack_contents (
    pack_id BIGINT PRIMARY KEY REFERENCES packs (id) ON DELETE CASCADE,
    pack_data BYTEA NOT NULL,
    index_data BYTEA NOT NULL
);

-- Packs are compressed already.
ALTER TABLE pack_contents ALTER COLUMN pack_data SET STORAGE EXTERNAL;
