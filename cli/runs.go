package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
)

// Runs groups the verbs on the runs of the ledger.
type Runs struct {
	List runsListCmd                     `cmd:"" default:"withargs" help:"List runs, newest first."`
	Show runsShowCmd                     `cmd:"" help:"Show everything about a run."`
	Diff Call[app.DiffArgs, app.RunDiff] `cmd:"" help:"Show why two runs are not the same run."`

	Remove runsRemoveCmd `cmd:"" name:"rm" help:"Remove what finished runs made: outputs, logs, workspaces; the runs stay in the ledger."`
}

type runsListCmd struct {
	app.RunListArgs
	Since string `help:"Only runs created since this time: 2026-11-21, 2026-11-21T08:00:00Z, or how long ago: 90m, 12h, 7d." placeholder:"TIME"`
	Until string `help:"Only runs created before this time, in the same format." placeholder:"TIME"`
}

// Run lists runs.
func (c runsListCmd) Run(ctx context.Context, a *Shell) error {
	args := c.RunListArgs
	var err error
	if args.Since, err = when("--since", c.Since, time.Now()); err != nil {
		return err
	}
	if args.Until, err = when("--until", c.Until, time.Now()); err != nil {
		return err
	}
	return callAndPrint[app.RunList](ctx, a, "run.list", args)
}

func orDash(s string) string { return cmp.Or(s, "-") }

type runsShowCmd struct{ app.RunArgs }

// Run shows one run. A run that is only a call is shown as a call.
func (c runsShowCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		err := callAndPrint[app.RunStory](ctx, a, "run.show", c.RunArgs)
		if fault.CodeOf(err) == "run_is_a_call" {
			err = callAndPrint[app.CallRun](ctx, a, "run.provenance", c.RunArgs)
		}
		return err
	})
}

// when parses a time as users write it: a day, a time, or how long ago.
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
			Rule: "a time such as 2026-11-21 or 2026-11-21T08:00:00Z, or how long ago, such as 90m, 12h or 7d",
			Msg:  fmt.Sprintf("%q is not a time", s)})
	}
	return now.Add(-ago), nil
}
