package export

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// graph is a crate by @id.
type graph map[string]map[string]any

func crateIn(t *testing.T, dir string) graph {
	t.Helper()
	data := value(os.ReadFile(filepath.Join(dir, crateFile)))(t)
	var doc struct {
		Context []string         `json:"@context"`
		Graph   []map[string]any `json:"@graph"`
	}
	must(t, json.Unmarshal(data, &doc))
	if !slices.Equal(doc.Context, []string{"https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"}) {
		t.Errorf("context %q", doc.Context)
	}
	g := graph{}
	for _, e := range doc.Graph {
		id, _ := e["@id"].(string)
		if g[id] != nil || id == "" || e["@type"] == nil {
			t.Errorf("an entity without @id or @type, or a second one: %v", e)
		}
		g[id] = e
	}
	return g
}

// types returns an entity's types.
func (g graph) types(id string) []string {
	switch v := g[id]["@type"].(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, x := range v {
			out = append(out, fmt.Sprint(x))
		}
		return out
	}
	return nil
}

// refs returns the @ids that a property refers to.
func (g graph) refs(id, property string) (out []string) {
	list, many := g[id][property].([]any)
	if !many {
		list = []any{g[id][property]}
	}
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, fmt.Sprint(m["@id"]))
		}
	}
	return out
}

var isoTime = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}\+00:00$`)

// Every MUST of RO-Crate 1.1 and of Process Run Crate 0.5 that can be read off a crate, and the profile's SHOULDs for
// an action, hold for archives of runs of each kind of end. docs/use/evidence.md names the validator that was run by
// hand.
//
// proves EXP-01
func TestCrateProfile(t *testing.T) {
	type check struct {
		rule  string
		holds func(g graph, dir string) bool
	}
	files := func(g graph) (out []string) {
		for id := range g {
			if slices.Contains(g.types(id), "File") {
				out = append(out, id)
			}
		}
		return out
	}
	flat := func(g graph) bool {
		for _, e := range g {
			for _, v := range e {
				list, many := v.([]any)
				if !many {
					list = []any{v}
				}
				for _, x := range list {
					if m, nested := x.(map[string]any); nested && (len(m) != 1 || m["@id"] == nil) {
						return false
					}
				}
			}
		}
		return true
	}
	checks := []check{
		{"1.1: the descriptor is a CreativeWork about the root", func(g graph, _ string) bool {
			return slices.Equal(g.types(crateFile), []string{"CreativeWork"}) && slices.Equal(g.refs(crateFile, "about"), []string{"./"})
		}},
		{"1.1: the descriptor conforms to the specification", func(g graph, _ string) bool {
			return slices.Equal(g.refs(crateFile, "conformsTo"), []string{"https://w3id.org/ro/crate/1.1"})
		}},
		{"1.1: the graph is flat", func(g graph, _ string) bool { return flat(g) }},
		{"1.1: the root is a Dataset with a name, a description and a license", func(g graph, _ string) bool {
			return slices.Equal(g.types("./"), []string{"Dataset"}) && g["./"]["name"] != "" && g["./"]["description"] != "" &&
				g[g.refs("./", "license")[0]] != nil
		}},
		{"1.1: the root has a datePublished in ISO 8601", func(g graph, _ string) bool {
			return isoTime.MatchString(fmt.Sprint(g["./"]["datePublished"]))
		}},
		{"1.1: every file is a part of the root, and the root has no other parts", func(g graph, _ string) bool {
			parts := g.refs("./", "hasPart")
			return len(parts) == len(files(g)) && !slices.ContainsFunc(files(g), func(id string) bool { return !slices.Contains(parts, id) })
		}},
		{"1.1: a file's @id is a URI; a relative one is a file of the crate", func(g graph, dir string) bool {
			for _, id := range files(g) {
				u, err := url.Parse(id)
				if err != nil || strings.ContainsAny(id, " \\") {
					return false
				}
				if _, err := os.Stat(filepath.Join(dir, u.Path)); u.Scheme == "" && err != nil {
					return false
				}
			}
			return true
		}},
		{"1.1: what is referred to by a local @id is there", func(g graph, _ string) bool {
			for id, e := range g {
				for property := range e {
					for _, to := range g.refs(id, property) {
						if g[to] == nil && !strings.HasPrefix(to, "http") {
							return false
						}
					}
				}
			}
			return true
		}},
		{"0.5: the root conforms to the profile, a CreativeWork", func(g graph, _ string) bool {
			return slices.Equal(g.refs("./", "conformsTo"), []string{"https://w3id.org/ro/wfrun/process/0.5"}) &&
				slices.Equal(g.types("https://w3id.org/ro/wfrun/process/0.5"), []string{"CreativeWork"})
		}},
		{"0.5: the action has an instrument, a SoftwareApplication", func(g graph, _ string) bool {
			return slices.Equal(g.types("#run"), []string{"CreateAction"}) &&
				slices.Equal(g.types(g.refs("#run", "instrument")[0]), []string{"SoftwareApplication"})
		}},
		{"0.5 SHOULD: the root mentions the action, which has a name, a description, times, an agent and a result", func(g graph, _ string) bool {
			a := g["#run"]
			return slices.Equal(g.refs("./", "mentions"), []string{"#run"}) && a["name"] != nil && a["description"] != nil &&
				isoTime.MatchString(fmt.Sprint(a["startTime"])) && isoTime.MatchString(fmt.Sprint(a["endTime"])) &&
				slices.Equal(g.types(g.refs("#run", "agent")[0]), []string{"Person"}) && len(g.refs("#run", "result")) > 0
		}},
		{"0.5 SHOULD: objects and results are files or values", func(g graph, _ string) bool {
			for _, id := range slices.Concat(g.refs("#run", "object"), g.refs("#run", "result")) {
				if !slices.Contains(g.types(id), "File") && !slices.Contains(g.types(id), "PropertyValue") {
					return false
				}
			}
			return len(g.refs("#run", "object")) > 0
		}},
		{"0.5 SHOULD: the instrument has a name and a version", func(g graph, _ string) bool {
			return g["#tool"]["name"] == "Count" && g["#tool"]["softwareVersion"] != ""
		}},
		{"1.1 SHOULD: files have a media type, and the crate an author", func(g graph, _ string) bool {
			for id := range g {
				if slices.Contains(g.types(id), "File") && g[id]["contentUrl"] == nil && g[id]["encodingFormat"] == nil {
					return false
				}
			}
			return slices.Equal(g.refs("./", "author"), []string{"#agent"})
		}},
		{"0.5 SHOULD: the status is completed, or failed with an error", func(g graph, _ string) bool {
			status, failure := g["#run"]["actionStatus"], g["#run"]["error"]
			return status == "http://schema.org/CompletedActionStatus" && failure == nil ||
				status == "http://schema.org/FailedActionStatus" && failure != ""
		}},
		{"0.5 SHOULD: image and environment are entities of their types", func(g graph, _ string) bool {
			image := g.refs("#run", "containerImage")[0]
			return slices.Equal(g.types(image), []string{"ContainerImage"}) && g[image]["sha256"] == imageDigest &&
				slices.Equal(g.types(g.refs("#run", "environment")[0]), []string{"PropertyValue"})
		}},
	}
	for name, o := range map[string]Options{"by bytes": {}, "by reference": {ByReference: true}} {
		for _, bad := range []bool{false, true} {
			r, store := made(t)
			if bad {
				r = failed(t, r)
			}
			dir := unpack(t, saved(t, archive(t, sign(t, r, nil), store, o)))
			g := crateIn(t, dir)
			for _, c := range checks {
				if !c.holds(g, dir) {
					t.Errorf("%s, failed %t: %s", name, bad, c.rule)
				}
			}
		}
	}
}
