-- Who wants to be told when a run is over, where, and what came of it. Times as in 0001.

CREATE TABLE notices (
  notice_id    TEXT    NOT NULL PRIMARY KEY CHECK (notice_id GLOB 'ntc_*'),
  run_id       TEXT    NOT NULL REFERENCES runs,
  url          TEXT    NOT NULL,            -- https://…, http://… or mailto:…
  origin       TEXT    NOT NULL,            -- what one failure delays: scheme, host and port, or mailto:
  principal    TEXT    NOT NULL,
  principal_id TEXT    NOT NULL,
  asked_at     INTEGER NOT NULL,
  due_at       INTEGER,                     -- when the run was over; NULL: it is not
  next_at      INTEGER,                     -- when it is sent next; NULL: nothing is to be sent, now or any more
  tries        INTEGER NOT NULL DEFAULT 0,
  result       TEXT    NOT NULL DEFAULT '', -- of the newest try, in words
  settled_at   INTEGER,                     -- delivered, or given up
  delivered    INTEGER NOT NULL DEFAULT 0 CHECK (delivered IN (0, 1)),
  CHECK ((next_at IS NOT NULL) = (due_at IS NOT NULL AND settled_at IS NULL)),
  CHECK (delivered = 0 OR settled_at IS NOT NULL)
) STRICT;
CREATE INDEX notices_of_run ON notices (run_id);
CREATE INDEX notices_next ON notices (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX notices_settled ON notices (origin, settled_at) WHERE settled_at IS NOT NULL;
CREATE TRIGGER notices_due AFTER UPDATE OF phase ON runs WHEN NEW.phase = 'done' AND OLD.phase <> 'done'
BEGIN
  UPDATE notices SET due_at = NEW.updated_at, next_at = NEW.updated_at WHERE run_id = NEW.run_id AND due_at IS NULL;
END;
