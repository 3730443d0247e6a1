-- The ledger's schema. Times are INTEGER microseconds since the Unix epoch, UTC. Hashes are "sha256:<hex>", checksums plain hex.

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
  created_at  INTEGER NOT NULL,
  -- An artifact whose bytes were removed keeps its row: what it was stays known, and the same bytes imported again bring it back.
  used_at    INTEGER,  -- imported again; NULL: only at created_at
  removed_at INTEGER,  -- its bytes may be gone
  erased TEXT REFERENCES deletions, -- its bytes held a secret and are gone; removed_at is set too
  -- Whose an artifact is, as spent has callers: who imported it, whose call made the gateway store it, or whose run made it. Of several who
  -- store the same artifact the first one counts, until it is removed.
  caller TEXT NOT NULL DEFAULT '',
  removal TEXT REFERENCES deletions -- removed_at is set too
) STRICT;
CREATE INDEX artifacts_project ON artifacts (project_id, created_at, type) WHERE removed_at IS NULL;
CREATE INDEX artifacts_sha256  ON artifacts (sha256);
-- The times at which artifacts were registered are all different and grow, so that "created up to then" names a set that stays the same (ARC-05).
CREATE INDEX artifacts_created ON artifacts (created_at, removed_at, type);
CREATE INDEX artifacts_imports ON artifacts (created_at) WHERE removed_at IS NULL AND source = 'import';
CREATE INDEX artifacts_erased ON artifacts (sha256) WHERE erased IS NOT NULL;
CREATE INDEX artifacts_type    ON artifacts (type, created_at) WHERE removed_at IS NULL;
CREATE TRIGGER artifacts_referenced BEFORE UPDATE OF removed_at ON artifacts
WHEN NEW.removed_at IS NOT NULL AND NEW.removal IS NULL AND (OLD.source <> 'import'
  OR EXISTS (SELECT 1 FROM run_inputs i WHERE i.artifact_id = OLD.artifact_id) OR EXISTS (SELECT 1 FROM run_outputs o WHERE o.artifact_id = OLD.artifact_id))
BEGIN SELECT RAISE(ABORT, 'a run refers to the artifact'); END;
CREATE TRIGGER artifacts_keep BEFORE DELETE ON artifacts
BEGIN SELECT RAISE(ABORT, 'artifacts are marked as removed, never deleted'); END;
CREATE TRIGGER artifacts_use_new AFTER INSERT ON artifacts WHEN NEW.removed_at IS NULL
BEGIN
  INSERT INTO project_use VALUES (NEW.project_id, 1, NEW.source = 'import', iif(NEW.source GLOB 'reference *', 0, NEW.size_bytes))
  ON CONFLICT DO UPDATE SET artifacts = artifacts + 1, imports = imports + excluded.imports, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER artifacts_use_left AFTER UPDATE OF removed_at, size_bytes ON artifacts WHEN OLD.removed_at IS NULL
BEGIN
  UPDATE project_use SET artifacts = artifacts - 1, imports = imports - (OLD.source = 'import'),
    bytes = bytes - iif(OLD.source GLOB 'reference *', 0, OLD.size_bytes) WHERE project_id = OLD.project_id;
END;
CREATE TRIGGER artifacts_use_back AFTER UPDATE OF removed_at, size_bytes ON artifacts WHEN NEW.removed_at IS NULL
BEGIN
  UPDATE project_use SET artifacts = artifacts + 1, imports = imports + (NEW.source = 'import'),
    bytes = bytes + iif(NEW.source GLOB 'reference *', 0, NEW.size_bytes) WHERE project_id = NEW.project_id;
END;
CREATE TRIGGER artifacts_caller_new AFTER INSERT ON artifacts WHEN NEW.removed_at IS NULL AND NEW.caller <> ''
BEGIN
  INSERT INTO caller_use VALUES (NEW.caller, 1, NEW.size_bytes)
  ON CONFLICT DO UPDATE SET artifacts = artifacts + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER artifacts_caller_left AFTER UPDATE OF removed_at, size_bytes, caller ON artifacts WHEN OLD.removed_at IS NULL AND OLD.caller <> ''
BEGIN
  UPDATE caller_use SET artifacts = artifacts - 1, bytes = bytes - OLD.size_bytes WHERE caller = OLD.caller;
END;
CREATE TRIGGER artifacts_caller_back AFTER UPDATE OF removed_at, size_bytes, caller ON artifacts WHEN NEW.removed_at IS NULL AND NEW.caller <> ''
BEGIN
  INSERT INTO caller_use VALUES (NEW.caller, 1, NEW.size_bytes)
  ON CONFLICT DO UPDATE SET artifacts = artifacts + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER artifacts_needed BEFORE UPDATE OF removed_at ON artifacts
WHEN NEW.removed_at IS NOT NULL AND NEW.removal IS NOT NULL
  AND EXISTS (SELECT 1 FROM run_inputs i JOIN runs r ON r.run_id = i.run_id WHERE i.artifact_id = OLD.artifact_id AND r.phase <> 'done')
BEGIN SELECT RAISE(ABORT, 'a run in flight needs the artifact'); END;
CREATE TRIGGER artifacts_waited BEFORE UPDATE OF removed_at ON artifacts
WHEN NEW.removed_at IS NOT NULL AND NEW.removal IS NULL
  AND EXISTS (SELECT 1 FROM waiting_artifacts w JOIN runs r ON r.run_id = w.run_id WHERE w.artifact_id = OLD.artifact_id AND r.phase <> 'done')
BEGIN SELECT RAISE(ABORT, 'a waiting run needs the artifact'); END;
CREATE TRIGGER artifacts_count_new AFTER INSERT ON artifacts WHEN NEW.removed_at IS NULL
BEGIN
  INSERT INTO artifact_counts VALUES (NEW.project_id, NEW.type, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER artifacts_count_moved AFTER UPDATE OF removed_at ON artifacts WHEN (OLD.removed_at IS NULL) <> (NEW.removed_at IS NULL)
BEGIN
  UPDATE artifact_counts SET n = n + iif(NEW.removed_at IS NULL, 1, -1) WHERE project_id = NEW.project_id AND type = NEW.type;
END;

-- One row for one identity. state and phase are one machine; ledger/state_test.go walks it. A run that waits for outputs of others has a row in waits
-- too, until it has started: then an alias takes the place of its row.
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
  site TEXT NOT NULL DEFAULT '',
  -- Whose call made a run.
  principal TEXT NOT NULL DEFAULT '',    -- name
  principal_id TEXT NOT NULL DEFAULT '', -- prn_…, '' where no ledger gives ids
  -- The Unix user of the cluster that a run is executed as, where its site has run_as: caller. '' for runs of the gateway's own user.
  executed_as TEXT NOT NULL DEFAULT '',
  CHECK ((state = 'queued'  AND phase IN ('waiting_for_inputs','staging','submitting','unconfirmed','deferred','pending'))
      OR (state = 'running' AND phase IN ('running','completing','collecting'))
      OR (state = 'blocked' AND phase IN ('needs_operator','workspace_ahead_of_ledger','outputs_late'))
      OR (state IN ('succeeded','failed','cancelled') AND phase = 'done')),
  CHECK ((phase = 'done') = (finished_at IS NOT NULL)),
  CHECK (state <> 'succeeded' OR (result_json IS NOT NULL AND exit_code IS 0)),   -- IS: with = a missing code would pass
  CHECK (state <> 'blocked' OR reason <> '')
) STRICT;
CREATE INDEX runs_plan    ON runs (plan_hash);
CREATE INDEX runs_created ON runs (created_at, run_id);
CREATE INDEX runs_open ON runs (site, phase, created_at) WHERE phase <> 'done';
CREATE INDEX runs_waiting ON runs (project_id) WHERE phase = 'waiting_for_inputs';
-- Lists of runs by state, by tool and by project, newest first, walk an index and cost what they show. Without them a list of few runs among a
-- million reads them all.
CREATE INDEX runs_state ON runs (state, created_at, run_id, tool_id, project_id);
CREATE INDEX runs_tool    ON runs (tool_id, created_at, run_id);
CREATE INDEX runs_project ON runs (project_id, created_at, run_id);
CREATE INDEX runs_finished     ON runs (finished_at, run_id) WHERE phase = 'done';
CREATE INDEX runs_log          ON runs (log_artifact_id) WHERE log_artifact_id IS NOT NULL;
CREATE INDEX runs_script       ON runs (script_artifact_id) WHERE script_artifact_id IS NOT NULL;
-- A finished run stays as it is, unless a new attempt was decided on.
CREATE TRIGGER runs_terminal BEFORE UPDATE OF run_id, rev, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash, project_id, actor,
  state, phase, reason, detail, attempt_n, warnings, exit_code, created_at, updated_at, finished_at, cancel_at, cancel_reason, result_json, log_artifact_id, script_artifact_id ON runs
WHEN OLD.phase = 'done' AND (NEW.phase = 'done' OR NEW.attempt_n <> OLD.attempt_n + 1)
BEGIN SELECT RAISE(ABORT, 'a finished run changes only by a new attempt'); END;
CREATE TRIGGER runs_identity BEFORE UPDATE OF run_id, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash, project_id, created_at ON runs
WHEN (NEW.run_id, NEW.tool_id, NEW.tool_name, NEW.tool_version, NEW.contract_version, NEW.pack_hash, NEW.policy_hash, NEW.params_hash, NEW.plan_hash, NEW.project_id, NEW.created_at)
  IS NOT (OLD.run_id, OLD.tool_id, OLD.tool_name, OLD.tool_version, OLD.contract_version, OLD.pack_hash, OLD.policy_hash, OLD.params_hash, OLD.plan_hash, OLD.project_id, OLD.created_at)
BEGIN SELECT RAISE(ABORT, 'what a run is the same by never changes'); END;
CREATE TRIGGER runs_rev BEFORE UPDATE OF run_id, rev, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash, project_id, actor,
  state, phase, reason, detail, attempt_n, warnings, exit_code, created_at, updated_at, finished_at, cancel_at, cancel_reason, result_json, log_artifact_id, script_artifact_id ON runs
WHEN NEW.rev <> OLD.rev + 1
BEGIN SELECT RAISE(ABORT, 'a run changes by compare-and-swap'); END;
CREATE TRIGGER runs_keep BEFORE DELETE ON runs WHEN NOT EXISTS (SELECT 1 FROM run_aliases x WHERE x.alias = OLD.run_id)
BEGIN SELECT RAISE(ABORT, 'runs are never deleted'); END;
CREATE TRIGGER runs_count_new AFTER INSERT ON runs WHEN NEW.phase <> 'waiting_for_inputs'
BEGIN
  INSERT INTO run_counts VALUES (NEW.project_id, NEW.tool_id, NEW.state, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER runs_count_moved AFTER UPDATE OF state ON runs WHEN OLD.state <> NEW.state AND 'waiting_for_inputs' NOT IN (OLD.phase, NEW.phase)
BEGIN
  UPDATE run_counts SET n = n - 1 WHERE project_id = OLD.project_id AND tool_id = OLD.tool_id AND state = OLD.state;
  INSERT INTO run_counts VALUES (NEW.project_id, NEW.tool_id, NEW.state, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER runs_site BEFORE UPDATE OF site ON runs
BEGIN SELECT RAISE(ABORT, 'a run stays on its site'); END;
CREATE TRIGGER runs_principal BEFORE UPDATE OF principal, principal_id ON runs
BEGIN SELECT RAISE(ABORT, 'who made a run never changes'); END;
CREATE TRIGGER runs_executed_as BEFORE UPDATE OF executed_as ON runs
BEGIN SELECT RAISE(ABORT, 'the user that a run is executed as never changes'); END;
CREATE TRIGGER runs_receipt BEFORE UPDATE OF phase ON runs
WHEN NEW.phase = 'done' AND OLD.phase <> 'waiting_for_inputs' AND NOT EXISTS (SELECT 1 FROM receipts WHERE run_id = NEW.run_id AND attempt = NEW.attempt_n)
BEGIN SELECT RAISE(ABORT, 'a run ends with a receipt'); END;
CREATE TRIGGER runs_batch_moved AFTER UPDATE OF state ON runs WHEN OLD.state <> NEW.state
BEGIN
  UPDATE batch_rows SET state = NEW.state WHERE run_id = NEW.run_id;
END;
CREATE TRIGGER notices_due AFTER UPDATE OF phase ON runs WHEN NEW.phase = 'done' AND OLD.phase <> 'done'
BEGIN
  UPDATE notices SET due_at = NEW.updated_at, next_at = NEW.updated_at WHERE run_id = NEW.run_id AND due_at IS NULL;
END;
-- What waits for something hears of it in the transaction that changes it.
CREATE TRIGGER runs_waited_for AFTER UPDATE OF phase ON runs WHEN NEW.phase = 'done' AND OLD.phase <> 'done'
BEGIN
  UPDATE waits SET due = 1 WHERE run_id IN (SELECT i.run_id FROM waiting_inputs i JOIN runs w ON w.run_id = i.run_id
    WHERE i.source IN (SELECT NEW.run_id UNION ALL SELECT x.alias FROM run_aliases x WHERE x.run_id = NEW.run_id) AND w.phase = 'waiting_for_inputs');
END;
-- A run that is retried before its end was told of has not ended: the notice tells of the next end.
CREATE TRIGGER notices_of_retry AFTER UPDATE OF phase ON runs WHEN OLD.phase = 'done' AND NEW.phase <> 'done'
BEGIN
  UPDATE notices SET due_at = NULL, next_at = NULL WHERE run_id = NEW.run_id AND due_at IS NOT NULL AND settled_at IS NULL;
END;

-- What is sent to Slurm: for one attempt, later for many as a job array.
CREATE TABLE submissions (
  token        TEXT    NOT NULL PRIMARY KEY CHECK (length(token) = 32),
  job_name     TEXT    NOT NULL UNIQUE,
  script_sha   TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  cluster      TEXT    NOT NULL,
  job_id       TEXT    NOT NULL,             -- '' until known
  submitted_at INTEGER,                      -- Slurm's own
  sluid        TEXT    NOT NULL,
  -- The array of a submission's newest send, and its task there (attempts.array_task); NULL: it was sent alone. A send that Slurm proved to have refused
  -- may be followed by one in another array.
  array_name TEXT REFERENCES arrays
) STRICT;
CREATE INDEX submissions_array ON submissions (array_name) WHERE array_name IS NOT NULL;

-- Only the tasks of an array share a token: the index of tokens has no other attempts.
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
  -- Where an attempt goes, with what the site added to what was asked for: a plan's placement, JSON. NULL where the run's params name it all.
  placement TEXT,
  -- How Slurm says that an attempt's job ended, e.g. 0:53, '' where it said nothing; and the nodes the attempt does not use, because earlier attempts
  -- failed by their fault: JSON, NULL for none.
  slurm_exit TEXT NOT NULL DEFAULT '',
  avoid TEXT,
  -- How the job of an attempt gets those of its inputs that are not copied: JSON, dest_relpath -> bound or in_place. NULL: all are copied.
  strengths TEXT,
  -- What an attempt has where a retry raised it: a plan's resources, JSON. NULL: what the run's params say.
  resources TEXT,
  -- Where Slurm shows the job of an attempt, and with which limit, in seconds: a plugin of the site or an administrator may have changed what was asked for.
  -- '' and 0: not shown.
  slurm_partition TEXT NOT NULL DEFAULT '',
  slurm_account TEXT NOT NULL DEFAULT '',
  slurm_limit INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, n)
) STRICT;
CREATE INDEX attempts_ended ON attempts (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX attempts_task ON attempts (token, array_task) WHERE array_task IS NOT NULL;
-- For the faults of nodes met lately. Not of a list of endings: a later one would be missing.
CREATE INDEX attempts_failed ON attempts (ended_at, ending) WHERE ending NOT IN ('', 'ok');
CREATE TRIGGER attempts_reserve AFTER INSERT ON attempts
BEGIN
  INSERT INTO spent SELECT 'project', project_id, day, 1, cpus * seconds FROM attempt_costs WHERE run_id = NEW.run_id AND n = NEW.n
    ON CONFLICT DO UPDATE SET runs = runs + 1, cpu_seconds = cpu_seconds + excluded.cpu_seconds;
  INSERT INTO spent SELECT 'caller', caller, day, 1, cpus * seconds FROM attempt_costs WHERE run_id = NEW.run_id AND n = NEW.n AND caller <> ''
    ON CONFLICT DO UPDATE SET runs = runs + 1, cpu_seconds = cpu_seconds + excluded.cpu_seconds;
END;
CREATE TRIGGER attempts_settle AFTER UPDATE OF ending ON attempts WHEN OLD.ending = '' AND NEW.ending <> ''
BEGIN
  UPDATE spent SET cpu_seconds = spent.cpu_seconds + c.cpus * (max(0, c.ran) - c.seconds) FROM attempt_costs c
    WHERE c.run_id = NEW.run_id AND c.n = NEW.n AND spent.day = c.day
      AND (spent.scope = 'project' AND spent.name = c.project_id OR spent.scope = 'caller' AND spent.name = c.caller);
END;

-- Each sbatch of a submission.
CREATE TABLE sends (
  token      TEXT    NOT NULL REFERENCES submissions,
  k          INTEGER NOT NULL CHECK (k >= 1),
  started_at INTEGER NOT NULL,
  ended_at   INTEGER,
  outcome    TEXT    NOT NULL CHECK (outcome IN ('','accepted','rejected','deferred','doubt','not_run')),
  exit_code  INTEGER,
  text       TEXT    NOT NULL,
  PRIMARY KEY (token, k)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_inputs (
  run_id      TEXT NOT NULL REFERENCES runs,
  role        TEXT NOT NULL,
  artifact_id TEXT NOT NULL REFERENCES artifacts,
  relpath     TEXT NOT NULL,
  PRIMARY KEY (run_id, relpath)
) STRICT;
CREATE INDEX run_inputs_artifact  ON run_inputs (artifact_id);
CREATE TRIGGER run_inputs_there BEFORE INSERT ON run_inputs
WHEN EXISTS (SELECT 1 FROM artifacts a WHERE a.artifact_id = NEW.artifact_id AND a.removed_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'artifact_removed'); END;

CREATE TABLE run_outputs (
  run_id      TEXT    NOT NULL REFERENCES runs,
  role        TEXT    NOT NULL,
  artifact_id TEXT    NOT NULL REFERENCES artifacts,
  relpath     TEXT    NOT NULL,
  attempt_n   INTEGER NOT NULL,
  PRIMARY KEY (run_id, attempt_n, role)
) STRICT;
CREATE INDEX run_outputs_artifact ON run_outputs (artifact_id);
CREATE TRIGGER run_outputs_there BEFORE INSERT ON run_outputs
WHEN EXISTS (SELECT 1 FROM artifacts a WHERE a.artifact_id = NEW.artifact_id AND a.removed_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'artifact_removed'); END;

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
CREATE INDEX events_erased     ON events (seq) WHERE type = 'secret.erased';
CREATE TRIGGER events_keep BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
CREATE TRIGGER events_fixed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events never change'); END;

-- What accounting knows of what an attempt's job used. It is asked for after the end, decides nothing, and is no part of the history.
CREATE TABLE job_usage (
  token           TEXT    NOT NULL PRIMARY KEY REFERENCES submissions,
  recorded_at     INTEGER NOT NULL,
  elapsed_seconds INTEGER,                   -- all of them NULL: accounting does not know the job
  cpu_seconds     REAL,
  max_rss_bytes   INTEGER,                   -- NULL: not measured
  alloc_cpus      INTEGER
) STRICT;

-- The record of every tool call, in three chains. 'effects': calls that reached a tool which writes or executes; never deleted. 'looks': other
-- accepted calls; 'refused': refused ones. Of these two the oldest may be dropped, up to the horizon. hash = SHA-256(prev_hash + canonical
-- {at, chain, event, principal, seq}).
CREATE TABLE call_chains (
  chain        TEXT    NOT NULL PRIMARY KEY CHECK (chain IN ('effects', 'looks', 'refused')),
  seq          INTEGER NOT NULL,             -- of the newest
  hash         TEXT    NOT NULL,             -- of the newest
  horizon_seq  INTEGER NOT NULL,             -- everything up to here was dropped
  horizon_hash TEXT    NOT NULL,             -- of the last one dropped
  bytes        INTEGER NOT NULL DEFAULT 0    -- of events and payloads, less what was dropped; no part of the proof
) STRICT;
CREATE TRIGGER call_chains_keep BEFORE DELETE ON call_chains
BEGIN SELECT RAISE(ABORT, 'the chains of calls are never deleted'); END;
CREATE TRIGGER call_chains_grow BEFORE UPDATE ON call_chains
WHEN NEW.seq < OLD.seq OR NEW.horizon_seq < OLD.horizon_seq OR NEW.horizon_seq > NEW.seq OR (NEW.chain = 'effects' AND NEW.horizon_seq <> 0)
BEGIN SELECT RAISE(ABORT, 'a chain of calls only grows'); END;
INSERT INTO call_chains (chain, seq, hash, horizon_seq, horizon_hash)
  SELECT value, 0, g.hash, 0, g.hash FROM json_each('["effects", "looks", "refused"]'),
    (SELECT 'sha256:0000000000000000000000000000000000000000000000000000000000000000' AS hash) g;

CREATE TABLE tool_call_events (
  chain        TEXT    NOT NULL REFERENCES call_chains,
  seq          INTEGER NOT NULL CHECK (seq >= 1),
  at           INTEGER NOT NULL,
  tool_call_id TEXT    NOT NULL,
  tool_id      TEXT    NOT NULL,
  principal    TEXT    NOT NULL,
  ok           INTEGER NOT NULL CHECK (ok IN (0, 1)),
  event        TEXT    NOT NULL,             -- ToolCallEvent, canonical JSON
  prev_hash    TEXT    NOT NULL,
  hash         TEXT    NOT NULL,
  principal_id TEXT NOT NULL DEFAULT '',
  -- How many refused calls a record stands for. The hash covers it where it is not 1.
  count INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1),
  -- Where a call came from. The hash covers what is not ''.
  face TEXT NOT NULL DEFAULT '',    -- shell, socket, http or mcp
  address TEXT NOT NULL DEFAULT '', -- an IP address, or uid:1001 pid:4711
  PRIMARY KEY (chain, seq)
) STRICT;
CREATE INDEX tool_call_events_call ON tool_call_events (tool_call_id);
CREATE INDEX tool_call_events_at   ON tool_call_events (at);
CREATE TRIGGER tool_call_events_fixed BEFORE UPDATE ON tool_call_events
BEGIN SELECT RAISE(ABORT, 'events never change'); END;
CREATE TRIGGER tool_call_events_keep BEFORE DELETE ON tool_call_events
WHEN OLD.seq > (SELECT horizon_seq FROM call_chains c WHERE c.chain = OLD.chain)
BEGIN SELECT RAISE(ABORT, 'events before the horizon only are dropped'); END;

-- Arguments and results, redacted; raw ones are never kept (HTC-09).
CREATE TABLE tool_payloads (
  chain            TEXT    NOT NULL,
  seq              INTEGER NOT NULL,
  tool_call_id     TEXT    NOT NULL,
  kind             TEXT    NOT NULL CHECK (kind IN ('args', 'result')),
  payload_redacted TEXT    NOT NULL,
  payload_sha256   TEXT    NOT NULL CHECK (length(payload_sha256) = 64),
  created_at       INTEGER NOT NULL,
  PRIMARY KEY (chain, seq, kind),
  FOREIGN KEY (chain, seq) REFERENCES tool_call_events (chain, seq)
) STRICT;

-- Keys never expire. outcome is NULL while the call is under way, and after one that may be tried again.
CREATE TABLE idempotency_keys (
  principal    TEXT    NOT NULL,
  key_hash     TEXT    NOT NULL CHECK (length(key_hash) = 64),
  tool_id      TEXT    NOT NULL,
  binding      TEXT    NOT NULL CHECK (length(binding) = 64),
  tool_call_id TEXT    NOT NULL,
  approval_id  TEXT    NOT NULL,             -- '' for none
  outcome      TEXT,
  created_at   INTEGER NOT NULL,
  settled_at   INTEGER,
  rights_hash TEXT REFERENCES key_rights,
  PRIMARY KEY (principal, key_hash),
  CHECK ((outcome IS NULL) = (settled_at IS NULL))
) STRICT;
CREATE TRIGGER idempotency_keys_fixed BEFORE UPDATE ON idempotency_keys
WHEN OLD.outcome IS NOT NULL OR (NEW.principal, NEW.key_hash, NEW.tool_id, NEW.binding, NEW.rights_hash)
  IS NOT (OLD.principal, OLD.key_hash, OLD.tool_id, OLD.binding, OLD.rights_hash)
BEGIN SELECT RAISE(ABORT, 'an idempotency key stands for one call and one outcome'); END;
CREATE TRIGGER idempotency_keys_keep BEFORE DELETE ON idempotency_keys
BEGIN SELECT RAISE(ABORT, 'idempotency keys never expire'); END;

CREATE TABLE approvals (
  approval_id      TEXT    NOT NULL PRIMARY KEY CHECK (approval_id GLOB 'apr_*'),
  principal        TEXT    NOT NULL,         -- who asks
  tool_id          TEXT    NOT NULL,
  tool_version     TEXT    NOT NULL,
  binding          TEXT    NOT NULL CHECK (length(binding) = 64),
  args_hash        TEXT    NOT NULL CHECK (length(args_hash) = 64),
  payload_redacted TEXT    NOT NULL,
  status           TEXT    NOT NULL CHECK (status IN ('pending', 'approved', 'denied')),
  requested_at     INTEGER NOT NULL,
  expires_at       INTEGER NOT NULL,         -- of the question while pending, then of the answer
  uses_left        INTEGER NOT NULL CHECK (uses_left >= 0),
  answered_by      TEXT,
  answered_at      INTEGER,
  reason           TEXT,
  -- What an approval covers beyond the arguments: who asks, the project, where the job goes, with which image.
  principal_id TEXT NOT NULL DEFAULT '',
  project_id TEXT NOT NULL DEFAULT '', -- '' for a call that concerns the whole site
  covers TEXT NOT NULL DEFAULT '{}',   -- canonical JSON
  replaces TEXT REFERENCES approvals,  -- an earlier request of the same call, which covered something else
  answered_by_id TEXT,
  CHECK ((status = 'pending') = (answered_at IS NULL))
) STRICT;
CREATE INDEX approvals_binding ON approvals (principal_id, binding);
CREATE INDEX approvals_status  ON approvals (status, requested_at);
CREATE INDEX approvals_args ON approvals (principal_id, args_hash);
CREATE TRIGGER approvals_answered BEFORE UPDATE ON approvals
WHEN OLD.status <> 'pending' AND (NEW.status, NEW.answered_by, NEW.answered_by_id, NEW.answered_at, NEW.expires_at)
  IS NOT (OLD.status, OLD.answered_by, OLD.answered_by_id, OLD.answered_at, OLD.expires_at)
  OR NEW.uses_left > OLD.uses_left AND OLD.status <> 'pending'
BEGIN SELECT RAISE(ABORT, 'an approval is answered once'); END;
CREATE TRIGGER approvals_fixed BEFORE UPDATE ON approvals
WHEN (NEW.approval_id, NEW.principal, NEW.principal_id, NEW.project_id, NEW.tool_id, NEW.tool_version, NEW.binding, NEW.covers, NEW.replaces, NEW.requested_at)
  IS NOT (OLD.approval_id, OLD.principal, OLD.principal_id, OLD.project_id, OLD.tool_id, OLD.tool_version, OLD.binding, OLD.covers, OLD.replaces, OLD.requested_at)
BEGIN SELECT RAISE(ABORT, 'what an approval covers never changes'); END;
CREATE TRIGGER approvals_keep BEFORE DELETE ON approvals
BEGIN SELECT RAISE(ABORT, 'approvals are never deleted'); END;

-- Bearer tokens. The secret itself is shown once and never stored.
CREATE TABLE tokens (
  token_id      TEXT    NOT NULL PRIMARY KEY CHECK (token_id GLOB 'tok_*'),
  name          TEXT    NOT NULL,            -- whom it stands for: the principal is token:<name>
  secret_sha256 TEXT    NOT NULL CHECK (length(secret_sha256) = 64),
  capabilities  TEXT    NOT NULL,            -- JSON array
  projects      TEXT    NOT NULL,            -- JSON array of project ids, or "*"
  accounts      TEXT    NOT NULL,            -- JSON object, project id or "*" to Slurm account
  created_by    TEXT    NOT NULL,
  created_at    INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  revoked_at    INTEGER,
  revoked_by    TEXT,
  -- The user of the cluster whom a token's jobs run as where slurm.run_as is caller. '': none.
  unix_user TEXT NOT NULL DEFAULT '',
  -- The tools that a token names: a chat's list has them before the other tools of the domain. They are no right. JSON array of ids.
  tools TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE TRIGGER tokens_fixed BEFORE UPDATE ON tokens
WHEN OLD.revoked_at IS NOT NULL OR (NEW.token_id, NEW.name, NEW.secret_sha256, NEW.capabilities, NEW.projects, NEW.accounts, NEW.created_by, NEW.created_at, NEW.expires_at)
  IS NOT (OLD.token_id, OLD.name, OLD.secret_sha256, OLD.capabilities, OLD.projects, OLD.accounts, OLD.created_by, OLD.created_at, OLD.expires_at)
BEGIN SELECT RAISE(ABORT, 'a token is revoked, never changed'); END;
CREATE TRIGGER tokens_keep BEFORE DELETE ON tokens
BEGIN SELECT RAISE(ABORT, 'tokens are revoked, never deleted'); END;

-- What binds keys and approvals to payloads on this ledger alone.
CREATE TABLE gate_key (
  id  INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  key BLOB    NOT NULL CHECK (length(key) = 32)
) STRICT;
INSERT INTO gate_key VALUES (1, randomblob(32));

-- Workspaces of finished runs that were removed: begun before the first file goes, removed after the last.
CREATE TABLE workspace_removals (
  run_id     TEXT    NOT NULL REFERENCES runs,
  attempt_n  INTEGER NOT NULL,               -- the run's last attempt then; a later one has a workspace again
  begun_at   INTEGER NOT NULL,
  removed_at INTEGER,
  bytes      INTEGER NOT NULL,               -- freed
  PRIMARY KEY (run_id, attempt_n)
) STRICT;

-- Small documents by their checksum, each stored with the row that refers to it: job scripts. They are alike but for a part in the
-- middle, so of most only that part is kept, and what they begin and end with is a base's.
CREATE TABLE payload_bases (
  base_id    INTEGER NOT NULL PRIMARY KEY,
  data       BLOB    NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE TRIGGER payload_bases_fixed BEFORE UPDATE ON payload_bases
BEGIN SELECT RAISE(ABORT, 'what payloads begin and end with never changes'); END;

CREATE TABLE payloads (
  sha256  BLOB    NOT NULL UNIQUE CHECK (length(sha256) = 32),  -- of the whole
  base_id INTEGER REFERENCES payload_bases,   -- NULL: middle is the whole
  head    INTEGER NOT NULL CHECK (head >= 0), -- so many bytes of the base's beginning,
  middle  BLOB    NOT NULL,                   -- then these,
  tail    INTEGER NOT NULL CHECK (tail >= 0), -- then so many of its end
  CHECK (base_id IS NOT NULL OR head + tail = 0)
) STRICT;
CREATE TRIGGER payloads_fixed BEFORE UPDATE ON payloads
BEGIN SELECT RAISE(ABORT, 'payloads never change'); END;
CREATE TRIGGER payloads_held BEFORE DELETE ON payloads
WHEN EXISTS (SELECT 1 FROM artifacts a WHERE a.sha256 = lower(hex(OLD.sha256)) AND a.removed_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'an artifact has these bytes'); END;

-- What runs are judged by: the normalised definition of each pack that a run was planned with, with its resolved schemas, once.
CREATE TABLE packs (
  pack_hash  TEXT    NOT NULL PRIMARY KEY CHECK (pack_hash GLOB 'sha256:*'),
  definition TEXT    NOT NULL,              -- canonical JSON
  created_at INTEGER NOT NULL
) STRICT;

-- Which run a recorded call is (ARC-11): what its provenance_run_id is made of. It goes with the record.
CREATE TABLE call_runs (
  chain    TEXT    NOT NULL,
  seq      INTEGER NOT NULL,
  run_id   TEXT    NOT NULL CHECK (run_id GLOB 'run_*'),
  identity TEXT    NOT NULL,              -- canonical JSON; the run_id is its hash, so a change shows
  PRIMARY KEY (chain, seq),
  FOREIGN KEY (chain, seq) REFERENCES tool_call_events (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_runs_run ON call_runs (run_id);

-- How many runs there are, so that a list can say it at once. Kept by the triggers alone.
CREATE TABLE run_counts (
  project_id TEXT    NOT NULL,
  tool_id    TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  n          INTEGER NOT NULL CHECK (n >= 0),
  PRIMARY KEY (project_id, tool_id, state)
) STRICT, WITHOUT ROWID;

-- Bytes that passed every check of a type, because the pack of a run asks for it (inputs[].verify). A failure is not recorded.
CREATE TABLE verified (
  sha256      TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  verified_at INTEGER NOT NULL,
  PRIMARY KEY (sha256, type)
) STRICT, WITHOUT ROWID;

-- Who calls. An id is given once and means the same subject for ever. Keys, approvals, large answers and records are bound to it; the name
-- is for people. The default is the one place that makes ids.
CREATE TABLE principals (
  principal_id TEXT    NOT NULL PRIMARY KEY DEFAULT ('prn_' || hex(randomblob(13))) CHECK (principal_id GLOB 'prn_*'),
  method       TEXT    NOT NULL CHECK (method IN ('peer', 'token', 'oidc')),
  subject      TEXT    NOT NULL,             -- compared exactly: "UID NAME", a token's id, or "ISSUER SUBJECT"
  name         TEXT    NOT NULL,             -- as lists show it
  made_by      TEXT    REFERENCES principals, -- of a token: who created it. NULL for other methods
  first_seen   INTEGER NOT NULL,
  UNIQUE (method, subject)
) STRICT;
CREATE TRIGGER principals_fixed BEFORE UPDATE ON principals
BEGIN SELECT RAISE(ABORT, 'a principal never changes'); END;
CREATE TRIGGER principals_keep BEFORE DELETE ON principals
BEGIN SELECT RAISE(ABORT, 'the id of a principal is never given twice'); END;

-- What a principal could do when it used a key: canonical JSON, once for each hash.
CREATE TABLE key_rights (
  rights_hash TEXT NOT NULL PRIMARY KEY,
  rights      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Deletions: leaked secrets that were erased (the proof is in the history, secret.erased), and artifacts and runs that a person removed, whose rows
-- stay. These rows say who, when and why, and what is left to do.
CREATE TABLE deletions (
  deletion_id  TEXT    NOT NULL PRIMARY KEY CHECK (deletion_id GLOB 'ers_*' OR deletion_id GLOB 'rmv_*'),
  principal    TEXT    NOT NULL,             -- name of who asked for it
  principal_id TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  secret_hmac  TEXT CHECK (length(secret_hmac) = 64), -- with this ledger's own key
  begun_at     INTEGER NOT NULL,
  ended_at     INTEGER,                      -- NULL: something of it is left to do
  CHECK ((deletion_id GLOB 'ers_*') = (secret_hmac IS NOT NULL))
) STRICT;
CREATE TRIGGER deletions_keep BEFORE DELETE ON deletions
BEGIN SELECT RAISE(ABORT, 'deletions are never deleted'); END;

-- What is to be removed after the ledger's own transaction.
CREATE TABLE deletion_items (
  deletion_id TEXT    NOT NULL REFERENCES deletions,
  kind        TEXT    NOT NULL CHECK (kind IN ('object', 'workspace', 'ledger')),
  name        TEXT    NOT NULL,
  done_at     INTEGER,
  PRIMARY KEY (deletion_id, kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX deletion_items_open ON deletion_items (deletion_id) WHERE done_at IS NULL;

-- Documents that no longer have the hash they are stored under.
CREATE TABLE erased_documents (
  tbl        TEXT NOT NULL,
  key        TEXT NOT NULL,
  erasure_id TEXT NOT NULL REFERENCES deletions,
  PRIMARY KEY (tbl, key)
) STRICT, WITHOUT ROWID;

-- What each project keeps: the artifacts that are there, their bytes (the same content counts for each artifact), and how many of them callers imported.
-- Kept by the triggers alone.
CREATE TABLE project_use (
  project_id TEXT    NOT NULL PRIMARY KEY,
  artifacts  INTEGER NOT NULL CHECK (artifacts >= 0),
  imports    INTEGER NOT NULL CHECK (imports >= 0),
  bytes      INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT, WITHOUT ROWID;

-- Which runs a call is about: those its arguments name, and those that an effect made. It goes with the record.
CREATE TABLE call_about (
  chain  TEXT    NOT NULL,
  seq    INTEGER NOT NULL,
  run_id TEXT    NOT NULL,
  PRIMARY KEY (chain, seq, run_id),
  FOREIGN KEY (chain, seq) REFERENCES tool_call_events (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_about_run ON call_about (run_id);

-- When this ledger was restored from a backup, or begun anew although there had been one. Workspaces and stored bytes older than the
-- newest of these may belong to runs that it does not know.
CREATE TABLE restores (
  restore_id INTEGER NOT NULL PRIMARY KEY,
  at         INTEGER NOT NULL,
  backup_at  INTEGER,                       -- NULL: begun anew
  source     TEXT    NOT NULL               -- where the backup was
) STRICT;

-- Sites that start no new runs for now.
CREATE TABLE drains (
  site      TEXT    NOT NULL PRIMARY KEY,
  queue     INTEGER NOT NULL CHECK (queue IN (0, 1)), -- 1: new runs are accepted and wait; 0: they are refused
  reason    TEXT    NOT NULL,
  principal TEXT    NOT NULL,               -- name of who drained it
  since     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What each project and each caller had of the site, by the day (UTC) on which an attempt was opened: how many attempts, and CPU seconds. An attempt
-- reserves its CPUs for its time limit; once it has ended, what counts is the time its job ran. Kept by the triggers alone.
CREATE TABLE spent (
  scope       TEXT    NOT NULL CHECK (scope IN ('project', 'caller')),
  name        TEXT    NOT NULL,                -- project id; id of a principal, or its name where no ledger gave an id
  day         TEXT    NOT NULL,                -- 2026-11-22
  runs        INTEGER NOT NULL CHECK (runs >= 0),
  cpu_seconds INTEGER NOT NULL,
  PRIMARY KEY (scope, name, day)
) STRICT, WITHOUT ROWID;

-- What each caller keeps, in all projects: the artifacts that are there, and their bytes (the same content counts for each artifact). Maintained by
-- the triggers alone.
CREATE TABLE caller_use (
  caller    TEXT    NOT NULL PRIMARY KEY,
  artifacts INTEGER NOT NULL CHECK (artifacts >= 0),
  bytes     INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT, WITHOUT ROWID;

-- The keys that receipts are signed with. One signs; a retired one verifies what it signed, and its secret is gone.
CREATE TABLE receipt_keys (
  key_id     TEXT    NOT NULL PRIMARY KEY CHECK (length(key_id) = 64), -- hex SHA-256 of the SubjectPublicKeyInfo in DER
  public     BLOB    NOT NULL CHECK (length(public) = 32),             -- ed25519
  secret     BLOB             CHECK (length(secret) = 64),
  created_at INTEGER NOT NULL,
  retired_at INTEGER,
  CHECK ((secret IS NULL) = (retired_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX receipt_keys_one ON receipt_keys ((1)) WHERE retired_at IS NULL;
CREATE TRIGGER receipt_keys_fixed BEFORE UPDATE ON receipt_keys
WHEN OLD.retired_at IS NOT NULL OR (NEW.key_id, NEW.public, NEW.created_at) IS NOT (OLD.key_id, OLD.public, OLD.created_at)
BEGIN SELECT RAISE(ABORT, 'a key is retired, never changed'); END;
CREATE TRIGGER receipt_keys_keep BEFORE DELETE ON receipt_keys
BEGIN SELECT RAISE(ABORT, 'keys are retired, never deleted'); END;

-- A receipt for each end of an attempt, written in the transaction that ends it.
CREATE TABLE receipts (
  run_id    TEXT    NOT NULL,
  attempt   INTEGER NOT NULL,
  key_id    TEXT    NOT NULL REFERENCES receipt_keys,
  statement TEXT    NOT NULL,                -- the bytes that are signed
  signature BLOB    NOT NULL CHECK (length(signature) = 64),
  PRIMARY KEY (run_id, attempt),
  FOREIGN KEY (run_id, attempt) REFERENCES attempts (run_id, n)
) STRICT;
CREATE TRIGGER receipts_at_the_end BEFORE INSERT ON receipts
WHEN NOT EXISTS (SELECT 1 FROM runs WHERE run_id = NEW.run_id AND attempt_n = NEW.attempt AND phase <> 'done')
BEGIN SELECT RAISE(ABORT, 'a receipt is made when its attempt ends, never later'); END;
CREATE TRIGGER receipts_fixed BEFORE UPDATE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts never change'); END;
CREATE TRIGGER receipts_keep BEFORE DELETE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts are never deleted'); END;

-- What lies in place belongs to who registered it: the artifact, and the caller. Other callers use it only in folders that the site shares.
CREATE TABLE places (
  artifact_id TEXT    NOT NULL,  -- '' of reference data, which belongs to no project
  caller      TEXT    NOT NULL,  -- id of the principal, or unix: and the Unix user whose login hashed it
  principal   TEXT    NOT NULL,  -- name of who registered it
  opened_as   TEXT    NOT NULL,  -- the Unix user whose login hashed it; '': the gateway's own
  site        TEXT    NOT NULL,
  path        TEXT    NOT NULL,
  sha256      TEXT    NOT NULL CHECK (length(sha256) = 64),
  state       TEXT    NOT NULL,  -- inode, size, mtime and ctime while it was hashed
  at          INTEGER NOT NULL,  -- the first time
  PRIMARY KEY (artifact_id, caller, site, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX places_sha256 ON places (sha256);

-- What the newest request of each principal for a run calls its outputs where they are downloaded: {role: name}, JSON. No part of the run: requests with
-- equal bytes and other labels share it.
CREATE TABLE download_names (
  run_id       TEXT    NOT NULL REFERENCES runs,
  principal    TEXT    NOT NULL,
  principal_id TEXT    NOT NULL,
  names        TEXT    NOT NULL,
  asked_at     INTEGER NOT NULL,
  PRIMARY KEY (run_id, principal, principal_id)
) STRICT, WITHOUT ROWID;

-- What directory artifacts consist of: the object with the list of the files is the artifact's own, and these are the objects it names. They
-- are held as long as an artifact with that list is there. A list is written in parts; it counts once it is whole.
CREATE TABLE directories (
  directory_id INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL UNIQUE,
  list_bytes INTEGER NOT NULL CHECK (list_bytes > 0),
  files INTEGER NOT NULL CHECK (files > 0),
  whole INTEGER NOT NULL CHECK (whole IN (0, 1)),
  added_at INTEGER NOT NULL,
  -- The files of a directory in place lie where its owner has them: the list alone is stored, and directory_files has none of them.
  in_place INTEGER NOT NULL DEFAULT 0 CHECK (in_place IN (0, 1))
) STRICT;

CREATE TABLE directory_files (
  directory_id INTEGER NOT NULL REFERENCES directories ON DELETE CASCADE,
  sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  PRIMARY KEY (directory_id, sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX directory_files_by_object ON directory_files (sha256);

-- The attempts whose run was removed after them. A later attempt has a workspace and outputs again.
CREATE TABLE run_removals (
  run_id     TEXT    NOT NULL REFERENCES runs,
  attempt_n  INTEGER NOT NULL,
  removal_id TEXT    NOT NULL REFERENCES deletions,
  PRIMARY KEY (run_id, attempt_n)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER run_removals_over BEFORE INSERT ON run_removals
WHEN EXISTS (SELECT 1 FROM runs r WHERE r.run_id = NEW.run_id AND (r.phase <> 'done' OR r.attempt_n <> NEW.attempt_n))
BEGIN SELECT RAISE(ABORT, 'a run that is not over is not removed'); END;
CREATE TRIGGER run_removals_keep BEFORE DELETE ON run_removals
BEGIN SELECT RAISE(ABORT, 'removals are never deleted'); END;

-- Names that the site gives to bytes: an index, a database, a genome. A version is never changed but for its end. The current one of a name has
-- no end; one that another replaced can still be named with its digest; one that was withdrawn cannot.
CREATE TABLE reference_versions (
  version     INTEGER PRIMARY KEY,
  name        TEXT    NOT NULL,
  sha256      TEXT    NOT NULL CHECK (length(sha256) = 64),
  type        TEXT    NOT NULL,
  label       TEXT    NOT NULL,
  size_bytes  INTEGER NOT NULL CHECK (size_bytes >= 0),
  description TEXT    NOT NULL,
  site        TEXT    NOT NULL,  -- where it was registered in place; '': it is stored
  path        TEXT    NOT NULL,  -- there; else ''
  projects    TEXT,              -- JSON: the ids of those it is offered to; NULL: all
  principal   TEXT    NOT NULL,
  at          INTEGER NOT NULL,
  ended_at    INTEGER,
  withdrawn   INTEGER NOT NULL DEFAULT 0 CHECK (withdrawn IN (0, 1)),
  CHECK (withdrawn = 0 OR ended_at IS NOT NULL),
  CHECK ((site = '') = (path = ''))
) STRICT;
CREATE UNIQUE INDEX reference_current ON reference_versions (name) WHERE ended_at IS NULL;
CREATE INDEX reference_sha256 ON reference_versions (sha256);
CREATE TRIGGER reference_versions_keep BEFORE DELETE ON reference_versions
BEGIN SELECT RAISE(ABORT, 'versions of references are never deleted'); END;

-- Job arrays: several attempts that were sent to Slurm together, each as a task. What a send of an array left lies in the folder of one of its attempts,
-- the leader; k is the leader's send.
CREATE TABLE arrays (
  name       TEXT    NOT NULL PRIMARY KEY CHECK (name GLOB 'sg-array-*'),  -- the job's name in Slurm
  run_id     TEXT    NOT NULL REFERENCES runs,                             -- of the leader, with its attempt and token
  attempt_n  INTEGER NOT NULL,
  token      TEXT    NOT NULL REFERENCES submissions,
  k          INTEGER NOT NULL,
  size       INTEGER NOT NULL CHECK (size > 1),
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER arrays_keep BEFORE DELETE ON arrays
BEGIN SELECT RAISE(ABORT, 'arrays are never deleted'); END;
CREATE TRIGGER arrays_fixed BEFORE UPDATE ON arrays
BEGIN SELECT RAISE(ABORT, 'an array never changes'); END;

-- Groups of runs that one call asked for, with a name: ordinary runs, each the run of one or more rows of a sheet. Sample, tags and label belong to the
-- row, never to the run, which rows of equal bytes share.
CREATE TABLE batches (
  batch_id     TEXT    NOT NULL PRIMARY KEY CHECK (batch_id GLOB 'batch_*'),
  project_id   TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  tool_id      TEXT    NOT NULL,
  tool_version TEXT    NOT NULL,
  rows_hash    TEXT    NOT NULL, -- of all that was asked for: the same name with another hash is another request
  row_count    INTEGER NOT NULL,
  principal    TEXT    NOT NULL,
  principal_id TEXT    NOT NULL,
  caller       TEXT    NOT NULL, -- JSON: with which rights the rows are submitted, after a restart too
  created_at   INTEGER NOT NULL,
  -- A chain is several batches, of each step one, that one call asked for; a row takes outputs of the rows of its sample in batches before.
  chain TEXT NOT NULL DEFAULT '', -- the name of the whole; the batch's own name is CHAIN.STEP
  step  TEXT NOT NULL DEFAULT '',
  -- The approval that a batch was started with, where policy wants one for its tool: it is that of its rows too. '': none was needed.
  approval_id TEXT NOT NULL DEFAULT '',
  UNIQUE (project_id, name)
) STRICT;
CREATE INDEX batches_created ON batches (created_at);
CREATE INDEX batches_chain ON batches (chain) WHERE chain <> '';

CREATE TABLE batch_rows (
  batch_id TEXT    NOT NULL REFERENCES batches,
  row_n    INTEGER NOT NULL,          -- line of the sheet
  sample   TEXT    NOT NULL,
  label    TEXT    NOT NULL,          -- what its downloads are named by instead of the sample
  tags     TEXT    NOT NULL,          -- JSON array
  args     TEXT    NOT NULL,          -- canonical arguments of the tool
  run_id   TEXT REFERENCES runs,      -- NULL until the row was submitted
  run_at   INTEGER,                   -- created_at of that run
  state    TEXT    NOT NULL CHECK (state IN ('waiting', 'refused', 'queued', 'running', 'blocked', 'succeeded', 'failed', 'cancelled')),
  todo     TEXT    NOT NULL CHECK (todo IN ('', 'submit', 'retry', 'cancel')), -- what the gateway still has to do with the row
  after_n  INTEGER NOT NULL DEFAULT 0, -- of a retry: the attempt it follows
  tries    INTEGER NOT NULL DEFAULT 0, -- how often that failed in a way that may pass
  code     TEXT    NOT NULL DEFAULT '', -- why a row was refused
  message  TEXT    NOT NULL DEFAULT '',
  waiting_id TEXT, -- the run it is, or was, while that waits for outputs of others; run_id follows
  -- The approval that a row was last retried under, where policy wants one for its tool. '': none was needed.
  approval_id TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (batch_id, row_n)
) STRICT, WITHOUT ROWID;
CREATE INDEX batch_rows_run ON batch_rows (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX batch_rows_todo ON batch_rows (batch_id, row_n) WHERE todo <> '';
CREATE INDEX batch_rows_state ON batch_rows (batch_id, state, row_n);
CREATE INDEX batch_rows_at ON batch_rows (batch_id, run_at, run_id, state) WHERE run_id IS NOT NULL;
CREATE INDEX batch_rows_sample ON batch_rows (sample, run_at, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX batch_rows_in_batch ON batch_rows (batch_id, sample);
CREATE INDEX batch_rows_waiting ON batch_rows (waiting_id) WHERE waiting_id IS NOT NULL;
CREATE TRIGGER batch_rows_new AFTER INSERT ON batch_rows
BEGIN
  INSERT INTO batch_counts VALUES (NEW.batch_id, NEW.state, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER batch_rows_moved AFTER UPDATE OF state, todo ON batch_rows WHEN OLD.state <> NEW.state OR OLD.todo <> NEW.todo
BEGIN
  UPDATE batch_counts SET n = n - 1 WHERE batch_id = OLD.batch_id AND state = OLD.state AND OLD.state <> NEW.state;
  INSERT INTO batch_counts SELECT NEW.batch_id, NEW.state, 1 WHERE OLD.state <> NEW.state ON CONFLICT DO UPDATE SET n = n + 1;
  UPDATE notices SET due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), next_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
      ended = (SELECT json_group_object(c.state, c.n) FROM batch_counts c WHERE c.batch_id = NEW.batch_id AND c.n > 0)
    WHERE batch_id = NEW.batch_id AND due_at IS NULL AND NEW.todo = '' AND NEW.state NOT IN ('waiting', 'queued', 'running', 'blocked')
      AND NOT EXISTS (SELECT 1 FROM batch_counts c WHERE c.batch_id = NEW.batch_id AND c.n > 0 AND c.state IN ('waiting', 'queued', 'running', 'blocked'))
      AND NOT EXISTS (SELECT 1 FROM batch_rows w WHERE w.batch_id = NEW.batch_id AND w.todo <> '');
  INSERT INTO notices (notice_id, batch_id, url, origin, principal, principal_id, asked_at)
    SELECT 'ntc_' || lower(hex(randomblob(8))), n.batch_id, n.url, n.origin, n.principal, n.principal_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
      FROM notices n WHERE n.batch_id = NEW.batch_id AND (NEW.todo <> '' OR NEW.state IN ('waiting', 'queued', 'running', 'blocked'))
      AND NOT EXISTS (SELECT 1 FROM notices x WHERE (x.batch_id, x.url, x.principal, x.principal_id) = (n.batch_id, n.url, n.principal, n.principal_id)
        AND (x.due_at IS NULL OR x.settled_at IS NOT NULL AND x.delivered = 0))
      GROUP BY n.url, n.principal, n.principal_id;
END;
CREATE TRIGGER batch_tags_moved AFTER UPDATE OF state ON batch_rows WHEN OLD.state <> NEW.state
BEGIN
  UPDATE batch_tags SET state = NEW.state WHERE batch_id = NEW.batch_id AND row_n = NEW.row_n;
END;

CREATE TABLE batch_tags (
  tag      TEXT    NOT NULL,
  batch_id TEXT    NOT NULL,
  row_n    INTEGER NOT NULL,
  run_id   TEXT,
  run_at   INTEGER,
  state TEXT NOT NULL DEFAULT 'waiting',
  PRIMARY KEY (tag, batch_id, row_n)
) STRICT, WITHOUT ROWID;
CREATE INDEX batch_tags_at ON batch_tags (tag, run_at, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX batch_tags_row ON batch_tags (batch_id, row_n);
CREATE INDEX batch_tags_state ON batch_tags (tag, state, run_at, run_id) WHERE run_id IS NOT NULL;

-- Rows by state. Kept by the triggers alone, in the transaction that moves the run.
CREATE TABLE batch_counts (
  batch_id TEXT    NOT NULL,
  state    TEXT    NOT NULL,
  n        INTEGER NOT NULL CHECK (n >= 0),
  PRIMARY KEY (batch_id, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE notices (
  notice_id    TEXT    NOT NULL PRIMARY KEY CHECK (notice_id GLOB 'ntc_*'),
  run_id       TEXT REFERENCES runs,
  waited_as    TEXT    NOT NULL DEFAULT '', -- the alias of the run by which it was asked for, while that waited for outputs of others
  batch_id     TEXT REFERENCES batches,
  url          TEXT    NOT NULL,            -- https://…, http://…, mailto:… or receiver:NAME
  origin       TEXT    NOT NULL,            -- what one failure delays: scheme, host and port, mailto: or receiver:NAME
  principal    TEXT    NOT NULL,
  principal_id TEXT    NOT NULL,
  asked_at     INTEGER NOT NULL,
  due_at       INTEGER,                     -- when the run or batch was over; NULL: it is not
  ended        TEXT    NOT NULL DEFAULT '', -- of a batch that was over: its rows by state, JSON
  next_at      INTEGER,                     -- when it is sent next; NULL: nothing is to be sent, now or any more
  tries        INTEGER NOT NULL DEFAULT 0,
  result       TEXT    NOT NULL DEFAULT '', -- of the newest try, in words
  settled_at   INTEGER,                     -- delivered, or given up
  delivered    INTEGER NOT NULL DEFAULT 0 CHECK (delivered IN (0, 1)),
  CHECK ((run_id IS NULL) <> (batch_id IS NULL)),
  CHECK ((next_at IS NOT NULL) = (due_at IS NOT NULL AND settled_at IS NULL)),
  CHECK (delivered = 0 OR settled_at IS NOT NULL)
) STRICT;
CREATE INDEX notices_of_run ON notices (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX notices_next ON notices (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX notices_settled ON notices (origin, settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX notices_of_batch ON notices (batch_id) WHERE batch_id IS NOT NULL;

-- What a run that waits for outputs of others has until it has started. It is in no engine: it has no site, no attempt, no claim and no job. When all its
-- inputs are there, the call that asked for it is made again with them.
CREATE TABLE waits (
  run_id       TEXT    NOT NULL PRIMARY KEY REFERENCES runs,
  args         TEXT    NOT NULL,             -- canonical JSON: of the call that asked for it
  caller       TEXT    NOT NULL,             -- JSON: with whose rights the call is made again
  principal    TEXT    NOT NULL,             -- whose these are: name
  principal_id TEXT    NOT NULL,
  approval_id  TEXT    NOT NULL,             -- of its batch, where it is a row of one: stored with it, because it may start before the batch knows its id
  due          INTEGER NOT NULL CHECK (due IN (0, 1)), -- something it waits for has changed
  -- A run that cannot start for now is put back behind those that are due; why it cannot is in code and message.
  due_at       INTEGER NOT NULL DEFAULT 0,   -- microseconds; not due before
  tries        INTEGER NOT NULL DEFAULT 0,   -- with errors that nobody expects, since it was set waiting
  code         TEXT    NOT NULL DEFAULT '',
  message      TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX waits_due ON waits (due_at) WHERE due = 1;
CREATE TRIGGER runs_wait_only BEFORE UPDATE OF phase ON runs
WHEN NEW.phase <> 'done' AND (NEW.phase = 'waiting_for_inputs') <> EXISTS (SELECT 1 FROM waits w WHERE w.run_id = OLD.run_id)
BEGIN SELECT RAISE(ABORT, 'a run that waits for inputs is never staged, and no other waits'); END;
CREATE TRIGGER runs_wait_ended AFTER UPDATE OF phase ON runs WHEN OLD.phase = 'waiting_for_inputs' AND NEW.phase = 'done'
BEGIN
  UPDATE waits SET due = 0, code = '', message = '' WHERE run_id = NEW.run_id;
  UPDATE batch_rows SET state = NEW.state, code = NEW.reason, message = NEW.detail WHERE waiting_id = NEW.run_id AND run_id IS NULL AND state = 'waiting';
END;
CREATE TRIGGER runs_wait_again AFTER UPDATE OF phase ON runs WHEN OLD.phase = 'done' AND NEW.phase = 'waiting_for_inputs'
BEGIN
  UPDATE waits SET due = 1, due_at = 0, tries = 0 WHERE run_id = NEW.run_id;
  UPDATE batch_rows SET state = 'waiting', code = '', message = '' WHERE waiting_id = NEW.run_id AND run_id IS NULL AND state = 'failed';
END;

-- The ids under which runs waited for their inputs. In the transaction that makes or finds the run of the resolved content the alias takes the place of
-- the row that waited, so that one content never has two.
CREATE TABLE run_aliases (
  alias  TEXT NOT NULL PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs
) STRICT, WITHOUT ROWID;
CREATE INDEX run_aliases_run ON run_aliases (run_id);
CREATE TRIGGER run_aliases_keep BEFORE DELETE ON run_aliases
BEGIN SELECT RAISE(ABORT, 'aliases are never deleted'); END;
CREATE TRIGGER run_aliases_fixed BEFORE UPDATE ON run_aliases
BEGIN SELECT RAISE(ABORT, 'what a run became never changes'); END;
CREATE TRIGGER run_aliases_new AFTER INSERT ON run_aliases
BEGIN
  UPDATE waits SET due = 1 WHERE run_id IN (SELECT i.run_id FROM waiting_inputs i JOIN runs w ON w.run_id = i.run_id
    WHERE i.source = NEW.alias AND w.phase = 'waiting_for_inputs');
  UPDATE batch_rows SET (run_id, run_at, state) = (SELECT r.run_id, r.created_at, r.state FROM runs r WHERE r.run_id = NEW.run_id), code = '', message = ''
    WHERE waiting_id = NEW.alias AND run_id IS NULL AND state <> 'cancelled';
  UPDATE batch_tags SET (run_id, run_at) = (SELECT r.run_id, r.created_at FROM runs r WHERE r.run_id = NEW.run_id)
    WHERE (batch_id, row_n) IN (SELECT b.batch_id, b.row_n FROM batch_rows b WHERE b.waiting_id = NEW.alias AND b.run_id = NEW.run_id);
  UPDATE notices SET run_id = NEW.run_id, waited_as = NEW.alias, due_at = coalesce(due_at, (SELECT r.finished_at FROM runs r WHERE r.run_id = NEW.run_id)),
    next_at = iif(settled_at IS NULL, (SELECT r.finished_at FROM runs r WHERE r.run_id = NEW.run_id), NULL) WHERE run_id = NEW.alias;
  DELETE FROM waiting_inputs WHERE run_id = NEW.alias;
  DELETE FROM waiting_artifacts WHERE run_id = NEW.alias;
  DELETE FROM waits WHERE run_id = NEW.alias;
  DELETE FROM runs WHERE run_id = NEW.alias;
END;

CREATE TABLE waiting_inputs (
  run_id TEXT NOT NULL REFERENCES waits,
  source TEXT NOT NULL,                      -- the run whose output it is, or an alias of it
  role   TEXT NOT NULL,                      -- of the output
  PRIMARY KEY (run_id, source, role)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_inputs_source ON waiting_inputs (source);

-- Artifacts that a run takes beside what it waits for. They stay while it waits.
CREATE TABLE waiting_artifacts (
  run_id      TEXT NOT NULL REFERENCES waits,
  artifact_id TEXT NOT NULL REFERENCES artifacts,
  PRIMARY KEY (run_id, artifact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_artifacts_artifact ON waiting_artifacts (artifact_id);

-- The project of each user's own, and whose it is: a user's name and user id together, or an OpenID subject. A name that comes back with another user id waits
-- for an administrator's decision.
CREATE TABLE user_projects (
  project_id   TEXT    NOT NULL PRIMARY KEY CHECK (project_id GLOB 'proj_Z*'),
  user         TEXT    NOT NULL,             -- login name, or the name of the subject's principal
  n            INTEGER NOT NULL CHECK (n >= 1), -- which of the people who had the name: the id is derived from both
  uid          INTEGER,                      -- NULL: a subject, whose principal it is
  principal_id TEXT    NOT NULL,             -- whose request began it
  begun_at     INTEGER NOT NULL,
  ended_at     INTEGER,                      -- when the name became another person's
  UNIQUE (user, n)
) STRICT;
CREATE UNIQUE INDEX user_projects_now ON user_projects (user) WHERE ended_at IS NULL;
CREATE TRIGGER user_projects_fixed BEFORE UPDATE ON user_projects
WHEN OLD.ended_at IS NOT NULL OR (NEW.project_id, NEW.user, NEW.n, NEW.principal_id, NEW.begun_at) IS NOT (OLD.project_id, OLD.user, OLD.n, OLD.principal_id, OLD.begun_at)
BEGIN SELECT RAISE(ABORT, 'only whose a project is changes, and never back'); END;
CREATE TRIGGER user_projects_keep BEFORE DELETE ON user_projects
BEGIN SELECT RAISE(ABORT, 'the projects of users are never deleted'); END;

-- Who asks for a run, for a run that waits and for an imported artifact: a principal, by calls of its own or by a batch. Recorded in the transaction that
-- answers; what nobody asks for any more is ended, or removed, in the transaction that withdraws the last.
CREATE TABLE askings (
  asking_id    INTEGER NOT NULL PRIMARY KEY,
  thing        TEXT    NOT NULL,             -- run_… (also of a run that waits), batch_… or art_…
  principal    TEXT    NOT NULL,
  principal_id TEXT    NOT NULL,             -- '' where no ledger gave ids
  person       TEXT    NOT NULL DEFAULT '',  -- user id and login name of its Unix user, as principals have a peer; '' for none
  batch_id     TEXT    NOT NULL DEFAULT '',  -- by which it asks; '' by calls of its own
  call_id      TEXT    NOT NULL DEFAULT '',  -- the call; '' where none is recorded
  caller       TEXT    NOT NULL DEFAULT '',  -- JSON, of a run that waits: with whose rights its call is made, should this be the asking that it starts for
  approval_id  TEXT    NOT NULL DEFAULT '',  -- likewise
  asked_at     INTEGER NOT NULL,             -- the first time
  withdrawn_at INTEGER,                      -- NULL: it holds
  withdrawn_by TEXT    NOT NULL DEFAULT '',  -- id of the principal that withdrew it
  UNIQUE (thing, principal_id, principal, batch_id)
) STRICT;
CREATE INDEX askings_of ON askings (principal_id, thing);
CREATE INDEX askings_by_batch ON askings (batch_id, thing) WHERE batch_id <> '';
CREATE INDEX askings_named    ON askings (principal, thing);
CREATE TRIGGER askings_fixed BEFORE UPDATE ON askings
WHEN (NEW.asking_id, NEW.thing, NEW.principal, NEW.principal_id, NEW.person, NEW.batch_id, NEW.call_id, NEW.asked_at)
  IS NOT (OLD.asking_id, OLD.thing, OLD.principal, OLD.principal_id, OLD.person, OLD.batch_id, OLD.call_id, OLD.asked_at)
BEGIN SELECT RAISE(ABORT, 'who asked for something never changes'); END;
CREATE TRIGGER askings_keep BEFORE DELETE ON askings
BEGIN SELECT RAISE(ABORT, 'who asked for something is never deleted'); END;

-- How many artifacts there are, so that a list can say it at once. Kept by the triggers alone.
CREATE TABLE artifact_counts (
  project_id TEXT    NOT NULL,
  type       TEXT    NOT NULL,
  n          INTEGER NOT NULL CHECK (n >= 0),
  PRIMARY KEY (project_id, type)
) STRICT, WITHOUT ROWID;

CREATE VIEW attempt_costs AS SELECT a.run_id, a.n, r.project_id,
  CASE WHEN r.executed_as <> '' THEN 'unix:' || r.executed_as WHEN r.principal_id <> '' THEN r.principal_id ELSE r.principal END AS caller,
  date(a.created_at / 1000000, 'unixepoch') AS day,
  coalesce(a.resources ->> '$.cpus', p.params ->> '$.slurm.resources.cpus', p.params ->> '$.docker.resources.cpus', 0) AS cpus,
  coalesce(a.resources ->> '$.time_limit_seconds', p.params ->> '$.slurm.resources.time_limit_seconds',
    p.params ->> '$.docker.resources.time_limit_seconds', 0) AS seconds,
  coalesce((a.ended_at - a.started_at) / 1000000, CAST(a.usage ->> '$.elapsed_seconds' AS INTEGER), 0) AS ran, a.ending
  FROM attempts a JOIN runs r ON r.run_id = a.run_id LEFT JOIN param_sets p ON p.params_hash = r.params_hash
  WHERE r.site <> '(worker)';
