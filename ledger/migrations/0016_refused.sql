-- Refused calls have a chain of their own, with limits of their own, so that no number of looks can push them out.
PRAGMA defer_foreign_keys = ON;               -- the records refer to the chains; it ends with the transaction
CREATE TABLE call_chains_old AS SELECT * FROM call_chains;
DROP TABLE call_chains;
CREATE TABLE call_chains (
  chain        TEXT    NOT NULL PRIMARY KEY CHECK (chain IN ('effects', 'looks', 'refused')),
  seq          INTEGER NOT NULL,             -- of the newest
  hash         TEXT    NOT NULL,             -- of the newest
  horizon_seq  INTEGER NOT NULL,             -- everything up to here was dropped
  horizon_hash TEXT    NOT NULL,             -- of the last one dropped
  bytes        INTEGER NOT NULL DEFAULT 0    -- of events and payloads since this migration, less what was dropped; no part of the proof
) STRICT;
INSERT INTO call_chains (chain, seq, hash, horizon_seq, horizon_hash) SELECT chain, seq, hash, horizon_seq, horizon_hash FROM call_chains_old;
INSERT INTO call_chains (chain, seq, hash, horizon_seq, horizon_hash) VALUES
  ('refused', 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000', 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');
UPDATE call_chains SET bytes = coalesce((SELECT sum(length(CAST(event AS BLOB))) FROM tool_call_events WHERE chain = 'looks'), 0)
  + coalesce((SELECT sum(length(CAST(payload_redacted AS BLOB))) FROM tool_payloads WHERE chain = 'looks'), 0) WHERE chain = 'looks';
DROP TABLE call_chains_old;
CREATE TRIGGER call_chains_keep BEFORE DELETE ON call_chains
BEGIN SELECT RAISE(ABORT, 'the chains of calls are never deleted'); END;
CREATE TRIGGER call_chains_grow BEFORE UPDATE ON call_chains
WHEN NEW.seq < OLD.seq OR NEW.horizon_seq < OLD.horizon_seq OR NEW.horizon_seq > NEW.seq OR (NEW.chain = 'effects' AND NEW.horizon_seq <> 0)
BEGIN SELECT RAISE(ABORT, 'a chain of calls only grows'); END;

-- How many refused calls a record stands for. The hash covers it where it is not 1.
ALTER TABLE tool_call_events ADD COLUMN count INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1);
