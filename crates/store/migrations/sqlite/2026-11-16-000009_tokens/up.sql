-- Whether `POST /session` issued the token; such tokens are revoked when the password changes, other tokens are not.
ALTER TABLE tokens ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
UPDATE tokens SET session = 1 WHERE name = 'session';
