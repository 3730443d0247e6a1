package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"slurmgate/fault"
	"slurmgate/gate"
)

const (
	rulesFile     = "../../packaging/prometheus/slurmgate.rules.yaml"
	dashboardFile = "../../packaging/grafana/slurmgate.json"
)

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) (list []alert) {
	t.Helper()
	data := value(os.ReadFile(rulesFile))(t)
	var f struct {
		Groups []struct{ Rules []alert }
	}
	must(t, yaml.Unmarshal(data, &f))
	for _, g := range f.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

// dashboard lists the expressions of the dashboard.
func dashboard(t *testing.T) (exprs []string) {
	t.Helper()
	data := value(os.ReadFile(dashboardFile))(t)
	var d struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(data, &d))
	for _, p := range d.Panels {
		for _, x := range p.Targets {
			exprs = append(exprs, x.Expr)
		}
	}
	return exprs
}

// scrape returns the metrics page of a real gateway that serves: its series, with their values.
func scrape(t *testing.T) map[string]string {
	t.Helper()
	s, file := plainSite(t)
	id := artifactIn(t, s, "hello\n")
	must(t, markBackup(s.Gateway.StateDir, lastBackup{At: time.Now().Add(-time.Hour)}))
	g := value(openGateway(t.Context(), s, toChange, quiet(), nil))(t)
	defer g.Close()
	if code, _, said := verb(t, "--site", file, "artifact", "get", id); code != 0 {
		t.Fatal(said)
	}
	g.app.Gate.Refuse(gate.Source{Transport: gate.Other, From: "192.0.2.1"}, fault.New(fault.Auth, "unauthenticated", "no"))
	g.app.Gate.Close() // what it has not yet recorded
	w := httptest.NewRecorder()
	g.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	series := map[string]string{}
	for _, line := range strings.Split(w.Body.String(), "\n") {
		if name, value, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			if i := strings.LastIndex(line, " "); i > 0 {
				name, value = line[:i], line[i+1:]
			}
			series[name] = value
		}
	}
	return series
}

var (
	metricName = regexp.MustCompile(`\b(slurmgate|process|go)_[a-z0-9_]+\b`)
	matcher    = regexp.MustCompile(`([a-z_]+)(\{([^}]*)\})`)
	label      = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	grouping   = regexp.MustCompile(`\b(?:by|on) \(([a-z_, ]*)\)`)
)

// Every metric and label that the rules and the dashboard name is on the metrics page of a real gateway, and every runbook is a section of
// a page in docs/run.
//
// proves OPS-03
func TestAlertsNameWhatExists(t *testing.T) {
	page := scrape(t)
	for _, sample := range sometimes {
		page[sample] = "0" // a gateway has it only when something of that kind happened; metrics.TestHealth and TestParts show that it does then
	}
	labels := map[string]map[string]bool{}
	for series := range page {
		name, rest, _ := strings.Cut(series, "{")
		if labels[name] == nil {
			labels[name] = map[string]bool{"job": true, "instance": true} // of the scrape
		}
		for _, m := range label.FindAllStringSubmatch(rest, -1) {
			labels[name][m[1]] = true
		}
	}
	var exprs []string
	for _, a := range alerts(t) {
		exprs = append(exprs, a.Expr)
	}
	used := 0
	for _, expr := range append(exprs, dashboard(t)...) {
		var names []string
		for _, name := range metricName.FindAllString(expr, -1) {
			used++
			if labels[name] == nil {
				t.Errorf("%s: there is no metric %s", expr, name)
			}
			names = append(names, name)
		}
		for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
			for _, l := range label.FindAllStringSubmatch(m[3], -1) {
				if m[1] != "up" && !labels[m[1]][l[1]] {
					t.Errorf("%s: %s has no label %s", expr, m[1], l[1])
				}
			}
		}
		for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
			for _, l := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
				if !slices.ContainsFunc(names, func(name string) bool { return labels[name][l] }) {
					t.Errorf("%s: no metric of it has the label %s", expr, l)
				}
			}
		}
	}
	if used < 40 {
		t.Errorf("only %d names were found", used)
	}
	anchors := map[string]bool{}
	pages, err := filepath.Glob("../../docs/run/*.md")
	must(t, err)
	for _, page := range pages {
		manual, err := os.ReadFile(page)
		must(t, err)
		for _, line := range strings.Split(string(manual), "\n") {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "##") {
				slug := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), "")
				anchors[strings.TrimPrefix(page, "../../")+"#"+strings.ReplaceAll(slug, " ", "-")] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !anchors[a.Annotations["runbook"]] || a.Annotations["summary"] == "" {
			t.Errorf("%s: no section %q", a.Alert, a.Annotations["runbook"])
		}
	}
}

// sometimes lists series of runs and requests that a gateway without Slurm does not have.
var sometimes = []string{`slurmgate_oldest_run_seconds{phase="deferred",site="shell"}`,
	`slurmgate_oldest_run_seconds{phase="unconfirmed",site="shell"}`,
	`slurmgate_slurm_requests_total{command="squeue",outcome="ok",site="shell"}`,
	`slurmgate_slurm_requests_total{command="sbatch",outcome="failed",site="shell"}`, `slurmgate_watch_lag_seconds{site="shell"}`,
	`slurmgate_connection_up{site="shell",to="slurm"}`, `slurmgate_connection_losses_total{site="shell",to="slurm"}`}

// planted holds the situation of each alert, as changes to the metrics of a gateway without problems.
var planted = map[string]map[string]string{
	"SlurmgateDown":            {`up{job="slurmgate"}`: "0x400"},
	"SlurmgateRestarts":        {`process_start_time_seconds{job="slurmgate"}`: "1+60x400"},
	"SlurmgateLedgerStopped":   {`slurmgate_ledger_stopped{job="slurmgate"}`: "1x400"},
	"SlurmgateDiskFull":        {`slurmgate_disk_free_bytes{folder="state_dir",job="slurmgate",site="shell"}`: "1e6x400"},
	"SlurmgateDiskNearReserve": {`slurmgate_disk_free_bytes{folder="runs_dir",job="slurmgate",site="shell"}`: "3e8x400"},
	"SlurmgateSiteAway": {`slurmgate_site_up{job="slurmgate",site="shell"}`: "0x400",
		`slurmgate_slurm_up{job="slurmgate",site="shell"}`: "0x400"},
	"SlurmgateSiteNeverOpened": {`slurmgate_site_opened{job="slurmgate",site="shell"}`: "0x400",
		`slurmgate_site_up{job="slurmgate",site="shell"}`: "0x400", `slurmgate_slurm_up{job="slurmgate",site="shell"}`: "0x400"},
	"SlurmgateConnectionUnsteady": {`slurmgate_connection_losses_total{job="slurmgate",site="shell",to="slurm"}`: "0+1x400"},
	"SlurmgateSlurmSilent":        {`slurmgate_slurm_up{job="slurmgate",site="shell"}`: "0x400"},
	"SlurmgateWatchStalled": {`slurmgate_watch_lag_seconds{job="slurmgate",site="shell"}`: "1000x400",
		`slurmgate_runs{job="slurmgate",state="running"}`: "1x400"},
	"SlurmgateSlurmErrors": {`slurmgate_slurm_requests_total{command="sbatch",job="slurmgate",outcome="failed",site="shell"}`: "0+1x400"},
	"SlurmgateBudgetSpent": {`slurmgate_slurm_requests_total{command="squeue",job="slurmgate",outcome="ok",site="shell"}`: "0+29x400"},
	"SlurmgateRunsWaitLong": {
		`slurmgate_oldest_run_seconds{job="slurmgate",phase="deferred",site="shell"}`: "30000x400"},
	"SlurmgateRunsStuck":     {`slurmgate_oldest_run_seconds{job="slurmgate",phase="unconfirmed",site="shell"}`: "4000x400"},
	"SlurmgateRunsBlocked":   {`slurmgate_runs{job="slurmgate",state="blocked"}`: "2x400"},
	"SlurmgateRefusedLogins": {`slurmgate_tool_calls_total{job="slurmgate",outcome="auth",tool="none",transport="other"}`: "0+20x400"},
	"SlurmgateDrained":       {`slurmgate_drained{job="slurmgate",site="shell"}`: "1x2000"},
	"SlurmgateBackupOld":     {`slurmgate_last_backup_timestamp_seconds{job="slurmgate"}`: "-200000x400"},
	"SlurmgateBackupDamaged": {`slurmgate_last_backup_damaged_artifacts{job="slurmgate"}`: "1x400"},
	"SlurmgateLedgerLarge":   {`slurmgate_ledger_bytes{job="slurmgate"}`: "3e10x400"},
}

// Prometheus' own checker accepts the rules and the dashboard's expressions. No alert fires on the metrics of a real
// gateway, and each fires, alone, in the situation it is about.
//
// proves OPS-03
// slow: plays hours of metrics into Prometheus
func TestAlertsFire(t *testing.T) {
	out := value(exec.Command("../../scripts/promtool").Output())(t)
	promtool := strings.TrimSpace(string(out))
	dir := t.TempDir()
	rules := value(filepath.Abs(rulesFile))(t)

	base := map[string]string{`up{job="slurmgate"}`: "1"}
	page := scrape(t)
	for _, series := range sometimes {
		page[series] = "0"
	}
	for series, value := range page {
		if strings.HasPrefix(series, "go_") || strings.Contains(series, "_bucket{") {
			continue
		}
		name, rest, has := strings.Cut(series, "{")
		if !has {
			rest = "}"
		}
		var all []string
		for _, l := range strings.Split(strings.TrimSuffix(rest, "}"), ",") {
			if l != "" {
				all = append(all, l)
			}
		}
		all = append(all, `job="slurmgate"`)
		slices.Sort(all)
		base[name+"{"+strings.Join(all, ",")+"}"] = value
	}
	base[`slurmgate_last_backup_timestamp_seconds{job="slurmgate"}`] = "0" // the checker's clock begins at 0

	type sample map[string]any
	var tests []any
	test := func(name string, changes map[string]string, want []any) {
		at, samples := "5h", "x400"
		if name == "SlurmgateDrained" {
			at, samples = "25h", "x2000"
		}
		var input []any
		for series, value := range base {
			if changes[series] == "" {
				input = append(input, sample{"series": series, "values": value + samples})
			}
		}
		for series, values := range changes {
			if _, there := base[series]; !there {
				t.Errorf("%s: a gateway has no series %s", name, series)
			}
			input = append(input, sample{"series": series, "values": values})
		}
		tests = append(tests, sample{"name": name, "interval": "1m", "input_series": input, "promql_expr_test": []any{
			sample{"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": at, "exp_samples": want}}})
	}
	test("a gateway without a problem", nil, []any{})
	for _, a := range alerts(t) {
		if planted[a.Alert] == nil {
			t.Errorf("no situation for %s", a.Alert)
		}
		test(a.Alert, planted[a.Alert], []any{sample{"labels": fmt.Sprintf("{alertname=%q}", a.Alert), "value": 1}})
	}
	if len(planted) != len(alerts(t)) {
		t.Errorf("situations %v", slices.Sorted(maps.Keys(planted)))
	}
	write := func(name string, v any) string {
		data := value(yaml.Marshal(v))(t)
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, data, 0o600))
		return path
	}
	var shown []any
	for i, expr := range dashboard(t) {
		expr = strings.NewReplacer("$__rate_interval", "5m", "$site", ".*").Replace(expr)
		shown = append(shown, sample{"record": fmt.Sprint("panel:", i), "expr": expr})
	}
	for _, args := range [][]string{{"check", "rules", rules},
		{"check", "rules", write("panels.yaml", sample{"groups": []any{sample{"name": "dashboard", "rules": shown}}})},
		{"test", "rules", write("tests.yaml", sample{"rule_files": []string{rules}, "evaluation_interval": "5m", "tests": tests})}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%.6000s", args, err, out)
		}
	}
}
