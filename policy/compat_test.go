package policy

import (
	"fmt"
	"os"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
)

// What may run on the gateway's own host, by tool, size and time; without a section nothing. proves ARC-06
func TestAllowLocal(t *testing.T) {
	for _, c := range []struct {
		policy, tool string
		bytes        int64
		want         string
	}{
		{"", "a_b", 1, "POLICY-LOCAL planKind local: absent"},
		{"local: {max_cpus: 4, max_mem_mb: 1000, max_time_limit_seconds: 100}", "a_b", 100 << 20, ""},
		{"local: {max_cpus: 4, max_mem_mb: 1000, max_time_limit_seconds: 100, tools_allowlist: [x_y]}", "a_b", 1,
			"POLICY-LOCAL-TOOL tool local.tools_allowlist: x_y"},
		{"local: {max_cpus: 4, max_mem_mb: 1000, max_time_limit_seconds: 100, max_input_bytes: 9}", "a_b", 10,
			"POLICY-INPUT-BYTES inputs local.max_input_bytes: at most 9"},
		{"local: {}", "a_b", -1, "POLICY-CPUS resources.cpus local.max_cpus: at most 1; POLICY-TIME-LIMIT resources.time_limit_seconds " +
			"local.max_time_limit_seconds: at most 60"},
		{"images_allowlist: []\nlocal: {max_cpus: 4, max_time_limit_seconds: 100}", "a_b", 1,
			"POLICY-IMAGE execution.container.image images_allowlist: none"},
	} {
		s := spec()
		s.Resources.GPUs, s.Resources.GPUType = nil, nil
		err := parse(t, "version: 1\n"+c.policy+"\n").AllowLocal(s, c.tool, "samtools", c.bytes)
		if s := denials(err); s != c.want || err != nil && !fault.Is(err, fault.Policy) {
			t.Errorf("AllowLocal(%s, %d bytes) under %q:\ngot  %s\nwant %s", c.tool, c.bytes, c.policy, s, c.want)
		}
	}
	if err := parse(t, "version: 1\nlocal: {max_cpus: 9, max_time_limit_seconds: 999}\n").
		AllowLocal(spec(), "a_b", "s", 1); fault.CodeOf(err) != "POLICY-GPUS" {
		t.Error(err)
	}
	for text, code := range map[string]string{"local: {max_running: 0}": "POLICY-RANGE",
		"local: {max_time_limit_seconds: 3601}": "POLICY-RANGE", "local: {roots: []}": "POLICY-UNKNOWN-FIELD",
		"local: {tools_allowlist: [a.b]}": "POLICY-TOOL-NAME"} {
		if _, err := Parse("p", []byte("version: 1\n"+text+"\n"), env); fault.CodeOf(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The policies of the AX documents load as printed and have the same meaning as ours. proves SRC-01 AX-08
func TestAXPolicies(t *testing.T) {
	data, err := os.ReadFile("../toolpack/testdata/ax/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ax, ours := parse(t, string(data)), parse(t, "version: 1\nconcurrency: {global: 8, per_tool: {firecrawl_crawl: 2}}\n"+
		"default_timeout_sec: 60\nnetwork: none\nlogging: {level: info}\n")
	of := func(p *Policy) string {
		return fmt.Sprintln(p.Version, p.Concurrency, p.DefaultTimeoutSec, p.Network, p.Logging)
	}
	if of(ax) != of(ours) {
		t.Errorf("got  %swant %s", of(ax), of(ours))
	}
	if want := `{"concurrency":{"max_inflight":8,"per_tool_max_inflight":{"firecrawl.crawl":2}},"logging":{"include_request_body":false,` +
		`"level":"INFO"},"network":{"default_egress_policy":"deny"},"timeouts":{"default_tool_timeout_sec":60}}`; string(ax.Snapshot) != want ||
		ax.Hash != plan.Hash([]byte(want)) {
		t.Errorf("%s %s", ax.Snapshot, ax.Hash)
	}
	if err := ax.CheckNames(Known{Tools: []string{"firecrawl_crawl"}}); err != nil {
		t.Error(err)
	}
	err = ax.CheckNames(Known{Tools: []string{"firecrawl_scrape"}})
	if p := fault.ProblemsOf(err); len(p) != 1 || p[0].Field != "concurrency.per_tool_max_inflight.firecrawl.crawl" || p[0].Line != 5 {
		t.Errorf("CheckNames reports %v, want one problem of firecrawl.crawl in line 5", p)
	}
	for level, want := range map[string]string{"DEBUG": "debug", "INFO": "info", "WARN": "warn", "WARNING": "warn", "ERROR": "error"} {
		if got := parse(t, "timeouts: {}\nlogging: {level: "+level+"}\n").Logging.Level; got != want {
			t.Error(level, got)
		}
	}
	if p := parse(t, "version: 1\nconcurrency: {max_inflight: 3}\n"); p.Concurrency.Global != 3 || len(p.Concurrency.PerTool) != 0 {
		t.Error(p.Concurrency)
	}
}

// Settings of AX's policies that this gateway does not support are refused with the reason and the replacement.
func TestAXPoliciesRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"timeouts: {default_tool_timeout_sec: 0}\n", "POLICY-RANGE timeouts.default_tool_timeout_sec:1"},
		{"timeouts: {idle: 3}\n", "POLICY-UNKNOWN-FIELD timeouts.idle:1"},
		{"network: {default_egress_policy: allow}\n", "POLICY-NETWORK network.default_egress_policy:1"},
		{"version: 1\nnetwork: {}\n", "POLICY-REQUIRED network.default_egress_policy:2"},
		{"timeouts: {}\nlogging: {level: CRITICAL}\n", "POLICY-LOG-LEVEL logging.level:2"},
		{"timeouts: {}\nlogging: {include_request_body: true}\n", "POLICY-LOG-BODY logging.include_request_body:2"},
		{"version: 1\ndefault_timeout_sec: 3\ntimeouts: {default_tool_timeout_sec: 3}\n", "POLICY-TWICE timeouts.default_tool_timeout_sec:3"},
		{"concurrency: {global: 3, max_inflight: 3}\n", "POLICY-TWICE concurrency.max_inflight:1"},
		{"concurrency: {per_tool: {a_b: 1}, per_tool_max_inflight: {a.b: 2}}\n", "POLICY-TWICE concurrency.per_tool_max_inflight.a.b:1"},
		{"concurrency: {per_tool_max_inflight: {A b: 2, c.d: 0}}\n",
			"POLICY-TOOL-ID concurrency.per_tool_max_inflight.A b:1, POLICY-RANGE concurrency.per_tool_max_inflight.c.d:1"},
		{"version: 2\ntimeouts: {}\n", "POLICY-RANGE version:1"},
		{"concurrency: {global: 3}\n", "POLICY-REQUIRED version:1"},
		{"{}\n", "POLICY-REQUIRED version:1"},
	} {
		wantRefused(t, c.text, c.want)
	}
}
