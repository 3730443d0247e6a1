package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/site"
)

// FarPlaces looks at files on a cluster whose filesystem is not here, through a shell of it. A site without one is a Validation fault.
type FarPlaces interface {
	// Look is the state of a file or directory below root, and about how many bytes it has.
	Look(ctx context.Context, s *site.Site, root, path string) (state string, bytes int64, err error)
	// Hash hashes a regular file below root where it lies, if it has the state, which is that of [artifact.StateOf].
	Hash(ctx context.Context, s *site.Site, root, path, state string) (sha256 string, size int64, err error)
	// HashTree hashes the files of a directory below root where they lie, if it has the state, in the order of their paths. before are the
	// first ones, which an earlier call hashed; each is told of every further one.
	HashTree(ctx context.Context, s *site.Site, root, path, state string, before []tree.File, each func(tree.File)) ([]tree.File, error)
	// States are the states of files and directories, in their order; of one that cannot be read, why.
	States(ctx context.Context, s *site.Site, paths []string) ([]string, error)
}

// OpenPlaces makes the importers of the folders in which files are registered in place. A folder that is not here is left out.
func (g *Gateway) OpenPlaces(own []string, roots func([]site.Root) []artifact.Root) error {
	g.inPlace = map[string]*artifact.Importer{}
	for _, s := range g.Site.All() {
		if s.FarFiles() || len(s.Storage.InPlace) == 0 {
			continue
		}
		im, err := artifact.NewImporter(g.Store, artifact.ImportPolicy{Roots: roots(s.Storage.InPlace), MaxBytes: 1 << 62,
			Types: g.Domain.Types(), Own: own})
		if err != nil {
			return err
		}
		g.inPlace[s.Name] = im
	}
	g.Store.Elsewhere(g.openInPlace)
	return nil
}

// openInPlace opens bytes that lie in place on a filesystem of this host, unless the file was changed.
func (g *Gateway) openInPlace(sha256 string) (*os.File, error) {
	places, err := g.Ledger.Places(context.Background(), sha256)
	if err != nil {
		return nil, err
	}
	err = fault.New(fault.NotFound, "artifact_bytes_missing", "the bytes lie nowhere in place")
	for _, p := range places {
		im := g.inPlace[p.Site]
		if im == nil {
			err = fault.New(fault.Validation, "in_place_elsewhere", "the bytes lie at "+p.Path+" on the site "+p.Site+
				", which the gateway's host does not see").WithNext("use the artifact in a run on that site, or import a copy")
			continue
		}
		f, ferr := im.OpenRegistered(p.Path, p.State)
		if ferr == nil {
			return f, nil
		}
		err = ferr
	}
	return nil, err
}

// below finds the folder of a site in which a path lies.
func below(s *site.Site, file string) (site.Root, bool) {
	i := slices.IndexFunc(s.Storage.InPlace, func(r site.Root) bool { return strings.HasPrefix(file, r.Path+"/") })
	if i < 0 {
		return site.Root{}, false
	}
	return s.Storage.InPlace[i], true
}

// usable reports whether runs of a project on a site may use a registered file.
func (g *Gateway) usable(s *site.Site, p ledger.Place, project string) bool {
	from := g.Site.Cluster(p.Site)
	if p.Site != s.Name && (from == nil || from.FarFiles() || s.FarFiles()) {
		return false
	}
	if im := g.inPlace[s.Name]; im != nil {
		return im.Reads(p.Path, project)
	}
	r, ok := below(s, p.Path)
	return ok && s.FarFiles() && (r.Projects == nil || slices.Contains(r.ProjectIDs(), artifact.Every) ||
		slices.Contains(r.ProjectIDs(), project))
}

// placed finds where the job of a run may read an input in place; ok is false if nowhere. The fault of a changed file counts only where
// there are no other bytes.
func (g *Gateway) placed(ctx context.Context, s *site.Site, r run.Run, in plan.Input) (p run.Placed, ok bool, err error) {
	places, err := g.Ledger.Places(ctx, in.ChecksumSHA256)
	if err != nil {
		return p, false, err
	}
	var changed error
	for _, at := range places {
		if !g.usable(s, at, r.ProjectID) {
			continue
		}
		switch err := g.asRegistered(ctx, s, at); {
		case err == nil:
			return run.Placed{Input: in, Strength: run.InPlace, Path: at.Path, State: at.State}, true, nil
		case fault.KindOf(err).Retryable():
			return p, false, err
		default:
			changed = cmp.Or(changed, err)
		}
	}
	if changed != nil && (in.Directory || !g.Store.Has(in.ChecksumSHA256)) {
		return p, false, changed
	}
	return p, false, nil
}

// asRegistered is a fault if a file or directory is not what was registered.
func (g *Gateway) asRegistered(ctx context.Context, s *site.Site, at ledger.Place) error {
	if im := g.inPlace[s.Name]; im != nil {
		return im.StillRegistered(ctx, at.Path, at.State)
	}
	states, err := g.FarPlaces.States(ctx, s, []string{at.Path})
	if err == nil && states[0] != at.State {
		err = artifact.Changed(at.Path, at.State, states[0])
	}
	return err
}

// registers finds the site and the folder for a path that is to be registered in place.
func (g *Gateway) registers(name, file string, scope artifact.Scope) (*site.Site, site.Root, error) {
	var offered []string
	for _, s := range g.Site.All() {
		for _, r := range s.Storage.InPlace {
			if name != "" && name != s.Name || s.Name == site.Local {
				continue
			}
			ids := r.ProjectIDs()
			if !scope.Every && !slices.Contains(ids, artifact.Every) && !slices.Contains(ids, scope.Project) {
				continue
			}
			if offered = append(offered, r.Path); strings.HasPrefix(file, r.Path+"/") {
				return s, r, nil
			}
		}
	}
	allowed := cmp.Or(strings.Join(offered, ", "), "there is none")
	return nil, site.Root{}, &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: artifact.ImportRoot, Field: "path",
		Rule: "below a folder of storage.in_place that belongs to the project (" + allowed + ")",
		Msg:  fmt.Sprintf("%.200q is not where files may stay", file),
		Hint: "import a copy, or ask the administrator to list the folder in storage.in_place"}}}
}

// hasher hashes a file or a directory where it lies on a site.
type hasher func(ctx context.Context, s *site.Site, root site.Root, a ImportArgs, scope artifact.Scope) (artifact.Registered, error)

// register hashes a file where it lies. dry: it records nothing.
func (g *Gateway) register(ctx context.Context, c gate.Call, a ImportArgs, hash hasher, dry bool) (doc run.Artifact, at ledger.Place,
	err error) {
	invalid := func(code, field, rule, msg string) error {
		return fault.Invalid("", fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
	}
	if a, err = a.Plain(); err != nil {
		return doc, at, err
	}
	switch {
	case a.Path == nil || a.Text != nil || a.Upload || c.Caller.Body != nil:
		return doc, at, invalid("IMPORT-SOURCE", "in_place", "path alone", "only a file that a path names can stay where it is")
	case !path.IsAbs(*a.Path) || path.Clean(*a.Path) != *a.Path:
		return doc, at, invalid(artifact.ImportPath, "path", "an absolute path without . and .. and doubled slashes",
			fmt.Sprintf("got %.200q", *a.Path))
	case a.Label != "" && plan.CheckLabel(a.Label) != "":
		return doc, at, invalid("IMPORT-LABEL", "label", "no leading, trailing or repeated spaces, no control characters, at most 256 characters",
			plan.CheckLabel(a.Label))
	case a.Type != "" && !slices.Contains(g.Domain.Types(), a.Type):
		return doc, at, invalid("IMPORT-TYPE", "type", "one of "+strings.Join(g.Domain.Types(), " "), fmt.Sprintf("got %.64q", a.Type))
	}
	if err := g.Policy.AllowImport(policy.ImportPath, a.Type, -1); err != nil {
		return doc, at, err
	}
	if doc.ProjectID, err = g.projectOf(c, a.ProjectID); err != nil {
		return doc, at, err
	}
	scope := artifact.Scope{Project: doc.ProjectID, Every: c.Projects() == nil}
	s, root, err := g.registers(a.Site, *a.Path, scope)
	if err != nil {
		return doc, at, err
	}
	at = ledger.Place{Site: s.Name, Path: *a.Path}
	watched, end := g.transfers.begin(ctx, c, "hashing")
	got, err := hash(watched, s, root, a, scope)
	end()
	if err != nil {
		return doc, at, err
	}
	at.SHA256, at.State = got.SHA256, got.State
	doc.SHA256, doc.SizeBytes, doc.Source, doc.Caller = got.SHA256, got.SizeBytes, "import", g.countsAs(c.Caller.Principal)
	doc.Type, doc.Label = cmp.Or(a.Type, got.Type), cmp.Or(a.Label, got.Label)
	if err := g.Policy.AllowImport(policy.ImportPath, doc.Type, -1); err != nil {
		return doc, at, err
	}
	if doc.ID, err = plan.ArtifactID(doc.ProjectID, doc.SHA256, doc.Type, doc.Label); err != nil || dry {
		return doc, at, err
	}
	if got.List != nil {
		if err := g.keepList(ctx, got.List.Files); err != nil {
			return doc, at, err
		}
	}
	return doc, at, g.Ledger.AddPlace(ctx, at)
}
