-- The user of the cluster whom a token's jobs run as where slurm.run_as is caller. '': none, also for every token older than this.
ALTER TABLE tokens ADD COLUMN unix_user TEXT NOT NULL DEFAULT '';
