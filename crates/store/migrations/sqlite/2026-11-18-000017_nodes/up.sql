-- The nodes that serve the instance, and when each of them was last heard of.
CREATE TABLE nodes (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    addresses TEXT NOT NULL,
    state TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL
) STRICT;

-- Secrets that all nodes share, such as the SSH host key, encrypted with the instance key.
CREATE TABLE instance_secrets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    secret BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX instance_secrets_name_key ON instance_secrets (name);
