// Package slurm uses Slurm for slurmgate: it renders the job script and runs sbatch, squeue, sacct and scancel.
//
// Nouns: a script is what runs on the compute node; it takes the claim, verifies the pinned bytes, runs the program and
// leaves an exit file and a manifest. A send is one start of sbatch, which is a separate process and outlives the
// gateway; its receipt is the line with the job id. A row is one of Slurm's error texts and what it proves. An answer
// is the whole output of one query, and a record is its part about one job. The budget is the number of RPCs that an
// admin allows the gateway.
//
// A job that an answer does not show counts as gone, so what is missing from an answer proves more than what it shows.
// Therefore:
//   - A query that fails, reports a failed call, is killed, or whose answer breaks off within a line gives no answer at
//     all.
//   - An answer that comes with any other line on standard error proves which jobs exist, and not which are absent,
//     until the same line has come with an answer that shows the jobs of all open runs; see stderr.go.
//   - A record that cannot be read concerns one job. Where the number of fields and the name are right, that job exists
//     in an unknown state ([run.ClassUnread]). All other records count.
//   - Any other text – a banner, half a record, a record of too many or too few fields, one of a megabyte – may be, or
//     may contain, the record of any job. Jobs that are shown count; a job that is not shown counts neither as present
//     nor as gone. The answer marks this with one job of ClassUnread that has no name.
//   - An answer of which nothing can be read is no answer.
//   - A cut exactly between two records cannot be detected. That is why rule 8 (package run) needs two answers.
//
// Answers about the jobs of all users ([Config].AllUsers) have fields of fixed width, because other users choose the
// names of their jobs; see sheet.go. An unreadable record there concerns its owner alone. A cluster may hide the jobs
// of other users and still give a clean, empty answer, so before absence counts the cluster is asked what it hides
// (sight.go).
//
// Unreadable records are counted (slurmgate_slurm_unread_records_total) and logged once for each kind.
//
// [CLI] does all of it through Slurm's own commands and implements run.Submitter, Queue, Accounting and Canceller.
package slurm
