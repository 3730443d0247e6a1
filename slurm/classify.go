package slurm

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"slurmgate/run"
)

// Row states what one of Slurm's error texts proves about a send. Rejected and deferred both mean that this sbatch
// created no job that can run: the text is slurmctld's answer to the request, or the request was never sent. (slurmctld
// may still keep a FAILED record of a rejected job, with reason BadConstraints and no start time.)
type Row struct {
	Code    string // Slurm's own name of the reason
	Number  int    // Slurm's error number, which slurmrestd shows; 0: the number alone proves nothing
	Text    string // slurmctld's answer: the text after "Batch job submission failed: "; a prefix if it ends with a blank
	Outcome run.SendOutcome
	Tested  bool // provoked on a real cluster; otherwise from slurm_errno.c of 22.05 to 26.05
	Scope   run.Scope
	Own     bool   // sbatch itself gave up: Text is its last message, and slurmctld did not answer
	With    string // another message that is required too
}

// Errors returns the table. A text that is not in it leaves doubt. Some texts are raised after the request was sent and
// before its answer arrived: "Socket timed out on send/recv operation", "Unable to contact slurm controller (send
// failure)" and "(receive failure)", "Zero Bytes were transmitted or received"; others are answers in a site's own
// words, see [run.RefusedInWords].
func Errors() []Row {
	const no, later = run.SendRejected, run.SendDeferred
	return []Row{
		// The request was refused and will always be.
		{Code: "ESLURM_INVALID_PARTITION_NAME", Number: 2000, Text: "Invalid partition name specified", Outcome: no, Tested: true},
		{Code: "ESLURM_DEFAULT_PARTITION_NOT_SET", Number: 2001, Text: "No partition specified or system default partition", Outcome: no},
		{Code: invalidAccount, Number: 2045, Text: "Invalid account or account/partition combination specified", Outcome: no, Tested: true},
		{Code: "ESLURM_INVALID_QOS", Number: 2066, Text: "Invalid qos specification", Outcome: no, Tested: true},
		{Code: "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP", Number: 2003, Text: "User's group not permitted to use this partition", Outcome: no,
			Tested: true},
		{Code: "ESLURM_ACCESS_DENIED", Number: 2002, Text: "Access/permission denied", Outcome: no},
		{Code: "ESLURM_USER_ID_MISSING", Number: 2010, Text: "Invalid user id", Outcome: no},
		{Code: "ESLURM_INVALID_TIME_LIMIT", Number: 2051, Text: "Requested time limit is invalid (missing or exceeds some limit)",
			Outcome: no, Tested: true},
		{Code: "ESLURM_TOO_MANY_REQUESTED_CPUS", Number: 2005, Text: "More processors requested than permitted", Outcome: no, Tested: true},
		{Code: "ESLURM_INVALID_CPU_COUNT", Number: 2069, Text: "CPU count specification invalid", Outcome: no},
		{Code: "ESLURM_INVALID_TASK_MEMORY", Number: 2044, Text: "Memory required by task is not available", Outcome: no, Tested: true},
		{Code: "ESLURM_INVALID_NODE_COUNT", Number: 2006, Text: "Node count specification invalid", Outcome: no, Tested: true},
		{Code: "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", Number: 2014, Text: "Requested node configuration is not available",
			Outcome: no, Tested: true},
		{Code: "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", Number: 2015, Text: "Requested partition configuration not available now", Outcome: no,
			Tested: true},
		{Code: "ESLURM_INVALID_FEATURE", Number: 2029, Text: "Invalid feature specification", Outcome: no, Tested: true},
		{Code: "ESLURM_INVALID_GRES", Number: 2072, Text: "Invalid generic resource (gres) specification", Outcome: no},
		{Code: "ESLURM_INVALID_GRES", Text: "Invalid generic resource (gres) specification", Outcome: no, Tested: true, Own: true},
		{Code: "ESLURM_INVALID_GRES_TYPE", Number: 2119, Text: "Invalid GRES specification (with and without type identification)", Outcome: no},
		{Code: "ESLURM_QOS_THRES", Number: 2074, Text: "Requested account has breached requested QOS usage threshold", Outcome: no},
		{Code: "ESLURM_INVALID_ARRAY", Number: 2081, Text: "Invalid job array specification", Outcome: no, Tested: true}, // MaxArraySize
		{Code: "ESLURM_PATHNAME_TOO_LONG", Number: 2012, Text: "Pathname of a file, directory or other parameter too long",
			Outcome: no, Tested: true},
		// The detail line before this one decides, see refine; without one it is final.
		{Code: accountingPolicy, Number: 2050, Text: "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
			Outcome: no, Tested: true},

		// Refused now; the same request may pass later.
		// MaxJobCount, after 15 tries of sbatch's own (120 s)
		{Code: "EAGAIN", Number: 11, Text: "Resource temporarily unavailable", Outcome: later, Scope: run.ScopeSite, Tested: true},
		{Code: "ESLURM_MAX_JOB_COUNT", Number: 2007, Text: "MaxJobCount limit reached", Outcome: later, Scope: run.ScopeSite},
		{Code: "ESLURM_ERROR_ON_DESC_TO_RECORD_COPY", Number: 2007, Text: "Unable to create job record, try again",
			Outcome: later, Scope: run.ScopeSite},
		{Code: "ESLURM_PARTITION_NOT_AVAIL", Number: 2070, Text: "Required partition not available (inactive or drain)", Outcome: later,
			Scope: run.ScopePartition, Tested: true},
		{Code: "ESLURM_PARTITION_DOWN", Number: 2101, Text: "Partition in DOWN state", Outcome: later, Scope: run.ScopePartition},
		{Code: "ESLURM_SUBMISSIONS_DISABLED", Number: 2105, Text: "System submissions disabled", Outcome: later, Scope: run.ScopeSite},
		{Code: "ESLURM_IN_STANDBY_MODE", Number: 2027, Text: "Slurm backup controller in standby mode", Outcome: later, Scope: run.ScopeSite},
		{Code: "ESLURM_IN_STANDBY_USE_BACKUP", Number: 2131, Text: "Controller is in standby mode, try a different controller", Outcome: later,
			Scope: run.ScopeSite},
		{Code: "SLURMCTLD_COMMUNICATIONS_HARD_DROP", Number: 1805, Text: "Rate limit exceeded, please retry later",
			Outcome: later, Scope: run.ScopeSite},

		// Never sent: sbatch reports this only when it could not connect; a request refused before that (standby, rate
		// limit) had its own answer. A failure after connecting has other texts.
		{Code: Unreachable, Number: 1800, Text: "Unable to contact slurm controller (connect failure)",
			Outcome: later, Scope: run.ScopeSite, Tested: true},
		// Never sent: without munge the request cannot even be packed. The same error about a reply looks different.
		{Code: Unreachable, Text: "Protocol authentication error", Outcome: later, Scope: run.ScopeSite, Tested: true,
			With: "slurm_buffers_pack_msg: auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error"},
		{Code: Unreachable, Text: "fatal: Unable to process configuration file", Outcome: later, Scope: run.ScopeSite, Tested: true, Own: true},
		{Code: "SCRIPT_UNREADABLE", Text: "Unable to open file ", Outcome: later, Tested: true, Own: true}, // the path follows
		{Code: "SBATCH_USAGE", Text: "unrecognized option ", Outcome: no, Tested: true, Own: true},         // the option follows
	}
}

// Unreachable is the code of a send that never reached slurmctld.
const Unreachable = run.Unreachable

const (
	accountingPolicy = "ESLURM_ACCOUNTING_POLICY"
	invalidAccount   = "ESLURM_INVALID_ACCOUNT"
)

// Explained adds to Slurm's refusal of an account that the association of user is missing. user is the owner of the
// jobs, not the caller.
func Explained(res run.SendResult, job run.JobSpec, user string) run.SendResult {
	if at := job.Spec.Placement; res.Code == invalidAccount {
		res.Text += "\nJobs belong to the user " + user + ", who must have an association with the account " + at.Account +
			" that is valid in the partition " + at.Partition + ": sacctmgr add user " + user + " account=" + at.Account
	}
	return res
}

// limitName matches the name of the limit that was hit, which slurmctld prints on a separate line:
// QOSMaxWallDurationPerJobLimit, AssocGrpSubmitJobsLimit, MaxSubmitJobsPerAccount, MaxCpuPerAccount, …
var limitName = regexp.MustCompile(`^(QOS|Assoc|Max|Min|Grp)[A-Za-z]+$`)

// refine returns the limit behind ESLURM_ACCOUNTING_POLICY. A refusal by a limit on the number of submitted jobs is
// temporary, one by a limit on what a single job may request is final.
func refine(messages []string) (code string, outcome run.SendOutcome, scope run.Scope) {
	for _, m := range messages {
		switch {
		case !limitName.MatchString(m):
		case !strings.Contains(m, "Submit"):
			return m, run.SendRejected, run.ScopeRun
		case strings.HasPrefix(m, "QOS"):
			return m, run.SendDeferred, run.ScopeQOS
		default:
			return m, run.SendDeferred, run.ScopeAccount
		}
	}
	return accountingPolicy, run.SendRejected, run.ScopeRun
}

// receipt matches the line that sbatch --parsable prints: a job id, and the cluster where there may be several.
var receipt = regexp.MustCompile(`(?m)^[0-9]+(;[^ ;\n]+)?$`)

// Classify returns what an ended sbatch proved, from its output and its exit status (nil: unknown). One receipt line,
// among any other lines that a site prints, means an accepted job for every exit status. Without one a known text on
// standard error decides, unless sbatch exited with 0. All else is doubt.
func Classify(stdout, stderr string, exit *int) run.SendResult {
	res := run.SendResult{Outcome: run.SendDoubt, ExitCode: exit, Text: complaint(stdout, stderr)}
	found := receipt.FindAllString(whole(stdout), -1)
	switch {
	case len(found) == 1:
		res.Outcome = run.SendAccepted
		res.JobID, res.Cluster, _ = strings.Cut(found[0], ";")
		return res
	case len(found) > 1:
		res.Code = "several_receipts"
		return res
	case exit != nil && *exit == 0:
		res.Code = "no_receipt"
		return res
	}
	messages := errorMessages(stderr)
	for _, row := range Errors() {
		if !row.fits(messages) {
			continue
		}
		res.Code, res.Outcome, res.Scope = row.Code, row.Outcome, row.Scope
		if row.Code == accountingPolicy {
			res.Code, res.Outcome, res.Scope = refine(messages)
		}
		return res
	}
	for i, m := range slices.Backward(messages) {
		if strings.HasPrefix(m, failed) {
			res.Code = cmp.Or(InOwnWords(messages[i:]...), res.Code)
			break
		}
	}
	return res
}

// InOwnWords returns [run.RefusedInWords] if slurmctld answered a send with these lines, which are not in the table; a
// site's job_submit plugin may write them. It returns "" if a line reports a failed call, because then there may have
// been no answer.
func InOwnWords(lines ...string) string {
	if slices.ContainsFunc(lines, failedCall) {
		return ""
	}
	return run.RefusedInWords
}

// ClassifyNumber is [Classify] for an answer of slurmctld with an error number instead of a text; lines are the
// messages that came with it. A number that is not in the table leaves doubt. Where no line names the limit that was
// hit, the refusal counts as temporary: nearly all refusals come from limits on the number of jobs, as jobs that
// request too much wait, unless the QOS has DenyOnLimit.
func ClassifyNumber(number int, lines []string) (code string, outcome run.SendOutcome, scope run.Scope) {
	for _, row := range Errors() {
		if row.Number != number || number == 0 {
			continue
		}
		if row.Code == accountingPolicy && !slices.ContainsFunc(lines, limitName.MatchString) {
			return row.Code, run.SendDeferred, run.ScopeRun
		}
		if row.Code == accountingPolicy {
			return refine(lines)
		}
		return row.Code, row.Outcome, row.Scope
	}
	return "", run.SendDoubt, run.ScopeRun
}

const failed = "Batch job submission failed: "

// errorMessages returns the messages in the complete lines of sbatch, without its name and the level.
func errorMessages(stderr string) []string {
	var out []string
	for line := range strings.Lines(whole(stderr)) {
		if m, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "sbatch: "); ok {
			out = append(out, strings.TrimPrefix(m, "error: "))
		}
	}
	return out
}

func (r Row) fits(messages []string) bool {
	text := ""
	if r.Own {
		if len(messages) > 0 {
			text = messages[len(messages)-1]
		}
	} else {
		for _, m := range messages {
			if answer, ok := strings.CutPrefix(m, failed); ok {
				text = answer
			}
		}
	}
	same := text == r.Text || strings.HasSuffix(r.Text, " ") && strings.HasPrefix(text, r.Text)
	return same && (r.With == "" || slices.Contains(messages, r.With))
}

// whole cuts off an incomplete last line: half a job id is another job's id.
func whole(s string) string { return s[:strings.LastIndexByte(s, '\n')+1] }

// complaint joins the output of sbatch, for people and for the ledger.
func complaint(stdout, stderr string) string {
	return Excerpt(strings.TrimSpace(strings.TrimSpace(stderr)+"\n"+strings.TrimSpace(stdout)), 4<<10)
}
