package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// inArrays makes n runs leave together, however long they take to get ready. The first ready run may leave alone,
// because no other is on the way yet.
func (s *site) inArrays(n int) { s.arrays(n-1, time.Minute) }

// arrays sets when a pending array is sent: with min runs, or a tenth of linger after the last run that joined it.
func (s *site) arrays(min int, linger time.Duration) {
	s.replace("site.yaml", "slurm:\n", fmt.Sprintf("slurm:\n  arrays: {min: %d, linger_ms: %d}\n", min, linger.Milliseconds()))
}

// together submits runs behind a drain of the queue and then releases all of them.
func (s *site) together(docs ...tree) (ids []string) {
	s.t.Helper()
	s.ok(nil, "drain", "--queue", "--reason", "company")
	ids = make([]string, len(docs))
	var wg sync.WaitGroup
	for i, doc := range docs {
		wg.Go(func() { ids[i] = s.submit(doc).RunID })
	}
	wg.Wait()
	s.ok(nil, "resume")
	return ids
}

// arrayOf returns the array that contains the runs' jobs, all but two at most, and the job of each.
func (s *site) arrayOf(ids []string) (array string, jobs map[string]string) {
	s.t.Helper()
	jobs = map[string]string{}
	tasks := map[string]int{}
	for _, id := range ids {
		until(s.t, "job of "+id, func() bool {
			var l looked
			if s.ok(&l, "get", id); l.SlurmJobID != nil {
				jobs[id] = *l.SlurmJobID
			}
			return jobs[id] != ""
		})
		if of, _, task := strings.Cut(jobs[id], "_"); task {
			if tasks[of]++; tasks[of] > tasks[array] {
				array = of
			}
		}
	}
	if tasks[array] < max(2, len(ids)-2) {
		s.t.Fatalf("%d runs, and as tasks of arrays %v: %v", len(ids), tasks, jobs)
	}
	return array, jobs
}

// tasksEnd checks five runs of one array: each ends independently, however it ends.
func tasksEnd(t *testing.T, s *site) {
	t.Helper()
	docs := []tree{probePlan("exit", "3"), probePlan("await", "out/never", "out/result")}
	for i := range 3 {
		docs = append(docs, probePlan("write", "out/result", fmt.Sprint("task", i)))
	}
	ids := s.together(docs...)
	_, jobs := s.arrayOf(ids)
	s.phase(ids[1], "running")
	s.ok(nil, "cancel", ids[1])
	s.ends(ids[1], "cancelled")
	if l := s.wait(ids[0]); l.State != "failed" || l.ExitCode == nil || *l.ExitCode != 3 {
		t.Errorf("a task that exits with 3: %v, status %v; want it failed with 3", l, l.ExitCode)
	}
	for i, id := range ids[2:] {
		if l := s.wait(id); l.State != "succeeded" || *l.SlurmJobID != jobs[id] || string(s.bytesOf(l.Roles["result"])) != fmt.Sprint("task", i) {
			t.Errorf("task %d: %v, want it succeeded with its own job and output", i, l)
		}
	}
}

// Runs that are ready together are one job array for Slurm and separate runs for callers, however the gateway reaches
// the cluster (see runtest.Arrays); squeue names the tool and the caller. proves MANY-02
func TestArrays(t *testing.T) {
	t.Parallel()
	t.Run("cli", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "probing")
		s.inArrays(5)
		s.serve()
		tasksEnd(t, s)
		if l := s.wait(s.submit(probePlan("write", "out/result", "alone")).RunID); l.State != "succeeded" ||
			strings.Contains(*l.SlurmJobID, "_") {
			t.Errorf("a run that is ready alone: %v as job %s, want it succeeded outside of an array", l,
				*l.SlurmJobID)
		}
	})
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "probing")
		s.inArrays(30)
		s.wrapped("scancel", `echo "$*" >>`+s.dir+`/scancels; exec /usr/bin/scancel "$@"`)
		s.serve()
		var docs []tree
		for i := range 30 {
			docs = append(docs, s.set(s.set(probePlan("nothing"), "placement.partition", "big"), "execution.command.env",
				tree{"N": fmt.Sprint(i)}))
		}
		array, _ := s.arrayOf(s.together(docs...))
		if shown := shell(t, "root", `squeue -h -r -j "$1" -o '%j %k' | sort -u`, array); strings.Contains(shown, "\n") ||
			!strings.HasPrefix(shown, "sg-array-") || !strings.Contains(shown, "by=user:lab") {
			t.Errorf("squeue shows %q", shown)
		}
		var out struct {
			Cancelled []struct{ State, Executed string }
		}
		s.ok(&out, "cancel-all", "--yes", "--reason", "enough")
		for _, c := range out.Cancelled {
			if c.State != "cancelled" || c.Executed != "never" {
				t.Errorf("cancel-all reports for a waiting task %+v, want it cancelled and never executed", c)
			}
		}
		until(t, "empty queue", func() bool {
			return len(out.Cancelled) == 30 && shell(t, "root", `squeue -h -j "$1" 2>/dev/null || true`, array) == ""
		})
		if calls := strings.Count(shell(t, "lab", `cat "$1"`, s.dir+"/scancels"), "--name="); calls > 10 {
			t.Errorf("%d scancel for 30 runs", calls)
		}
	})
	// An admin cancels tasks that wait, one after the other: Slurm keeps no record of any but the last, and the runs are cancelled all the
	// same, as those of single jobs.
	t.Run("cancelled by the admin", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "probing")
		s.inArrays(4)
		s.serve()
		var docs []tree
		for i := range 4 {
			docs = append(docs, s.set(s.set(probePlan("nothing"), "placement.partition", "big"), "execution.command.env",
				tree{"N": fmt.Sprint(i)}))
		}
		ids := s.together(docs...)
		array, jobs := s.arrayOf(ids)
		for _, id := range ids {
			s.phase(id, "pending")
		}
		for _, id := range ids {
			shell(t, "root", `scancel "$1"`, jobs[id])
		}
		if left := shell(t, "root", `squeue -h -t all -j "$1" -o '%i %T'`, array); left != array+" CANCELLED" {
			t.Errorf("squeue shows %q", left)
		}
		for _, id := range ids {
			s.endedBadly(s.wait(id), "cancelled", "cancelled")
		}
	})
}
