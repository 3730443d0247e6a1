package app

import (
	"cmp"
	"context"
	"io"
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

// FarPlaces reads files on a cluster whose filesystem is not here, through a shell there: of the gateway's own login,
// or of user where that is not empty. A site without a shell is a Validation fault.
type FarPlaces interface {
	// Look returns the state of a file or directory below root, and its approximate size in bytes.
	Look(ctx context.Context, s *site.Site, user, root, path string) (state string, bytes int64, err error)
	// Hash hashes a regular file below root in place, if it has the state, which is that of [artifact.StateOf].
	Hash(ctx context.Context, s *site.Site, user, root, path, state string) (sha256 string, size int64, err error)
	// HashTree hashes the files of a directory below root in place, if it has the state, in the order of their paths.
	// before holds the first files, which an earlier call hashed; each is called with every further file.
	HashTree(ctx context.Context, s *site.Site, user, root, path, state string, before []tree.File, each func(tree.File)) ([]tree.File, error)
	// States returns the states of files and directories, in their order; for one that cannot be read, the reason.
	States(ctx context.Context, s *site.Site, paths []string) ([]string, error)
}

// OpenPlaces opens the importers of the folders in which files are registered in place. here returns these folders,
// or nil for a site whose filesystem is elsewhere.
func (g *Gateway) OpenPlaces(own []string, here func(*site.Site) *artifact.ImportPolicy) error {
	g.inPlace = map[string]*artifact.Importer{}
	for _, s := range g.Site.All() {
		p := here(s)
		if p == nil {
			continue
		}
		p.MaxBytes, p.Types, p.Own = 1<<62, g.Domain.Types(), own
		im, err := artifact.NewImporter(g.Store, *p)
		if err != nil {
			return err
		}
		g.inPlace[s.Name] = im
	}
	return nil
}

// below returns the innermost folder of a site that contains a path.
func below(s *site.Site, file string) (in site.InPlace, ok bool) {
	for _, f := range s.Storage.InPlace {
		if strings.HasPrefix(file, f.Path+"/") && len(f.Path) > len(in.Path) {
			in, ok = f, true
		}
	}
	return in, ok
}

// shared reports whether the site offers the file at a place to a project.
func (g *Gateway) shared(at ledger.Place, project string) bool {
	s := g.Site.Cluster(at.Site)
	if s == nil || at.OpenedAs != "" {
		return false
	}
	f, ok := below(s, at.Path)
	return ok && f.Shared && plan.InProjects(f.ProjectIDs(), project)
}

// placesOf lists the places of an artifact's bytes: where the artifact was registered, and in the folders that a site
// shares with its project.
func (g *Gateway) placesOf(ctx context.Context, a run.Artifact) ([]ledger.Place, error) {
	all, err := g.Ledger.Places(ctx, a.SHA256)
	return slices.DeleteFunc(all, func(at ledger.Place) bool { return !of(at, a) && !g.shared(at, a.ProjectID) }), err
}

// of reports whether a place was registered for an artifact.
func of(at ledger.Place, a run.Artifact) bool { return at.ArtifactID != "" && at.ArtifactID == a.ID }

// registeredFor returns the places that a caller's run may read: shared ones, and those of one principal that
// registered the artifact: the caller, or else the first. So no other principal can substitute the file that a run
// reads.
func (g *Gateway) registeredFor(list []ledger.Place, a run.Artifact, caller string) []ledger.Place {
	by := slices.IndexFunc(list, func(at ledger.Place) bool { return of(at, a) && at.Caller == caller })
	if by < 0 {
		by = slices.IndexFunc(list, func(at ledger.Place) bool { return of(at, a) })
	}
	if by < 0 {
		return list
	}
	who := list[by].Caller
	return slices.DeleteFunc(slices.Clone(list), func(at ledger.Place) bool {
		return !(of(at, a) && at.Caller == who) && !g.shared(at, a.ProjectID)
	})
}

// usable reports whether jobs of a site can read a registered file of a project.
func (g *Gateway) usable(s *site.Site, at ledger.Place, project string) bool {
	if at.Site != s.Name && (g.inPlace[at.Site] == nil || g.inPlace[s.Name] == nil) {
		return false
	}
	if im := g.inPlace[s.Name]; im != nil {
		return im.Reads(at.Path, project)
	}
	f, ok := below(s, at.Path)
	return ok && (f.Projects == nil || plan.InProjects(f.ProjectIDs(), project))
}

// placed finds where the job of a run may read an input in place; ok is false if nowhere. The fault of a changed
// file, or of one that cannot be mounted safely, is returned only where there are no other bytes, or none that can be
// copied.
func (g *Gateway) placed(ctx context.Context, s *site.Site, r run.Run, in plan.Input, a run.Artifact) (p run.Placed, ok bool, err error) {
	places, err := g.placesOf(ctx, a)
	if err != nil {
		return p, false, err
	}
	var wrong error
	for _, at := range g.registeredFor(places, a, run.ShareOf(r).Caller) {
		if !g.usable(s, at, r.ProjectID) {
			continue
		}
		err := g.asRegistered(ctx, s, at)
		if im := g.inPlace[s.Name]; err == nil && im != nil { // on a site that is elsewhere asRegistered reports that
			err = im.SafeToMount(at.Path)
		}
		switch {
		case err == nil:
			return g.mounted(s, at, in, g.shared(at, a.ProjectID)), true, nil
		case fault.KindOf(err).Retryable():
			return p, false, err
		}
		wrong = cmp.Or(wrong, err)
	}
	copied := g.Store.Has(in.ChecksumSHA256) || fault.CodeOf(wrong) == artifact.ExposedCode && g.inPlace[s.Name] != nil
	if wrong != nil && (in.Directory || !copied) {
		return p, false, wrong
	}
	return p, false, nil
}

// mounted describes an input that is read in place.
func (g *Gateway) mounted(s *site.Site, at ledger.Place, in plan.Input, shared bool) run.Placed {
	rests := run.Rests{On: run.OnHash, RegisteredBy: at.Principal, RegisteredAs: at.OpenedAs, RegisteredAt: at.At.UTC()}
	switch {
	case s.Apptainer.Verify == site.VerifyImages:
		rests.On = run.OnState
	case shared:
		rests.On = run.OnHashBefore
	}
	return run.Placed{Input: in, Strength: run.InPlace, Path: at.Path, State: at.State, Recheck: rests.On == run.OnHash, Rests: &rests}
}

// asRegistered returns a fault if a file or directory differs from what was registered. It does not check what a Unix
// user's login hashed, as the gateway may be unable to read it: the job does.
func (g *Gateway) asRegistered(ctx context.Context, s *site.Site, at ledger.Place) error {
	if at.OpenedAs != "" {
		return nil
	}
	if im := g.inPlace[s.Name]; im != nil {
		return im.StillRegistered(ctx, at.Path, at.State)
	}
	states, err := g.FarPlaces.States(ctx, s, []string{at.Path})
	if err == nil {
		err = artifact.CompareState(at.Path, at.State, states[0])
	}
	return err
}

// readInPlace opens the bytes of an artifact at one of its places, if that is on a filesystem of this host and was
// not changed since it was registered. Without a place it returns NotFound.
func (g *Gateway) readInPlace(a run.Artifact, places []ledger.Place) (f *os.File, at ledger.Place, err error) {
	err = fault.New(fault.NotFound, "artifact_bytes_missing", "the bytes of "+a.ID+" are neither stored nor registered in place").
		WithNext("import or register the same file again")
	for _, at = range places {
		im := g.inPlace[at.Site]
		if im == nil || at.OpenedAs != "" {
			err = fault.New(fault.Validation, "in_place_elsewhere", "the bytes lie at "+at.Path+" on the site "+at.Site+
				", where the gateway does not read them").WithNext("use the artifact in a run on that site, or import a copy")
			continue
		}
		if f, err = im.OpenRegistered(at.Path, at.State); err == nil {
			return f, at, nil
		}
	}
	return nil, at, err
}

// openBytes opens the bytes of an artifact for reading: stored bytes directly, bytes in place so that they are
// compared while they are read.
func (g *Gateway) openBytes(ctx context.Context, a run.Artifact) (Bytes, error) {
	f, err := g.Store.Open(a.SHA256)
	if err == nil {
		return f, nil
	}
	if !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	places, perr := g.placesOf(ctx, a)
	if perr != nil {
		return nil, perr
	}
	for i := range places {
		var at ledger.Place
		if f, at, err = g.readInPlace(a, places[i:i+1]); err != nil {
			continue
		}
		var v *artifact.Verified
		if v, err = g.Store.Verified(ctx, f, at.Path, a.SHA256); err == nil {
			return v, nil
		}
	}
	return nil, err
}

// Bytes are the bytes of an artifact, open for reading.
type Bytes interface {
	io.ReadSeekCloser
	io.ReaderAt
}

// registers finds the site and the folder for a path to register in place.
func (g *Gateway) registers(name, file string, scope artifact.Scope) (*site.Site, site.InPlace, error) {
	var offered []string
	for _, s := range g.Site.All() {
		if name != "" && name != s.Name || s.Name == site.Local {
			continue
		}
		may := func(f site.InPlace) bool {
			return scope.Every || plan.InProjects(f.ProjectIDs(), scope.Project)
		}
		if f, ok := below(s, file); ok && may(f) {
			return s, f, nil
		}
		for _, f := range s.Storage.InPlace {
			if may(f) {
				offered = append(offered, f.Path)
			}
		}
	}
	allowed := cmp.Or(strings.Join(offered, ", "), "no folder")
	return nil, site.InPlace{}, &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: artifact.ImportRoot, Field: "path",
		Rule: "below a folder of storage.in_place that belongs to the project: " + allowed,
		Msg:  fault.Quote(file, 200) + " is not where files may stay",
		Hint: "import a copy, or ask the administrator to list the folder in storage.in_place"}}}
}

// hasher hashes a file or a directory in place on a site, with the rights of the opener.
type hasher func(ctx context.Context, s *site.Site, o opener, root site.InPlace, a ImportArgs, scope artifact.Scope) (artifact.Registered,
	error)

// register hashes a file in place, and records the place for the artifact that it creates. With dry it records
// nothing.
func (g *Gateway) register(ctx context.Context, c gate.Call, a ImportArgs, dry bool) (doc run.Artifact, err error) {
	doc, at, _, err := g.hashInPlace(ctx, c, a, nil, g.hashed)
	if err != nil || dry {
		return doc, err
	}
	at.ArtifactID, at.Caller = doc.ID, c.Caller.Key()
	if at.OpenedAs != "" {
		at.Caller = run.UnixCaller(at.OpenedAs)
	}
	return doc, g.Ledger.AddPlace(ctx, at)
}

// hashInPlace hashes a file or directory in place, and stores the list of a directory's files. may refuses a folder
// with an error; a nil may allows all.
func (g *Gateway) hashInPlace(ctx context.Context, c gate.Call, a ImportArgs, may func(site.InPlace) error, hash hasher) (doc run.Artifact,
	at ledger.Place, in site.InPlace, err error) {
	invalid := func(code, field, rule, msg string) (run.Artifact, ledger.Place, site.InPlace, error) {
		return doc, at, in, fault.Invalid("", fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
	}
	if a, err = a.Plain(); err != nil {
		return doc, at, in, err
	}
	switch {
	case a.Path == nil || a.Text != nil || a.Upload || c.Caller.Body != nil:
		return invalid("IMPORT-SOURCE", "in_place", "path alone", "only a file that a path names can stay where it is")
	case !path.IsAbs(*a.Path) || path.Clean(*a.Path) != *a.Path:
		return invalid(artifact.ImportPath, "path", "an absolute path without . and .. and doubled slashes",
			fault.Quote(*a.Path, 200)+" is not a plain absolute path")
	case a.Label != "" && plan.CheckLabel(a.Label) != "":
		return invalid("IMPORT-LABEL", "label", "no leading, trailing or repeated spaces, no control characters, at most 256 characters",
			plan.CheckLabel(a.Label))
	case a.Type != "" && !slices.Contains(g.Domain.Types(), a.Type):
		return invalid("IMPORT-TYPE", "type", "one of "+strings.Join(g.Domain.Types(), " "),
			"there is no artifact type "+fault.Quote(a.Type, 64))
	}
	if err = g.Policy.AllowImport(policy.ImportHanded, a.Type, -1); err != nil {
		return doc, at, in, err
	}
	if doc.ProjectID, err = g.projectOf(c, a.ProjectID); err != nil {
		return doc, at, in, err
	}
	scope := artifact.Scope{Project: doc.ProjectID, Every: c.Projects() == nil}
	s, in, err := g.registers(a.Site, *a.Path, scope)
	if err == nil && may != nil {
		err = may(in)
	}
	if err != nil {
		return doc, at, in, err
	}
	o, err := g.opensPath(ctx, c, s, in.Shared)
	if err != nil {
		return doc, at, in, err
	}
	watched, end := g.transfers.begin(ctx, c, "hashing")
	got, err := hash(watched, s, o, in, a, scope)
	end()
	if err != nil {
		return doc, at, in, err
	}
	at = ledger.Place{Principal: c.Caller.Name, OpenedAs: o.user, Site: s.Name, Path: *a.Path, SHA256: got.SHA256, State: got.State}
	doc.SHA256, doc.SizeBytes, doc.Source, doc.Caller = got.SHA256, got.SizeBytes, "import", g.countsAs(c.Caller.Principal)
	doc.Type, doc.Label = cmp.Or(a.Type, got.Type), cmp.Or(a.Label, got.Label)
	if err = g.Policy.AllowImport(policy.ImportHanded, doc.Type, -1); err != nil {
		return doc, at, in, err
	}
	if doc.ID, err = plan.ArtifactID(doc.ProjectID, doc.SHA256, doc.Type, doc.Label); err != nil || got.List == nil || c.Request.DryRun {
		return doc, at, in, err
	}
	return doc, at, in, g.keepList(ctx, got.List.Files)
}
