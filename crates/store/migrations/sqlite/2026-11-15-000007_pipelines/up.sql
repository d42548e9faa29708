-- Pipelines: what is built of a commit, who builds it, and what comes of it.

-- From what tokens of the instance are made.
CREATE TABLE instance_seeds (
    name TEXT PRIMARY KEY,
    seed BLOB NOT NULL
) STRICT;

CREATE TABLE runners (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- From what its token is made, and how the token is recognised.
    seed BLOB NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    description TEXT NOT NULL,
    active INTEGER NOT NULL,
    is_shared INTEGER NOT NULL,
    run_untagged INTEGER NOT NULL,
    -- A locked one joins no further projects.
    locked INTEGER NOT NULL,
    -- One in each line.
    tags TEXT NOT NULL,
    -- In seconds.
    maximum_timeout INTEGER,
    -- What it says about itself.
    name TEXT,
    version TEXT,
    revision TEXT,
    platform TEXT,
    architecture TEXT,
    contacted_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE runner_projects (
    runner_id INTEGER NOT NULL REFERENCES runners (id) ON DELETE CASCADE,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (runner_id, project_id)
) STRICT;
CREATE INDEX runner_projects_project_idx ON runner_projects (project_id, runner_id);

-- How the token is recognised with which runners join a project. Whoever looks for one fills in what is missing, because
-- it takes the key of the instance.
ALTER TABLE projects ADD COLUMN runners_digest BLOB;
CREATE UNIQUE INDEX projects_runners_digest_idx ON projects (runners_digest);
CREATE INDEX projects_without_runners_digest_idx ON projects (id) WHERE runners_digest IS NULL;

CREATE TABLE ci_variables (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    -- Sealed.
    value BLOB NOT NULL,
    UNIQUE (project_id, key)
) STRICT;

CREATE TABLE ci_triggers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    seed BLOB NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_used INTEGER
) STRICT;
CREATE INDEX ci_triggers_project_idx ON ci_triggers (project_id, id);

CREATE TABLE pipelines (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    -- The branch or the tag, as people say it.
    ref_name TEXT NOT NULL,
    tag INTEGER NOT NULL,
    sha TEXT NOT NULL,
    before_sha TEXT,
    source TEXT NOT NULL CHECK (source IN ('push', 'api', 'trigger', 'external')),
    status TEXT NOT NULL
        CHECK (status IN ('created', 'pending', 'running', 'success', 'failed', 'canceled', 'skipped', 'manual')),
    yaml_errors TEXT,
    -- One in each line, in order.
    stages TEXT NOT NULL,
    user_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    trigger_id INTEGER REFERENCES ci_triggers (id) ON DELETE SET NULL,
    -- What a trigger gave along, sealed.
    variables BLOB,
    -- The push that it is part of, until that has happened.
    intent_id INTEGER REFERENCES ref_intents (id) ON DELETE CASCADE,
    -- What will be built, until the push has happened.
    plan TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    -- In seconds.
    duration INTEGER
) STRICT;
CREATE INDEX pipelines_project_idx ON pipelines (project_id, id) WHERE intent_id IS NULL;
CREATE INDEX pipelines_commit_idx ON pipelines (project_id, sha, id) WHERE intent_id IS NULL;
CREATE INDEX pipelines_ref_idx ON pipelines (project_id, ref_name, tag, id) WHERE intent_id IS NULL;
CREATE INDEX pipelines_active_idx ON pipelines (project_id, id)
    WHERE intent_id IS NULL AND status IN ('pending', 'running');
CREATE INDEX pipelines_intent_idx ON pipelines (intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX pipelines_user_idx ON pipelines (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX pipelines_trigger_idx ON pipelines (trigger_id) WHERE trigger_id IS NOT NULL;

-- What a job does, in the notation of the planner; a job that is tried again does the same.
CREATE TABLE build_specs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    spec TEXT NOT NULL
) STRICT;
CREATE INDEX build_specs_project_idx ON build_specs (project_id);

CREATE TABLE builds (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    pipeline_id INTEGER NOT NULL REFERENCES pipelines (id) ON DELETE CASCADE,
    -- 0 a job of ours, 1 what others found out about the commit.
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    stage TEXT NOT NULL,
    stage_index INTEGER NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('created', 'pending', 'running', 'success', 'failed', 'canceled', 'skipped', 'manual')),
    start_when TEXT NOT NULL,
    allow_failure INTEGER NOT NULL,
    -- A later one of the same name counts instead.
    retried INTEGER NOT NULL DEFAULT 0,
    -- How often it was tried before without anybody asking.
    attempt INTEGER NOT NULL DEFAULT 0,
    user_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    runner_id INTEGER REFERENCES runners (id) ON DELETE SET NULL,
    spec_id INTEGER REFERENCES build_specs (id),
    -- The names of those that it waits for, one in each line; null is all earlier stages.
    needs TEXT,
    -- What a runner must have, one in each line.
    tags TEXT NOT NULL DEFAULT '',
    -- In seconds.
    timeout INTEGER,
    coverage REAL,
    failure_reason TEXT,
    target_url TEXT,
    description TEXT,
    created_at INTEGER NOT NULL,
    queued_at INTEGER,
    started_at INTEGER,
    finished_at INTEGER,
    erased_at INTEGER
) STRICT;
CREATE INDEX builds_project_idx ON builds (project_id, id) WHERE kind = 0;
CREATE INDEX builds_status_idx ON builds (project_id, status, id) WHERE kind = 0;
CREATE INDEX builds_pipeline_idx ON builds (pipeline_id, id);
-- Runners look for projects and tags first, and for jobs then.
CREATE INDEX builds_pending_idx ON builds (project_id, tags, id) WHERE status = 'pending' AND kind = 0;
CREATE INDEX builds_running_idx ON builds (project_id, runner_id) WHERE status = 'running' AND kind = 0;
CREATE INDEX builds_user_idx ON builds (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX builds_runner_idx ON builds (runner_id) WHERE runner_id IS NOT NULL;
CREATE INDEX builds_spec_idx ON builds (spec_id) WHERE spec_id IS NOT NULL;

-- What only matters once a runner has taken a job.
CREATE TABLE build_runs (
    build_id INTEGER PRIMARY KEY REFERENCES builds (id) ON DELETE CASCADE,
    -- From what the token of the job is made, and how it is recognised; it opens something only while the job runs.
    seed BLOB NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    taken_at INTEGER NOT NULL,
    -- When the runner was last heard of the job; null until then.
    heard_at INTEGER,
    -- How many bytes of the trace are on disk, and how many of them at the end nobody sees yet, because they may be
    -- the beginning of a secret.
    trace_size INTEGER NOT NULL DEFAULT 0,
    trace_held INTEGER NOT NULL DEFAULT 0,
    -- What the job must not say, as it was when it was given away; sealed.
    secrets BLOB
) STRICT;

-- Files that jobs leave behind. A row comes before its file and goes after it.
CREATE TABLE build_artifacts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id),
    build_id INTEGER NOT NULL,
    -- archive, or what else a runner sends.
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Null until the file is whole.
    size INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;
CREATE INDEX build_artifacts_build_idx ON build_artifacts (build_id, kind);
CREATE INDEX build_artifacts_project_idx ON build_artifacts (project_id, id);
CREATE INDEX build_artifacts_expiry_idx ON build_artifacts (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX build_artifacts_begun_idx ON build_artifacts (created_at) WHERE size IS NULL;

-- What others found out about commits belongs to pipelines from now on.
INSERT INTO pipelines (project_id, ref_name, tag, sha, source, status, stages, created_at, updated_at)
SELECT project_id, ref_name, 0, sha, 'external',
       CASE WHEN SUM(status IN ('pending', 'running')) > 0 THEN 'running'
            WHEN SUM(status = 'failed') > 0 THEN 'failed'
            WHEN SUM(status = 'canceled') > 0 THEN 'canceled'
            ELSE 'success' END,
       'external', MIN(created_at), MAX(COALESCE(finished_at, started_at, created_at))
FROM commit_statuses s
WHERE NOT EXISTS (SELECT 1 FROM commit_statuses later WHERE later.project_id = s.project_id AND later.sha = s.sha
                  AND later.ref_name = s.ref_name AND later.name = s.name AND later.id > s.id)
GROUP BY project_id, sha, ref_name
ORDER BY MIN(id);

INSERT INTO builds (id, project_id, pipeline_id, kind, name, stage, stage_index, status, start_when, allow_failure,
                    retried, user_id, target_url, description, created_at, started_at, finished_at)
SELECT s.id, s.project_id, p.id, 1, s.name, 'external', 1000000, s.status, 'on_success', s.allow_failure,
       EXISTS (SELECT 1 FROM commit_statuses later WHERE later.project_id = s.project_id AND later.sha = s.sha
               AND later.ref_name = s.ref_name AND later.name = s.name AND later.id > s.id),
       s.author_id, s.target_url, s.description, s.created_at, s.started_at, s.finished_at
FROM commit_statuses s
JOIN pipelines p ON p.project_id = s.project_id AND p.sha = s.sha AND p.ref_name = s.ref_name;

DROP TABLE commit_statuses;
