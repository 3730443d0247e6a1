package app

import (
	"fmt"
	"strings"

	"slurmgate/blocks"
	"slurmgate/fault"
)

// Says implements [blocks.Answer].
func (l ReferenceList) Says() blocks.Document {
	t := l.table("references", "", "value", "type", "size", "site", "checksum*", "description")
	for _, r := range l.References {
		t.Rows = append(t.Rows, []any{r.Value, r.Type, blocks.Bytes(r.SizeBytes), r.Site, "sha256:" + r.SHA256[:min(len(r.SHA256), 12)] + "…",
			blocks.Data(r.Description)})
	}
	if len(l.References) == 0 {
		return blocks.Document{t, blocks.Next{fault.Do("artifact.list")}}
	}
	return blocks.Document{t, blocks.Advise("Next: give a value to an input of a tool in place of an artifact id; %v describes one.",
		blocks.Next{fault.Do("reference.show", "name", l.References[0].Name)})}
}

// Says implements [blocks.Answer].
func (r ReferenceAnswer) Says() blocks.Document {
	place, projects := "", ""
	if r.Site != nil {
		place = strings.TrimSpace("in place on the site " + *r.Site + " " + r.Path)
	}
	if r.ProjectIDs != nil {
		projects = "projects " + strings.Join(r.ProjectIDs, ", ")
	}
	facts := blocks.List("reference", r.Name, "value", r.Value, "type", r.Type, "label", blocks.Data(r.Label),
		"size", fmt.Sprintf("%d bytes", r.SizeBytes), "checksum", "sha256:"+r.SHA256, "about", blocks.Data(r.Description), "location", place,
		"for", projects, "problem", (*blocks.Reason)(r.Problem), "added", blocks.Say("%v by %v", r.AddedAt, r.AddedBy))
	for _, v := range r.Versions {
		facts.Facts = append(facts.Facts, blocks.Fact{Name: "earlier",
			Value: blocks.Say("%v  %v, added %v", v.Pinned, blocks.Bytes(v.SizeBytes), v.AddedAt)})
	}
	return blocks.Document{facts, blocks.Advise("Next: give %v to an input of a tool that takes %v.", r.Value, r.Type)}
}
