package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/apptainer"
	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// siteImages gives the operations the image store of a site.
type siteImages struct{}

// stores are the clusters of a site, one for each image store.
func stores(s *site.Site) (list []*site.Site) {
	for _, c := range s.Clusters() {
		if !slices.ContainsFunc(list, func(o *site.Site) bool { return o.Storage.ImageStore == c.Storage.ImageStore }) {
			list = append(list, c)
		}
	}
	return list
}

// Misfits implements [app.Images].
func (siteImages) Misfits(s *site.Site) (all []fault.Problem, err error) {
	for _, c := range stores(s) {
		found, err := misfits(c)
		if all = append(all, found...); err != nil {
			return all, err
		}
	}
	return all, nil
}

func misfits(s *site.Site) ([]fault.Problem, error) {
	file := filepath.Join(s.DomainDir, toolpack.LockFile)
	if st, err := os.Stat(s.Storage.ImageStore); err != nil || !st.IsDir() {
		return nil, nil
	}
	lock, err := toolpack.ReadLock(file)
	if err != nil {
		return nil, err
	}
	store, err := apptainer.OpenStore(s.Storage.ImageStore)
	if err != nil {
		return nil, err
	}
	stored, err := store.List()
	var locked []apptainer.Named
	for _, i := range lock.List() {
		locked = append(locked, apptainer.Named{Name: i.Name, Digest: i.Digest, Arch: i.Arch, SizeBytes: i.SizeBytes})
	}
	return apptainer.Misfits(file, locked, stored), err
}

func listImages(ctx context.Context, store *apptainer.Store, lock toolpack.Lock, hash bool) (app.ImageListAnswer, error) {
	stored, err := store.List()
	if err != nil {
		return app.ImageListAnswer{}, err
	}
	out := app.ImageListAnswer{Images: []app.ImageDoc{}}
	left := map[string]apptainer.Image{}
	for _, i := range stored {
		left[i.Ref()] = i
	}
	add := func(d app.ImageDoc, there bool) {
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
	for _, n := range lock.List() {
		_, there := left[n.Digest]
		seen[n.Digest] = true
		add(app.ImageDoc{Name: n.Name, Digest: n.Digest, Arch: n.Arch, SizeBytes: n.SizeBytes, Source: n.Source}, there)
	}
	for _, i := range stored {
		if !seen[i.Ref()] {
			add(app.ImageDoc{Digest: i.Ref(), Arch: i.Arch, SizeBytes: i.SizeBytes}, true)
		}
	}
	out.Total = len(out.Images)
	return out, nil
}

// Add implements [app.Images]. The image is copied into every store before its name is recorded.
func (siteImages) Add(ctx context.Context, s *site.Site, a app.ImageAddArgs) (app.ImageAddAnswer, error) {
	var img apptainer.Image
	for _, c := range stores(s) {
		var err error
		if img, err = storeImage(ctx, c, a.File); err != nil {
			return app.ImageAddAnswer{}, err
		}
	}
	lock := filepath.Join(s.DomainDir, toolpack.LockFile)
	doc := app.ImageDoc{Name: a.Name, Digest: img.Ref(), Arch: img.Arch, SizeBytes: img.SizeBytes, Source: filepath.Base(a.File),
		State: "stored"}
	changed, err := toolpack.Record(lock, toolpack.LockedImage{Name: a.Name, Digest: doc.Digest, Arch: doc.Arch, SizeBytes: doc.SizeBytes,
		Source: doc.Source, AddedAt: time.Now()}, a.Replace)
	return app.ImageAddAnswer{ImageDoc: doc, Changed: changed, Lock: lock}, err
}

func storeImage(ctx context.Context, s *site.Site, file string) (apptainer.Image, error) {
	if err := os.MkdirAll(s.Storage.ImageStore, 0o755); err != nil {
		return apptainer.Image{}, fault.Wrap(fault.Transport, "image.add", "IMAGE-STORE-PATH", "cannot create storage.image_store", err)
	}
	store, err := apptainer.OpenStore(s.Storage.ImageStore)
	if err != nil {
		return apptainer.Image{}, err
	}
	return store.Add(ctx, file)
}

// List implements [app.Images].
func (siteImages) List(ctx context.Context, s *site.Site, hash bool) (app.ImageListAnswer, error) {
	lock, err := toolpack.ReadLock(filepath.Join(s.DomainDir, toolpack.LockFile))
	if err != nil {
		return app.ImageListAnswer{}, err
	}
	all, list := app.ImageListAnswer{Images: []app.ImageDoc{}}, stores(s)
	for _, c := range list {
		store, err := apptainer.OpenStore(c.Storage.ImageStore)
		if err != nil {
			return all, err
		}
		one, err := listImages(ctx, store, lock, hash)
		if err != nil {
			return all, err
		}
		for _, doc := range one.Images {
			if len(list) > 1 {
				doc.Site = c.Name
			}
			all.Images = append(all.Images, doc)
		}
		all.Total, all.Bad = all.Total+one.Total, all.Bad+one.Bad
	}
	return all, nil
}
