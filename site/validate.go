package site

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/fault"
	"slurmgate/plan"
)

const (
	version        = 1
	maxSocketBytes = 107 // sun_path of unix(7) has 108 with the NUL
	maxSafeInteger = 1<<53 - 1
)

// plainPath is the form of a path used in options of Slurm and Apptainer, which expand %, split at blanks, colons and
// commas, and treat backslashes as escapes.
var (
	plainPath  = regexp.MustCompile(`^(/[A-Za-z0-9_.+@~=-]+)+$`)
	moduleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}$`)
)

// ownTargets are the paths in a container that a site may not bind over, with everything below them.
var ownTargets = []string{"/work", "/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/.singularity.d"}

type checker struct {
	site     *Site
	problems []fault.Problem
}

// check returns every broken rule, in the order of the file's sections, then those of more.
func (s *Site) check(more ...Check) []fault.Problem {
	c := &checker{site: s}
	switch {
	case s.Version == 0 && s.at["version"] == place{}:
		c.value("SITE-VERSION", "version", "", fmt.Sprintf("must be %d", version), "")
	case s.Version != version:
		c.add("SITE-VERSION", "version", fmt.Sprintf("must be %d", version), fmt.Sprintf("version %d is not supported", s.Version), "")
	}
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
		c.bounds("watch.floor_seconds", int64(s.Watch.FloorSeconds), 1, 3600)
		c.bounds("watch.ceiling_seconds", int64(s.Watch.CeilingSeconds), int64(max(1, s.Watch.FloorSeconds)), 3600)
		c.bounds("budget.rpc_per_minute", int64(s.Budget.RPCPerMinute), 1, 6000)
		c.path("budget.shared.file", s.Budget.Shared.File, false)
		if s.Budget.Shared.File != "" {
			c.bounds("budget.shared.rpc_per_minute", int64(s.Budget.Shared.RPCPerMinute), 1, 60000)
		} else if s.Budget.Shared.RPCPerMinute != 0 {
			c.value("SITE-SHARED", "budget.shared.file", "", "a file that each gateway of this host can write",
				"name it, or remove budget.shared")
		}
		c.bounds("budget.sends_in_flight", int64(s.Budget.SendsInFlight), 1, 64)
		c.bounds("budget.staging_workers", int64(s.Budget.StagingWorkers), 1, 64)
	}
	if s.cluster {
		return c.problems
	}
	c.access(s.Access)
	c.bounds("retention.workspace_days", int64(s.Retention.WorkspaceDays), 0, 36500)
	c.bounds("retention.import_days", int64(s.Retention.ImportDays), 0, 36500)
	c.bounds("audit.look_days", int64(s.Audit.LookDays), 1, 3650)
	c.bounds("audit.looks", int64(s.Audit.Looks), 1000, 10_000_000)
	c.bounds("audit.look_mb", int64(s.Audit.LookMB), 1, 1_000_000)
	c.bounds("audit.refused_days", int64(s.Audit.RefusedDays), 1, 3650)
	c.bounds("audit.refused", int64(s.Audit.Refused), 1000, 10_000_000)
	c.bounds("audit.refused_mb", int64(s.Audit.RefusedMB), 1, 1_000_000)
	c.http(s.HTTP)
	c.limits(s.Limits)
	c.secrets(s.Secrets)
	c.images(s.Images)
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
	c.plain("storage.image_store", s.ImageStore)
	c.bounds("storage.max_output_bytes", s.MaxOutputBytes, 1, maxSafeInteger)
	c.bounds("storage.reserve_mb", int64(s.ReserveMB), 0, 1<<20)
	c.path("storage.bind_artifacts", s.BindArtifacts, false)
	if s.BindArtifacts != "" && c.site.AsCaller() {
		c.add("SITE-BIND-ARTIFACTS", "storage.bind_artifacts", "not with slurm.run_as: caller",
			"jobs of other users cannot read the gateway's artifacts, so their inputs are copied", "remove it")
	}
	c.roots("storage.in_place", s.InPlace)
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
	c.slurmName("slurm.cluster", s.Cluster, false)
	c.slurmName("slurm.default_partition", s.DefaultPartition, true)
	c.slurmName("slurm.default_account", s.DefaultAccount, true)
	c.slurmName("slurm.default_qos", s.DefaultQOS, false)
	c.oneOf("slurm.accounting", s.Accounting, "auto", "required", "none")
	c.oneOf("slurm.accounts", s.Accounts, AccountsBySite, AccountsByAssociations)
	if s.Accounts == AccountsByAssociations && s.Cluster == "" {
		c.add("SITE-ACCOUNTS", "slurm.accounts", "associations only together with slurm.cluster",
			"slurmdbd may have the associations of several clusters, and slurm.cluster is not set",
			"set slurm.cluster to the ClusterName of slurm.conf")
	}
	c.bounds("slurm.verify_allowance_seconds", int64(s.VerifyAllowanceSeconds), 1, 3600)
	c.bounds("slurm.grace_seconds", int64(s.GraceSeconds), 1, 600)
	if s.Scratch != "" {
		c.plain("slurm.scratch", s.Scratch)
	}
	if s.Arrays.Min != 0 {
		c.bounds("slurm.arrays.min", int64(s.Arrays.Min), 2, 1000)
	}
	c.bounds("slurm.arrays.linger_ms", int64(s.Arrays.LingerMS), 1, 60000)
}

func (c *checker) apptainer(a Apptainer) {
	switch {
	case a.Module == nil:
		c.plain("apptainer.path", a.Path)
	case a.Path != "":
		c.add("SITE-APPTAINER", "apptainer.path", "either path or module", "path and module are both given", "remove one of them")
	}
	if m := a.Module; m != nil {
		c.plain("apptainer.module.init", m.Init)
		if len(m.Load) == 0 {
			c.add("SITE-MISSING", "apptainer.module.load", "at least one module", "the list is empty", "for example [apptainer/1.4]")
		}
		for i, name := range m.Load {
			if !moduleName.MatchString(name) {
				c.value("SITE-MODULE", fmt.Sprintf("apptainer.module.load[%d]", i), name, "a module's name: letters, digits and _ . + / -", "")
			}
		}
	}
	c.oneOf("apptainer.verify", a.Verify, "all", "image_only")
	c.oneOf("apptainer.network_isolation", a.NetworkIsolation, "required")
	c.oneOf("apptainer.gpu", a.GPU, "nvidia", "amd")
	if a.Seccomp != "" {
		c.plain("apptainer.seccomp", a.Seccomp)
	}
	for i, word := range a.NoMount {
		if !slices.Contains([]string{"sys", "devpts"}, word) && !plainPath.MatchString(word) {
			c.value("SITE-NO-MOUNT", fmt.Sprintf("apptainer.no_mount[%d]", i), word, "sys, devpts or an absolute path",
				"hostfs, bind-paths, home and cwd are never mounted; proc, dev and tmp always are")
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
		c.plain(field+".source", b.Source)
		c.plain(field+".target", b.Target)
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
	own := []place{runs} // of what jobs could reach
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

func (c *checker) slurmName(field, got string, required bool) {
	if !plan.IsSlurmName(got) && (got != "" || required) {
		c.value("SITE-SLURM-NAME", field, got, "a Slurm name: starts with a letter or digit, then letters, digits, _ . + -, at most 64", "")
	}
}

// path checks a path that only this program opens.
func (c *checker) path(field, got string, required bool) {
	if got == "" && !required {
		return
	}
	odd := !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl)
	if !filepath.IsAbs(got) || filepath.Clean(got) != got || got == "/" || odd {
		c.value("SITE-PATH", field, got, "an absolute path without . or .. or double slashes", "")
	}
}

// plain checks a path that is used in options of Slurm or Apptainer.
func (c *checker) plain(field, got string) {
	if !plainPath.MatchString(got) || filepath.Clean(got) != got {
		c.value("SITE-PATH", field, got, "an absolute path of letters, digits and _ . + @ ~ = -, without . or .. or double slashes",
			"other characters have a meaning in options of Slurm and Apptainer; use a symbolic link with a plain name to the folder")
	}
}
