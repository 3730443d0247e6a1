package cli

import (
	"context"
	"io"
	"strconv"
	"strings"

	"slurmgate/app"
)

// Notify is the verb that asks to be told when a run is over.
type Notify struct {
	RunID string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Place string `arg:"" optional:"" name:"url" help:"URL, or mail address. Without it your notices of the run are listed."`
}

// Run asks for a notice, and lists those there are.
func (c Notify) Run(ctx context.Context, a *Shell) error {
	if strings.Contains(c.Place, "@") && !strings.Contains(c.Place, ":") {
		c.Place = "mailto:" + c.Place
	}
	return ask(ctx, a, "run.notify", app.NotifyArgs{RunID: c.RunID, URL: c.Place}, func(w io.Writer, r app.NotifyAnswer) {
		list(w, "place|state|tries|result", r.Notices, func(n app.NoticeDoc) []string {
			return []string{n.URL, n.State, strconv.Itoa(n.Tries), orDash(n.Result)}
		})
	})
}
