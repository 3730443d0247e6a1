package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// The fake of these tests passes the suites that the real implementations pass: Slurm and the gateway's own host in
// run/runtest, the renderer in slurm, the shared filesystem in staging, the image store in apptainer.
func TestFakeConformance(t *testing.T) {
	var w *world
	inBubble := func(t *testing.T, f func(*testing.T)) {
		bubble(t, func(t *testing.T, world *world) {
			w = world
			f(t)
		})
	}
	jobs := runtest.Setup{Test: inBubble, Open: func(*testing.T) *runtest.Transport { return transport(w) }}
	runtest.Jobs(t, jobs)
	t.Run("no accounting", func(t *testing.T) {
		runtest.NoAccounting(t, run.NoAccounting{})
		inBubble(t, func(t *testing.T) { runtest.NoAccounting(t, &life{w: w}) })
	})
	t.Run("workspace", func(t *testing.T) {
		runtest.Workspace(t, inBubble, func(*testing.T) *runtest.Files { return files(w) })
	})
	t.Run("images", func(t *testing.T) {
		runtest.Images(t, inBubble, func(*testing.T) *runtest.Store {
			return &runtest.Store{Images: &life{w: w},
				Put: func(t *testing.T) string {
					digest := fmt.Sprintf("%064x", len(w.images))
					w.with(func() { w.images[digest] = true })
					return digest
				},
				Damage: func(t *testing.T, digest string) { w.with(func() { w.images[digest] = false }) }}
		})
	})
	t.Run("renderer", func(t *testing.T) {
		token := fmt.Sprintf("%032x", 1)
		id := plan.Identity{ToolName: "suite", ParamsHash: token}.RunID()
		runtest.Renderer(t, &life{}, run.JobSpec{RunID: id, N: 1, Token: token, JobName: run.JobName(id, 1, token), Spec: order().Params.Spec,
			RunDir: "/runs/" + id, ImagePath: "/images/x.sif", ExecArgs: []string{"exec"}, MaxOutputBytes: 1})
	})
}

// files returns the fake's shared filesystem without a gateway.
func files(w *world) *runtest.Files {
	again := func(*testing.T) run.Workspace { return &life{w: w} }
	return &runtest.Files{Workspace: again(nil), Again: again,
		Foreign: func(*testing.T) run.Workspace { return &life{w: w, foreign: true} },
		Leave: func(_ *testing.T, runID, path string, e runtest.Entry) {
			w.with(func() { w.leave(runID, path, e) })
		},
		Read: func(_ *testing.T, runID, path string) (data string, ok bool) {
			w.with(func() { data, ok = w.read(runID, path) })
			return data, ok
		},
		Claim: func(_ *testing.T, runID string, n int, mine string) (got string) {
			w.with(func() { got = string(w.attempt(runID, n).claim([]byte(mine))) })
			return got
		}}
}

// transport returns the fake without a gateway: each query of the queue lets time pass.
func transport(w *world) *runtest.Transport {
	l := w.life()
	w.auto, w.deferred.Scope = true, run.ScopeQOS
	// Accounting has every job that has ended.
	w.accounting = func() (list []run.Job, err error) {
		w.used = nil
		for _, j := range w.jobs {
			if j.Class == run.ClassEnded {
				list = append(list, j.Job)
				w.used = append(w.used, run.Usage{JobID: j.ID, Submitted: j.Submitted, AllocCPUs: 1})
			}
		}
		return list, nil
	}
	n := 0
	return &runtest.Transport{Submitter: l, Queue: l, Accounting: l, Canceller: l, Workspace: l,
		RenderArray: l.RenderArray, Room: run.ScopeQOS,
		Job: func(t *testing.T, k runtest.Kind) run.JobSpec {
			n++
			token := fmt.Sprintf("%032x", n)
			id := plan.Identity{ToolName: "suite", ParamsHash: token}.RunID()
			if err := l.OpenAttempt(t.Context(), id, 1, token); err != nil {
				t.Fatal(err)
			}
			w.kinds[token] = k
			return run.JobSpec{RunID: id, N: 1, Token: token, JobName: run.JobName(id, 1, token), RunDir: l.RunDir(id)}
		},
		Slow: func(*testing.T) func() {
			w.with(func() { w.slow = true })
			return func() { w.with(func() { w.slow = false; clear(w.held) }) }
		},
		Rename: func(_ *testing.T, id, name string) {
			w.with(func() {
				for _, j := range w.jobs {
					if array, _, _ := strings.Cut(j.ID, "_"); id == j.ID || id == array {
						j.as = name
					}
				}
			})
		},
		Until: func(t *testing.T, what string, ok func() bool) {
			t.Helper()
			for range 100 {
				if ok() {
					return
				}
				time.Sleep(time.Second)
			}
			t.Fatalf("no %s", what)
		},
		Executions: func(job run.JobSpec) int { return w.attempt(job.RunID, job.N).executions },
	}
}
