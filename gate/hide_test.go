package gate

import (
	"testing"
)

// A chat does not see where the gateway keeps things; the shell and programs do.
//
// proves ARC-01
func TestConceal(t *testing.T) {
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	r.Conceal(map[string]string{"/var/lib/sg": "[state_dir]", "/var/lib/sg/artifacts": "[artifact_dir]", "/shared/runs": "[runs_dir]",
		"": "[none]"})
	const text = "free space below /var/lib/sg; /var/lib/sg/artifacts/objects and /shared/runs/run_X/a1/ctl/claim"
	for by, want := range map[Transport]string{Local: text, Other: text,
		MCP: "free space below [state_dir]; [artifact_dir]/objects and [runs_dir]/run_X/a1/ctl/claim"} {
		if got := r.Hide(by, text); got != want {
			t.Errorf("%s: %q", by, got)
		}
	}
	if got := r.Hide(MCP, "#SBATCH --chdir=/shared/runs/x"); got != "#SBATCH --chdir=[runs_dir]/x" {
		t.Error(got)
	}
}
