// Package metrics counts what a gateway does, for Prometheus: runs by state, what Slurm was asked, how old its last answer is,
// bytes staged and collected, what the gate decided.
//
// The counters stand around the parts of the engine, which know nothing of them: [Metrics.Wrap] puts them there. There is one
// registry for each gateway, none of the process.
package metrics

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"slurmgate/gate"
)

// Metrics are the figures of one gateway.
type Metrics struct {
	registry *prometheus.Registry
	asked    *prometheus.CounterVec // by command and outcome
	bytes    *prometheus.CounterVec // by direction
	calls    *prometheus.CounterVec // by tool, transport and outcome
	took     *prometheus.HistogramVec
}

// Sources are what is read when somebody looks.
type Sources struct {
	// Runs counts the runs in each state.
	Runs func(ctx context.Context) (map[string]int64, error)
	// Watched says when Slurm last answered in full, and why it does not answer now.
	Watched func() (time.Time, error)
	Now     func() time.Time
}

// New makes the figures.
func New(s Sources) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_slurm_requests_total", Help: "Requests to Slurm, by command and outcome (ok, failed)."}, []string{"command", "outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_bytes_total", Help: "Bytes copied, by direction: stage (inputs into workspaces), collect (outputs into the store)."}, []string{"direction"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_tool_calls_total", Help: "Calls the gate decided, by tool, transport and outcome: ok, or the error's kind."}, []string{"tool", "transport", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slurmgate_tool_call_seconds", Help: "Time of calls, by side effect.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}}, []string{"side_effect"}),
	}
	m.registry.MustRegister(m.asked, m.bytes, m.calls, m.took, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &state{sources: s})
	for _, direction := range []string{"stage", "collect"} {
		m.bytes.WithLabelValues(direction)
	}
	return m
}

// Handler shows the figures.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Journal puts a counter behind the gate's journal, which hears of every call, denied ones too. Without figures there is none.
func (m *Metrics) Journal(next gate.Journal, known func(toolID string) bool) gate.Journal {
	if m == nil {
		return next
	}
	return journal{next, m, known}
}

type journal struct {
	gate.Journal
	m     *Metrics
	known func(string) bool
}

// Record implements gate.Journal.
func (j journal) Record(ctx context.Context, records []gate.Record) error {
	if err := j.Journal.Record(ctx, records); err != nil {
		return err // they come again
	}
	for _, r := range records {
		var e struct {
			ToolID     string `json:"tool_id"`
			Transport  string `json:"transport"`
			SideEffect string `json:"side_effect"`
			Timing     struct {
				DurationMS int64 `json:"duration_ms"`
			} `json:"timing"`
			Error *struct {
				Kind string `json:"kind"`
			} `json:"error"`
		}
		_ = json.Unmarshal(r.Event, &e) // the gate wrote it
		outcome := "ok"
		if e.Error != nil {
			outcome = e.Error.Kind
		}
		if !j.known(e.ToolID) {
			e.ToolID = "none" // callers cannot make series
		}
		j.m.calls.WithLabelValues(e.ToolID, e.Transport, outcome).Inc()
		j.m.took.WithLabelValues(e.SideEffect).Observe(float64(e.Timing.DurationMS) / 1000)
	}
	return nil
}

// state is what is read from the gateway when somebody looks; runs are counted at most every few seconds.
type state struct {
	sources Sources

	mu   sync.Mutex
	at   time.Time
	runs map[string]int64
}

const countEvery = 5 * time.Second

var (
	runsDesc = prometheus.NewDesc("slurmgate_runs", "Runs in the ledger, by state.", []string{"state"}, nil)
	lagDesc  = prometheus.NewDesc("slurmgate_watch_lag_seconds", "Age of Slurm's last full answer.", nil, nil)
	upDesc   = prometheus.NewDesc("slurmgate_slurm_up", "1 when Slurm answered the last time it was asked.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *state) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runsDesc, lagDesc, upDesc} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(c chan<- prometheus.Metric) {
	for state, n := range s.count() {
		c <- prometheus.MustNewConstMetric(runsDesc, prometheus.GaugeValue, float64(n), state)
	}
	at, err := s.sources.Watched()
	up := 1.0
	if err != nil {
		up = 0
	}
	c <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, up)
	if !at.IsZero() {
		c <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, s.sources.Now().Sub(at).Seconds())
	}
}

func (s *state) count() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.sources.Now(); s.runs == nil || now.Sub(s.at) > countEvery {
		ctx, stop := context.WithTimeout(context.Background(), countEvery)
		defer stop()
		if runs, err := s.sources.Runs(ctx); err == nil {
			s.runs, s.at = runs, now
		}
	}
	return s.runs
}
