-- The Unix user of the cluster that a run is executed as, where its site has run_as: caller. '' for runs of the gateway's own user.
ALTER TABLE runs ADD COLUMN executed_as TEXT NOT NULL DEFAULT '';
CREATE TRIGGER runs_executed_as BEFORE UPDATE OF executed_as ON runs
BEGIN SELECT RAISE(ABORT, 'the user that a run is executed as never changes'); END;
