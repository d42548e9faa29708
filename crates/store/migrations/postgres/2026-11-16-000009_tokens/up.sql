-- Tokens that `POST /session` issued end when the password changes; tokens made by hand stay.
ALTER TABLE tokens ADD COLUMN session BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE tokens SET session = TRUE WHERE name = 'session';
