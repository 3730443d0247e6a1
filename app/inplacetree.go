package app

import (
	"bytes"
	"context"
	"io"
	"path/filepath"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
	"slurmgate/site"
)

// A directory in place is a stored list of its files, and a place with the digest of its listing: that shows whether
// a file in it was changed, added or removed without reading all of them.

// hashed hashes a file or a directory in place on a site.
func (g *Gateway) hashed(ctx context.Context, s *site.Site, o opener, root site.InPlace, a ImportArgs, scope artifact.Scope) (
	got artifact.Registered, err error) {
	im := g.inPlace[s.Name]
	switch {
	case im != nil && o.file != nil:
		got, err = im.As(a.Type).RegisterHanded(ctx, o.file, *a.Path, scope)
		if err == nil && o.user == "" { // its jobs read it with the gateway's rights
			err = im.StillRegistered(ctx, *a.Path, got.State)
		}
		return got, err
	case im != nil && o.user == "" && (a.Type == plan.Directory || a.Type == "" && im.IsFolder(*a.Path, scope)):
		return im.Bounded(g.directoryBounds()).RegisterFolder(ctx, *a.Path, scope)
	case im != nil && o.user == "":
		return im.As(a.Type).Register(ctx, *a.Path, scope)
	}
	got.Type, got.Label = a.Type, filepath.Base(*a.Path)
	if a.Type == "" {
		return got, fault.Invalid("", fault.Problem{Code: "IMPORT-TYPE", Field: "type",
			Rule: "the type of a file that is hashed on another host or by your own login; DIRECTORY for a folder",
			Msg:  "the type of a file on another host is not detected, and the call does not name it"})
	}
	state, size, err := g.FarPlaces.Look(ctx, s, o.user, root.Path, *a.Path)
	if err != nil {
		return got, err
	}
	got.State = state
	artifact.Expect(ctx, size)
	if a.Type != plan.Directory {
		got.SHA256, got.SizeBytes, err = g.FarPlaces.Hash(ctx, s, o.user, root.Path, *a.Path, state)
		return got, err
	}
	done := g.Store.Hashed(s.Name+" "+o.user+" "+*a.Path, state)
	defer func() { done.Close(err == nil) }()
	files, err := g.FarPlaces.HashTree(ctx, s, o.user, root.Path, *a.Path, state, done.Files, done.Add)
	if err == nil {
		err = g.directoryBounds().Allow(files)
	}
	if err == nil {
		got.Imported, err = artifact.ListOf(got.Label, files)
	}
	return got, err
}

// keepList stores the list of a directory in place.
func (g *Gateway) keepList(ctx context.Context, files []tree.File) error {
	var list bytes.Buffer
	w := tree.NewWriter(&list)
	for _, f := range files {
		if err := w.Add(f); err != nil {
			return err
		}
	}
	if _, err := w.Close(); err != nil {
		return err
	}
	size := int64(list.Len())
	sum, _, err := g.Store.Put(ctx, &list, size)
	if err == nil {
		err = g.Ledger.AddDirectory(ctx, run.Directory{SHA256: sum, ListBytes: size, Files: files, InPlace: true})
	}
	return err
}

// placedTree finds where the job of a run may read a directory in place; ok is false if the gateway has its files.
func (g *Gateway) placedTree(ctx context.Context, s *site.Site, r run.Run, in plan.Input, a run.Artifact) (p run.Placed, ok bool,
	err error) {
	only, err := g.Ledger.FilesInPlace(ctx, in.ChecksumSHA256)
	if err != nil || !only {
		return p, false, err
	}
	if p, ok, err = g.placed(ctx, s, r, in, a); ok || err != nil {
		return p, ok, err
	}
	return p, false, elsewhere(s, in)
}

func elsewhere(s *site.Site, in plan.Input) error {
	return fault.New(fault.Validation, "in_place_elsewhere", "the files of the directory "+in.DestRelpath+
		" lie in place, and jobs of the site "+s.Name+" cannot read them there").
		WithNext("run on the site where they lie, or import a copy")
}

// Artifact opens the bytes of an artifact; for a directory, the list of its files. If the gateway has no copy of
// these files the error names their places.
func (g *Gateway) Artifact(ctx context.Context, artifactID string) (io.ReadSeekCloser, error) {
	a, err := g.Ledger.Artifact(ctx, artifactID)
	if err == nil && a.Type == plan.Directory {
		err = g.filesHere(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	return g.openBytes(ctx, a)
}

// filesHere returns a fault with the places of a directory's files if the gateway has no copy of them.
func (g *Gateway) filesHere(ctx context.Context, a run.Artifact) error {
	only, err := g.Ledger.FilesInPlace(ctx, a.SHA256)
	if err != nil || !only {
		return err
	}
	places, err := g.placesOf(ctx, a)
	if err != nil {
		return err
	}
	e := fault.New(fault.Validation, "directory_in_place", "the files of this directory were registered in place, and it is not known where "+
		"they lie now; the gateway has no copy to send")
	if len(places) == 0 {
		return e.WithNext("register the folder again, or import a copy of it")
	}
	at := places[0]
	e.Msg = "the files of this directory lie in place at " + at.Path + " on the site " + at.Site + "; the gateway has no copy to send"
	return e.WithNext("copy the folder there, or import a copy of it: the copy is an artifact with the same checksum").
		WithSteps(fault.Do("artifact.import", "path", at.Path))
}

// stillThere returns a fault if the files registered at a place are no longer there.
func (g *Gateway) stillThere(ctx context.Context, at ledger.Place) error {
	s := g.Site.Cluster(at.Site)
	if s == nil {
		return fault.New(fault.NotFound, "site_unknown", "the site "+at.Site+" is not in the site file")
	}
	return g.asRegistered(ctx, s, at)
}

// verifyInPlace hashes bytes in place again, at all their places. It returns nowhere if there is no place.
func (g *Gateway) verifyInPlace(ctx context.Context, a run.Artifact, nowhere error) error {
	places, err := g.placesOf(ctx, a)
	if err == nil {
		err = nowhere
	}
	for _, at := range places {
		s := g.Site.Cluster(at.Site)
		var in site.InPlace
		if s != nil {
			in, _ = below(s, at.Path)
		}
		if in.Path == "" || at.OpenedAs != "" {
			err = fault.New(fault.Validation, "in_place_elsewhere", "the bytes lie at "+at.Path+" on the site "+at.Site+
				", where the gateway does not read them").WithNext("have a job of their owner read them")
			continue
		}
		got, herr := g.hashed(ctx, s, opener{}, in, ImportArgs{Path: &at.Path, Type: a.Type}, artifact.Scope{Every: true})
		switch {
		case herr != nil:
			err = herr
		case got.SHA256 != a.SHA256:
			err = artifact.OtherBytes(at.Path)
		default:
			return nil
		}
	}
	return err
}
