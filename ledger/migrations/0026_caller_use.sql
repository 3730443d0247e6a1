-- Whose an artifact is, as spent has callers: who imported it, whose call made the gateway store it, or whose run made it. '' in artifacts
-- that are older than this: nobody's. Of several who store the same artifact the first one counts, until it is removed.
ALTER TABLE artifacts ADD COLUMN caller TEXT NOT NULL DEFAULT '';

-- What each caller keeps, in all projects: the artifacts that are there, and their bytes (the same content counts for each artifact). Maintained by
-- the triggers alone.
CREATE TABLE caller_use (
  caller    TEXT    NOT NULL PRIMARY KEY,
  artifacts INTEGER NOT NULL CHECK (artifacts >= 0),
  bytes     INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT, WITHOUT ROWID;
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
