-- What is written for each run lies in fewer places. Every constraint stays.

-- Rows found by their key alone lie in it.
CREATE TABLE sends_new (
  token      TEXT    NOT NULL REFERENCES submissions,
  k          INTEGER NOT NULL CHECK (k >= 1),
  started_at INTEGER NOT NULL,
  ended_at   INTEGER,
  outcome    TEXT    NOT NULL CHECK (outcome IN ('','accepted','rejected','deferred','doubt','not_run')),
  exit_code  INTEGER,
  text       TEXT    NOT NULL,
  PRIMARY KEY (token, k)
) STRICT, WITHOUT ROWID;
INSERT INTO sends_new (token, k, started_at, ended_at, outcome, exit_code, text) SELECT token, k, started_at, ended_at, outcome, exit_code, text FROM sends;
DROP TABLE sends;
ALTER TABLE sends_new RENAME TO sends;

-- Only the tasks of an array share a token. Of a job alone the token tells nothing that the run does not: it had an entry of its own in an index
-- that held nobody to anything, since array_task is NULL there.
CREATE TABLE attempts_new (
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
  PRIMARY KEY (run_id, n)
) STRICT;
INSERT INTO attempts_new (run_id, n, token, array_task, created_at, slurm_state, slurm_why, node, observed_at, started_at, ended_at, missed_at, ending, exit_code, usage)
  SELECT run_id, n, token, array_task, created_at, slurm_state, slurm_why, node, observed_at, started_at, ended_at, missed_at, ending, exit_code, usage FROM attempts;
DROP TABLE attempts;
ALTER TABLE attempts_new RENAME TO attempts;
CREATE UNIQUE INDEX attempts_task ON attempts (token, array_task) WHERE array_task IS NOT NULL;
CREATE INDEX attempts_ended ON attempts (ended_at) WHERE ended_at IS NOT NULL;

-- One index in the order of time: the newest of all, those that are there, and how many of a type.
DROP INDEX artifacts_there;
DROP INDEX artifacts_created;
CREATE INDEX artifacts_created ON artifacts (created_at, removed_at, type);

-- An update that does not name one of these columns cannot change it.
DROP TRIGGER runs_identity;
CREATE TRIGGER runs_identity BEFORE UPDATE OF run_id, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash, project_id, created_at ON runs
WHEN (NEW.run_id, NEW.tool_id, NEW.tool_name, NEW.tool_version, NEW.contract_version, NEW.pack_hash, NEW.policy_hash, NEW.params_hash, NEW.plan_hash, NEW.project_id, NEW.created_at)
  IS NOT (OLD.run_id, OLD.tool_id, OLD.tool_name, OLD.tool_version, OLD.contract_version, OLD.pack_hash, OLD.policy_hash, OLD.params_hash, OLD.plan_hash, OLD.project_id, OLD.created_at)
BEGIN SELECT RAISE(ABORT, 'what a run is the same by never changes'); END;
