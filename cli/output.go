package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// show prints a result: as JSON, or as text for people.
func (a *Shell) show(v any, text func(io.Writer)) error {
	if !a.JSON {
		text(a.Out)
		return nil
	}
	e := json.NewEncoder(a.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// quietFailure is an error that was already reported: only its exit status is left.
type quietFailure struct{ kind fault.Kind }

func (quietFailure) Error() string { return "already reported" }

// fail prints an error and returns the exit status.
func (a *Shell) fail(err error) int {
	if q, ok := errors.AsType[quietFailure](err); ok {
		return q.kind.ExitCode()
	}
	if a.JSON {
		body := asBody(err)
		body.Message = scrubbed(err, body.Message)
		_ = a.show(map[string]any{"error": body}, nil) // nothing else can be done
	} else {
		fmt.Fprintln(a.Err, "slurmgate:", scrubbed(err, gate.Text(gate.Local, err)))
	}
	return fault.KindOf(err).ExitCode()
}

// scrubbed takes secrets out of the message of an error: a command line that does not parse is quoted in it. The gate did so with what came
// through it.
func scrubbed(err error, message string) string {
	if _, ok := errors.AsType[callError](err); ok {
		return message
	}
	return gate.ScrubMessage(message, fault.ProblemsOf(err))
}

// callError is an error that came back through the gate, with its whole body.
type callError struct {
	fault *fault.Error
	body  *gate.ErrorBody
}

func (e callError) Error() string { return e.fault.Error() }

func (e callError) Unwrap() error { return e.fault }

func asBody(err error) *gate.ErrorBody {
	if c, ok := errors.AsType[callError](err); ok {
		return c.body
	}
	return gate.BodyOf(gate.Local, err)
}

// table prints rows under a heading, aligned.
func table(w io.Writer, heading string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(heading, "|", "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	t.Flush()
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func text(p *string) string {
	if p == nil {
		return "-"
	}
	return *p
}

// footer ends a list at the shell: how many of how many it shows.
func footer(w io.Writer, shown int, of app.Listed, what string) {
	total := fmt.Sprint(of.Total)
	if !of.TotalExact {
		total = "at least " + total
	}
	if of.TotalExact && of.Total == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	if int64(shown) == of.Total && of.TotalExact {
		fmt.Fprintf(w, "%s %s\n", total, what)
		return
	}
	fmt.Fprintf(w, "%d of %s %s\n", shown, total, what)
}

func exactly(n int64) app.Listed { return app.Listed{Total: n, TotalExact: true} }
