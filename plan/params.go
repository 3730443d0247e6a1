package plan

import (
	"encoding/json"
	"slices"
	"strings"
)

// ToolExtra holds what a toolpack adds to the canonical params: how its runs are judged, and what they see besides
// the plan. A field added after version 1 is absent from the bytes when the pack does not use it.
type ToolExtra struct {
	Version        string `json:"version"`
	MaxOutputBytes int64  `json:"max_output_bytes"`
	StrictOutputs  bool   `json:"strict_outputs"`
	Binds          []Bind `json:"binds,omitempty"` // folders of the site, in the order of their names
	// Promises are the inputs of a waiting run whose bytes are not known yet. A plan that is executed has none.
	Promises []Promised `json:"promises,omitempty"`
}

// Bind is a folder of the site that a toolpack asks for by name, at the version that the site gave it.
type Bind struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Asked returns the folders of the site that the plan asks for; a plan without a toolpack has none.
func (x *ToolExtra) Asked() []Bind {
	if x == nil {
		return nil
	}
	return x.Binds
}

// Params are the canonical params of a run: of a Slurm plan, of a docker plan, which runs on the gateway's own host,
// or of a call of a service worker. They contain what the program sees and what the caller asked for, and no decision
// of a site.
type Params struct {
	ProjectID  string
	Script     string     // slurm_script_version
	Spec       Spec       // of a docker plan: without placement, and with inputs below in/
	Tool       *ToolExtra // nil for a plan without a toolpack
	Docker     bool       // a docker plan, which runs on the gateway's own host; false: a plan for Slurm
	ExecutedAs string     // the cluster's Unix user who owns the job; empty: the gateway's own, as for every docker plan
	Worker     *Call      // a call of a service worker, without a plan: of the other fields only ProjectID is used. nil: a plan
}

// Call is a call of a service worker: the input of its run's identity.
type Call struct {
	Input json.RawMessage `json:"input"` // input of the worker, without the values of sensitive arguments
	// ID is the call's own id, the snapshot boundary of an answer that may change later (ARC-11). It is absent where
	// the tool is deterministic: the same input is the same run.
	ID          string `json:"call,omitempty"`
	ToolVersion string `json:"tool_version"`
}

// Site returns the site that the caller named, empty where policy picks one. A docker plan names none: it can only
// run in one place.
func (p Params) Site() string { return OrBlank(p.Spec.Placement.Site) }

// Anyones returns the params of the same request without site and user. Its runs on all sites and for all users share
// this plan_hash.
func (p Params) Anyones() Params {
	p.Spec.Placement.Site, p.ExecutedAs = nil, ""
	return p
}

// dockerParams is the canonical form of a docker plan: inputs have names in in/, and there is nothing about Slurm.
type dockerParams struct {
	SpecVersion   int           `json:"spec_version"`
	ScriptVersion string        `json:"script_version"`
	Resources     Resources     `json:"resources"`
	Execution     Execution     `json:"execution"`
	Inputs        []dockerInput `json:"inputs"`
	Outputs       []Output      `json:"outputs"`
}

type dockerInput struct {
	Role           string `json:"role"`
	ArtifactID     string `json:"artifact_id,omitzero"` // absent from a toolpack's canonical params
	ChecksumSHA256 string `json:"checksum_sha256"`
	DestName       string `json:"dest_name"`
	Directory      bool   `json:"directory,omitzero"`
}

func dockerInputs(in []Input) []dockerInput {
	out := []dockerInput{}
	for _, in := range in {
		out = append(out, dockerInput{in.Role, in.ArtifactID, in.ChecksumSHA256, strings.TrimPrefix(in.DestRelpath, "in/"), in.Directory})
	}
	return out
}

func (d *dockerParams) spec() Spec {
	s := Spec{Version: d.SpecVersion, Resources: d.Resources, Execution: d.Execution, IO: IO{Inputs: []Input{}, Outputs: d.Outputs}}
	for _, in := range d.Inputs {
		s.IO.Inputs = append(s.IO.Inputs, Input{in.Role, in.ArtifactID, in.ChecksumSHA256, "in/" + in.DestName, in.Directory})
	}
	return s
}

type slurmParams struct {
	SpecVersion   int            `json:"spec_version"`
	ScriptVersion string         `json:"slurm_script_version"`
	Resources     Resources      `json:"resources"`
	Placement     AskedPlacement `json:"placement"`
	Execution     Execution      `json:"execution"`
	IO            IO             `json:"io"`
	ExecutedAs    string         `json:"executed_as,omitempty"`
}

// AskedPlacement is a placement as requested: null where the request has no value.
type AskedPlacement struct {
	Partition  *string `json:"partition"`
	Account    *string `json:"account"`
	QOS        *string `json:"qos"`
	Constraint *string `json:"constraint"`
	Site       *string `json:"site,omitzero"` // absent, not null, where the caller named none: so the field changes no older identity
}

func asked(p Placement) AskedPlacement {
	return AskedPlacement{OrNil(p.Partition), OrNil(p.Account), p.QOS, p.Constraint, p.Site}
}

// Placement returns the placement, with fields empty where the request has no value.
func (a AskedPlacement) Placement() Placement {
	return Placement{OrBlank(a.Partition), OrBlank(a.Account), a.QOS, a.Constraint, a.Site}
}

type wireParams struct {
	ProjectID string        `json:"project_id"`
	Slurm     *slurmParams  `json:"slurm,omitempty"`
	Docker    *dockerParams `json:"docker,omitempty"`
	Tool      *ToolExtra    `json:"tool,omitempty"`
	Worker    *Call         `json:"worker,omitempty"`
}

// Canonical returns the bytes that are hashed and stored once in param_sets. They contain a toolpack's inputs without
// artifact_id: the program sees only their bytes. If a template or a runner's arguments show a part of an artifact,
// that is in argv, in env or in a separate input.
func (p Params) Canonical() ([]byte, error) {
	return Marshal(p.Stored().wire())
}

func (p Params) wire() wireParams {
	s, w := p.Spec, wireParams{ProjectID: p.ProjectID, Tool: p.Tool}
	if p.Worker != nil {
		return wireParams{ProjectID: p.ProjectID, Worker: p.Worker}
	}
	if p.Docker {
		w.Docker = &dockerParams{s.Version, p.Script, s.Resources, s.Execution, dockerInputs(s.IO.Inputs), s.IO.Outputs}
	} else {
		w.Slurm = &slurmParams{s.Version, p.Script, s.Resources, asked(s.Placement), s.Execution, s.IO, p.ExecutedAs}
	}
	return w
}

// Stored returns the content of the canonical params: the result of [DecodeParams].
func (p Params) Stored() Params {
	if p.Tool == nil {
		return p
	}
	p.Spec.IO.Inputs = slices.Clone(p.Spec.IO.Inputs)
	for i := range p.Spec.IO.Inputs {
		p.Spec.IO.Inputs[i].ArtifactID = ""
	}
	return p
}

// DecodeParams reads canonical params back. Everything after a submit executes from these bytes, or from the
// [Params.Stored] that they were written from.
func DecodeParams(canonical []byte) (Params, error) {
	var w wireParams
	if err := (Doc{Bytes: canonical}).Into(&w); err != nil {
		return Params{}, err
	}
	kinds := 0
	for _, is := range []bool{w.Slurm != nil, w.Docker != nil, w.Worker != nil} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1 || w.Worker != nil && w.Tool != nil:
		return Params{}, bad("PARAMS-KIND", "", "one of slurm, docker and worker; tool only with a plan",
			"slurm, docker and worker are all missing, or several of them are given")
	case w.Worker != nil:
		return Params{ProjectID: w.ProjectID, Worker: w.Worker}, nil
	case w.Docker != nil:
		return Params{ProjectID: w.ProjectID, Script: w.Docker.ScriptVersion, Spec: w.Docker.spec(), Tool: w.Tool, Docker: true}, nil
	}
	s := w.Slurm
	if msg := CheckUnixUser(s.ExecutedAs); s.ExecutedAs != "" && msg != "" {
		return Params{}, bad("EXECUTED-AS", "slurm.executed_as", "the name of a Unix user", msg)
	}
	return Params{ProjectID: w.ProjectID, Script: s.ScriptVersion, Tool: w.Tool, ExecutedAs: s.ExecutedAs,
		Spec: Spec{s.SpecVersion, s.Resources, s.Placement.Placement(), s.Execution, s.IO}}, nil
}

// OrNil returns a pointer to a text, nil for an empty one.
func OrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// OrBlank returns the text that a pointer points to, or "" for nil.
func OrBlank(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
