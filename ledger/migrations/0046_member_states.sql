-- Lists by batch and state, and by tag and state, read the states from the index that they walk. Without them they look at each row of the batch, and at each
-- run that has the tag. The state of a tag's row is kept by the trigger alone, in the transaction that moves the run.
DROP INDEX batch_rows_at;
CREATE INDEX batch_rows_at ON batch_rows (batch_id, run_at, run_id, state) WHERE run_id IS NOT NULL;
ALTER TABLE batch_tags ADD COLUMN state TEXT NOT NULL DEFAULT 'waiting';
UPDATE batch_tags SET state = w.state FROM batch_rows w WHERE (w.batch_id, w.row_n) = (batch_tags.batch_id, batch_tags.row_n);
CREATE INDEX batch_tags_state ON batch_tags (tag, state, run_at, run_id) WHERE run_id IS NOT NULL;
CREATE TRIGGER batch_tags_moved AFTER UPDATE OF state ON batch_rows WHEN OLD.state <> NEW.state
BEGIN
  UPDATE batch_tags SET state = NEW.state WHERE batch_id = NEW.batch_id AND row_n = NEW.row_n;
END;
