package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type examined struct {
	Site                      string
	Findings                  []struct{ Site, Code, Where, Node, Status, Found, Remedy string }
	Faults, Unknown, Warnings int
}

// find returns the worst result of a check.
func (e examined) find(code string) (status, found, remedy string) {
	order := []string{"", "ok", "warning", "unknown", "fault"}
	for _, f := range e.Findings {
		if f.Code == code && slices.Index(order, f.Status) > slices.Index(order, status) {
			status, found, remedy = f.Status, f.Found, f.Remedy
		}
	}
	return status, found, remedy
}

// healthy requires that these checks are ok, and that no other check but these of policy has a status that is bad. The
// policy of the domain names an account that Slurm lacks.
func (e examined) healthy(t *testing.T, bad, ofPolicy []string, codes ...string) {
	t.Helper()
	for _, f := range e.Findings {
		if slices.Contains(bad, f.Status) && !slices.Contains(ofPolicy, f.Code) {
			t.Errorf("doctor on a healthy site finds %+v, want none that is one of %q", f, bad)
		}
	}
	for _, code := range codes {
		if status, found, _ := e.find(code); status != "ok" {
			t.Errorf("%s is %q: %s", code, status, found)
		}
	}
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
			s.t.Errorf("doctor reports %+v, want what was found, where, and what to do", f)
		}
	}
	if left, _ := filepath.Glob(host(s.dir) + "/runs/.doctor*"); len(left) > 0 {
		s.t.Errorf("doctor left %v", left)
	}
	return e
}

// proves CARD-01
// short: operating it
func TestDoctor(t *testing.T) {
	t.Parallel()
	t.Run("all is well", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "genomics")
		s.seccomp()
		e := s.doctor()
		if e.Faults != 0 || e.Warnings != 0 || e.Unknown != 0 {
			t.Errorf("doctor finds %d faults, %d warnings and %d unknown on a healthy site, want none: %+v",
				e.Faults, e.Warnings, e.Unknown, e.Findings)
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
				t.Errorf("%s is %q on a healthy site: %s, want ok", check, status, detail)
			}
		}
	})
	t.Run("what containers can do", func(t *testing.T) {
		t.Parallel()
		e := newSite(t, "genomics").doctor()
		for _, check := range []string{"container_seccomp", "container_namespaces"} {
			if status, _, next := e.find(check); status != "warning" || !strings.Contains(next, "apptainer.seccomp") {
				t.Errorf("%s is %q without a profile; next %s; want a warning that names apptainer.seccomp", check,
					status, next)
			}
		}
		if e.Faults != 0 || e.Warnings != 4 { // both on both nodes
			t.Errorf("doctor finds %d faults and %d warnings without a seccomp profile, want 0 and 4", e.Faults,
				e.Warnings)
		}
		missing := newSite(t, "genomics")
		missing.replace("site.yaml", "\nimport:", "\n  seccomp: /nothing/seccomp.json\nimport:")
		if status, detail, _ := missing.doctor().find("container"); status != "fault" || !strings.Contains(detail, "/nothing/seccomp.json") {
			t.Errorf("with a profile that is missing container is %q: %s, want a fault that names it", status, detail)
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
			t.Errorf("doctor finds %+v, want a fault that names runs_dir", e.Findings)
		}
		shell(t, "lab", `rm -rf "$1"`, s.RunsDir)
	})
	t.Run("a bind that nodes do not have", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "genomics")
		s.replace("site.yaml", "import:\n", "  binds: [{name: a, version: v1, source: /etc, target: /ref}, {name: b, version: v1, source: "+
			"/opt/nothing, target: /more}, {name: c, version: v1, source: /opt/neither, target: /most}]\nimport:\n")
		e := s.doctor()
		if status, detail, next := e.find("node_binds"); status != "fault" || !strings.HasSuffix(detail,
			"has no folder /opt/nothing, /opt/neither") || !strings.Contains(next, "apptainer.binds") || e.Faults != 2 {
			t.Errorf("with binds that nodes lack node_binds is %s (%s; next %s), with %d faults; want a fault on both nodes",
				status, detail, next, e.Faults)
		}
	})
}
