package e2e

import (
	"os"
	"strings"
	"testing"
)

// A job_submit plugin that refuses a job in the site's own words ends the run as refused after one send: with the words on every face, with
// the claim taken, and without a job. slurmrestd does not pass the words on.
//
// short: a site's own Slurm
func TestJobSubmitPluginRefuses(t *testing.T) {
	t.Parallel()
	const words = "Project alice-2 has used its hours for this month"
	for transport, over := range map[string]func(*site){"cli": func(*site) {}, "rest": func(s *site) { s.overREST(restOf(t).Login.tls()) }} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "probing")
			over(s)
			s.plugin("refuse " + words)
			said := words
			if transport == "rest" {
				said = "Batch job submission failed: Unspecified error"
			}
			p := s.openPort(t)
			id := s.submit(probePlan("write", "out/result", "refused")).RunID
			l := s.wait(id)
			if l.State != "failed" || !strings.HasPrefix(l.why(), "rejected") || !strings.Contains(l.why(), said) {
				t.Errorf("a run whose job the plugin refused is %s: %s; want it failed as rejected with %q", l.State, l.why(), said)
			}
			v := s.story(id)
			claim := value(os.ReadFile(host(v.Workspace) + "/a1/ctl/claim"))(t)
			if len(v.Sends) != 1 || v.Sends[0].Outcome != "doubt" || !strings.Contains(string(claim), "void") {
				t.Errorf("%d sends, the claim %q; want one send, and the claim void", len(v.Sends), claim)
			}
			if jobs := shell(t, "root", `sacct -aXnP -S now-1hour --name="$1" -o jobid`, v.JobName); jobs != "" {
				t.Errorf("Slurm has jobs %s of the refused run", jobs)
			}
			if text := s.chat(t, "2025-06-18").say("slurm_job_get", tree{"run_id": id}, nil); !strings.Contains(text, said) {
				t.Errorf("in chat the refused run shows %s", text)
			}
			if _, body := p.send("GET", "/v1/runs/"+id+"/result", ""); !strings.Contains(string(body), said) {
				t.Errorf("over HTTP the refused run shows %s", body)
			}
		})
	}
}
