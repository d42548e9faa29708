-- Issues, labels, milestones, notes and boards. A date is stored as the microsecond at which the day begins in UTC.

CREATE TABLE labels (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    title TEXT NOT NULL,
    -- The title in lower case, for ordering lists.
    title_key TEXT NOT NULL,
    color TEXT NOT NULL,
    description TEXT,
    priority INTEGER CHECK (priority >= 0),
    -- The number of issues with the label. Triggers keep these counters up to date.
    open_issues INTEGER NOT NULL DEFAULT 0,
    closed_issues INTEGER NOT NULL DEFAULT 0,
    -- The number of those issues that are confidential.
    open_confidential INTEGER NOT NULL DEFAULT 0,
    closed_confidential INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX labels_key ON labels (project_id, title);
CREATE INDEX labels_title_idx ON labels (project_id, title_key, title);

CREATE TABLE label_subscriptions (
    label_id INTEGER NOT NULL REFERENCES labels (id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (label_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX label_subscriptions_user_idx ON label_subscriptions (user_id, label_id);

CREATE TABLE milestones (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    iid INTEGER NOT NULL,
    title TEXT NOT NULL,
    description TEXT,
    closed INTEGER NOT NULL DEFAULT 0,
    start_on INTEGER,
    due_on INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX milestones_iid_key ON milestones (project_id, iid);
CREATE UNIQUE INDEX milestones_title_key ON milestones (project_id, title);

CREATE TABLE issues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    -- The number of the issue within its project.
    iid INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0,
    -- Whether the issue was closed and is open again.
    reopened INTEGER NOT NULL DEFAULT 0,
    confidential INTEGER NOT NULL DEFAULT 0,
    -- Null once the user is deleted; the issue stays.
    author_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    assignee_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    milestone_id INTEGER REFERENCES milestones (id) ON DELETE SET NULL,
    updated_by_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    moved_to_id INTEGER REFERENCES issues (id) ON DELETE SET NULL,
    due_on INTEGER,
    -- The number of notes that are not system notes. Triggers keep it up to date.
    user_notes INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- The long columns are last, so that a query for the other columns does not read past them.
    title TEXT NOT NULL,
    description TEXT
) STRICT;
CREATE UNIQUE INDEX issues_iid_key ON issues (project_id, iid);
-- The indexes cover all columns that lists filter by, so that only the issues of one page are read from the table.
CREATE INDEX issues_created_idx ON issues
(project_id, created_at, id, closed, confidential, milestone_id, author_id, assignee_id);
CREATE INDEX issues_updated_idx ON issues
(project_id, updated_at, id, closed, confidential, milestone_id, author_id, assignee_id);
CREATE INDEX issues_author_idx ON issues (author_id, project_id, closed) WHERE author_id IS NOT NULL;
CREATE INDEX issues_author_created_idx ON issues
(author_id, created_at, id, project_id, closed, milestone_id, iid) WHERE author_id IS NOT NULL;
CREATE INDEX issues_author_updated_idx ON issues
(author_id, updated_at, id, project_id, closed, milestone_id, iid) WHERE author_id IS NOT NULL;
CREATE INDEX issues_assignee_idx ON issues (assignee_id, project_id, confidential) WHERE assignee_id IS NOT NULL;
CREATE INDEX issues_milestone_created_idx ON issues
(milestone_id, created_at, id, closed, confidential, author_id, assignee_id) WHERE milestone_id IS NOT NULL;
CREATE INDEX issues_milestone_updated_idx ON issues
(milestone_id, updated_at, id, closed, confidential, author_id, assignee_id) WHERE milestone_id IS NOT NULL;
CREATE INDEX issues_updater_idx ON issues (updated_by_id) WHERE updated_by_id IS NOT NULL;
CREATE INDEX issues_moved_idx ON issues (moved_to_id) WHERE moved_to_id IS NOT NULL;
-- Confidential issues, of which there are few.
CREATE INDEX issues_confidential_idx ON issues (project_id, author_id, assignee_id, closed, id) WHERE confidential;

-- The title and the description of an issue in lower case, for searches. A separate table, so that a change of other
-- columns does not index the text again.
CREATE TABLE issue_texts (
    issue_id INTEGER PRIMARY KEY REFERENCES issues (id) ON DELETE CASCADE,
    search_text TEXT NOT NULL
) STRICT;
CREATE VIRTUAL TABLE issue_search USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'trigram case_sensitive 1'
);
-- The trigrams of the index, for searches of fewer than three characters.
CREATE VIRTUAL TABLE issue_trigrams USING fts5vocab (issue_search, instance);
CREATE TRIGGER issues_indexed AFTER INSERT ON issue_texts BEGIN
    INSERT INTO issue_search (rowid, text) VALUES (new.issue_id, new.search_text);
END;
CREATE TRIGGER issues_reindexed AFTER UPDATE ON issue_texts BEGIN
    UPDATE issue_search SET text = new.search_text WHERE rowid = new.issue_id;
END;
CREATE TRIGGER issues_unindexed AFTER DELETE ON issue_texts BEGIN
    DELETE FROM issue_search WHERE rowid = old.issue_id;
END;

CREATE TABLE issue_labels (
    issue_id INTEGER NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
    label_id INTEGER NOT NULL REFERENCES labels (id) ON DELETE CASCADE,
    -- Copies of the columns of the issue that lists filter and order by, so that a list by label does not read every
    -- issue with the label. Triggers keep them up to date.
    closed INTEGER NOT NULL DEFAULT 0,
    confidential INTEGER NOT NULL DEFAULT 0,
    milestone_id INTEGER,
    created_at INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (issue_id, label_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX issue_labels_created_idx ON issue_labels
(label_id, created_at, issue_id, closed, confidential, milestone_id);
CREATE INDEX issue_labels_updated_idx ON issue_labels
(label_id, updated_at, issue_id, closed, confidential, milestone_id);
-- Copies the columns of the issue into a new row.
CREATE TRIGGER issue_labels_filled AFTER INSERT ON issue_labels BEGIN
    UPDATE issue_labels SET
        closed = i.closed,
        confidential = i.confidential,
        milestone_id = i.milestone_id,
        created_at = i.created_at,
        updated_at = i.updated_at
    FROM issues i
    WHERE i.id = new.issue_id AND issue_labels.issue_id = new.issue_id AND issue_labels.label_id = new.label_id;
END;
-- Keeps `updated_at` in `issue_labels` up to date. A separate trigger, because most updates of an issue change no other
-- copied column.
CREATE TRIGGER issue_labels_touched AFTER UPDATE OF updated_at ON issues BEGIN
    UPDATE issue_labels SET updated_at = new.updated_at WHERE issue_id = new.id;
END;
-- Keeps the other copied columns up to date.
CREATE TRIGGER issue_labels_refilled AFTER UPDATE OF closed, confidential, milestone_id, created_at ON issues BEGIN
    UPDATE issue_labels SET
        closed = new.closed,
        confidential = new.confidential,
        milestone_id = new.milestone_id,
        created_at = new.created_at
    WHERE issue_id = new.id;
END;

-- The explicit choice of a user to subscribe to an issue or not. Without a row, the author, the assignee and the
-- authors of notes are subscribed.
CREATE TABLE issue_subscriptions (
    issue_id INTEGER NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    subscribed INTEGER NOT NULL,
    PRIMARY KEY (issue_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX issue_subscriptions_user_idx ON issue_subscriptions (user_id, issue_id);

CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    issue_id INTEGER NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
    author_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    updated_by_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    body TEXT NOT NULL,
    -- Whether the server wrote the note to record a change.
    system INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX notes_issue_idx ON notes (issue_id, id, system, author_id);
CREATE INDEX notes_project_idx ON notes (project_id, id);
CREATE INDEX notes_author_idx ON notes (author_id, issue_id, system) WHERE author_id IS NOT NULL;
CREATE INDEX notes_updater_idx ON notes (updated_by_id) WHERE updated_by_id IS NOT NULL;

-- The issue counters of a project: the last numbers assigned, and the numbers of issues, which triggers keep up to
-- date. Concurrent changes to the issues of a project lock this row.
CREATE TABLE issue_books (
    project_id INTEGER PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    last_issue INTEGER NOT NULL DEFAULT 0,
    last_milestone INTEGER NOT NULL DEFAULT 0,
    open_issues INTEGER NOT NULL DEFAULT 0,
    closed_issues INTEGER NOT NULL DEFAULT 0,
    open_confidential INTEGER NOT NULL DEFAULT 0,
    closed_confidential INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TRIGGER issues_counted AFTER INSERT ON issues BEGIN
    UPDATE issue_books SET
        open_issues = open_issues + (1 - new.closed),
        closed_issues = closed_issues + new.closed,
        open_confidential = open_confidential + (new.confidential AND NOT new.closed),
        closed_confidential = closed_confidential + (new.confidential AND new.closed)
    WHERE project_id = new.project_id;
END;
-- Keeps `issue_books` and the counters of labels up to date. Runs before the delete, because the trigger on
-- `issue_labels` reads the issue.
CREATE TRIGGER issues_uncounted BEFORE DELETE ON issues BEGIN
    DELETE FROM issue_labels WHERE issue_id = old.id;
    UPDATE issue_books SET
        open_issues = open_issues - (1 - old.closed),
        closed_issues = closed_issues - old.closed,
        open_confidential = open_confidential - (old.confidential AND NOT old.closed),
        closed_confidential = closed_confidential - (old.confidential AND old.closed)
    WHERE project_id = old.project_id;
END;
CREATE TRIGGER issues_recounted AFTER UPDATE OF closed, confidential ON issues
WHEN old.closed <> new.closed OR old.confidential <> new.confidential BEGIN
    UPDATE issue_books SET
        open_issues = open_issues + (1 - new.closed) - (1 - old.closed),
        closed_issues = closed_issues + new.closed - old.closed,
        open_confidential = open_confidential + (new.confidential AND NOT new.closed)
            - (old.confidential AND NOT old.closed),
        closed_confidential = closed_confidential + (new.confidential AND new.closed)
            - (old.confidential AND old.closed)
    WHERE project_id = new.project_id;
    UPDATE labels SET
        open_issues = open_issues + (1 - new.closed) - (1 - old.closed),
        closed_issues = closed_issues + new.closed - old.closed,
        open_confidential = open_confidential + (new.confidential AND NOT new.closed)
            - (old.confidential AND NOT old.closed),
        closed_confidential = closed_confidential + (new.confidential AND new.closed)
            - (old.confidential AND old.closed)
    WHERE id IN (SELECT label_id FROM issue_labels WHERE issue_id = new.id);
END;
CREATE TRIGGER labels_counted AFTER INSERT ON issue_labels BEGIN
    UPDATE labels SET
        open_issues = labels.open_issues + (1 - i.closed),
        closed_issues = labels.closed_issues + i.closed,
        open_confidential = labels.open_confidential + (i.confidential AND NOT i.closed),
        closed_confidential = labels.closed_confidential + (i.confidential AND i.closed)
    FROM issues i WHERE i.id = new.issue_id AND labels.id = new.label_id;
END;
CREATE TRIGGER labels_uncounted AFTER DELETE ON issue_labels BEGIN
    UPDATE labels SET
        open_issues = labels.open_issues - (1 - i.closed),
        closed_issues = labels.closed_issues - i.closed,
        open_confidential = labels.open_confidential - (i.confidential AND NOT i.closed),
        closed_confidential = labels.closed_confidential - (i.confidential AND i.closed)
    FROM issues i WHERE i.id = old.issue_id AND labels.id = old.label_id;
END;
CREATE TRIGGER notes_counted AFTER INSERT ON notes WHEN NOT new.system BEGIN
    UPDATE issues SET user_notes = user_notes + 1 WHERE id = new.issue_id;
END;
-- Does not update the counter in a soft-deleted project, whose rows are all being deleted.
CREATE TRIGGER notes_uncounted AFTER DELETE ON notes WHEN NOT old.system BEGIN
    UPDATE issues SET user_notes = user_notes - 1
    WHERE id = old.issue_id AND EXISTS (SELECT 1 FROM projects p WHERE p.id = old.project_id AND p.deleted_at IS NULL);
END;

-- The issue board of a project; each project has exactly one.
CREATE TABLE boards (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX boards_key ON boards (project_id);
CREATE TABLE board_lists (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    board_id INTEGER NOT NULL REFERENCES boards (id) ON DELETE CASCADE,
    label_id INTEGER NOT NULL REFERENCES labels (id) ON DELETE CASCADE,
    -- The position among the lists that are not deleted, from 0 and without gaps.
    position INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER
) STRICT;
CREATE INDEX board_lists_idx ON board_lists (board_id, position) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX board_lists_key ON board_lists (board_id, label_id) WHERE deleted_at IS NULL;
CREATE INDEX board_lists_label_idx ON board_lists (label_id);

INSERT INTO issue_books (project_id) SELECT id FROM projects;
INSERT INTO boards (project_id, created_at) SELECT id, created_at FROM projects;
-- Adds the issue counters and the board of a new project.
CREATE TRIGGER projects_furnished AFTER INSERT ON projects BEGIN
    INSERT INTO issue_books (project_id) VALUES (new.id);
    INSERT INTO boards (project_id, created_at) VALUES (new.id, new.created_at);
END;

-- The target of an event. The event is deleted with it, and is hidden from users who cannot see its confidential issue.
ALTER TABLE events ADD COLUMN issue_id INTEGER REFERENCES issues (id) ON DELETE CASCADE;
ALTER TABLE events ADD COLUMN note_id INTEGER REFERENCES notes (id) ON DELETE CASCADE;
ALTER TABLE events ADD COLUMN milestone_id INTEGER REFERENCES milestones (id) ON DELETE CASCADE;
CREATE INDEX events_issue_idx ON events (issue_id, author_id, project_id) WHERE issue_id IS NOT NULL;
CREATE INDEX events_note_idx ON events (note_id) WHERE note_id IS NOT NULL;
CREATE INDEX events_milestone_idx ON events (milestone_id) WHERE milestone_id IS NOT NULL;

-- A mention of an issue in a commit message, stored until its push is complete.
CREATE TABLE intent_mentions (
    intent_id INTEGER NOT NULL REFERENCES ref_intents (id) ON DELETE CASCADE,
    -- The order of the mentions.
    position INTEGER NOT NULL,
    issue_id INTEGER NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
    sha TEXT NOT NULL,
    -- Whether the commit closes the issue, or only mentions it.
    closes INTEGER NOT NULL,
    PRIMARY KEY (intent_id, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX intent_mentions_issue_idx ON intent_mentions (issue_id);
