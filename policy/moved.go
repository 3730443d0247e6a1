package policy

import (
	"encoding/json"

	"slurmgate/plan"
)

// withoutMoved takes import.roots out of a document, with a section that is empty without it, and reports whether it was there. The key was
// part of the policy, and of its hash, before it moved to the site file: where data lies at a site is no reason for another run.
func withoutMoved(tree any) bool {
	doc, _ := tree.(map[string]any)
	section, _ := doc["import"].(map[string]any)
	if _, found := section["roots"]; !found {
		return false
	}
	if delete(section, "roots"); len(section) == 0 {
		delete(doc, "import")
	}
	return true
}

// HashNow returns the hash that a stored snapshot has now: an older one may hold the key that has moved.
func HashNow(snapshot json.RawMessage) (string, error) {
	doc, err := plan.Read(snapshot)
	if err != nil {
		return "", err
	}
	withoutMoved(doc.Value)
	canonical, err := plan.Marshal(doc.Value)
	return plan.Hash(canonical), err
}

// Notes says what the file should no longer have, for whoever maintains it.
func (p *Policy) Notes() []string {
	if !p.Moved {
		return nil
	}
	return []string{"policies.yaml: import.roots belongs in the site file now; move it there. Until the site file has it, the value here is " +
		"used; it is no longer part of the policy's hash"}
}
