// Package run is the lifecycle of a run: submit, watch, resolve, collect, cancel, retry.
//
// The terms: a run is one identity (run_id), which can be requested any number of times; an attempt is one intended
// execution of it; a submission is what is sent to Slurm for an attempt, identified by a random token; a send is one
// start of sbatch for a submission; a claim is the file that decides who may execute an attempt: one job, or the
// gateway itself, so that no job can.
//
// The package uses Slurm, the filesystem, the image store and the ledger only through the small interfaces in ports.go,
// which their packages implement. The formats of the control files that the job script and the gateway exchange are
// defined in control.go.
package run
