package site

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"slurmgate/fault"
	"slurmgate/plan"
)

const (
	version        = 1
	maxSocketBytes = 107 // sun_path of unix(7) has 108 with the NUL
)

// ownTargets are the paths in a container that a site may not bind over, with everything below them.
var ownTargets = []string{"/work", "/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/.singularity.d"}

type checker struct {
	site     *Site
	problems []fault.Problem
}

// check returns every broken rule: first those of single settings, last those in more.
func (s *Site) check(more ...Check) []fault.Problem {
	c := &checker{site: s}
	switch {
	case s.Version == 0 && s.at["version"] == place{}:
		c.value("SITE-VERSION", "version", "", fmt.Sprintf("must be %d", version), "")
	case s.Version != version:
		c.add("SITE-VERSION", "version", fmt.Sprintf("must be %d", version), fmt.Sprintf("version %d is not supported", s.Version), "")
	}
	c.settings()
	hasCluster := len(s.Sites) == 0
	if hasCluster {
		c.name(s.Name)
	}
	if !s.cluster {
		c.gateway(s.Gateway)
		c.path("domain_dir", s.DomainDir, true)
	}
	if hasCluster {
		c.slurm(s.Slurm)
		c.runAs(s.Slurm, s.Storage)
		c.storage(s.Storage)
		c.transports(s.Slurm, s.Storage)
		c.apptainer(s.Apptainer)
	}
	if !s.cluster {
		c.imports(s.Import)
	}
	c.apart()
	if hasCluster {
		c.bounds("watch.ceiling_seconds", int64(s.Watch.CeilingSeconds), int64(max(1, s.Watch.FloorSeconds)), 3600)
		if s.Budget.Shared.File != "" {
			c.bounds("budget.shared.rpc_per_minute", int64(s.Budget.Shared.RPCPerMinute), 1, 60000)
		} else if s.Budget.Shared.RPCPerMinute != 0 {
			c.value("SITE-SHARED", "budget.shared.file", "", "a file that each gateway of this host can write",
				"name it, or remove budget.shared")
		}
	}
	if s.cluster {
		return c.problems
	}
	c.access(s.Access)
	c.http(s.HTTP)
	c.limits(s.Limits)
	c.secrets(s.Secrets)
	c.notify(s.Notify)
	for _, check := range more {
		for _, p := range check(s) {
			if slices.ContainsFunc(c.problems, func(own fault.Problem) bool { return strings.HasPrefix(own.Field, p.Field) }) {
				continue // already reported, here or at a part of it
			}
			c.add(p.Code, p.Field, p.Rule, p.Msg, p.Hint)
		}
	}
	return c.problems
}

func (c *checker) name(name string) {
	switch {
	case !plan.IsSiteName(name):
		c.value("SITE-NAME", "site", name, plan.SiteNameRule, "")
	case name == Local:
		c.add("SITE-NAME", "site", "not "+Local, Local+" is the gateway's own host", "choose another name")
	}
}

func (c *checker) storage(s Storage) {
	if s.BindArtifacts != "" && c.site.AsCaller() {
		c.add("SITE-BIND-ARTIFACTS", "storage.bind_artifacts", "not with slurm.run_as: caller",
			"jobs of other users cannot read the gateway's artifacts, so their inputs are copied", "remove it")
	}
	c.inPlace(s.InPlace)
	for i, r := range s.InPlace {
		for _, own := range []struct{ field, path string }{{"storage.runs_dir", s.RunsDir}, {"storage.bind_artifacts", s.BindArtifacts}} {
			if own.path != "" && r.Path != "" && (within(r.Path, own.path) || within(own.path, r.Path)) {
				c.add("SITE-PATH-OVERLAP", fmt.Sprintf("storage.in_place[%d]", i), "not inside "+own.field+", nor around it",
					fmt.Sprintf("%s overlaps with %s, which is %s", r.Path, own.path, own.field), "choose separate folders")
			}
		}
	}
}

func (c *checker) gateway(g Gateway) {
	c.path("gateway.state_dir", g.StateDir, true)
	c.path("gateway.artifact_dir", g.ArtifactDir, filepath.IsAbs(g.StateDir)) // an invalid state_dir is reported once
	c.path("gateway.socket", g.Socket, filepath.IsAbs(g.StateDir))
	c.path("gateway.image_store", g.ImageStore, filepath.IsAbs(g.StateDir))
	if len(g.Socket) > maxSocketBytes {
		c.add("SITE-SOCKET", "gateway.socket", fmt.Sprintf("at most %d bytes, the limit of Unix sockets", maxSocketBytes),
			fmt.Sprintf("the path has %d bytes, which is too long", len(g.Socket)),
			"set gateway.socket to a short path, for example /run/slurmgate/gateway.sock")
	}
	if msg := plan.CheckProject(g.DefaultProject); msg != "" {
		c.add("SITE-PROJECT", "gateway.default_project", "a project's name or id", msg, "")
	}
}

func (c *checker) slurm(s Slurm) {
	if s.Transport != TransportREST {
		c.plain("slurm.bin_dir", s.BinDir)
		c.path("slurm.conf", s.Conf, false)
	}
	if s.Accounts == AccountsByAssociations && s.Cluster == "" {
		c.add("SITE-ACCOUNTS", "slurm.accounts", "associations only together with slurm.cluster",
			"slurmdbd may have the associations of several clusters, and slurm.cluster is not set",
			"set slurm.cluster to the ClusterName of slurm.conf")
	}
	if s.Arrays.Min != 0 {
		c.bounds("slurm.arrays.min", int64(s.Arrays.Min), 2, 1000)
	}
}

func (c *checker) apptainer(a Apptainer) {
	switch {
	case a.Module == nil:
		c.plain("apptainer.path", a.Path)
	case a.Path != "":
		c.add("SITE-APPTAINER", "apptainer.path", "either path or module", "path and module are both given", "remove one of them")
	}
	if m := a.Module; m != nil {
		if len(m.Load) == 0 {
			c.add("SITE-MISSING", "apptainer.module.load", "at least one module", "the list is empty", "for example [apptainer/1.4]")
		}
	}
	targets, names := map[string]int{}, map[string]int{}
	for i, b := range a.Binds {
		field := fmt.Sprintf("apptainer.binds[%d]", i)
		c.bindName(field, b)
		if first, dup := names[b.Name]; dup && b.Name != "" {
			c.add("SITE-BIND-NAME", field+".name", "each name once",
				fmt.Sprintf("binds[%d] already has the name %s", first, b.Name), "rename one of them")
		}
		names[b.Name] = i
		if slices.ContainsFunc(ownTargets, func(own string) bool { return within(b.Target, own) }) {
			c.value("SITE-BIND-TARGET", field+".target", b.Target, "not in "+strings.Join(ownTargets, ", "), "")
		}
		if first, dup := targets[b.Target]; dup && b.Target != "" {
			c.value("SITE-BIND-TARGET", field+".target", b.Target, "each target once", fmt.Sprintf("it is also the target of binds[%d]", first))
		}
		targets[b.Target] = i
	}
}

// bindName checks name and version, which make a folder of the site part of a run's identity.
func (c *checker) bindName(field string, b Bind) {
	const name, version = "lower-case letters, digits and . _ -, at most 64", "one word, at most 128 bytes"
	switch {
	case b.Name == "":
		c.add("SITE-MISSING", field+".name", name, "the name is missing",
			"give the folder a name, and list that name under binds in each toolpack that reads the folder: no other sees it")
	case !plan.IsSiteName(b.Name):
		c.value("SITE-BIND-NAME", field+".name", b.Name, name, "")
	}
	switch {
	case b.Version == "":
		c.add("SITE-MISSING", field+".version", version, "the version is missing",
			"give the folder's content a version, for example 2026-11, and change it whenever the content changes")
	case plan.CheckWord(b.Version) != "" || strings.ContainsFunc(b.Version, unicode.IsSpace):
		c.value("SITE-BIND-VERSION", field+".version", b.Version, version, "")
	}
}

// apart refuses folders inside each other where that would expose the data of one to the other.
func (c *checker) apart() {
	s := c.site
	type place struct{ field, path string }
	runs, images := place{"storage.runs_dir", s.Storage.RunsDir}, place{"storage.image_store", s.Storage.ImageStore}
	state, artifacts := place{"gateway.state_dir", s.Gateway.StateDir}, place{"gateway.artifact_dir", s.Gateway.ArtifactDir}
	apart := func(a, b place) {
		if _, here := c.site.at[a.field]; !here {
			a, b = b, a // gateway.state_dir is in another file than the cluster's folders
		}
		if a.path != "" && b.path != "" && (within(a.path, b.path) || within(b.path, a.path)) {
			c.add("SITE-PATH-OVERLAP", a.field, "not inside "+b.field+", nor around it",
				fmt.Sprintf("%s overlaps with %s, which is %s", a.path, b.path, b.field), "choose separate folders")
		}
	}
	apart(images, runs)
	own := []place{runs} // folders that jobs could reach
	if !s.FarFiles() {   // else the cluster's paths are on other machines
		apart(state, runs)
		apart(artifacts, runs)
		apart(state, images)
		apart(artifacts, images)
		own = append(own, state, artifacts)
	}
	// A bind of these folders would let one run read another's data.
	for i, b := range s.Apptainer.Binds {
		for _, own := range own {
			apart(place{fmt.Sprintf("apptainer.binds[%d].source", i), b.Source}, own)
		}
	}
}

// within reports whether a clean absolute path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

func (c *checker) add(code, field, rule, msg, hint string) {
	where := c.site.at[field]
	// A missing field is reported at its section.
	for at := field; where.line == 0 && strings.Contains(at, "."); where = c.site.at[at] {
		at = at[:strings.LastIndexByte(at, '.')]
	}
	c.problems = append(c.problems, fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg, Hint: hint,
		File: c.site.file, Line: where.line, Column: where.column})
}

// value refuses a string; an empty one is reported as missing.
func (c *checker) value(code, field, got, rule, hint string) {
	if got == "" {
		c.add("SITE-MISSING", field, rule, "the value is missing", "")
		return
	}
	c.add(code, field, rule, fmt.Sprintf("%q is not allowed here", got), hint)
}

func (c *checker) bounds(field string, n, low, high int64) {
	if n < low || n > high {
		c.add("SITE-RANGE", field, fmt.Sprintf("%d to %d", low, high), fmt.Sprintf("%d is out of range", n), "")
	}
}

func (c *checker) oneOf(field, got string, words ...string) {
	if !slices.Contains(words, got) {
		c.value("SITE-VALUE", field, got, "must be "+strings.Join(words, " or "), "")
	}
}
