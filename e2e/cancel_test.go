package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

var rpcType = regexp.MustCompile(`(?m)^\s*(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)`)

// kills are the requests to cancel that slurmctld has counted.
func kills(t testing.TB) (n int) {
	t.Helper()
	for _, m := range rpcType.FindAllStringSubmatch(shell(t, "root", "sdiag"), -1) {
		if strings.HasPrefix(m[1], "REQUEST_KILL_JOB") {
			var k int
			_, err := fmt.Sscan(m[2], &k)
			must(t, err)
			n += k
		}
	}
	return n
}

// olderScancel is a scancel from before 24.05 in the place of the cluster's own.
const olderScancel = `mkdir "$1" && for c in sbatch squeue sacct scontrol; do ln -s "/usr/bin/$c" "$1/$c"; done
cat >"$1/scancel" <<'EOF'
#!/bin/bash
case $1 in
--version) echo slurm 23.11.10 ;;
--ctld) echo "scancel: unrecognized option '--ctld'" >&2; exit 1 ;;
*) exec /usr/bin/scancel "$@" ;;
esac
EOF
chmod 755 "$1/scancel"`

// Sixty waiting runs are cancelled as fast as their claims are taken, whatever the site lets the gateway ask of Slurm. Slurm is asked about
// each job once, and all of them leave the queue.
func TestCancelAll(t *testing.T) {
	for name, tt := range map[string]struct {
		runs  int
		older bool
	}{"names compared by slurmctld": {60, false}, "names compared by scancel": {15, true}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "probing")
			d := s.serve()
			jobs := map[string]bool{}
			for i := range tt.runs {
				a := s.submit(s.set(s.set(probePlan("nothing"), "placement.partition", "big"), "execution.command.env", tree{"N": fmt.Sprint(i)}))
				jobs[*s.phase(a.RunID, "pending").SlurmJobID] = true
			}
			d.signal("TERM")
			d.ended(t)
			s.replace("site.yaml", "rpc_per_minute: 6000", "rpc_per_minute: 120")
			if tt.older {
				shell(t, "lab", olderScancel, s.dir+"/bin")
				s.replace("site.yaml", "  transport: cli\n", "  transport: cli\n  bin_dir: "+s.dir+"/bin\n")
			}
			s.serve()
			before := kills(t)
			began := time.Now()
			var out struct {
				Cancelled []struct{ State, Executed string }
				Failed    []string
			}
			s.ok(&out, "cancel-all", "--yes", "--reason", "enough")
			t.Logf("name=cancel_all_%d value=%.2f unit=s", tt.runs, time.Since(began).Seconds())
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("%d cancels took %s", tt.runs, d)
			}
			if len(out.Cancelled) != tt.runs || len(out.Failed) > 0 {
				t.Errorf("%d cancelled, %v failed", len(out.Cancelled), out.Failed)
			}
			for _, c := range out.Cancelled {
				if c.State != "cancelled" || c.Executed != "never" {
					t.Errorf("%+v", c)
				}
			}
			until(t, 2*time.Minute, "end of all jobs", func() bool {
				for _, line := range strings.Split(shell(t, "root", `squeue -h -a -t all -o "%i %T"`), "\n") {
					if id, state, _ := strings.Cut(line, " "); jobs[id] && state != "CANCELLED" {
						return false
					}
				}
				return true
			})
			if n := kills(t) - before; n != tt.runs {
				t.Errorf("slurmctld was asked to cancel %d times for %d jobs", n, tt.runs)
			}
		})
	}
}

// A job that runs is cancelled by one request; until Slurm has stopped it the run says what it waits for.
func TestCancelRunning(t *testing.T) {
	s := newSite(t, "probing")
	s.serve()
	id := s.submit(s.set(probePlan("stubborn", "100"), "resources.time_limit_seconds", 50)).RunID
	s.phase(id, "running")
	s.started(id)
	before := kills(t)
	var a struct{ State, Executed, Message string }
	s.ok(&a, "cancel", id, "--reason", "wrong reads")
	if a.State == "running" {
		if !strings.HasPrefix(a.Message, "cancelling") {
			t.Errorf("%+v", a)
		}
		var l looked
		if s.ok(&l, "get", id); l.State == "running" && l.Phase == "running" && !strings.HasPrefix(l.why(), "cancelling: ") {
			t.Errorf("%+v %s", l, l.why())
		}
	}
	s.ok(&a, "cancel", id)
	s.endedBadly(s.wait(id), "cancelled", "cancelled")
	if n := kills(t) - before; n != 1 {
		t.Errorf("slurmctld was asked to cancel %d times", n)
	}
}
