package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/run"
)

// followed is a stream that is printed as it grows.
type followed struct {
	stream  string
	attempt int
	next    int64
	over    bool // nothing will be added
}

// follow prints the end of a stream and then what comes, until the run has ended. Of the log it prints the script's, standard error and
// standard output, each part under its name.
func (c Logs) follow(ctx context.Context, a *Shell, s *Session) error {
	if a.JSON {
		return fault.Invalid("", fault.Problem{Code: "LOGS-JSON", Field: "--follow", Rule: "not with --json",
			Msg: "a log that grows cannot be one JSON object", Hint: "leave --json out"})
	}
	var now run.GetAnswer
	if err := s.call(ctx, "slurm.job.get", c.RunArgs, &now); err != nil {
		return err
	}
	if now.State.Terminal() {
		return c.end(ctx, a)
	}
	streams := []*followed{{stream: c.Stream}}
	if c.Stream == "log" {
		streams = append(streams, &followed{stream: "stderr"}, &followed{stream: "stdout"})
	}
	p := logPrinter{out: a.Out, several: len(streams) > 1}
	for begun := time.Now(); ; begun = time.Now() {
		open := false
		for _, f := range streams {
			if err := c.more(ctx, s, f, &p); err != nil {
				return err
			}
			open = open || !f.over
		}
		if !open {
			return p.err
		}
		var g run.GetAnswer
		if err := s.call(ctx, "slurm.job.get", app.RunWaitArgs{RunArgs: c.RunArgs, WaitSeconds: pollSeconds}, &g); err != nil {
			return err
		}
		if g.State == run.Blocked {
			a.Say("%s is blocked and writes nothing: %s", g.TargetRunID, text(g.Reason))
			return quietFailure{fault.Timeout}
		}
		select { // the answer comes at once where nothing is waited for
		case <-ctx.Done():
			return fault.New(fault.Canceled, "canceled", "stopped following; the run continues in Slurm")
		case <-time.After(time.Until(begun.Add(pollSeconds * time.Second))):
		}
	}
}

// more prints what a stream has more than at the last time. The stream of a new attempt starts at its beginning.
func (c Logs) more(ctx context.Context, s *Session, f *followed, p *logPrinter) error {
	for !f.over {
		args := app.LogsArgs{RunArgs: c.RunArgs, Stream: f.stream, FromByte: &f.next}
		if f.attempt == 0 {
			end := int64(app.MinFromByte)
			args.FromByte, args.TailLines = &end, c.Tail
		}
		var l run.LogsAnswer
		if err := s.call(ctx, "slurm.job.logs", args, &l); err != nil {
			return err
		}
		if f.attempt > 0 && l.Attempt != f.attempt {
			f.attempt, f.next = l.Attempt, 0
			p.heading(fmt.Sprintf("attempt %d", l.Attempt))
			continue
		}
		if l.NextByte == nil {
			return fault.New(fault.Internal, "next_byte", "the gateway does not say where the next part of the log begins")
		}
		was := f.next
		f.attempt, f.next, f.over = l.Attempt, *l.NextByte, l.Final
		p.print(f.stream, l.Text)
		if f.next == was || l.Text == "" {
			return p.err
		}
	}
	return p.err
}

// logPrinter prints parts of streams, each under a heading where there are several.
type logPrinter struct {
	out     io.Writer
	several bool
	last    string // the stream of the newest heading
	err     error
}

func (p *logPrinter) print(stream, text string) {
	if text == "" || p.err != nil {
		return
	}
	if p.several && stream != p.last {
		p.heading(stream)
		p.last = stream
	}
	_, p.err = io.WriteString(p.out, text)
}

func (p *logPrinter) heading(name string) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, "--- %s\n", name)
	}
}
