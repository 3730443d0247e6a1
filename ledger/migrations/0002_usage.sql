-- What accounting knows of what an attempt's job used. It is asked for after the end, decides nothing, and is no part of the history.
CREATE TABLE job_usage (
  token           TEXT    NOT NULL PRIMARY KEY REFERENCES submissions,
  recorded_at     INTEGER NOT NULL,
  elapsed_seconds INTEGER,                   -- all of them NULL: accounting does not know the job
  cpu_seconds     REAL,
  max_rss_bytes   INTEGER,                   -- NULL: not measured
  alloc_cpus      INTEGER
) STRICT;

CREATE INDEX attempts_ended ON attempts (ended_at) WHERE ended_at IS NOT NULL;
