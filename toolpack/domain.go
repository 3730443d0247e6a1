package toolpack

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/policy/yamldoc"
)

// The other names in a domain's folder.
const (
	PolicyFileName = "policies.yaml"
	PacksDir       = "toolpacks"
)

// Domain is a domain package that passed every check. It is immutable; to serve another one, restart the gateway.
type Domain struct {
	dir      string
	manifest Manifest
	packs    *Set
	left     []*Pack // not served: the image lock lacks their image
	services []Service
	lock     Lock
	policy   []byte
	types    []string
	catalog  string
}

// Option changes how toolpacks are read.
type Option func(*options)

type options struct {
	missingImages bool
	packless      bool              // there may be no folder of toolpacks
	taken         map[string]string // tool name → id
	defaults      *Defaults         // of the manifest
}

// AllowMissingImages opens a domain whose toolpacks name images that images.lock.yaml does not list yet, for the command
// that adds them. A toolpack whose image is missing cannot be submitted.
func AllowMissingImages(o *options) { o.missingImages = true }

// Taken returns the ids of the gateway's own operations. A toolpack with one of them, or with the tool name of one, is refused.
func Taken(ids []string) Option {
	return func(o *options) {
		o.taken = map[string]string{}
		for _, id := range ids {
			o.taken[toolName(id)] = id
		}
	}
}

func chosen(list []Option) (o options) {
	for _, f := range list {
		f(&o)
	}
	return o
}

// OpenDomain reads a domain package. It fails closed (ABI-01): if anything in it breaks a rule, it returns no domain and one
// Validation fault that reports every broken rule of every file. parse reads the policy: the problems it finds are in the same report.
func OpenDomain(dir string, parse func(file string, data []byte) error, list ...Option) (*Domain, error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	d, found := openDomain(root.FS(), dir, parse, chosen(list))
	if len(found) > 0 {
		return nil, broken(dir, found)
	}
	return d, nil
}

func openDomain(fsys fs.FS, dir string, parsePolicy func(string, []byte) error, o options) (*Domain, []fault.Problem) {
	d := &Domain{dir: dir}
	var found []fault.Problem
	name := func(rel string) string { return path.Join(filepath.ToSlash(dir), rel) }
	read := func(rel, hint string) []byte {
		data, msg := readFile(fsys, rel)
		if msg != "" {
			if _, err := fs.Lstat(fsys, rel); errors.Is(err, fs.ErrNotExist) {
				msg = "it is missing"
			}
			found = append(found, fault.Problem{Code: "DOMAIN-FILE", Rule: "a domain with " + rel, Msg: msg,
				Hint: hint, File: name(rel)})
		}
		return data
	}
	r := &yamldoc.Reader{File: name(ManifestFile), Prefix: "MANIFEST"}
	if data := read(ManifestFile, "write one that names the domain and lists its tools"); data != nil {
		d.manifest = parseManifest(r, data)
	}
	d.types = append(filetype.Names(), d.manifest.ArtifactTypes...)
	d.manifest.Defaults.check(r, d.types)
	o.defaults = d.manifest.Defaults
	d.policy = read(PolicyFileName, "start with the line version: 1; policies.yaml.template explains the rest")
	if d.policy != nil {
		if err := parsePolicy(name(PolicyFileName), d.policy); err != nil {
			found = append(found, problemsOf(name(PolicyFileName), err)...)
		}
	}
	o.packless = d.manifest.onlyServices() // nothing runs from an image either
	if _, err := fs.Lstat(fsys, LockFile); o.packless && errors.Is(err, fs.ErrNotExist) {
		o.missingImages = true
	} else if data := read(LockFile, "start with version: 1 and images: []"); data != nil {
		lock, bad := parseLock(name(LockFile), data)
		d.lock = lock
		// It is unknown what is missing from a lock that cannot be read.
		o.missingImages = o.missingImages || len(bad) > 0
		found = append(found, bad...)
	} else {
		o.missingImages = true
	}
	packs, all, bad := loadAll(fsys, dir, PacksDir, d.types, o)
	d.packs = packs
	found = append(found, bad...)
	if (len(d.manifest.Tools) > 0 || len(r.Problems()) == 0) && !slices.ContainsFunc(bad, isStop) { // else not every pack was read
		found = append(found, d.manifest.match(r, all)...)
		more := d.manifest.services(r, &schemaFiles{fsys: fsys, base: filepath.ToSlash(dir), docs: map[string]*schemaDoc{}}, all, o.taken)
		d.services = more.list
		found = append(found, more.found...)
	}
	for _, p := range all {
		if _, ok := d.lock.Lookup(p.def.Image); !ok && p.def.Image != "" && !o.missingImages && !d.OptionalImage(p.def.Image) {
			found = append(found, fault.Problem{Code: "PACK-IMAGE-MISSING", Field: "container.image",
				Rule: "every image must be pinned in " + LockFile, Msg: LockFile + ` has no image "` + p.def.Image + `"`,
				Next: []fault.Step{fault.Do("image add", "name", p.def.Image)},
				File: p.file, Line: p.imageAt.line, Column: p.imageAt.column})
		}
	}
	found = append(found, r.Problems()...)
	if len(found) > 0 {
		return nil, found
	}
	if !o.missingImages {
		d.leaveOut()
	}
	hash, err := hashOf(struct {
		Manifest Manifest      `json:"manifest"`
		Packs    string        `json:"packs"`
		Lock     []LockedImage `json:"lock"`
		Services []string      `json:"services,omitempty"` // of entries without a toolpack
	}{d.manifest, d.packs.Hash(), d.lock.List(), d.bareHashes()})
	if err != nil {
		return nil, []fault.Problem{{Code: "DOMAIN-HASH", Rule: "canonical JSON", Msg: fault.First(err), File: name(ManifestFile)}}
	}
	d.catalog = strings.TrimPrefix(hash, "sha256:")[:12]
	return d, nil
}

// leaveOut takes the tools out of the domain that the manifest allows to lack their image.
func (d *Domain) leaveOut() {
	lacks := func(p *Pack) bool {
		_, locked := d.lock.Lookup(p.def.Image)
		return p.def.Image != "" && !locked
	}
	for _, p := range d.packs.packs {
		if lacks(p) {
			d.left = append(d.left, p)
		}
	}
	d.packs = &Set{packs: slices.DeleteFunc(slices.Clone(d.packs.packs), lacks), hash: d.packs.hash}
	d.manifest.Tools = slices.DeleteFunc(slices.Clone(d.manifest.Tools), func(t ManifestTool) bool {
		return slices.ContainsFunc(d.left, func(p *Pack) bool { return p.def.ID == t.ToolID })
	})
}

// Left returns the toolpacks that are not served because the image lock lacks their image, which the manifest lists
// as optional.
func (d *Domain) Left() []*Pack { return slices.Clone(d.left) }

// OptionalImage reports whether the image lock may lack an image that toolpacks name.
func (d *Domain) OptionalImage(name string) bool { return slices.Contains(d.manifest.Optional, name) }

// bareHashes returns the hashes of the tools without a toolpack: they cover their schemas.
func (d *Domain) bareHashes() (out []string) {
	for _, s := range d.services {
		if _, err := d.packs.Get(s.ID); err != nil {
			out = append(out, s.Hash)
		}
	}
	return out
}

// problemsOf returns the problems in an error about a file; an error without problems becomes one.
func problemsOf(file string, err error) []fault.Problem {
	if p := fault.ProblemsOf(err); len(p) > 0 {
		return p
	}
	return []fault.Problem{{Code: fault.CodeOf(err), Rule: "a file the gateway can use", Msg: clip(err.Error()), File: file}}
}

// ID returns the manifest's domain_id.
func (d *Domain) ID() string { return d.manifest.DomainID }

// Version returns the manifest's version.
func (d *Domain) Version() string { return d.manifest.Version }

// CatalogVersion returns the version with a hash of manifest, packs and image lock as build metadata, e.g.
// 1.0.0+3f9a0c51d2e4.
func (d *Domain) CatalogVersion() string { return d.manifest.Version + "+" + d.catalog }

// Packs returns the domain's toolpacks.
func (d *Domain) Packs() *Set { return d.packs }

// Lock returns the image lock as it was when the domain was opened.
func (d *Domain) Lock() Lock { return d.lock }

// LockPath returns the path of the image lock.
func (d *Domain) LockPath() string { return filepath.Join(d.dir, LockFile) }

// Policy returns the unparsed policies.yaml and its name for messages.
func (d *Domain) Policy() (file string, data []byte) {
	return filepath.Join(d.dir, PolicyFileName), slices.Clone(d.policy)
}

// Services returns the tools that a worker carries out, in the manifest's order: entries without a toolpack, those of
// toolpacks with execution.kind http, and hybrid tools with a transport.
func (d *Domain) Services() []Service { return slices.Clone(d.services) }

// Types returns the artifact types of the domain: those of every gateway, then the manifest's own.
func (d *Domain) Types() []string { return slices.Clone(d.types) }

// Tools returns the manifest's entries, in its order, with timeouts filled in from the packs.
func (d *Domain) Tools() []ManifestTool {
	out := make([]ManifestTool, len(d.manifest.Tools))
	for i, t := range d.manifest.Tools {
		if p, err := d.packs.Get(t.ToolID); err == nil && t.TimeoutSec == 0 {
			t.TimeoutSec = p.timeoutSec()
		}
		t.Transport, t.EgressAllowlist = clone(t.Transport), slices.Clone(t.EgressAllowlist)
		out[i] = t
	}
	return out
}

// CheckFiles reports what is wrong with a domain package whose files are in memory, by their paths. Its image lock may be empty.
func CheckFiles(files map[string][]byte, parse func(file string, data []byte) error, list ...Option) []fault.Problem {
	var b bytes.Buffer
	w := zip.NewWriter(&b) // an archive is a file system
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write(files[name])
		}
		if err != nil {
			return problemsOf(name, err)
		}
	}
	if err := w.Close(); err != nil {
		return problemsOf(ManifestFile, err)
	}
	fsys, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		return problemsOf(ManifestFile, err)
	}
	_, found := openDomain(fsys, "", parse, chosen(append(list, AllowMissingImages)))
	return found
}
