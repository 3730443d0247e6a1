-- The approval that a batch was started with, where policy wants one for its tool: it is that of its rows too. '': none was needed.
ALTER TABLE batches ADD COLUMN approval_id TEXT NOT NULL DEFAULT '';
-- And of a run that waits for its inputs, as a row of such a batch: stored with it, because it may start before the batch knows its id.
ALTER TABLE waiting_runs ADD COLUMN approval_id TEXT NOT NULL DEFAULT '';
