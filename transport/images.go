package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/apptainer"
	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// Images implements [app.Images] with the image stores of a site.
type Images struct {
	Progress func(stage string, done, of int64) // nil: not reported
}

// imageStore is the image store of a cluster, on this host or elsewhere, as the operations use it.
type imageStore interface {
	List(ctx context.Context) ([]apptainer.Image, error)
	Verify(ctx context.Context, digest string) (path string, err error)
	Add(ctx context.Context, file string) (apptainer.Image, error)
}

// sharedStore is a store that this host sees.
type sharedStore struct{ *apptainer.Store }

func (s sharedStore) List(context.Context) ([]apptainer.Image, error) { return s.Store.List() }

// storeOf returns a key that identifies a site's image store among those of all sites.
func storeOf(s *site.Site) string {
	if s.FarFiles() {
		return s.Storage.SFTP.Address() + s.Storage.SFTP.ImageStore
	}
	return s.Storage.ImageStore
}

// stores returns the clusters of a site, one for each image store, or with a name only that cluster, or the gateway's
// own host.
func stores(s *site.Site, name string) (list []*site.Site, err error) {
	if name != "" {
		for _, c := range s.All() {
			if c.Name == name {
				return []*site.Site{c}, nil
			}
		}
		return nil, fault.New(fault.NotFound, "no_such_site", "the site file has no cluster "+name+"; its clusters are "+s.Title())
	}
	for _, c := range s.Clusters() {
		if !slices.ContainsFunc(list, func(o *site.Site) bool { return storeOf(o) == storeOf(c) }) {
			list = append(list, c)
		}
	}
	return list, nil
}

// store opens the image store of a cluster.
func (h *Hosts) store(s *site.Site) (imageStore, error) {
	if s.FarFiles() {
		return h.farStore(s)
	}
	store, err := apptainer.OpenStore(s.Storage.ImageStore)
	return sharedStore{store}, err
}

// Misfits implements [app.Images]. It checks the stores that this host sees.
func (Images) Misfits(s *site.Site) (all []fault.Problem, err error) {
	list, _ := stores(s, "") // cannot fail without a name
	for _, c := range list {
		if c.FarFiles() {
			continue
		}
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

func listImages(ctx context.Context, store imageStore, lock toolpack.Lock, hash bool) (app.ImageListAnswer, error) {
	stored, err := store.List(ctx)
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
		add(app.ImageDoc{Name: n.Name, Digest: n.Digest, Arch: n.Arch, SizeBytes: n.SizeBytes, Source: n.Source, SourceDigest: n.SourceDigest,
			MadeBy: n.MadeBy}, there)
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
func (i Images) Add(ctx context.Context, s *site.Site, a app.ImageAddArgs) (app.ImageAddAnswer, error) {
	list, err := stores(s, a.Cluster)
	if err != nil {
		return app.ImageAddAnswer{}, err
	}
	h := QuietHosts()
	defer h.Close()
	img, failed, note := apptainer.Image{}, []error{}, ""
	var reached []string
	for _, c := range list {
		store, err := h.store(c)
		if err == nil {
			archs, unknown := h.archs(ctx, c)
			if unknown != nil {
				note = "the architecture of " + c.Name + "'s nodes is unknown (" + fault.Prose(unknown) + "), so it was not compared with the image's"
			}
			switch store := store.(type) {
			case *apptainer.FarStore:
				if store.Archs = archs; i.Progress != nil {
					store.Progress = func(sent, of int64) { i.Progress("copying to "+c.Name, sent, of) }
				}
			case sharedStore:
				store.Archs = archs
			}
			img, err = store.Add(ctx, a.File)
		}
		if err != nil && len(list) > 1 {
			err = fault.Wrap("", "", "site "+c.Name, err)
		}
		if err != nil && !fault.Is(err, fault.Transport) {
			return app.ImageAddAnswer{}, err // an error of the file, or of the arguments
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		reached = append(reached, c.Name)
	}
	if len(failed) > 0 {
		return app.ImageAddAnswer{}, notEverywhere(a, reached, failed)
	}
	lock := filepath.Join(s.DomainDir, toolpack.LockFile)
	doc := app.ImageDoc{Name: a.Name, Digest: img.Ref(), Arch: img.Arch, SizeBytes: img.SizeBytes,
		Source: cmp.Or(a.Source, filepath.Base(a.File)), State: "stored", SourceDigest: a.SourceDigest, MadeBy: a.MadeBy}
	changed, err := toolpack.Record(lock, toolpack.LockedImage{Name: a.Name, Digest: doc.Digest, Arch: doc.Arch, SizeBytes: doc.SizeBytes,
		Source: doc.Source, AddedAt: time.Now(), SourceDigest: doc.SourceDigest, MadeBy: doc.MadeBy}, a.Replace)
	return app.ImageAddAnswer{ImageDoc: doc, Changed: changed, Lock: lock, Note: note}, err
}

// archLook bounds the query for the architectures of a cluster's nodes.
const archLook = 15 * time.Second

// archs returns the architectures of the machines that run a site's images.
func (h *Hosts) archs(ctx context.Context, s *site.Site) ([]string, error) {
	if s.Name == site.Local {
		return []string{runtime.GOARCH}, nil
	}
	cli, err := h.Slurm(s)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, archLook)
	defer stop()
	found, err := cli.Archs(ctx)
	if err == nil && len(found) == 0 {
		err = errors.New("no node has registered with Slurm")
	}
	return found, err
}

// notEverywhere returns the fault of an image that was not added to every store. Its name is not recorded then.
func notEverywhere(a app.ImageAddArgs, reached []string, failed []error) error {
	if len(reached) == 0 && len(failed) == 1 {
		return failed[0]
	}
	e := fault.Wrap(fault.Transport, "image_not_everywhere", fmt.Sprintf("%s was copied to %d of %d image stores, and its name "+
		"is not recorded", filepath.Base(a.File), len(reached), len(reached)+len(failed)), errors.Join(failed...))
	if len(reached) > 0 {
		e = e.WithNext("add it again when all sites are reachable, or for those that are: --site-name " + reached[0])
	}
	return e
}

// List implements [app.Images].
func (Images) List(ctx context.Context, s *site.Site, cluster string, hash bool) (app.ImageListAnswer, error) {
	all := app.ImageListAnswer{Images: []app.ImageDoc{}}
	lock, err := toolpack.ReadLock(filepath.Join(s.DomainDir, toolpack.LockFile))
	if err != nil {
		return all, err
	}
	list, err := stores(s, cluster)
	if err != nil {
		return all, err
	}
	h := QuietHosts()
	defer h.Close()
	for _, c := range list {
		store, err := h.store(c)
		var one app.ImageListAnswer
		if err == nil {
			one, err = listImages(ctx, store, lock, hash)
		}
		if err != nil && (len(list) == 1 || !fault.Is(err, fault.Transport)) {
			return all, err
		}
		if err != nil { // the other sites are still listed
			one = app.ImageListAnswer{Total: 1, Bad: 1, Images: []app.ImageDoc{{State: "the image store cannot be read: " + fault.Prose(err)}}}
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
