-- CI: runners, variables, triggers, pipelines, jobs and artifacts.

-- The seed that an instance-wide token is derived from.
CREATE TABLE instance_seeds (
    name TEXT PRIMARY KEY,
    seed BLOB NOT NULL
) STRICT;

CREATE TABLE runners (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The seed that the token is derived from, and the digest that identifies the token.
    seed BLOB NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    description TEXT NOT NULL,
    active INTEGER NOT NULL,
    is_shared INTEGER NOT NULL,
    run_untagged INTEGER NOT NULL,
    -- Whether the runner cannot be enabled for further projects.
    locked INTEGER NOT NULL,
    -- One tag per line.
    tags TEXT NOT NULL,
    -- In seconds.
    maximum_timeout INTEGER,
    -- Details that the runner reports about itself.
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

-- The digest that identifies the runner registration token of a project. It depends on the instance key, so the server
-- computes missing digests when it looks up a token.
ALTER TABLE projects ADD COLUMN runners_digest BLOB;
CREATE UNIQUE INDEX projects_runners_digest_idx ON projects (runners_digest);
CREATE INDEX projects_without_runners_digest_idx ON projects (id) WHERE runners_digest IS NULL;

CREATE TABLE ci_variables (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    -- Encrypted.
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
    -- The short name of the branch or the tag.
    ref_name TEXT NOT NULL,
    tag INTEGER NOT NULL,
    sha TEXT NOT NULL,
    before_sha TEXT,
    source TEXT NOT NULL CHECK (source IN ('push', 'api', 'trigger', 'external')),
    status TEXT NOT NULL
        CHECK (status IN ('created', 'pending', 'running', 'success', 'failed', 'canceled', 'skipped', 'manual')),
    yaml_errors TEXT,
    -- The names of the stages in order, one per line.
    stages TEXT NOT NULL,
    user_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    trigger_id INTEGER REFERENCES ci_triggers (id) ON DELETE SET NULL,
    -- The variables passed by the trigger, encrypted.
    variables BLOB,
    -- The push that creates the pipeline, until it is complete; the pipeline is hidden until then.
    intent_id INTEGER REFERENCES ref_intents (id) ON DELETE CASCADE,
    -- The jobs to insert once the push is complete, in the format of the planner.
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

-- The specification of a job, in the format of the planner. A retry has the same specification.
CREATE TABLE build_specs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    spec TEXT NOT NULL
) STRICT;
CREATE INDEX build_specs_project_idx ON build_specs (project_id);

-- A CI job, or a commit status reported by an external service. The code and the documentation call it a job; the table
-- `jobs` holds background tasks.
CREATE TABLE builds (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    pipeline_id INTEGER NOT NULL REFERENCES pipelines (id) ON DELETE CASCADE,
    -- 0 a job, 1 a commit status reported by an external service.
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    stage TEXT NOT NULL,
    stage_index INTEGER NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('created', 'pending', 'running', 'success', 'failed', 'canceled', 'skipped', 'manual')),
    start_when TEXT NOT NULL,
    allow_failure INTEGER NOT NULL,
    -- Whether a later job of the same name replaces this one.
    retried INTEGER NOT NULL DEFAULT 0,
    -- The number of automatic retries before this job.
    attempt INTEGER NOT NULL DEFAULT 0,
    user_id INTEGER REFERENCES users (id) ON DELETE SET NULL,
    runner_id INTEGER REFERENCES runners (id) ON DELETE SET NULL,
    spec_id INTEGER REFERENCES build_specs (id),
    -- The names of the jobs that it needs, one per line; null stands for all earlier stages.
    needs TEXT,
    -- The tags that a runner must have, one per line.
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
-- A job request of a runner selects by project and tags first, then the oldest job.
CREATE INDEX builds_pending_idx ON builds (project_id, tags, id) WHERE status = 'pending' AND kind = 0;
CREATE INDEX builds_running_idx ON builds (project_id, runner_id) WHERE status = 'running' AND kind = 0;
CREATE INDEX builds_user_idx ON builds (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX builds_runner_idx ON builds (runner_id) WHERE runner_id IS NOT NULL;
CREATE INDEX builds_spec_idx ON builds (spec_id) WHERE spec_id IS NOT NULL;

-- The state of a job that a runner has taken.
CREATE TABLE build_runs (
    build_id INTEGER PRIMARY KEY REFERENCES builds (id) ON DELETE CASCADE,
    -- The seed that the job token is derived from, and the digest that identifies the token. The token is valid only
    -- while the job is running.
    seed BLOB NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    taken_at INTEGER NOT NULL,
    -- When the runner last sent an update about the job; null until the first one.
    heard_at INTEGER,
    -- The size of the trace on disk in bytes, and how many bytes at its end are withheld from readers because they may
    -- be the beginning of a secret.
    trace_size INTEGER NOT NULL DEFAULT 0,
    trace_held INTEGER NOT NULL DEFAULT 0,
    -- The values to mask in the trace, as they were when the runner took the job; encrypted.
    secrets BLOB
) STRICT;

-- A file uploaded by a job. The row is inserted before the file is written and deleted after the file is removed.
CREATE TABLE build_artifacts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id INTEGER NOT NULL REFERENCES projects (id),
    build_id INTEGER NOT NULL,
    -- `archive`, or another type sent by the runner.
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Null until the upload is complete.
    size INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;
CREATE INDEX build_artifacts_build_idx ON build_artifacts (build_id, kind);
CREATE INDEX build_artifacts_project_idx ON build_artifacts (project_id, id);
CREATE INDEX build_artifacts_expiry_idx ON build_artifacts (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX build_artifacts_begun_idx ON build_artifacts (created_at) WHERE size IS NULL;

-- Moves the commit statuses of external services to pipelines.
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
