package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slurmgate/fault"
)

// least is a site file with only the settings that have no default.
const least = `version: 1
site: tiny
gateway:
  state_dir: /var/lib/sg
domain_dir: domains/x
slurm:
  default_partition: main
  default_account: research
storage:
  runs_dir: /shared/runs
  image_store: /shared/images
`

var ignorePrivate = cmp.Options{cmpopts.IgnoreUnexported(Site{}), cmpopts.EquateEmpty()}

func parse(t *testing.T, text string) *Site {
	t.Helper()
	s, err := Parse("/etc/slurmgate/site.yaml", []byte(text))
	must(t, err)
	return s
}

// A site created in Go has the defaults of a file; the template shows them.
func TestDefaults(t *testing.T) {
	made, err := New(Site{Version: 1, Name: "tiny", Gateway: Gateway{StateDir: "/var/lib/sg"}, DomainDir: "/etc/slurmgate/domains/x",
		Slurm: Slurm{DefaultPartition: "main", DefaultAccount: "research"}, Storage: Storage{RunsDir: "/shared/runs",
			ImageStore: "/shared/images"}})
	must(t, err)
	if diff := cmp.Diff(made, parse(t, least), ignorePrivate); diff != "" {
		t.Errorf("the site of a file with nothing but what has no default differs from one made in Go: %s", diff)
	}
	if got, want := made.Gateway.Socket, "/var/lib/sg/gateway.sock"; got != want {
		t.Errorf("gateway.socket is %s without one in the file, want %s", got, want)
	}
}

func TestEffectiveReadsBack(t *testing.T) {
	for _, extra := range []string{"", "apptainer:\n  module: {load: [gcc/12, apptainer/1.4]}\n  binds: [{name: soft, version: v1, source: " +
		"/cvmfs, target: /cvmfs}]\n  no_mount: [sys]\nwatch: {floor_seconds: 90}\n"} {
		s := parse(t, least+extra)
		out, err := s.Effective()
		must(t, err)
		if diff := cmp.Diff(s, parse(t, string(out)), ignorePrivate); diff != "" {
			t.Errorf("%s\n%s", diff, out)
		}
		for _, line := range []string{"\n  ceiling_seconds: ", "\n  rpc_per_minute: 60\n", "\n  state_dir: /var/lib/sg\n"} {
			if !strings.Contains(string(out), line) {
				t.Errorf("%q is not in\n%s", line, out)
			}
		}
	}
}

// Accounts of Slurm's associations belong to one cluster, which the site file names.
func TestAccounts(t *testing.T) {
	for text, want := range map[string]string{"": "", "accounts: site": "", "accounts: associations, cluster: c": "",
		"accounts: associations": "SITE-ACCOUNTS", "accounts: slurm": "SITE-VALUE"} {
		_, err := Parse("site.yaml", []byte(strings.Replace(least, "slurm:\n  default_partition: main\n  default_account: research\n",
			"slurm: {default_partition: main, default_account: research, "+text+"}\n", 1)))
		if found := fault.ProblemsOf(err); (want == "") != (err == nil) || want != "" && (len(found) != 1 || found[0].Code != want ||
			found[0].Field != "slurm.accounts") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := (Slurm{Accounting: "required", Accounts: AccountsByAssociations}).AlsoNeeds(); fmt.Sprint(got) != "[sacct sacctmgr]" {
		t.Error(got)
	}
}

// All problems are reported together, in the order of the file, each with code, line and field.
func TestAllProblemsAtOnce(t *testing.T) {
	text := `version: 2
site: My Cluster
gateway:
  state_dir: var/lib
  socket: /` + strings.Repeat("s", 107) + `
  colour: blue
  default_project: " x"
domain_dir: ""
domain_dir: twice
slurm:
  transport: telnet
  bin_dir: &a /usr/bin
  conf: *a
  default_partition: "--x"
  default_account: a b
  accounting: yes
  grace_seconds: 0
  verify_allowance_seconds: soon
storage:
  runs_dir: /shared/run:s
  max_output_bytes: 1.5
apptainer:
  path: /usr/bin/apptainer
  module: {load: []}
  verify: none
  network_isolation: optional
  no_mount: [tmp, 7]
  gpu: intel
  binds:
    - {source: "/a,b", target: /work/in}
    - {name: c, version: "a b", source: /c, target: /d}
    - {name: c, version: "1", source: /e, target: /d}
    - {name: C, version: "1", source: /f, target: /g}
watch:
import: {roots: [data, /, /data]}
budget: {rpc_per_minute: 100000, shared: {file: a/b, rpc_per_minute: 0}, sends_in_flight: -1}
`
	_, err := Parse("site.yaml", []byte(text))
	if !fault.Is(err, fault.Validation) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		if p.File != "site.yaml" || p.Rule == "" || p.Msg == "" {
			t.Errorf("incomplete: %+v", p)
		}
		got = append(got, fmt.Sprintf("%d %s %s", p.Line, p.Code, p.Field))
	}
	want := strings.Split(strings.TrimSpace(`
1 SITE-VERSION version
2 SITE-NAME site
4 SITE-PATH gateway.state_dir
5 SITE-SOCKET gateway.socket
6 SITE-UNKNOWN-FIELD gateway.colour
7 SITE-PROJECT gateway.default_project
9 SITE-DUPLICATE-KEY domain_dir
11 SITE-VALUE slurm.transport
12 SITE-ANCHOR slurm.bin_dir
13 SITE-ALIAS slurm.conf
14 SITE-SLURM-NAME slurm.default_partition
15 SITE-SLURM-NAME slurm.default_account
16 SITE-VALUE slurm.accounting
17 SITE-RANGE slurm.grace_seconds
18 SITE-TYPE slurm.verify_allowance_seconds
19 SITE-MISSING storage.image_store
20 SITE-PATH storage.runs_dir
21 SITE-TYPE storage.max_output_bytes
23 SITE-APPTAINER apptainer.path
24 SITE-MISSING apptainer.module.load
25 SITE-VALUE apptainer.verify
26 SITE-VALUE apptainer.network_isolation
27 SITE-NO-MOUNT apptainer.no_mount[0]
27 SITE-TYPE apptainer.no_mount[1]
28 SITE-VALUE apptainer.gpu
30 SITE-MISSING apptainer.binds[0].name
30 SITE-MISSING apptainer.binds[0].version
30 SITE-PATH apptainer.binds[0].source
30 SITE-BIND-TARGET apptainer.binds[0].target
31 SITE-BIND-VERSION apptainer.binds[1].version
32 SITE-BIND-NAME apptainer.binds[2].name
32 SITE-BIND-TARGET apptainer.binds[2].target
33 SITE-BIND-NAME apptainer.binds[3].name
34 SITE-TYPE watch
35 SITE-PATH import.roots[0]
35 SITE-PATH import.roots[1]
36 SITE-RANGE budget.rpc_per_minute
36 SITE-PATH budget.shared.file
36 SITE-RANGE budget.shared.rpc_per_minute
36 SITE-RANGE budget.sends_in_flight
`), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%v", diff, err)
	}
}

func TestRefusedAsAWhole(t *testing.T) {
	for what, c := range map[string]struct{ text, code string }{
		"empty":         {"", "SITE-YAML"},
		"comment":       {"# nothing\n", "SITE-YAML"},
		"a list":        {"- version: 1\n", "SITE-TYPE"},
		"a word":        {"version\n", "SITE-TYPE"},
		"broken":        {"version: 1\n  site: [\n", "SITE-YAML"},
		"two documents": {least + "---\n" + least, "SITE-DOCUMENTS"},
		"broken second": {least + "---\n{[\n", "SITE-YAML"},
		"merge":         {least + "<<: {version: 1}\n", "SITE-MERGE-KEY"},
		"case twin":     {least + "Site: x\n", "SITE-UNKNOWN-FIELD"},
		"tag":           {strings.Replace(least, "tiny", "!!binary dGlueQ==", 1), "SITE-TAG"},
		"number":        {strings.Replace(least, "tiny", "12", 1), "SITE-TYPE"},
		"control":       {strings.Replace(least, "/var/lib/sg", `"/var/\nlib"`, 1), "SITE-PATH"},
		"huge":          {least + strings.Repeat("# x\n", maxFile/4), "SITE-SIZE"},
		"overlap":       {strings.Replace(least, "/shared/images", "/shared/runs/images", 1), "SITE-PATH-OVERLAP"},
		"state in runs": {strings.Replace(least, "/var/lib/sg", "/shared/runs", 1), "SITE-PATH-OVERLAP"},
		"bind of runs":  {least + "apptainer: {binds: [{name: s, version: v1, source: /shared, target: /s}]}\n", "SITE-PATH-OVERLAP"},
		"bind of root":  {least + "apptainer: {binds: [{name: s, version: v1, source: /, target: /s}]}\n", "SITE-PATH"},
	} {
		_, err := Parse("site.yaml", []byte(c.text))
		if !fault.Is(err, fault.Validation) || fault.CodeOf(err) != c.code {
			t.Errorf("%s: %s %v", what, fault.CodeOf(err), err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(filepath.Join(dir, "none.yaml"))
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "template.yaml") {
		t.Error(err)
	}
	path := filepath.Join(dir, "site.yaml")
	must(t, os.WriteFile(path, []byte(least), 0o600))
	s, err := Load(path)
	must(t, err)
	if want := filepath.Join(dir, "domains/x"); s.DomainDir != want {
		t.Errorf("domain_dir is %s, want %s", s.DomainDir, want)
	}
	pipe := filepath.Join(dir, "pipe") // without a writer
	must(t, syscall.Mkfifo(pipe, 0o600))
	for _, no := range []string{dir, pipe} {
		if _, err := Load(no); !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), "Next: ") {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte(far(login, "  login: {runs_dir: /a}\n  sftp: {host: dtn, port: 1, shell: false}\n")))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? {x: 1}\n: 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("site.yaml", data)
		if (s == nil) == (err == nil) {
			t.Fatal(s, err)
		}
		if err != nil {
			if len(fault.ProblemsOf(err)) == 0 {
				t.Fatal("refused without a reason", err)
			}
			return
		}
		out, err := s.Effective()
		must(t, err)
		again, err := Parse("site.yaml", out)
		if err != nil {
			t.Fatalf("the effective file is refused: %v\n%s", err, out)
		}
		if diff := cmp.Diff(s, again, ignorePrivate); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The port: on loopback unless the site says more, with names and origins in their one spelling.
func TestHTTP(t *testing.T) {
	good := least + "http: {listen: \"0.0.0.0:8442\", remote: true, hosts: [gw.example.org, \"gw.example.org:8443\"], origins: " +
		"[\"https://lab.example.org\"]}\n"
	if h := parse(t, good).HTTP; !h.Remote || len(h.Hosts) != 2 || h.MaxConnections != 1024 {
		t.Error(h)
	}
	for text, field := range map[string]string{
		`listen: "0.0.0.0:80"`: "http.listen", `listen: ":8442"`: "http.listen", `listen: "gw:8442"`: "http.listen",
		`listen: "127.0.0.1"`: "http.listen", `listen: "127.0.0.1:70000"`: "http.listen",
		`listen: "[2001:db8::1]:80"`: "http.listen", `hosts: ["*"]`: "http.hosts[0]", `hosts: [GW]`: "http.hosts[0]",
		`trusted_proxies: [10.0.0.1/8]`: "http.trusted_proxies[0]", `trusted_proxies: [nginx]`: "http.trusted_proxies[0]",
		`hosts: ["http://x"]`: "http.hosts[0]", `origins: ["*"]`: "http.origins[0]",
		`origins: ["https://x/"]`: "http.origins[0]", `origins: ["null"]`: "http.origins[0]", `remote: "yes"`: "http.remote",
		`remote: yes`: "http.remote", `max_connections: 0`: "http.max_connections", `tls: true`: "http.tls",
	} {
		_, err := Parse("/etc/slurmgate/site.yaml", []byte(least+"http: {"+text+"}\n"))
		if p := fault.ProblemsOf(err); len(p) != 1 || p[0].Field != field || p[0].Line == 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`listen: "127.0.0.1:0"`, `listen: "[::1]:8442"`, `listen: "localhost:8442"`, `remote: false`} {
		parse(t, least+"http: {"+text+"}\n")
	}
}

// A path that is part of an option of Slurm or Apptainer cannot split it or be expanded.
func TestPathsThatSplitOptions(t *testing.T) {
	for _, dir := range []string{"", "relative", "/", "/a:b", "/a,b", `/a\b`, "/a b", "/a%j", "/a\nb", "/a/../b", "/a/", "/a'b"} {
		c := checker{site: &Site{}}
		if c.plain("storage.image_store", dir); len(c.problems) != 1 {
			t.Errorf("%q: %v", dir, c.problems)
		}
	}
}

// wantProblems reads a site file, and fails the test unless it has exactly these problems, each "LINE CODE FIELD",
// all with a rule and a message, and without a secret.
func wantProblems(t *testing.T, name, text, want string) {
	t.Helper()
	_, err := Parse("site.yaml", []byte(text))
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, fmt.Sprintf("%d %s %s", p.Line, p.Code, p.Field))
		if said := fmt.Sprintf("%+v", p); p.Rule == "" || p.Msg == "" || strings.Contains(said, "c2VjcmV0") || strings.Contains(said, "hunter2") {
			t.Errorf("%s: the problem is %s, want one with rule and message, without a secret", name, said)
		}
	}
	if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
		t.Errorf("%s: the problems differ (-want +got):\n%s\n%v\n%s", name, diff, err, text)
	}
}

// wantReadBack fails the test if the printed file of a site does not give the same site.
func wantReadBack(t *testing.T, name string, s *Site) {
	t.Helper()
	out, err := s.Effective()
	must(t, err)
	if diff := cmp.Diff(s, parse(t, string(out)), ignorePrivate); diff != "" {
		t.Errorf("%s: the printed file is of another site (-want +got):\n%s\n%s", name, diff, out)
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
