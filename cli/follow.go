package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/visible"
)

const pollSeconds = 1 // length of one wait, shorter if the run ends: how often progress is shown

// follow reports a submit, and waits if requested.
func (a *Shell) follow(ctx context.Context, s *Session, r run.SubmitAnswer, o submitOptions) error {
	what := "submitted"
	switch {
	case r.Replayed:
		what = "replayed (no new job)"
	case r.State == run.Failed:
		what = "failed"
	}
	if !o.Wait && o.To == "" {
		err := a.show(r, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s\n", what, r.RunID)
			printDocument(w, r.Says(), nothing)
		})
		if err == nil && r.State.Terminal() && r.State != run.Succeeded {
			return quietFailure{fault.Tool}
		}
		return err
	}
	a.Say("%s  %s  job %s", what, r.RunID, text(r.SlurmJobID))
	return a.await(ctx, s, r.RunID, o)
}

// await shows a run's progress until it has ended, then its outputs.
func (a *Shell) await(ctx context.Context, s *Session, runID string, o submitOptions) error {
	started := time.Now()
	p := progress{shell: a}
	for wait := 0; ; wait = pollSeconds {
		var g run.GetAnswer
		err := s.call(ctx, "slurm.job.get", app.RunWaitArgs{RunArgs: app.RunArgs{RunID: runID}, WaitSeconds: wait}, &g)
		if err != nil {
			p.end()
			if ctx.Err() != nil {
				return fault.New(fault.Canceled, "canceled", "stopped waiting; the run continues in Slurm").WithSteps(waitStep(runID))
			}
			return err
		}
		p.show(g, time.Since(started))
		if g.State.Terminal() || g.State == run.Blocked {
			p.end()
			return a.ended(ctx, s, runID, g, o.To)
		}
		if o.Timeout > 0 && time.Since(started) >= o.Timeout {
			p.end()
			return fault.New(fault.Timeout, "still_going", fmt.Sprintf("the run is still %s (%s) after %s and continues", g.State, g.Phase,
				o.Timeout)).WithSteps(waitStep(runID))
		}
	}
}

// waited is the result of a verb that waited: the run and its outputs.
type waited struct {
	run.GetAnswer
	Outputs []app.ArtifactDoc `json:"outputs"`
}

func (a *Shell) ended(ctx context.Context, s *Session, runID string, g run.GetAnswer, to string) error {
	var story app.RunStory
	if err := s.call(ctx, "run.show", app.RunArgs{RunID: runID}, &story); err != nil {
		return err
	}
	if to != "" {
		if err := a.fetch(ctx, s, story, to); err != nil {
			return err
		}
	}
	err := a.show(waited{g, story.Outputs}, func(w io.Writer) { a.printEnd(ctx, s, w, g, story, to) })
	switch {
	case err != nil:
		return err
	case g.State == run.Blocked:
		return quietFailure{fault.Timeout}
	case g.State != run.Succeeded:
		return quietFailure{fault.Tool}
	}
	return nil
}

func (a *Shell) printEnd(ctx context.Context, s *Session, w io.Writer, g run.GetAnswer, story app.RunStory, to string) {
	fmt.Fprintf(w, "%s  %s%s\n", g.TargetRunID, g.State, took(story))
	if g.Alias != "" {
		fmt.Fprintf(w, "alias   %s  (the run's name while it waited for its inputs)\n", g.Alias)
	}
	if g.Reason != nil && g.State != run.Succeeded {
		fmt.Fprintf(w, "reason  %s\n", *g.Reason)
	}
	outputs := declared(story)
	shown := slices.Clip(outputs)
	for _, o := range story.Outputs {
		if plan.WasRejected(o.Role) {
			shown = append(shown, o)
		}
	}
	if len(shown) > 0 {
		list(w, "role|type|size|checksum|artifact", shown, func(o app.ArtifactDoc) []string {
			return []string{o.Role, o.Type, bytesText(o.SizeBytes), "sha256:" + o.ChecksumSHA256[:16] + "…", o.ArtifactID}
		})
	}
	for _, o := range outputs {
		var p app.PreviewAnswer
		args := app.PreviewTextArgs{ArtifactArgs: app.ArtifactArgs{ArtifactID: o.ArtifactID}, MaxLines: 8}
		if err := s.call(ctx, "artifact.preview.text", args, &p); err == nil && !p.Binary {
			fmt.Fprintf(w, "--- %s\n%s", o.Role, clipLines(p.Text, 160))
			if !strings.HasSuffix(p.Text, "\n") {
				fmt.Fprintln(w)
			}
			if p.Truncated {
				fmt.Fprintln(w, "…")
			}
		}
	}
	printLines(w, "warning: ", g.Warnings)
	switch {
	case g.State != run.Succeeded:
		printNext(w, g.NextSteps...)
	case to == "":
		printNext(w, fault.Do("collect", "run_id", g.TargetRunID))
	}
}

// took returns the time of the last attempt, from its request.
func took(s app.RunStory) string {
	if s.FinishedAt == nil {
		return ""
	}
	since := s.CreatedAt
	for _, e := range s.Events {
		if e.Type == "run.retry" || e.Type == "run.new_attempt" {
			since = e.At
		}
	}
	return fmt.Sprintf("  in %s", s.FinishedAt.Sub(since).Round(100*time.Millisecond))
}

// save writes one artifact to a new file.
func save(ctx context.Context, s *Session, o app.ArtifactDoc, name string) error {
	if o.Type == plan.Directory {
		return saveFolder(ctx, s, o, name)
	}
	return newFile(name, func(f *os.File) error {
		err := s.copyChecked(ctx, o, f)
		if err != nil {
			err = fault.Wrap("", fault.CodeOf(err), "cannot fetch "+o.ArtifactID, err)
		}
		return err
	})
}

// progress shows the state of a run: one rewritten line on a terminal, a line per change elsewhere.
type progress struct {
	shell *Shell
	last  string
	moved time.Time // when a line about bytes was last printed
}

func (p *progress) show(g run.GetAnswer, d time.Duration) {
	line := fmt.Sprintf("%s  %s", g.Phase, g.TargetRunID)
	if g.SlurmJobID != nil {
		line += "  job " + *g.SlurmJobID
	}
	if g.Reason != nil && !g.State.Terminal() {
		line += "  " + clipLine(*g.Reason, 80)
	}
	moving := ""
	if g.Moving != nil {
		moving = "  " + g.Moving.What + " " + movingText(*g.Moving)
	}
	if p.shell.tty {
		fmt.Fprintf(p.shell.Err, "\r\x1b[K%s%s  %s", line, moving, d.Round(time.Second))
	} else if line != p.last {
		p.shell.Say("%s%s", line, moving)
		p.moved = time.Now()
	} else if moving != "" && time.Since(p.moved) >= linesEvery {
		p.shell.Say("%s%s", line, moving)
		p.moved = time.Now()
	}
	p.last = line
}

func (p *progress) end() {
	if p.shell.tty && p.last != "" {
		fmt.Fprint(p.shell.Err, "\r\x1b[K")
	}
}

// clipLine returns a text on one line, of at most n characters.
func clipLine(s string, n int) string { return visible.ClipRunes(strings.ReplaceAll(s, "\n", " "), n) }

// cellText does what clipLine does for a cell of a table, but keeps a number whole.
func cellText(s string, n int) string {
	if visible.IsNumber(s) {
		return s
	}
	return clipLine(s, n)
}

func clipLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clipLine(lines[i], n)
	}
	return strings.Join(lines, "\n")
}
