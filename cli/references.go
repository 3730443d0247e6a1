package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
)

// Reference are the verbs on the names that the site gives to bytes.
type Reference struct {
	Add    referenceAddCmd    `cmd:"" help:"Give a name to a file or folder: import a copy, or with --in-place leave it where it is."`
	List   referenceListCmd   `cmd:"" help:"List the reference data that the site offers."`
	Show   referenceShowCmd   `cmd:"" help:"Show one reference and what its name stood for earlier."`
	Remove referenceRemoveCmd `cmd:"" name:"rm" help:"Withdraw a name; runs keep their inputs."`
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

// Run imports what is to be copied, and gives it the name.
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
			printReference(w, r)
			if !r.Changed {
				fmt.Fprintln(w, "(it existed already)")
			}
		})
	})
}

func printReference(w io.Writer, r app.ReferenceAnswer) {
	line := func(name, text string) { fmt.Fprintf(w, "%-10s %s\n", name, text) }
	line("reference", r.Name)
	line("value", r.Value)
	line("type", r.Type)
	line("label", r.Label)
	line("size", fmt.Sprintf("%d bytes", r.SizeBytes))
	line("checksum", "sha256:"+r.SHA256)
	if r.Description != "" {
		line("about", clipLine(r.Description, 512))
	}
	if r.Site != nil {
		line("lies", strings.TrimSpace("in place on the site "+*r.Site+" "+r.Path))
	}
	if r.ProjectIDs != nil {
		line("for", "projects "+strings.Join(r.ProjectIDs, ", "))
	}
	if r.Problem != nil {
		line("problem", *r.Problem)
	}
	line("added", dateTime(r.AddedAt)+" by "+r.AddedBy)
	for _, v := range r.Versions {
		line("earlier", fmt.Sprintf("%s  %s, added %s", v.Pinned, bytesText(v.SizeBytes), dateTime(v.AddedAt)))
	}
}

type referenceListCmd struct {
	Project string `help:"Only what this project may use (name or id)." placeholder:"NAME"`
}

// Run lists.
func (c referenceListCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "reference.list", app.ReferenceArgs{ProjectID: c.Project}, func(w io.Writer, l app.ReferenceList) {
		list(w, "value|type|size|site|checksum|description", l.References, func(r app.ReferenceDoc) []string {
			return []string{r.Value, r.Type, bytesText(r.SizeBytes), text(r.Site), "sha256:" + r.SHA256[:12] + "…", clipLine(r.Description, 60)}
		})
		footer(w, len(l.References), l.Listed, "references")
		if len(l.References) == 0 {
			printNext(w, fault.Do("artifact.list"))
		}
	})
}

type referenceShowCmd struct {
	Name string `arg:"" help:"Name."`
}

// Run shows.
func (c referenceShowCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "reference.show", app.ReferenceArgs{Name: strings.TrimPrefix(c.Name, "ref:")}, printReference)
}

type referenceRemoveCmd struct {
	Name string `arg:"" help:"Name."`
}

// Run withdraws a name.
func (c referenceRemoveCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "reference.remove", app.ReferenceArgs{Name: strings.TrimPrefix(c.Name, "ref:")},
		func(w io.Writer, r app.ReferenceAnswer) {
			fmt.Fprintf(w, "withdrawn: %s (sha256:%s)\n", r.Name, r.SHA256)
		})
}
