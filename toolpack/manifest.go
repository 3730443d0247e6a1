package toolpack

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// ManifestFile is the name of the manifest in a domain's folder.
const ManifestFile = "manifest.yaml"

// The kinds of tools a manifest declares.
const (
	JobWorker     = "job_worker"     // one container per request: a Slurm job
	ServiceWorker = "service_worker" // long-running, behind an HTTP endpoint
	Hybrid        = "hybrid"
)

// Manifest is manifest.yaml.
//
//	domain_id: genomics
//	version: 1.0.0
//	description: ...                       (optional)
//	artifact_types: [FASTA]                (optional, in addition to those of every gateway)
//	optional_images: [fastqc]              (optional; a tool whose image is one of these is left out while the image lock does not have it)
//	defaults: {...}                        (optional, see [Defaults])
//	tools:
//	  - tool_id: samtools.flagstat
//	    kind: job_worker
//	    timeout_sec: 900                   (optional; a service_worker's may be longer than the pack's timeoutMs, which applies otherwise)
//	    transport: {type: http, base_url: "http://127.0.0.1:9000", endpoint: /run}   (service_worker and hybrid only)
//	    egress_allowlist: ["api.example.org:443"]                                    (optional, with a transport only; shown, not enforced)
//
// A service_worker needs no toolpack: its entry can have all of this itself. A toolpack has it for its own tool.
//
//   - tool_id: web.crawl
//     kind: service_worker               (optional where there is a transport)
//     display_name: Crawl
//     description: ...
//     capabilities: [web_crawl]
//     deterministic: false               (true: the same arguments give the same answer, so a call is answered by an earlier run)
//     sensitive: [api_token]             (arguments that are stored nowhere; not of a deterministic tool)
//     input_schema_ref: schemas/crawl.in.json      (below the domain's folder; any object when absent)
//     output_schema_ref: schemas/crawl.out.json
type Manifest struct {
	DomainID      string
	Version       string
	Description   string
	ArtifactTypes []string
	Optional      []string `json:",omitempty"` // images that the lock may lack
	Tools         []ManifestTool
	Defaults      *Defaults `json:",omitzero"` // what bare toolpacks leave out
}

// ManifestTool is one tool the domain serves.
type ManifestTool struct {
	ToolID          string
	Kind            string
	TimeoutSec      int64 // 0 without one in the manifest
	Transport       *Transport
	EgressAllowlist []string // host:port

	// Of a tool without a toolpack.
	DisplayName     string   `json:",omitzero"`
	Description     string   `json:",omitzero"`
	Capabilities    []string `json:",omitempty"`
	Deterministic   bool     `json:",omitzero"`
	Sensitive       []string `json:",omitempty"` // arguments that are stored nowhere; a toolpack's tool can have them too
	InputSchemaRef  string   `json:",omitzero"`  // a file below the domain's folder
	OutputSchemaRef string   `json:",omitzero"`

	path string // in the document
}

// ownFields are the fields that describe a tool without a toolpack.
var ownFields = []string{"display_name", "description", "capabilities", "deterministic", "input_schema_ref", "output_schema_ref"}

// Transport is the address at which a service worker listens.
type Transport struct {
	Type     string // "http"
	BaseURL  string
	Endpoint string // a path, e.g. /run
}

// maxToolID is the longest id of a tool, in characters.
const maxToolID = 128

// defaultEndpoint is the path at which a worker listens if its entry has none.
const defaultEndpoint = "/run"

var (
	domainID = regexp.MustCompile(`^[a-z][a-z0-9]*([._-][a-z0-9]+)*$`)
	endpoint = regexp.MustCompile(`^/[A-Za-z0-9._~/-]{0,254}$`)

	// A manifest's version may have two parts, as AX writes it.
	manifestVersion = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){1,2}$`)
)

func parseManifest(r *yamldoc.Reader, data []byte) Manifest {
	o := r.Parse(data).Object("domain_id", "version", "description", "artifact_types", "optional_images", "tools", "defaults")
	m := Manifest{
		DomainID:    o.Need("domain_id").Match(domainID, "DOMAIN-ID", "lower-case letters and digits, parts joined by . _ or -"),
		Version:     o.Need("version").Match(manifestVersion, "VERSION", "MAJOR.MINOR.PATCH or MAJOR.MINOR, without suffix"),
		Description: prose(o.Opt("description"), 4096),
		ArtifactTypes: o.Opt("artifact_types").Words("TYPE", "a new type: an upper-case letter, then upper-case letters, digits, _, at most 32",
			func(s string) bool { return plan.IsTypeName(s) && !slices.Contains(filetype.Names(), s) }),
	}
	m.Optional = o.Opt("optional_images").Words("NAME", "lower-case letters, digits, . _ -", imageName.MatchString)
	m.Defaults = readDefaults(o.Opt("defaults"))
	if len(m.DomainID) > 64 {
		o.Opt("domain_id").Fail("DOMAIN-ID", "at most 64 characters", "the id is too long", "shorten it")
	}
	seen := map[string]bool{}
	for _, v := range o.Need("tools").List() {
		e := v.Object(append([]string{"tool_id", "kind", "timeout_sec", "transport", "egress_allowlist", "sensitive"}, ownFields...)...)
		t := ManifestTool{path: v.Path(),
			ToolID:          e.Need("tool_id").Match(manifestID, "TOOL-ID", "the id of a toolpack, or of a worker's tool"),
			Kind:            readKind(e),
			TimeoutSec:      e.Opt("timeout_sec").Int(1, 30*24*3600),
			EgressAllowlist: e.Opt("egress_allowlist").Words("EGRESS", "host:port", plan.IsHostPort),
		}
		if len(t.ToolID) > maxToolID {
			e.Opt("tool_id").Fail("TOOL-ID", "at most 128 characters", "the id is too long", "shorten it")
		}
		if seen[t.ToolID] && t.ToolID != "" {
			e.Opt("tool_id").Fail("DUPLICATE-TOOL", "each tool once",
				`the tool "`+clip(t.ToolID)+`" is listed twice`, "remove one of the two entries")
		}
		seen[t.ToolID] = true
		t.Transport = readTransport(e, t.Kind)
		t.describe(e)
		if v := e.Opt("egress_allowlist"); v.Exists() && !e.Opt("transport").Exists() {
			v.Fail("EGRESS", "only for tools with a transport: a job has no network", "this tool has no transport", "remove it")
		}
		m.Tools = append(m.Tools, t)
	}
	return m
}

// readKind: an entry with a transport is a service_worker if it does not say otherwise.
func readKind(e yamldoc.Object) string {
	if !e.Opt("kind").Exists() && e.Opt("transport").Exists() {
		return ServiceWorker
	}
	return e.Need("kind").OneOf("KIND", JobWorker, ServiceWorker, Hybrid)
}

// describe reads the fields of a tool without a toolpack.
func (t *ManifestTool) describe(e yamldoc.Object) {
	t.DisplayName, t.Description = prose(e.Opt("display_name"), 128), prose(e.Opt("description"), 4096)
	t.Capabilities = purposes(e.Opt("capabilities"))
	t.Deterministic = e.Opt("deterministic").Bool()
	t.InputSchemaRef, t.OutputSchemaRef = e.Opt("input_schema_ref").Text(), e.Opt("output_schema_ref").Text()
	v := e.Opt("sensitive")
	t.Sensitive = v.Words("SENSITIVE", "the name of an argument: letters, digits and _", paramName.MatchString)
	if len(t.Sensitive) > 0 && t.Kind != "" && t.Kind != ServiceWorker {
		v.Fail("SENSITIVE", "only for a service_worker: a job's arguments are part of its record", "a "+t.Kind+" cannot have them", "remove it")
	}
}

func readTransport(e yamldoc.Object, kind string) *Transport {
	v := e.Opt("transport")
	switch {
	case kind == ServiceWorker && !v.Exists():
		e.Fail("TRANSPORT", "a transport, for a service_worker", "transport is missing", "add it")
		return nil
	case kind == JobWorker && v.Exists():
		v.Fail("TRANSPORT", "only for services: a job_worker runs as a Slurm job", "a job_worker cannot have one", "remove it")
		return nil
	case !v.Exists():
		return nil
	}
	o := v.Object("type", "base_url", "endpoint")
	t := &Transport{Type: o.Need("type").OneOf("TRANSPORT", "http"), BaseURL: o.Need("base_url").Text(), Endpoint: defaultEndpoint}
	if t.BaseURL != "" && !isBaseURL(t.BaseURL) {
		o.Opt("base_url").Fail("TRANSPORT", "an http or https URL without user, query or fragment", `"`+clip(t.BaseURL)+`" is not such a URL`, "")
	}
	if p := o.Opt("endpoint"); p.Exists() {
		t.Endpoint = p.Match(endpoint, "TRANSPORT", "a path such as /run")
	}
	return t
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && (u.Port() == "" || plan.IsPort(u.Port())) &&
		u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// match compares packs and manifest: both must list exactly the same tools, of kinds that fit.
func (m Manifest) match(r *yamldoc.Reader, packs []*Pack) (found []fault.Problem) {
	byID := map[string]*Pack{}
	for _, p := range packs {
		byID[p.def.ID] = p
	}
	listed := map[string]bool{}
	for _, t := range m.Tools {
		listed[t.ToolID] = true
		p := byID[t.ToolID]
		if p == nil {
			if t.ToolID != "" && t.Kind != ServiceWorker {
				r.Add("TOOL-MISSING", t.path+".tool_id", "a toolpack in toolpacks/ for each tool",
					`there is no toolpack with the id "`+clip(t.ToolID)+`"`, "add the toolpack or remove the entry")
			}
			continue
		}
		if want := kindOf(p); want != "" && t.Kind != "" && t.Kind != want && t.Kind != Hybrid {
			r.Add("KIND", t.path+".kind", "the kind of the toolpack", "the kind "+t.Kind+" does not fit the toolpack", "write "+want)
		}
		t.checkTimeout(r, p)
		for _, f := range ownFields {
			if r.Has(t.path+"."+f) && !(f == "output_schema_ref" && t.Kind == Hybrid) {
				r.Add("OWN-FIELD", t.path+"."+f, "only for a tool without a toolpack",
					"the toolpack of "+t.ToolID+" says this already", "remove it here")
			}
		}
	}
	for _, p := range packs {
		if id := p.def.ID; id != "" && !listed[id] {
			found = append(found, fault.Problem{Code: "PACK-UNLISTED", Field: "id", Rule: "every toolpack must be listed in " + ManifestFile,
				Msg: ManifestFile + ` does not list the toolpack "` + id + `"`, Hint: "add {tool_id: " + id + ", kind: " + JobWorker + "} to its tools",
				File: p.file, Line: p.idAt.line, Column: p.idAt.column})
		}
	}
	return found
}

// checkTimeout reports a timeout that differs from the pack's: a run ends by its pack's timeoutMs, so the manifest
// may not promise a job another time.
func (t ManifestTool) checkTimeout(r *yamldoc.Reader, p *Pack) {
	sec := p.timeoutSec()
	want, got := strconv.FormatInt(sec, 10)+" s", strconv.FormatInt(t.TimeoutSec, 10)+" s"
	switch {
	case t.TimeoutSec == 0 || t.TimeoutSec == sec:
	case t.TimeoutSec < sec:
		r.Add("TIMEOUT", t.path+".timeout_sec", "at least the toolpack's timeoutMs, "+want,
			got+" is less than the toolpack's timeoutMs", "raise it, or leave it out")
	case t.Kind != ServiceWorker:
		r.Add("TIMEOUT", t.path+".timeout_sec", "the toolpack's timeoutMs, "+want,
			got+" is more than the toolpack's timeoutMs, which ends its runs", "leave it out, or raise timeoutMs")
	}
}

func kindOf(p *Pack) string {
	switch {
	case p.def.Execution.Kind == "http":
		return ServiceWorker
	case p.def.PlanKind == KindHybrid:
		return Hybrid
	case p.def.PlanKind != "":
		return JobWorker
	}
	return ""
}
