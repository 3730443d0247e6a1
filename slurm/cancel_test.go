package slurm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
)

// Messages have the same meaning with and without --ctld, which is used from 24.05 on.
func TestCancelAnswers(t *testing.T) {
	for version, ctld := range map[string]bool{"slurm 22.05.8": false, "slurm-wlm 23.11.10": false, "slurm 24.02.1": false,
		"slurm 24.05.0": true, "slurm-wlm 24.11.5": true, "slurm 26.05.5": true} {
		t.Run(version, func(t *testing.T) { cancelAnswers(t, version, ctld) })
	}
	c, r := fakeCLI(t)
	r.answer("scancel --version", Output{Stdout: []byte("slurm 24.11.5\n")})
	for id, name := range map[string]string{"-1": "sg-a", "1 2": "sg-a", "": "sg-a", "1": "other", "2": "sg-a,b", "3": "sg-a b"} {
		if err := c.Cancel(t.Context(), id, name, ""); err == nil || len(r.calls) > 0 {
			t.Errorf("%q %q: %v, %d calls", id, name, err, len(r.calls))
		}
	}
	// The version is asked once, and again after a failure: Slurm may have been replaced.
	for range 3 {
		must(t, c.Cancel(t.Context(), "28", "sg-run_x-a1-aabb", ""))
	}
	if len(r.calls) != 4 {
		t.Errorf("3 cancels made %d calls of scancel", len(r.calls))
	}
	r.answer("scancel --version", Output{Stdout: []byte("slurm 23.02.1\n")})
	r.answer("scancel --ctld", Output{Stderr: "scancel: unrecognized option '--ctld'\n", Exit: 1})
	if err := c.Cancel(t.Context(), "28", "sg-run_x-a1-aabb", ""); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
	if err := c.Cancel(t.Context(), "28", "sg-run_x-a1-aabb", ""); err != nil || r.last().Args[0] == "--ctld" {
		t.Errorf("Cancel after scancel refused --ctld gives %v with the arguments %q, want no error and no --ctld",
			err, r.last().Args)
	}
	c, r = fakeCLI(t)
	r.answer("scancel --version", Output{Stdout: []byte("nonsense\n")})
	if err := c.Cancel(t.Context(), "28", "sg-run_x-a1-aabb", ""); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
}

// Tasks of an array are cancelled in one call, which has failed if any of them could have been cancelled and was not.
// Before 24.05 each takes one call.
func TestCancelsTasks(t *testing.T) {
	const name = "sg-array-000000000000000000000001"
	over := "scancel: error: Kill job error on job id 28_0: Job/step already completing or completed\n"
	for stderr, fine := range map[string]bool{"": true, over: true,
		over + "scancel: error: Kill job error on job id 28_2: Access/permission denied\n":                                   false,
		over + "scancel: error: Kill job error on job id 28_2: Job name sg-x != filter name " + name + ": Cannot signal job": true} {
		c, r := fakeCLI(t)
		r.answer("scancel --version", Output{Stdout: []byte("slurm 24.11.5\n")})
		r.answer("scancel --ctld", Output{Stderr: stderr, Exit: 1})
		if stderr == "" {
			r.answer("scancel --ctld", Output{})
		}
		if err := c.Cancel(t.Context(), "28_[0,2]", name, ""); (err == nil) != fine {
			t.Errorf("Cancel with scancel's answer %q gives %v, want success: %v", stderr, err, fine)
		}
		if d := cmp.Diff([]string{"--ctld", "--name=" + name, "--user=lab", "28_0", "28_2"}, r.last().Args); d != "" || len(r.calls) != 2 {
			t.Errorf("scancel's arguments after %d calls, want 2 calls, differ (-want +got):\n%s", len(r.calls), d)
		}
	}
	c, r := fakeCLI(t)
	r.answer("scancel --version", Output{Stdout: []byte("slurm 23.11.1\n")})
	if err := c.Cancel(t.Context(), "28_[0,2]", name, ""); err != nil || len(r.calls) != 3 || r.last().Args[2] != "28_2" {
		t.Errorf("Cancel of two tasks gives %v, %d calls and at last %q, want 3 calls and at last 28_2",
			err, len(r.calls), r.last().Args)
	}
	for _, id := range []string{"28_[]", "28_[1-3]", "28_[1", "28_[1,2", "_[1]", "28_[1,x]"} {
		before := len(r.calls)
		if err := c.Cancel(t.Context(), id, name, ""); err == nil || len(r.calls) != before {
			t.Errorf("Cancel of the job %q gives %v and %d calls, want an error and no call", id, err, len(r.calls)-before)
		}
	}
}

func cancelAnswers(t *testing.T, version string, ctld bool) {
	args := []string{"--name=sg-run_x-a1-aabb", "--user=lab", "28"}
	if ctld {
		args = append([]string{"--ctld"}, args...)
	}
	for stderr, want := range map[string]fault.Kind{
		"": "",
		"scancel: error: Kill job error on job id 28: Job name sg-x != filter name sg-run_x-a1-aabb: Cannot signal job\n": "",
		"scancel: error: Kill job error on job id 28: Job user id 1002 != filter user id 1003: Cannot signal job\n":       "",
		"scancel: error: Kill job error on job id 28: Invalid job id specified\n":                                         "",
		"scancel: error: Kill job error on job id 28: Job/step already completing or completed\n":                         "",
		"slurm_load_jobs error: Socket timed out on send/recv operation\n":                                                fault.Transport,
		"scancel: error: Kill job error on job id 28: Access/permission denied\n":                                         fault.Transport,
	} {
		c, r := fakeCLI(t)
		exit := 1
		if stderr == "" {
			exit = 0
		}
		r.answer("scancel "+args[0], Output{Stderr: stderr, Exit: exit})
		r.answer("scancel --version", Output{Stdout: []byte(version + "\n")})
		err := c.Cancel(t.Context(), "28", "sg-run_x-a1-aabb", "")
		if want == "" && err != nil || want != "" && !fault.Is(err, want) {
			t.Errorf("Cancel with scancel's answer %q gives %v, want the kind %q", stderr, err, want)
		}
		if d := cmp.Diff(args, r.last().Args); d != "" {
			t.Errorf("scancel's arguments differ (-want +got):\n%s", d)
		}
	}
}
