package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// Artifact are the verbs on artifacts.
type Artifact struct {
	Import  artifactImportCmd  `cmd:"" help:"Import a file, a folder, or standard input with -."`
	List    artifactListCmd    `cmd:"" help:"List artifacts, newest first."`
	Find    artifactFindCmd    `cmd:"" help:"Find artifacts, and files below the import roots, by a part of their name."`
	Get     artifactGetCmd     `cmd:"" help:"Show an artifact; with --output, save its bytes."`
	Preview artifactPreviewCmd `cmd:"" help:"Show the beginning of an artifact: text, rows of a table, or a small picture."`
	Verify  artifactVerifyCmd  `cmd:"" help:"Hash the bytes of one artifact or of all again, and report damage."`
	Remove  artifactRemoveCmd  `cmd:"" name:"rm" help:"Remove the bytes of artifacts; what they were stays in the ledger."`
}

type artifactImportCmd struct {
	File    string `arg:"" help:"File or folder that you can read, or - for standard input."`
	Label   string `help:"Label. Default: the file's name." placeholder:"TEXT"`
	Type    string `help:"Type. Default: detected from the content." placeholder:"TYPE"`
	Project string `help:"Project name or id." placeholder:"NAME"`
	InPlace bool   `help:"Leave the file where it is and register its SHA-256; below a folder of storage.in_place."`
	Site    string `name:"site-name" help:"With --in-place: the site whose folder it is." placeholder:"NAME"`
}

// Run imports one file or text.
func (c artifactImportCmd) Run(ctx context.Context, a *Shell) error {
	args := app.ImportArgs{Label: c.Label, Type: c.Type, ProjectID: c.Project, InPlace: c.InPlace, Site: c.Site}
	if c.InPlace { // the path may be another host's
		args.Path = &c.File
	} else if c.File != "-" {
		abs, err := absolute(c.File)
		if err != nil {
			return err
		}
		args.Path = &abs
	}
	return a.With(ctx, func(s *Session) (err error) {
		var r app.ImportAnswer
		if args.InPlace {
			err = s.call(ctx, "artifact.import", args, &r)
		} else if args.Path != nil && isFolder(*args.Path) {
			err = s.importFolder(ctx, args, &r)
		} else if args.Path != nil {
			err = s.importPath(ctx, args, &r)
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
	if d.ExecutedAs != "" {
		fmt.Fprintf(w, "made as   %s, who could have forged it\n", d.ExecutedAs)
	}
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
	return ask(ctx, a, "artifact.list", app.ArtifactListArgs{Type: c.Type, ProjectID: c.Project, Limit: c.Limit, Cursor: c.Cursor,
		AsOf: c.AsOf}, func(w io.Writer, l app.ArtifactList) {
		list(w, "artifact|type|size|label|created|source", l.Artifacts, func(d app.ArtifactDoc) []string {
			return []string{d.ArtifactID, d.Type, bytesText(d.SizeBytes), clipLine(d.Label, 40), dateTime(d.CreatedAt), clipLine(d.Source, 34)}
		})
		footer(w, len(l.Artifacts), l.Listed, "artifacts")
		if l.AsOf != nil {
			fmt.Fprintf(w, "as of %s\n", l.AsOf.Format(time.RFC3339Nano))
		}
		nextPage(w, l.Cursor, fault.Do("artifact.list", "cursor", text(l.Cursor)))
	})
}

type artifactGetCmd struct {
	ArtifactID string `arg:"" name:"artifact" ids:"artifact,file" help:"Artifact id, the beginning of one, or a file with its bytes."`
	Output     string `short:"o" help:"Save the bytes here, a directory as a folder; - for standard output. Nothing is overwritten." placeholder:"FILE"`
}

// Run shows or saves.
func (c artifactGetCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var d app.ArtifactLook
		if err := s.call(ctx, "artifact.get", app.ArtifactArgs{ArtifactID: c.ArtifactID}, &d); err != nil {
			return err
		}
		switch {
		case c.Output == "-" && d.Type == plan.Directory:
			return s.copyTar(ctx, d.ArtifactDoc, a.Out)
		case c.Output == "-":
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
	ArtifactID string `arg:"" name:"artifact" ids:"artifact,file" help:"Artifact id, the beginning of one, or a file with its bytes."`
	Lines      int    `help:"Maximum number of lines or rows." default:"40"`
	As         string `help:"How to show it: text, table, image, or auto (by its type)." enum:"auto,text,table,image" default:"auto"`
	First      int64  `help:"For a table: number of rows to skip. For a directory: number of files."`
	Path       string `help:"For a directory: show this file of it." placeholder:"FILE"`
	Edge       int    `help:"For a picture: maximum width and height in pixels." default:"512"`
	Output     string `short:"o" help:"For a picture: save it here. An existing file is not overwritten." placeholder:"FILE"`
}

// Run previews an artifact according to its type, or as the caller requests.
func (c artifactPreviewCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		if c.As == "auto" && c.Path == "" {
			var d app.ArtifactLook
			if err := s.call(ctx, "artifact.get", app.ArtifactArgs{ArtifactID: c.ArtifactID}, &d); err != nil {
				return err
			}
			c.As = map[string]string{"TSV": "table", "CSV": "table", "PNG": "image"}[d.Type]
		}
		switch c.As {
		case "table":
			args := app.TableArgs{ArtifactID: c.ArtifactID, FirstRow: c.First, MaxRows: c.Lines}
			return ask(ctx, a, "artifact.preview.table", args, a.printTable)
		case "image":
			var p app.ImageAnswer
			if err := s.call(ctx, "artifact.preview.image", app.ImageArgs{ArtifactID: c.ArtifactID, MaxEdge: c.Edge}, &p); err != nil {
				return err
			}
			return a.showPicture(p, c.Output)
		}
		args := app.ArtifactArgs{ArtifactID: c.ArtifactID, MaxLines: c.Lines, Path: c.Path, FirstFile: c.First}
		return ask(ctx, a, "artifact.preview.text", args, func(w io.Writer, p app.PreviewAnswer) {
			io.WriteString(w, p.Text)
			if p.Truncated {
				a.Say("… more of %s follows", bytesText(p.SizeBytes))
			}
		})
	})
}

type artifactVerifyCmd struct {
	ArtifactID string `arg:"" optional:"" name:"artifact" ids:"artifact,file" help:"Artifact id, the beginning of one, or a file with its bytes."`
	All        bool   `help:"Verify every artifact."`
	Project    string `help:"With --all: only artifacts of this project (name or id)." placeholder:"NAME"`
}

// Run verifies. Damage gives the exit status of a failed tool.
func (c artifactVerifyCmd) Run(ctx context.Context, a *Shell) error {
	args := app.VerifyArgs{ArtifactID: c.ArtifactID, All: c.All, ProjectID: c.Project}
	v, err := answer(ctx, a, "artifact.verify", args, func(w io.Writer, v app.Verified) {
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
		a.Say("%s", warning)
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
			return fault.Wrap(fault.Internal, "", "the picture cannot be read", err)
		}
		if err := newFile(to, func(f *os.File) error { _, err := f.Write(data); return err }); err != nil {
			return err
		}
	}
	return a.show(p, func(w io.Writer) {
		fmt.Fprintf(w, "PNG picture of %d × %d pixels, shown as %d × %d\n", p.FullWidth, p.FullHeight, p.Width, p.Height)
		if to == "" {
			printNext(w, fault.Do("artifact save preview", "artifact_id", p.ArtifactID), fault.Do("artifact save", "artifact_id", p.ArtifactID))
		}
	})
}
