-- A background task; the code calls it a task, the table is called `jobs`. It is inserted in the transaction of the
-- change that requires it and run after the response. CI jobs are in `builds`.
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    -- Of the tasks with the same singleton name only one is pending at a time.
    singleton TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    run_at INTEGER NOT NULL,
    leased_until INTEGER,
    dead_at INTEGER,
    last_error TEXT,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX jobs_due_idx ON jobs (run_at, id) WHERE dead_at IS NULL;
CREATE INDEX jobs_dead_idx ON jobs (dead_at) WHERE dead_at IS NOT NULL;
CREATE UNIQUE INDEX jobs_singleton_key ON jobs (singleton) WHERE dead_at IS NULL;
