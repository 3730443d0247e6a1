package run_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// ended brings a run to its end: the job started, then f changed it.
func ended(t *testing.T, w *world, change func(*plan.Params), f func(j *job, a *attempt)) run.View {
	t.Helper()
	return w.life().ended(change, f)
}

func (l *life) ended(change func(*plan.Params), f func(j *job, a *attempt)) run.View {
	w := l.w
	w.t.Helper()
	o := order()
	if change != nil {
		change(&o.Params)
	}
	a := l.submit(o)
	w.with(func() {
		w.start(w.jobs[0])
		f(w.jobs[0], w.attempt(a.RunID, 1))
	})
	return w.until(a.RunID, func(v run.View) bool { return done(v) || v.Run.State == run.Blocked })
}

// wantOnlyLogs fails the test unless the log is registered, and nothing but the gateway's own files is.
func (w *world) wantOnlyLogs(id string) {
	w.t.Helper()
	got := w.outputs(id)
	for _, role := range []string{"report", "table"} {
		if _, has := got[role]; has {
			w.t.Errorf("the output %s is registered, want only the logs", role)
		}
	}
	if got["log"] == "" || got["slurm_script"] == "" {
		w.t.Errorf("the registered outputs are %v, want log and slurm_script among them", got)
	}
}

// wantOutputs fails the test unless the run has these roles, other than the gateway's own.
func (w *world) wantOutputs(id, want string) {
	w.t.Helper()
	got := w.outputs(id)
	if got["log"] == "" || got["slurm_script"] == "" {
		w.t.Errorf("the run %s has the artifacts %v, want its log and script among them", id, got)
	}
	var roles []string
	for role := range got {
		if !slices.Contains(plan.ReservedRoles(), role) {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	if all := strings.Join(roles, " "); all != want {
		w.t.Errorf("the run %s has the outputs %q, want %q", id, all, want)
	}
}

// A run made when output roles could differ only in case ends and can be read, whatever its roles are called.
func TestRolesOfOldRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		v := ended(t, w, func(p *plan.Params) {
			p.Spec.IO.Outputs[0].Role, p.Spec.IO.Outputs[1].Role = "Report", "report"
		}, func(j *job, a *attempt) { w.finish(j) })
		w.want(v, run.Succeeded, "ok")
		if got := w.outputs(v.Run.ID); got["Report"] == "" || got["report"] == "" {
			t.Errorf("the outputs of an old run are %q, want the roles Report and report", got)
		}
	})
}

// Outputs that do not match their declaration fail the run with the reason. Complete outputs stay, and so does the log;
// the bytes of what was refused are kept under a role that marks them as rejected, and have no type that a tool accepts
// unless they are complete. proves ABI-15, CARD-05
func TestOutputsRejected(t *testing.T) {
	replace := func(a *attempt, old, new string) {
		a.ctl["manifest"] = []byte(strings.Replace(string(a.ctl["manifest"]), old, new, 1))
	}
	for name, c := range map[string]struct {
		change func(w *world, j *job, a *attempt)
		params func(*plan.Params)
		reason string
		stays  string // registered roles, other than the gateway's own
	}{
		"missing": {func(w *world, j *job, a *attempt) {
			delete(a.out, "out/t.tsv")
			w.manifest(j)
			replace(a, "end\n", "missing out/t.tsv\nend\n")
		}, nil, "OUTPUT-MISSING", "report"},
		"not in the manifest": {func(w *world, j *job, a *attempt) {
			delete(a.out, "out/t.tsv")
			w.manifest(j)
		}, nil, "OUTPUT-MISSING", "report"},
		"irregular": {func(w *world, j *job, a *attempt) {
			delete(a.out, "out/t.tsv")
			w.manifest(j)
			replace(a, "end\n", "irregular out/t.tsv\nend\n")
		}, nil, "OUTPUT-IRREGULAR", "report"},
		"too big": {func(w *world, j *job, a *attempt) {
			a.out["out/t.tsv"] = strings.Repeat("x", 1001)
			w.manifest(j)
		}, nil, "OUTPUT-SIZE", "report"},
		"too big together": {func(w *world, j *job, a *attempt) {
			a.out["out/t.tsv"] = strings.Repeat("x", 990)
			w.manifest(j)
		}, nil, "OUTPUT-SIZE", "report"},
		"too big to be hashed":  {func(w *world, j *job, a *attempt) { oversize(w, j, a, 10<<40) }, nil, "OUTPUT-SIZE", "report"},
		"too big for its limit": {func(w *world, j *job, a *attempt) { oversize(w, j, a, 900) }, nil, "OUTPUT-SIZE", "report"},
		"changed afterwards": {func(w *world, j *job, a *attempt) {
			a.out["out/t.tsv"] = strings.ToUpper(a.out["out/t.tsv"])
		}, nil, "OUTPUT-CHANGED", "rejected:table report"},
		"shorter than said": {func(w *world, j *job, a *attempt) { a.out["out/t.tsv"] = "" }, nil, "OUTPUT-CHANGED", "rejected:table report"},
		"grown afterwards":  {func(w *world, j *job, a *attempt) { a.out["out/t.tsv"] += "more" }, nil, "OUTPUT-CHANGED", "report"},
		"a symlink by now": {func(w *world, j *job, a *attempt) {
			a.odd["out/t.tsv"] = runtest.Symlink
		}, nil, "OUTPUT-SYMLINK", "report"},
		"gone by now": {func(w *world, j *job, a *attempt) { delete(a.out, "out/t.tsv") }, nil, "OUTPUT-MISSING", "report"},
		"undeclared, strict": {func(w *world, j *job, a *attempt) { a.out["out/extra"] = "x" },
			func(p *plan.Params) { p.Tool.StrictOutputs = true }, "OUTPUT-UNDECLARED", "report table"},
		"contract broken": {func(w *world, j *job, a *attempt) {
			w.contracts[packHash] = fault.Invalid("", fault.Problem{Code: "OUTPUT-SCHEMA", Msg: "no"})
		}, nil, "OUTPUT-SCHEMA", "rejected:report rejected:table"},
		"contract broken in one": {func(w *world, j *job, a *attempt) {
			w.contracts[packHash] = fault.Invalid("", fault.Problem{Code: "OUTPUT-VALUE", Field: "report.value.n", Msg: "no"})
		}, nil, "OUTPUT-VALUE", "rejected:report table"},
		"contract broken in one, another missing": {func(w *world, j *job, a *attempt) {
			delete(a.out, "out/t.tsv")
			w.manifest(j)
			w.contracts[packHash] = fault.Invalid("", fault.Problem{Code: "OUTPUT-VALUE", Field: "report.value.n", Msg: "no"})
		}, nil, "OUTPUT-MISSING", "rejected:report"},
		"not of its type": {func(w *world, j *job, a *attempt) {
			a.out["out/report.json"] = `{"cut`
			w.manifest(j)
		}, nil, "OUTPUT-FORMAT", "rejected:report table"},
		"too few bytes": {func(w *world, j *job, a *attempt) { w.asked.bytes = 900 }, nil, "OUTPUT-BYTES", "rejected:report rejected:table"},
		"too few rows":  {func(w *world, j *job, a *attempt) { w.asked.rows = 2 }, nil, "OUTPUT-ROWS", "rejected:report rejected:table"},
		"a condition broken": {func(w *world, j *job, a *attempt) {
			w.asked.value = fault.New(fault.Tool, "OUTPUT-EXPR", "no reads")
		}, nil, "OUTPUT-EXPR", "rejected:report table"},
		"said to have failed": {func(w *world, j *job, a *attempt) {
			a.ctl["stderr"] = []byte("reading\n\x1b[31m[ERRO]\x1b[0m bad record\n")
			w.asked.lines = byPattern("stderr ", "[ERRO] bad", run.LineFailure)
		}, nil, "STDERR-FAILURE", "rejected:report rejected:table"},
		"manifest cut":              {func(w *world, j *job, a *attempt) { replace(a, "end\n", "") }, nil, "OUTPUT-MANIFEST", ""},
		"manifest of another job":   {func(w *world, j *job, a *attempt) { replace(a, "job=100", "job=101") }, nil, "OUTPUT-MANIFEST", ""},
		"manifest of another start": {func(w *world, j *job, a *attempt) { replace(a, "restart=0", "restart=1") }, nil, "OUTPUT-MANIFEST", ""},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			v := ended(t, w, c.params, func(j *job, a *attempt) { w.finish(j); c.change(w, j, a) })
			w.want(v, run.Failed, c.reason)
			w.wantOutputs(v.Run.ID, c.stays)
			if v.Run.Detail == "" || v.Attempt.Ending != run.EndedOutputs && v.Attempt.Ending != run.EndedContract || *v.Run.ExitCode != 0 {
				t.Errorf("the run is %+v, want ended by its outputs with the exit code 0 and a detail", v.Run)
			}
		})
	}
}

// A run is judged by the pack it was planned with, not by one that was loaded since. proves ABI-15
func TestJudgedByItsPack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		old := plan.Hash([]byte(`{"id":"test.tool","version":"old"}`))
		w.contracts[old] = fault.New(fault.Tool, "OUTPUT-REQUIRED", "the old pack wants more")
		l := w.life()
		o := order()
		o.PackHash = old
		id := l.submit(o).RunID
		w.until(id, in(run.Pending))
		w.with(func() { w.start(w.jobs[0]); w.finish(w.jobs[0]) })
		w.ended(id, run.Failed, "OUTPUT-REQUIRED")
		w.wantOutputs(id, "rejected:report rejected:table")
	})
}

// If the ledger does not have the pack, an older gateway's run ends with a warning that names what was not checked.
func TestNoContract(t *testing.T) {
	for name, judge := range map[string]error{"not stored": nil, "not usable": fault.New(fault.Validation, "pack_unreadable",
		"an unknown keyword")} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			if w.contracts[packHash] = judge; judge == nil {
				delete(w.contracts, packHash)
			}
			v := ended(t, w, nil, func(j *job, _ *attempt) { w.finish(j) })
			w.want(v, run.Succeeded, "ok")
			if len(v.Run.Warnings) != 1 || !strings.Contains(v.Run.Warnings[0], "output schema") || !strings.Contains(string(v.Run.ResultJSON),
				"output schema") {
				t.Errorf("the warnings are %q, want one about the output schema, which the result has too", v.Run.Warnings)
			}
		})
	}
}

// A pack that cannot be read now does not let a run pass without a check: the run waits, names the reason, and
// continues.
func TestContractWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		id := l.submit(order()).RunID
		w.until(id, in(run.Pending))
		w.with(func() {
			w.contracts[packHash] = fault.New(fault.Internal, "ledger_corrupt", "the stored pack no longer has its hash")
			w.start(w.jobs[0])
			w.finish(w.jobs[0])
		})
		v := w.until(id, func(v run.View) bool { return v.Run.Reason == "collecting_waits" })
		if !strings.Contains(v.Run.Detail, "no longer has its hash") {
			t.Errorf("the run waits with %q, want that the stored pack no longer has its hash", v.Run.Detail)
		}
		w.with(func() { w.contracts[packHash] = nil })
		w.want(w.until(id, done), run.Succeeded, "ok")
	})
}

// oversize writes a manifest with an output that is too big and has no checksum.
func oversize(w *world, j *job, a *attempt, size int64) {
	w.manifest(j)
	a.ctl["manifest"] = regexp.MustCompile(`file \w+ \d+ out/t.tsv`).ReplaceAll(a.ctl["manifest"], fmt.Appendf(nil, "oversize %d out/t.tsv",
		size))
}

// An attempt that Slurm ended after its program, while outputs were hashed, left an exit file and no manifest. It ends
// with Slurm's state, even if only accounting still has that.
func TestEndedWithoutManifest(t *testing.T) {
	for state, reason := range map[string]string{"TIMEOUT": "time_limit", "CANCELLED": "cancelled", "FAILED": "lost"} {
		for name, forgot := range map[string]bool{"squeue shows it": false, "accounting alone knows it": true} {
			bubbleRun(t, state+"/"+name, func(t *testing.T, w *world) {
				w.accounting = func() ([]run.Job, error) { return []run.Job{w.jobs[0].Job}, nil }
				v := ended(t, w, nil, func(j *job, a *attempt) {
					w.finish(j)
					w.end(j, state, 0)
					delete(a.ctl, "manifest")
					j.forgot = forgot
				})
				want := run.Failed
				if state == "CANCELLED" {
					want = run.Cancelled
				}
				w.want(v, want, reason)
				w.wantOnlyLogs(v.Run.ID)
			})
		}
	}
}

// Undeclared files are named in a warning and not collected.
func TestUndeclared(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		v := ended(t, w, nil, func(j *job, a *attempt) { w.finish(j); a.out["out/extra"] = "x" })
		w.want(v, run.Succeeded, "ok")
		if len(v.Run.Warnings) != 1 || !strings.Contains(v.Run.Warnings[0], "out/extra") || !strings.Contains(string(v.Run.ResultJSON),
			"out/extra") {
			t.Errorf("the warnings are %q, want one about out/extra, which the result has too", v.Run.Warnings)
		}
	})
}

// JSON outputs are values in the result if they fit, and a run never hangs on one that does not.
func TestJSONValues(t *testing.T) {
	for name, c := range map[string]struct {
		doc   string
		value bool
	}{
		"object": {`{"b": 1, "a": [true]}`, true}, "number": {`1.50`, true}, "as deep as fits": {strings.Repeat("[", 60) + strings.Repeat("]",
			60), true},
		"too deep": {strings.Repeat("[", 63) + strings.Repeat("]", 63), false}, "too large": {`"` + strings.Repeat("x", 17<<10) + `"`, false},
		"duplicate key": {`{"a":1,"a":2}`, false}, "big number": {`9007199254740993`, false}, "invalid UTF-8": {"\"\xff\"", false},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			v := ended(t, w, func(p *plan.Params) { p.Tool = nil }, func(j *job, a *attempt) {
				w.finish(j)
				a.out["out/report.json"] = c.doc
				w.manifest(j)
			})
			w.want(v, run.Succeeded, "ok")
			var res struct {
				Output map[string]struct{ Value json.RawMessage }
			}
			if err := json.Unmarshal(v.Run.ResultJSON, &res); err != nil || (res.Output["report"].Value != nil) != c.value {
				t.Errorf("the result is %s %v, want the value of report in it: %v", v.Run.ResultJSON, err, c.value)
			}
		})
	}
}

// A thousand JSON outputs do not make a result too big to store.
func TestManyValues(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.OutputBytes = 1 << 30
		v := ended(t, w, func(p *plan.Params) {
			p.Tool, p.Spec.IO.Outputs = nil, nil
			for i := range 100 {
				p.Spec.IO.Outputs = append(p.Spec.IO.Outputs, plan.Output{Role: fmt.Sprintf("r%03d", i), SrcRelpath: fmt.Sprintf("out/%03d.json", i),
					Type: "JSON", Label: "l"})
			}
		}, func(j *job, a *attempt) {
			for _, o := range j.spec.Spec.IO.Outputs {
				a.out[o.SrcRelpath] = `"` + strings.Repeat("x", 15<<10) + `"`
			}
			w.finish(j)
		})
		w.want(v, run.Succeeded, "ok")
		if n := len(v.Run.ResultJSON); n > 512<<10 || n < 200<<10 {
			t.Errorf("the result with many values has %d bytes, want 200 to 512 KiB", n)
		}
	})
}

// A job's end is judged from Slurm's state, its exit file and its claim, and a failed run has nothing but its logs.
// TestEndings of the package has every reason and state.
func TestEndings(t *testing.T) {
	for name, c := range map[string]struct {
		state  string // Slurm's
		code   int
		reason string // the exit file's, "" for none
		claim  bool   // whether the script took the claim
		ending run.Ending
		result run.State
		exit   *int
	}{
		"tool failed":                 {"FAILED", 3, "tool_failed", true, run.EndedToolFailed, run.Failed, new(3)},
		"out of memory, no exit file": {"OUT_OF_MEMORY", 0, "", true, run.EndedOutOfMemory, run.Failed, nil},
		"cancelled by an admin":       {"CANCELLED", 143, "terminated", true, run.EndedCancelled, run.Cancelled, new(143)},
		"cancelled while pending":     {"CANCELLED", 0, "", false, run.EndedCancelled, run.Cancelled, nil},
		"preempted":                   {"PREEMPTED", 143, "terminated", true, run.EndedPreempted, run.Failed, new(143)},
		"image, cut short by TERM":    {"CANCELLED", 91, "image_mismatch", true, run.EndedCancelled, run.Cancelled, nil},
		"ok, but Slurm says no":       {"FAILED", 0, "ok", true, run.EndedLost, run.Failed, new(0)},
		"failed before the claim":     {"FAILED", 1, "", false, run.EndedBootFail, run.Failed, nil},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			v := ended(t, w, nil, func(j *job, a *attempt) {
				if !c.claim {
					delete(a.ctl, "claim")
					a.executions = 0
				}
				if c.reason != "" {
					w.exitFile(j, c.code, c.reason)
				}
				a.ctl["stderr"] = []byte("bad\x1b[2J news\n")
				w.end(j, c.state, c.code)
			})
			w.want(v, c.result, string(c.ending))
			w.wantOnlyLogs(v.Run.ID)
			if v.Attempt.Ending != c.ending || v.Attempt.SlurmState != c.state || (v.Run.ExitCode == nil) != (c.exit == nil) || c.exit != nil &&
				*v.Run.ExitCode != *c.exit {
				t.Errorf("the run ended as %s, in Slurm as %s, want %s, %s and this exit code (-want +got):\n%s",
					v.Attempt.Ending, v.Attempt.SlurmState, c.ending, c.state, cmp.Diff(c.exit, v.Run.ExitCode))
			}
			if v.Run.Detail == "" || strings.Contains(v.Run.Detail, "\x1b") {
				t.Errorf("the run ended with the detail %q, want one without escape characters", v.Run.Detail)
			}
		})
	}
}

// Only infrastructure endings get a new attempt, only as many as policy allows, and each in its own folder.
func TestNewAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		state, reason string
		again         bool
	}{"NODE_FAIL": {"NODE_FAIL", "", true}, "PREEMPTED": {"PREEMPTED", "terminated", true}, "tool": {"FAILED", "tool_failed", false},
		"tool, its exit file late": {"FAILED", "late", false},
		"memory":                   {"OUT_OF_MEMORY", "killed", false}, "time": {"TIMEOUT", "", false}, "cancelled": {"CANCELLED", "", false}} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.cfg.Attempts = 2
			a := w.life().submit(order())
			for i := range 2 {
				w.until(a.RunID, func(v run.View) bool { return done(v) || v.Run.AttemptN == i+1 && v.Run.Phase == run.Pending })
				w.with(func() {
					if len(w.jobs) <= i {
						return
					}
					j := w.jobs[i]
					w.start(j)
					switch c.reason {
					case "":
					case "late":
						time.AfterFunc(7*time.Second, func() { w.with(func() { w.exitFile(j, 3, "tool_failed") }) })
					default:
						w.exitFile(j, 143, c.reason)
					}
					w.end(j, c.state, 1)
				})
				w.until(a.RunID, func(v run.View) bool { return done(v) || v.Run.AttemptN == i+2 })
			}
			v := w.until(a.RunID, done)
			if want := map[bool]int{true: 2, false: 1}[c.again]; v.Attempt.N != want || len(w.jobs) != want || v.Run.State == run.Succeeded {
				t.Errorf("the run ended in attempt %d after %d jobs with the reason %s", v.Attempt.N, len(w.jobs), v.Run.Reason)
			}
		})
	}
}

// An exit file that another job wrote, or that is invalid, is not believed.
func TestExitFileOfAnotherJob(t *testing.T) {
	for name, forge := range map[string]func(string) string{
		"another job":  func(exit string) string { return strings.Replace(exit, "job=100", "job=7", 1) },
		"no exit file": func(exit string) string { return exit[:len(exit)/2] },
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			v := ended(t, w, nil, func(j *job, a *attempt) { w.finish(j); a.ctl["exit"] = []byte(forge(string(a.ctl["exit"]))) })
			w.want(v, run.Failed, "lost")
			w.wantOnlyLogs(v.Run.ID)
		})
	}
}

// Files that a network filesystem shows late are waited for; after the wait the run's reason and next steps say so.
func TestOutputsLate(t *testing.T) {
	for _, file := range []string{"exit", "manifest", "output"} {
		for _, delay := range []time.Duration{10 * time.Second, 5 * time.Minute} {
			bubbleRun(t, fmt.Sprint(file, " ", delay), func(t *testing.T, w *world) {
				_, a := w.submitted()
				var keep []byte
				var show func()
				w.with(func() {
					j, at := w.jobs[0], w.attempt(a.RunID, 1)
					w.start(j)
					w.finish(j)
					if file == "output" {
						s := at.out["out/t.tsv"]
						delete(at.out, "out/t.tsv")
						show = func() { at.out["out/t.tsv"] = s }
					} else {
						keep = at.ctl[file]
						delete(at.ctl, file)
						show = func() { at.ctl[file] = keep }
					}
				})
				v := w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "outputs_late" })
				time.Sleep(delay)
				w.with(show)
				if delay < w.cfg.LateOutputs {
					w.want(w.until(a.RunID, done), run.Succeeded, "ok")
					return
				}
				switch v = w.until(a.RunID, func(run.View) bool { return true }); file {
				case "exit":
					w.want(v, run.Failed, "lost")
					return
				case "output":
					w.want(v, run.Failed, "OUTPUT-MISSING")
					return
				}
				if v.Run.Phase != run.OutputsLate || !hasStep(v, "slurm.job.recollect") {
					t.Fatalf("the run is %s: %q, want %s with the step slurm.job.recollect",
						v.Run.Phase, v.Run.Detail, run.OutputsLate)
				}
				// The outage has ended: the run continues without a call.
				w.want(w.until(a.RunID, done), run.Succeeded, "ok")
			})
		}
	}
}

// Collect only reads: it leaves a run whose outputs are late as it is. Recollect takes it up immediately, again for as
// long as the site waits, and a repeated Recollect does nothing.
func TestRecollect(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Ceiling = time.Hour // the watcher does not run first
		l, a := w.submitted()
		var manifest []byte
		w.with(func() {
			j, at := w.jobs[0], w.attempt(a.RunID, 1)
			w.start(j)
			w.finish(j)
			manifest = at.ctl["manifest"]
			delete(at.ctl, "manifest")
		})
		w.until(a.RunID, in(run.OutputsLate))
		if r, err := l.engine.Recollect(t.Context(), a.RunID, ""); err != nil || !r.Recollected {
			t.Errorf("to look again is answered %+v %v, want that it looks", r, err)
		}
		w.until(a.RunID, in(run.OutputsLate)) // the manifest was not there yet
		w.with(func() { w.attempt(a.RunID, 1).ctl["manifest"] = manifest })
		late := w.until(a.RunID, in(run.OutputsLate))
		for range 3 {
			c, err := l.engine.Collect(t.Context(), a.RunID, 0)
			v, verr := w.ledger.View(t.Context(), a.RunID)
			if err != nil || verr != nil || c.Ready || v.Run.Rev != late.Run.Rev || v.Run.Phase != run.OutputsLate {
				t.Fatalf("a look gives %+v %v and leaves the run %+v %v, want it as it was, outputs_late", c, err, v.Run, verr)
			}
		}
		r, err := l.engine.Recollect(t.Context(), a.RunID, "the filesystem is back")
		if err != nil || !r.Recollected || r.State != run.Succeeded {
			t.Errorf("to look again is answered %+v %v, want a run that succeeded", r, err)
		}
		after, _ := w.ledger.View(t.Context(), a.RunID)
		r, err = l.engine.Recollect(t.Context(), a.RunID, "again")
		if v, _ := w.ledger.View(t.Context(), a.RunID); err != nil || r.Recollected || r.State != run.Succeeded || v.Run.Rev != after.Run.Rev {
			t.Errorf("recollect of a run that succeeded gives %+v %v, want no change", r, err)
		}
		if _, err := l.engine.Recollect(t.Context(), "run_"+strings.Repeat("7", 26), ""); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	})
}

// Outputs that never appear: cancel ends the run, during the wait and after it.
func TestOutputsNever(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 5 * time.Minute} {
		bubble(t, func(t *testing.T, w *world) {
			l, a := w.submitted()
			w.with(func() {
				w.start(w.jobs[0])
				w.finish(w.jobs[0])
				delete(w.attempt(a.RunID, 1).ctl, "manifest")
			})
			w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "outputs_late" })
			time.Sleep(after)
			l.cancelRun(a.RunID)
			w.want(w.until(a.RunID, done), run.Cancelled, "cancelled")
		})
	}
}

// Of many concurrent retries of the same attempt one opens the next; the others find it open.
func TestRetryAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		v := l.ended(nil, func(j *job, _ *attempt) { w.exitFile(j, 1, "tool_failed"); w.end(j, "FAILED", 1) })
		var opened, found atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				switch a, err := l.engine.Retry(t.Context(), v.Run.ID, run.RetryOrder{After: 1}); {
				case err != nil || a.Attempt != 2:
					t.Errorf("a concurrent Retry gives %+v %v, want attempt 2", a, err)
				case a.Replayed:
					found.Add(1)
				default:
					opened.Add(1)
				}
			})
		}
		all.Wait()
		if opened.Load() != 1 || found.Load() != 19 || w.count("Send") != 2 {
			t.Errorf("%d retries opened an attempt and %d found it, with %d sends; want 1, 19 and 2", opened.Load(), found.Load(), w.count("Send"))
		}
	})
}

// Retry is for a tool's own failure: it opens a new attempt, once for each attempt that it follows, however the new one
// ends.
func TestRetry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		v := l.ended(nil, func(j *job, _ *attempt) { w.exitFile(j, 1, "tool_failed"); w.end(j, "FAILED", 1) })
		w.want(v, run.Failed, "tool_failed")
		for after, code := range map[int]string{0: "after_attempt_missing", 2: "no_such_attempt"} {
			_, err := l.engine.Retry(t.Context(), v.Run.ID, run.RetryOrder{After: after})
			if !fault.Is(err, fault.Validation) || fault.CodeOf(err) != code || len(fault.StepsOf(err)) != 1 ||
				fault.StepsOf(err)[0].Args["after_attempt"] != 1 {
				t.Errorf("Retry after attempt %d gives %v, want the code %s and a step with after_attempt 1", after, err, code)
			}
		}
		a, err := l.engine.Retry(t.Context(), v.Run.ID, run.RetryOrder{After: 1, Why: "a better day"})
		if err != nil || a.State != run.Queued || a.RunID != v.Run.ID || a.Attempt != 2 || a.Replayed {
			t.Errorf("the retry is answered %+v %v, want the second attempt of the same run", a, err)
		}
		if _, err := l.engine.Retry(t.Context(), v.Run.ID, run.RetryOrder{After: 2}); !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
		w.with(func() { w.auto = true })
		v = w.ended(v.Run.ID, run.Succeeded, "ok")
		if v.Attempt.N != 2 || len(w.jobs) != 2 {
			t.Errorf("the retried run is in attempt %d with %d jobs, want attempt 2 and 2 jobs", v.Attempt.N, len(w.jobs))
		}
		if a, err := l.engine.Retry(t.Context(), v.Run.ID, run.RetryOrder{After: 1}); err != nil || !a.Replayed || !a.Unchanged() ||
			a.State != run.Succeeded {
			t.Errorf("the same retry after the end is answered %+v %v, want a replay of the run that succeeded", a, err)
		}
		if _, err := l.engine.Retry(t.Context(), v.Run.ID, run.RetryOrder{After: 2}); !fault.Is(err, fault.Conflict) || len(w.jobs) != 2 {
			t.Errorf("Retry of the succeeded run gives %v with %d jobs, want a conflict and 2 jobs", err, len(w.jobs))
		}
	})
}

// byPattern returns a pack's patterns for a file, "role path": lines that begin with prefix mean is.
func byPattern(file, prefix, is string) map[string]func(string) (string, string) {
	return map[string]func(string) (string, string){file: func(line string) (string, string) {
		if strings.HasPrefix(line, prefix) {
			return is, "the reads are broken"
		}
		return "", ""
	}}
}

// Error messages of a program that exited 0 are in the warnings of the run, in one sentence, printable.
func TestStderrWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		stderr, is string
		want       []string
	}{
		"nothing":       {"", "", nil},
		"only progress": {"10%\r20%\rdone, 0 errors, error rate 0.01\n[M::main] mapped 10 sequences\n", "", nil},
		"one error": {"ok\n[E::bgzf_read] Read block operation failed\x07\n", "",
			[]string{`the program may have reported an error (one line of standard error: "[E::bgzf_read] Read block operation failed\a"); read its standard error before you rely on the outputs`}},
		"several": {"error: a\nfine\nTraceback (most recent call last):\nfile truncated\n", "",
			[]string{`the program may have reported an error (3 lines of standard error, the first: "error: a"); read its standard error before you rely on the outputs`}},
		"a pattern of the pack": {"\x1b[1;31m[WARN]\x1b[0m error 1\n[WARN] error 2\n", run.LineWarning,
			[]string{`the reads are broken (2 lines of standard error, the first: "[WARN] error 1")`}},
		"more than is read": {"[WARN] unread\n" + strings.Repeat("fine\n", 300_000), run.LineWarning,
			[]string{"only the last MiB of standard error was searched for the lines that the tool's contract names"}},
		"cut": {strings.Repeat("x", 4000) + " error\n" + "fatal " + strings.Repeat("y", 500), "",
			[]string{`the program may have reported an error (2 lines of standard error, the first: "` + strings.Repeat("x",
				200) + `"…); read its standard error before you rely on the outputs`}},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			v := ended(t, w, nil, func(j *job, a *attempt) {
				w.finish(j)
				a.ctl["stderr"] = []byte(c.stderr)
				w.asked.lines = byPattern("stderr ", "[WARN]", c.is)
			})
			w.want(v, run.Succeeded, "ok")
			if diff := cmp.Diff(c.want, v.Run.Warnings, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}
