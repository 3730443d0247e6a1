package export

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// described has the members of the crate's entity for a file.
type described struct {
	ID         string          `json:"@id"`
	Type       json.RawMessage `json:"@type"`
	SHA256     string          `json:"sha256"`
	Size       string          `json:"contentSize"`
	Identifier any             `json:"identifier"`
}

// crate holds the crate against MANIFEST and the files: each describes what the other has.
func (c *checker) crate() {
	data, ok := c.documents[crateFile]
	if !ok {
		return // reported as missing
	}
	var doc struct {
		Graph []described `json:"@graph"`
	}
	if err := plan.Check(data); err != nil {
		c.bad(crateFile, "it cannot be read: "+fault.Prose(err))
		return
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		c.bad(crateFile, "it is not a crate: "+err.Error())
		return
	}
	known, folders := map[string]bool{}, []Artifact{}
	for _, e := range doc.Graph {
		name, local := localName(e.ID)
		if local && e.ID != "./" && strings.Contains(string(e.Type), `"Dataset"`) && strings.HasSuffix(name, "/") {
			folders = append(folders, Artifact{File: name})
		}
		if !local || !strings.Contains(string(e.Type), `"File"`) {
			continue
		}
		known[name] = true
		got, found := c.found[name]
		switch {
		case name == signatureFile: // MANIFEST's line and the crate's checksum cannot be in it
		case !found && c.listed[name] == "":
			c.bad(name, "it is missing: "+crateFile+" describes it")
		case !found || name == manifestFile:
		case e.SHA256 != got.sha256 && c.listed[name] == got.sha256: // else reported as changed
			c.bad(name, fmt.Sprintf("%s describes another file: SHA-256 %s instead of %s", crateFile, e.SHA256, got.sha256))
		case e.Size != fmt.Sprint(got.size) && c.listed[name] == got.sha256:
			c.bad(name, fmt.Sprintf("%s describes another file: %s bytes instead of %d", crateFile, e.Size, got.size))
		}
	}
	for _, name := range c.names {
		if !inFolder(folders, name) && !known[name] && name != crateFile {
			c.bad(name, crateFile+" does not describe it")
		}
	}
	if c.RunID == "" {
		return
	}
	root := slices.IndexFunc(doc.Graph, func(e described) bool { return e.ID == "./" })
	if root < 0 || doc.Graph[root].Identifier != c.RunID {
		c.bad(crateFile, "it is not about "+c.RunID)
	}
}

// localName returns the name of the file that an @id refers to.
func localName(id string) (name string, local bool) {
	u, err := url.Parse(id)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Fragment != "" || u.RawQuery != "" || strings.HasPrefix(id, "#") {
		return "", false
	}
	return u.Path, true
}
