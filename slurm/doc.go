// Package slurm is Slurm as slurmgate uses it: the job script, sbatch, squeue, sacct and scancel.
//
// Nouns: a script is what runs on the compute node; it takes the claim, verifies the pinned bytes, runs the
// program and leaves an exit file and a manifest. A send is one start of sbatch, which is a process of its own
// and outlives the gateway; its receipt is the line with the job id. A row is one of Slurm's error texts and what
// it proves. An answer is everything one query printed, and a record is what it says about one job. The budget is what an admin allows
// the gateway in RPCs.
//
// Every job that an answer does not show may be gone, so an answer proves more by what is not in it than by what is. Therefore:
//   - A query that fails, says that a call failed, is killed, or whose answer breaks off within a line is no answer at all.
//   - Beside another line on standard error an answer shows what is there, and not what is absent, until the line has come with an answer
//     that shows the jobs of all open runs; see stderr.go.
//   - A record that cannot be read concerns one job. Where the number of fields and the name are right, that job is known to be there, in
//     a state nobody knows ([run.ClassUnread]). All other records count.
//   - Any other text – a banner, half a record, a record of too many or too few fields, one of a megabyte – may be, or may have swallowed,
//     the record of any job. What is shown counts; what is not shown counts neither as there nor as gone. The answer says so with one
//     job of ClassUnread that has no name.
//   - An answer of which nothing can be read is no answer.
//   - A cut exactly between two records cannot be recognised. That is why rule 8 (package run) needs two answers.
//
// Answers about the jobs of all users ([Config].AllUsers) have fields of fixed width, because other users choose the names of their jobs;
// see sheet.go. What cannot be read there concerns its owner alone. A cluster may hide the jobs of others behind a clean, empty answer, so
// before absence counts it is asked what it hides (sight.go).
//
// What cannot be read is counted (slurmgate_slurm_unread_records_total) and logged once for each kind.
//
// [CLI] does all of it through Slurm's own commands and implements run.Submitter, Queue, Accounting and Canceller.
package slurm
