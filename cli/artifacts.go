package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
)

type Artifact struct {
	Import  artifactImportCmd  `cmd:"" help:"Import a file, or standard input with -."`
	List    artifactListCmd    `cmd:"" help:"List artifacts, newest first."`
	Get     artifactGetCmd     `cmd:"" help:"Show an artifact; with --output, save its bytes."`
	Preview artifactPreviewCmd `cmd:"" help:"Show the beginning of an artifact: text, rows of a table, or a small picture."`
	Verify  artifactVerifyCmd  `cmd:"" help:"Hash the bytes of one artifact or of all again, and report damage."`
}

type artifactImportCmd struct {
	File    string `arg:"" help:"File below one of the policy's import roots, or - for standard input."`
	Label   string `help:"Label. Default: the file's name." placeholder:"TEXT"`
	Type    string `help:"Type. Default: detected from the content." placeholder:"TYPE"`
	Project string `help:"Project name or id." placeholder:"NAME"`
}

// Run imports one file or text.
func (c artifactImportCmd) Run(ctx context.Context, a *Shell) error {
	args := app.ImportArgs{Label: c.Label, Type: c.Type, ProjectID: c.Project}
	if c.File != "-" {
		abs, err := absolute(c.File)
		if err != nil {
			return err
		}
		args.Path = &abs
	}
	return a.With(ctx, func(s *Session) (err error) {
		var r app.ImportAnswer
		if args.Path != nil {
			err = s.call(ctx, "artifact.import", args, &r)
		} else {
			err = s.importStream(ctx, StandardInput(ctx), args, &r)
		}
		if err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) {
			printArtifact(w, r.ArtifactDoc)
			if !r.Created {
				fmt.Fprintln(w, "(it existed already)")
			}
		})
	})
}

func printArtifact(w io.Writer, d app.ArtifactDoc) {
	fmt.Fprintf(w, "artifact  %s\ntype      %s\nlabel     %s\nsize      %d bytes\nchecksum  sha256:%s\nsource    %s\n", d.ArtifactID, d.Type,
		d.Label, d.SizeBytes, d.ChecksumSHA256, d.Source)
}

type artifactListCmd struct {
	Type    string `help:"Only this type." placeholder:"TYPE"`
	Project string `help:"Only this project (name or id)." placeholder:"NAME"`
	Limit   int    `help:"Maximum number to list (1 to 200)." default:"20"`
	Cursor  string `help:"Continue after an earlier page, in the same snapshot." placeholder:"CURSOR"`

	AsOf *time.Time `help:"Only artifacts created up to this time, as printed by an earlier list (RFC 3339)." placeholder:"TIME"`
}

// Run lists artifacts.
func (c artifactListCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var l app.ArtifactList
		if err := s.call(ctx, "artifact.list", app.ArtifactListArgs{Type: c.Type, ProjectID: c.Project, Limit: c.Limit, Cursor: c.Cursor,
			AsOf: c.AsOf}, &l); err != nil {
			return err
		}
		return a.show(l, func(w io.Writer) {
			var rows [][]string
			for _, d := range l.Artifacts {
				rows = append(rows, []string{d.ArtifactID, d.Type, bytesText(d.SizeBytes), clipLine(d.Label, 40), d.CreatedAt.Local().
					Format("2006-01-02 15:04:05"), clipLine(d.Source, 34)})
			}
			table(w, "artifact|type|size|label|created|source", rows)
			footer(w, len(l.Artifacts), l.Listed, "artifacts")
			if l.AsOf != nil {
				fmt.Fprintf(w, "as of %s\n", l.AsOf.Format(time.RFC3339Nano))
			}
			if l.Cursor != nil {
				printNext(w, fault.Do("artifact.list", "cursor", *l.Cursor))
			}
		})
	})
}

type artifactGetCmd struct {
	ArtifactID string `arg:"" name:"artifact" help:"Artifact id."`
	Output     string `short:"o" help:"Save the bytes here; - for standard output. An existing file is not overwritten." placeholder:"FILE"`
}

// Run shows or saves.
func (c artifactGetCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var d app.ArtifactLook
		if err := s.call(ctx, "artifact.get", app.ArtifactArgs{ArtifactID: c.ArtifactID}, &d); err != nil {
			return err
		}
		if c.Output == "-" {
			return s.copyChecked(ctx, d.ArtifactDoc, a.Out)
		}
		if c.Output != "" {
			if err := save(ctx, s, d.ArtifactDoc, c.Output); err != nil {
				return err
			}
		}
		return a.show(d, func(w io.Writer) { printArtifact(w, d.ArtifactDoc) })
	})
}

type artifactPreviewCmd struct {
	ArtifactID string `arg:"" name:"artifact" help:"Artifact id."`
	Lines      int    `help:"Maximum number of lines or rows." default:"40"`
	As         string `help:"How to show it: text, table, image, or auto (by its type)." enum:"auto,text,table,image" default:"auto"`
	First      int64  `help:"For a table: number of rows to skip."`
	Edge       int    `help:"For a picture: maximum width and height in pixels." default:"512"`
	Output     string `short:"o" help:"For a picture: save it here. An existing file is not overwritten." placeholder:"FILE"`
}

// Run previews.
func (c artifactPreviewCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		if done, err := c.previewAs(ctx, a, s); done || err != nil {
			return err
		}
		var p app.PreviewAnswer
		if err := s.call(ctx, "artifact.preview.text", app.ArtifactArgs{ArtifactID: c.ArtifactID, MaxLines: c.Lines}, &p); err != nil {
			return err
		}
		return a.show(p, func(w io.Writer) {
			io.WriteString(w, a.printable(p.Text))
			if p.Truncated {
				a.Say("… more of %s follows", bytesText(p.SizeBytes))
			}
		})
	})
}

type artifactVerifyCmd struct {
	ArtifactID string `arg:"" optional:"" name:"artifact" help:"Artifact id."`
	All        bool   `help:"Verify every artifact."`
	Project    string `help:"With --all: only artifacts of this project (name or id)." placeholder:"NAME"`
}

// Run verifies. Damage gives the exit status of a failed tool.
func (c artifactVerifyCmd) Run(ctx context.Context, a *Shell) error {
	var v app.Verified
	err := a.With(ctx, func(s *Session) error {
		return s.call(ctx, "artifact.verify", app.VerifyArgs{ArtifactID: c.ArtifactID, All: c.All, ProjectID: c.Project}, &v)
	})
	if err != nil {
		return err
	}
	err = a.show(v, func(w io.Writer) {
		for _, d := range v.Damaged {
			fmt.Fprintf(w, "%s  %s  %s  %s  sha256:%s\n", d.Code, d.ArtifactID, d.Type, clipLine(d.Label, 40), d.ChecksumSHA256)
		}
		if more := v.DamagedCount - len(v.Damaged); more > 0 {
			fmt.Fprintf(w, "… and %d more\n", more)
		}
		fmt.Fprintf(w, "%d artifacts (%d distinct contents), %s read: %d damaged\n", v.Checked, v.Objects, bytesText(v.BytesRead), v.DamagedCount)
		inLedger := func(d app.Damage) bool { return d.Code == "ledger_corrupt" }
		if slices.ContainsFunc(v.Damaged, inLedger) {
			fmt.Fprintln(w, "Next: for ledger_corrupt (a job script in the ledger) restore a backup of ledger.db")
		}
		if slices.ContainsFunc(v.Damaged, func(d app.Damage) bool { return !inLedger(d) }) {
			fmt.Fprintln(w, "Next: remove objects/<first two digits>/<checksum> below gateway.artifact_dir, then import the same file again; "+
				"restore an output of a run from a backup")
		}
	})
	if err == nil && v.DamagedCount > 0 {
		return quietFailure{fault.Tool}
	}
	return err
}
