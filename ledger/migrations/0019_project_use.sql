-- What each project keeps: the artifacts that are there, their bytes (the same content counts for each artifact), and how many of them callers imported.
-- Kept by the triggers alone.
CREATE TABLE project_use (
  project_id TEXT    NOT NULL PRIMARY KEY,
  artifacts  INTEGER NOT NULL CHECK (artifacts >= 0),
  imports    INTEGER NOT NULL CHECK (imports >= 0),
  bytes      INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO project_use SELECT project_id, count(*), sum(source = 'import'), sum(size_bytes) FROM artifacts WHERE removed_at IS NULL GROUP BY project_id;
CREATE TRIGGER artifacts_use_new AFTER INSERT ON artifacts WHEN NEW.removed_at IS NULL
BEGIN
  INSERT INTO project_use VALUES (NEW.project_id, 1, NEW.source = 'import', NEW.size_bytes)
  ON CONFLICT DO UPDATE SET artifacts = artifacts + 1, imports = imports + excluded.imports, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER artifacts_use_left AFTER UPDATE OF removed_at, size_bytes ON artifacts WHEN OLD.removed_at IS NULL
BEGIN
  UPDATE project_use SET artifacts = artifacts - 1, imports = imports - (OLD.source = 'import'), bytes = bytes - OLD.size_bytes WHERE project_id = OLD.project_id;
END;
CREATE TRIGGER artifacts_use_back AFTER UPDATE OF removed_at, size_bytes ON artifacts WHEN NEW.removed_at IS NULL
BEGIN
  UPDATE project_use SET artifacts = artifacts + 1, imports = imports + (NEW.source = 'import'), bytes = bytes + NEW.size_bytes WHERE project_id = NEW.project_id;
END;
