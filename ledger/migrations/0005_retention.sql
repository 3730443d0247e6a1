-- What was removed, and what never may be. Times as in 0001.

-- An artifact whose bytes were removed keeps its row: what it was stays known, and the same bytes imported again bring it back.
ALTER TABLE artifacts ADD COLUMN used_at    INTEGER;  -- imported again; NULL: only at created_at
ALTER TABLE artifacts ADD COLUMN removed_at INTEGER;  -- its bytes may be gone
DROP INDEX artifacts_project;
CREATE INDEX artifacts_project ON artifacts (project_id, created_at, type) WHERE removed_at IS NULL;
CREATE INDEX artifacts_there   ON artifacts (created_at, type) WHERE removed_at IS NULL;
CREATE INDEX artifacts_imports ON artifacts (created_at) WHERE removed_at IS NULL AND source = 'import';

-- What a run refers to is never removed, and what was removed is referred to by no new run.
CREATE TRIGGER artifacts_referenced BEFORE UPDATE OF removed_at ON artifacts
WHEN NEW.removed_at IS NOT NULL AND (OLD.source <> 'import'
  OR EXISTS (SELECT 1 FROM run_inputs i WHERE i.artifact_id = OLD.artifact_id) OR EXISTS (SELECT 1 FROM run_outputs o WHERE o.artifact_id = OLD.artifact_id))
BEGIN SELECT RAISE(ABORT, 'a run refers to the artifact'); END;
CREATE TRIGGER run_inputs_there BEFORE INSERT ON run_inputs
WHEN EXISTS (SELECT 1 FROM artifacts a WHERE a.artifact_id = NEW.artifact_id AND a.removed_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'artifact_removed'); END;
CREATE TRIGGER run_outputs_there BEFORE INSERT ON run_outputs
WHEN EXISTS (SELECT 1 FROM artifacts a WHERE a.artifact_id = NEW.artifact_id AND a.removed_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'artifact_removed'); END;
CREATE TRIGGER artifacts_keep BEFORE DELETE ON artifacts
BEGIN SELECT RAISE(ABORT, 'artifacts are marked as removed, never deleted'); END;

-- Workspaces of finished runs that were removed: begun before the first file goes, removed after the last.
CREATE TABLE workspace_removals (
  run_id     TEXT    NOT NULL REFERENCES runs,
  attempt_n  INTEGER NOT NULL,               -- the run's last attempt then; a later one has a workspace again
  begun_at   INTEGER NOT NULL,
  removed_at INTEGER,
  bytes      INTEGER NOT NULL,               -- freed
  PRIMARY KEY (run_id, attempt_n)
) STRICT;
