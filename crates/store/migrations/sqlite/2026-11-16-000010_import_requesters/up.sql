-- The user who requested the import; for existing imports, the user who created the project.
ALTER TABLE project_imports ADD COLUMN requester_id INTEGER;
UPDATE project_imports SET requester_id = (SELECT creator_id FROM projects WHERE projects.id = project_imports.project_id);
