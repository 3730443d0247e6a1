package app

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// Files are the tools that work only on files and need no ledger: they are used while there is no gateway yet. They pass a gate all the
// same.
type Files struct {
	LoadSite func(file string) (*site.Site, error) // with the access section checked
	Images   Images
}

// Images is the image store of a site, with the image lock of its domain.
type Images interface {
	// Misfits says where lock and store do not agree; nothing while the store is not there yet.
	Misfits(s *site.Site) ([]fault.Problem, error)
	// Add checks a SIF file, copies it into the store and records it in the lock.
	Add(ctx context.Context, s *site.Site, a ImageAddArgs) (ImageAddAnswer, error)
	// List lists the named images and those that are only in the store; with hash it reads every byte.
	List(ctx context.Context, s *site.Site, hash bool) (ImageListAnswer, error)
}

// codeNotStored is the code of a misfit: an image of the lock that is not in the store.
const codeNotStored = "IMAGE-NOT-STORED"

// Tools are all of them but doctor's.
func (f Files) Tools() []gate.Tool {
	return []gate.Tool{f.config("config.check"), f.config("config.show"), checkTool(), f.imageAdd(), f.imageList("image.list"),
		f.imageList("image.verify"), f.domainCheck(), initTool(), schemaTool(), runnerTool()}
}

type ConfigArgs struct {
	File string `json:"file"`
}

type ConfigAnswer struct {
	File      string   `json:"file"`
	Site      string   `json:"site"`
	Effective string   `json:"effective"` // YAML
	Warnings  []string `json:"warnings"`  // what of the site file, the domain, its image lock and the image store does not agree
}

const pathSchema = `{"type":"string","minLength":1,"maxLength":4096}`

func (f Files) config(id string) gate.Tool {
	return builtin(id, "Site file", "Checks the site file and returns the effective one.", gate.Read, object("file", prop("file", pathSchema)),
		handler(func(_ context.Context, _ gate.Call, a ConfigArgs) (any, error) {
			s, err := f.LoadSite(a.File)
			if err != nil {
				return nil, err
			}
			eff, err := s.Effective()
			if err != nil {
				return nil, err
			}
			out := ConfigAnswer{a.File, s.Name, string(eff), withDomain(s)}
			misfits, err := f.Images.Misfits(s)
			if err != nil {
				out.Warnings = append(out.Warnings, err.Error())
			}
			for _, p := range misfits {
				out.Warnings = append(out.Warnings, p.String())
			}
			return out, nil
		}))
}

// withDomain says what the site file and its domain have to agree on and do not. A domain that cannot be read is doctor's and domain
// check's to report.
func withDomain(s *site.Site) []string {
	d, p, err := ReadDomain(s.DomainDir, toolpack.AllowMissingImages)
	if err != nil {
		return []string{}
	}
	out := append([]string{}, p.Notes()...)
	for _, why := range fault.ProblemsOf(d.Packs().CheckBinds(Offers(s))) {
		out = append(out, "slurmgate serve will not start: "+why.String())
	}
	return out
}

type CheckArgs struct {
	Dir  string `json:"dir"`
	Site string `json:"site,omitzero"` // of domain.check: its image store is compared with the domain's lock
}

type CheckAnswer struct {
	Dir     string   `json:"dir"`
	Domain  string   `json:"domain_id"` // empty for a plain folder of packs
	Tools   []string `json:"tools"`
	Missing []string `json:"missing_images"` // named by packs, not in images.lock.yaml
}

// checkTool checks a domain if the folder has a manifest, else the toolpacks below it.
func checkTool() gate.Tool {
	return builtin("tool.check", "Check toolpacks", "Checks a folder of toolpacks or a domain. Reports all problems at once.", gate.Read,
		object("dir", prop("dir", pathSchema)),
		handler(func(_ context.Context, _ gate.Call, a CheckArgs) (any, error) {
			out := CheckAnswer{Dir: a.Dir, Tools: []string{}, Missing: []string{}}
			if _, err := os.Stat(filepath.Join(a.Dir, "manifest.yaml")); err != nil {
				set, err := toolpack.Load(a.Dir, toolpack.Taken(OperationIDs()))
				if err != nil {
					return nil, err
				}
				for _, p := range set.List() {
					out.Tools = append(out.Tools, p.ID())
				}
				return out, nil
			}
			d, _, err := ReadDomain(a.Dir, toolpack.AllowMissingImages)
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

type ImageAddArgs struct {
	Site    string `json:"site"`
	Name    string `json:"name"`
	File    string `json:"file"`
	Replace bool   `json:"replace,omitzero"`
}

type ImageDoc struct {
	Name      string `json:"name"`
	Digest    string `json:"digest"`
	Arch      string `json:"arch"`
	SizeBytes int64  `json:"size_bytes"`
	Source    string `json:"source"`
	State     string `json:"state"` // stored, missing, ok, or what is wrong
}

type ImageAddAnswer struct {
	ImageDoc
	Changed bool   `json:"changed"` // false: the name already had this digest
	Lock    string `json:"lock_file"`
}

func (f Files) imageAdd() gate.Tool {
	t := builtin("image.add", "Add an image", "Checks a SIF file, copies it into the image store and records its name and digest in "+
		"images.lock.yaml.", gate.Write,
		object("site name file", prop("site", pathSchema), prop("name", `{"type":"string","minLength":1,"maxLength":128}`),
			prop("file", pathSchema), prop("replace", `{"type":"boolean"}`)),
		handler(func(ctx context.Context, _ gate.Call, a ImageAddArgs) (any, error) {
			s, err := site.Load(a.Site)
			if err != nil {
				return nil, err
			}
			// A broken domain is not added to; missing images are what this verb is for.
			if _, _, err := ReadDomain(s.DomainDir, toolpack.AllowMissingImages); err != nil {
				return nil, err
			}
			return f.Images.Add(ctx, s, a)
		}))
	t.Timeout = time.Hour // a large image is hashed and copied while the call is open
	return t
}

type ImageListArgs struct {
	Site string `json:"site"`
	Hash bool   `json:"hash,omitzero"`
}

type ImageListAnswer struct {
	Total  int        `json:"total"`
	Images []ImageDoc `json:"images"`
	Bad    int        `json:"bad"`
}

// imageList lists the named images and those that are only in the store; with hash it reads every byte.
func (f Files) imageList(id string) gate.Tool {
	t := builtin(id, "Images", "Lists the named images and those in the image store.", gate.Read, object("site", prop("site", pathSchema),
		prop("hash", `{"type":"boolean"}`)),
		handler(func(ctx context.Context, _ gate.Call, a ImageListArgs) (any, error) {
			s, err := site.Load(a.Site)
			if err != nil {
				return nil, err
			}
			return f.Images.List(ctx, s, a.Hash)
		}))
	t.Timeout = 6 * time.Hour // every byte of every image
	return t
}
