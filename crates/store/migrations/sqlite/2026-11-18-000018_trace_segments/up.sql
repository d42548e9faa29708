-- Objects of the file store that hold parts of traces. The row is inserted before the object is written and deleted after it; a row
-- without a job waits for its removal, or its object is being written.
CREATE TABLE trace_objects (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER REFERENCES build_runs (build_id) ON DELETE SET NULL,
    -- Random and part of the key, so that no key is used twice.
    storage_id TEXT NOT NULL,
    -- Null until a segment refers to the object.
    size INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX trace_objects_job_idx ON trace_objects (job_id);

-- The visible bytes of a trace, in the order of their starts, on instances without a folder of traces. The bytes of a segment are in
-- its row or in an object.
CREATE TABLE trace_segments (
    job_id INTEGER NOT NULL REFERENCES build_runs (build_id) ON DELETE CASCADE,
    start INTEGER NOT NULL CHECK (start >= 0),
    size INTEGER NOT NULL CHECK (size > 0),
    object_id INTEGER REFERENCES trace_objects (id),
    content BLOB,
    PRIMARY KEY (job_id, start),
    CHECK ((content IS NULL) <> (object_id IS NULL)),
    CHECK (content IS NULL OR length(content) = size)
) STRICT;
CREATE UNIQUE INDEX trace_segments_object_key ON trace_segments (object_id) WHERE object_id IS NOT NULL;

-- The unmasked end of the trace that is withheld from readers, on instances without a folder of traces; encrypted.
ALTER TABLE build_runs ADD COLUMN trace_withheld BLOB;
