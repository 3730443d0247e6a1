package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/retention"
)

// Erase is the verb that removes a leaked secret. The secret is read from a file or standard input: arguments are seen by every user of the
// host, and the shell remembers them.
type Erase struct {
	Reason string `required:"" help:"Why, for the record. It must not contain the secret." placeholder:"TEXT"`
	File   string `help:"File with the secret; a line end after it is ignored. Default: standard input." placeholder:"FILE"`
	DryRun bool   `help:"Show where the secret is, and erase nothing."`
}

// Run erases.
func (c Erase) Run(ctx context.Context, a *Shell) error {
	in := StandardInput(ctx)
	if c.File != "" {
		f, err := os.Open(c.File)
		if err != nil {
			return fault.Wrap(fault.Validation, "input_unreadable", "the file with the secret cannot be read", err)
		}
		defer f.Close()
		in = f
	} else if st, err := os.Stdin.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		a.Say("type or paste the secret, then Ctrl-D; it is shown on this terminal (use --file or a pipe to avoid that)")
	}
	secret, err := io.ReadAll(io.LimitReader(in, retention.SecretMost+3))
	if err != nil {
		return fault.Wrap(fault.Validation, "input_unreadable", "the secret cannot be read", err)
	}
	return a.With(ctx, func(s *Session) error {
		res, err := s.way().Erase(ctx, bytes.NewReader(secret), c.Reason, c.DryRun)
		if err != nil {
			return err
		}
		var r app.EraseAnswer
		if err := decode(res, &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) { printErased(w, r.EraseReport) })
	})
}

func printErased(w io.Writer, r retention.EraseReport) {
	verb := "erased"
	switch {
	case len(r.Found) == 0:
		fmt.Fprintln(w, "the secret was found nowhere")
	case r.DryRun:
		verb = "would erase"
	}
	for _, f := range r.Found {
		fmt.Fprintf(w, "%-11s  %6d  %s\n", verb, f.Count, f.What)
		if r.DryRun {
			for _, name := range f.Named {
				fmt.Fprintf(w, "    %s\n", name)
			}
		}
	}
	for _, id := range r.InFlight {
		fmt.Fprintf(w, "in flight    %s holds the secret and must end first\n", id)
		printNext(w, fault.Do("slurm.job.cancel", "run_id", id))
	}
	for _, list := range []struct {
		what  string
		items []retention.Skipped
	}{{"not searched", r.Skipped}, {"still there", r.Pending}} {
		for _, k := range list.items {
			fmt.Fprintf(w, "%s  %s  %s\n", list.what, k.Name, clipLine(k.Why, 160))
		}
	}
	if len(r.Pending) > 0 {
		fmt.Fprintln(w, "what is still there is tried again when the gateway starts")
	}
	if r.Left > 0 {
		fmt.Fprintf(w, "found again  %d places got the secret meanwhile: run the same command again\n", r.Left)
	}
	if r.ID != "" {
		fmt.Fprintf(w, "erasure      %s\n", r.ID)
	}
	if len(r.Found) > 0 {
		fmt.Fprintln(w, "out of reach:")
		for _, o := range r.Outside {
			fmt.Fprintf(w, "  - %s\n", o)
		}
	}
}
