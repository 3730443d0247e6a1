package plan

import "testing"

// The design's test vectors, end to end. proves ABI-07
func TestIdentityVectors(t *testing.T) {
	canon := func(s string) string {
		t.Helper()
		b, err := Canonical([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return Hash(b)
	}
	policy := canon(`{"version":1,"tool_allowlist":["slurm_submit"],"slurm":{"partitions_allowlist":["short"]}}`)
	params := canon(`{"project_id":"proj_01HZZZZZZZZZZZZZZZZZZZZZZZ","slurm":{"spec_version":1,"slurm_script_version":"slurm_script_v1","resources":{"time_limit_seconds":900,"cpus":1,"mem_mb":2048,"gpus":null,"gpu_type":null}}}`)
	id := Identity{"slurm_submit", "v1", policy, params}
	art, err := ArtifactID("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "TEXT", "greeting")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, got, want string }{
		{"policy hash", policy, "sha256:a18ff4a4f48b3eb517a3294efe36835d5b783e7a2fe68985091bfff88643023d"},
		{"params hash", params, "sha256:126a7127fc050544c676957d9a63c2c95e9a94bbe630cd2c5c731b60a80d1624"},
		{"run id", id.RunID(), "run_0X8Z4D1X467KV94K4TXG0D9BXT"},
		{"plan hash", id.PlanHash(), "sha256:06e2152a1ceb0ed3c468aacd1468bf65b2c067680abb8aeddbc06ff31023a32f"},
		{"project id", ProjectID("demo"), "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY"},
		{"artifact id", art, "art_183BZJHEYXMKZBB4A0X74BNFSS"},
	} {
		if c.got != c.want {
			t.Errorf("%s = %s, want %s", c.what, c.got, c.want)
		}
	}
}
