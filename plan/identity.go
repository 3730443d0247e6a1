package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"math/big"
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

// Params are the canonical params of a Slurm run.
type Params struct {
	ProjectID string
	Script    string // slurm_script_version
	Spec      Spec
	Tool      *ToolExtra // nil for a plan submitted as it is
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
	ProjectID string      `json:"project_id"`
	Slurm     slurmParams `json:"slurm"`
	Tool      *ToolExtra  `json:"tool,omitempty"`
}

// Canonical gives the bytes that are hashed and stored once in param_sets.
func (p Params) Canonical() ([]byte, error) {
	return Marshal(wireParams{p.ProjectID, slurmParams{p.Spec.Version, p.Script, p.Spec.Resources, p.Spec.Placement, p.Spec.Execution, p.Spec.IO}, p.Tool})
}

// DecodeParams reads canonical params back; everything downstream of a submit executes from these bytes.
func DecodeParams(canonical []byte) (Params, error) {
	var w wireParams
	if err := Decode(canonical, &w); err != nil {
		return Params{}, err
	}
	return Params{w.ProjectID, w.Slurm.ScriptVersion, Spec{w.Slurm.SpecVersion, w.Slurm.Resources, w.Slurm.Placement, w.Slurm.Execution, w.Slurm.IO}, w.Tool}, nil
}
