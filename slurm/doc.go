// Package slurm is Slurm as slurmgate uses it: the job script, sbatch, squeue, sacct and scancel.
//
// Nouns: a script is what runs on the compute node; it takes the claim, verifies the pinned bytes, runs the
// program and leaves an exit file and a manifest. A send is one start of sbatch, which is a process of its own
// and outlives the gateway; its receipt is the line with the job id. A row is one of Slurm's error texts and what
// it proves. An answer is everything one query printed: it is used whole or not at all. The budget is
// what an admin allows the gateway in RPCs.
//
// [CLI] does all of it through Slurm's own commands and implements run.Submitter, Queue, Accounting and Canceller.
package slurm
