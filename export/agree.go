package export

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/export/receipt"
)

// agrees holds a receipt's statement against run.json, exit.json and events.jsonl; the files of run.json are held against the archive.
func (c *checker) agrees(s receipt.Statement) {
	r, p := c.run, s.Predicate
	if p.RunID != r.RunID || p.Attempt != r.Attempt || !p.End.RunEnded {
		c.bad(ReceiptFile, fmt.Sprintf("it is about attempt %d of %s, and not about this run's end", p.Attempt, p.RunID))
		return
	}
	c.equal([][3]string{{"project", p.ProjectID, r.Project}, {"tool", p.Tool.ID + " " + p.Tool.Version, r.ToolID + " " + r.ToolVersion},
		{"tool name", p.Tool.Name + " " + p.Tool.ContractVersion, r.ToolName + " " + r.ContractVersion},
		{"state", p.End.State, r.State}, {"reason", p.End.Reason, r.Reason}, {"executed as", p.Execution.ExecutedAs, r.ExecutedAs},
		{"site", p.Execution.Site, r.Site}, {"caller", p.Caller.Name, r.Principal}, {"made at", p.Caller.MadeAt, receipt.Time(&r.CreatedAt)},
		{"started at", p.Execution.StartedAt, receipt.Time(r.StartedAt)}, {"finished at", p.End.At, receipt.Time(&r.FinishedAt)},
		{"rows", fmt.Sprint(RowsOf(p.Rows)), fmt.Sprint(r.Rows)}})
	if text, err := document(p.Exit); err != nil || !bytes.Equal(text, c.documents[exitFile]) {
		c.bad(exitFile, "it is not the exit record that the receipt has")
	}
	if got := historyIn(c.documents[eventsFile]); got != p.History {
		c.bad(eventsFile, fmt.Sprintf("it has %d events with digest %s, but the receipt has %d with %s", got.Events, got.Digest.SHA256,
			p.History.Events, p.History.Digest.SHA256))
	}
	c.materials(p)
	c.products(s)
}

// materials holds what a run was made of against the receipt.
func (c *checker) materials(p receipt.Predicate) {
	r := c.run
	want := []receipt.Resource{receipt.Hashed(receipt.Image, r.Image), receipt.Hashed(receipt.Params, r.ParamsHash),
		receipt.Hashed(receipt.Policy, r.PolicyHash), receipt.Hashed(receipt.Plan, r.PlanHash), receipt.Hashed(receipt.Pack, r.PackHash)}
	if r.Script != nil {
		want = append(want, receipt.Hashed(receipt.Script, r.Script.SHA256))
	}
	for _, a := range r.Inputs {
		want = append(want, resourceOf("input/"+a.Relpath, a))
	}
	c.same("materials", slices.DeleteFunc(slices.Clone(p.ResolvedDependencies), func(d receipt.Resource) bool {
		return d.Name == receipt.Script && r.Script == nil && c.gone(scriptFile)
	}), want)
}

// scriptRole is the script's name among the byproducts of a receipt; its checksum is among the materials too.
const scriptRole = "slurm_script"

// products holds what a run left against the receipt.
func (c *checker) products(s receipt.Statement) {
	r, p := c.run, s.Predicate
	var want []receipt.Resource
	for _, a := range r.Outputs {
		if r.Kind == KindWorker {
			a.Relpath = "" // it has no workspace
		}
		want = append(want, resourceOf(receipt.OutputName(a.Role, a.Label), a))
	}
	if answer, ok := c.found[answerFile]; ok {
		want = append(want, receipt.Hashed(receipt.Answer, answer.sha256))
	}
	if p.SubjectIs == "params" {
		want = append(want, receipt.Hashed(receipt.Params, r.ParamsHash))
	}
	for i := range s.Subject {
		if s.Subject[i].Name == receipt.Answer {
			s.Subject[i].Annotations = receipt.Annotations{} // it is no artifact
		}
	}
	c.same("subjects", s.Subject, want)
	byproducts := slices.Concat(r.Rejected, r.Logs)
	slices.SortFunc(byproducts, func(a, b Artifact) int { return strings.Compare(a.Role, b.Role) })
	want = nil
	for _, a := range byproducts {
		want = append(want, resourceOf(a.Role, a))
	}
	c.same("byproducts", slices.DeleteFunc(slices.Clone(p.Byproducts), func(b receipt.Resource) bool {
		if b.Name == scriptRole && r.Script != nil {
			c.equal([][3]string{{"script", b.Annotations.ArtifactID, r.Script.ArtifactID}})
		}
		return b.Name == scriptRole || c.gone(logFile(b.Name))
	}), want)
}

// resourceOf returns an artifact in the form of a receipt, as far as run.json has it.
func resourceOf(name string, a Artifact) receipt.Resource {
	return receipt.Resource{Name: name, Digest: receipt.Digest{SHA256: a.SHA256}, Annotations: receipt.Annotations{Role: a.Role,
		Path: a.Relpath, Label: a.Label, Type: a.Type, SizeBytes: &a.SizeBytes, ArtifactID: a.ArtifactID, Reference: a.ReferenceName,
		InPlace: a.InPlace}}
}

// equal holds values of run.json against the receipt's: each has a name, the receipt's value and the document's.
func (c *checker) equal(values [][3]string) {
	for _, x := range values {
		if x[1] != x[2] {
			c.bad(runFile, fmt.Sprintf("%s: it has %q, but the receipt has %q", x[0], x[2], x[1]))
		}
	}
}

// same holds what a receipt lists against the run, which has it in the same order.
func (c *checker) same(what string, listed, ours []receipt.Resource) {
	found, want, sound := map[string]bool{}, map[string]receipt.Resource{}, true
	bad := func(format string, args ...any) {
		c.bad(runFile, fmt.Sprintf(format, args...))
		sound = false
	}
	ours = slices.DeleteFunc(ours, func(r receipt.Resource) bool { return r.Digest.SHA256 == "" })
	for _, r := range ours {
		want[r.Name] = r
	}
	for _, l := range listed {
		l.Annotations.ExecutedAs = "" // which run.json does not have
		r, known := want[l.Name]
		switch found[l.Name] = true; {
		case !known:
			bad("the receipt has %q among its %s, and the run has no such thing", l.Name, what)
		case r.Digest != l.Digest:
			bad("%q is %s, but the receipt has %s", l.Name, r.Digest.SHA256, l.Digest.SHA256)
		case r.Annotations.String() != l.Annotations.String():
			bad("%q is %s, but the receipt has %s", l.Name, r.Annotations, l.Annotations)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !found[name] {
			bad("%q is not among the receipt's %s", name, what)
		}
	}
	if sound && !slices.EqualFunc(listed, ours, func(l, r receipt.Resource) bool { return l.Name == r.Name }) {
		bad("the run has the receipt's %s in another order, or some of them twice", what)
	}
}
