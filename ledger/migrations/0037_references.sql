-- Names that the site gives to bytes: an index, a database, a genome. A version is never changed but for its end. The current one of a name has
-- no end; one that another replaced can still be named with its digest; one that was withdrawn cannot.
CREATE TABLE reference_versions (
  version     INTEGER PRIMARY KEY,
  name        TEXT    NOT NULL,
  sha256      TEXT    NOT NULL CHECK (length(sha256) = 64),
  type        TEXT    NOT NULL,
  label       TEXT    NOT NULL,
  size_bytes  INTEGER NOT NULL CHECK (size_bytes >= 0),
  description TEXT    NOT NULL,
  site        TEXT    NOT NULL,  -- where it was registered in place; '': it is stored
  path        TEXT    NOT NULL,  -- there; else ''
  projects    TEXT,              -- JSON: the ids of those it is offered to; NULL: all
  principal   TEXT    NOT NULL,
  at          INTEGER NOT NULL,
  ended_at    INTEGER,
  withdrawn   INTEGER NOT NULL DEFAULT 0 CHECK (withdrawn IN (0, 1)),
  CHECK (withdrawn = 0 OR ended_at IS NOT NULL),
  CHECK ((site = '') = (path = ''))
) STRICT;
CREATE UNIQUE INDEX reference_current ON reference_versions (name) WHERE ended_at IS NULL;
CREATE INDEX reference_sha256 ON reference_versions (sha256);
CREATE TRIGGER reference_versions_keep BEFORE DELETE ON reference_versions
BEGIN SELECT RAISE(ABORT, 'versions of references are never deleted'); END;

-- The files of a directory in place lie where its owner has them: the list alone is stored, and directory_files has none of them.
ALTER TABLE directories ADD COLUMN in_place INTEGER NOT NULL DEFAULT 0 CHECK (in_place IN (0, 1));

-- What a project keeps has no bytes of the site's references, which the project did not bring.
DROP TRIGGER artifacts_use_new;
DROP TRIGGER artifacts_use_left;
DROP TRIGGER artifacts_use_back;
CREATE TRIGGER artifacts_use_new AFTER INSERT ON artifacts WHEN NEW.removed_at IS NULL
BEGIN
  INSERT INTO project_use VALUES (NEW.project_id, 1, NEW.source = 'import', iif(NEW.source GLOB 'reference *', 0, NEW.size_bytes))
  ON CONFLICT DO UPDATE SET artifacts = artifacts + 1, imports = imports + excluded.imports, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER artifacts_use_left AFTER UPDATE OF removed_at, size_bytes ON artifacts WHEN OLD.removed_at IS NULL
BEGIN
  UPDATE project_use SET artifacts = artifacts - 1, imports = imports - (OLD.source = 'import'),
    bytes = bytes - iif(OLD.source GLOB 'reference *', 0, OLD.size_bytes) WHERE project_id = OLD.project_id;
END;
CREATE TRIGGER artifacts_use_back AFTER UPDATE OF removed_at, size_bytes ON artifacts WHEN NEW.removed_at IS NULL
BEGIN
  UPDATE project_use SET artifacts = artifacts + 1, imports = imports + (NEW.source = 'import'),
    bytes = bytes + iif(NEW.source GLOB 'reference *', 0, NEW.size_bytes) WHERE project_id = NEW.project_id;
END;
