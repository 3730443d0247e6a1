package run

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// The table endingTable decides how an attempt ended: by what its exit file says, and what Slurm says. Success needs
// both (promise 4), except for [proven]; a tool's failure needs the exit file, because Slurm cannot tell a tool's
// status from the script's.
//
// A row is a reason in the exit file, or, in brackets, a case without an exit file: the attempt's job has the claim; no
// job had it, and the gateway has it now; the gateway had it before; slurmctld refused the job and stored a record of
// it. The column own has the row's ending; exit, whether the exit file's code is the program's. The other columns are
// Slurm's states; "gone" is a job that Slurm no longer knows, "gone+cancel" one that was to be cancelled. A cell is
// own, or slurm for the ending that the state alone implies, or another ending.
//
// TERM is sent to every process of a job that Slurm stops, so what the script waited for may have been killed before
// the script knew: an image whose checksum was interrupted is not a wrong image. A script that was terminated in a job
// that FAILED was stopped through Slurm, and not because of a limit: a program cannot do that, and a second start ends
// with 90.
const endingTable = `
reason              own                 exit  gone  gone+cancel  COMPLETED  FAILED     CANCELLED  TIMEOUT     OUT_OF_MEMORY  NODE_FAIL  BOOT_FAIL  PREEMPTED  REQUEUED   other
(slurm)             -                   -     -     cancelled    -          -          cancelled  time_limit  out_of_memory  node_fail  boot_fail  preempted  preempted  -
ok                  ok                  yes   own   own          own        lost       slurm      slurm       slurm          slurm      slurm      slurm      slurm      lost
tool_failed         tool_failed         yes   own   slurm        own        own        slurm      slurm       slurm          own        own        slurm      own        own
status_lost         lost                no    own   slurm        own        own        slurm      slurm       slurm          own        own        slurm      own        own
time_limit          time_limit          yes   own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
runtime_failed      program_not_started yes   own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
image_mismatch      image_mismatch      no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
input_mismatch      input_mismatch      no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
runtime_missing     runtime_missing     no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
control_unwritable  control_unwritable  no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
runs_dir_missing    runs_dir_missing    no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
runs_dir_full       runs_dir_full       no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
image_missing       image_missing       no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
image_unreadable    image_unreadable    no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
input_missing       input_missing       no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
input_unreadable    input_unreadable    no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
runtime_broken      runtime_broken      no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
runtime_too_old     runtime_too_old     no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
no_user_namespaces  no_user_namespaces  no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
node_disk_full      node_disk_full      no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
scratch_missing     scratch_missing     no    own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
program_not_started program_not_started yes   own   slurm        own        own        slurm      slurm       own            own        own        slurm      own        own
terminated          tool_failed         yes   own   slurm        own        preempted  slurm      slurm       slurm          slurm      slurm      slurm      slurm      own
killed              tool_failed         yes   own   slurm        own        own        slurm      slurm       slurm          slurm      slurm      slurm      slurm      own
other               tool_failed         yes   own   slurm        own        own        slurm      slurm       slurm          slurm      slurm      slurm      slurm      own
(claimed)           lost                no    own   own          own        own        slurm      slurm       slurm          slurm      slurm      slurm      slurm      own
(unclaimed)         boot_fail           no    own   own          own        own        slurm      slurm       slurm          slurm      slurm      slurm      slurm      own
(void)              absent              no    own   own          own        own        slurm      own         own            own        own        own        own        own
(refused)           rejected            no    own   own          own        own        own        own         own            own        own        own        own        own
`

// sameState maps Slurm's states to the columns that have another name.
var sameState = map[string]string{"": "gone", "REVOKED": "CANCELLED", "DEADLINE": "TIMEOUT", "LAUNCH_FAILED": "BOOT_FAIL",
	"RECONFIG_FAIL": "BOOT_FAIL"}

// endingRow is a row of endingTable.
type endingRow struct {
	own      Ending
	ofScript bool              // the exit code is the script's, not the program's
	cells    map[string]string // by column
}

// endings has the rows of endingTable by reason.
var endings = func() map[string]endingRow {
	table := map[string]endingRow{}
	lines := strings.Split(strings.TrimSpace(endingTable), "\n")
	columns := strings.Fields(lines[0])[3:]
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		row := endingRow{Ending(words[1]), words[2] == "no", map[string]string{}}
		for i, cell := range words[3:] {
			row.cells[columns[i]] = cell
		}
		table[words[0]] = row
	}
	return table
}()

// endingOf returns how an attempt ended; bySlurm: Slurm's state alone decided it.
func endingOf(reason, state string, cancelAsked bool) (ending Ending, bySlurm bool) {
	row, column := endings[reason], cmp.Or(sameState[state], state)
	switch {
	case column == "gone" && cancelAsked:
		column = "gone+cancel"
	case row.cells[column] == "":
		column = "other"
	}
	switch cell := row.cells[column]; cell {
	case "own":
		return row.own, false
	case "slurm":
		return Ending(endings["(slurm)"].cells[column]), true
	default:
		return Ending(cell), false
	}
}

// The rows of attempts without an exit file.
const (
	jobClaimed     = "(claimed)"
	neverClaimed   = "(unclaimed)"
	gatewayClaimed = "(void)"
	jobRefused     = "(refused)"
)

// scriptExits has the reasons of jobs that left no exit file, by exit status as Slurm prints it: the script's own, and
// the one by which Slurm reports that it could not open the job's output file, which is in the attempt's folder.
var scriptExits = map[string]string{"94:0": "control_unwritable", "95:0": "runs_dir_missing", "96:0": "runs_dir_full",
	"97:0": "scratch_missing",
	"0:53": "control_unwritable"}

// outranked reports whether an exit record and a whole manifest outrank what Slurm says of the job's end: slurmctld
// that is started with older state ends a job that ended long before as NODE_FAIL or BOOT_FAIL, or starts it again, and
// the second start finds that the claim is another's (90). A job that waits for such a start counts as one that had it.
func outranked(a Attempt) bool {
	switch a.SlurmState {
	case "NODE_FAIL", "BOOT_FAIL", requeued:
		return true
	case "FAILED":
		return a.SlurmExit == fmt.Sprintf("%d:0", ExitClaimNotOurs)
	}
	return false
}

// proven reports whether the success of a job, whose state is [outranked], is proven without Slurm: the holder of the claim left the exit
// record and a whole manifest. later: the manifest may still appear.
func (e *Engine) proven(ctx context.Context, v View, x *Exit) (ok, later bool, err error) {
	if x == nil || x.Reason != "ok" || !outranked(v.Attempt) {
		return false, false, nil
	}
	claim, who, err := e.readClaim(ctx, v)
	if err != nil || who != heldByJob || claim.Holder != x.Holder {
		return false, false, err
	}
	data, err := e.readManifest(ctx, v)
	if fault.Is(err, fault.NotFound) {
		return false, e.outputsMayCome(v), nil
	}
	if err != nil {
		return false, false, err
	}
	m, err := ParseManifest(data)
	return err == nil && m.Holder == x.Holder, false, nil
}

// judge decides how a job with the resources had ended: by its exit file x, or by the row of an attempt without one.
// proven: see [Engine.proven].
func (e *Engine) judge(ctx context.Context, v View, had plan.Resources, x *Exit, reason string, proven bool) verdict {
	switch {
	case x == nil && v.Attempt.SlurmWhy == "BadConstraints":
		reason = jobRefused
	case x == nil && (reason == jobClaimed || reason == neverClaimed):
		reason = cmp.Or(scriptExits[v.Attempt.SlurmExit], reason)
	case x != nil:
		if reason = x.Reason; endings[reason].own == "" || reason[0] == '(' { // a reason that this version does not know
			reason = "other"
		}
	}
	ending, bySlurm := endingOf(reason, v.Attempt.SlurmState, v.Run.CancelAt != nil)
	if proven {
		ending, bySlurm = EndedOK, false
	}
	d := verdict{ending: ending}
	if x != nil && !endings[reason].ofScript {
		d.exit = &x.Code
	}
	switch says := "Slurm says " + v.Attempt.SlurmState; {
	case ending == EndedOutOfMemory:
		d.detail = fmt.Sprintf("the job used more memory than its limit of %d MiB", had.MemMB)
		if x != nil && x.MaxRSS > 0 {
			d.detail += fmt.Sprintf("; it measured %d MiB at most", x.MaxRSS>>10)
		}
	case ending == EndedCancelled && v.Run.CancelAt == nil:
		d.detail = "the job was cancelled in Slurm, not through slurmgate"
	case ending == EndedCancelled:
		d.detail = v.Run.CancelReason
	case reason == "ok" && ending != EndedOK:
		d.detail = "the program exited 0, but Slurm says that the job ended " + v.Attempt.SlurmState
	case bySlurm && v.Attempt.SlurmState == "TIMEOUT":
		d.detail = fmt.Sprintf("%s; the program's own limit is %d s", says, had.TimeLimitSeconds)
	case bySlurm && v.Attempt.SlurmState == requeued:
		d.detail = v.Attempt.SlurmWhy
	case bySlurm && x == nil:
		d.detail = says + " " + v.Attempt.SlurmWhy
	case bySlurm:
		d.detail = says
	case ending == EndedPreempted:
		d.detail = "the job was stopped in Slurm, not through slurmgate, and not cancelled: it was requeued, or its script was sent TERM"
	default:
		d.detail = e.explain(ctx, v, had, x, reason)
	}
	return d
}

// explanations has the detail for each row's own ending. {tail} is the end of what the job printed, {node} where it
// ran, {code} its exit code, {says} and {state} what Slurm says of it, {limit} how many seconds the program had.
var explanations = map[string]string{
	"ok":                  "",
	"tool_failed":         "the program exited with status {code}: {tail}",
	"status_lost":         "Slurm resumed the job as the program ended, and Apptainer did not pass on its status: {tail}",
	"time_limit":          "the program reached its time limit of {limit} s",
	"runtime_failed":      "Apptainer could not start the program: {tail}",
	"program_not_started": "a container could be made, but its program could not be started: {tail}",
	"image_mismatch":      "the image on the compute node does not have the pinned checksum; nothing ran. The job printed: {tail}",
	"input_mismatch": "an input on the compute node does not have the pinned checksum, or was changed in its place; no output was accepted. " +
		"The job printed: {tail}",
	"image_missing": "node {node} does not have the image, which the gateway has; nothing ran. storage.image_store must be the same folder " +
		"on " +
		"all nodes. The job printed: {tail}",
	"image_unreadable":   "the job could not read the image on node {node}; nothing ran. The job printed: {tail}",
	"input_missing":      "an input is not where the job reads it; nothing ran. The job printed: {tail}",
	"input_unreadable":   "the job could not read an input on node {node}; nothing ran. The job printed: {tail}",
	"runtime_missing":    "Apptainer was not found on node {node}",
	"runtime_broken":     "Apptainer makes no container on node {node}: {tail}",
	"runtime_too_old":    "Apptainer on node {node} is too old: {tail}",
	"no_user_namespaces": "jobs on node {node} may not create user namespaces, which Apptainer needs: {tail}",
	"node_disk_full":     "Apptainer has no room on the own disk of node {node}: {tail}",
	"scratch_missing":    "the job could make no folder in slurm.scratch on node {node}; nothing ran: {tail}",
	"control_unwritable": "the job could not write below storage.runs_dir on node {node}: {tail}",
	"runs_dir_missing":   "the run's folder is not on node {node}: storage.runs_dir is missing there, or is another filesystem; nothing ran",
	"runs_dir_full":      "the disk of storage.runs_dir was full, or a quota was used up; the job ran on node {node}: {tail}",
	"terminated":         "the program was killed by a signal (status {code}): {tail}",
	"killed":             "the program was killed by a signal (status {code}): {tail}",
	"other":              "the program was killed by a signal (status {code}): {tail}",
	jobClaimed:           "the job took the claim but left no exit file; Slurm says {says}",
	neverClaimed:         "the job ended ({state}) before its script took the claim; nothing was executed: {tail}",
	gatewayClaimed:       "the gateway has the claim: nothing was executed",
	jobRefused:           "Slurm refused the job: its constraints cannot be met (BadConstraints)",
}

func (e *Engine) explain(ctx context.Context, v View, had plan.Resources, x *Exit, reason string) string {
	text := explanations[reason]
	fill := []string{"{limit}", strconv.Itoa(had.TimeLimitSeconds), "{says}", cmp.Or(v.Attempt.SlurmState, "nothing"), "{state}",
		cmp.Or(v.Attempt.SlurmState, "unknown")}
	if x != nil {
		fill = append(fill, "{node}", cmp.Or(v.Attempt.Node, x.Node), "{code}", strconv.Itoa(x.Code))
		if x.Program > 0 { // a program of a pipe: the failures that followed in the others are not the cause
			fill = append(fill, "the program ", fmt.Sprintf("program %d of the pipe ", x.Program),
				"its program ", fmt.Sprintf("program %d of the pipe ", x.Program))
		}
		if x.Program > 0 && x.Code == 141 {
			fill = append(fill, "exited with status {code}", "was stopped by SIGPIPE (status 141), because the next program ended "+
				"without reading everything")
		}
	} else {
		fill = append(fill, "{node}", cmp.Or(v.Attempt.Node, "unknown"))
	}
	if strings.Contains(text, "{tail}") {
		fill = append(fill, "{tail}", e.tail(ctx, v))
	}
	return strings.NewReplacer(fill...).Replace(text)
}
