package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/retention"
)

type GC struct {
	DryRun     bool           `help:"Show what would be removed, and remove nothing."`
	Workspaces *time.Duration `name:"workspaces-older-than" help:"Remove workspaces of runs that finished at least this long ago, instead of retention.workspace_days (0s: of all finished runs)." placeholder:"DURATION"`
}

// Run sweeps once.
func (c GC) Run(ctx context.Context, a *Shell) error {
	args := app.GCArgs{DryRun: c.DryRun}
	if c.Workspaces != nil {
		args.Workspaces = new(int64(c.Workspaces.Seconds()))
	}
	return a.With(ctx, func(s *Session) error {
		var r app.GCAnswer
		if err := s.call(ctx, "gateway.gc", args, &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) { a.printSwept(w, r.Report, c.next()) })
	})
}

// next carries out what a dry run showed.
func (c GC) next() fault.Step {
	if c.Workspaces == nil {
		return fault.Do("gateway.gc")
	}
	return fault.Do("gateway.gc", "workspaces_older_than", c.Workspaces.String())
}

func (a *Shell) printSwept(w io.Writer, r retention.Report, next fault.Step) {
	verb := "removed"
	if r.DryRun {
		verb = "would remove"
	}
	for _, t := range []struct {
		what, field string
		tally       retention.Tally
	}{
		{"workspaces of finished runs", "retention.workspace_days", r.Workspaces},
		{"imports that no run used", "retention.import_days", r.Imports},
		{"bytes without an artifact", "", r.Bytes},
	} {
		since := "kept for ever: " + t.field + " is 0"
		if t.tally.KeptSince != "" {
			since = "before " + t.tally.KeptSince
		}
		fmt.Fprintf(w, "%-12s  %6d  %-28s %9s  (%s)\n", verb, t.tally.Count, t.what, bytesText(t.tally.Bytes), since)
		if r.DryRun {
			for _, name := range t.tally.Named {
				fmt.Fprintf(w, "    %s\n", name)
			}
		}
	}
	for _, k := range r.Kept {
		fmt.Fprintf(w, "kept  %s  %s\n", k.Name, a.printable(clipLine(k.Why, 160)))
	}
	if r.DryRun && r.Workspaces.Count+r.Imports.Count+r.Bytes.Count > 0 {
		printNext(w, next)
	}
}

// previewAs shows an artifact according to its type, or as the caller requests.
func (c artifactPreviewCmd) previewAs(ctx context.Context, a *Shell, s *Session) (done bool, err error) {
	as := c.As
	if as == "auto" {
		var d app.ArtifactLook
		if err := s.call(ctx, "artifact.get", app.ArtifactArgs{ArtifactID: c.ArtifactID}, &d); err != nil {
			return true, err
		}
		as = map[string]string{"TSV": "table", "CSV": "table", "PNG": "image"}[d.Type]
	}
	switch as {
	case "table":
		var t app.TableAnswer
		if err := s.call(ctx, "artifact.preview.table", app.TableArgs{ArtifactID: c.ArtifactID, FirstRow: c.First, MaxRows: c.Lines},
			&t); err != nil {
			return true, err
		}
		return true, a.show(t, func(w io.Writer) { a.printTable(w, t) })
	case "image":
		var p app.ImageAnswer
		if err := s.call(ctx, "artifact.preview.image", app.ImageArgs{ArtifactID: c.ArtifactID, MaxEdge: c.Edge}, &p); err != nil {
			return true, err
		}
		return true, a.showPicture(p, c.Output)
	}
	return false, nil
}

func (a *Shell) printTable(w io.Writer, t app.TableAnswer) {
	var names, types []string
	for _, c := range t.Columns {
		names, types = append(names, strings.ReplaceAll(clipLine(c.Name, 30), "|", "/")), append(types, c.Type)
	}
	rows := [][]string{types}
	for _, r := range t.Rows {
		var row []string
		for _, cell := range r {
			row = append(row, clipLine(cell, 40))
		}
		rows = append(rows, row)
	}
	table(w, strings.Join(names, "|"), rows)
	for _, warning := range t.Warnings {
		a.Say("%s", a.printable(warning))
	}
	if t.Truncated {
		a.Say("… more of %s follows", bytesText(t.SizeBytes))
		a.Say("Next: %s", gate.Words(gate.Local, []fault.Step{fault.Do("artifact.preview.table", "artifact_id", t.ArtifactID, "first_row",
			t.FirstRow+int64(len(t.Rows)))}))
	}
}

// showPicture saves a picture, or describes it.
func (a *Shell) showPicture(p app.ImageAnswer, to string) error {
	if to != "" {
		data, err := base64.StdEncoding.DecodeString(p.Data)
		if err != nil {
			return fault.Wrap(fault.Internal, "preview", "", "the picture cannot be read", err)
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if os.IsExist(err) {
			return fault.New(fault.Conflict, "preview", "target_exists", to+" exists already").WithNext("choose another name")
		}
		if err != nil {
			return fault.Wrap(fault.Validation, "preview", "target", "cannot write "+to, err)
		}
		if _, err = f.Write(data); err != nil {
			f.Close()
			return fault.Wrap(fault.Transport, "preview", "target", "cannot write "+to, err)
		}
		if err := f.Close(); err != nil {
			return fault.Wrap(fault.Transport, "preview", "target", "cannot write "+to, err)
		}
	}
	return a.show(p, func(w io.Writer) {
		fmt.Fprintf(w, "PNG picture of %d × %d pixels, shown as %d × %d\n", p.FullWidth, p.FullHeight, p.Width, p.Height)
		if to == "" {
			printNext(w, fault.Do("artifact save preview", "artifact_id", p.ArtifactID), fault.Do("artifact save", "artifact_id", p.ArtifactID))
		}
	})
}
