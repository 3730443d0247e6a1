package cli

import (
	"context"
	"io"
	"strings"

	"slurmgate/app"
)

// Notify is the verb that requests a notice when a run or a batch ends.
type Notify struct {
	Of      string `arg:"" name:"run" help:"Run id, or the beginning of one (run_…); or a batch's name or id."`
	Place   string `arg:"" optional:"" name:"url" help:"URL, mail address, or name of a receiver of the site. Without it your notices of the run or batch are listed."`
	Project string `help:"Project of the batch, name or id." placeholder:"NAME"`
}

// Run asks for a notice, and lists those there are.
func (c Notify) Run(ctx context.Context, a *Shell) error {
	args := app.NotifyArgs{Batch: c.Of, ProjectID: c.Project, URL: c.Place}
	switch {
	case c.Place == "" || strings.Contains(c.Place, ":"):
	case strings.Contains(c.Place, "@"):
		args.URL = "mailto:" + c.Place
	default:
		args.URL = "receiver:" + c.Place
	}
	return a.With(ctx, func(s *Session) (err error) {
		if strings.HasPrefix(c.Of, runIDs.prefix) || c.Project == "" && isShort(runIDs, c.Of) && !isName(ctx, s, c.Of) {
			if args = (app.NotifyArgs{RunID: c.Of, URL: args.URL}); isShort(runIDs, c.Of) {
				if args.RunID, err = s.whole(ctx, runIDs, c.Of); err != nil {
					return err
				}
			}
		}
		var r app.NotifyAnswer
		if err := s.call(ctx, "run.notify", args, &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) { printDocument(w, r.Says(), nothing) })
	})
}

// isName reports whether there is a batch of a name.
func isName(ctx context.Context, s *Session, name string) bool {
	var st app.BatchStatusAnswer
	return s.call(ctx, "batch.status", app.BatchArgs{Batch: name}, &st) == nil
}
