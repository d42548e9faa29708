-- Whether `POST /session` issued the token; such tokens are revoked when the password changes, other tokens are not.
ALTER TABLE tokens ADD COLUMN session BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE tokens SET session = TRUE WHERE name = 'session';
