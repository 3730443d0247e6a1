package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// walls is the report of testprog's escape.
type walls struct {
	Status    map[string]string
	Processes []string
	Tries     map[string]string
	Sees      map[string]bool
	Shared    []string
	Outside   []string
}

// seccomp sets the shipped profile for the site.
func (s *site) seccomp() {
	s.t.Helper()
	profile := value(os.ReadFile(world.repo + "/site-configs/seccomp.json"))(s.t)
	must(s.t, os.WriteFile(host(s.dir)+"/seccomp.json", profile, 0o644))
	s.replace("site.yaml", "\nimport:", "\n  seccomp: "+s.dir+"/seccomp.json\nimport:")
}

// A program in its container has no privileges and gets none, and does not see the jobs of others: their processes, workspaces, scripts
// and temporary files, the image store, Slurm and its credentials. With the shipped seccomp profile it makes no namespace either, by
// whatever call.
//
// proves ABI-20 ARC-07
// short: a container sees its own workspace
func TestWalls(t *testing.T) {
	t.Parallel()
	for _, seccomp := range []bool{false, true} {
		t.Run(map[bool]string{false: "without a profile", true: "with the profile"}[seccomp], func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "probing")
			if seccomp {
				s.seccomp()
			}
			s.serve()
			other := s.submit(probePlan("sleep", "300")).RunID
			s.phase(other, "running")
			shell(t, "root", `echo x >"/tmp/$1"; echo x >"/dev/shm/$1"; chmod 644 "/tmp/$1" "/dev/shm/$1"`, "of-others-"+other)
			own := []string{"/work/out", "/work/in", "/proc/self/status"}
			foreign := []string{s.dir + "/runs/" + other, s.dir + "/runs", s.dir + "/site.yaml", world.dir + "/images", "/work/ctl", "/work/../ctl",
				"/tmp/of-others-" + other, "/dev/shm/of-others-" + other, "/etc/slurm", "/etc/munge", "/run/munge/munge.socket.2", "/run/slurm",
				"/var/spool/slurmd", "/home/lab", "/shared", "/dev/sda", "/dev/mem", "/dev/fuse"}
			l := s.mustEnd(s.submit(probePlan(append([]string{"escape", "out/result"}, append(own, foreign...)...)...)).RunID, "succeeded")
			var cancelled struct{ State string }
			s.ok(&cancelled, "cancel", other)
			var w walls
			must(t, json.Unmarshal(s.bytesOf(l.Roles["result"]), &w))
			for _, path := range own {
				if !w.Sees[path] {
					t.Errorf("%s is not seen", path)
				}
			}
			for _, path := range foreign {
				if w.Sees[path] {
					t.Errorf("%s is seen", path)
				}
			}
			same(t, "processes", slices.Sorted(slices.Values(w.Processes)), []string{"appinit", "testprog"})
			if len(w.Shared)+len(w.Outside) > 0 {
				t.Errorf("files of others: %v %v", w.Shared, w.Outside)
			}
			status := map[string]string{"NoNewPrivs": "1", "Seccomp": "0"}
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				status[set] = strings.Repeat("0", 16)
			}
			tries := map[string]bool{} // what works
			for what := range w.Tries {
				tries[what] = !seccomp && strings.Contains(what, "clone") // a new namespace, from which nothing of the node is reachable
			}
			if seccomp {
				status["Seccomp"] = "2"
			}
			for name, want := range status {
				if w.Status[name] != want {
					t.Errorf("%s: %s, want %s", name, w.Status[name], want)
				}
			}
			for _, what := range slices.Sorted(maps.Keys(w.Tries)) {
				if (w.Tries[what] == "") != tries[what] {
					t.Errorf("%s, from within the container: %q, want that it works: %v", what, w.Tries[what],
						tries[what])
				}
			}
			if len(w.Tries) < 9 {
				t.Errorf("the program tried %v, want at least nine ways", w.Tries)
			}
			if why := w.Tries["clone3 a user namespace"]; seccomp && !strings.Contains(why, "not implemented") {
				t.Errorf("threads need ENOSYS from clone3, not %q", why)
			}
			if !seccomp {
				return
			}
			// Tools with threads and children work under it.
			g := newSite(t, "genomics")
			g.seccomp()
			g.serve()
			var r looked
			g.ok(&r, "run", "minimap2.map", "--input", "reads="+world.dir+"/data/reads.fastq.gz", "--input",
				"reference="+world.dir+"/data/MT-human.fa.gz", "--wait")
			if r.State != "succeeded" {
				t.Errorf("minimap2 under the seccomp profile: %v, want it succeeded", r)
			}
		})
	}
}
