package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"slurmgate/plan"
	"slurmgate/run"
)

// seededRuns are in the ledger before anything is measured: its indexes are then larger than a cache, as a gateway's are.
const seededRuns = 20_000

// BenchmarkRun stores runs as the engine does: the row, the intent with the script, the receipt. It reports, for each run, the processor
// time of the whole process, pages written to the log and to the database, and commits, each of which is a sync.
//
//	go test ./ledger -run xxx -bench Run -benchtime 6000x
func BenchmarkRun(b *testing.B) {
	seeded := b.TempDir() + "/ledger.db"
	l := openNow(b, seeded)
	input := artifact(1)
	_, _, err := l.AddArtifact(b.Context(), input)
	must(b, err)
	s := stream{l: l, input: input}
	s.store(b, 64, seededRuns)
	must(b, l.Close()) // and nothing is left in the log
	for _, callers := range []int{1, 4, 16} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) { benchmarkRun(b, seeded, input, callers) })
	}
}

// BenchmarkEnd ends runs as the engine does: the attempt, an output and a log, the result, the receipt. It reports what BenchmarkRun does.
//
//	go test ./ledger -run xxx -bench End -benchtime 3000x
func BenchmarkEnd(b *testing.B) {
	l := openNow(b, b.TempDir()+"/ledger.db")
	defer l.Close()
	input := artifact(1)
	_, _, err := l.AddArtifact(b.Context(), input)
	must(b, err)
	s := stream{l: l, input: input}
	s.store(b, 16, b.N)
	ids, err := list(b.Context(), l.r, column[string], "SELECT run_id FROM runs")
	must(b, err)
	b.ResetTimer()
	before := l.spent(b)
	for i, id := range ids {
		must(b, s.end(b.Context(), id, i))
	}
	now := l.spent(b)
	b.StopTimer()
	frames, _ := written(now.writes-before.writes, now.bytes-before.bytes)
	b.ReportMetric((now.cpu-before.cpu)/float64(b.N), "cpu-µs/run")
	b.ReportMetric(frames/float64(b.N), "frames/run")
}

// end is an end as run.Engine records it.
func (s *stream) end(ctx context.Context, id string, i int) error {
	v, err := s.l.View(ctx, id)
	if err != nil {
		return err
	}
	now, zero := time.Now(), 0
	w := run.Write{Run: v.Run, Attempts: []run.Attempt{v.Attempt}, Submission: &v.Submission, From: &v}
	w.Run.State, w.Run.Phase, w.Run.Reason, w.Run.FinishedAt, w.Run.ExitCode = run.Succeeded, run.Done, "ok", &now, &zero
	w.Attempts[0].Ending, w.Attempts[0].EndedAt, w.Attempts[0].ExitCode = run.EndedOK, &now, &zero
	for role, relpath := range map[string]string{"report": "out/report.txt", "log": ""} {
		a := run.Artifact{ProjectID: project, SHA256: strings.TrimPrefix(plan.Hash(fmt.Append(nil, role, i)), "sha256:"), Type: "TEXT",
			Label: role, SizeBytes: 9, Source: id}
		if a.ID, err = plan.ArtifactID(project, a.SHA256, a.Type, a.Label); err != nil {
			return err
		}
		w.Artifacts = append(w.Artifacts, a)
		w.Outputs = append(w.Outputs, run.Link{Role: role, ArtifactID: a.ID, Relpath: relpath})
	}
	w.Event = run.Event{Type: "run.succeeded", Data: map[string]any{"attempt": 1, "ending": "ok", "outputs": w.Outputs}}
	_, err = s.l.Apply(ctx, w)
	return err
}

func openNow(b *testing.B, path string) *Ledger {
	b.Helper()
	l, err := Open(b.Context(), path, Options{NewID: func() string { return "gw" }})
	must(b, err)
	return l
}

func benchmarkRun(b *testing.B, seeded string, input run.Artifact, callers int) {
	data, err := os.ReadFile(seeded)
	must(b, err)
	path := b.TempDir() + "/ledger.db"
	must(b, os.WriteFile(path, data, 0o600))
	l := openNow(b, path)
	defer l.Close()
	s := stream{l: l, input: input}
	s.next.Store(seededRuns)
	b.ResetTimer()
	before := l.spent(b)
	s.store(b, callers, b.N)
	now := l.spent(b)
	b.StopTimer()
	n := float64(b.N)
	frames, pages := written(now.writes-before.writes, now.bytes-before.bytes)
	for _, f := range []struct {
		unit string
		sum  float64
	}{{"cpu-µs/run", now.cpu - before.cpu}, {"user-µs/run", now.user - before.user}, {"frames/run", frames}, {"checkpointed/run", pages},
		{"commits/run", float64(now.commits - before.commits)}} {
		b.ReportMetric(f.sum/n, f.unit)
	}
	info, err := os.Stat(l.Path() + "-wal")
	must(b, err)
	b.ReportMetric(float64(info.Size())/1e6, "wal-MB")
	b.ReportMetric(0, "ns/op")
}

// stream makes runs, each of its own, and stores them.
type stream struct {
	l     *Ledger
	input run.Artifact
	next  atomic.Int64
}

func (s *stream) store(b *testing.B, callers, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := s.one(context.Background(), int(s.next.Add(1))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// one is a submit as run.Engine carries it out.
func (s *stream) one(ctx context.Context, i int) error {
	hex := func(n int) string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())[:n] }
	params := json.RawMessage(fmt.Sprintf(`{"i":%d,"slurm":{%s}}`, i, strings.Repeat(`"some":"thing",`, 80)+`"end":0`))
	policy := json.RawMessage(`{"version":1}`)
	id := plan.Identity{ToolName: "samtools_flagstat", ContractVersion: "v1", PolicyHash: plan.Hash(policy), ParamsHash: plan.Hash(params)}
	r := run.Run{ID: id.RunID(), ToolID: "samtools.flagstat", ToolName: "samtools_flagstat", ToolVersion: "1.0.0", ContractVersion: "v1",
		PackHash: "sha256:none", PolicyHash: id.PolicyHash,
		ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(), ProjectID: project, Actor: "human", State: run.Queued, Phase: run.Staging,
		AttemptN: 1, ResultJSON: json.RawMessage(`{"run_id":"` + id.RunID() + `","state":"queued"}` + strings.Repeat(" ", 300))}
	token := hex(32)
	sub := run.Submission{Token: token, JobName: run.JobName(r.ID, 1, token), CreatedAt: time.Now()}
	if _, _, err := s.l.Find(ctx, run.Sought{RunID: r.ID, PlanHashes: []string{r.PlanHash}}); err != nil {
		return err
	}
	v, _, err := s.l.Insert(ctx, run.New{Run: r, Submission: sub, Params: params, Policy: policy,
		Inputs: []run.Link{{Role: "reads", ArtifactID: s.input.ID, Relpath: "in/reads.txt"}},
		Event: run.Event{Type: "run.created", Data: map[string]any{"tool_id": r.ToolID, "params_hash": r.ParamsHash,
			"policy_hash": r.PolicyHash, "plan_hash": r.PlanHash, "actor": r.Actor}}})
	if err != nil {
		return err
	}
	p := payload(fmt.Appendf(nil, "#!/bin/bash\n%s%s%s%s%s", strings.Repeat("# as scripts begin\n", 10), r.ID, token,
		strings.Repeat(hex(32)+"\n", 40), strings.Repeat("# and as they go on, line after line\n", 150)))
	a := run.Artifact{ProjectID: project, SHA256: p.SHA256, Type: "TEXT", Label: "slurm_script", SizeBytes: int64(len(p.Data)), Source: r.ID}
	if a.ID, err = plan.ArtifactID(project, p.SHA256, a.Type, a.Label); err != nil {
		return err
	}
	v.Run.ScriptArtifactID, v.Submission.ScriptSHA, v.Run.Phase = a.ID, p.SHA256, run.Submitting
	v, err = s.l.Apply(ctx, run.Write{Run: v.Run, Submission: &v.Submission, Payloads: []run.Payload{p}, Artifacts: []run.Artifact{a},
		Send: &run.Send{Token: token, K: 1, StartedAt: time.Now()}, From: &v,
		Event: run.Event{Type: "run.intent", Data: map[string]any{"attempt": 1, "job_name": v.Submission.JobName, "script_sha256": p.SHA256,
			"send": 1}}})
	if err != nil {
		return err
	}
	now, zero, job := time.Now(), 0, fmt.Sprint(i)
	v.Submission.JobID, v.Run.Phase = job, run.Pending
	_, err = s.l.Apply(ctx, run.Write{Run: v.Run, Submission: &v.Submission, Send: &run.Send{Token: token, K: 1, StartedAt: now,
		EndedAt: &now, Outcome: run.SendAccepted, ExitCode: &zero, Text: job}, From: &v,
		Event: run.Event{Type: "run.receipt", Data: map[string]any{"job_id": job, "cluster": "", "send": 1}}})
	return err
}

// spent is what the process has used so far.
type spent struct {
	cpu, user     float64 // microseconds
	writes, bytes int64   // calls that write to files, and what they wrote
	commits       int64
}

var commits atomic.Int64

func (l *Ledger) spent(b *testing.B) (s spent) {
	var u syscall.Rusage
	must(b, syscall.Getrusage(unix.RUSAGE_SELF, &u))
	s.user = float64(u.Utime.Nano()) / 1e3
	s.cpu = s.user + float64(u.Stime.Nano())/1e3
	text, err := os.ReadFile("/proc/self/io")
	must(b, err)
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "syscw: %d", &s.writes)
		fmt.Sscanf(line, "wchar: %d", &s.bytes)
	}
	conn, err := l.w.Conn(b.Context())
	must(b, err)
	defer conn.Close()
	must(b, conn.Raw(func(c any) error {
		c.(*sqlite3.SQLiteConn).RegisterCommitHook(func() int { commits.Add(1); return 0 })
		return nil
	}))
	s.commits = commits.Load()
	return s
}

// written tells frames of the log and pages of the database apart: a frame is two writes, of 24 and of 4096 bytes, a page one.
func written(writes, bytes int64) (frames, pages float64) {
	frames = float64(4096*writes-bytes) / 4072
	return frames, float64(writes) - 2*frames
}
