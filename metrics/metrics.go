// Package metrics counts what a gateway does, for Prometheus: runs by state, requests to Slurm, the age of Slurm's last answer,
// bytes staged and collected, and the gate's decisions.
//
// The counters wrap the parts of the engine, which do not know about them: see [Metrics.Wrap]. Each gateway has its own
// registry; the process-wide one is not used.
package metrics

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"slurmgate/gate"
)

// Metrics holds the figures of one gateway.
type Metrics struct {
	registry *prometheus.Registry
	asked    *prometheus.CounterVec // by command and outcome
	unread   *prometheus.CounterVec // by command
	bytes    *prometheus.CounterVec // by direction
	calls    *prometheus.CounterVec // by tool, transport and outcome
	faults   *prometheus.CounterVec // by node and fault
	took     *prometheus.HistogramVec
}

// Sources has the functions that each scrape calls.
type Sources struct {
	// Runs counts the runs in each state.
	Runs func(ctx context.Context) (map[string]int64, error)
	// Sites are the names of the clusters.
	Sites []string
	// Watched returns when a cluster's Slurm last answered completely, and why it does not answer now.
	Watched func(site string) (time.Time, error)
	// Health returns all other values; nil: not shown.
	Health func(ctx context.Context) Health
	Now    func() time.Time
}

// New creates the metrics of a gateway.
func New(s Sources) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_slurm_requests_total",
			Help: "Requests to Slurm, by site, command and outcome (ok, failed)."}, []string{"site", "command", "outcome"}),
		unread: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_slurm_unread_records_total",
			Help: "Records in Slurm's answers that could not be read, by site and command. The job of such a record counts as unknown."},
			[]string{"site", "command"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_bytes_total",
			Help: "Bytes copied, by site and direction: stage (inputs into workspaces), collect (outputs into the store)."},
			[]string{"site", "direction"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_tool_calls_total",
			Help: "Calls that passed the gate or were denied, by tool, transport and outcome (ok, or the error's kind)."},
			[]string{"tool", "transport", "outcome"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmgate_node_faults_total",
			Help: "Attempts that ended by a node's fault, by site, node and fault."}, []string{"site", "node", "fault"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slurmgate_tool_call_seconds", Help: "Duration of calls, by side effect.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}}, []string{"side_effect"}),
	}
	m.registry.MustRegister(m.asked, m.unread, m.bytes, m.calls, m.faults, m.took, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), state{s})
	for _, site := range s.Sites {
		m.unread.WithLabelValues(site, "squeue")
		m.unread.WithLabelValues(site, "sacct")
		m.bytes.WithLabelValues(site, "stage")
		m.bytes.WithLabelValues(site, "collect")
	}
	return m
}

// Unread counts records of a site's Slurm that could not be read.
func (m *Metrics) Unread(site, command string, records int) {
	m.unread.WithLabelValues(site, command).Add(float64(records))
}

// Handler returns the handler that serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Journal counts the records that pass through the gate's journal: every call, including denied ones.
func (m *Metrics) Journal(next gate.Journal, known func(toolID string) bool) gate.Journal {
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
		return err // the gate records them again
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
		_ = json.Unmarshal(r.Event, &e) // written by the gate, so it is valid
		outcome := "ok"
		if e.Error != nil {
			outcome = e.Error.Kind
		}
		if !j.known(e.ToolID) {
			e.ToolID = "none" // callers must not be able to create series
		}
		j.m.calls.WithLabelValues(e.ToolID, e.Transport, outcome).Inc()
		j.m.took.WithLabelValues(e.SideEffect).Observe(float64(e.Timing.DurationMS) / 1000)
	}
	return nil
}

// state collects the values read at each scrape.
type state struct{ sources Sources }

const countWait = 5 * time.Second

var (
	runsDesc = prometheus.NewDesc("slurmgate_runs", "Runs in the ledger, by state.", []string{"state"}, nil)
	lagDesc  = prometheus.NewDesc("slurmgate_watch_lag_seconds", "Age of the last complete answer of a site's Slurm.", []string{"site"}, nil)
	upDesc   = prometheus.NewDesc("slurmgate_slurm_up", "1 if the site's Slurm answered the last request, else 0.", []string{"site"}, nil)
)

// Describe implements prometheus.Collector.
func (s state) Describe(c chan<- *prometheus.Desc) {
	c <- runsDesc
	c <- lagDesc
	c <- upDesc
	for _, d := range healthDescs {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s state) Collect(c chan<- prometheus.Metric) {
	as := func(t prometheus.ValueType) func(d *prometheus.Desc, v float64, labels ...string) {
		return func(d *prometheus.Desc, v float64, labels ...string) {
			c <- prometheus.MustNewConstMetric(d, t, v, labels...)
		}
	}
	gauge := as(prometheus.GaugeValue)
	ctx, stop := context.WithTimeout(context.Background(), countWait)
	defer stop()
	if runs, err := s.sources.Runs(ctx); err == nil { // the ledger has these numbers, see its run_counts
		for state, n := range runs {
			gauge(runsDesc, float64(n), state)
		}
	}
	if s.sources.Health != nil {
		s.sources.Health(ctx).collect(s.sources.Now(), gauge, as(prometheus.CounterValue))
	}
	for _, site := range s.sources.Sites {
		at, err := s.sources.Watched(site)
		up := 1.0
		if err != nil {
			up = 0
		}
		gauge(upDesc, up, site)
		if !at.IsZero() {
			gauge(lagDesc, s.sources.Now().Sub(at).Seconds(), site)
		}
	}
}
