-- The approval that a batch was started with, where policy wants one for its tool: it is that of its rows too. '': none was needed.
ALTER TABLE batches ADD COLUMN approval_id TEXT NOT NULL DEFAULT '';
