-- Whose call made a run. '' in runs older than this: nobody recorded it.
ALTER TABLE runs ADD COLUMN principal TEXT NOT NULL DEFAULT '';    -- name
ALTER TABLE runs ADD COLUMN principal_id TEXT NOT NULL DEFAULT ''; -- prn_…, '' where no ledger gives ids
CREATE TRIGGER runs_principal BEFORE UPDATE OF principal, principal_id ON runs
BEGIN SELECT RAISE(ABORT, 'who made a run never changes'); END;

-- Other principals that asked for the same run later, or retried it. It is no revision of the run.
CREATE TABLE run_askers (
  run_id       TEXT    NOT NULL REFERENCES runs,
  principal    TEXT    NOT NULL,
  principal_id TEXT    NOT NULL,
  asked_at     INTEGER NOT NULL,             -- the first time
  PRIMARY KEY (run_id, principal, principal_id)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER run_askers_fixed BEFORE UPDATE ON run_askers
BEGIN SELECT RAISE(ABORT, 'who asked for a run never changes'); END;
CREATE TRIGGER run_askers_keep BEFORE DELETE ON run_askers
BEGIN SELECT RAISE(ABORT, 'who asked for a run is never deleted'); END;
