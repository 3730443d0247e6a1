package plan

import (
	"strings"
	"testing"
)

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
	id := Identity{ToolName: "slurm_submit", ContractVersion: "v1", PolicyHash: policy, ParamsHash: params}
	art, err := ArtifactID("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "TEXT",
		"greeting")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, got, want string }{
		{"policy hash", policy, "sha256:a18ff4a4f48b3eb517a3294efe36835d5b783e7a2fe68985091bfff88643023d"},
		{"params hash", params, "sha256:126a7127fc050544c676957d9a63c2c95e9a94bbe630cd2c5c731b60a80d1624"},
		{"HelixMCP's params hash", canon(`{"project_id":"proj_01HZZZZZZZZZZZZZZZZZZZZZZZ","stable":true}`),
			"sha256:d0692e15940bfd7b596b685a64778d125481385d2ee9635ce4b36f9228598b7d"},
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

// HelixMCP's example plan has HelixMCP's run id, from the JSON a caller sends to the id; a null stdout sent along changes nothing.
//
// proves ABI-07 ABI-08 ABI-09
func TestHelixMCPPlanHasItsRunID(t *testing.T) {
	a64 := strings.Repeat("a", 64)
	for _, stdout := range []string{"", `,"stdout":null`} {
		spec, err := DecodeSpec([]byte(`{"version":1,"resources":{"time_limit_seconds":60,"cpus":1,"mem_mb":512,"gpus":null,"gpu_type":null},
 "placement":{"partition":"short","account":"bio","qos":null,"constraint":null},
 "execution":{"kind":"container","container":{"engine":"apptainer","image":"sha256:bf80e07e650becfd084db1abde0fe932b50f990a07fa56421ea647b552b5a406","network_mode":"none","readonly_rootfs":true},
  "command":{"argv":["samtools","flagstat","/work/in/input.bam"],"workdir":"/work","env":{}`+stdout+`}},
 "io":{"inputs":[{"role":"bam","artifact_id":"art_01HZZZZZZZZZZZZZZZZZZZZZZZ","checksum_sha256":"`+a64+`","dest_relpath":"in/input.bam"}],
  "outputs":[{"role":"report","src_relpath":"out/report.txt","type":"TEXT","label":"report.txt"}]}}`), Rules{})
		if err != nil {
			t.Fatal(err)
		}
		params, err := Params{ProjectID: "proj_01HZZZZZZZZZZZZZZZZZZZZZZZ", Script: "slurm_script_v1", Spec: spec}.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		id := Identity{ToolName: "slurm_submit", ContractVersion: "v1", PolicyHash: "sha256:" + a64, ParamsHash: Hash(params)}
		if got, want := id.RunID(), "run_4892C8PXMRCH3ZCVXQYKTVJ9DG"; got != want {
			t.Errorf("run id %s, want %s\n%s", got, want, params)
		}
	}
}

// The site is part of the identity only where the caller names one, the user only where jobs are the caller's; the plan's hash has neither.
//
// proves SITE-07 SITE-08
func TestSiteInTheIdentity(t *testing.T) {
	p := Params{ProjectID: "proj_x", Script: "slurm_script_v1", Spec: Spec{Version: 1, IO: IO{Inputs: []Input{}, Outputs: []Output{}}}}
	canonical := func(p Params) string {
		t.Helper()
		b, err := p.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	named, site := p, "alpha"
	named.Spec.Placement.Site = &site
	if plain := canonical(p); strings.Contains(plain, "site") || canonical(named.Anyones()) != plain || p.Site() != "" {
		t.Error(plain)
	}
	if bytes := canonical(named); !strings.Contains(bytes, `"qos":null,"site":"alpha"}`) || named.Site() != "alpha" {
		t.Error(bytes)
	}
	back, err := DecodeParams([]byte(canonical(named)))
	if err != nil || back.Site() != "alpha" {
		t.Error(back.Spec.Placement, err)
	}
	a := Identity{"t", "v1", "p", "named", "plain"}
	b := Identity{"t", "v1", "p", "plain", ""}
	if a.PlanHash() != b.PlanHash() || a.RunID() == b.RunID() {
		t.Error(a.PlanHash(), b.PlanHash())
	}
	as := named
	as.ExecutedAs = "alice@lab.example"
	if bytes := canonical(as); !strings.HasPrefix(bytes, `{"project_id":"proj_x","slurm":{"executed_as":"alice@lab.example","execution":`) ||
		canonical(as.Anyones()) != canonical(p) {
		t.Error(bytes)
	}
	if back, err := DecodeParams([]byte(canonical(as))); err != nil || back.ExecutedAs != "alice@lab.example" {
		t.Error(back.ExecutedAs, err)
	}
	if _, err := DecodeParams([]byte(strings.Replace(canonical(as), "alice@lab.example", "../bob", 1))); err == nil {
		t.Error("params executed as ../bob were read")
	}
	if old, err := named.Previous(Placement{Partition: "p", Site: &site}); err != nil || strings.Contains(string(old), "alpha") {
		t.Error(string(old), err)
	}
}

// A name that a path, a command of Slurm's or a certificate could read as something else is no user.
//
// proves SITE-08
func TestUnixUsers(t *testing.T) {
	for _, name := range []string{"alice", "alice1", "a", "1alice", "_svc", "alice@lab.example", "Alice.B-c_d+e", strings.Repeat("a", 256)} {
		if msg := CheckUnixUser(name); msg != "" {
			t.Errorf("%q: %s", name, msg)
		}
	}
	for _, name := range []string{"", "0", "1000", "-alice", "+1000", ".", "..", ".ssh", "a/b", "a:b", "a,b", "a b", " a", "a ", "a\n",
		"a\x00", "a\x7f", `LAB\alice`, "a%u", "a$", "a*", "a\u202e", "é", strings.Repeat("a", 257)} {
		if CheckUnixUser(name) == "" {
			t.Errorf("%q is taken for a user", name)
		}
	}
}
