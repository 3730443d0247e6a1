package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// What an administrator does to a running job of Slurm's: a suspended one reports so and loses no time, a raised limit
// counts, and one that is queued again ends at once, because it can never execute.
func TestAdministratorsOfRunningJobs(t *testing.T) {
	t.Parallel()
	const limit = 20 // seconds: time enough for what is done to a running job on a busy machine
	s := newSite(t, "probing")
	s.serve()
	submit := func(what string) (id, job string) {
		t.Helper()
		id = s.submit(s.set(probePlan("await", "out/go", "out/result", what), "resources.time_limit_seconds", limit)).RunID
		s.started(id)
		return id, s.story(id).SlurmJobID
	}
	reason := func(id, want string) {
		t.Helper()
		until(t, want, func() bool {
			var l looked
			s.ok(&l, "get", id)
			return strings.HasPrefix(l.why(), want)
		})
	}
	pass := func(began time.Time) {
		until(t, "the program's limit", func() bool { return time.Since(began) > (limit+2)*time.Second })
	}
	end := func(id string) looked {
		t.Helper()
		shell(t, "lab", `touch "$1/runs/$2/a1/out/go"`, s.dir, id)
		return s.wait(id)
	}
	t.Run("suspended", func(t *testing.T) {
		id, job := submit("suspended")
		shell(t, "root", `scontrol suspend "$1"`, job)
		reason(id, "suspended")
		pass(time.Now())
		shell(t, "root", `scontrol resume "$1"`, job)
		until(t, "resumed program", func() bool { // one that ends while it is resumed may lose its status
			return shell(t, "root", `ps -eo state=,args= | grep -c '^T.*await.*suspended' || true`) == "0"
		})
		if l := end(id); l.State != "succeeded" {
			t.Errorf("after a suspension that was longer than its limit the run is %s: %s", l.State, l.why())
		}
	})
	t.Run("raised", func(t *testing.T) {
		id, job := submit("raised")
		began := time.Now()
		shell(t, "root", `scontrol update jobid="$1" timelimit=30`, job)
		until(t, "raised limit beside the claim", func() bool {
			text, err := os.ReadFile(host(s.story(id).Workspace) + "/a1/ctl/limit")
			return err == nil && strings.HasSuffix(string(text), " seconds=1800\n")
		})
		pass(began)
		if l := end(id); l.State != "succeeded" {
			t.Errorf("after its limit in Slurm was raised to 30 minutes the run is %s: %s", l.State, l.why())
		}
	})
	t.Run("queued again", func(t *testing.T) {
		id, job := submit("queued again")
		shell(t, "root", `scontrol update jobid="$1" requeue=1; scontrol requeue "$1"`, job)
		if l := s.wait(id); l.State != "failed" || !strings.HasPrefix(l.why(), "preempted") || !strings.Contains(l.why(), "queued it again") {
			t.Errorf("after its job was queued again the run is %s: %s", l.State, l.why())
		}
		until(t, "end of the job in Slurm", func() bool {
			return shell(t, "root", `squeue -h -t all -j "$1" -o %T`, job) == "CANCELLED"
		})
	})
}
