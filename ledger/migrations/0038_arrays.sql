-- Job arrays: several attempts that were sent to Slurm together, each as a task. What a send of an array left lies in the folder of one of its attempts,
-- the leader; k is the leader's send. Times as in 0001.
CREATE TABLE arrays (
  name       TEXT    NOT NULL PRIMARY KEY CHECK (name GLOB 'sg-array-*'),  -- the job's name in Slurm
  run_id     TEXT    NOT NULL REFERENCES runs,                             -- of the leader, with its attempt and token
  attempt_n  INTEGER NOT NULL,
  token      TEXT    NOT NULL REFERENCES submissions,
  k          INTEGER NOT NULL,
  size       INTEGER NOT NULL CHECK (size > 1),
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER arrays_keep BEFORE DELETE ON arrays
BEGIN SELECT RAISE(ABORT, 'arrays are never deleted'); END;
CREATE TRIGGER arrays_fixed BEFORE UPDATE ON arrays
BEGIN SELECT RAISE(ABORT, 'an array never changes'); END;

-- The array of a submission's newest send, and its task there (attempts.array_task); NULL: it was sent alone. A send that Slurm proved to have refused
-- may be followed by one in another array.
ALTER TABLE submissions ADD COLUMN array_name TEXT REFERENCES arrays;
CREATE INDEX submissions_array ON submissions (array_name) WHERE array_name IS NOT NULL;
