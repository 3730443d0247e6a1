package app

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/worker"
)

// point binds the reference genome to content with the checksum digit repeated.
func (g *Gateway) point(t *testing.T, digit string) (digest string) {
	t.Helper()
	sum := strings.Repeat(digit, 64)
	if _, err := g.Ledger.AddReference(t.Context(), ledger.Reference{Name: "genome", SHA256: sum, Type: "BAM", Label: "genome.bam",
		SizeBytes: 1000, By: "user:lab"}, true); err != nil {
		t.Fatal(err)
	}
	return "sha256:" + sum
}

// A person approves the content behind a reference: if the reference stands for other content when the approval is
// answered or the call is made, the call needs another approval. An idempotency key covers the content too.
//
// proves DATA-07 HTC-07 HTC-10
func TestApprovalCoversReferences(t *testing.T) {
	g := demoGateway(t, "version: 1\nconsent: {tools: [samtools_flagstat]}\n")
	first := g.point(t, "a")
	who := gate.Principal{ID: "prn_1", Name: "token:bot", Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapSlurm}, []string{plan.ProjectID("demo")})}
	x := g.toolOf(t, "samtools.flagstat")
	call := func(key string) gate.Response {
		t.Helper()
		req := gate.NewRequest(x.ID, x.Version, json.RawMessage(`{"bam":"ref:genome"}`))
		if key != "" {
			req.IdempotencyKey = &key
		}
		return g.Gate.Call(t.Context(), gate.Caller{Principal: who, Transport: gate.Local}, req)
	}
	waiting := func() gate.Approval {
		t.Helper()
		var list ApprovalList
		g.says(t, gate.Process(), "approval.list", map[string]any{}, "", &list)
		if len(list.Approvals) != 1 {
			t.Fatalf("%d requests, want one", len(list.Approvals))
		}
		return list.Approvals[0]
	}
	refused := func(res gate.Response, code string) {
		t.Helper()
		if res.OK || res.Error.Code != code {
			t.Fatalf("the call ended with %+v and %s, want %s", res.Error, res.Result, code)
		}
	}
	refused(call(""), "consent_required")
	a := waiting()
	if !maps.Equal(a.Covers.References, map[string]string{"ref:genome": first}) {
		t.Errorf("the request covers the references %v, want genome as %s", a.Covers.References, first)
	}

	second := g.point(t, "b") // between asking and approving
	if code := g.answers(t, gate.Process().Principal, a, true); code != "approval_void" {
		t.Error(code)
	}
	res := call("")
	refused(res, "consent_required")
	if !strings.Contains(res.Error.Message, "reference data ref:genome as "+second+" instead of ref:genome as "+first) {
		t.Error(res.Error.Message)
	}
	if code := g.answers(t, gate.Process().Principal, waiting(), true); code != "" {
		t.Fatal(code)
	}
	g.point(t, "c") // between approving and calling
	refused(call(""), "consent_required")
	g.point(t, "b")
	refused(call(""), "consent_required") // the request about c replaced the approval
	if code := g.answers(t, gate.Process().Principal, waiting(), true); code != "" {
		t.Fatal(code)
	}
	if res := call("key-1"); !res.OK {
		t.Fatalf("the call ended with %+v, want success", res.Error)
	}
	id := g.runIDs(t)
	g.point(t, "d")
	res = call("key-1")
	refused(res, "idempotency_conflict")
	if !strings.Contains(res.Error.Message, "ref:genome stood for other content") {
		t.Error(res.Error.Message)
	}
	g.point(t, "b")
	if res := call("key-1"); !res.OK || !slices.Equal(g.runIDs(t), id) {
		t.Errorf("the call ended with %+v, want success", res.Error)
	}
	if err := g.Ledger.Integrity(t.Context()); err != nil {
		t.Error(err)
	}
}

// A user's plan may name references, and is the same run as with what they stand for.
//
// proves DATA-07
func TestReferencesInPlans(t *testing.T) {
	g := demoGateway(t, "version: 1\nslurm: {raw_plans: {allowed: true, entry_programs: {samtools: [samtools]}}}\n")
	g.point(t, "a")
	data, err := os.ReadFile("testdata/demo/domain/images.lock.yaml")
	must(t, err)
	at := strings.Index(string(data), "e8f25419")
	spec := func(input string) map[string]any {
		doc := `{"version":1,"resources":{"time_limit_seconds":60,"cpus":1,"mem_mb":512,"gpus":null,"gpu_type":null},
 "placement":{"partition":"main","account":"research","qos":null,"constraint":null},
 "execution":{"kind":"container","container":{"engine":"apptainer","image":"sha256:` + string(data[at:at+64]) + `","network_mode":"none",
  "readonly_rootfs":true},"command":{"argv":["samtools","flagstat","/work/in/input.bam"],"workdir":"/work","env":{}}},
 "io":{"inputs":[{"role":"bam",` + input + `,"dest_relpath":"in/input.bam"}],"outputs":[{"role":"report","src_relpath":"out/report.txt",
  "type":"TEXT","label":"report.txt"}]}}`
		var out map[string]any
		must(t, json.Unmarshal([]byte(doc), &out))
		return map[string]any{"project_id": "demo", "job_spec": out}
	}
	made := g.ask(t, "slurm.submit", spec(`"artifact_id":"ref:genome"`), false)
	v, err := g.Ledger.Inputs(t.Context(), made.RunID)
	if err != nil || len(v) != 1 || v[0].Artifact.SHA256 != strings.Repeat("a", 64) || v[0].Artifact.Source != "reference genome" {
		t.Fatalf("the inputs are %v, %v; want one with the bytes of the reference genome", v, err)
	}
	same := g.ask(t, "slurm.submit", spec(`"artifact_id":"`+v[0].ArtifactID+`","checksum_sha256":"`+strings.Repeat("a", 64)+`"`), false)
	if !same.Replayed || same.RunID != made.RunID {
		t.Errorf("the plan with the artifact: %s, replayed %t; want %s again", same.RunID, same.Replayed, made.RunID)
	}
	g.point(t, "b")
	if other := g.ask(t, "slurm.submit", spec(`"artifact_id":"ref:genome"`), true); other.RunID == made.RunID {
		t.Error("other content is the same run")
	}
	pinned := g.ask(t, "slurm.submit", spec(`"artifact_id":"ref:genome@sha256:`+strings.Repeat("a", 64)+`"`), false)
	if !pinned.Replayed || pinned.RunID != made.RunID {
		t.Errorf("the plan with the pinned name: %s, replayed %t; want %s again", pinned.RunID, pinned.Replayed, made.RunID)
	}
	res := g.says(t, gate.Process(), "slurm.submit", spec(`"artifact_id":"ref:genone"`), "ARGS-REFERENCE", nil)
	if !strings.Contains(res.Error.Message+string(mustJSON(t, res.Error)), "did you mean genome?") {
		t.Errorf("a misspelt name ended with %+v, want a suggestion", res.Error)
	}
	p, err := g.Domain.Packs().Get("samtools.flagstat")
	must(t, err)
	row, err := g.pinReferences(t.Context(), plan.ProjectID("demo"), p, json.RawMessage(`{"bam":"ref:genome"}`)) // for a batch
	if err != nil || string(row) != `{"bam":"ref:genome@sha256:`+strings.Repeat("b", 64)+`"}` {
		t.Errorf("%s %v", row, err)
	}
	g.says(t, gate.Process(), "slurm.submit", spec(`"artifact_id":"ref:genome","checksum_sha256":"`+strings.Repeat("c", 64)+`"`),
		"PLAN-CHECKSUM", nil)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return data
}

// A service worker gets the id of the artifact that a reference stands for, and the artifact is there before the call is sent.
//
// proves DATA-07
func TestReferencesOfWorkers(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	b.point(t, "a")
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) { says(w, r, true, `"output":{"text":"x"}`) })
	if res := b.call(scrape("ref:genome")); !res.OK { // an argument that is not an artifact is not changed
		t.Fatalf("the call with ref: in a text ended with %+v, want success", res.Error)
	}
	if got := string(b.sent()[0].Input); !strings.Contains(got, `"ref:genome"`) {
		t.Error(got)
	}
	req := gate.NewRequest("web.count", "0.1.0", json.RawMessage(`{"data":"ref:genome","more":["ref:genome"]}`))
	if res := b.call(req); !res.OK {
		t.Fatalf("the call ended with %+v, want success", res.Error)
	}
	var got struct {
		Data string
		More []string
	}
	err := json.Unmarshal(b.sent()[1].Input, &got)
	if err != nil || !plan.IsArtifactID(got.Data) || !slices.Equal(got.More, []string{got.Data}) {
		t.Fatalf("%s %v", b.sent()[1].Input, err)
	}
	if a, err := b.Ledger.Artifact(t.Context(), got.Data); err != nil || a.SHA256 != strings.Repeat("a", 64) {
		t.Errorf("the artifact %s has SHA-256 %s, %v", got.Data, a.SHA256, err)
	}
	req = gate.NewRequest("web.count", "0.1.0", json.RawMessage(`{"data":"ref:none"}`))
	if res := b.call(req); res.OK || res.Error.Code != "ARGS-REFERENCE" {
		t.Errorf("the call with an unknown reference ended with %+v, want ARGS-REFERENCE", res.Error)
	}
}
