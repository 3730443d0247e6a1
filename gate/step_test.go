package gate

import (
	"strings"
	"testing"
)

// One error, three faces: each is told what it can do itself.
func TestSteps(t *testing.T) {
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	const run, art, apr = "run_3SE9HRX367RN37683ZB6KX0C3D", "art_45G7QPW5RFS0CCAGQR83T82KBN", "apr_D4N35HGBRT3RRJQ4OZFJQXKDHI"
	for _, c := range []struct{ shell, chat, http string }{
		{"the run is queued. Next: slurmgate wait " + run + ", or slurmgate cancel " + run, "the run is queued. Next: slurm_job_collect " + run + ", or slurm_job_cancel " + run,
			"the run is queued. Next: GET /v1/runs/" + run + "/result?wait_seconds=30, or POST /v1/runs/" + run + ":cancel"},
		{"Next: slurmgate runs list shows what there is", "Next: run_list shows what there is", "Next: GET /v1/runs shows what there is"},
		{"Next: slurmgate tool show seqkit.stats prints the schema", "Next: the list of tools prints the schema", "Next: GET /v1/registry prints the schema"},
		{"slurmgate artifact import FILE gives one", "artifact_import gives one", "POST /v1/artifacts gives one"},
		{"slurmgate artifact get " + art, "slurmgate artifact get " + art + " (at the shell)", "GET /v1/artifacts/" + art + "/content"},
		{"approve it: slurmgate approve " + apr + "; then", "approve it: slurmgate approve " + apr + " (at the shell); then", "approve it: POST /v1/approvals/" + apr + ":answer; then"},
		{"a text: slurmgate artifact preview --as text", "a text: artifact_preview_text", "a text: GET /v1/artifacts/{id}/preview"},
		{"slurmgate approvals lists them", "slurmgate approvals (at the shell) lists them", "GET /v1/approvals lists them"},
		{"Next: slurmgate approvals --all", "Next: slurmgate approvals --all (at the shell)", "Next: GET /v1/approvals?all=true"},
		{"add it: slurmgate image add NAME FILE.sif", "add it: slurmgate image add NAME FILE.sif (at the shell)", "add it: slurmgate image add NAME FILE.sif (at the shell)"},
		{"Next: slurmgate recollect " + run + " to look now, or slurmgate cancel " + run, "Next: slurm_job_recollect " + run + " to look now, or slurm_job_cancel " + run,
			"Next: POST /v1/runs/" + run + ":recollect to look now, or POST /v1/runs/" + run + ":cancel"},
		{"slurmgate is a program, and start slurmgate again", "slurmgate is a program, and start slurmgate again", "slurmgate is a program, and start slurmgate again"},
	} {
		for by, want := range map[Transport]string{Local: c.shell, MCP: c.chat, Other: c.http} {
			if got := r.Say(by, c.shell); got != want {
				t.Errorf("%s: %q, want %q", by, got, want)
			}
		}
	}
}

// Whatever stands in a text, putting it into other words ends, and leaves no command that the face could do in its own.
// A chat does not see where the gateway keeps things; the shell and programs do.
//
// proves ARC-01
func TestConceal(t *testing.T) {
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	r.Conceal(map[string]string{"/var/lib/sg": "[state_dir]", "/var/lib/sg/artifacts": "[artifact_dir]", "/shared/runs": "[runs_dir]", "": "[none]"})
	const text = "free space below /var/lib/sg; /var/lib/sg/artifacts/objects and /shared/runs/run_X/a1/ctl/claim: slurmgate runs list"
	for by, want := range map[Transport]string{Local: text, Other: strings.Replace(text, "slurmgate runs list", "GET /v1/runs", 1),
		MCP: "free space below [state_dir]; [artifact_dir]/objects and [runs_dir]/run_X/a1/ctl/claim: run_list"} {
		if got := r.Say(by, text); got != want {
			t.Errorf("%s: %q", by, got)
		}
	}
	if got := r.Hide(MCP, "#SBATCH --chdir=/shared/runs/x"); got != "#SBATCH --chdir=[runs_dir]/x" {
		t.Error(got)
	}
}

func FuzzSay(f *testing.F) {
	for _, s := range Steps() {
		f.Add("Next: slurmgate " + strings.ReplaceAll(s.Shell, "…", "run_3SE9HRX367RN37683ZB6KX0C3D") + ", then")
	}
	r, err := NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r.Say(Local, text) != text {
			t.Error("the shell's words are changed")
		}
		for _, by := range []Transport{MCP, Other} {
			if got := r.Say(by, text); len(got) > 64+8*len(text) {
				t.Errorf("%d bytes of %d", len(got), len(text))
			}
		}
	})
}
