package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
)

type batchStatusCmd struct {
	app.BatchArgs
	Samples bool   `help:"Also list the rows."`
	State   string `help:"With --samples: only rows in this state." placeholder:"STATE"`
}

// Run shows a batch.
func (c batchStatusCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var st app.BatchStatusAnswer
		if err := s.call(ctx, "batch.status", c.BatchArgs, &st); err != nil {
			return err
		}
		if !c.Samples {
			return a.show(st, func(w io.Writer) { printDocument(w, st.Says(), nothing) })
		}
		rows, err := s.batchRows(ctx, app.BatchRowsArgs{BatchArgs: app.BatchArgs{Batch: st.BatchID}, State: c.State})
		if err != nil {
			return err
		}
		both := struct {
			app.BatchStatusAnswer
			Samples []app.BatchRowDoc `json:"samples"`
		}{st, rows}
		return a.show(both, func(w io.Writer) {
			printDocument(w, st.Says(), nothing)
			printDocument(w, app.BatchRowsAnswer{Name: st.Name, Total: int64(len(rows)), Rows: rows}.Says(), nothing)
		})
	})
}

// batchRows reads all pages. With outputs they are shorter: an answer that is too large for an envelope has to be stored first.
func (s *Session) batchRows(ctx context.Context, args app.BatchRowsArgs) (rows []app.BatchRowDoc, err error) {
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

// batchLine returns a batch's state in one line.
func batchLine(d app.BatchDoc) string {
	return fmt.Sprintf("%s: %d rows: %s", d.Name, d.Rows, d.CountsText())
}

type batchWaitCmd struct {
	app.BatchArgs
	Timeout time.Duration `help:"Stop waiting after this time (the batch continues)." placeholder:"DURATION"`
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
			if err := s.call(ctx, "batch.status", app.BatchStatusArgs{BatchArgs: c.BatchArgs, WaitSeconds: wait}, &st); err != nil {
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
		if err := a.show(st, func(w io.Writer) { printDocument(w, st.Says(), nothing) }); err != nil {
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

type batchRetryCmd struct {
	app.BatchRetryArgs
	Failed bool `help:"What failed or was refused; always so." default:"true"`
}

// Run retries.
func (c batchRetryCmd) Run(ctx context.Context, a *Shell) error {
	return callAndPrint[app.BatchChanged](ctx, a, "batch.retry", c.BatchRetryArgs)
}
