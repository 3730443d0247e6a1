package policy

import (
	"strings"
	"testing"

	"slurmgate/plan"
)

// Where files come from is the site's to say and no part of the policy's hash. A policies.yaml that still says it works, and says that it
// should not; a snapshot stored with it hashes to what the policy hashes to now.
//
// proves ARC-03
func TestMovedKeys(t *testing.T) {
	for _, c := range []struct{ with, without string }{
		{"version: 1\nimport: {roots: [/data]}\n", "version: 1\n"},
		{"version: 1\nimport: {roots: [/data, /more], max_bytes: 10}\nslurm: {max_cpus: 2}\n",
			"version: 1\nimport: {max_bytes: 10}\nslurm: {max_cpus: 2}\n"},
	} {
		old, now := parse(t, c.with), parse(t, c.without)
		if old.Hash != now.Hash || strings.Contains(string(old.Snapshot), "roots") || plan.Hash(old.Snapshot) != old.Hash {
			t.Errorf("%s hashes to %s, without the key to %s\n%s", c.with, old.Hash, now.Hash, old.Snapshot)
		}
		if len(old.Import.Roots) == 0 || !old.Moved || len(old.Notes()) != 1 || len(now.Notes()) != 0 {
			t.Errorf("%+v %v %v, without it %v", old.Import, old.Moved, old.Notes(), now.Notes())
		}
	}
	// As the program stored it when the key was hashed.
	now := parse(t, "version: 1\nimport: {max_bytes: 9007199254740991}\n")
	for snapshot, same := range map[string]bool{
		`{"import":{"max_bytes":9007199254740991,"roots":["/data"]},"version":1}`: true,
		`{"import":{"max_bytes":9007199254740991},"version":1}`:                   true,
		`{"import":{"max_bytes":1,"roots":["/data"]},"version":1}`:                false,
	} {
		if hash, err := HashNow([]byte(snapshot)); err != nil || (hash == now.Hash) != same {
			t.Errorf("%s: %s %v, the policy has %s", snapshot, hash, err, now.Hash)
		}
	}
	if hash, err := HashNow([]byte(`{"import":{},"version":1}`)); err != nil || hash != parse(t, "version: 1\nimport: {}\n").Hash {
		t.Error(hash, err)
	}
	if _, err := HashNow([]byte(`{`)); err == nil {
		t.Error("half a snapshot has a hash")
	}
}
