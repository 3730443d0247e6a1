package runtest

import (
	"bytes"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/run"
)

// Renderer runs the suite of [run.Renderer]. job must have inputs and be valid.
func Renderer(t *testing.T, r run.Renderer, job run.JobSpec) {
	script, pinned, err := r.Render(job)
	if err != nil || len(script) == 0 {
		t.Fatalf("%q %v", script, err)
	}
	t.Run("same bytes", func(t *testing.T) {
		again, list, err := r.Render(job)
		if err != nil || !bytes.Equal(again, script) || !bytes.Equal(list, pinned) {
			t.Errorf("%v", err)
		}
	})
	t.Run("pinned", func(t *testing.T) {
		want := job.Spec.ImageDigest() + "  " + job.ImagePath + "\n"
		for _, in := range job.Spec.IO.Inputs {
			want += in.ChecksumSHA256 + "  " + in.DestRelpath + "\n"
		}
		if len(job.Spec.IO.Inputs) == 0 || string(pinned) != want {
			t.Errorf("got %q, want %q", pinned, want)
		}
	})
	t.Run("another attempt", func(t *testing.T) {
		other := job
		other.N, other.Token = job.N+1, strings.Repeat("e", 32)
		other.JobName = run.JobName(other.RunID, other.N, other.Token)
		if got, list, err := r.Render(other); err != nil || bytes.Equal(got, script) || !bytes.Equal(list, pinned) {
			t.Errorf("the same script, or another list: %v", err)
		}
	})
	t.Run("no plan", func(t *testing.T) {
		other := job
		other.Spec.Execution.Command.Argv = nil
		if got, list, err := r.Render(other); fault.KindOf(err) != fault.Validation || got != nil || list != nil {
			t.Errorf("%q %q %v", got, list, err)
		}
	})
}
