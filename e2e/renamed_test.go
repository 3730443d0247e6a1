package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// plugin sets what the cluster's job_submit plugin does to the jobs of the site: rename them, or refuse them with its
// own message.
func (s *site) plugin(what string) {
	s.t.Helper()
	must(s.t, os.WriteFile(host(s.dir)+"/.job_submit", []byte(what+"\n"), 0o644))
}

// On a site whose job_submit plugin renames every job, each run has one job, which is found, executed and cancelled,
// sent singly or in an array, and a waiting run reports that its job has another name. A link leads to the folder of
// the runs.
//
// short: a site's own Slurm
func TestJobSubmitPluginRenames(t *testing.T) {
	t.Parallel()
	const name = "lab: renamed by a plugin"
	for transport, over := range map[string]func(*site){"cli": func(*site) {}, "rest": func(s *site) { s.overREST(restOf(t).Login.tls()) }} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "probing")
			runs := s.dir + "/link/here"
			shell(t, "lab", `mkdir -p "$1/real/here" && ln -s real "$1/link"`, s.dir)
			s.replace("site.yaml", "runs_dir: "+s.dir+"/runs", fmt.Sprintf("runs_dir: %q", runs))
			over(s)
			s.inArrays(5)
			s.plugin("rename " + name)
			s.serve()
			var docs []tree
			for i := range 5 {
				docs = append(docs, probePlan("write", "out/result", fmt.Sprint("task", i)))
			}
			for i, id := range s.together(docs...) {
				if l := s.wait(id); l.State != "succeeded" || string(s.bytesOf(l.Roles["result"])) != fmt.Sprint("task", i) {
					t.Errorf("run %d of an array whose tasks were renamed is %s (%s), want succeeded", i, l.State, l.why())
				}
			}
			for _, cancelled := range []bool{false, true} {
				doc := s.set(probePlan("write", "out/result", fmt.Sprint("cancelled ", cancelled)), "placement.partition", "big")
				id := s.submit(doc).RunID
				var l looked
				until(t, "job_renamed of "+id, func() bool {
					l = looked{}
					s.ok(&l, "get", id)
					return strings.HasPrefix(l.why(), "job_renamed") && l.SlurmJobID != nil
				})
				if cancelled {
					s.ok(nil, "cancel", id)
					until(t, "end of the job of "+id, func() bool {
						return shell(t, "root", `squeue -h -j "$1" -o %i 2>/dev/null || true`, *l.SlurmJobID) == ""
					})
				} else {
					shell(t, "lab", `scontrol update jobid="$1" partition=main`, *l.SlurmJobID)
				}
				if l, want := s.wait(id), map[bool]string{false: "succeeded", true: "cancelled"}[cancelled]; l.State != want {
					t.Errorf("a run whose job was renamed is %s (%s), want %s", l.State, l.why(), want)
				}
			}
			until(t, "records of accounting", func() bool {
				return shell(t, "root", `sacct -aXDPn -S now-1hour -o jobname,workdir | awk -F'|' -v n="$1" -v d="$2/" '$1 == n && index($2, d) == 1' |
					wc -l`, name, runs) == "7"
			})
		})
	}
}
