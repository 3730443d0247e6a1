-- Times are INTEGER microseconds since the Unix epoch, UTC. Hashes are "sha256:<hex>", checksums plain hex.

CREATE TABLE gateway (
  id         TEXT    NOT NULL PRIMARY KEY,   -- also in <runs_dir>/.gateway-id
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE policies (
  policy_hash TEXT    NOT NULL PRIMARY KEY CHECK (policy_hash GLOB 'sha256:*'),
  snapshot    TEXT    NOT NULL,              -- canonical JSON
  created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE param_sets (
  params_hash TEXT    NOT NULL PRIMARY KEY CHECK (params_hash GLOB 'sha256:*'),
  params      TEXT    NOT NULL,              -- canonical JSON, stored once (ARC-04)
  created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE artifacts (
  artifact_id TEXT    NOT NULL PRIMARY KEY CHECK (artifact_id GLOB 'art_*'),
  project_id  TEXT    NOT NULL CHECK (project_id GLOB 'proj_*'),
  sha256      TEXT    NOT NULL CHECK (length(sha256) = 64),
  type        TEXT    NOT NULL,
  label       TEXT    NOT NULL,
  size_bytes  INTEGER NOT NULL CHECK (size_bytes >= 0),
  source      TEXT    NOT NULL,              -- 'import' or the run that made it
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX artifacts_project ON artifacts (project_id, created_at, artifact_id);
CREATE INDEX artifacts_sha256  ON artifacts (sha256);

-- One row for one identity. state and phase are one machine; ledger/state_test.go walks it.
CREATE TABLE runs (
  run_id           TEXT    NOT NULL PRIMARY KEY CHECK (run_id GLOB 'run_*'),
  rev              INTEGER NOT NULL CHECK (rev >= 1),
  tool_id          TEXT    NOT NULL,
  tool_name        TEXT    NOT NULL,
  tool_version     TEXT    NOT NULL,
  contract_version TEXT    NOT NULL,
  pack_hash        TEXT    NOT NULL,
  policy_hash      TEXT    NOT NULL REFERENCES policies,
  params_hash      TEXT    NOT NULL REFERENCES param_sets,
  plan_hash        TEXT    NOT NULL,
  project_id       TEXT    NOT NULL,
  actor            TEXT    NOT NULL,
  state            TEXT    NOT NULL,
  phase            TEXT    NOT NULL,
  reason           TEXT    NOT NULL,
  detail           TEXT    NOT NULL,
  attempt_n        INTEGER NOT NULL CHECK (attempt_n >= 1),
  warnings         TEXT    NOT NULL,         -- JSON array of strings
  exit_code        INTEGER,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  finished_at      INTEGER,
  cancel_at        INTEGER,
  cancel_reason    TEXT    NOT NULL,
  result_json      TEXT,
  log_artifact_id    TEXT REFERENCES artifacts,
  script_artifact_id TEXT REFERENCES artifacts,
  CHECK ((state = 'queued'  AND phase IN ('staging','submitting','unconfirmed','deferred','pending'))
      OR (state = 'running' AND phase IN ('running','completing','collecting'))
      OR (state = 'blocked' AND phase IN ('needs_operator','workspace_ahead_of_ledger','outputs_late'))
      OR (state IN ('succeeded','failed','cancelled') AND phase = 'done')),
  CHECK ((phase = 'done') = (finished_at IS NOT NULL)),
  CHECK (state <> 'succeeded' OR (result_json IS NOT NULL AND exit_code IS 0)),   -- IS: with = a missing code would pass
  CHECK (state <> 'blocked' OR reason <> '')
) STRICT;
CREATE INDEX runs_plan    ON runs (plan_hash);
CREATE INDEX runs_created ON runs (created_at, run_id);
CREATE INDEX runs_open    ON runs (phase, created_at) WHERE phase <> 'done';

-- A finished run stays as it is, unless a new attempt was decided on.
CREATE TRIGGER runs_terminal BEFORE UPDATE ON runs
WHEN OLD.phase = 'done' AND (NEW.phase = 'done' OR NEW.attempt_n <> OLD.attempt_n + 1)
BEGIN SELECT RAISE(ABORT, 'a finished run changes only by a new attempt'); END;
CREATE TRIGGER runs_identity BEFORE UPDATE ON runs
WHEN (NEW.run_id, NEW.tool_id, NEW.tool_name, NEW.tool_version, NEW.contract_version, NEW.pack_hash, NEW.policy_hash, NEW.params_hash, NEW.plan_hash, NEW.project_id, NEW.created_at)
  IS NOT (OLD.run_id, OLD.tool_id, OLD.tool_name, OLD.tool_version, OLD.contract_version, OLD.pack_hash, OLD.policy_hash, OLD.params_hash, OLD.plan_hash, OLD.project_id, OLD.created_at)
BEGIN SELECT RAISE(ABORT, 'what a run is the same by never changes'); END;
CREATE TRIGGER runs_rev BEFORE UPDATE ON runs WHEN NEW.rev <> OLD.rev + 1
BEGIN SELECT RAISE(ABORT, 'a run changes by compare-and-swap'); END;
CREATE TRIGGER runs_keep BEFORE DELETE ON runs
BEGIN SELECT RAISE(ABORT, 'runs are never deleted'); END;

-- What is sent to Slurm: for one attempt, later for many as a job array.
CREATE TABLE submissions (
  token        TEXT    NOT NULL PRIMARY KEY CHECK (length(token) = 32),
  job_name     TEXT    NOT NULL UNIQUE,
  script_sha   TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  cluster      TEXT    NOT NULL,
  job_id       TEXT    NOT NULL,             -- '' until known
  submitted_at INTEGER,                      -- Slurm's own
  sluid        TEXT    NOT NULL
) STRICT;

CREATE TABLE attempts (
  run_id      TEXT    NOT NULL REFERENCES runs,
  n           INTEGER NOT NULL CHECK (n >= 1),
  token       TEXT    REFERENCES submissions,
  array_task  INTEGER,
  created_at  INTEGER NOT NULL,
  slurm_state TEXT    NOT NULL,
  slurm_why   TEXT    NOT NULL,
  node        TEXT    NOT NULL,
  observed_at INTEGER,
  started_at  INTEGER,
  ended_at    INTEGER,
  missed_at   INTEGER,
  ending      TEXT    NOT NULL,              -- '' while it may still execute
  exit_code   INTEGER,
  usage       TEXT,
  PRIMARY KEY (run_id, n),
  UNIQUE (token, array_task)
) STRICT;

CREATE TABLE sends (
  token      TEXT    NOT NULL REFERENCES submissions,
  k          INTEGER NOT NULL CHECK (k >= 1),
  started_at INTEGER NOT NULL,
  ended_at   INTEGER,
  outcome    TEXT    NOT NULL CHECK (outcome IN ('','accepted','rejected','deferred','doubt','not_run')),
  exit_code  INTEGER,
  text       TEXT    NOT NULL,
  PRIMARY KEY (token, k)
) STRICT;

CREATE TABLE run_inputs (
  run_id      TEXT NOT NULL REFERENCES runs,
  role        TEXT NOT NULL,
  artifact_id TEXT NOT NULL REFERENCES artifacts,
  relpath     TEXT NOT NULL,
  PRIMARY KEY (run_id, relpath)
) STRICT;

CREATE TABLE run_outputs (
  run_id      TEXT    NOT NULL REFERENCES runs,
  role        TEXT    NOT NULL,
  artifact_id TEXT    NOT NULL REFERENCES artifacts,
  relpath     TEXT    NOT NULL,
  attempt_n   INTEGER NOT NULL,
  PRIMARY KEY (run_id, attempt_n, role)
) STRICT;
CREATE INDEX run_inputs_artifact  ON run_inputs (artifact_id);
CREATE INDEX run_outputs_artifact ON run_outputs (artifact_id);

-- The history. hash = SHA-256(prev_hash + canonical {at, data, run_id, seq, type}).
CREATE TABLE events (
  seq       INTEGER NOT NULL PRIMARY KEY,
  at        INTEGER NOT NULL,
  type      TEXT    NOT NULL,
  run_id    TEXT    NOT NULL,                -- '' when it is about no run
  data      TEXT    NOT NULL,                -- canonical JSON
  prev_hash TEXT    NOT NULL,
  hash      TEXT    NOT NULL
) STRICT;
CREATE INDEX events_run ON events (run_id, seq);
CREATE TRIGGER events_keep BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
CREATE TRIGGER events_fixed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events never change'); END;
