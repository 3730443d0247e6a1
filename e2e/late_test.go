package e2e

import (
	"os"
	"strings"
	"testing"
)

// A job that starts when its workspace has been removed executes nothing: held back by Slurm until then, its sbatch
// sent by a gateway that died, or found by a controller that came back. It is sent here by hand, with the very options
// and script of the attempt.
func TestLateJobWithoutWorkspace(t *testing.T) {
	t.Parallel()
	gone, goneSays := "95:0", "the attempt's folder is not on this node"
	if strings.Contains(shell(t, "lab", "sinfo --version"), " 22.05.") {
		gone, goneSays = "0:53", ""
	}
	tests := []struct {
		name    string
		empty   string // by a shell in the run's folder; $1 is the folder aside
		retried bool
		code    string // as Slurm records it
		says    string // the job's own log, where Slurm makes one
	}{
		{"as it was", "", false, "90:0", "another has the claim"},
		{"emptied", "rm -r in a1/ctl/pinned.sha256 a1/ctl/script", false, "95:0", "the attempt's folder is not on this node"},
		// Slurm makes the folders of a job's output again: there is a claim to take, and nothing that is pinned. 22.05 makes none, and so cannot
		// start the script.
		{"the folder is gone", `mv "$PWD" "$1"`, false, gone, goneSays},
		{"the folder is gone, and there is another attempt", `mv "$PWD" "$1"`, true, gone, goneSays},
		// Where a file has its name no folder can be made: Slurm cannot start the script.
		{"a file where the attempt was", `mv a1 "$1"; echo removed >a1`, false, "0:53", ""},
		{"removed by gc", `slurmgate gc`, false, "0:53", ""},
		{"removed by gc, and there is another attempt", `slurmgate gc`, true, "0:53", ""},
		{"a file where the attempt was, and there is another", `mv a1 "$1"; echo removed >a1`, true, "0:53", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "probing")
			runID, _ := s.waiting(withInputOf(s, probePlan("write", "out/result", "late")))
			v := s.story(runID)
			script := value(os.ReadFile(host(v.Workspace + "/a1/ctl/script")))(t)
			options := sentWith(t, string(script), v.Workspace)
			copied := s.file("late.sh", string(script))
			s.ok(nil, "cancel", runID)
			s.mustEnd(runID, "cancelled")
			aside := s.dir + "/aside"
			if tt.empty == "slurmgate gc" {
				s.ok(nil, "gc", "--workspaces-older-than", "0s")
			} else {
				shell(t, "lab", `cd "$2"; `+tt.empty, aside, v.Workspace)
			}
			if tt.retried {
				s.ok(nil, "retry", runID)
			}
			job := shell(t, "lab", `sbatch --hold `+options+` "$1"`, copied)
			shell(t, "lab", `scontrol update jobid="$1" partition=main && scontrol release "$1"`, job)
			var record string
			until(t, "end of the late job", func() bool {
				record = shell(t, "lab", `sacct -X -n -P -D -j "$1" --format=State,ExitCode`, job)
				return strings.HasPrefix(record, "FAILED|") || strings.HasPrefix(record, "COMPLETED|")
			})
			if record != "FAILED|"+tt.code {
				t.Errorf("Slurm reports %s, want exit %s", record, tt.code)
			}
			log, _ := os.ReadFile(host(v.Workspace + "/a1/ctl/job.log"))
			if tt.says != "" && !strings.Contains(string(log), tt.says) || strings.Contains(string(log), "ok, code 0") {
				t.Errorf("the job logged %q", log)
			}
			for _, at := range []string{v.Workspace, aside} {
				// what the program, and what its start makes
				for _, file := range []string{"/a1/out/result", "/out/result", "/a1/ctl/stderr", "/ctl/stderr"} {
					if _, err := os.Lstat(host(at + file)); err == nil {
						t.Errorf("there is %s", at+file)
					}
				}
			}
			if tt.retried { // the attempt that is meant to execute is not disturbed
				l := s.phase(runID, "pending")
				shell(t, "lab", `scontrol update jobid="$1" partition=main`, *l.SlurmJobID)
				s.ends(runID, "succeeded")
			}
		})
	}
}

// sentWith takes the options of sbatch out of the script's own comment, all but the name of the script.
func sentWith(t *testing.T, script, workspace string) string {
	t.Helper()
	_, rest, ok := strings.Cut(script, "#   sbatch ")
	lines, _, end := strings.Cut(rest, "\n#\n")
	options, file, name := strings.Cut(strings.ReplaceAll(lines, "\\\n#     ", ""), " "+workspace)
	if !ok || !end || !name || file != "/a1/ctl/script" {
		t.Fatalf("not the comment this test knows: %q", lines)
	}
	return options
}
