package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The log has the story of a run under its id, however it ended: accepted, sent, queued, running, ended, collected,
// each with its duration, and every line with run, tool and principal, from the receipt on with the job, and once it
// ran with its node. The log is JSON, line by line. squeue shows who submitted the run.
//
// proves OPS-03
func TestStoryInTheLog(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	d := s.serve("--log-format", "json")
	good := s.submit(probePlan("write", "out/result", "good")).RunID
	bad := s.submit(probePlan("exit", "3")).RunID
	stopped := s.submit(probePlan("await", "out/go", "out/result")).RunID
	s.started(stopped)
	note := shell(t, "lab", `squeue --noheader --me --format=%k --name="$1"`, s.story(stopped).JobName)
	if !strings.HasPrefix(note, "slurmgate,tool=slurm.submit,by=user:lab,id=prn_") {
		t.Errorf("squeue shows the comment %s, want the tool and who asked", note)
	}
	s.ok(nil, "cancel", stopped)
	for id, want := range map[string]string{good: "run.succeeded", bad: "run.failed", stopped: "run.cancelled"} {
		s.wait(id)
		until(t, want+" of "+id+" in the log", func() bool {
			for line := range strings.Lines(d.text.String()) {
				if strings.Contains(line, id) && strings.Contains(line, want) && strings.HasSuffix(line, "\n") {
					return true
				}
			}
			return false
		})
		var story []string
		for line := range strings.Lines(d.text.String()) {
			var doc map[string]any
			if !strings.HasSuffix(line, "\n") {
				break // the rest of it is on its way
			}
			if err := json.Unmarshal([]byte(line), &doc); err != nil {
				t.Fatalf("the line %q of the log is no JSON: %v", line, err)
			}
			if !strings.Contains(line, id) {
				continue
			}
			word := func(key string) string {
				text, _ := doc[key].(string)
				return text
			}
			msg := word("msg")
			_, after := doc["after_seconds"].(float64)
			_, total := doc["total_seconds"].(float64)
			story = append(story, msg)
			sent, ran := slices.Contains(story, "run.receipt"), slices.Contains(story, "run.running")
			if word("run_id") != id || word("tool") != "slurm.submit" || word("principal") != "user:lab" ||
				(word("job_id") != "") != sent || ran && word("node") == "" ||
				after == (msg == "run.created") || total != (msg == want) {
				t.Errorf("the line of the log lacks a field, or has one too early, for %s of run %s: %s", msg, id,
					line)
			}
		}
		for _, msg := range []string{"run.created", "run.intent", "run.receipt", "run.collecting", want} {
			if !slices.Contains(story, msg) && !(msg == "run.collecting" && id == stopped) {
				t.Errorf("%s: no %s in %q", want, msg, story)
			}
		}
	}
}
