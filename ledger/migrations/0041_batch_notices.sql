-- Notices of batches. What is told of a batch is how it stood when it was over, whatever was done with it since. Times as in 0001.

DROP TRIGGER notices_due;
CREATE TABLE notices_new (
  notice_id    TEXT    NOT NULL PRIMARY KEY CHECK (notice_id GLOB 'ntc_*'),
  run_id       TEXT REFERENCES runs,
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
INSERT INTO notices_new (notice_id, run_id, url, origin, principal, principal_id, asked_at, due_at, next_at, tries, result, settled_at, delivered)
SELECT notice_id, run_id, url, origin, principal, principal_id, asked_at, due_at, next_at, tries, result, settled_at, delivered FROM notices;
DROP TABLE notices;
ALTER TABLE notices_new RENAME TO notices;
CREATE INDEX notices_of_run ON notices (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX notices_of_batch ON notices (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX notices_next ON notices (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX notices_settled ON notices (origin, settled_at) WHERE settled_at IS NOT NULL;
CREATE TRIGGER notices_due AFTER UPDATE OF phase ON runs WHEN NEW.phase = 'done' AND OLD.phase <> 'done'
BEGIN
  UPDATE notices SET due_at = NEW.updated_at, next_at = NEW.updated_at WHERE run_id = NEW.run_id AND due_at IS NULL;
END;

-- One trigger, because the counts come first. A batch is over when no row is open and nothing is left to do; the row that ends it makes its
-- notices due, in the transaction that moves the row. A row that opens the batch again has those told once more that were told of its end.
DROP TRIGGER batch_rows_moved;
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
