-- A run that waits and cannot start for now is put back behind those that are due; why it cannot is in code and message. Times as in 0001.
ALTER TABLE waiting_runs ADD COLUMN due_at INTEGER NOT NULL DEFAULT 0; -- not looked after before
ALTER TABLE waiting_runs ADD COLUMN tries  INTEGER NOT NULL DEFAULT 0; -- with errors that nobody expects, since it was set waiting
DROP INDEX waiting_runs_due;
CREATE INDEX waiting_runs_due ON waiting_runs (due_at, created_at) WHERE due = 1 AND state = 'waiting';

-- Notices of runs that wait. One goes over to the run that such a run becomes.
DROP TRIGGER notices_due;
DROP TRIGGER batch_rows_moved;
CREATE TABLE notices_new (
  notice_id    TEXT    NOT NULL PRIMARY KEY CHECK (notice_id GLOB 'ntc_*'),
  run_id       TEXT REFERENCES runs,
  waiting_id   TEXT REFERENCES waiting_runs, -- asked for while that waited; run_id follows
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
  CHECK ((run_id IS NULL AND waiting_id IS NULL) <> (batch_id IS NULL)),
  CHECK ((next_at IS NOT NULL) = (due_at IS NOT NULL AND settled_at IS NULL)),
  CHECK (delivered = 0 OR settled_at IS NOT NULL)
) STRICT;
INSERT INTO notices_new (notice_id, run_id, batch_id, url, origin, principal, principal_id, asked_at, due_at, ended, next_at, tries, result, settled_at, delivered)
SELECT notice_id, run_id, batch_id, url, origin, principal, principal_id, asked_at, due_at, ended, next_at, tries, result, settled_at, delivered FROM notices;
DROP TABLE notices;
ALTER TABLE notices_new RENAME TO notices;
CREATE INDEX notices_of_run ON notices (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX notices_of_waiting ON notices (waiting_id) WHERE waiting_id IS NOT NULL;
CREATE INDEX notices_of_batch ON notices (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX notices_next ON notices (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX notices_settled ON notices (origin, settled_at) WHERE settled_at IS NOT NULL;
CREATE TRIGGER notices_due AFTER UPDATE OF phase ON runs WHEN NEW.phase = 'done' AND OLD.phase <> 'done'
BEGIN
  UPDATE notices SET due_at = NEW.updated_at, next_at = NEW.updated_at WHERE run_id = NEW.run_id AND due_at IS NULL;
END;
CREATE TRIGGER notices_of_waiting_due AFTER UPDATE OF state ON waiting_runs WHEN NEW.state <> OLD.state
BEGIN
  UPDATE notices SET (run_id, due_at, next_at) = (SELECT r.run_id, r.finished_at, r.finished_at FROM runs r WHERE r.run_id = NEW.became)
    WHERE waiting_id = NEW.run_id AND due_at IS NULL AND NEW.state = 'started';
  UPDATE notices SET due_at = NEW.finished_at, next_at = NEW.finished_at
    WHERE waiting_id = NEW.run_id AND due_at IS NULL AND NEW.state IN ('failed', 'cancelled');
  UPDATE notices SET due_at = NULL, next_at = NULL WHERE waiting_id = NEW.run_id AND run_id IS NULL AND settled_at IS NULL AND NEW.state = 'waiting';
END;

-- As before; it goes with the table.
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
