-- Groups of runs that one call asked for, with a name: ordinary runs, each the run of one or more rows of a sheet. Sample, tags and label belong to the
-- row, never to the run, which rows of equal bytes share. Times as in 0001.
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
  UNIQUE (project_id, name)
) STRICT;
CREATE INDEX batches_created ON batches (created_at);

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
  PRIMARY KEY (batch_id, row_n)
) STRICT, WITHOUT ROWID;
CREATE INDEX batch_rows_run ON batch_rows (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX batch_rows_todo ON batch_rows (batch_id, row_n) WHERE todo <> '';
CREATE INDEX batch_rows_state ON batch_rows (batch_id, state, row_n);
CREATE INDEX batch_rows_at ON batch_rows (batch_id, run_at, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX batch_rows_sample ON batch_rows (sample, run_at, run_id) WHERE run_id IS NOT NULL;

CREATE TABLE batch_tags (
  tag      TEXT    NOT NULL,
  batch_id TEXT    NOT NULL,
  row_n    INTEGER NOT NULL,
  run_id   TEXT,
  run_at   INTEGER,
  PRIMARY KEY (tag, batch_id, row_n)
) STRICT, WITHOUT ROWID;
CREATE INDEX batch_tags_at ON batch_tags (tag, run_at, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX batch_tags_row ON batch_tags (batch_id, row_n);

-- Rows by state. Kept by the triggers alone, in the transaction that moves the run.
CREATE TABLE batch_counts (
  batch_id TEXT    NOT NULL,
  state    TEXT    NOT NULL,
  n        INTEGER NOT NULL CHECK (n >= 0),
  PRIMARY KEY (batch_id, state)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER batch_rows_new AFTER INSERT ON batch_rows
BEGIN
  INSERT INTO batch_counts VALUES (NEW.batch_id, NEW.state, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER batch_rows_moved AFTER UPDATE OF state ON batch_rows WHEN OLD.state <> NEW.state
BEGIN
  UPDATE batch_counts SET n = n - 1 WHERE batch_id = OLD.batch_id AND state = OLD.state;
  INSERT INTO batch_counts VALUES (NEW.batch_id, NEW.state, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER runs_batch_moved AFTER UPDATE OF state ON runs WHEN OLD.state <> NEW.state
BEGIN
  UPDATE batch_rows SET state = NEW.state WHERE run_id = NEW.run_id;
END;
