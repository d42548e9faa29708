-- The content of a small pack, which has no files in the store: a small push is on disk with its transaction.
CREATE TABLE pack_contents (
    pack_id INTEGER PRIMARY KEY REFERENCES packs (id) ON DELETE CASCADE,
    pack_data BLOB NOT NULL,
    index_data BLOB NOT NULL
) STRICT;
