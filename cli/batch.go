package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// Batch groups the verbs on groups of runs.
type Batch struct {
	Run     batchRunCmd                                    `cmd:"" help:"Run a tool once for each row of a sample sheet (CSV or TSV)."`
	Status  batchStatusCmd                                 `cmd:"" help:"Show how a batch stands; with --samples, every row."`
	Wait    batchWaitCmd                                   `cmd:"" help:"Wait until a batch has ended. The exit status is 6 if a row failed, 7 if the time is up."`
	Table   Call[app.BatchTableArgs, app.BatchTableAnswer] `cmd:"" help:"Show one table across the samples of a batch, from their JSON or TSV outputs."`
	Retry   batchRetryCmd                                  `cmd:"" help:"Submit again what failed in a batch."`
	Cancel  Call[app.BatchCancelArgs, app.BatchChanged]    `cmd:"" help:"Cancel a batch. Runs that others asked for continue."`
	Collect batchCollectCmd                                `cmd:"" help:"Copy the outputs of a batch into folders named by sample, with a manifest."`
	Export  batchExportCmd                                 `cmd:"" help:"Write everything about a batch that is over, and about its runs, into one archive."`
	List    Call[app.BatchListArgs, app.BatchList]         `cmd:"" default:"withargs" help:"List batches, newest first."`
}

type batchRunCmd struct {
	Tool    string `arg:"" optional:"" help:"Tool id, e.g. seqkit.stats (see: slurmgate tool list)."`
	Steps   string `help:"Instead of a tool: a steps file (YAML), several tools over the sheet that feed each other." placeholder:"FILE"`
	Sheet   string `required:"" help:"The sheet: CSV or TSV. Columns are parameters and inputs of the tool (files, artifact ids, ref:NAME; several separated by ;), sample, tags and label." placeholder:"FILE"`
	Name    string `required:"" help:"The batch's name. The same name with the same sheet is the same batch." placeholder:"NAME"`
	Set     named  `help:"A parameter for all rows, as -p of run." placeholder:"NAME=VALUE"`
	Input   named  `short:"i" help:"An input for all rows: an artifact id, ref:NAME, an output of a run (run_…:role) or, of each row's own sample, of a batch (batch_…:role)." placeholder:"NAME=batch_…:role"`
	Project string `help:"Import the files into this project (name or id), and refuse rows whose other inputs are not in it." placeholder:"NAME"`
	DryRun  bool   `help:"Check the sheet, say how many runs would be new and what they would reserve, and start nothing."`
}

// Run imports the files that the sheet names, and starts the batch.
func (c batchRunCmd) Run(ctx context.Context, a *Shell) error {
	if err := app.CheckBatchName(c.Name); err != nil {
		return err
	}
	f, err := openFile(c.Sheet)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(f, app.MaxSheetBytes+1))
	f.Close()
	if err != nil {
		return fault.Wrap(fault.Transport, "file_unreadable", "cannot read the sheet", err)
	}
	if len(text) > app.MaxSheetBytes {
		return app.SheetTooLarge(c.Sheet)
	}
	sheet, err := app.ReadSheet(ctx, text)
	if err != nil {
		return err
	}
	if (c.Tool == "") == (c.Steps == "") {
		return fault.Invalid("", fault.Problem{Code: "BATCH-TOOL", Field: "tool", Rule: "a tool, or --steps with a file",
			Msg: "a tool and --steps are both given, or both missing"})
	}
	return a.With(ctx, func(s *Session) error {
		args := app.BatchRunArgs{ToolID: c.Tool, Name: c.Name, ProjectID: c.Project}
		place, inputs, err := c.tools(ctx, s, &args)
		if err != nil {
			return err
		}
		s.dryRun, s.project = c.DryRun, c.Project
		if err := a.importSheet(ctx, s, place, sheet); err != nil {
			return err
		}
		if c.DryRun {
			return c.rehearse(ctx, a, s, args, sheet, func() (int, []string) { return sheet.Warnings(place, inputs) })
		}
		if args.Sheet = sheet.Text(); len(args.Sheet) > shortText {
			args.Sheet = ""
			label := fmt.Sprintf("sheet of batch %s", c.Name)
			var kept app.ImportAnswer
			if err := s.importStream(ctx, strings.NewReader(sheet.Text()), app.ImportArgs{Label: label, Type: "TEXT", ProjectID: c.Project},
				&kept); err != nil {
				return err
			}
			args.SheetID = kept.ArtifactID
		}
		var r app.BatchStarted
		if err := s.call(ctx, "batch.run", args, &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) { printDocument(w, r.Says(), nothing) })
	})
}

// tools reads the tool, or the steps and their tools, and returns what finds the place of a column, and the inputs of the first tool.
func (c batchRunCmd) tools(ctx context.Context, s *Session, args *app.BatchRunArgs) (
	place func(string) (app.ColumnPlace, *fault.Problem), inputs []app.PackInput, err error) {
	if c.Steps == "" {
		var tool app.ToolDoc
		if err := s.call(ctx, "tool.show", app.ToolArgs{ToolID: c.Tool}, &tool); err != nil {
			return nil, nil, err
		}
		args.Set, err = c.set(ctx, s, tool)
		return tool.Place, tool.Inputs, err
	}
	if len(c.Set)+len(c.Input) > 0 {
		return nil, nil, fault.Invalid("", fault.Problem{Code: "BATCH-SET", Field: "--set", Rule: "only with a tool",
			Msg: "the steps themselves have the arguments for all rows", Hint: "write them into the steps file"})
	}
	f, err := openFile(c.Steps)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, shortText+1))
	if err != nil {
		return nil, nil, fault.Wrap(fault.Transport, "file_unreadable", "cannot read the steps file", err)
	}
	if len(text) > shortText {
		return nil, nil, fault.New(fault.Validation, "steps_too_large", fmt.Sprintf("a steps file has at most %d bytes", shortText))
	}
	steps, err := app.ReadSteps(c.Steps, text)
	if err != nil {
		return nil, nil, err
	}
	tools := app.StepTools{Steps: steps}
	for _, x := range steps {
		var tool app.ToolDoc
		if err := s.call(ctx, "tool.show", app.ToolArgs{ToolID: x.Tool}, &tool); err != nil {
			return nil, nil, fault.Wrap("", "", fmt.Sprintf("%s:%d: step %s", c.Steps, x.Line, x.Name), err)
		}
		tools.Tools = append(tools.Tools, tool)
	}
	if found := tools.Problems(); len(found) > 0 {
		for i := range found {
			found[i].File = c.Steps
		}
		return nil, nil, fault.Invalid(c.Steps+" does not fit its tools; nothing was started", found...)
	}
	args.Steps = string(text)
	return tools.Place, tools.Tools[0].Inputs, nil
}

// set returns the parameters and inputs for all rows, typed by the tool's schema.
func (c batchRunCmd) set(ctx context.Context, s *Session, tool app.ToolDoc) (map[string]json.RawMessage, error) {
	out, err := c.inputs(ctx, s, tool)
	if err != nil {
		return nil, err
	}
	g := arguments{tool: tool, schema: app.SchemaOfArgs(tool.InputSchema)}
	names, values := c.Set.grouped()
	for _, name := range names {
		schema, ok := g.schema.Property(name)
		if !ok && g.schema.Closed() {
			return nil, g.noParam(name, g.schema)
		}
		if len(values[name]) > 1 {
			return nil, g.twice("--set "+name, name)
		}
		types := schema.Types()
		if schema.Unsaid() {
			types = nil
		}
		v, err := app.TypedAs(types, "--set "+name, values[name][0])
		if err == nil {
			out[name], err = plan.Marshal(v)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// inputs returns the inputs for all rows.
func (c batchRunCmd) inputs(ctx context.Context, s *Session, tool app.ToolDoc) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	g := arguments{tool: tool, schema: app.SchemaOfArgs(tool.InputSchema)}
	names, values := c.Input.grouped()
	for _, name := range names {
		in, ok := findInput(tool, name)
		if !ok {
			return nil, g.noInput(name)
		}
		for i, v := range values[name] {
			var err error
			if strings.HasPrefix(v, "run_") && strings.Contains(v, ":") {
				if v, err = s.promise(ctx, v); err != nil {
					return nil, err
				}
			}
			if values[name][i] = v; !app.IsInput(v) {
				return nil, fault.Invalid("", fault.Problem{Code: "BATCH-INPUT", Field: "--input " + name,
					Rule: "an artifact id, ref:NAME, run_…:role or batch_…:role", Msg: fmt.Sprintf("%q is not an artifact", v),
					Hint: "put files into the sheet, or import them first"})
			}
		}
		var v any = values[name]
		schema, _ := g.schema.Property(in.Param)
		switch types := schema.Types(); {
		case slices.Contains(types, "array") && !slices.Contains(types, "string"):
		case len(values[name]) > 1:
			return nil, g.twice("--input "+name, in.Param)
		default:
			v = values[name][0]
		}
		raw, err := plan.Marshal(v)
		if err != nil {
			return nil, err
		}
		out[in.Param] = raw
	}
	return out, nil
}

// importSheet imports the files in the cells of inputs and puts their artifacts in their places. No file is read before all are there, and
// those that are refused are mistakes of the sheet, named together.
func (a *Shell) importSheet(ctx context.Context, s *Session, place func(string) (app.ColumnPlace, *fault.Problem), sheet app.Sheet) error {
	places, problems := sheet.Places(place)
	if len(problems) > 0 {
		return app.BadSheet(problems)
	}
	type file struct{ path, typ string }
	files := map[file]string{} // its artifact
	var order []file
	mistake := func(r app.SheetRow, column string, p fault.Problem) {
		p.Field = fmt.Sprintf("row %d, column %s", r.Line, column)
		problems = append(problems, p)
	}
	each := func(f func(row app.SheetRow, i int, column string, p app.ColumnPlace, x string) string) {
		for i, column := range sheet.Columns {
			p := places[i]
			for _, r := range sheet.Rows {
				if !p.Artifact || i >= len(r.Cells) || r.Cells[i] == "" || strings.HasPrefix(r.Cells[i], "[") {
					continue
				}
				elements := p.Elements(r.Cells[i])
				for k, x := range elements {
					elements[k] = f(r, i, column, p, x)
				}
				r.Cells[i] = strings.Join(elements, ";")
			}
		}
	}
	each(func(r app.SheetRow, i int, column string, p app.ColumnPlace, x string) string {
		f := file{x, p.Type}
		if _, known := files[f]; known || app.IsInput(x) {
			return x
		}
		files[f], order = "", append(order, f)
		if info, err := os.Stat(x); err != nil || !info.Mode().IsRegular() {
			msg := fmt.Sprintf("there is no file %q", x)
			if err == nil {
				msg = fmt.Sprintf("%q is not a regular file", x)
			}
			mistake(r, column, fault.Problem{Code: "SHEET-FILE", Rule: "a file, an artifact id, ref:NAME, run_…:role or batch_…:role", Msg: msg})
		}
		return x
	})
	if err := app.BadSheet(problems); err != nil {
		return err
	}
	got, refused, done, bad := make([]string, len(order)), make([]error, len(order)), "imported", atomic.Int64{}
	if s.dryRun {
		done = "checked"
	}
	err := parallel(ctx, len(order), func(ctx context.Context, i int) error {
		var err error
		got[i], err = a.importQuietly(ctx, s.alone(), order[i].path, order[i].typ)
		if slices.Contains([]fault.Kind{fault.Validation, fault.NotFound, fault.Policy}, fault.KindOf(err)) {
			refused[i], err = err, nil
			bad.Add(1)
		}
		if err != nil {
			err = fault.Wrap(fault.KindOf(err), fault.CodeOf(err), "the sheet's file "+order[i].path, err)
		}
		return err
	}, func(n int) {
		if n == len(order) || n%100 == 0 {
			a.Say("%s %d of %d files", done, n-int(bad.Load()), len(order))
		}
	})
	if err != nil {
		return err
	}
	why := map[file]error{}
	for i, f := range order {
		files[f], why[f] = got[i], refused[i]
	}
	each(func(r app.SheetRow, _ int, column string, p app.ColumnPlace, x string) string {
		f := file{x, p.Type}
		if e, ok := errors.AsType[*fault.Error](why[f]); ok && len(e.Problems) > 0 {
			mistake(r, column, e.Problems[0])
		} else if why[f] != nil {
			mistake(r, column, fault.Problem{Code: "SHEET-FILE", Msg: fault.Prose(why[f])})
		}
		return cmp.Or(files[f], x)
	})
	return app.BadSheet(problems)
}

// importQuietly imports a file without a line about it, and returns its artifact. typ is the type of its input; empty:
// detected from its bytes.
func (a *Shell) importQuietly(ctx context.Context, s *Session, path, typ string) (id string, err error) {
	abs, err := absolute(path)
	if err != nil {
		return "", err
	}
	var got app.ImportAnswer
	args := app.ImportArgs{Path: &abs, Type: typ, ProjectID: s.project}
	if !s.dryRun {
		err = s.importPath(ctx, args, &got)
		return got.ArtifactID, err
	}
	var r gate.Rehearsal
	if err = s.importPath(ctx, args, &r); err == nil {
		err = json.Unmarshal(r.Would, &got)
	}
	return got.ArtifactID, err
}

// rehearse prints what the batch would do. A dry run stores nothing, so a large sheet is sent in parts. warnings
// returns those of the whole sheet.
func (c batchRunCmd) rehearse(ctx context.Context, a *Shell, s *Session, args app.BatchRunArgs, sheet app.Sheet,
	warnings func() (samples int, of []string)) error {
	var sum app.BatchPlan
	for rows := sheet.Rows; len(rows) > 0; {
		part, n := app.Sheet{Columns: sheet.Columns}, 0
		for size := 0; n < len(rows) && (n == 0 || size < shortText); n++ {
			size += len(strings.Join(rows[n].Cells, ",")) + 2
		}
		part.Rows = rows[:n]
		first := part.Rows[0].Line
		part.Rows = slices.Clone(part.Rows)
		for i := range part.Rows { // lines before the part are not sent
			part.Rows[i].Line -= first - 2
		}
		args.Sheet, rows = part.Text(), rows[n:]
		var r gate.Rehearsal
		var p app.BatchPlan
		err := s.call(ctx, "batch.run", args, &r)
		if err == nil {
			err = json.Unmarshal(r.Would, &p)
		}
		if err != nil {
			if first > 2 {
				a.Say("rows are counted from line %d of the sheet on", first-1)
			}
			return err
		}
		sum.Add(p)
	}
	sum.Samples, sum.Warnings = warnings()
	return a.show(sum, func(w io.Writer) {
		printDocument(w, sum.Says(), nothing)
		a.Say("nothing was changed. Next: the same without --dry-run")
	})
}
