package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Runs are the verbs on the runs of the ledger.
type Runs struct {
	List runsListCmd `cmd:"" default:"withargs" help:"List runs, newest first."`
	Show runsShowCmd `cmd:"" help:"Show everything about a run."`
	Diff runsDiffCmd `cmd:"" help:"Show why two runs are not the same run."`

	Remove runsRemoveCmd `cmd:"" name:"rm" help:"Remove what finished runs made: outputs, logs, workspaces; the runs stay in the ledger."`
}

type runsListCmd struct {
	State   string `help:"Only runs in this state." enum:",queued,running,blocked,succeeded,failed,cancelled" default:"" placeholder:"STATE"`
	Tool    string `help:"Only runs of this tool." placeholder:"ID"`
	Project string `help:"Only runs of this project (name or id)." placeholder:"NAME"`
	By      string `name:"principal" help:"Only runs that this principal asked for: its name (user:alice, token:ci), its id, a login name, or me." placeholder:"NAME"`
	Since   string `help:"Only runs created since this time: 2026-11-21, 2026-11-21T08:00:00Z, or how long ago: 90m, 12h, 7d." placeholder:"TIME"`
	Until   string `help:"Only runs created before this time, in the same format." placeholder:"TIME"`
	Sample  string `help:"Only runs of this sample: of a row of a batch." placeholder:"NAME"`
	Tag     string `help:"Only runs of a row of a batch with this tag." placeholder:"TAG"`
	Batch   string `help:"Only runs of this batch (name or id)." placeholder:"NAME"`
	Limit   int    `help:"Maximum number to list (1 to 200)." default:"20"`
	Cursor  string `help:"Continue after an earlier page." placeholder:"CURSOR"`
}

// Run lists runs.
func (c runsListCmd) Run(ctx context.Context, a *Shell) error {
	args := app.RunListArgs{State: run.State(c.State), ToolID: c.Tool, ProjectID: c.Project, Principal: c.By, Sample: c.Sample, Tag: c.Tag,
		Batch: c.Batch, Limit: c.Limit, Cursor: c.Cursor}
	var err error
	if args.Since, err = when("--since", c.Since, time.Now()); err != nil {
		return err
	}
	if args.Until, err = when("--until", c.Until, time.Now()); err != nil {
		return err
	}
	return ask(ctx, a, "run.list", args, func(w io.Writer, l app.RunList) {
		if len(l.Waiting) > 0 {
			list(w, "run|tool|state|phase|created|by|reason", l.Waiting, func(r app.RunRow) []string {
				return []string{r.RunID, r.ToolID, string(r.State), string(r.Phase), dateTime(r.CreatedAt), byText(r), clipLine(r.Reason, 60)}
			})
			fmt.Fprintf(w, "%d of %d runs that have not started\n", len(l.Waiting), l.WaitingTotal)
			printNext(w, fault.Do("slurm.job.get", "run_id", l.Waiting[0].RunID))
		}
		if len(l.Runs) == 0 && len(l.Waiting) > 0 {
			return
		}
		if len(l.Runs) == 0 && (args != app.RunListArgs{Limit: args.Limit}) {
			fmt.Fprintln(w, "no runs match")
			printNext(w, fault.Do("run.list"))
			return
		}
		if len(l.Runs) == 0 {
			fmt.Fprintln(w, "no runs")
			printNext(w, fault.Do("tool.list"), fault.Do("run"))
			return
		}
		list(w, "run|tool|state|phase|site|job|created|by|reason", l.Runs, func(r app.RunRow) []string {
			return []string{r.RunID, r.ToolID, string(r.State), string(r.Phase), orDash(r.Site), orDash(r.SlurmJobID), dateTime(r.CreatedAt),
				byText(r), clipLine(reasonOf(r), 60)}
		})
		footer(w, len(l.Runs), l.Listed, "runs")
		nextPage(w, l.Cursor, fault.Do("run.list", "cursor", text(l.Cursor)))
	})
}

// byText is who asked for a run, and the user it is executed as where that is not the gateway's own.
func byText(r app.RunRow) string {
	if r.ExecutedAs == "" {
		return nameOr(r.Principal)
	}
	return nameOr(r.Principal) + " as " + r.ExecutedAs
}

// reasonOf is what a run waits for, in words where it waits for its turn.
func reasonOf(r app.RunRow) string {
	if r.Waits != nil {
		return r.Waits.Text
	}
	return r.Reason
}

// nameOr is who made a run; older ledgers do not know.
func nameOr(name *string) string {
	if name == nil {
		return "unknown"
	}
	return *name
}

func orDash(s string) string { return cmp.Or(s, "-") }

type runsShowCmd struct {
	RunID string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
}

// Run shows one run. One that is nothing but a call is shown as that.
func (c runsShowCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		err := ask(ctx, a, "run.show", app.RunArgs{RunID: c.RunID}, printStory)
		if fault.CodeOf(err) == "run_is_a_call" {
			err = ask(ctx, a, "run.provenance", app.RunArgs{RunID: c.RunID}, printCall)
		}
		return err
	})
}

func printCall(w io.Writer, r app.CallRun) {
	fmt.Fprintf(w, "run        %s\ncall of    %s (contract %s)\npolicy     %s\nparams     %s\n", r.RunID, r.ToolID, r.ContractVersion,
		r.PolicyHash, string(r.Params))
	fmt.Fprintf(w, "asked      %d times, first %s, last %s\n", r.Calls, dateTime(r.FirstAskedAt), dateTime(r.LastAskedAt))
	printLines(w, "call       ", r.ToolCallIDs)
}

func printStory(w io.Writer, r app.RunStory) {
	line := func(k, format string, v ...any) {
		fmt.Fprintf(w, "%-10s %s\n", k, fmt.Sprintf(format, v...))
	}
	line("run", "%s", r.RunID)
	line("tool", "%s %s (contract %s)", r.ToolID, r.ToolVersion, r.ContractVersion)
	line("state", "%s (%s)", r.State, r.Phase)
	switch {
	case r.Detail != "":
		line("reason", "%s: %s", r.Reason, r.Detail)
	case r.Reason != "" && r.Reason != "ok":
		line("reason", "%s", r.Reason)
	}
	line("project", "%s", r.ProjectID)
	line("site", "%s", orDash(r.Site))
	if r.ExecutedAs != "" {
		line("as user", "%s", r.ExecutedAs)
	}
	line("asked by", "%s", nameOr(r.Principal))
	for _, k := range r.AskedAlso {
		line("also", "%s, on %s", k.Principal, dateTime(k.AskedAt))
	}
	line("policy", "%s", r.PolicyHash)
	line("params", "%s", r.ParamsHash)
	p, err := plan.DecodeParams(r.Params)
	if err == nil && p.Worker != nil {
		printService(line, r, *p.Worker)
	} else {
		printJob(line, r, p)
	}
	for _, in := range r.Inputs {
		how := ""
		if in.Strength != "" {
			how = "  " + string(in.Strength)
		}
		line("input", "%s  %s  %s → %s%s", in.Role, in.Type, in.ArtifactID, in.Relpath, how)
	}
	for _, o := range r.Outputs {
		line("output", "%s  %s  %s  %s", o.Role, o.Type, o.ArtifactID, bytesText(o.SizeBytes))
	}
	for _, k := range r.Sends {
		line("send", "%d  %s  %s  %s", k.Send, k.StartedAt.Local().Format(time.TimeOnly), k.Outcome, clipLine(k.Text, 100))
	}
	for _, e := range r.Events {
		line("event", "%d  %s  %s  %s", e.Seq, e.At.Local().Format(time.TimeOnly), e.Type, clipLine(string(e.Data), 110))
	}
	printLines(w, "warning ", r.Warnings)
	printNext(w, r.NextSteps...)
}

// printJob prints what a run is as a job, and how its attempts went.
func printJob(line func(k, format string, v ...any), r app.RunStory, p plan.Params) {
	line("image", "%s", r.Image)
	if x := p.Spec.Resources; x.CPUs > 0 { // the params could be read
		c := p.Spec.Execution.Command
		line("command", "%q", c.Argv)
		for _, argv := range c.Pipe {
			line("| into", "%q", argv)
		}
		if c.Stdin != nil {
			line("stdin", "%s", *c.Stdin)
		}
		line("requested", "%d CPUs, %d MiB, %s%s", x.CPUs, x.MemMB, time.Duration(x.TimeLimitSeconds)*time.Second,
			placeText(", ", p.Spec.Placement))
	}
	line("job", "%s  %s  attempt %d  node %s  slurm %s", orDash(r.SlurmJobID), r.JobName, r.Attempt, orDash(r.Node), orDash(r.SlurmState))
	if r.ExitCode != nil {
		line("exit", "%d", *r.ExitCode)
	}
	for _, t := range r.Attempts {
		where := ""
		if t.Placement != nil {
			where = placeText("  ", *t.Placement)
		}
		if raised := t.Resources.Raised(p.Spec.Resources); raised != "" {
			where += "  " + raised
		}
		line("attempt", "%d  %s%s  %s", t.Attempt, cmp.Or(string(t.Ending), "open"), where, usedText(t))
	}
	if r.WorkspaceGone != nil {
		line("workspace", "removed by gc on %s; the run's artifacts still exist", r.WorkspaceGone.Local().Format("2006-01-02"))
	} else {
		line("workspace", "%s", r.Workspace)
	}
}

// printService prints what a call of a service worker was given and what it answered.
func printService(line func(k, format string, v ...any), r app.RunStory, c plan.Call) {
	line("arguments", "%s", clipLine(string(c.Input), 200))
	if r.Call != nil && r.Call.Error == nil {
		line("answer", "%s", clipLine(cmp.Or(r.Call.OutputRef, string(r.Call.Output)), 200))
	}
}

// placeText names a placement; what is left to somebody else is left out.
func placeText(before string, p plan.Placement) string {
	var parts []string
	add := func(what, value string) {
		if value != "" {
			parts = append(parts, what+" "+value)
		}
	}
	if p.Site != nil {
		add("site", *p.Site)
	}
	add("partition", p.Partition)
	add("account", p.Account)
	if p.QOS != nil {
		add("QOS", *p.QOS)
	}
	if p.Constraint != nil {
		add("constraint", *p.Constraint)
	}
	if len(parts) == 0 {
		return ""
	}
	return before + strings.Join(parts, ", ")
}

// usedText is what an attempt's job used, in one line.
func usedText(t app.AttemptDoc) string {
	if t.ElapsedSeconds == nil {
		return "nothing measured"
	}
	text := fmt.Sprintf("%s elapsed, %s CPU", secondsText(*t.ElapsedSeconds), secondsText(*t.CPUSeconds))
	if t.CPUEfficiency != nil {
		text += fmt.Sprintf(" (%.0f %% of its CPUs)", 100**t.CPUEfficiency)
	}
	if t.MaxRSSBytes != nil {
		text += fmt.Sprintf(", %s memory (%.0f %% of the requested)", bytesText(*t.MaxRSSBytes), 100**t.MemEfficiency)
	}
	return text + ", by " + map[string]string{"job": "the job's own record", "accounting": "Slurm's accounting"}[t.Source]
}

func secondsText(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}

// when reads a time as people write it: a day, a time, or how long ago.
func when(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	ago, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n float64
		if n, err = strconv.ParseFloat(days, 64); err == nil && n < 36500 {
			ago = time.Duration(n * 24 * float64(time.Hour))
		}
	}
	if err != nil || ago < 0 {
		return time.Time{}, fault.Invalid("", fault.Problem{Code: "TIME", Field: flag,
			Rule: "a time such as 2026-11-21 or 2026-11-21T08:00:00Z, or how long ago, such as 90m, 12h or 7d", Msg: fmt.Sprintf("got %q", s)})
	}
	return now.Add(-ago), nil
}

type runsDiffCmd struct {
	A string `arg:"" ids:"run" help:"Run id, or the beginning of one."`
	B string `arg:"" ids:"run" help:"Another run id, or the beginning of one."`
}

// Run compares.
func (c runsDiffCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "run.diff", app.DiffArgs{A: c.A, B: c.B}, func(w io.Writer, r app.RunDiff) {
		if r.Same {
			fmt.Fprintln(w, "the same run")
			return
		}
		for _, p := range r.Parts {
			fmt.Fprintf(w, "%-17s %s → %s\n", p.Part, p.A, p.B)
		}
		value := func(v json.RawMessage) string { return clipLine(cmp.Or(string(v), "(absent)"), 60) }
		for _, x := range r.Changes {
			fmt.Fprintf(w, "  %s: %s → %s\n", x.Path, value(x.A), value(x.B))
		}
		if r.More {
			fmt.Fprintln(w, "  … and more; --json shows all of it")
		}
	})
}
