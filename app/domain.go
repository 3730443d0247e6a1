package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/policy"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// The verbs for authors of domains. Like those of tools_local.go they work only on files.

// ReadDomain opens a domain with its policy and reports the problems of both together.
func ReadDomain(dir string, options ...toolpack.Option) (d *toolpack.Domain, p *policy.Policy, err error) {
	own := OperationIDs()
	d, err = toolpack.OpenDomain(dir, func(file string, data []byte) error {
		p, err = policy.Parse(file, data, os.LookupEnv)
		return err
	}, append(options, toolpack.Taken(own))...)
	if err != nil {
		return nil, nil, err
	}
	known := policy.Known{Types: d.Types()}
	for _, id := range own {
		known.Tools = append(known.Tools, strings.ReplaceAll(id, ".", "_"))
	}
	for _, t := range d.Packs().List() {
		known.Tools = append(known.Tools, t.ToolName())
	}
	for _, s := range bareServices(d) {
		known.Tools = append(known.Tools, s.Name)
	}
	for _, s := range d.Services() {
		if s.Kind == toolpack.Hybrid {
			known.Hybrid = append(known.Hybrid, s.Name)
		}
	}
	return d, p, p.CheckNames(known)
}

// DomainTool is a tool of a domain.
type DomainTool struct {
	ToolID    string `json:"tool_id"`
	Version   string `json:"tool_version"`
	PlanKind  string `json:"plan_kind"` // empty for a tool without a toolpack
	Execution string `json:"execution_kind"`
	Image     string `json:"image"`
	PackHash  string `json:"pack_hash"`
}

// DomainAnswer is the answer of domain.check.
type DomainAnswer struct {
	Dir        string       `json:"dir"`
	DomainID   string       `json:"domain_id"`
	Version    string       `json:"version"` // with a hash of manifest, toolpacks and image lock
	PolicyHash string       `json:"policy_hash"`
	Tools      []DomainTool `json:"tools"`
	Missing    []string     `json:"missing_images"`
	Warnings   []string     `json:"warnings"`
}

func (h Host) checkDomain(_ context.Context, _ gate.Call, a DomainCheckArgs) (out DomainAnswer, err error) {
	d, p, err := ReadDomain(a.Dir, toolpack.AllowMissingImages)
	if err != nil {
		return out, err
	}
	unstored, err := h.checkLock(a)
	if err != nil {
		return out, err
	}
	out = DomainAnswer{Dir: a.Dir, DomainID: d.ID(), Version: d.CatalogVersion(), PolicyHash: p.Hash, Tools: []DomainTool{},
		Missing: missingImages(d), Warnings: slices.Concat(Fits(d, p), NotServed(d), unstored)}
	for _, t := range d.Packs().List() {
		out.Tools = append(out.Tools, DomainTool{t.ID(), t.Version(), t.PlanKind(), t.ExecutionKind(), t.Image(), t.Hash()})
	}
	for _, s := range bareServices(d) {
		out.Tools = append(out.Tools, DomainTool{ToolID: s.ID, Version: s.Version, Execution: "http", PackHash: s.Hash})
	}
	return out, nil
}

// bareServices returns a domain's tools without a toolpack.
func bareServices(d *toolpack.Domain) []toolpack.Service {
	return slices.DeleteFunc(d.Services(), func(s toolpack.Service) bool {
		_, err := d.Packs().Get(s.ID)
		return err == nil
	})
}

// checkLock compares the domain's image lock with the store of its site. A wrong entry is an error; an image that is
// not stored yet is a warning.
func (h Host) checkLock(a DomainCheckArgs) (warnings []string, err error) {
	if a.Site == "" {
		return nil, nil
	}
	s, err := site.Load(a.Site)
	if err != nil {
		return nil, err
	}
	misfits, err := h.Images.Misfits(s)
	var wrong []fault.Problem
	for _, p := range misfits {
		if p.Code == codeNotStored {
			warnings = append(warnings, p.String())
		} else {
			wrong = append(wrong, p)
		}
	}
	if len(wrong) > 0 {
		return nil, fault.Invalid(toolpack.LockFile+" is not right about the images in "+s.Storage.ImageStore, wrong...)
	}
	return warnings, err
}

// Fits lists conflicts between a domain and its policy. None of them breaks a rule: the tool loads, but calls of it
// are denied.
func Fits(d *toolpack.Domain, p *policy.Policy) []string {
	out := append([]string{}, p.Notes()...)
	for _, t := range d.Packs().List() {
		out = append(out, t.Notes()...)
		if err := p.AllowTool(t.ToolName()); err != nil {
			out = append(out, t.ID()+": policy does not allow it (tool_allowlist)")
		}
		for _, name := range t.Passthrough() {
			if _, ok := p.Env[name]; !ok {
				out = append(out, t.ID()+": the tool needs the variable "+name+" (env.passthrough), but policy does not set it in env")
			}
		}
		image, locked := d.Lock().Digest(t.Image())
		if !locked {
			image = "sha256:" + strings.Repeat("0", 64)
		}
		if t.Image() == "" {
			continue // it does not run in Slurm
		}
		outline := t.Outline(image)
		err := p.AllowPlan(outline, false, t.Image())
		if t.PlanKind() == toolpack.KindDocker {
			err = p.AllowLocal(outline, t.ToolName(), t.Image(), -1)
		}
		for _, why := range fault.ProblemsOf(err) {
			// Partition and account may come from the site; a missing image is reported elsewhere.
			if why.Code == "POLICY-IMAGE" && !locked || slices.Contains([]string{"placement.partition", "placement.account"}, why.Field) &&
				strings.Contains(why.Msg, toolpack.FromSite) {
				continue
			}
			out = append(out, fmt.Sprintf("%s: policy denies every call: %s", t.ID(), why))
		}
	}
	for _, s := range bareServices(d) {
		if err := p.AllowTool(s.Name); err != nil {
			out = append(out, s.ID+": policy does not allow it (tool_allowlist)")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !slices.ContainsFunc(d.Packs().List(), func(t *toolpack.Pack) bool { return slices.Contains(t.Passthrough(), name) }) {
			out = append(out, "policy: env has "+name+", but no toolpack uses it (env.passthrough)")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Slurm.RawPlans.EntryPrograms)) {
		if _, ok := d.Lock().Lookup(key); !ok && d.Lock().NameOf(key) == "" {
			out = append(out, "policy: slurm.raw_plans.entry_programs names "+key+", which is not in images.lock.yaml")
		}
	}
	if p.ImagesAllowlist != nil {
		for _, digest := range *p.ImagesAllowlist {
			if d.Lock().NameOf(digest) == "" {
				out = append(out, "policy: images_allowlist has "+digest+", which is not in images.lock.yaml")
			}
		}
	}
	return out
}

// NotServed lists the optional images that the lock lacks, with the tools that a gateway leaves out for it.
func NotServed(d *toolpack.Domain) (out []string) {
	tools := map[string][]string{}
	for _, t := range append(d.Packs().List(), d.Left()...) {
		if _, locked := d.Lock().Lookup(t.Image()); !locked && d.OptionalImage(t.Image()) {
			tools[t.Image()] = append(tools[t.Image()], t.ID())
		}
	}
	for _, image := range slices.Sorted(maps.Keys(tools)) {
		out = append(out, toolpack.LockFile+" has no image "+image+", so these tools are not served (optional_images): "+
			strings.Join(tools[image], ", "))
	}
	return out
}

// RunnerArgs are the arguments of tool.runner.
type RunnerArgs struct {
	Kind string `json:"kind" max:"16" arg:"" help:"python or node."`
}

// InitArgs are the arguments of tool.init.
type InitArgs struct {
	ToolID string `json:"tool_id" max:"128" arg:"" name:"tool" help:"Tool id, e.g. samtools.flagstat."`
	Dir    string `json:"dir" kind:"path" arg:"" optional:"" default:"." help:"Folder of a domain, or any folder." type:"path"`
	Kind   string `json:"kind" max:"16" help:"Kind of execution: cli, python, node or php." default:"cli"`
}

// InitAnswer is the answer of tool.init.
type InitAnswer struct {
	File     string `json:"file"`
	Manifest string `json:"manifest_line"` // to add to the domain's tools; empty outside a domain
	Image    string `json:"image"`
}

// startTool writes a first pack. It never overwrites a file.
func startTool(_ context.Context, _ gate.Call, a InitArgs) (out InitAnswer, err error) {
	text, err := toolpack.Starter(a.ToolID, a.Kind)
	if err != nil {
		return out, err
	}
	out.File = filepath.Join(a.Dir, a.ToolID+".tool.yaml")
	out.Image, _, _ = strings.Cut(a.ToolID, ".")
	if _, err := os.Stat(filepath.Join(a.Dir, toolpack.ManifestFile)); err == nil {
		out.File = filepath.Join(a.Dir, toolpack.PacksDir, a.ToolID+".tool.yaml")
		out.Manifest = "  - {tool_id: " + a.ToolID + ", kind: job_worker}"
	}
	return out, writeNew(out.File, text)
}

// writeNew writes a file that does not exist yet.
func writeNew(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.Conflict, "file_exists", file+" already exists").WithNext("choose another id, or move the file away")
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(fault.NotFound, "no_folder", "the folder of "+file+" does not exist", err).
			WithNext("create it, or name the folder of a domain")
	case err != nil:
		return fault.Wrap(fault.Transport, "", "cannot write "+file, err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// TextAnswer is the answer of tool.schema and tool.runner.
type TextAnswer struct {
	Text string `json:"text"`
	Path string `json:"path"` // in an image; empty for the schema
}
