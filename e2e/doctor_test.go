package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type examined struct {
	Site                      string
	Findings                  []struct{ Site, Code, Where, Node, Status, Found, Remedy string }
	Faults, Unknown, Warnings int
}

// find is the worst result of a check.
func (e examined) find(code string) (status, found, remedy string) {
	order := []string{"", "ok", "warning", "unknown", "fault"}
	for _, f := range e.Findings {
		if f.Code == code && slices.Index(order, f.Status) > slices.Index(order, status) {
			status, found, remedy = f.Status, f.Found, f.Remedy
		}
	}
	return status, found, remedy
}

// doctor runs it; how it ends follows from what it found.
func (s *site) doctor() examined {
	s.t.Helper()
	r := s.cli("doctor", "--json")
	var e examined
	r.object(s.t, &e)
	want := 0
	switch {
	case e.Faults > 0:
		want = 1
	case e.Unknown > 0:
		want = 8
	}
	if r.code != want {
		s.t.Errorf("exit status %d is due: %v", want, r)
	}
	for _, f := range e.Findings {
		if f.Found == "" || f.Where == "" || f.Status != "ok" && f.Remedy == "" {
			s.t.Errorf("a result says what was found, and what to do: %+v", f)
		}
	}
	if left, _ := filepath.Glob(host(s.dir) + "/runs/.doctor*"); len(left) > 0 {
		s.t.Errorf("doctor left %v", left)
	}
	return e
}

// proves CARD-01
func TestDoctor(t *testing.T) {
	t.Parallel()
	t.Run("all is well", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "genomics")
		s.seccomp()
		e := s.doctor()
		if e.Faults != 0 || e.Warnings != 0 || e.Unknown != 0 {
			t.Errorf("%+v", e)
		}
		nodes := map[string]bool{}
		for _, f := range e.Findings {
			if f.Code == "shared_filesystem" {
				nodes[f.Node] = true
			}
		}
		if !nodes["n1"] || !nodes["n2"] {
			t.Errorf("both nodes were looked at: %v", nodes)
		}
		for _, check := range []string{"site_file", "domain", "images", "state_dir_disk", "ledger_sync", "disk_space",
			"runs_dir_links", "slurm_controller", "accounting", "min_job_age", "message_timeout", "squeue", "apptainer", "container", "claim_link",
			"container_privileges", "container_network", "container_processes", "container_seccomp", "container_namespaces"} {
			if status, detail, _ := e.find(check); status != "ok" {
				t.Errorf("%s: %s %s", check, status, detail)
			}
		}
	})
	t.Run("what containers can do", func(t *testing.T) {
		t.Parallel()
		e := newSite(t, "genomics").doctor()
		for _, check := range []string{"container_seccomp", "container_namespaces"} {
			if status, _, next := e.find(check); status != "warning" || !strings.Contains(next, "apptainer.seccomp") {
				t.Errorf("%s: %s %s", check, status, next)
			}
		}
		if e.Faults != 0 || e.Warnings != 4 { // both on both nodes
			t.Errorf("%+v", e)
		}
		missing := newSite(t, "genomics")
		missing.replace("site.yaml", "\nimport:", "\n  seccomp: /nothing/seccomp.json\nimport:")
		if status, detail, _ := missing.doctor().find("container"); status != "fault" || !strings.Contains(detail, "/nothing/seccomp.json") {
			t.Errorf("%s %s", status, detail)
		}
	})
	t.Run("runs_dir that nodes do not see", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "genomics", func(f *siteFile) { f.RunsDir = "/local/" + filepath.Base(f.Dir) + "-" + filepath.Base(world.dir) })
		e := s.doctor()
		found := false
		for _, f := range e.Findings {
			if f.Status == "fault" && strings.Contains(f.Found+f.Remedy, "runs_dir") {
				found = true
			}
		}
		if !found {
			t.Errorf("nobody says that runs_dir is not shared: %+v", e)
		}
		shell(t, "lab", `rm -rf "$1"`, s.RunsDir)
	})
	t.Run("no Apptainer there", func(t *testing.T) {
		t.Parallel()
		e := newSite(t, "genomics", func(f *siteFile) { f.Apptainer = "/opt/nothing/apptainer" }).doctor()
		if status, detail, next := e.find("apptainer"); status != "fault" || !strings.Contains(detail, "/opt/nothing/apptainer") ||
			!strings.Contains(next, "apptainer.path") || e.Faults != 2 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("the right next step", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ old, with, prepare, check, status, detail, next string }{
			{"  transport: cli\n", "  transport: cli\n  bin_dir: /opt/nothing\n", "", "slurm_commands", "fault",
				"/opt/nothing cannot be opened", "the folder of sbatch"},
			{"  transport: cli\n", "  transport: cli\n  conf: /etc/nothing.conf\n", "", "slurm_commands", "fault", "/etc/nothing.conf",
				"name the file that Slurm's commands use"},
			{"", "", `install -d -m 700 "$1/runs"`, "runs_dir", "fault", "belongs to root", "sudo chown"},
			{"", "", `install -d -o lab -m 777 "$1/runs"`, "runs_dir", "fault", "mode 0777", "sudo chmod go-w"},
			{"", "", `install -d -o lab -m 777 "/home/lab/${1#/shared/}"`, "state_dir", "fault", "mode 0777", "sudo chmod go-w"},
			{"", "", `sed -i "s#roots: \[#roots: [{path: /nothing, projects: [demo]}, #" "$1/site.yaml"`, "import_roots", "warning",
				"/nothing is not a folder", "import.roots"},
		} {
			s := newSite(t, "genomics")
			if c.old != "" {
				s.replace("site.yaml", c.old, c.with)
			}
			if c.prepare != "" {
				shell(t, "root", `mkdir -p "/home/lab/$(dirname "${1#/shared/}")"; chown lab "/home/lab/$(dirname "${1#/shared/}")"; `+c.prepare, s.dir)
			}
			var e examined
			s.cli("doctor", "--no-jobs", "--json").object(t, &e)
			if status, detail, next := e.find(c.check); status != c.status || !strings.Contains(detail, c.detail) || !strings.Contains(next,
				c.next) || e.Faults+e.Warnings != 1 {
				t.Errorf("%+v: %+v", c, e)
			}
		}
	})
	t.Run("a bind that nodes do not have", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "genomics")
		s.replace("site.yaml", "import:\n", "  binds: [{name: a, version: v1, source: /etc, target: /ref}, {name: b, version: v1, source: "+
			"/opt/nothing, target: /more}, {name: c, version: v1, source: /opt/neither, target: /most}]\nimport:\n")
		e := s.doctor()
		if status, detail, next := e.find("node_binds"); status != "fault" || !strings.HasSuffix(detail,
			"has no folder /opt/nothing, /opt/neither") || !strings.Contains(next, "apptainer.binds") || e.Faults != 2 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("no such partition", func(t *testing.T) {
		t.Parallel()
		e := newSite(t, "genomics", func(f *siteFile) { f.Partition = "nothing" }).doctor()
		if status, detail, next := e.find("probe_job"); status != "fault" || !strings.Contains(detail, "partition") || !strings.Contains(next,
			"default_partition") {
			t.Errorf("%+v", e)
		}
	})
	t.Run("no image", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "genomics", func(f *siteFile) { f.ImageStore = f.Dir + "/images" })
		e := s.doctor()
		if status, _, next := e.find("images"); status != "fault" || !strings.Contains(next, "image add") || e.Faults != 3 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("no jobs", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "genomics")
		r := s.cli("doctor", "--no-jobs")
		if r.code != 0 || !strings.Contains(string(r.stdout), "0 faults") || strings.Contains(string(r.stdout), "probe_job") {
			t.Errorf("%v", r)
		}
	})
}

// proves CARD-01
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	s.ok(nil, "config", "check")
	s.ok(nil, "config", "show")
	site := host(s.dir) + "/site.yaml"
	s.replace("site.yaml", "site: e2e", "site: E2E")
	s.replace("site.yaml", "default_partition: main", "default_partition: main --uid=0")
	s.replace("site.yaml", "floor_seconds: 1", "floor_seconds: 0")
	s.replace("site.yaml", "path: /usr/bin/apptainer", "path: usr/bin/apptainer\n  sudo: true")
	text, err := os.ReadFile(site)
	must(t, err)
	f := s.fails(2, "config", "check")
	want := map[string]string{"site": "E2E", "slurm.default_partition": "main --uid", "watch.floor_seconds": "floor",
		"apptainer.path": "usr/bin", "apptainer.sudo": "sudo"}
	lines := strings.Split(string(text), "\n")
	for _, p := range f.Details.Problems {
		word, due := want[p.Field]
		if !due {
			t.Errorf("not broken: %+v", p)
			continue
		}
		delete(want, p.Field)
		if p.Rule == "" || p.Code == "" || p.File != s.dir+"/site.yaml" || p.Line < 1 || !strings.Contains(lines[p.Line-1], word) {
			t.Errorf("%+v does not point at its line", p)
		}
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v in %+v", want, f)
	}
	// Every verb says the same, and none starts anything.
	if r := s.cli("runs", "list"); r.code != 2 || strings.Count(string(r.stderr), s.dir+"/site.yaml:") != 5 {
		t.Errorf("%v", r)
	}
	if _, err := os.Stat(host(s.dir) + "/runs"); err == nil {
		t.Error("a folder was made")
	}
	if r := s.cli("config", "check", "--site", "/nothing"); r.code == 0 || r.code == 1 {
		t.Errorf("%v", r)
	}
}

// A broken pack is told with file and line, all of them at once, and the gateway does not start with it.
//
// proves ABI-01 LOAD-11
func TestBrokenDomain(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	var good struct {
		Tools []string
	}
	s.ok(&good, "tool", "check", s.dir+"/domain")
	if len(good.Tools) != 22 {
		t.Errorf("%+v", good)
	}
	s.replace("domain/toolpacks/samtools.flagstat.tool.yaml", "abiVersion: v1", "abiVersion: v9")
	s.replace("domain/toolpacks/seqkit.stats.tool.yaml", "srcRelpath: out/stats.tsv", "srcRelpath: ../stats.tsv")
	s.replace("domain/toolpacks/seqkit.stats.tool.yaml", "timeoutMs: 900000", "timeout_ms: 900000")
	s.replace("domain/toolpacks/minimap2.map.tool.yaml", "cmd: [minimap2,", "cmd: [bash,")
	for _, args := range [][]string{{"tool", "check", s.dir + "/domain"}, {"tool", "check", s.dir + "/domain/toolpacks"},
		{"gc"}, {"serve"}} {
		status := 2
		if args[0] == "serve" {
			status = 78 // EX_CONFIG
		}
		f := s.fails(status, args...)
		files := map[string]bool{}
		for _, p := range f.Details.Problems {
			files[filepath.Base(p.File)] = true
			if p.Line < 1 || p.Field == "" || p.Rule == "" || !strings.HasSuffix(p.File, ".yaml") {
				t.Errorf("%v: %+v", args, p)
			}
		}
		for _, name := range []string{"samtools.flagstat.tool.yaml", "seqkit.stats.tool.yaml", "minimap2.map.tool.yaml"} {
			if !files[name] {
				t.Errorf("%v: nothing about %s: %+v", args, name, f.Details.Problems)
			}
		}
	}
	if r := s.cli("tool", "check", s.dir+"/domain"); !regexp.MustCompile(`seqkit\.stats\.tool\.yaml:\d+:\d+: `).Match(r.stderr) {
		t.Errorf("file:line in the text for people: %v", r)
	}
}
