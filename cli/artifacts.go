package cli

import (
	"context"
	"io"
	"os"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/plan"
)

// Artifact groups the verbs on artifacts.
type Artifact struct {
	Import  artifactImportCmd                            `cmd:"" help:"Import a file, a folder, or standard input with -."`
	List    Call[app.ArtifactListArgs, app.ArtifactList] `cmd:"" help:"List artifacts, newest first."`
	Find    artifactFindCmd                              `cmd:"" help:"Find artifacts, and files below the import roots, by a part of their name."`
	Get     artifactGetCmd                               `cmd:"" help:"Show an artifact; with --output, save its bytes."`
	Preview artifactPreviewCmd                           `cmd:"" help:"Show the beginning of an artifact: text, rows of a table, or a small picture."`
	Verify  artifactVerifyCmd                            `cmd:"" help:"Hash the bytes of one artifact or of all again, and report damage."`
	Remove  artifactRemoveCmd                            `cmd:"" name:"rm" help:"Remove the bytes of artifacts; what they were stays in the ledger."`
}

type artifactImportCmd struct {
	File    string `arg:"" json:"path" help:"File or folder that you can read, or - for standard input."`
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
		if args.Path != nil && !args.InPlace && isFolder(*args.Path) {
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
			printDocument(w, r.Says(), nothing)
		})
	})
}

type artifactGetCmd struct {
	app.ArtifactArgs
	Output string `short:"o" help:"Save the bytes here, a directory as a folder; - for standard output. Nothing is overwritten." placeholder:"FILE"`
}

// Run shows or saves.
func (c artifactGetCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var d app.ArtifactLook
		if err := s.call(ctx, "artifact.get", c.ArtifactArgs, &d); err != nil {
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
		return a.show(d, func(w io.Writer) { printDocument(w, d.Says(), nothing) })
	})
}

type artifactPreviewCmd struct {
	app.ArtifactArgs
	Lines  int    `help:"Maximum number of lines or rows." default:"40"`
	As     string `help:"How to show it: text, table, image, or auto (by its type)." enum:"auto,text,table,image" default:"auto"`
	First  int64  `json:"first_row" help:"For a table: number of rows to skip. For a directory: number of files."`
	Path   string `help:"For a directory: show this file of it." placeholder:"FILE"`
	Edge   int    `help:"For a picture: maximum width and height in pixels." default:"512"`
	Output string `short:"o" help:"For a picture: save it here. An existing file is not overwritten." placeholder:"FILE"`
}

// Run previews an artifact according to its type, or as the caller requests.
func (c artifactPreviewCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		if c.As == "auto" && c.Path == "" {
			var d app.ArtifactLook
			if err := s.call(ctx, "artifact.get", c.ArtifactArgs, &d); err != nil {
				return err
			}
			switch t := filetype.Of(d.Type); {
			case t.Image:
				c.As = "image"
			case t.Delimiter != "" && !t.MayGzip: // no table is read of a gzip file
				c.As = "table"
			}
		}
		switch c.As {
		case "table":
			args := app.TableArgs{ArtifactArgs: c.ArtifactArgs, FirstRow: c.First, MaxRows: c.Lines}
			return callAndPrint[app.TableAnswer](ctx, a, "artifact.preview.table", args)
		case "image":
			var p app.ImageAnswer
			if err := s.call(ctx, "artifact.preview.image", app.ImageArgs{ArtifactArgs: c.ArtifactArgs, MaxEdge: c.Edge}, &p); err != nil {
				return err
			}
			return a.showPicture(p, c.Output)
		}
		args := app.PreviewTextArgs{ArtifactArgs: c.ArtifactArgs, MaxLines: c.Lines, Path: c.Path, FirstFile: c.First}
		return ask(ctx, a, "artifact.preview.text", args, func(w io.Writer, p app.PreviewAnswer) {
			io.WriteString(w, p.Text)
			if p.Truncated {
				a.Say("… more of %s follows", bytesText(p.SizeBytes))
			}
		})
	})
}

type artifactVerifyCmd struct{ app.VerifyArgs }

// Run verifies. Damage gives the exit status of a failed tool.
func (c artifactVerifyCmd) Run(ctx context.Context, a *Shell) error {
	v, err := answer(ctx, a, "artifact.verify", c.VerifyArgs, func(w io.Writer, v app.Verified) { printDocument(w, v.Says(), nothing) })
	if err == nil && v.DamagedCount > 0 {
		return quietFailure{fault.Tool}
	}
	return err
}

// showPicture saves a picture, or describes it.
func (a *Shell) showPicture(p app.ImageAnswer, to string) error {
	if to != "" {
		if err := newFile(to, func(f *os.File) error { _, err := f.Write(p.Data); return err }); err != nil {
			return err
		}
	}
	return a.show(p, func(w io.Writer) {
		printDocument(w, p.Says(), nothing)
		if to == "" {
			printNext(w, fault.Do("artifact save preview", "artifact_id", p.ArtifactID), fault.Do("artifact save", "artifact_id", p.ArtifactID))
		}
	})
}
