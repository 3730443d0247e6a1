package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The design's test vectors, end to end. proves ABI-07
func TestIdentityVectors(t *testing.T) {
	canon := func(s string) string {
		t.Helper()
		b, err := Canonical([]byte(s))
		must(t, err)
		return Hash(b)
	}
	policy := canon(`{"version":1,"tool_allowlist":["slurm_submit"],"slurm":{"partitions_allowlist":["short"]}}`)
	params := canon(`{"project_id":"proj_01HZZZZZZZZZZZZZZZZZZZZZZZ","slurm":{"spec_version":1,"slurm_script_version":"slurm_script_v1","resources":{"time_limit_seconds":900,"cpus":1,"mem_mb":2048,"gpus":null,"gpu_type":null}}}`)
	id := Identity{ToolName: "slurm_submit", ContractVersion: "v1", PolicyHash: policy, ParamsHash: params}
	art, err := ArtifactID("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "TEXT",
		"greeting")
	must(t, err)
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
		must(t, err)
		params, err := Params{ProjectID: "proj_01HZZZZZZZZZZZZZZZZZZZZZZZ", Script: "slurm_script_v1", Spec: spec}.Canonical()
		must(t, err)
		id := Identity{ToolName: "slurm_submit", ContractVersion: "v1", PolicyHash: "sha256:" + a64, ParamsHash: Hash(params)}
		if got, want := id.RunID(), "run_4892C8PXMRCH3ZCVXQYKTVJ9DG"; got != want {
			t.Errorf("run id %s, want %s\n%s", got, want, params)
		}
	}
}

// The site is part of the identity only where the caller names one, the user only where jobs are the caller's; the
// plan's hash contains neither.
//
// proves SITE-07 SITE-08
func TestSiteInTheIdentity(t *testing.T) {
	p := Params{ProjectID: "proj_x", Script: "slurm_script_v1", Spec: Spec{Version: 1, IO: IO{Inputs: []Input{}, Outputs: []Output{}}}}
	canonical := func(p Params) string {
		t.Helper()
		b, err := p.Canonical()
		must(t, err)
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
}

// A name that a path, a command of Slurm or a certificate could interpret differently is refused as a Unix user.
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

// A promise is exactly a run id and a role.
func TestParsePromise(t *testing.T) {
	const id = "run_00000000000000000000000000"
	if p, ok := ParsePromise(id + ":sorted"); !ok || p.RunID != id || p.Role != "sorted" || p.String() != id+":sorted" {
		t.Errorf("ParsePromise(%s:sorted) = %s, %t", id, p, ok)
	}
	for _, s := range []string{"", id, id + ":", id + ":-x", id + ":a b", id + ":a:b", "run_0:a", " " + id + ":a", id + ":a\n",
		"ART" + id + ":a"} {
		if p, ok := ParsePromise(s); ok {
			t.Errorf("%q: %+v", s, p)
		}
	}
}

// A plan without promises has the same bytes as before promises existed.
//
// proves MANY-04
func TestPromisesChangeNothingElse(t *testing.T) {
	p := Params{ProjectID: ProjectID("demo"), Tool: &ToolExtra{Version: "1.0.0"}}
	without, err := p.Canonical()
	must(t, err)
	p.Tool.Promises = []Promised{{DestRelpath: "in/x", Output: "run_00000000000000000000000000:a"}}
	with, err := p.Canonical()
	if err != nil || string(with) == string(without) {
		t.Errorf("%s %v", with, err)
	}
	const want = `"tool":{"max_output_bytes":0,"strict_outputs":false,"version":"1.0.0"}}`
	if got := string(without); got[len(got)-len(want):] != want {
		t.Errorf("%s", got)
	}
}

// No name and no id in a site file, a token or a call leads to a user's own project: the names are reserved, and the
// ids have a form that no name gives.
//
// proves OPS-04
func TestUserProjectsAreOutOfReach(t *testing.T) {
	own := UserProjectID("alice", 1)
	if !IsProjectID(own) || !IsUserProject(own) {
		t.Fatalf("UserProjectID(alice, 1) = %s, which is no id of a user's project", own)
	}
	if own == UserProjectID("alice", 2) || own == UserProjectID("bob", 1) || own != UserProjectID("alice", 1) {
		t.Error("two users have one project, or one user has two")
	}
	for _, name := range []string{own, UserProject, "{user:alice}", "{account}", "{", "{ user }", "{user}.2"} {
		if CheckProject(name) == "" {
			t.Errorf("CheckProject(%q) accepts it", name)
		}
	}
	if msg := CheckProjects(UserProject); msg != "" {
		t.Errorf("CheckProjects(%s) = %q, want no objection", UserProject, msg)
	}
	if CheckProjects(own) == "" || CheckProjects("{user:alice}") == "" {
		t.Error("CheckProjects accepts a user's project by its id or a reserved name")
	}
	for _, name := range []string{"alice", "user=alice|n=1|", "~alice", " {user}", "user:alice"} {
		if id := ProjectOf(name); IsUserProject(id) {
			t.Errorf("the name %q gives %s, the id of a user's project", name, id)
		}
	}
	for i := range 10_000 {
		if id := ProjectID(fmt.Sprint("name ", i)); IsUserProject(id) || !strings.ContainsAny(id[5:6], "01234567") {
			t.Fatalf("the id of a name is %s, want a first character of 0 to 7", id)
		}
	}
}

// A setting applies to a project that it lists, to all with *, and to every user's own with {user}.
func TestInProjects(t *testing.T) {
	demo, own := ProjectID("demo"), UserProjectID("alice", 1)
	for _, x := range []struct {
		list []string
		id   string
		want bool
	}{{[]string{demo}, demo, true}, {[]string{demo}, own, false}, {[]string{"*"}, own, true}, {[]string{UserProject}, own, true},
		{[]string{UserProject}, demo, false}, {nil, demo, false}} {
		if got := InProjects(x.list, x.id); got != x.want {
			t.Errorf("InProjects(%v, %s) = %t, want %t", x.list, x.id, got, x.want)
		}
	}
}

// proves SRC-01
func TestConstraints(t *testing.T) {
	for text, features := range map[string][]string{
		"intel": {"intel"}, "a&b|c": {"a", "b", "c"}, "graphics*4": {"graphics"}, "[rack1|rack2|rack3]": {"rack1", "rack2", "rack3"},
		"[rack1*2&rack2*4]": {"rack1", "rack2"}, "[(knl&snc4&flat)*4&haswell*1]": {"knl", "snc4", "flat", "haswell"},
		"(a|b)&c": {"a", "b", "c"}, "a&(b|c)*2&[d|e]": {"a", "b", "c", "d", "e"}, "[a|b]&c": {"a", "b", "c"}, "x86-64_v3.1": {"x86-64_v3.1"},
		strings.Repeat("a", 256): {strings.Repeat("a", 256)},
	} {
		if !IsConstraint(text) || !slices.Equal(Features(text), features) {
			t.Errorf("%s: %v, %v", text, IsConstraint(text), Features(text))
		}
	}
}

// An accepted constraint is one value of --constraint in every context: it contains nothing that ends a word or a
// quotation, begins an option or has a meaning in a shell's double quotes, and every feature in it is a name.
func FuzzConstraint(f *testing.F) {
	for _, s := range []string{"a&b", "[a|b]", "(a&b)*2", "a*3", "--time=1", "a b", "[(a)]", "a\n#SBATCH"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !IsConstraint(s) {
			return
		}
		if s[0] == '-' || strings.ContainsAny(s, " \t\n\r\"'`$\\;<>#=,/%\x00") || len(Features(s)) == 0 {
			t.Errorf("%q", s)
		}
		for _, name := range Features(s) {
			if !IsConstraint(name) || strings.ContainsAny(name, "&|()[]*") || name[0] == '-' {
				t.Errorf("%q has the feature %q", s, name)
			}
		}
	})
}

// HelixMCP's lengths: 64 characters of a role, 256 of a label and of a path, in any characters.
//
// proves SRC-01 ABI-10
func TestLengths(t *testing.T) {
	for _, c := range []struct {
		what string
		msg  string
		ok   bool
	}{
		{"role of 64 characters", CheckRole(strings.Repeat("é", 64)), true},
		{"role of 128 bytes", CheckRole(strings.Repeat("a", 128)), true},
		{"role of 65 wide characters", CheckRole(strings.Repeat("é", 65)), false},
		{"role of 129 bytes", CheckRole(strings.Repeat("a", 129)), false},
		{"no role", CheckRole(""), false},
		{"role with a control character", CheckRole("a\x01"), false},
		{"label of 256 characters", CheckLabel(strings.Repeat("漢", 256)), true},
		{"label of 257 characters", CheckLabel(strings.Repeat("a", 257)), false},
		{"label with a run of blanks", CheckLabel("a  b"), false},
		{"no label", CheckLabel(""), false},
		{"path of 256 characters", CheckRelPath("in/"+strings.Repeat("a", 253), "in"), true},
	} {
		if (c.msg == "") != c.ok {
			t.Errorf("%s: %q", c.what, c.msg)
		}
	}
}
