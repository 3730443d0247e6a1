package app

import (
	"encoding/json"
	"slices"
	"testing"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

const (
	demoBAM   = "art_6YNEFY4WY6337RE16CQBDZT8J0"
	demoReads = "art_45G7QPW5RFS0CCAGQR83T82KBN"
)

// demoGateway returns a gateway whose project demo has a BAM file and a file of reads.
func demoGateway(t *testing.T, policyText string) *Gateway {
	t.Helper()
	g := gatewayOver(t, t.TempDir(), "testdata/demo/domain", policyText, func(s *site.Site) { s.Slurm.DefaultQOS = "normal" })
	return withDemoFiles(t, g)
}

// withDemoFiles registers the files of project demo.
func withDemoFiles(t *testing.T, g *Gateway) *Gateway {
	t.Helper()
	for _, a := range []run.Artifact{
		{ID: demoBAM, Type: "BAM", Label: "aln.bam",
			SHA256: "3a9fbf92826d8682e1ce8553721ab9e6acb0fdf02e5950818f651094b3f2101e", SizeBytes: 66022},
		{ID: demoReads, Type: "FASTQ_GZ", Label: "reads-small.fastq.gz",
			SHA256: "1ecd5e5bd806bce01d9ebf9622ccb352d495c372cb9309008b2889d80d014a8d", SizeBytes: 7505},
	} {
		a.ProjectID, a.Source = plan.ProjectID("demo"), "import"
		if _, _, err := g.Ledger.AddArtifact(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// answerOf has the fields about the run in the answer to a submit or its dry run.
type answerOf struct {
	RunID      string   `json:"run_id"`
	Replayed   bool     `json:"replayed"`
	Exists     bool     `json:"exists"`
	State      string   `json:"state"`
	Equivalent []string `json:"equivalent_runs"`
}

func (g *Gateway) ask(t *testing.T, tool string, args any, dry bool) (a answerOf) {
	t.Helper()
	req := request(t, g.toolOf(t, tool), args, dry)
	who := gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "user:lab", Method: gate.ByPeer,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport, gate.CapSlurm, gate.CapOperate},
			[]string{plan.ProjectID("demo")})}}
	res := g.Gate.Call(t.Context(), who, req)
	if !res.OK {
		out, _ := json.Marshal(res)
		t.Fatalf("%s %s: %s", tool, req.Args, out)
	}
	result := res.Result
	if dry {
		var shown gate.Rehearsal
		must(t, json.Unmarshal(result, &shown))
		result = shown.Would
	}
	must(t, json.Unmarshal(result, &a))
	return a
}

func (g *Gateway) runIDs(t *testing.T) (ids []string) {
	t.Helper()
	page, err := g.Ledger.List(t.Context(), ledger.Filter{Limit: 500})
	must(t, err)
	for _, r := range page.Runs {
		ids = append(ids, r.ID)
	}
	return slices.Sorted(slices.Values(ids))
}
