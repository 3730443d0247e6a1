package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/visible"
)

// submitOptions holds the options of verbs that submit a run: how it is sent, and how far it is followed.
type submitOptions struct {
	Wait    bool          `help:"Wait until the run has ended and show the outputs."`
	Timeout time.Duration `help:"With --wait: stop waiting after this time (the run continues)." placeholder:"DURATION"`
	To      string        `help:"With --wait: copy the outputs into this folder." type:"path" placeholder:"DIR"`
	DryRun  bool          `help:"Show what would be done (plan, run id and job script) and change nothing."`
	Key     string        `name:"idempotency-key" help:"The same command with the same key does its work once, whatever happens in between." placeholder:"KEY"`
}

// submit calls a tool that submits a run, and follows the run if requested.
func (o submitOptions) submit(ctx context.Context, a *Shell, s *Session, tool gate.Tool, args any) error {
	s.dryRun, s.key = o.DryRun, o.Key
	if o.DryRun {
		return a.rehearse(ctx, s, tool, args)
	}
	var answer run.SubmitAnswer
	if err := s.callTool(ctx, tool.ID, tool.Version, args, &answer); err != nil {
		return err
	}
	s.key = ""
	return a.follow(ctx, s, answer, o)
}

// Run is the verb that runs a tool.
type Run struct {
	Tool    string `arg:"" json:"tool_id" help:"Tool id, e.g. samtools.flagstat (see: slurmgate tool list)."`
	Input   named  `short:"i" help:"An input: its parameter or role, with a file, a folder, an artifact id (or its beginning), or an output of a run (run_…:role), which may not be over yet. Of a list once for each element." placeholder:"NAME=FILE|art_…|run_…:role"`
	Param   named  `short:"p" help:"A parameter, of the type in the tool's schema: text as it is, anything else as JSON, for example 5, true or null. A list as [1,2] or once for each element; a part of an object as NAME.PART=VALUE." placeholder:"NAME=VALUE"`
	Project string `help:"Import the files into this project (name or id), to which the run then belongs." placeholder:"NAME"`
	CPUs    int    `name:"cpus" help:"CPUs of the job, instead of what the tool gives it." placeholder:"N"`
	moreResources
	submitOptions
}

// Run imports the inputs that are given as files, calls the tool, and follows the run if requested.
func (c Run) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var tool app.ToolDoc
		if err := s.call(ctx, "tool.show", app.ToolArgs{ToolID: c.Tool}, &tool); err != nil {
			return err
		}
		s.dryRun = c.DryRun // for the imports; a key is only for the call of the tool
		more, err := c.more(tool)
		if err != nil {
			return err
		}
		args, err := c.args(ctx, a, s, tool)
		if err != nil {
			return err
		}
		if !more.None() {
			args["resources"] = more
		}
		if slices.Contains(tool.Caps, gate.CapWorker) && !c.DryRun {
			return c.callWorker(ctx, a, s, tool, args)
		}
		return c.submit(ctx, a, s, gate.Tool{ID: tool.ToolID, Version: tool.Version, Capabilities: tool.Caps}, args)
	})
}

// callWorker calls a tool that a service worker carries out, and prints its answer: there is no job to follow.
func (c Run) callWorker(ctx context.Context, a *Shell, s *Session, tool app.ToolDoc, args any) error {
	s.key = c.Key
	var answer json.RawMessage
	if err := s.callTool(ctx, tool.ToolID, tool.Version, args, &answer); err != nil {
		return err
	}
	return a.show(answer, func(w io.Writer) {
		var b bytes.Buffer
		if json.Indent(&b, visible.JSON(answer), "", "  ") == nil {
			fmt.Fprintln(w, b.String())
		}
	})
}

// importFile imports a file, or a folder as one artifact.
func (a *Shell) importFile(ctx context.Context, s *Session, path string) (app.ImportAnswer, error) {
	abs, err := absolute(path)
	if err != nil {
		return app.ImportAnswer{}, err
	}
	var got app.ImportAnswer
	word, args := "imported", app.ImportArgs{Path: &abs, ProjectID: s.project}
	if isFolder(abs) && s.dryRun {
		return app.ImportAnswer{}, fault.New(fault.Validation, "dry_run_folder", fmt.Sprintf("a dry run cannot import the folder %q", path)).
			WithNext("import it, and name the artifact instead of the folder").WithSteps(fault.Do("artifact.import", "path", abs))
	} else if isFolder(abs) {
		err = s.importFolder(ctx, args, &got)
	} else if s.dryRun {
		word = "would import"
		var r gate.Rehearsal
		if err = s.importPath(ctx, args, &r); err == nil {
			err = json.Unmarshal(r.Would, &got)
		}
	} else {
		err = s.importPath(ctx, args, &got)
	}
	if err != nil {
		return got, err
	}
	if !got.Created {
		word = "already imported"
	}
	a.Say("%s  %s  %s  %s (%s)", word, got.ArtifactID, got.Type, path, bytesText(got.SizeBytes))
	return got, nil
}

// Say prints a line of progress for people; with --json standard output is reserved for the result.
func (a *Shell) Say(format string, args ...any) {
	io.WriteString(a.Err, visible.Text(fmt.Sprintf(format+"\n", args...)))
}

// Submit is the verb that submits a plan.
type Submit struct {
	Plan    string `arg:"" help:"File with the plan as JSON, or - for standard input."`
	Project string `help:"Project name or id." placeholder:"NAME"`
	submitOptions
}

// Run submits a plan unchanged.
func (c Submit) Run(ctx context.Context, a *Shell) error {
	data, err := readPlan(ctx, c.Plan)
	if err != nil {
		return err
	}
	// The gate applies the same rules; checked here, the problems have a place in the file.
	if err := plan.Decode(data, &plan.Spec{}); err != nil {
		return plan.InFile(err, c.Plan, data)
	}
	return a.With(ctx, func(s *Session) error {
		return c.submit(ctx, a, s, operation(a.Host, "slurm.submit").Tool(), app.SubmitArgs{ProjectID: c.Project, JobSpec: data})
	})
}

func readPlan(ctx context.Context, name string) ([]byte, error) {
	r := io.Reader(nil)
	if name == "-" {
		r = StandardInput(ctx)
	} else {
		f, err := openFile(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, plan.MaxDocumentBytes+1))
	if err != nil && fault.KindOf(err) != fault.Canceled {
		err = fault.Wrap(fault.Transport, "plan_unreadable", "cannot read the plan "+strconv.Quote(name), err)
	}
	return data, err
}

// printNext prints what to do next, if there is anything.
func printNext(w io.Writer, steps ...fault.Step) {
	if len(steps) > 0 {
		fmt.Fprintf(w, "Next: %s\n", Words(steps))
	}
}

func waitStep(runID string) fault.Step {
	return fault.Do("slurm.job.collect", "run_id", runID, "wait_seconds", run.LongWait)
}

// rehearse shows what a call would do.
func (a *Shell) rehearse(ctx context.Context, s *Session, tool gate.Tool, args any) error {
	var r gate.Rehearsal
	if err := s.callTool(ctx, tool.ID, tool.Version, args, &r); err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) {
		printDocument(w, r.Says(app.WithFacts([]gate.Tool{tool})[0]), nothing)
		a.Say("nothing was changed. Next: the same without --dry-run")
	})
}
