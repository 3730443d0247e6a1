package policy

import (
	"strings"
	"testing"

	"slurmgate/fault"
)

// What may run on the gateway's own host, by tool, size and time; nothing where policy does not speak of it. proves ARC-06
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
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, p.Code+" "+p.Field+" "+strings.TrimPrefix(p.Rule, "policy "))
		}
		if s := strings.Join(got, "; "); s != c.want || err != nil && !fault.Is(err, fault.Policy) {
			t.Errorf("%+v:\ngot  %s", c, s)
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
