package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/metrics"
)

// Each kind of record that cannot be read is logged once for a site, with its text, and every one is counted.
func TestUnreadIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	g := &gateway{app: app.Gateway{Log: slog.New(slog.NewTextHandler(&log, nil))},
		metrics: metrics.New(metrics.Sources{Sites: []string{"alpha", "beta"},
			Runs:    func(context.Context) (map[string]int64, error) { return nil, nil },
			Watched: func(string) (time.Time, error) { return time.Time{}, nil }, Now: time.Now})}
	alpha, beta := g.unread("alpha"), g.unread("beta")
	for range 3 {
		alpha("squeue", 2, "no exit status", "7|FAILED|x")
		alpha("sacct", 1, "no record", "Welcome")
	}
	alpha("squeue", 1, "no time", "8|FAILED")
	beta("squeue", 1, "no exit status", "9|FAILED|x")
	if n := strings.Count(log.String(), "\n"); n != 4 || !strings.Contains(log.String(),
		`site=alpha program=squeue why="no exit status" record=7|FAILED|x`) {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	w := httptest.NewRecorder()
	g.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`{command="squeue",site="alpha"} 7`, `{command="sacct",site="alpha"} 3`,
		`{command="squeue",site="beta"} 1`} {
		if !strings.Contains(w.Body.String(), "slurmgate_slurm_unread_records_total"+line) {
			t.Error("no", line)
		}
	}
}
