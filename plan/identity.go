package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
)

// Hash returns "sha256:" and the hex SHA-256 of canonical bytes: the form of policy_hash, params_hash and pack_hash.
func Hash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Identity decides which requests are the same run (ABI-07).
type Identity struct {
	ToolName        string
	ContractVersion string
	PolicyHash      string
	ParamsHash      string
	AnyonesHash     string // of [Params.Anyones]; empty: the same as ParamsHash
}

// RunID returns "run_" and the first 16 bytes of the identity's SHA-256 in base32.
func (i Identity) RunID() string {
	return id("run_", "tool="+i.ToolName+"|contract="+i.ContractVersion+"|policy="+i.PolicyHash+"|params="+i.ParamsHash+"|")
}

// PlanHash returns the hash of the identity without policy, site and user: equal for the same request under two
// policies, on two sites or for two users.
func (i Identity) PlanHash() string {
	return Hash([]byte("tool=" + i.ToolName + "|contract=" + i.ContractVersion + "|params=" + cmp.Or(i.AnyonesHash, i.ParamsHash) + "|"))
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

// Handle returns a prefix and the first 16 bytes of a hash in base32.
func Handle(prefix string, sum []byte) string { return prefix + base32c(sum[:16]) }

// base32c writes 16 bytes as a big-endian number in Crockford's alphabet: 26 characters.
func base32c(b []byte) string {
	return crockford.EncodeToString(append(make([]byte, 4), b...))[6:] // 20 bytes are 32 characters; the first 6 encode only zeros
}

const crockfordDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

var crockford = base32.NewEncoding(crockfordDigits)
