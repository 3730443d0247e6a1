package convert

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack"
)

// A list that HelixMCP's policy leaves out allows nothing there, and everything here. So every list is written, the empty ones too, and
// nothing is allowed that was not.

var (
	helixPolicyFields = strings.Fields("version runtime execution tool_allowlist quotas imports docker slurm tools")
	helixQuotas       = strings.Fields("max_threads max_runtime_seconds max_import_bytes max_preview_bytes max_preview_lines")
)

func (h *helix) policyDoc(f File) (*yamldoc.Reader, yamldoc.Object) {
	r := &yamldoc.Reader{File: f.Path, Prefix: "HELIXMCP"}
	return r, r.Parse(f.Data).Object(helixPolicyFields...)
}

// readBounds reads what toolpacks need to know of the policy.
func (h *helix) readBounds(f File) {
	_, o := h.policyDoc(f)
	q := o.Opt("quotas").Object(helixQuotas...)
	h.bounds.input, h.bounds.most = q.Opt("max_import_bytes").Int(0, math.MaxInt64), q.Opt("max_threads").Int(1, math.MaxInt32)
	if v := o.Opt("slurm"); v.Exists() {
		for _, e := range v.Entries() {
			if e.Key == "max_collect_output_bytes" {
				h.bounds.output = e.Int(0, math.MaxInt64)
			}
		}
	}
	for _, e := range o.Opt("tools").Entries() {
		h.bounds.threads[e.Key] = e.Object("max_threads").Opt("max_threads").Int(1, math.MaxInt32)
	}
}

// policyWriter writes policies.yaml.
type policyWriter struct {
	*helix
	f File
	b strings.Builder
}

func (w *policyWriter) keepField(field, text string) { w.keep(w.f.Path, field, text) }
func (w *policyWriter) changed(field, text string)   { w.change(w.f.Path, field, text) }

func (w *policyWriter) line(depth int, key string, value any) {
	fmt.Fprintf(&w.b, "%s%s: %s\n", strings.Repeat("  ", depth), key, flow(value))
}

func (h *helix) writePolicy(f File) {
	r, o := h.policyDoc(f)
	w := &policyWriter{helix: h, f: f}
	fmt.Fprintf(&w.b, "# Converted from HelixMCP: %s. An empty list allows nothing; a list that is left out would allow "+
		"everything.\nversion: 1\n", f.Path)
	o.Need("version").Int(1, 1)
	if v := o.Opt("runtime"); v.Exists() {
		v.Object("instance_id").Opt("instance_id").Text()
		w.changed("runtime.instance_id", "left out: each gateway has its own ledger, so ids of two gateways never meet")
	}
	if v := o.Opt("execution"); v.Exists() {
		v.Object("default_backend").Opt("default_backend").OneOf("BACKEND", "docker", "slurm")
		w.changed("execution.default_backend", "left out: the planKind of a toolpack says where its runs go")
	}
	w.tools(o.Need("tool_allowlist"))
	w.slurm(o)
	w.imports(o)
	w.docker(o.Opt("docker"))
	w.limits(o)
	for _, e := range o.Opt("tools").Entries() {
		if slices.Contains(h.made, e.Key) {
			w.changed("tools."+e.Key+".max_threads", "left out: the toolpack has a fixed number of CPUs, which is within it")
		} else {
			w.changed("tools."+e.Key+".max_threads", "left out with its tool")
		}
	}
	w.b.WriteString("network: none\n")
	if bad := r.Problems(); len(bad) > 0 {
		h.refuse(bad...)
		return
	}
	h.write(f.Path, toolpack.PolicyFileName, []byte(w.b.String()))
}

// tools writes the list of tools: only those of HelixMCP that exist here.
func (w *policyWriter) tools(v yamldoc.Value) {
	known := slices.Concat(helixOperations(), w.made)
	out := []string{}
	for _, e := range v.List() {
		name := e.Text()
		switch {
		case slices.Contains(known, name):
			out = append(out, name)
		case name == "docker_job_get":
			w.changed(e.Path(), "left out: docker_job_get; slurm_job_get answers for every run, add it if that is meant")
		case name == "export_nextflow":
			w.changed(e.Path(), "left out: export_nextflow; run_export takes its place, add it if that is meant")
		default:
			w.changed(e.Path(), "left out: no toolpack was made of "+fault.Clip(name))
		}
	}
	w.line(0, "tool_allowlist", out)
	w.keepField("tool_allowlist", fmt.Sprintf("%d tools; others (image_add, tool_show, run_list …) are allowed when you add them", len(out)))
}

func (w *policyWriter) names(v yamldoc.Value, ok func(string) bool, rule string) []string {
	out := []string{}
	if !v.Exists() {
		return out
	}
	return append(out, v.Words("NAME", rule, ok)...)
}

// most writes a maximum; an absent one is no maximum in HelixMCP either.
func (w *policyWriter) most(o yamldoc.Object, field, key string, high int64) {
	v := o.Opt(field)
	if !v.Exists() {
		w.changed(v.Path(), fmt.Sprintf("absent, which was no limit: the plan's own, %d, holds", high))
		return
	}
	low := int64(1)
	if field == "max_gpus" {
		low = 0
	}
	n := v.Int(low, math.MaxInt64)
	if n > high {
		w.changed(v.Path(), fmt.Sprintf("%d in place of %d: more is not possible here", high, n))
		n = high
	} else {
		w.keepField(v.Path(), key)
	}
	w.line(1, key[strings.LastIndexByte(key, '.')+1:], n)
}

func (w *policyWriter) slurm(top yamldoc.Object) {
	v := top.Opt("slurm")
	o := v.Object("partitions_allowlist", "accounts_allowlist", "qos_allowlist", "constraints_allowlist", "allow_scheduler_queries",
		"max_time_limit_seconds", "max_cpus", "max_mem_mb", "max_gpus", "max_collect_output_bytes", "max_collect_log_bytes",
		"gpu_types_allowlist",
		"apptainer", "network_mode_required")
	if !v.Exists() {
		w.changed("slurm", "absent, which allowed no job: every list is empty")
	}
	w.b.WriteString("slurm:\n")
	for _, field := range []string{"partitions_allowlist", "accounts_allowlist", "qos_allowlist", "gpu_types_allowlist"} {
		list := o.Opt(field)
		w.line(1, field, w.names(list, plan.IsSlurmName, "names of Slurm"))
		if list.Exists() {
			w.keepField("slurm."+field, field)
		} else if v.Exists() {
			w.changed("slurm."+field, "absent, which allowed nothing: an empty list")
		}
	}
	if o.Opt("gpu_types_allowlist").Exists() {
		w.changed("slurm.gpu_types_allowlist", "a plan with GPUs must name a listed type here; it could leave the type out")
	}
	list := o.Opt("constraints_allowlist")
	w.line(1, "constraints_allowlist", w.names(list, plan.IsConstraint, plan.ConstraintRule))
	switch {
	case len(list.List()) > 0:
		w.changed("slurm.constraints_allowlist", "listed features may also be combined with & and |: that leads to no node that one "+
			"of them alone does not")
	case !list.Exists() && v.Exists():
		w.changed("slurm.constraints_allowlist", "absent, which allowed nothing: an empty list")
	}
	if v.Exists() {
		w.most(o, "max_time_limit_seconds", "slurm.max_time_limit_seconds", plan.MaxTimeLimitSeconds)
		w.most(o, "max_cpus", "slurm.max_cpus", plan.MaxCPUs)
		w.most(o, "max_mem_mb", "slurm.max_mem_mb", plan.MaxMemMB)
		w.most(o, "max_gpus", "slurm.max_gpus", plan.MaxGPUs)
		o.Need("network_mode_required").OneOf("NETWORK", "none")
	}
	if q := o.Opt("allow_scheduler_queries"); q.Exists() {
		q.Bool()
		w.changed(q.Path(), "left out: the gateway alone asks Slurm, at a rate its site file bounds; no call does")
	}
	w.rawPlans(top)
	w.images(o.Opt("apptainer").Object("image_allowlist").Opt("image_allowlist"))
}

// rawPlans allows the programs of the plans given, where slurm_submit is allowed.
func (w *policyWriter) rawPlans(top yamldoc.Object) {
	allowed := slices.ContainsFunc(top.Opt("tool_allowlist").List(), func(v yamldoc.Value) bool { return v.Text() == "slurm_submit" })
	delete(w.entry, "")
	for image := range w.entry {
		slices.Sort(w.entry[image])
		w.entry[image] = slices.Compact(w.entry[image])
	}
	switch {
	case !allowed:
		w.line(1, "raw_plans", map[string]any{"allowed": false})
	case len(w.entry) == 0:
		w.line(1, "raw_plans", map[string]any{"allowed": false})
		w.changed("tool_allowlist", "slurm_submit took any program; here a raw plan's program is listed for its image, and no plan "+
			"was given: "+
			"write slurm.raw_plans")
	default:
		w.line(1, "raw_plans", map[string]any{"allowed": true, "entry_programs": w.entry})
		w.changed("tool_allowlist", "slurm_submit took any program; slurm.raw_plans lists those of the plans given")
	}
}

var digestEnd = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// images writes the digests of the SIF files that the lock has for the allowed images.
func (w *policyWriter) images(list yamldoc.Value) {
	out := []string{}
	for _, v := range list.List() {
		ref, ok := plan.RegistryImage(v.Text())
		digest, msg := "", "an image is named by docker://REPOSITORY@sha256:DIGEST"
		if ok && digestEnd.MatchString(ref) {
			digest, msg = w.lock.Pulled(ref)
		}
		switch {
		case !ok:
			v.Fail("IMAGE", "docker://REPOSITORY@sha256:<64 hex digits>", msg, "leave it out")
		case msg != "" || digest == "":
			w.changed(v.Path(), "left out: no images.lock.yaml with this source was given. Add the file made from it, with --source "+
				"docker://"+ref+
				", and convert again together with images.lock.yaml")
		default:
			out = append(out, digest)
			w.keepField(v.Path(), w.lock.NameOf(digest)+": "+digest)
		}
	}
	slices.Sort(out)
	w.line(0, "images_allowlist", slices.Compact(out))
	if len(list.List()) == 0 {
		w.changed("slurm.apptainer.image_allowlist", "absent or empty, which allowed nothing: an empty list")
	}
}

func (w *policyWriter) imports(top yamldoc.Object) {
	v := top.Opt("imports")
	o := v.Object("allow_source_kinds", "local_path_prefix_allowlist", "deny_symlinks")
	prefixes := o.Opt("local_path_prefix_allowlist").List()
	kinds := []string{}
	for _, k := range o.Opt("allow_source_kinds").List() {
		switch kind := k.OneOf("SOURCE-KIND", "inline_text", "local_path"); {
		case kind == "inline_text":
			kinds = append(kinds, "text")
		case kind == "local_path" && len(prefixes) > 0:
			kinds = append(kinds, "path")
		case kind == "local_path":
			w.changed(k.Path(), "left out: no folder was allowed")
		}
	}
	w.b.WriteString("import:\n")
	w.line(1, "kinds", kinds)
	w.keepField("imports.allow_source_kinds", "import.kinds; uploads stay forbidden")
	for _, p := range prefixes {
		w.changed(p.Path(), fault.Clip(p.Text())+" goes into the site file, as an absolute folder: import.roots, with import.local: "+
			"roots for users of the host")
	}
	if d := o.Opt("deny_symlinks"); d.Exists() && !d.Bool() {
		w.changed(d.Path(), "links are not followed out of a root here")
	} else if d.Exists() {
		w.keepField(d.Path(), "always so")
	}
	q := top.Need("quotas").Object(helixQuotas...)
	if q.Need("max_import_bytes").Exists() {
		w.most(q, "max_import_bytes", "import.max_bytes", 1<<53-1)
	}
}

func (w *policyWriter) docker(v yamldoc.Value) {
	if !v.Exists() {
		return
	}
	o := v.Object("network_mode", "image_allowlist")
	if m := o.Opt("network_mode"); m.Exists() && m.OneOf("NETWORK", "none", "bridge") == "bridge" {
		w.changed(m.Path(), "none: no run has a network")
	}
	for _, img := range o.Opt("image_allowlist").List() {
		w.changed(img.Path(), "left out: "+fault.Clip(img.Text())+"; there is no Docker here. A tool runs as a job, or on this host "+
			"where the policy has local")
	}
}

func (w *policyWriter) limits(top yamldoc.Object) {
	q := top.Opt("quotas").Object(helixQuotas...)
	for _, field := range []string{"max_threads", "max_runtime_seconds"} {
		if v := q.Opt(field); v.Exists() {
			v.Int(1, math.MaxInt64)
			w.changed(v.Path(), "left out: it was about Docker runs; a job has slurm.max_cpus and slurm.max_time_limit_seconds")
		}
	}
	w.b.WriteString("limits:\n")
	bound := func(o yamldoc.Object, field, key string, high, absent int64) {
		v := o.Opt(field)
		n := absent
		if v.Exists() {
			n = v.Int(0, math.MaxInt64)
		}
		if n > high || n < 1 {
			w.changed(v.Path(), fmt.Sprintf("%d in place of %d", min(max(n, 1), high), n))
			n = min(max(n, 1), high)
		} else if v.Exists() {
			w.keepField(v.Path(), "limits."+key)
		}
		w.line(1, key, n)
	}
	bound(q, "max_preview_bytes", "preview_bytes", 65536, 8192)
	bound(q, "max_preview_lines", "preview_lines", 2000, 200)
	s := top.Opt("slurm")
	if !s.Exists() {
		return
	}
	o := s.Object(slices.Collect(func(yield func(string) bool) {
		for _, e := range s.Entries() {
			if !yield(e.Key) {
				return
			}
		}
	})...)
	for _, field := range []string{"max_collect_output_bytes", "max_collect_log_bytes"} {
		if !o.Opt(field).Exists() {
			o.Opt(field).Fail("REQUIRED", "a number: without it HelixMCP collects nothing", field+" is missing", "write it")
		}
	}
	bound(o, "max_collect_output_bytes", "collect_bytes", 1<<53-1, 1)
	bound(o, "max_collect_log_bytes", "log_bytes", 64<<20, 1)
}
