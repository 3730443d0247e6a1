-- How Slurm says that an attempt's job ended, e.g. 0:53, '' where it said nothing; and the nodes the attempt does not use, because earlier attempts
-- failed by their fault: JSON, NULL for none.
ALTER TABLE attempts ADD COLUMN slurm_exit TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN avoid TEXT;
-- For the faults of nodes met lately. Not of a list of endings: a later one would be missing.
CREATE INDEX attempts_failed ON attempts (ended_at, ending) WHERE ending NOT IN ('', 'ok');
