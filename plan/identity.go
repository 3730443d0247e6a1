package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"strings"
)

// Hash is "sha256:" and the hex SHA-256 of canonical bytes: the form of policy_hash, params_hash and
// pack_hash.
func Hash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Identity is what a run is the same by (ABI-07).
type Identity struct {
	ToolName        string
	ContractVersion string
	PolicyHash      string
	ParamsHash      string
}

// RunID is "run_" and the first 16 bytes of the identity's SHA-256 in base32.
func (i Identity) RunID() string {
	return id("run_", "tool="+i.ToolName+"|contract="+i.ContractVersion+"|policy="+i.PolicyHash+"|params="+i.ParamsHash+"|")
}

// PlanHash is the identity without the policy: equal for the same request under two policies.
func (i Identity) PlanHash() string {
	return Hash([]byte("tool=" + i.ToolName + "|contract=" + i.ContractVersion + "|params=" + i.ParamsHash + "|"))
}

// ProjectID derives the id of a project from its name.
func ProjectID(name string) string { return id("proj_", "project="+name+"|") }

// CheckProject says what is wrong with how a project is named, "" when nothing: by its id, or by a name that is whitespace-strict, not * (which
// stands for every project where projects are granted) and does not look like an id. Every face and file goes by this.
func CheckProject(s string) string {
	switch {
	case IsProjectID(s):
		return ""
	case s == "*":
		return "* stands for every project"
	case strings.HasPrefix(s, "proj_"):
		return "it begins with proj_ and is not a project id (proj_ and 26 characters)"
	}
	return CheckWord(s)
}

// ProjectOf is the id of a project named as [CheckProject] allows.
func ProjectOf(s string) string {
	if IsProjectID(s) {
		return s
	}
	return ProjectID(s)
}

// ArtifactID derives the id of an artifact; the same bytes imported twice under one label are the same
// artifact.
func ArtifactID(project, sha256Hex, typ, label string) (string, error) {
	canonical, err := Marshal(struct {
		Project string `json:"project"`
		SHA256  string `json:"sha256"`
		Type    string `json:"type"`
		Label   string `json:"label"`
	}{project, sha256Hex, typ, label})
	if err != nil {
		return "", err
	}
	return id("art_", string(canonical)), nil
}

func id(prefix, text string) string {
	sum := sha256.Sum256([]byte(text))
	return prefix + base32c(sum[:16])
}

// base32c writes 16 bytes as a big-endian number in Crockford's alphabet: 26 characters.
func base32c(b []byte) string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	n := new(big.Int).SetBytes(b)
	var out [26]byte
	base, digit := big.NewInt(32), new(big.Int)
	for i := len(out) - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = alphabet[digit.Int64()]
	}
	return string(out[:])
}

// ToolExtra is what a toolpack adds to the canonical params: what else decides how its runs are judged.
type ToolExtra struct {
	Version        string `json:"version"`
	MaxOutputBytes int64  `json:"max_output_bytes"`
	StrictOutputs  bool   `json:"strict_outputs"`
}

// Params are the canonical params of a run: of a Slurm plan, or of a docker plan, which runs on the gateway's own host.
type Params struct {
	ProjectID string
	Script    string     // slurm_script_version
	Spec      Spec       // of a docker plan: with the placement [LocalPlacement] and inputs below in/
	Tool      *ToolExtra // nil for a plan submitted as it is
}

// LocalPlacement is the placement of what runs on the gateway's own host. No partition of a cluster can be meant: it is set by
// the canonical params' kind alone, never by a caller.
func LocalPlacement() Placement { return Placement{Partition: localPlace, Account: localPlace} }

const localPlace = "local@gateway" // no Slurm name

// Local tells whether the plan runs on the gateway's own host.
func (s Spec) Local() bool { return s.Placement.Partition == localPlace }

// dockerParams is a docker plan: an input has a name in in/, and there is nothing about Slurm.
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
	ArtifactID     string `json:"artifact_id"`
	ChecksumSHA256 string `json:"checksum_sha256"`
	DestName       string `json:"dest_name"`
}

func toDocker(p Params) *dockerParams {
	d := &dockerParams{p.Spec.Version, p.Script, p.Spec.Resources, p.Spec.Execution, []dockerInput{}, p.Spec.IO.Outputs}
	for _, in := range p.Spec.IO.Inputs {
		d.Inputs = append(d.Inputs, dockerInput{in.Role, in.ArtifactID, in.ChecksumSHA256, strings.TrimPrefix(in.DestRelpath, "in/")})
	}
	return d
}

func (d *dockerParams) spec() Spec {
	s := Spec{Version: d.SpecVersion, Resources: d.Resources, Placement: LocalPlacement(), Execution: d.Execution, IO: IO{Inputs: []Input{}, Outputs: d.Outputs}}
	for _, in := range d.Inputs {
		s.IO.Inputs = append(s.IO.Inputs, Input{in.Role, in.ArtifactID, in.ChecksumSHA256, "in/" + in.DestName})
	}
	return s
}

type slurmParams struct {
	SpecVersion   int       `json:"spec_version"`
	ScriptVersion string    `json:"slurm_script_version"`
	Resources     Resources `json:"resources"`
	Placement     Placement `json:"placement"`
	Execution     Execution `json:"execution"`
	IO            IO        `json:"io"`
}

type wireParams struct {
	ProjectID string        `json:"project_id"`
	Slurm     *slurmParams  `json:"slurm,omitempty"`
	Docker    *dockerParams `json:"docker,omitempty"`
	Tool      *ToolExtra    `json:"tool,omitempty"`
}

// Canonical gives the bytes that are hashed and stored once in param_sets.
func (p Params) Canonical() ([]byte, error) {
	if p.Spec.Local() {
		return Marshal(wireParams{p.ProjectID, nil, toDocker(p), p.Tool})
	}
	return Marshal(wireParams{p.ProjectID, &slurmParams{p.Spec.Version, p.Script, p.Spec.Resources, p.Spec.Placement, p.Spec.Execution, p.Spec.IO}, nil, p.Tool})
}

// DecodeParams reads canonical params back; everything downstream of a submit executes from these bytes.
func DecodeParams(canonical []byte) (Params, error) {
	var w wireParams
	if err := Decode(canonical, &w); err != nil {
		return Params{}, err
	}
	switch {
	case (w.Slurm == nil) == (w.Docker == nil):
		return Params{}, bad("PARAMS-KIND", "", "either slurm or docker", "both or neither are there")
	case w.Docker != nil:
		return Params{w.ProjectID, w.Docker.ScriptVersion, w.Docker.spec(), w.Tool}, nil
	}
	return Params{w.ProjectID, w.Slurm.ScriptVersion, Spec{w.Slurm.SpecVersion, w.Slurm.Resources, w.Slurm.Placement, w.Slurm.Execution, w.Slurm.IO}, w.Tool}, nil
}
