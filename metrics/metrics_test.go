package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

func (m *Metrics) page(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func expect(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(page, "\n"+l+"\n") {
			t.Errorf("no line %q in\n%s", l, page)
		}
	}
}

func newMetrics(watched func() (time.Time, error)) *Metrics {
	return New(Sources{Runs: func(context.Context) (map[string]int64, error) {
		return map[string]int64{"running": 3, "failed": 0}, nil
	}, Sites: []string{"alpha"}, Watched: func(string) (time.Time, error) { return watched() },
		Now: func() time.Time { return time.Unix(1000, 0) }})
}

func TestState(t *testing.T) {
	m := newMetrics(func() (time.Time, error) { return time.Unix(990, 0), nil })
	expect(t, m.page(t), `slurmgate_runs{state="running"} 3`, `slurmgate_runs{state="failed"} 0`,
		`slurmgate_watch_lag_seconds{site="alpha"} 10`,
		`slurmgate_slurm_up{site="alpha"} 1`, `slurmgate_bytes_total{direction="stage",site="alpha"} 0`)
	down := newMetrics(func() (time.Time, error) { return time.Time{}, errors.New("no answer") })
	if p := down.page(t); strings.Contains(p, "watch_lag_seconds{") || !strings.Contains(p, `slurmgate_slurm_up{site="alpha"} 0`) {
		t.Error(p)
	}
}

// disk is a journal that fails if err is set.
type disk struct{ err error }

func (d *disk) Record(context.Context, []gate.Record) error { return d.err }

// Each recorded call counts once, by tool, face and outcome; a name of no tool does not create a series.
func TestCalls(t *testing.T) {
	m := newMetrics(func() (time.Time, error) { return time.Time{}, nil })
	d := &disk{errors.New("full")}
	j := m.Journal(d, func(id string) bool { return id == "a.b" })
	records := []gate.Record{{Event: json.RawMessage(`{"tool_id":"a.b","transport":"mcp","side_effect":"READ","timing":{"duration_ms":7}}`)},
		{Event: json.RawMessage(`{"tool_id":"a.b","transport":"other","side_effect":"READ","timing":{"duration_ms":7},"error":{"kind":"policy"}}`)},
		{Event: json.RawMessage(`{"tool_id":"made.up.17","transport":"other","side_effect":"NONE","timing":{"duration_ms":0},"error":{"kind":"validation"}}`)}}
	if j.Record(t.Context(), records) == nil {
		t.Error("the journal's error is lost")
	}
	d.err = nil
	if err := j.Record(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	page := m.page(t)
	expect(t, page, `slurmgate_tool_calls_total{outcome="ok",tool="a.b",transport="mcp"} 1`,
		`slurmgate_tool_calls_total{outcome="policy",tool="a.b",transport="other"} 1`,
		`slurmgate_tool_calls_total{outcome="validation",tool="none",transport="other"} 1`)
	if strings.Contains(page, "made.up") {
		t.Error("callers can make series")
	}
}

// parts are outside systems with minimal behaviour.
type parts struct {
	run.Submitter
	run.Queue
	run.Accounting
	run.Canceller
	run.Workspace
	fail error
}

func (p parts) Send(context.Context, run.JobSpec, int) run.SendResult {
	return run.SendResult{Outcome: run.SendAccepted}
}
func (p parts) Jobs(context.Context, map[string]bool) ([]run.Job, error)             { return nil, p.fail }
func (p parts) Records(context.Context, time.Time, ...run.JobKey) ([]run.Job, error) { return nil, nil }
func (p parts) Cancel(context.Context, string, string, string) error                 { return nil }
func (p parts) StageInputs(ctx context.Context, _ string, _ []plan.Input, open run.Opener) error {
	f, _, err := open(ctx, "x")
	if err == nil {
		f.Close()
	}
	return err
}
func (p parts) OpenOutput(context.Context, string, int, string) (io.ReadCloser, int64, error) {
	return io.NopCloser(strings.NewReader("12345")), 5, nil
}

func TestParts(t *testing.T) {
	m := newMetrics(func() (time.Time, error) { return time.Time{}, nil })
	p := parts{fail: errors.New("no")}
	w := m.Wrap("alpha", run.Parts{Submitter: p, Queue: p, Accounting: p, Canceller: p, Workspace: p})
	ctx := t.Context()
	w.Submitter.Send(ctx, run.JobSpec{}, 1)
	if _, err := w.Queue.Jobs(ctx, nil); err == nil {
		t.Error("an error is lost")
	}
	_, _ = w.Accounting.Records(ctx, time.Time{})
	_ = w.Canceller.Cancel(ctx, "1", "n", "")
	open := func(context.Context, string) (io.ReadCloser, int64, error) {
		return io.NopCloser(strings.NewReader("")), 100, nil
	}
	if err := w.Workspace.StageInputs(ctx, "r", nil, open); err != nil {
		t.Fatal(err)
	}
	r, _, err := w.Workspace.OpenOutput(ctx, "r", 1, "out/x")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r)
	m.Unread("alpha", "squeue", 3)
	expect(t, m.page(t), `slurmgate_slurm_requests_total{command="sbatch",outcome="accepted",site="alpha"} 1`,
		`slurmgate_slurm_unread_records_total{command="squeue",site="alpha"} 3`,
		`slurmgate_slurm_unread_records_total{command="sacct",site="alpha"} 0`,
		`slurmgate_slurm_requests_total{command="squeue",outcome="failed",site="alpha"} 1`,
		`slurmgate_slurm_requests_total{command="sacct",outcome="ok",site="alpha"} 1`,
		`slurmgate_slurm_requests_total{command="scancel",outcome="ok",site="alpha"} 1`,
		`slurmgate_bytes_total{direction="stage",site="alpha"} 100`,
		`slurmgate_bytes_total{direction="collect",site="alpha"} 5`)
}

// ends is a ledger that accepts every write, or none.
type ends struct {
	run.Store
	err error
}

func (e ends) Apply(context.Context, run.Write) (run.View, error) { return run.View{}, e.err }

// An attempt that ended because of its node counts for the node, once it is recorded; other ends do not.
func TestNodeFaults(t *testing.T) {
	m := newMetrics(func() (time.Time, error) { return time.Time{}, nil })
	write := func(err error, ending run.Ending, node string) {
		_, _ = m.Wrap("alpha", run.Parts{Store: ends{err: err}}).Store.Apply(t.Context(), run.Write{Attempts: []run.Attempt{{Ending: ending,
			Node: node}}})
	}
	write(nil, run.EndedImageMissing, "n1")
	write(nil, run.EndedImageMissing, "n1")
	write(nil, run.EndedToolFailed, "n2")
	write(nil, run.EndedNodeFail, "")
	write(errors.New("stale"), run.EndedNoUserNS, "n3")
	page := m.page(t)
	expect(t, page, `slurmgate_node_faults_total{fault="image_missing",node="n1",site="alpha"} 2`)
	if strings.Count(page, "slurmgate_node_faults_total{") != 1 {
		t.Error(page)
	}
}

// Each value for alerts has a series, including events that are rare; an unknown backup has the value 0.
//
// proves OPS-03
func TestHealth(t *testing.T) {
	h := Health{Oldest: []Oldest{{"alpha", "deferred", time.Unix(400, 0)}}, Drained: map[string]bool{"alpha": true, "local": false},
		Budget: map[string]int{"alpha": 60}, Disks: []Disk{{"alpha", "runs_dir", 5, 7}}, Ledger: 9, Stopped: true, Damaged: 2,
		Sites: []Site{{"alpha", false, true, map[string]int64{"deferred": 4}, &Budget{3, 50, new(2)}, []Link{{To: "slurm", Losses: 2},
			{To: "files", Up: true}, {To: "users", Up: true, Users: 3, Refused: 1}}},
			{Name: "local", Up: true}}}
	m := New(Sources{Runs: func(context.Context) (map[string]int64, error) { return nil, nil }, Sites: []string{"alpha"},
		Watched: func(string) (time.Time, error) { return time.Unix(990, 0), nil },
		Health:  func(context.Context) Health { return h }, Now: func() time.Time { return time.Unix(1000, 0) }})
	expect(t, m.page(t), `slurmgate_signer_up{site="alpha"} 1`, `slurmgate_users{site="alpha",state="connected"} 3`,
		`slurmgate_users{site="alpha",state="refused"} 1`, `slurmgate_oldest_run_seconds{phase="deferred",site="alpha"} 600`, `slurmgate_drained{site="alpha"} 1`,
		`slurmgate_site_up{site="alpha"} 0`, `slurmgate_site_up{site="local"} 1`, `slurmgate_site_opened{site="alpha"} 1`,
		`slurmgate_site_opened{site="local"} 0`, `slurmgate_site_runs{phase="deferred",site="alpha"} 4`,
		`slurmgate_rpc_budget_left{site="alpha"} 3`, `slurmgate_rpc_budget_shared_left{site="alpha"} 2`,
		`slurmgate_rpcs_total{site="alpha"} 50`,
		`slurmgate_connection_up{site="alpha",to="slurm"} 0`, `slurmgate_connection_up{site="alpha",to="files"} 1`,
		`slurmgate_connection_losses_total{site="alpha",to="slurm"} 2`, "# TYPE slurmgate_connection_losses_total counter",
		`slurmgate_drained{site="local"} 0`, `slurmgate_rpc_budget_per_minute{site="alpha"} 60`,
		`slurmgate_disk_free_bytes{folder="runs_dir",site="alpha"} 5`, `slurmgate_disk_reserve_bytes{folder="runs_dir",site="alpha"} 7`,
		`slurmgate_ledger_bytes 9`, `slurmgate_ledger_stopped 1`, `slurmgate_last_backup_timestamp_seconds 0`,
		`slurmgate_last_backup_damaged_artifacts 2`)
	h.Backup = time.Unix(500, 0)
	expect(t, m.page(t), `slurmgate_last_backup_timestamp_seconds 500`)
}

// A scrape reveals nothing about the users of the gateway: no metric has a person among its labels.
//
// proves SITE-08
func TestNoMetricNamesPeople(t *testing.T) {
	m := newMetrics(func() (time.Time, error) { return time.Time{}, nil })
	list := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(list)
	close(list)
	n := 0
	for d := range list {
		n++
		_, labels, _ := strings.Cut(d.String(), "variableLabels: ")
		for _, person := range []string{"user", "caller", "principal", "account", "executed_as"} {
			if strings.Contains(labels, person) {
				t.Errorf("%s has the label %s", d, person)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d metrics", n)
	}
}
