package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slurmgate/apptainer"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/site"
	"slurmgate/toolpack"
)

type writer = io.Writer

// The tools of this file work only on files and need no ledger: they are used while there is no gateway yet. They pass a gate all the same.

type configArgs struct {
	File string `json:"file"`
}

type configAnswer struct {
	File      string   `json:"file"`
	Site      string   `json:"site"`
	Effective string   `json:"effective"` // YAML
	Warnings  []string `json:"warnings"`  // what of the site file, the domain, its image lock and the image store does not agree
}

const pathSchema = `{"type":"string","minLength":1,"maxLength":4096}`

func configTool(id string) gate.Tool {
	return builtin(id, "Site file", "Checks the site file and returns the effective one.", gate.Read, object("file", prop("file", pathSchema)),
		handler(func(_ context.Context, _ gate.Call, a configArgs) (any, error) {
			s, err := site.Load(a.File, checkAccess)
			if err != nil {
				return nil, err
			}
			eff, err := s.Effective()
			if err != nil {
				return nil, err
			}
			out := configAnswer{a.File, s.Name, string(eff), withDomain(s)}
			misfits, err := lockMisfits(s)
			if err != nil {
				out.Warnings = append(out.Warnings, err.Error())
			}
			for _, p := range misfits {
				out.Warnings = append(out.Warnings, p.String())
			}
			return out, nil
		}))
}

// lockMisfits says where the domain's image lock and the image store do not agree; nothing while the store is not there yet.
func lockMisfits(s *site.Site) ([]fault.Problem, error) {
	file := filepath.Join(s.DomainDir, apptainer.LockFile)
	if st, err := os.Stat(s.Storage.ImageStore); err != nil || !st.IsDir() {
		return nil, nil
	}
	lock, err := apptainer.ReadLock(file)
	if err != nil {
		return nil, err
	}
	store, err := apptainer.OpenStore(s.Storage.ImageStore)
	if err != nil {
		return nil, err
	}
	stored, err := store.List()
	return lock.Against(file, stored), err
}

// withDomain says what the site file and its domain have to agree on and do not. A domain that cannot be read is doctor's and domain
// check's to report.
func withDomain(s *site.Site) []string {
	d, p, err := readDomain(s.DomainDir, toolpack.AllowMissingImages)
	if err != nil {
		return []string{}
	}
	out := append([]string{}, p.Notes()...)
	for _, why := range fault.ProblemsOf(d.Packs().CheckBinds(offers(s))) {
		out = append(out, "slurmgate serve will not start: "+why.String())
	}
	return out
}

type checkArgs struct {
	Dir  string `json:"dir"`
	Site string `json:"site,omitzero"` // of domain.check: its image store is compared with the domain's lock
}

type checkAnswer struct {
	Dir     string   `json:"dir"`
	Domain  string   `json:"domain_id"` // empty for a plain folder of packs
	Tools   []string `json:"tools"`
	Missing []string `json:"missing_images"` // named by packs, not in images.lock.yaml
}

// checkTool checks a domain if the folder has a manifest, else the toolpacks below it.
func checkTool() gate.Tool {
	return builtin("tool.check", "Check toolpacks", "Checks a folder of toolpacks or a domain. Reports all problems at once.", gate.Read,
		object("dir", prop("dir", pathSchema)),
		handler(func(_ context.Context, _ gate.Call, a checkArgs) (any, error) {
			out := checkAnswer{Dir: a.Dir, Tools: []string{}, Missing: []string{}}
			if _, err := os.Stat(filepath.Join(a.Dir, "manifest.yaml")); err != nil {
				set, err := toolpack.Load(a.Dir, toolpack.Taken(operationIDs()))
				if err != nil {
					return nil, err
				}
				for _, p := range set.List() {
					out.Tools = append(out.Tools, p.ID())
				}
				return out, nil
			}
			d, _, err := readDomain(a.Dir, toolpack.AllowMissingImages)
			if err != nil {
				return nil, err
			}
			out.Domain = d.ID()
			for _, p := range d.Packs().List() {
				out.Tools = append(out.Tools, p.ID())
				if _, ok := d.Lock().Lookup(p.Image()); p.Image() != "" && !ok && !contains(out.Missing, p.Image()) {
					out.Missing = append(out.Missing, p.Image())
				}
			}
			return out, nil
		}))
}

type toolCheckCmd struct {
	Dir string `arg:"" help:"Folder with *.tool.yaml files, or a domain." type:"path"`
}

// Run checks a folder.
func (c toolCheckCmd) Run(ctx context.Context, a *app) error {
	var r checkAnswer
	if err := a.local(ctx, checkTool(), checkArgs{Dir: c.Dir}, &r); err != nil {
		return err
	}
	return a.show(r, func(w writer) {
		if len(r.Tools) == 0 {
			fmt.Fprintf(w, "no tools: %s has no file whose name ends in .tool.yaml\n", r.Dir)
			printNext(w, fault.Do("tool init", "dir", r.Dir))
			return
		}
		fmt.Fprintf(w, "%d tools, no mistakes: %s\n", len(r.Tools), strings.Join(r.Tools, " "))
		for _, m := range r.Missing {
			printNext(w, fault.Do("image add", "name", m))
		}
	})
}

type imageCmd struct {
	Add    imageAddCmd    `cmd:"" help:"Check a SIF file, copy it into the image store and record its name."`
	List   imageListCmd   `cmd:"" help:"List the named images and those in the store."`
	Verify imageVerifyCmd `cmd:"" help:"Hash all images in the store and compare their digests."`
}

type imageAddArgs struct {
	Site    string `json:"site"`
	Name    string `json:"name"`
	File    string `json:"file"`
	Replace bool   `json:"replace,omitzero"`
}

type imageDoc struct {
	Name      string `json:"name"`
	Digest    string `json:"digest"`
	Arch      string `json:"arch"`
	SizeBytes int64  `json:"size_bytes"`
	Source    string `json:"source"`
	State     string `json:"state"` // stored, missing, ok, or what is wrong
}

type imageAddAnswer struct {
	imageDoc
	Changed bool   `json:"changed"` // false: the name already had this digest
	Lock    string `json:"lock_file"`
}

func imageAddTool() gate.Tool {
	t := builtin("image.add", "Add an image", "Checks a SIF file, copies it into the image store and records its name and digest in "+
		"images.lock.yaml.", gate.Write,
		object("site name file", prop("site", pathSchema), prop("name", `{"type":"string","minLength":1,"maxLength":128}`),
			prop("file", pathSchema), prop("replace", `{"type":"boolean"}`)),
		handler(func(ctx context.Context, _ gate.Call, a imageAddArgs) (any, error) {
			s, err := site.Load(a.Site)
			if err != nil {
				return nil, err
			}
			// A broken domain is not added to; missing images are what this verb is for.
			if _, _, err := readDomain(s.DomainDir, toolpack.AllowMissingImages); err != nil {
				return nil, err
			}
			if err := os.MkdirAll(s.Storage.ImageStore, 0o755); err != nil {
				return nil, fault.Wrap(fault.Transport, "image.add", "IMAGE-STORE-PATH", "cannot create storage.image_store", err)
			}
			store, err := apptainer.OpenStore(s.Storage.ImageStore)
			if err != nil {
				return nil, err
			}
			img, err := store.Add(ctx, a.File)
			if err != nil {
				return nil, err
			}
			lock := filepath.Join(s.DomainDir, apptainer.LockFile)
			doc := imageDoc{a.Name, img.Ref(), img.Arch, img.SizeBytes, filepath.Base(a.File), "stored"}
			changed, err := apptainer.Record(lock, apptainer.Named{Name: a.Name, Digest: doc.Digest, Arch: doc.Arch, SizeBytes: doc.SizeBytes,
				Source: doc.Source, AddedAt: time.Now()}, a.Replace)
			return imageAddAnswer{doc, changed, lock}, err
		}))
	t.Timeout = time.Hour // a large image is hashed and copied while the call is open
	return t
}

type imageAddCmd struct {
	Name    string `arg:"" help:"Name that toolpacks use for the image."`
	File    string `arg:"" help:"SIF file." type:"path"`
	Replace bool   `help:"Replace the image that has this name."`
}

// Run adds an image.
func (c imageAddCmd) Run(ctx context.Context, a *app) error {
	s, err := site.Load(a.cli.Site)
	if err != nil {
		return err
	}
	var r imageAddAnswer
	if err := a.onSite(ctx, s, imageAddTool(), imageAddArgs{a.cli.Site, c.Name, c.File, c.Replace}, &r); err != nil {
		return err
	}
	return a.show(r, func(w writer) {
		fmt.Fprintf(w, "%s  %s  %s  %s\n", r.Name, r.Digest, r.Arch, bytesText(r.SizeBytes))
		if r.Changed {
			fmt.Fprintf(w, "recorded in %s. A gateway that is running uses it after a restart.\n", r.Lock)
		}
	})
}

type imageListArgs struct {
	Site string `json:"site"`
	Hash bool   `json:"hash,omitzero"`
}

type imageListAnswer struct {
	Total  int        `json:"total"`
	Images []imageDoc `json:"images"`
	Bad    int        `json:"bad"`
}

// imageListTool lists the named images and those that are only in the store; with hash it reads every byte.
func imageListTool(id string) gate.Tool {
	t := builtin(id, "Images", "Lists the named images and those in the image store.", gate.Read, object("site", prop("site", pathSchema),
		prop("hash", `{"type":"boolean"}`)),
		handler(func(ctx context.Context, _ gate.Call, a imageListArgs) (any, error) {
			s, err := site.Load(a.Site)
			if err != nil {
				return nil, err
			}
			lock, err := apptainer.ReadLock(filepath.Join(s.DomainDir, apptainer.LockFile))
			if err != nil {
				return nil, err
			}
			store, err := apptainer.OpenStore(s.Storage.ImageStore)
			if err != nil {
				return nil, err
			}
			return listImages(ctx, store, lock, a.Hash)
		}))
	t.Timeout = 6 * time.Hour // every byte of every image
	return t
}

func listImages(ctx context.Context, store *apptainer.Store, lock apptainer.Lock, hash bool) (imageListAnswer, error) {
	stored, err := store.List()
	if err != nil {
		return imageListAnswer{}, err
	}
	out := imageListAnswer{Images: []imageDoc{}}
	left := map[string]apptainer.Image{}
	for _, i := range stored {
		left[i.Ref()] = i
	}
	add := func(d imageDoc, there bool) {
		d.State = "stored"
		have := left[d.Digest]
		switch {
		case !there:
			d.State = "missing from the store"
			out.Bad++
		case have.Bad != "":
			d.State = have.Bad
			out.Bad++
		case have.Arch != d.Arch || have.SizeBytes != d.SizeBytes:
			d.State = "not as images.lock.yaml says"
			out.Bad++
		case hash:
			d.State = "ok"
			if _, err := store.Verify(ctx, strings.TrimPrefix(d.Digest, "sha256:")); err != nil {
				d.State = fault.CodeOf(err)
				out.Bad++
			}
		}
		out.Images = append(out.Images, d)
	}
	seen := map[string]bool{}
	for _, n := range lock.Images {
		_, there := left[n.Digest]
		seen[n.Digest] = true
		add(imageDoc{Name: n.Name, Digest: n.Digest, Arch: n.Arch, SizeBytes: n.SizeBytes, Source: n.Source}, there)
	}
	for _, i := range stored {
		if !seen[i.Ref()] {
			add(imageDoc{Digest: i.Ref(), Arch: i.Arch, SizeBytes: i.SizeBytes}, true)
		}
	}
	out.Total = len(out.Images)
	return out, nil
}

type imageListCmd struct{}

// Run lists images.
func (imageListCmd) Run(ctx context.Context, a *app) error { return a.images(ctx, "image.list", false) }

type imageVerifyCmd struct{}

// Run hashes images.
func (imageVerifyCmd) Run(ctx context.Context, a *app) error {
	return a.images(ctx, "image.verify", true)
}

func (a *app) images(ctx context.Context, tool string, hash bool) error {
	s, err := site.Load(a.cli.Site)
	if err != nil {
		return err
	}
	var r imageListAnswer
	if err := a.onSite(ctx, s, imageListTool(tool), imageListArgs{a.cli.Site, hash}, &r); err != nil {
		return err
	}
	err = a.show(r, func(w writer) {
		var rows [][]string
		for _, d := range r.Images {
			rows = append(rows, []string{orDash(d.Name), d.Digest, d.Arch, bytesText(d.SizeBytes), d.State})
		}
		table(w, "name|digest|arch|size|state", rows)
		footer(w, len(r.Images), listed{int64(r.Total), true}, "images")
		if r.Bad > 0 {
			fmt.Fprintln(w, "repair an image from the original file")
			printNext(w, fault.Do("image add"))
		}
	})
	if err == nil && hash && r.Bad > 0 {
		return quietFailure{fault.Tool}
	}
	return err
}
