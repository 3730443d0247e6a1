-- What a principal could do when it used a key: canonical JSON, once for each hash.
CREATE TABLE key_rights (
  rights_hash TEXT NOT NULL PRIMARY KEY,
  rights      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- NULL in keys older than this.
ALTER TABLE idempotency_keys ADD COLUMN rights_hash TEXT REFERENCES key_rights;
DROP TRIGGER idempotency_keys_fixed;
CREATE TRIGGER idempotency_keys_fixed BEFORE UPDATE ON idempotency_keys
WHEN OLD.outcome IS NOT NULL OR (NEW.principal, NEW.key_hash, NEW.tool_id, NEW.binding, NEW.rights_hash)
  IS NOT (OLD.principal, OLD.key_hash, OLD.tool_id, OLD.binding, OLD.rights_hash)
BEGIN SELECT RAISE(ABORT, 'an idempotency key stands for one call and one outcome'); END;
