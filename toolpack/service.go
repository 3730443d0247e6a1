package toolpack

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Service is a tool that a worker can carry out: the gateway sends its calls to URL. It is immutable.
type Service struct {
	ID              string
	Name            string // the tool name: MCP's, and T in a run's identity
	Kind            string // ServiceWorker, or Hybrid: a job can carry it out, too
	Version         string // semantic version: the toolpack's, else the manifest's with three parts
	ContractVersion string
	Title           string
	Description     string
	Purposes        []string
	TimeoutSec      int64 // 0: the policy's default
	URL             string
	Headers         map[string]string // sent with each call; they hold no secret
	Input           json.RawMessage   // JSON Schema of the arguments, self-contained
	Output          json.RawMessage   // likewise of the answer
	Egress          []string          // host:port the worker talks to; metadata
	Deterministic   bool              // the same arguments give the same answer
	Sensitive       []string          // arguments that are stored nowhere
	Hash            string            // of the definition; what a run remembers as pack_hash
	Definition      json.RawMessage   // canonical JSON that [ReadContract] reads

	in, out contract
}

// Arguments returns the arguments of a call as canonical JSON, with the schema's defaults. Arguments that the schema
// does not allow are a Validation fault.
func (s Service) Arguments(args json.RawMessage) (json.RawMessage, error) {
	values, err := s.in.arguments(s.ID, args)
	if err != nil {
		return nil, err
	}
	return yamldoc.Canonical(values)
}

// Contract returns the rules for the worker's answers.
func (s Service) Contract() *Contract {
	return &Contract{id: s.ID, out: s.out, timeout: milliseconds(s.TimeoutSec * 1000)}
}

// service is the form in which a tool without a toolpack is hashed and stored: a toolpack's, and what only its manifest entry can say.
type service struct {
	definition
	Egress    []string `json:"egress,omitempty"`
	Sensitive []string `json:"sensitive,omitempty"`
}

// serviceReader makes the services of a manifest.
type serviceReader struct {
	*yamldoc.Reader
	schemas *schemaFiles
	taken   map[string]string // names of the gateway's own operations → ids
	byName  map[string]*Pack
	version string
	list    []Service
	found   []fault.Problem // in other files
}

func (m Manifest) services(r *yamldoc.Reader, schemas *schemaFiles, packs []*Pack, taken map[string]string) serviceReader {
	out := serviceReader{Reader: r, schemas: schemas, taken: taken, byName: map[string]*Pack{}, version: m.Version}
	if strings.Count(m.Version, ".") == 1 {
		out.version += ".0"
	}
	byID := map[string]*Pack{}
	for _, p := range packs {
		byID[p.def.ID], out.byName[p.ToolName()] = p, p
	}
	names := map[string]string{}
	for i := range m.Tools {
		t := &m.Tools[i]
		p := byID[t.ToolID]
		switch {
		case t.ToolID == "" || t.Transport == nil || p == nil && t.Kind != ServiceWorker:
		case p == nil:
			if other := names[toolName(t.ToolID)]; other != "" && other != t.ToolID {
				r.Add("TOOL-NAME", t.path+".tool_id", "each tool name once", other+" already has this tool name", "choose another id")
			}
			names[toolName(t.ToolID)] = t.ToolID
			out.bare(*t)
		default:
			out.packed(t, p)
		}
	}
	return out
}

// onlyServices reports whether no tool of the manifest runs as a job.
func (m Manifest) onlyServices() bool {
	return len(m.Tools) > 0 && !slices.ContainsFunc(m.Tools, func(t ManifestTool) bool { return t.Kind != ServiceWorker })
}

// of makes a service from an entry.
func (r *serviceReader) of(t ManifestTool) Service {
	return Service{ID: t.ToolID, Name: toolName(t.ToolID), Kind: t.Kind, Version: r.version, ContractVersion: "v1", Title: t.DisplayName,
		Description: t.Description, Purposes: t.Capabilities, TimeoutSec: t.TimeoutSec, URL: t.Transport.URL(), Headers: map[string]string{},
		Egress: t.EgressAllowlist, Deterministic: t.Deterministic, Sensitive: t.Sensitive}
}

// bare makes the service of an entry without a toolpack.
func (r *serviceReader) bare(t ManifestTool) {
	s := r.of(t)
	if s.Title == "" {
		s.Title = s.ID
	}
	switch own, twin := r.taken[s.Name], r.byName[s.Name]; {
	case own != "":
		r.Add("TOOL-NAME", t.path+".tool_id", "no id or name of the gateway's own operations",
			`"`+clip(s.Name)+`" is the name of the operation `+own, "choose another id")
	case twin != nil:
		r.Add("TOOL-NAME", t.path+".tool_id", "each tool name once", twin.file+" already has this tool name", "choose another id")
	}
	s.in = r.schema(t.path+".input_schema_ref", t.InputSchemaRef, true)
	s.out = r.schema(t.path+".output_schema_ref", t.OutputSchemaRef, false)
	s.Input, s.Output = s.in.raw, s.out.raw
	r.sensitive(t, s)
	if s.in.schema == nil || s.out.schema == nil {
		return
	}
	doc, err := plan.Marshal(service{Egress: s.Egress, Sensitive: s.Sensitive, definition: definition{ID: s.ID, Version: s.Version,
		ABIVersion: ABIVersion, ContractVersion: s.ContractVersion, DisplayName: s.Title, Description: s.Description, Capabilities: s.Purposes,
		Deterministic: s.Deterministic, TimeoutMs: s.TimeoutSec * 1000, InputSchema: s.Input, OutputSchema: s.Output,
		Execution: execution{Kind: "http", URL: s.URL, Method: "POST"}}})
	if err != nil {
		r.Add("HASH", t.path, "canonical JSON of bounded size", fault.First(err), "")
		return
	}
	s.Definition, s.Hash = doc, plan.Hash(doc)
	r.list = append(r.list, s)
}

// packed makes the service of an entry whose toolpack describes the tool.
func (r *serviceReader) packed(t *ManifestTool, p *Pack) {
	d := p.def
	if d.Execution.Kind == "http" {
		r.aim(t, p)
	}
	s := r.of(*t)
	s.Name, s.Version, s.ContractVersion, s.Deterministic = p.ToolName(), p.Version(), d.ContractVersion, d.Deterministic
	s.Title, s.Description, s.Purposes = d.DisplayName, d.Description, p.Capabilities()
	s.in, s.out = p.in, p.out
	if d.Execution.Kind == "http" {
		s.URL, s.Headers = d.Execution.URL, maps.Clone(d.Execution.Headers)
	} else { // a pack describes the output of a job
		s.out = r.schema(t.path+".output_schema_ref", t.OutputSchemaRef, false)
	}
	if s.Input, s.Output = s.in.raw, s.out.raw; s.TimeoutSec == 0 {
		s.TimeoutSec = p.timeoutSec()
	}
	r.sensitive(*t, s)
	if p.canonical == nil || s.out.schema == nil {
		return // it breaks a rule
	}
	s.Hash = p.hash
	s.Definition, _ = p.canonical()
	r.list = append(r.list, s)
}

// aim compares the address in an http toolpack with the manifest's: the gateway talks to no other.
func (r *serviceReader) aim(t *ManifestTool, p *Pack) {
	at, base := p.def.Execution.URL, t.Transport.BaseURL
	rest, ok := below(at, base)
	given := r.Has(t.path + ".transport.endpoint")
	switch {
	case at == "" || base == "":
		return
	case p.def.Execution.Method != "POST":
		r.Add("TRANSPORT", t.path, "POST, for a worker", "the toolpack has the method "+p.def.Execution.Method,
			"put a worker in front of the service and remove execution.method")
	case !ok:
		r.Add("TRANSPORT", t.path+".transport.base_url", "the beginning of the toolpack's execution.url",
			`the toolpack's URL "`+clip(at)+`" does not begin with `+clip(base), "correct one of the two")
	case given && rest != t.Transport.Endpoint:
		r.Add("TRANSPORT", t.path+".transport.endpoint", "the rest of the toolpack's execution.url",
			"the toolpack's URL ends in "+clip(rest), "leave endpoint out, or correct it")
	default:
		t.Transport.Endpoint = rest
	}
}

// below returns the rest of an address that begins with base: a path, perhaps with a query.
func below(at, base string) (rest string, ok bool) {
	u, err := url.Parse(at)
	b, baseErr := url.Parse(base)
	if err != nil || baseErr != nil || u.Scheme != b.Scheme || !strings.EqualFold(u.Host, b.Host) {
		return "", false
	}
	root := strings.TrimSuffix(b.Path, "/")
	rest, ok = strings.CutPrefix(u.EscapedPath(), root)
	if !ok || rest != "" && rest[0] != '/' || slices.Contains(strings.Split(u.Path, "/"), "..") {
		return "", false
	}
	if u.RawQuery != "" {
		rest += "?" + u.RawQuery
	}
	return rest, true
}

// schema reads a schema that an entry refers to. Without one, any object will do.
func (r *serviceReader) schema(field, ref string, isInput bool) contract {
	var doc any = map[string]any{"type": "object", "additionalProperties": true}
	if ref != "" {
		doc = map[string]any{"$ref": ref}
	}
	c, found := r.schemas.contract(&draft{Reader: r.Reader, rel: ManifestFile}, field, isInput, doc)
	for _, p := range found {
		if p.File == r.File { // the reference itself, or what it leads to as a whole
			p.Code = "MANIFEST-SCHEMA"
			p.Field = strings.TrimSuffix(p.Field, ".$ref")
		}
		r.found = append(r.found, p)
	}
	if len(found) > 0 {
		return contract{}
	}
	return c
}

func (r *serviceReader) sensitive(t ManifestTool, s Service) {
	field := t.path + ".sensitive"
	if len(s.Sensitive) > 0 && s.Deterministic {
		r.Add("SENSITIVE", field, "not of a deterministic tool, whose arguments are stored to find its runs again",
			s.ID+" is deterministic", "remove one of the two")
	}
	for _, name := range s.Sensitive {
		if _, declared := s.in.props[name]; s.in.schema != nil && !declared && s.in.closed {
			r.Add("SENSITIVE", field, "arguments of the input schema", "the tool has no argument "+clip(name),
				plan.DidYouMean(name, slices.Sorted(maps.Keys(s.in.props))))
		}
	}
}

// URL returns the address that calls go to.
func (t Transport) URL() string { return strings.TrimSuffix(t.BaseURL, "/") + t.Endpoint }
