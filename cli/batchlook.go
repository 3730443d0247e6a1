package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
)

type batchStatusCmd struct {
	Name    string `arg:"" name:"batch" help:"A batch's name or id."`
	Samples bool   `help:"Also list the rows."`
	State   string `help:"With --samples: only rows in this state." placeholder:"STATE"`
	Project string `help:"Project name or id." placeholder:"NAME"`
}

// Run shows a batch.
func (c batchStatusCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var st app.BatchStatusAnswer
		if err := s.call(ctx, "batch.status", app.BatchArgs{Batch: c.Name, ProjectID: c.Project}, &st); err != nil {
			return err
		}
		if !c.Samples {
			return a.show(st, func(w io.Writer) { printBatch(w, st) })
		}
		rows, err := s.batchRows(ctx, app.BatchArgs{Batch: st.BatchID, State: c.State})
		if err != nil {
			return err
		}
		both := struct {
			app.BatchStatusAnswer
			Samples []app.BatchRowDoc `json:"samples"`
		}{st, rows}
		return a.show(both, func(w io.Writer) {
			printBatch(w, st)
			list(w, "row|sample|state|run|reason", rows, func(r app.BatchRowDoc) []string {
				return []string{fmt.Sprint(r.Row), clipLine(r.Sample, 40), r.State, text(r.RunID), clipLine(r.Reason, 60)}
			})
		})
	})
}

// batchRows reads all pages. With outputs they are shorter: an answer that is too large for an envelope has to be stored first.
func (s *Session) batchRows(ctx context.Context, args app.BatchArgs) (rows []app.BatchRowDoc, err error) {
	if args.Limit = 200; args.Outputs {
		args.Limit = pageOutputs
	}
	for {
		var page app.BatchRowsAnswer
		if err := s.call(ctx, "batch.rows", args, &page); err != nil {
			return nil, err
		}
		rows = append(rows, page.Rows...)
		if page.AfterRow == nil {
			return rows, nil
		}
		args.AfterRow = *page.AfterRow
	}
}

// batchLine is how a batch stands, in one line.
func batchLine(d app.BatchDoc) string {
	var parts []string
	for _, state := range []string{"succeeded", "running", "queued", "waiting", "blocked", "failed", "refused", "cancelled"} {
		if n := d.Counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return fmt.Sprintf("%s: %d rows: %s", d.Name, d.Rows, strings.Join(parts, ", "))
}

func printBatch(w io.Writer, st app.BatchStatusAnswer) {
	fmt.Fprintf(w, "%s\n%s  %s  by %s  %s\n", batchLine(st.BatchDoc), st.BatchID, st.ToolID, st.Principal, dateTime(st.CreatedAt))
	for _, x := range st.Steps {
		fmt.Fprintf(w, "  %-12s %s\n", x.Step, batchLine(x))
	}
	if st.Waits != nil {
		fmt.Fprintf(w, "waits    %s\n", clipLine(st.Waits.Message, 200))
	}
	for _, x := range st.Causes {
		more := ""
		if int64(len(x.Samples)) < x.Rows {
			more = ", …"
		}
		state := x.State
		if x.Step != "" {
			state = x.Step + " " + x.State
		}
		fmt.Fprintf(w, "%-8s %d × %s: %s (%s%s)\n", state, x.Rows, x.Cause, clipLine(x.Reason, 120), strings.Join(x.Samples, ", "), more)
	}
	printNext(w, st.NextSteps...)
}

type batchWaitCmd struct {
	Name    string        `arg:"" name:"batch" help:"A batch's name or id."`
	Timeout time.Duration `help:"Stop waiting after this time (the batch continues)." placeholder:"DURATION"`
	Project string        `help:"Project name or id." placeholder:"NAME"`
}

// Run waits, with one line on a terminal.
func (c batchWaitCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var st app.BatchStatusAnswer
		for began, said := time.Now(), ""; ; {
			wait := 20
			if left := c.Timeout - time.Since(began); c.Timeout > 0 {
				wait = max(0, min(wait, int(left/time.Second)+1))
			}
			if a.tty {
				wait = min(wait, 2)
			}
			if err := s.call(ctx, "batch.status", app.BatchArgs{Batch: c.Name, ProjectID: c.Project, WaitSeconds: wait}, &st); err != nil {
				return err
			}
			if line := batchLine(st.BatchDoc); line != said && a.tty {
				fmt.Fprintf(a.Err, "\r\x1b[K%s", clipLine(line, 110))
				said = line
			}
			if st.Over || c.Timeout > 0 && time.Since(began) >= c.Timeout {
				break
			}
		}
		if a.tty {
			fmt.Fprintln(a.Err)
		}
		if err := a.show(st, func(w io.Writer) { printBatch(w, st) }); err != nil {
			return err
		}
		switch {
		case !st.Over:
			return quietFailure{fault.Timeout}
		case st.Counts["succeeded"] < st.Rows:
			return quietFailure{fault.Tool}
		}
		return nil
	})
}

type batchTableCmd struct {
	Name       string   `arg:"" name:"batch" help:"A batch's name or id."`
	Role       string   `help:"The output to read. Default: the first that is JSON, TSV or CSV." placeholder:"ROLE"`
	Field      []string `help:"A field to show; may be given again." placeholder:"NAME"`
	Sort       string   `help:"Sort by this field, smallest first." placeholder:"NAME"`
	Descending bool     `help:"With --sort: largest first."`
	Limit      int      `help:"Maximum number of samples (1 to 200)." default:"20"`
	Project    string   `help:"Project name or id." placeholder:"NAME"`
}

// Run shows a table across samples.
func (c batchTableCmd) Run(ctx context.Context, a *Shell) error {
	args := app.BatchArgs{Batch: c.Name, ProjectID: c.Project, Role: c.Role, Fields: c.Field, SortBy: c.Sort, Descending: c.Descending,
		Limit: c.Limit}
	return ask(ctx, a, "batch.table", args, func(w io.Writer, t app.BatchTableAnswer) {
		head := []string{"sample"}
		for _, name := range t.Fields {
			head = append(head, strings.ReplaceAll(clipLine(name, 30), "|", "/"))
		}
		if t.Role == "" {
			fmt.Fprintf(w, "no outputs: %d samples are not finished, %d did not succeed\n", t.Pending, t.Failed)
			return
		}
		list(w, strings.Join(head, "|"), t.Rows, func(r app.BatchTableRow) []string {
			row := []string{clipLine(r.Sample, 40)}
			for _, v := range r.Values {
				row = append(row, clipLine(v, 30))
			}
			return row
		})
		fmt.Fprintf(w, "%d of %d samples, output %s", len(t.Rows), t.Total, t.Role)
		if t.Pending+t.Failed > 0 {
			fmt.Fprintf(w, "; %d are not finished, %d did not succeed", t.Pending, t.Failed)
		}
		fmt.Fprintln(w)
		if len(t.Others) > 0 {
			fmt.Fprintf(w, "other fields: %s\n", clipLine(strings.Join(t.Others, ", "), 400))
		}
		printLines(w, "warning ", t.Warnings)
	})
}

type batchRetryCmd struct {
	Name      string `arg:"" name:"batch" help:"A batch's name or id."`
	Failed    bool   `help:"What failed or was refused; always so." default:"true"`
	Cancelled bool   `help:"Also what was cancelled."`
	Project   string `help:"Project name or id." placeholder:"NAME"`
}

// Run retries.
func (c batchRetryCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "batch.retry", app.BatchArgs{Batch: c.Name, ProjectID: c.Project, Cancelled: c.Cancelled}, printBatchChange)
}

func printBatchChange(w io.Writer, r app.BatchChanged) {
	fmt.Fprintf(w, "%s\n%s\n", r.Message, batchLine(r.BatchDoc))
	printNext(w, fault.Do("batch.status", "batch", r.Name))
}

type batchCancelCmd struct {
	Name    string `arg:"" name:"batch" help:"A batch's name or id."`
	Project string `help:"Project name or id." placeholder:"NAME"`
}

// Run cancels.
func (c batchCancelCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "batch.cancel", app.BatchArgs{Batch: c.Name, ProjectID: c.Project}, printBatchChange)
}

type batchListCmd struct {
	Project string `help:"Only this project (name or id)." placeholder:"NAME"`
	Limit   int    `help:"Maximum number to list (1 to 200)." default:"20"`
	Cursor  string `help:"Continue after an earlier page." placeholder:"CURSOR"`
}

// Run lists batches.
func (c batchListCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "batch.list", app.BatchListArgs{ProjectID: c.Project, Cursor: c.Cursor, Limit: c.Limit},
		func(w io.Writer, l app.BatchList) {
			list(w, "batch|created|tool|how it stands", l.Batches, func(d app.BatchDoc) []string {
				return []string{d.BatchID, dateTime(d.CreatedAt), d.ToolID, clipLine(batchLine(d), 90)}
			})
			footer(w, len(l.Batches), l.Listed, "batches")
			nextPage(w, l.Cursor, fault.Do("batch.list", "cursor", text(l.Cursor)))
		})
}
