package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// Host has the functions of the program that the operations on files use.
type Host struct {
	LoadSite func(file string) (*site.Site, error) // with the access section checked
	Images   Images
	Examine  func(context.Context, DoctorArgs) DoctorAnswer // checks a site
	Setup    func(context.Context, SetupArgs) (SetupAnswer, error)
	Backup   func(context.Context, BackupArgs) (backup.Made, error)
	Restore  func(context.Context, RestoreArgs) (RestoreAnswer, error)
	// Slurm returns what in a site file does not fit the Slurm of this host.
	Slurm func(context.Context, *site.Site) []fault.Problem
	Early func(context.Context, *site.Site) []Finding // makes the checks of start-up
}

// codeNotStored is the code of the problem that an image of the lock is not in the store.
const codeNotStored = "IMAGE-NOT-STORED"

// files returns the operations on files that may belong to no site: they are used before there is a gateway.
func (h Host) files() []Operation {
	return []Operation{h.setup(), {
		ID: "config.check", Title: "Site file", Verb: "config check",
		Description: "Checks the site file and returns the effective one.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Files, Faces: shellOnly,
		Does: does(h.config),
	}, {
		ID: "config.show", Title: "Site file", Verb: "config show",
		Description: "Checks the site file and returns the effective one.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Files, Faces: shellOnly,
		Does: does(h.config),
	}, {
		ID: "tool.check", Title: "Check toolpacks", Verb: "tool check",
		Description: "Checks a domain, its folder of toolpacks or any other folder of toolpacks. Reports all problems at once.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Files, Faces: shellOnly,
		Does: does(checkTools),
	}, {
		ID: "domain.check", Title: "Check a domain", Verb: "domain check",
		Description: "Checks a domain package (manifest, policy, toolpacks, image lock) and whether its parts fit together. Reports all " +
			"problems at once.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Files, Faces: shellOnly,
		Does: does(h.checkDomain),
	}, {
		ID: "tool.init", Title: "Start a toolpack", Verb: "tool init",
		Description: "Writes a first toolpack that loads without changes.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Files, Faces: shellOnly,
		Does: does(startTool),
	}, conversion(), {
		ID: "tool.schema", Title: "Schema of toolpacks", Verb: "tool schema",
		Description: "Returns the JSON Schema of *.tool.yaml, for editors.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Files, Faces: shellOnly,
		Does: does(func(context.Context, gate.Call, struct{}) (TextAnswer, error) {
			return TextAnswer{Text: toolpack.FormatSchema()}, nil
		}),
	}, {
		ID: "tool.runner", Title: "Runner of a kind", Verb: "tool runner",
		Description: "Returns the program that calls the function of a python or node toolpack; it belongs into the toolpack's image.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Files, Faces: shellOnly,
		Does: does(func(_ context.Context, _ gate.Call, a RunnerArgs) (TextAnswer, error) {
			text, path, err := toolpack.Runner(a.Kind)
			return TextAnswer{text, path}, err
		}),
	}}
}

// ConfigArgs are the arguments of config.check and config.show.
type ConfigArgs struct {
	File string `json:"file" kind:"path"`
}

// ConfigAnswer is the answer of config.check and config.show.
type ConfigAnswer struct {
	File      string   `json:"file"`
	Site      string   `json:"site"`
	Effective string   `json:"effective"` // YAML
	Warnings  []string `json:"warnings"`  // what start-up would report about this site, for people
	// Findings are the results of start-up's checks, with their codes, except those that are ok.
	Findings []Finding `json:"findings"`
}

func (h Host) config(ctx context.Context, _ gate.Call, a ConfigArgs) (out ConfigAnswer, err error) {
	s, err := h.LoadSite(a.File)
	if err != nil {
		return out, err
	}
	eff, err := s.Effective()
	if err != nil {
		return out, err
	}
	for _, c := range s.Clusters() {
		if c == s {
			break // the site file describes it
		}
		part, err := c.Effective()
		if err != nil {
			return out, err
		}
		eff = fmt.Appendf(eff, "\n# %s\n%s", c.File(), part)
	}
	out = ConfigAnswer{File: a.File, Site: s.Title(), Effective: string(eff), Warnings: []string{}, Findings: []Finding{}}
	for _, f := range h.Early(ctx, s) {
		if f.Status == CheckOK {
			continue
		}
		out.Findings = append(out.Findings, f)
		out.Warnings = append(out.Warnings, f.Text())
	}
	for _, why := range h.Slurm(ctx, s) {
		reported := func(f Finding) bool { return strings.Contains(f.Found, why.Msg) }
		if !slices.ContainsFunc(out.Findings, reported) {
			out.Warnings = append(out.Warnings, "the gateway will not start: "+why.String())
		}
	}
	return out, nil
}

// CheckArgs are the arguments of tool.check.
type CheckArgs struct {
	Dir string `json:"dir" kind:"path" arg:"" help:"Folder with *.tool.yaml files, or a domain." type:"path"`
}

// DomainCheckArgs are the arguments of domain.check.
type DomainCheckArgs struct {
	Dir  string `json:"dir" kind:"path" arg:"" help:"Folder of a domain." type:"path"`
	Site string `json:"site,omitzero" kind:"path" kong:"-"` // its image store is compared with the domain's lock
}

// CheckAnswer is the answer of tool.check.
type CheckAnswer struct {
	Dir     string   `json:"dir"`
	Domain  string   `json:"domain_id"` // empty for a plain folder of packs
	Tools   []string `json:"tools"`
	Missing []string `json:"missing_images"` // named by packs, not in images.lock.yaml
	Notes   []string `json:"warnings"`       // what a pack allows a caller's text to do
}

// checkTools checks a domain if the folder has a manifest, else the toolpacks below it.
func checkTools(_ context.Context, _ gate.Call, a CheckArgs) (CheckAnswer, error) {
	out := CheckAnswer{Dir: a.Dir, Tools: []string{}, Missing: []string{}, Notes: []string{}}
	var packs *toolpack.Set
	domain := a.Dir
	if !isDomain(domain) && filepath.Base(a.Dir) == toolpack.PacksDir {
		domain = filepath.Dir(a.Dir) // the domain's manifest names the types and images of its packs
	}
	if !isDomain(domain) {
		var err error
		if packs, err = toolpack.Load(a.Dir, toolpack.Taken(OperationIDs())); err != nil {
			return out, err
		}
	} else {
		d, _, err := ReadDomain(domain, toolpack.AllowMissingImages)
		if err != nil {
			return out, err
		}
		packs, out.Domain, out.Missing = d.Packs(), d.ID(), missingImages(d)
		out.Notes = NotServed(d)
		for _, s := range d.Services() {
			out.Tools = append(out.Tools, s.ID)
		}
	}
	for _, p := range packs.List() {
		out.Tools = append(out.Tools, p.ID())
		out.Notes = append(out.Notes, p.Notes()...)
	}
	slices.Sort(out.Tools)
	out.Tools = slices.Compact(out.Tools) // a toolpack's tool may be a service's too
	return out, nil
}

func isDomain(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, toolpack.ManifestFile))
	return err == nil
}

// missingImages returns the images that packs name and the domain's lock lacks, except optional ones.
func missingImages(d *toolpack.Domain) []string {
	out := []string{}
	for _, p := range d.Packs().List() {
		if _, ok := d.Lock().Lookup(p.Image()); p.Image() != "" && !ok && !d.OptionalImage(p.Image()) && !slices.Contains(out, p.Image()) {
			out = append(out, p.Image())
		}
	}
	return out
}
