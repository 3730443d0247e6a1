package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/plan"
)

// Reference groups the verbs on the names that the site gives to bytes.
type Reference struct {
	Add    referenceAddCmd                                `cmd:"" help:"Give a name to a file or folder: import a copy, or with --in-place leave it where it is."`
	List   Call[app.ReferenceListArgs, app.ReferenceList] `cmd:"" help:"List the reference data that the site offers."`
	Show   referenceShowCmd                               `cmd:"" help:"Show one reference and what its name stood for earlier."`
	Remove referenceRemoveCmd                             `cmd:"" name:"rm" help:"Withdraw a name; runs keep their inputs."`
}

type referenceAddCmd struct {
	Name        string   `arg:"" help:"Name, as in ref:NAME."`
	Path        string   `arg:"" help:"File or folder, or an artifact id."`
	InPlace     bool     `help:"Leave it where it is and register its SHA-256; below a folder of storage.in_place."`
	Site        string   `name:"site-name" help:"With --in-place: the site whose folder it is." placeholder:"NAME"`
	ByJob       bool     `help:"With --in-place: a job hashes it. Cut off, the same command finds the same job again."`
	Type        string   `help:"Type. Default: detected from the content." placeholder:"TYPE"`
	Description string   `help:"What it is, for those who choose it." placeholder:"TEXT"`
	Project     []string `help:"Offer it to this project alone (name or id); may be repeated. Default: all." placeholder:"NAME"`
	Replace     bool     `help:"The name may stand for something else now. Runs that used it keep what they had."`
}

// Run imports the file or folder, unless it stays in place, and names it.
func (c referenceAddCmd) Run(ctx context.Context, a *Shell) error {
	args := app.AddReferenceArgs{Name: c.Name, Description: c.Description, ProjectIDs: c.Project, Replace: c.Replace}
	return a.With(ctx, func(s *Session) error {
		switch {
		case c.InPlace:
			args.Path, args.Site, args.Type, args.ByJob = c.Path, c.Site, c.Type, c.ByJob
		case plan.IsArtifactID(c.Path):
			args.ArtifactID = c.Path
		default:
			abs, err := absolute(c.Path)
			if err != nil {
				return err
			}
			var made app.ImportAnswer
			in := app.ImportArgs{Path: &abs, Type: c.Type}
			if isFolder(abs) {
				in.Type = ""
				err = s.importFolder(ctx, in, &made)
			} else {
				err = s.importPath(ctx, in, &made)
			}
			if err != nil {
				return err
			}
			args.ArtifactID = made.ArtifactID
		}
		var r app.ReferenceAnswer
		if err := s.call(ctx, "reference.add", args, &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) {
			printDocument(w, r.Says(), nothing)
			if !r.Changed {
				fmt.Fprintln(w, "(it existed already)")
			}
		})
	})
}

type referenceShowCmd struct{ app.ReferenceArgs }

// Run shows.
func (c referenceShowCmd) Run(ctx context.Context, a *Shell) error {
	c.Name = strings.TrimPrefix(c.Name, "ref:")
	return callAndPrint[app.ReferenceAnswer](ctx, a, "reference.show", c.ReferenceArgs)
}

type referenceRemoveCmd struct{ app.ReferenceArgs }

// Run withdraws a name.
func (c referenceRemoveCmd) Run(ctx context.Context, a *Shell) error {
	c.Name = strings.TrimPrefix(c.Name, "ref:")
	return ask(ctx, a, "reference.remove", c.ReferenceArgs,
		func(w io.Writer, r app.ReferenceAnswer) {
			fmt.Fprintf(w, "withdrawn: %s (sha256:%s)\n", r.Name, r.SHA256)
		})
}
