-- Which run a recorded call is (ARC-11): what its provenance_run_id is made of. It goes with the record.
CREATE TABLE call_runs (
  chain    TEXT    NOT NULL,
  seq      INTEGER NOT NULL,
  run_id   TEXT    NOT NULL CHECK (run_id GLOB 'run_*'),
  identity TEXT    NOT NULL,              -- canonical JSON; the run_id is its hash, so a change shows
  PRIMARY KEY (chain, seq),
  FOREIGN KEY (chain, seq) REFERENCES tool_call_events (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_runs_run ON call_runs (run_id);
