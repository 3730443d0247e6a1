-- Runs that wait for outputs of other runs. Such a run is in no engine: it has no attempt, no claim and no job. When all its inputs are there, the call that asked
-- for it is made again with them; the run of that call has the ordinary identity of its content, and this one is another name of it (became). Times as in 0001.
CREATE TABLE waiting_runs (
  run_id           TEXT    NOT NULL PRIMARY KEY CHECK (run_id GLOB 'run_*'),
  project_id       TEXT    NOT NULL,
  tool_id          TEXT    NOT NULL,
  tool_name        TEXT    NOT NULL,
  tool_version     TEXT    NOT NULL,
  contract_version TEXT    NOT NULL,
  policy_hash      TEXT    NOT NULL,
  params_hash      TEXT    NOT NULL,
  params           TEXT    NOT NULL,         -- canonical JSON: what the run is the same by, with the promises
  args             TEXT    NOT NULL,         -- canonical JSON: of the call that asked for it
  caller           TEXT    NOT NULL,         -- JSON: with whose rights the call is made again
  actor            TEXT    NOT NULL,
  principal        TEXT    NOT NULL,
  principal_id     TEXT    NOT NULL,
  executed_as      TEXT    NOT NULL,
  others           INTEGER NOT NULL DEFAULT 0 CHECK (others IN (0, 1)), -- another caller asked for it too
  state            TEXT    NOT NULL CHECK (state IN ('waiting', 'started', 'failed', 'cancelled')),
  became           TEXT    REFERENCES runs,  -- the run it is from now on
  attempt_n        INTEGER NOT NULL CHECK (attempt_n >= 1), -- how often it was set waiting
  due              INTEGER NOT NULL CHECK (due IN (0, 1)),  -- something it waits for has changed
  code             TEXT    NOT NULL DEFAULT '',
  message          TEXT    NOT NULL DEFAULT '',
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  finished_at      INTEGER,
  CHECK ((state = 'started') = (became IS NOT NULL)),
  CHECK ((state = 'waiting') = (finished_at IS NULL)),
  CHECK (state <> 'failed' OR code <> '')
) STRICT;
CREATE INDEX waiting_runs_due     ON waiting_runs (created_at) WHERE due = 1 AND state = 'waiting';
CREATE INDEX waiting_runs_open    ON waiting_runs (project_id) WHERE state = 'waiting';
CREATE INDEX waiting_runs_created ON waiting_runs (created_at, run_id) WHERE state <> 'started';
CREATE INDEX waiting_runs_became  ON waiting_runs (became) WHERE became IS NOT NULL;
CREATE TRIGGER waiting_runs_keep BEFORE DELETE ON waiting_runs
BEGIN SELECT RAISE(ABORT, 'runs are never deleted'); END;
CREATE TRIGGER waiting_runs_started BEFORE UPDATE ON waiting_runs WHEN OLD.state = 'started'
BEGIN SELECT RAISE(ABORT, 'what a run became never changes'); END;

CREATE TABLE waiting_inputs (
  run_id TEXT NOT NULL REFERENCES waiting_runs,
  source TEXT NOT NULL,                      -- the run whose output it is, or one that waits
  role   TEXT NOT NULL,                      -- of the output
  PRIMARY KEY (run_id, source, role)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_inputs_source ON waiting_inputs (source);

-- Artifacts that a run takes beside what it waits for. They stay while it waits.
CREATE TABLE waiting_artifacts (
  run_id      TEXT NOT NULL REFERENCES waiting_runs,
  artifact_id TEXT NOT NULL REFERENCES artifacts,
  PRIMARY KEY (run_id, artifact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_artifacts_artifact ON waiting_artifacts (artifact_id);
CREATE TRIGGER artifacts_waited BEFORE UPDATE OF removed_at ON artifacts
WHEN NEW.removed_at IS NOT NULL AND NEW.removal IS NULL
  AND EXISTS (SELECT 1 FROM waiting_artifacts w JOIN waiting_runs r ON r.run_id = w.run_id WHERE w.artifact_id = OLD.artifact_id AND r.state = 'waiting')
BEGIN SELECT RAISE(ABORT, 'a waiting run needs the artifact'); END;

-- What waits for something hears of it in the transaction that changes it.
CREATE TRIGGER runs_waited_for AFTER UPDATE OF phase ON runs WHEN NEW.phase = 'done' AND OLD.phase <> 'done'
BEGIN
  UPDATE waiting_runs SET due = 1 WHERE state = 'waiting' AND run_id IN (SELECT i.run_id FROM waiting_inputs i
    WHERE i.source IN (SELECT NEW.run_id UNION ALL SELECT w.run_id FROM waiting_runs w WHERE w.became = NEW.run_id));
END;
CREATE TRIGGER waiting_runs_moved AFTER UPDATE OF state ON waiting_runs WHEN NEW.state <> OLD.state
BEGIN
  UPDATE waiting_runs SET due = 1 WHERE state = 'waiting' AND run_id IN (SELECT i.run_id FROM waiting_inputs i WHERE i.source = NEW.run_id);
  UPDATE batch_rows SET state = 'failed', code = NEW.code, message = NEW.message
    WHERE waiting_id = NEW.run_id AND run_id IS NULL AND NEW.state = 'failed' AND state = 'waiting';
  UPDATE batch_rows SET state = 'cancelled', code = 'cancelled', message = NEW.message
    WHERE waiting_id = NEW.run_id AND run_id IS NULL AND NEW.state = 'cancelled' AND state = 'waiting';
  UPDATE batch_rows SET (run_id, run_at, state) = (SELECT r.run_id, r.created_at, r.state FROM runs r WHERE r.run_id = NEW.became), code = '', message = ''
    WHERE waiting_id = NEW.run_id AND run_id IS NULL AND NEW.state = 'started' AND state <> 'cancelled';
  UPDATE batch_rows SET state = 'waiting', code = '', message = ''
    WHERE waiting_id = NEW.run_id AND run_id IS NULL AND NEW.state = 'waiting' AND state = 'failed';
  UPDATE batch_tags SET (run_id, run_at) = (SELECT r.run_id, r.created_at FROM runs r WHERE r.run_id = NEW.became) WHERE NEW.state = 'started'
    AND (batch_id, row_n) IN (SELECT b.batch_id, b.row_n FROM batch_rows b WHERE b.waiting_id = NEW.run_id AND b.run_id = NEW.became);
END;

ALTER TABLE batch_rows ADD COLUMN waiting_id TEXT REFERENCES waiting_runs; -- the run it is while that waits; run_id follows
CREATE INDEX batch_rows_in_batch ON batch_rows (batch_id, sample);
CREATE INDEX batch_rows_waiting ON batch_rows (waiting_id) WHERE waiting_id IS NOT NULL;

-- A chain is several batches, of each step one, that one call asked for; a row takes outputs of the rows of its sample in batches before.
ALTER TABLE batches ADD COLUMN chain TEXT NOT NULL DEFAULT ''; -- the name of the whole; the batch's own name is CHAIN.STEP
ALTER TABLE batches ADD COLUMN step  TEXT NOT NULL DEFAULT '';
CREATE INDEX batches_chain ON batches (chain) WHERE chain <> '';
