package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// The name before a digest is the lock's name of just that digest.
func TestRawPlanNamesItsImage(t *testing.T) {
	g := tableGateway(t)
	b := g.fill(t, "own")
	x, err := g.Gate.Registry().Find("slurm.submit")
	if err != nil {
		t.Fatal(err)
	}
	doc := schemaDoc{}.value("job_spec", b).(map[string]any)
	doc["execution"].(map[string]any)["container"].(map[string]any)["image"] = "samtools@sha256:" + strings.Repeat("0", 64)
	args, err := json.Marshal(map[string]any{"job_spec": doc})
	if err != nil {
		t.Fatal(err)
	}
	res := g.Gate.Call(t.Context(), gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "me",
		Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}}, gate.NewRequest(x.ID, x.Version, args))
	if res.OK || !strings.Contains(fmt.Sprint(res.Error), `images.lock.yaml has no image "samtools"`) {
		t.Errorf("%+v", res.Error)
	}
	spec := []byte(strings.Replace(string(args[len(`{"job_spec":`):len(args)-1]), `"outputs":[]`,
		`"outputs":[{"role":"r","src_relpath":"out/x","type":"TEXT","label":"x"}]`, 1))
	for msg, want := range map[string]string{"": "", `"samtools" is another image`: "PLAN-IMAGE"} {
		_, err := plan.DecodeSpec(spec, plan.Rules{Image: func(string, string) string { return msg }})
		if err == nil && want != "" || err != nil && (want == "" || fault.CodeOf(err) != want) {
			t.Errorf("%q: %v", msg, err)
		}
	}
}
