package toolpack

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// LockFile is the name of the image lock in a domain's folder.
const LockFile = "images.lock.yaml"

// LockedImage is one entry of images.lock.yaml.
type LockedImage struct {
	Name      string    `yaml:"name"`       // as toolpacks write it
	Digest    string    `yaml:"digest"`     // sha256:<64 hex> of the SIF file
	Arch      string    `yaml:"arch"`       // as the SIF header names it, e.g. amd64
	SizeBytes int64     `yaml:"size_bytes"` // of the SIF file
	Source    string    `yaml:"source"`     // where the file came from; docker://REPOSITORY@sha256:<64 hex> is found by that digest
	AddedAt   time.Time `yaml:"added_at"`   // UTC

	SourceDigest string `yaml:"source_digest,omitempty"` // sha256:<64 hex> of what was pulled for arch: an image's manifest, or a SIF file
	MadeBy       string `yaml:"made_by,omitempty"`       // the program that made the SIF file of the image's layers; empty: not made here
}

// Lock is images.lock.yaml. It is immutable.
//
//	version: 1
//	images:
//	  - name: samtools
//	    digest: sha256:<64 hex>
//	    arch: amd64
//	    size_bytes: 12345678
//	    source: samtools.sif
//	    added_at: "2026-01-31T12:00:00Z"
//	    source_digest: sha256:<64 hex>      # these two only if `image pull` made the entry
//	    made_by: sqfstar 4.6.1, gzip
type Lock struct{ images []LockedImage }

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	archForm   = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
)

// ParseLock reads an image lock. file names it in messages. Every broken rule is reported, in one Validation fault.
func ParseLock(file string, data []byte) (Lock, error) {
	l, found := parseLock(file, data)
	if len(found) > 0 {
		return Lock{}, broken(file, found)
	}
	return l, nil
}

func parseLock(file string, data []byte) (Lock, []fault.Problem) {
	r := &yamldoc.Reader{File: file, Prefix: "LOCK"}
	o := r.Parse(data).Object("version", "images")
	o.Need("version").Int(1, 1)
	var l Lock
	seen := map[string]bool{}
	for _, v := range o.Need("images").List() {
		e := v.Object("name", "digest", "arch", "size_bytes", "source", "added_at", "source_digest", "made_by")
		img := LockedImage{
			Name:      e.Need("name").Match(imageName, "NAME", "lower-case letters, digits, . _ -"),
			Digest:    e.Need("digest").Match(digestForm, "DIGEST", "sha256:<64 hex digits>"),
			Arch:      e.Need("arch").Match(archForm, "ARCH", "an architecture, e.g. amd64"),
			SizeBytes: e.Need("size_bytes").Int(1, maxSafe),
			Source:    prose(e.Opt("source"), 4096),
			MadeBy:    prose(e.Opt("made_by"), 256),
		}
		if d := e.Opt("source_digest"); d.Exists() {
			img.SourceDigest = d.Match(digestForm, "DIGEST", "sha256:<64 hex digits>")
		}
		if at := e.Need("added_at"); at.Exists() {
			t, err := time.Parse(time.RFC3339Nano, at.Time())
			if err != nil {
				at.Fail("TIME", "a time such as 2026-01-31T12:00:00Z", "it is not a valid time", "")
			}
			img.AddedAt = t.UTC()
		}
		if seen[img.Name] && img.Name != "" {
			e.Opt("name").Fail("DUPLICATE-NAME", "each name once", `the name "`+clip(img.Name)+`" appears twice`, "remove one of the two entries")
		}
		seen[img.Name] = true
		l.images = append(l.images, img)
	}
	slices.SortFunc(l.images, func(a, b LockedImage) int { return cmp.Compare(a.Name, b.Name) })
	return l, r.Problems()
}

// List returns the entries, sorted by name.
func (l Lock) List() []LockedImage { return slices.Clone(l.images) }

// CheckImageName refuses a name that no entry can have.
func CheckImageName(name string) error {
	if imageName.MatchString(name) {
		return nil
	}
	return fault.Invalid("", fault.Problem{Code: "IMAGE-NAME", Field: "name", Rule: "lower-case letters, digits, . _ -",
		Msg: `"` + clip(name) + `" cannot be the name of an image`})
}

// Lookup returns the entry of a name.
func (l Lock) Lookup(name string) (LockedImage, bool) {
	i, ok := l.find(name)
	if !ok {
		return LockedImage{}, false
	}
	return l.images[i], true
}

func (l Lock) find(name string) (int, bool) {
	return slices.BinarySearchFunc(l.images, name, func(img LockedImage, name string) int { return strings.Compare(img.Name, name) })
}

// Digest returns the digest a name is pinned to.
func (l Lock) Digest(name string) (string, bool) {
	img, ok := l.Lookup(name)
	return img.Digest, ok
}

// NameOf returns the name of an image by its digest (with or without sha256:), empty when the lock does not have it.
// Of several names the first in order is given.
func (l Lock) NameOf(digest string) string {
	digest = "sha256:" + digest[strings.LastIndexByte(digest, ':')+1:]
	for _, img := range l.images {
		if img.Digest == digest {
			return img.Name
		}
	}
	return ""
}

// PulledFrom returns the entry that was made for an architecture from an image with this digest, sha256:<64 hex>, of
// its manifest or of what the source names; an empty architecture is any. Of several it returns the first in the
// order of names.
func (l Lock) PulledFrom(arch string, digests ...string) (LockedImage, bool) {
	for _, img := range l.images {
		if _, named, _ := strings.Cut(img.Source, "@"); (arch == "" || img.Arch == arch) &&
			(slices.Contains(digests, img.SourceDigest) || slices.Contains(digests, named)) {
			return img, true
		}
	}
	return LockedImage{}, false
}

// Pulled returns the digest of the SIF file that was made from an image of a registry, REPOSITORY@sha256:<64 hex>:
// the entry whose source ends in that digest, or that was made of it for its architecture. msg is the reason if it
// is missing.
func (l Lock) Pulled(ref string) (digest, msg string) {
	_, want, _ := strings.Cut(ref, "@")
	names := []string{}
	for _, img := range l.images {
		from, ok := plan.RegistryImage(img.Source)
		if ok && (strings.HasSuffix(from, "@"+want) || img.SourceDigest == want) {
			if names = append(names, img.Name); digest == "" {
				digest = img.Digest
			} else if digest != img.Digest {
				msg = "images.lock.yaml has different files with this source: " + strings.Join(names, ", ")
			}
		}
	}
	switch {
	case len(names) == 0:
		return "", "no image of images.lock.yaml has the source " + clip("docker://"+ref)
	case msg != "":
		return "", msg
	}
	return digest, ""
}

// CheckName reports why a name is not that of the image with a digest (sha256:<64 hex>); "" if it is.
func (l Lock) CheckName(name, digest string) string {
	switch locked, ok := l.Digest(name); {
	case !ok:
		return `images.lock.yaml has no image "` + clip(name) + `"`
	case locked != digest:
		if own := l.NameOf(digest); own != "" {
			return `"` + clip(name) + `" is another image; this digest is "` + own + `"`
		}
		return `"` + clip(name) + `" is another image: ` + locked
	}
	return ""
}
