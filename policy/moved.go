package policy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"slurmgate/plan"
)

// moved are the keys that were part of the policy, and of its hash, before they moved to the site file: where data lies at a site is no
// reason for another run.
var moved = [][]string{{"import", "roots"}}

// withoutMoved takes the moved keys out of a document, and a section that is empty without them, and names those that were there.
func withoutMoved(tree any) (found []string) {
	doc, _ := tree.(map[string]any)
	for _, key := range moved {
		section, _ := doc[key[0]].(map[string]any)
		if _, ok := section[key[1]]; !ok {
			continue
		}
		found = append(found, strings.Join(key, "."))
		if delete(section, key[1]); len(section) == 0 {
			delete(doc, key[0])
		}
	}
	return found
}

// HashNow returns the hash that a stored snapshot has now: an older one may hold keys that have moved.
func HashNow(snapshot json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(snapshot))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return "", err
	}
	if len(withoutMoved(tree)) == 0 {
		return plan.Hash(snapshot), nil
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return "", err
	}
	canonical, err := plan.Canonical(raw)
	return plan.Hash(canonical), err
}

// Notes says what the file should no longer have, for whoever maintains it.
func (p *Policy) Notes() []string {
	var out []string
	for _, key := range slices.Sorted(slices.Values(p.Moved)) {
		out = append(out, "policies.yaml: "+key+" belongs in the site file now; move it there. "+
			"Until the site file has it, the value here is used; it is no longer part of the policy's hash")
	}
	return out
}
