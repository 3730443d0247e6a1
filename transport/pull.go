package transport

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/apptainer/oci"
	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// Pull implements [app.Images]. An image is built once: if the lock has an entry that was built from it, those bytes
// are used, and a build with other bytes is refused.
func (i Images) Pull(ctx context.Context, s *site.Site, a app.ImagePullArgs) (out app.ImagePullAnswer, err error) {
	if a.Rebuild && a.Replace {
		return out, fault.New(fault.Validation, "IMAGE-ARGS", "rebuild and replace exclude each other").
			WithNext("leave out --replace: --rebuild only compares")
	}
	source, err := oci.ParseSource(a.Source, a.Digest, s.Images.InsecureRegistries)
	if err != nil {
		return out, err
	}
	list, err := stores(s, a.Cluster)
	if err != nil {
		return out, err
	}
	h := QuietHosts()
	defer h.Close()
	arch, note, err := h.oneArch(ctx, list, a.Arch)
	if err != nil {
		return out, err
	}
	p := &oci.Puller{Dir: filepath.Join(s.Gateway.StateDir, fmt.Sprintf("image-pulls-%d", os.Geteuid())), Credentials: s.Images.Credentials,
		Insecure: s.Images.InsecureRegistries, Private: s.Images.PrivateHosts, Limits: oci.Limits{Bytes: int64(s.Images.MaxMB) << 20},
		Progress: i.Progress}
	r, err := p.Resolve(ctx, source, arch)
	if err != nil {
		return out, err
	}
	file := filepath.Join(s.DomainDir, toolpack.LockFile)
	lock, err := toolpack.ReadLock(file)
	if err != nil {
		return out, err
	}
	known, made := lock.PulledFrom(r.Arch, r.Named, r.Digest)
	if named, taken := lock.Lookup(a.Name); taken && !a.Replace && !a.Rebuild && (!made || named.Digest != known.Digest) {
		return out, nameTaken(named, r)
	}
	if a.Rebuild && !made {
		return out, fault.New(fault.NotFound, "IMAGE-NOT-PULLED", "images.lock.yaml has no image that was made of "+r.Source).
			WithNext("leave out --rebuild")
	}
	if made && !a.Rebuild {
		if at, everywhere := h.haveImage(ctx, list, known.Digest); everywhere || at != "" {
			return i.again(ctx, s, a, r, known, at, note)
		}
	}
	f, err := p.Fetch(ctx, r)
	if err != nil {
		return out, err
	}
	defer f.Close()
	if made && (known.Name != a.Name || !a.Replace) {
		if out.Same, err = sameBytes(ctx, f, known, r); err != nil || a.Rebuild {
			out.ImageDoc, out.Lock, out.Pulled, out.Warnings = docOf(known), file, true, f.Warnings
			return out, err
		}
	}
	out.ImageAddAnswer, err = i.Add(ctx, s, app.ImageAddArgs{Name: a.Name, File: f.Path, Source: r.Source, Replace: a.Replace,
		ImageStoreArgs: a.ImageStoreArgs, SourceDigest: r.Digest, MadeBy: f.Made})
	out.Pulled, out.Warnings, out.Note = true, f.Warnings, cmp.Or(out.Note, note)
	return out, err
}

// nameTaken returns the fault of a name that means another image. It is called before any download.
func nameTaken(named toolpack.LockedImage, r *oci.Resolved) error {
	msg := fmt.Sprintf("the name %s already means %s of %s, and not %s", named.Name, named.Digest, named.Source, r.Source)
	if repo, _, _ := strings.Cut(named.Source, "@"); strings.HasPrefix(r.Source, repo+"@") && named.SourceDigest != "" {
		msg = fmt.Sprintf("the tag %s was moved: it was %s when %s was pulled, and is %s now", repo, named.Source[len(repo)+1:], named.Name,
			r.Named)
	}
	return fault.New(fault.Conflict, "IMAGE-NAME-TAKEN", msg).
		WithNext("choose another name, or add --replace: tools that use the name will then run the new image, with new run ids")
}

// again records a name for an image that was pulled before. at is its file, if a store that this host sees has it, and
// is added to the stores that lack it.
func (i Images) again(ctx context.Context, s *site.Site, a app.ImagePullArgs, r *oci.Resolved, known toolpack.LockedImage,
	at, note string) (out app.ImagePullAnswer, err error) {
	if at != "" {
		out.ImageAddAnswer, err = i.Add(ctx, s, app.ImageAddArgs{Name: a.Name, File: at, Source: r.Source, Replace: a.Replace,
			ImageStoreArgs: a.ImageStoreArgs, SourceDigest: r.Digest, MadeBy: known.MadeBy})
		return out, err
	}
	known.Name, known.Source, known.SourceDigest, known.AddedAt = a.Name, r.Source, r.Digest, time.Now()
	out.ImageDoc, out.Lock, out.Note = docOf(known), filepath.Join(s.DomainDir, toolpack.LockFile), note
	out.Changed, err = toolpack.Record(out.Lock, known, a.Replace)
	return out, err
}

func docOf(n toolpack.LockedImage) app.ImageDoc {
	return app.ImageDoc{Name: n.Name, Digest: n.Digest, Arch: n.Arch, SizeBytes: n.SizeBytes, Source: n.Source, State: "stored",
		SourceDigest: n.SourceDigest, MadeBy: n.MadeBy}
}

// sameBytes reports whether a file has the bytes that the lock records for an image.
func sameBytes(ctx context.Context, f *oci.File, known toolpack.LockedImage, r *oci.Resolved) (bool, error) {
	src, err := os.Open(f.Path)
	if err != nil {
		return false, fault.Wrap(fault.Transport, "IMAGE-CACHE", "cannot read the image that was made", err)
	}
	defer src.Close()
	sum, _, err := files.CopyHash(ctx, io.Discard, src, 0)
	if err != nil {
		return false, fault.Wrap(fault.Transport, "IMAGE-CACHE", "cannot read the image that was made", err)
	}
	if "sha256:"+sum == known.Digest {
		return true, nil
	}
	msg := fmt.Sprintf("%s was made again and gives sha256:%s, but images.lock.yaml has %s for it, made by %s; this machine made it by %s",
		r.Source, sum, known.Digest, cmp.Or(known.MadeBy, "another program"), cmp.Or(f.Made, "nothing"))
	return false, fault.New(fault.Conflict, "IMAGE-REBUILD", msg).
		WithNext("the lock's bytes are what tools run: add them from an image store or a backup that has them, " +
			"or replace the entry under its own name, " + known.Name + ", with --replace").WithSteps(fault.Do("image add", "name", known.Name))
}

// oneArch returns the architecture of all machines that would run an image. If wanted is given it is returned
// unchecked. note describes what is unknown.
func (h *Hosts) oneArch(ctx context.Context, list []*site.Site, wanted string) (arch, note string, err error) {
	if wanted != "" {
		return wanted, "", nil
	}
	var all []string
	for _, c := range list {
		archs, unknown := h.archs(ctx, c)
		if unknown != nil {
			note = "the architecture of " + c.Name + "'s nodes is unknown (" + fault.Prose(unknown) + "), so this machine's was taken"
		}
		all = append(all, archs...)
	}
	slices.Sort(all)
	switch all = slices.Compact(all); len(all) {
	case 0:
		return runtime.GOARCH, note, nil
	case 1:
		return all[0], note, nil
	}
	return "", "", fault.New(fault.Validation, "IMAGE-ARCH",
		"the machines that would run the image have different architectures: "+strings.Join(all, ", ")).
		WithNext("pull one image for each, under a separate name, with --arch and --site-name")
}

// haveImage searches the stores for an image. everywhere: all have it; at is its path in one that this host sees.
func (h *Hosts) haveImage(ctx context.Context, list []*site.Site, digest string) (at string, everywhere bool) {
	everywhere = true
	for _, c := range list {
		store, err := h.store(c)
		if err != nil {
			everywhere = false
			continue
		}
		path, err := store.Verify(ctx, strings.TrimPrefix(digest, "sha256:"))
		if everywhere = everywhere && err == nil; err == nil && !c.FarFiles() {
			at = path
		}
	}
	if everywhere {
		at = ""
	}
	return at, everywhere
}
