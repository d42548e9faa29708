-- Users, namespaces, email addresses, SSH keys and tokens. Times are microseconds since 1970-01-01 UTC.
CREATE TABLE users (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    username TEXT NOT NULL,
    name TEXT NOT NULL,
    email TEXT NOT NULL,
    -- Name and username in lower case, so that a search does not fold the case of each row and both engines agree.
    search_text TEXT NOT NULL,
    password_hash TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('active', 'blocked', 'ldap_blocked')),
    admin INTEGER NOT NULL,
    external INTEGER NOT NULL,
    can_create_group INTEGER NOT NULL,
    projects_limit INTEGER NOT NULL CHECK (projects_limit >= 0),
    bio TEXT,
    location TEXT,
    skype TEXT NOT NULL,
    linkedin TEXT NOT NULL,
    twitter TEXT NOT NULL,
    website_url TEXT NOT NULL,
    organization TEXT,
    confirmed_at INTEGER,
    current_sign_in_at INTEGER,
    last_sign_in_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX users_username_key ON users (lower(username));
CREATE UNIQUE INDEX users_email_key ON users (email);
CREATE INDEX users_state_idx ON users (state, id);
CREATE INDEX users_external_idx ON users (id) WHERE external;
CREATE INDEX users_admin_idx ON users (id) WHERE admin;

-- A namespace: the personal namespace of a user, or a group. `full_path` includes the paths of its ancestors.
CREATE TABLE namespaces (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    parent_id INTEGER REFERENCES namespaces (id) ON DELETE RESTRICT,
    kind TEXT NOT NULL CHECK (kind IN ('user', 'group')),
    owner_id INTEGER REFERENCES users (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    full_path TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CHECK ((kind = 'user') = (owner_id IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX namespaces_full_path_key ON namespaces (lower(full_path));
CREATE UNIQUE INDEX namespaces_owner_key ON namespaces (owner_id) WHERE kind = 'user';
CREATE INDEX namespaces_parent_idx ON namespaces (parent_id);

-- An email address of a user, primary or secondary. Both kinds are here, so that one index makes addresses unique.
CREATE TABLE emails (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    email TEXT NOT NULL,
    is_primary INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX emails_email_key ON emails (email);
CREATE UNIQUE INDEX emails_primary_key ON emails (user_id) WHERE is_primary;
CREATE INDEX emails_user_idx ON emails (user_id, is_primary, id);

-- The account of a user at an external sign-in provider.
CREATE TABLE identities (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    provider TEXT NOT NULL,
    extern_uid TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX identities_extern_uid_key ON identities (provider, extern_uid);
CREATE UNIQUE INDEX identities_user_key ON identities (user_id, provider);

CREATE TABLE keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    title TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX keys_fingerprint_key ON keys (fingerprint);
CREATE INDEX keys_user_idx ON keys (user_id, id);

-- An access token. `digest` is the SHA-256 of the token, which itself is not stored.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    digest BLOB NOT NULL,
    scopes TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX tokens_digest_key ON tokens (digest);
CREATE INDEX tokens_user_idx ON tokens (user_id, id);
CREATE INDEX tokens_expires_idx ON tokens (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tokens_revoked_idx ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;
