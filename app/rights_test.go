package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/gate"
)

// about returns the rows of the ledger, except records of calls, that are about the belongings.
func (g *Gateway) about(t *testing.T, b belongings) (rows []string) {
	t.Helper()
	for table, text := range g.tables(t) {
		for row := range strings.SplitSeq(text, "\n") {
			if slices.ContainsFunc([]string{b.project, b.run, b.artifact}, func(id string) bool { return strings.Contains(row, id) }) {
				rows = append(rows, table+": "+row)
			}
		}
	}
	slices.Sort(rows)
	return rows
}

// Rights are pairs. Every operation and tool of the registry is called with every set of its arguments about a
// project's things, for callers who may do it elsewhere: the call is refused, nothing of the project changes, and no
// answer shows anything of it. Taking the tools from the registry covers new operations.
func TestEveryOperationHoldsPairs(t *testing.T) {
	g := tableGateway(t)
	a, b := g.fill(t, "first"), g.fill(t, "other one")
	look := []string{gate.CapGateway, gate.CapRead}
	grant := func(project belongings, capabilities ...string) gate.Grant {
		return gate.Grant{Capabilities: capabilities, Projects: []string{project.project}}
	}
	call := func(r gate.Rights, x gate.Tool, args map[string]any, dry bool) (code, text string) {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		res := g.Gate.Call(ctx, gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "token:x", Method: gate.ByToken, Rights: r}},
			request(t, x, args, dry))
		if res.Error != nil {
			code = res.Error.Code
		}
		answer, err := json.Marshal(res)
		must(t, err)
		return code, string(answer)
	}
	before, calls := g.about(t, b), 0
	for _, x := range g.Gate.Registry().List() {
		rest := slices.DeleteFunc(gate.Capabilities(), func(c string) bool { return slices.Contains(x.Capabilities, c) })
		callers := map[string]gate.Rights{
			"all on one, the rest on the other": {grant(a, gate.All), grant(b, rest...)},
			"what it needs on one":              {grant(a, x.Capabilities...), grant(b, rest...)},
			"its capabilities apart":            {grant(a, x.Capabilities[:1]...), grant(b, x.Capabilities[1:]...)},
			"nothing on the other":              {grant(a, gate.All)},
		}
		if !slices.Equal(slices.Sorted(slices.Values(x.Capabilities)), look) {
			callers["all on one, read on the other"] = gate.Rights{grant(a, gate.All), grant(b, look...)}
		}
		if x.SiteWide {
			callers["all on both"] = gate.Rights{grant(a, gate.All), grant(b, gate.All)}
		}
		for name, rights := range callers {
			for _, args := range g.argsOf(t, x, b) {
				for _, dry := range []bool{false, true} {
					calls++
					code, text := call(rights, x, args, dry)
					names := fmt.Sprint(args)
					concerns := x.SiteWide || slices.ContainsFunc([]string{b.run, b.artifact, b.name},
						func(s string) bool { return strings.Contains(names, s) })
					if concerns && !slices.Contains([]string{"capability_denied", "run_not_found", "artifact_not_found", "project_not_found"}, code) {
						t.Errorf("%s %v by %s: %s", x.ID, args, name, text)
					}
					for _, word := range []string{b.run, b.artifact, b.project, "of other one"} {
						if strings.Contains(text, word) && !concerns {
							t.Errorf("%s %v by %s shows %q: %s", x.ID, args, name, word, text)
						}
					}
				}
			}
		}
	}
	if after := g.about(t, b); !slices.Equal(before, after) {
		t.Errorf("the other project changed from\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if calls < 400 {
		t.Errorf("only %d calls: does the table see the tools?", calls)
	}
}

// A gateway that refuses everything would also pass the test above: with the pair, the same calls pass the gate.
func TestEveryOperationIsOpenToItsPair(t *testing.T) {
	g := tableGateway(t)
	a, b := g.fill(t, "first"), g.fill(t, "other one")
	for _, x := range g.Gate.Registry().List() {
		where := []string{b.project}
		if x.SiteWide {
			where = []string{gate.All}
		}
		who := gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "token:y", Method: gate.ByToken, Rights: gate.Rights{
			{Capabilities: []string{gate.CapGateway, gate.CapRead}, Projects: []string{a.project}},
			{Capabilities: x.Capabilities, Projects: where}}}}
		for _, args := range g.argsOf(t, x, b) {
			res := g.Gate.Call(t.Context(), who, request(t, x, args, true))
			more := args["all"] != nil || args["for_all"] != nil || args["for_principal"] != nil // these need operate too
			if res.Error != nil && (res.Error.Code == "capability_denied" && !more || res.Error.Code == "project_not_found") {
				t.Errorf("%s %v: %+v", x.ID, args, res.Error)
			}
		}
	}
}

// Verifying all artifacts needs operate besides read, and covers the projects that have both.
func TestVerifyAllHoldsPairs(t *testing.T) {
	g := tableGateway(t)
	a, b := g.fill(t, "first"), g.fill(t, "other one")
	look := []string{gate.CapGateway, gate.CapRead}
	who := gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "token:x", Method: gate.ByToken, Rights: gate.Rights{
		{Capabilities: append(look, gate.CapOperate), Projects: []string{a.project}}, {Capabilities: look, Projects: []string{b.project}}}}}
	var v Verified
	if g.says(t, who, "artifact.verify", map[string]any{"all": true}, "", &v); v.ArtifactCount != 1 || v.Checked != 1 {
		t.Errorf("artifact.verify of all: %d artifacts, %d checked; want 1", v.ArtifactCount, v.Checked)
	}
	g.says(t, who, "artifact.verify", map[string]any{"all": true, "project_id": b.name}, "capability_denied", nil)
	g.says(t, who, "artifact.verify", map[string]any{"artifact_id": b.artifact}, "", nil)
	who.Rights = gate.Rights{{Capabilities: look, Projects: []string{a.project, b.project}},
		{Capabilities: []string{gate.CapOperate}, Projects: []string{gate.All}}}
	if g.says(t, who, "artifact.verify", map[string]any{"all": true}, "", &v); v.ArtifactCount != 2 {
		t.Errorf("artifact.verify of all with operate everywhere: %d artifacts, want 2", v.ArtifactCount)
	}
}
