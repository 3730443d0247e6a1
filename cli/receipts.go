package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"slurmgate/app"
	"slurmgate/fault"
)

// Receipt is the verb that prints the signed receipt of a run.
type Receipt struct {
	app.ReceiptArgs
	To string `help:"Write it to this file, which must not exist." type:"path" placeholder:"FILE"`
}

// Run prints the envelope, or writes it to a file.
func (c Receipt) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var r app.ReceiptAnswer
		if err := s.call(ctx, "run.receipt", c.ReceiptArgs, &r); err != nil {
			return err
		}
		text := string(r.Envelope) + "\n"
		if c.To != "" {
			if err := writeNew(c.To, text); err != nil {
				return err
			}
		}
		return a.show(r, func(w io.Writer) {
			if c.To == "" {
				io.WriteString(w, text)
				return
			}
			fmt.Fprintf(w, "%s: ", c.To)
			printDocument(w, r.Says(), nothing)
		})
	})
}

// writeNew writes a file that must not exist.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Validation, "file_exists", path+" exists already").WithNext("name another file, or remove it")
	}
	if err == nil {
		_, err = io.WriteString(f, text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fault.Wrap(fault.Validation, "file_unwritable", "cannot write "+path, err)
	}
	return nil
}

// Keys groups the verbs on the keys that receipts are signed with.
type Keys struct {
	List   Call[struct{}, app.KeyList]   `cmd:"" default:"withargs" help:"List the public keys. The last one signs; what a retired one signed still verifies."`
	Rotate Call[struct{}, app.KeyAnswer] `cmd:"" help:"Make a new key that signs from now on, and delete the secret of the old one."`
}
