package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/visible"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// show prints a result: as JSON, or as text for people. Neither has a character that a terminal hides or obeys.
func (a *Shell) show(v any, text func(io.Writer)) error {
	if !a.JSON {
		var b strings.Builder
		text(&b)
		_, err := io.WriteString(a.Out, visible.Text(b.String()))
		return err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := a.Out.Write(visible.JSON(b.Bytes()))
	return err
}

// quietFailure is an error that was already reported: only its exit status is left.
type quietFailure struct{ kind fault.Kind }

func (quietFailure) Error() string { return "already reported" }

// fail prints an error and returns the exit status.
func (a *Shell) fail(err error) int {
	q, quiet := errors.AsType[quietFailure](err)
	switch {
	case quiet:
	case a.JSON:
		body := asBody(err)
		body.Message = scrubbed(err, body.Message)
		_ = a.show(map[string]any{"error": body}, nil) // nothing else can be done
	default:
		fmt.Fprintln(a.Err, "slurmgate:", visible.Text(scrubbed(err, fault.Text(err, Words))))
	}
	if s, ok := errors.AsType[statusError](err); ok {
		return s.status
	}
	if quiet {
		return q.kind.ExitCode()
	}
	return fault.KindOf(err).ExitCode()
}

// statusError is an error with an exit status that is not its kind's.
type statusError struct {
	error
	status int
}

// Unwrap returns the error.
func (e statusError) Unwrap() error { return e.error }

// WithStatus gives an error of a verb its own exit status.
func WithStatus(status int, err error) error { return statusError{err, status} }

// scrubbed removes secrets from the message of an error, which quotes a command line that does not parse. The gate has
// scrubbed errors that came through it.
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
	return gate.BodyOf(Words, err)
}

// nothing holds the arguments of an operation that takes none.
var nothing = struct{}{}

// ask calls an operation and prints its answer: as JSON, or as text for people.
func ask[R any](ctx context.Context, a *Shell, id string, args any, text func(w io.Writer, r R)) error {
	_, err := answer(ctx, a, id, args, text)
	return err
}

// answer does what ask does, and returns the answer too.
func answer[R any](ctx context.Context, a *Shell, id string, args any, text func(w io.Writer, r R)) (r R, err error) {
	if need := operation(a.Host, id).Needs; need == app.Files || need == app.Site {
		err = a.here(ctx, id, args, &r)
	} else {
		err = a.With(ctx, func(s *Session) error { return s.call(ctx, id, args, &r) })
	}
	if err == nil {
		err = a.show(r, func(w io.Writer) { text(w, r) })
	}
	return r, err
}

// list prints a line for each item, nothing for those without a row.
func list[T any](w io.Writer, heading string, items []T, row func(T) []string) {
	var rows [][]string
	for _, item := range items {
		if r := row(item); r != nil {
			rows = append(rows, r)
		}
	}
	table(w, heading, rows)
}

func dateTime(t time.Time) string { return t.Local().Format(time.DateTime) }

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

// printLines prints each text on a separate line, after a word.
func printLines(w io.Writer, before string, texts []string) {
	for _, s := range texts {
		fmt.Fprintf(w, "%s%s\n", before, s)
	}
}
