-- Artifacts and runs that somebody removed: the rows stay and say who, when and why. Times as in 0001.

CREATE TABLE removals (
  removal_id   TEXT    NOT NULL PRIMARY KEY CHECK (removal_id GLOB 'rmv_*'),
  principal    TEXT    NOT NULL,            -- name of who removed it
  principal_id TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  begun_at     INTEGER NOT NULL,
  ended_at     INTEGER                      -- NULL: something of it is left to do
) STRICT;
CREATE TRIGGER removals_keep BEFORE DELETE ON removals
BEGIN SELECT RAISE(ABORT, 'removals are never deleted'); END;

-- What is to be removed after the ledger's own transaction.
CREATE TABLE removal_items (
  removal_id TEXT    NOT NULL REFERENCES removals,
  kind       TEXT    NOT NULL CHECK (kind IN ('object', 'workspace', 'ledger')),
  name       TEXT    NOT NULL,
  done_at    INTEGER,
  PRIMARY KEY (removal_id, kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX removal_items_open ON removal_items (removal_id) WHERE done_at IS NULL;

-- The attempts whose run was removed after them. A later attempt has a workspace and outputs again.
CREATE TABLE run_removals (
  run_id     TEXT    NOT NULL REFERENCES runs,
  attempt_n  INTEGER NOT NULL,
  removal_id TEXT    NOT NULL REFERENCES removals,
  PRIMARY KEY (run_id, attempt_n)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER run_removals_over BEFORE INSERT ON run_removals
WHEN EXISTS (SELECT 1 FROM runs r WHERE r.run_id = NEW.run_id AND (r.phase <> 'done' OR r.attempt_n <> NEW.attempt_n))
BEGIN SELECT RAISE(ABORT, 'a run that is not over is not removed'); END;
CREATE TRIGGER run_removals_keep BEFORE DELETE ON run_removals
BEGIN SELECT RAISE(ABORT, 'removals are never deleted'); END;

ALTER TABLE artifacts ADD COLUMN removal TEXT REFERENCES removals; -- removed_at is set too

-- What a run refers to is removed by nobody but a person, and never while a run needs it.
DROP TRIGGER artifacts_referenced;
CREATE TRIGGER artifacts_referenced BEFORE UPDATE OF removed_at ON artifacts
WHEN NEW.removed_at IS NOT NULL AND NEW.removal IS NULL AND (OLD.source <> 'import'
  OR EXISTS (SELECT 1 FROM run_inputs i WHERE i.artifact_id = OLD.artifact_id) OR EXISTS (SELECT 1 FROM run_outputs o WHERE o.artifact_id = OLD.artifact_id))
BEGIN SELECT RAISE(ABORT, 'a run refers to the artifact'); END;
CREATE TRIGGER artifacts_needed BEFORE UPDATE OF removed_at ON artifacts
WHEN NEW.removed_at IS NOT NULL AND NEW.removal IS NOT NULL
  AND EXISTS (SELECT 1 FROM run_inputs i JOIN runs r ON r.run_id = i.run_id WHERE i.artifact_id = OLD.artifact_id AND r.phase <> 'done')
BEGIN SELECT RAISE(ABORT, 'a run in flight needs the artifact'); END;
