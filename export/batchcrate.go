package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// batchCrate makes ro-crate-metadata.json of a batch: a Process Run Crate 0.5 with an action for each run.
func batchCrate(b Batch, runs []Run) ([]byte, error) {
	_, samples := b.runs()
	seen := map[string]bool{}
	var parts, actions []string
	var nodes []entity
	add := func(id string, e entity) {
		if !seen[id] {
			e["@id"], e["@type"], seen[id] = id, "File", true
			parts, nodes = append(parts, id), append(nodes, e)
		}
	}
	for _, d := range [][2]string{{batchFile, "The batch: its rows, and which run each became"}, {readmeFile, descriptions[readmeFile]},
		{unpackFile, "Makes a folder of each run's archive"}, {KeysFile, descriptions[KeysFile]}, {manifestFile, descriptions[manifestFile]},
		{signatureFile, descriptions[signatureFile]}} {
		add(d[0], entity{"name": d[0], "description": d[1], "encodingFormat": "text/plain"})
	}
	finished := b.CreatedAt
	for _, r := range runs {
		if r.FinishedAt.After(finished) {
			finished = r.FinishedAt
		}
		ids := map[bool][]string{}
		for i, a := range slices.Concat(r.Inputs, r.Outputs) {
			id, input := "artifact://"+a.ArtifactID, i < len(r.Inputs)
			if input && a.isShared() {
				id = sharedAt + a.SHA256
			}
			ids[input] = append(ids[input], id)
			add(id, entity{"name": cmp.Or(a.Label, a.Relpath, a.Role), "identifier": a.ArtifactID, "contentSize": fmt.Sprint(a.SizeBytes),
				"sha256": a.SHA256})
		}
		file := runArchive(r.RunID)
		add(file, entity{"name": FileName(r.RunID), "encodingFormat": "application/zip",
			"description": "The archive of the run, with the bytes of its inputs and outputs"})
		action := entity{"@id": "#" + r.RunID, "@type": "CreateAction", "identifier": r.RunID, "instrument": ref("#tool"),
			"name": "Run of " + r.ToolID + " for " + oneLine(strings.Join(samples[r.RunID], ", ")), "subjectOf": ref(file)}
		r.outcome(action)
		if b.Principal != "" {
			action["agent"] = ref("#agent")
		}
		for input, property := range map[bool]string{true: "object", false: "result"} {
			if len(ids[input]) > 0 {
				action[property] = refs(once(ids[input]))
			}
		}
		actions = append(actions, "#"+r.RunID)
		nodes = append(nodes, action)
	}
	root := entity{"identifier": b.BatchID, "name": "Batch " + b.Name + " of " + b.ToolID,
		"datePublished": finished.UTC().Format(crateTime), "hasPart": refs(parts), "mentions": refs(actions),
		"description": fmt.Sprintf("%d runs of %s %s, over the rows of a sheet, each with its plan, inputs, outputs, logs, history and signed "+
			"receipt.", len(runs), b.ToolID, b.ToolVersion)}
	more := []entity{{"@id": "#tool", "@type": "SoftwareApplication", "identifier": b.ToolID, "name": b.ToolID,
		"softwareVersion": b.ToolVersion}}
	if b.Principal != "" {
		root["author"] = ref("#agent")
		more = append(more, entity{"@id": "#agent", "@type": "Person", "name": b.Principal})
	}
	return crateDocument(root, b.Project, append(more, nodes...))
}
