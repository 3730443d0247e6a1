package app

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/site"
)

// The ledger in testdata/before was written on a real cluster by the slurmgate whose canonical params held the site's defaults and every
// artifact id, and whose policies held the import roots. Its site had default_qos normal; it has runs under three policies, of which the
// second differs from the first in import.roots alone.

const (
	beforeBAM   = "art_6YNEFY4WY6337RE16CQBDZT8J0"
	beforeReads = "art_45G7QPW5RFS0CCAGQR83T82KBN"
)

func beforeGateway(t *testing.T, policyText string) *Gateway {
	t.Helper()
	dir := t.TempDir()
	unpackBefore(t, dir)
	return gatewayOver(t, dir, "testdata/before/domain", policyText, func(s *site.Site) { s.Slurm.DefaultQOS = "normal" })
}

func unpackBefore(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open("testdata/before/schema7.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ledger.db"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// answerOf is what a call that submits, or would, says of its run.
type answerOf struct {
	RunID      string   `json:"run_id"`
	Replayed   bool     `json:"replayed"`
	Exists     bool     `json:"exists"`
	State      string   `json:"state"`
	Equivalent []string `json:"equivalent_runs"`
}

func (g *Gateway) ask(t *testing.T, tool string, args any, dry bool) (a answerOf) {
	t.Helper()
	x, err := g.Gate.Registry().Find(tool)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	req := gate.NewRequest(x.ID, x.Version, raw)
	req.DryRun = dry
	who := gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "user:lab", Method: gate.ByPeer,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport, gate.CapSlurm, gate.CapOperate},
			[]string{plan.ProjectID("demo")})}}
	res := g.Gate.Call(t.Context(), who, req)
	if !res.OK {
		out, _ := json.Marshal(res)
		t.Fatalf("%s %s: %s", tool, raw, out)
	}
	result := res.Result
	if dry {
		var shown gate.Rehearsal
		if err := json.Unmarshal(result, &shown); err != nil {
			t.Fatal(err)
		}
		result = shown.Would
	}
	if err := json.Unmarshal(result, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func (g *Gateway) runIDs(t *testing.T) (ids []string) {
	t.Helper()
	page, err := g.Ledger.List(t.Context(), ledger.Filter{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Runs {
		ids = append(ids, r.ID)
	}
	return slices.Sorted(slices.Values(ids))
}

// Requests made before the identity was settled find the runs they made then, whatever state those are in and whether or not the admin has
// moved the import roots to the site file since; no new run is made.
//
// proves ABI-07 ABI-17 ABI-18 CARD-04
func TestRunsMadeBeforeReplay(t *testing.T) {
	data, err := os.ReadFile("testdata/before/domain/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := string(data)
	spec := func(name string) json.RawMessage {
		raw, err := os.ReadFile("testdata/before/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	const roots = "  roots: [/shared/old/data, /shared/old/more]\n"
	for name, text := range map[string]string{
		"policies.yaml as it was":     file,
		"with the roots it had first": strings.Replace(file, ", /shared/old/more", "", 1),
		"roots moved to the site":     strings.Replace(file, roots, "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			g := beforeGateway(t, text)
			was := g.runIDs(t)
			for _, c := range []struct {
				tool       string
				args       any
				run, state string
			}{
				{"samtools.flagstat", map[string]any{"bam": beforeBAM}, "run_5DAJ2PVCGAGC0MJSBQ1GVR4X8M", "succeeded"},
				{"reads.profile", map[string]any{"reads": beforeReads}, "run_0SKTKEG7M0MX9420BSZ7SXKV6W", "succeeded"},
				{"reads.profile", map[string]any{"reads": beforeReads, "first": 10}, "run_1HXHCX4VBBXXKZ6P4NKREZE38Y", "queued"},
				{"here.note", map[string]any{"bam": beforeBAM}, "run_5BESWT0T7D7DP9H6G15GFGXQZR", "succeeded"},
				{"seqkit.stats", map[string]any{"reads": beforeReads}, "run_0BB6SR80Z1ZWP03P5F1BVJYRZS", "cancelled"},
				{"slurm.submit", map[string]any{"job_spec": spec("raw-fails.json")}, "run_48P7E7D17DTP9JBMR7KQ1K009J", "failed"},
				{"slurm.submit", map[string]any{"job_spec": spec("raw-waits.json")}, "run_35YSSYC838RH8AS517Z5RS33QB", "queued"},
			} {
				if a := g.ask(t, c.tool, c.args, false); a.RunID != c.run || !a.Replayed || a.State != c.state {
					t.Errorf("%s: %+v, want %s %s", c.tool, a, c.run, c.state)
				}
				if a := g.ask(t, c.tool, c.args, true); a.RunID != c.run || !a.Exists || a.State != c.state {
					t.Errorf("%s as a dry run: %+v, want %s %s", c.tool, a, c.run, c.state)
				}
			}
			// The third policy was another one; its run is equivalent.
			if a := g.ask(t, "seqkit.stats", map[string]any{"reads": beforeReads}, false); !slices.Equal(a.Equivalent,
				[]string{"run_2GEN5BNDGC714K0K9N2DPH3YJD"}) {
				t.Errorf("equivalent runs %v", a.Equivalent)
			}
			if now := g.runIDs(t); !slices.Equal(was, now) {
				t.Errorf("runs %v, were %v", now, was)
			}
			if err := g.Ledger.Integrity(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Under a policy that says something else a request is another run, and the one made before is equivalent.
func TestRunsMadeBeforeUnderAnotherPolicy(t *testing.T) {
	g := beforeGateway(t, "version: 1\nslurm: {max_cpus: 16}\nlocal: {}\n")
	a := g.ask(t, "samtools.flagstat", map[string]any{"bam": beforeBAM}, false)
	if a.Replayed || !slices.Equal(a.Equivalent, []string{"run_5DAJ2PVCGAGC0MJSBQ1GVR4X8M"}) {
		t.Errorf("%+v", a)
	}
	if dry := g.ask(t, "samtools.flagstat", map[string]any{"bam": beforeBAM}, true); dry.RunID != a.RunID || !dry.Exists {
		t.Errorf("%+v, then as a dry run %+v", a, dry)
	}
	if b := g.ask(t, "samtools.flagstat", map[string]any{"bam": beforeBAM}, false); b.RunID != a.RunID || !b.Replayed {
		t.Errorf("%+v, then %+v", a, b)
	}
}
