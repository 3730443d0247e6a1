package cli

import (
	"bytes"
	"context"
	"io"
	"os"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/retention"
)

// Erase is the verb that removes a leaked secret. The secret is read from a file or standard input: every user of the
// host can see arguments, and the shell remembers them.
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
		return a.show(r, func(w io.Writer) { printDocument(w, r.Says(), nothing) })
	})
}
