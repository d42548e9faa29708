-- Sessions of the web interface, found by the digest of the secret in the cookie.
CREATE TABLE web_sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    digest BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX web_sessions_digest_key ON web_sessions (digest);
CREATE INDEX web_sessions_user_idx ON web_sessions (user_id, id);
CREATE INDEX web_sessions_created_idx ON web_sessions (created_at);
CREATE INDEX web_sessions_last_used_idx ON web_sessions (last_used_at);
