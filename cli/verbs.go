package cli

import "slurmgate/app"

// Verbs groups the verbs of this package, in the order of the help; the program's own come before [SiteVerbs].
type Verbs struct {
	Run      Run           `cmd:"" help:"Run a tool: import its input files and submit it; with --wait, wait and show the outputs. The exit status is 6 if the run failed or was cancelled, also without --wait."`
	Batch    Batch         `cmd:"" help:"Run a tool over a sample sheet, and wait for, show, retry, cancel or collect all of it under one name."`
	Trace    Trace         `cmd:"" help:"Show where an artifact came from: the runs, tools, versions and inputs that made it."`
	Submit   Submit        `cmd:"" help:"Submit a complete plan (SlurmJobSpec v1), if policy allows it. The exit status is 6 if the run failed or was cancelled, also without --wait."`
	Get      Get           `cmd:"" help:"Show the state of a run."`
	Wait     Wait          `cmd:"" help:"Wait for a run to finish."`
	Collect  Collect       `cmd:"" help:"Show whether a run is finished and list its outputs; with --to, copy them."`
	Again    Recollect     `cmd:"" name:"recollect" help:"Retry collecting the outputs of a run that is blocked as outputs_late."`
	Logs     Logs          `cmd:"" help:"Print the end of a run's log."`
	Cancel   Cancel        `cmd:"" help:"Cancel a run. Takes effect immediately if the job has not started."`
	Retry    Retry         `cmd:"" help:"Start a new attempt of a run that failed or was cancelled. The exit status is 6 if the attempt fails at once, also without --wait."`
	Adopt    Adopt         `cmd:"" help:"Assign a Slurm job with the run's job name to a run in doubt."`
	Declare  DeclareAbsent `cmd:"" name:"declare-absent" help:"End an attempt whose job cannot be found: no job of this attempt can execute any more."`
	Clear    CancelAll     `cmd:"" name:"cancel-all" help:"Cancel your unfinished runs, or those of others."`
	Runs     Runs          `cmd:"" help:"List runs, show everything about one, or compare two."`
	Receipt  Receipt       `cmd:"" help:"Print the signed receipt of a run that has ended: an in-toto Statement in a DSSE envelope."`
	Notify   Notify        `cmd:"" help:"Tell a URL or a mail address when a run is over."`
	Keys     Keys          `cmd:"" help:"List the public keys that receipts are signed with, or rotate the key that signs."`
	Artifact Artifact      `cmd:"" help:"Import, list, preview, fetch and verify artifacts."`
	Ref      Reference     `cmd:"" name:"reference" help:"Give names to reference data (genomes, indexes, databases), list and withdraw them."`
	Export   Export        `cmd:"" help:"Write everything about a finished run into one archive: an RO-Crate with a signed receipt and a Nextflow module."`
	Verify   Verify        `cmd:"" help:"Check an archive of a run, without a gateway: every file, the run's id, the history and the receipt."`
	Tool     Tool          `cmd:"" help:"List and show tools; write and check toolpacks."`
	Domain   Domain        `cmd:"" help:"Check a domain package."`
	Image    Image         `cmd:"" help:"Add, list and verify images."`
	GC       GC            `cmd:"" name:"gc" help:"Remove what is no longer needed, according to the site's retention settings."`
	Drain    Drain         `cmd:"" help:"Start no new runs, for maintenance. Jobs that Slurm has go on and are collected; survives a restart."`
	Resume   Resume        `cmd:"" help:"End a drain: runs that waited are sent, and new ones are accepted."`
	Status   Status        `cmd:"" help:"Show the gateway as a whole: runs by state, drained sites, Slurm's last answer, the last backup."`
	Projects Projects      `cmd:"" help:"List projects with their members; decide whose a user's own project is."`
	Sites    Sites         `cmd:"" help:"List the sites that runs can go to: ready, away, drained or paused, their unfinished runs, the budget that is left."`
	Backup   Backup        `cmd:"" help:"Copy the ledger, the artifacts and the configuration into a folder, also while the gateway runs."`
	Restore  Restore       `cmd:"" help:"Put a backup back where there is no ledger."`
	Erase    Erase         `cmd:"" help:"Erase a leaked secret, given on standard input or in a file, from everything that the gateway stores."`
}

// SiteVerbs groups the others: about a site and who may use it.
type SiteVerbs struct {
	Site    Site    `cmd:"" name:"site" help:"Write the site file of a cluster."`
	Doctor  Doctor  `cmd:"" help:"Check the site end to end."`
	Config  Config  `cmd:"" help:"Check or show the site file."`
	Version Version `cmd:"" help:"Print the version."`

	Token    Token         `cmd:"" help:"Create, list and revoke bearer tokens for programs and people."`
	Approve  Approve       `cmd:"" help:"Approve a call that needs a person's approval."`
	Deny     Deny          `cmd:"" help:"Deny a call that needs a person's approval."`
	Asked    Approvals     `cmd:"" name:"approvals" help:"List the calls that are waiting for approval."`
	Usage    Usage         `cmd:"" help:"Add up what the jobs that ended in a month used, by project, account, caller and tool; as a table or as CSV."`
	Events   Events        `cmd:"" help:"List, show and verify the records of all calls."`
	Complete Completion    `cmd:"" name:"completion" help:"Print the completion script of a shell."`
	Manual   ManPages      `cmd:"" name:"man-pages" hidden:"" help:"Write the manual pages; used by the packages."`
	Words    CompleteWords `cmd:"" name:"complete-words" hidden:"" help:"Print what may follow some words; used by the completion scripts."`
}

// Verbs that are one call each.
type (
	Recollect     = Call[app.RunReasonArgs, app.RecollectAnswer]
	Cancel        = Call[app.CancelArgs, app.CancelAnswer]
	Adopt         = Call[app.AdoptArgs, app.StateAnswer]
	DeclareAbsent = Call[app.RunReasonArgs, app.StateAnswer]
	Drain         = Call[app.DrainArgs, app.DrainAnswer]
	Resume        = Call[app.ResumeArgs, app.DrainAnswer]
	Status        = Call[struct{}, app.StatusAnswer]
	Sites         = Call[struct{}, app.SiteList]
)
