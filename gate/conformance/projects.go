package conformance

import (
	"fmt"
	"strings"
	"testing"

	"slurmgate/gate"
)

func projects(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	own, foreign := w.artifact(mine, `{}`), w.artifact(theirs, `{}`)
	gone := "art_00000000000000000000000000"
	for _, shape := range []string{`{"artifact_id":"%s"}`, `{"text":"%s"}`, `{"text":"artifact://%s"}`, `{"list":[["%s"]]}`,
		`{"list":[{"k":"%s"}]}`, `{"list":[{"%s":1}]}`} {
		w.want(w.call(e, request("test.read", fmt.Sprintf(shape, own))), "", "")
		a, b := w.call(e, request("test.read", fmt.Sprintf(shape, foreign))), w.call(e, request("test.read", fmt.Sprintf(shape, gone)))
		w.want(a, "validation", "artifact_not_found")
		w.want(b, "validation", "artifact_not_found")
		if strings.ReplaceAll(a.Error.Message, foreign, gone) != b.Error.Message || fmt.Sprint(a.Error.Details) != fmt.Sprint(b.Error.Details) {
			t.Errorf("another's is not answered like nothing:\n%+v\n%+v", a.Error, b.Error)
		}
	}
	w.want(w.call(e, request("test.read", `{"run_id":"run_00000000000000000000000000"}`)), "validation", "run_not_found")
	for _, p := range []string{"theirs", theirs} {
		w.want(w.call(e, request("test.read", `{"project_id":"`+p+`"}`)), "validation", "project_not_found")
	}
	w.want(w.call(e, request("test.read", `{"project_id":"mine"}`)), "", "")
	anybody := everyone("root")
	anybody.Rights = gate.Everything()
	w.want(w.call(w.as(anybody), request("test.read", `{"artifact_id":"`+foreign+`"}`)), "", "")
	none := everyone("none")
	none.Rights = gate.RightsOf([]string{gate.All}, nil)
	for _, id := range []string{own, gone} { // a grant without projects gives nothing, and tells nothing
		w.want(w.call(w.as(none), request("test.read", `{"artifact_id":"`+id+`"}`)), "capability", "capability_denied")
	}
	// A capability counts on the project it was granted for, and the rest of the rights on another do not help.
	pairs := gate.Principal{Name: "pairs", Method: gate.ByToken, Rights: gate.Rights{
		{Capabilities: []string{gate.CapGateway, gate.CapRead}, Projects: []string{mine}},
		{Capabilities: []string{gate.CapSlurm}, Projects: []string{theirs}}}}
	e = w.as(pairs)
	for _, x := range []struct{ tool, id, project, code string }{{"test.read", own, mine, ""}, {"test.read", foreign, theirs,
		"capability_denied"},
		{"test.execute", own, mine, "capability_denied"}, {"test.execute", foreign, theirs, ""}} {
		kind := ""
		if x.code != "" {
			kind = "capability"
		}
		w.want(w.call(e, request(x.tool, `{"artifact_id":"`+x.id+`"}`)), kind, x.code)
		w.want(w.call(e, request(x.tool, `{"project_id":"`+x.project+`"}`)), kind, x.code)
	}
}
