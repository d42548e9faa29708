-- Tokens that `POST /session` issued end when the password changes; tokens made by hand stay.
ALTER TABLE tokens ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
UPDATE tokens SET session = 1 WHERE name = 'session';
