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
	RunID   string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Attempt int    `help:"Which attempt's. Default: the newest." placeholder:"N"`
	To      string `help:"Write it to this file, which must not exist." type:"path" placeholder:"FILE"`
}

// Run prints the envelope, or writes it to a file.
func (c Receipt) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var r app.ReceiptAnswer
		if err := s.call(ctx, "run.receipt", app.ReceiptArgs{RunID: c.RunID, Attempt: c.Attempt}, &r); err != nil {
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
			fmt.Fprintf(w, "%s: the receipt of %s, attempt %d, signed by key %s\n", c.To, r.RunID, r.Attempt, r.KeyID)
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

// Keys are the verbs on the keys that receipts are signed with.
type Keys struct {
	List   keysListCmd   `cmd:"" default:"withargs" help:"List the public keys. The last one signs; what a retired one signed still verifies."`
	Rotate keysRotateCmd `cmd:"" help:"Make a new key that signs from now on, and delete the secret of the old one."`
}

type keysListCmd struct{}

// Run lists keys.
func (keysListCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "key.list", nothing, func(w io.Writer, l app.KeyList) {
		fmt.Fprintf(w, "gateway  %s\n", l.GatewayID)
		for _, k := range l.Keys {
			printKey(w, k)
		}
	})
}

type keysRotateCmd struct{}

// Run rotates the key.
func (keysRotateCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "key.rotate", nothing, func(w io.Writer, k app.KeyAnswer) { printKey(w, k.KeyDoc) })
}

func printKey(w io.Writer, k app.KeyDoc) {
	state := "signs"
	if k.RetiredAt != nil {
		state = "retired " + dateTime(*k.RetiredAt)
	}
	fmt.Fprintf(w, "key      %s\ncreated  %s, %s\n%s", k.KeyID, dateTime(k.CreatedAt), state, k.PublicKey)
}
