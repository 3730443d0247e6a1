package gate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"slurmgate/fault"
)

// One step, three faces: each says what its caller can do there.
func TestWords(t *testing.T) {
	const run = "run_3SE9HRX367RN37683ZB6KX0C3D"
	for _, c := range []struct {
		step              fault.Step
		shell, chat, http string
	}{
		{fault.Do("slurm.job.get", "run_id", run), "slurmgate get " + run, `slurm_job_get {"run_id":"` + run + `"}`, "GET /v1/runs/" + run},
		{fault.Do("slurm.job.collect", "run_id", run, "wait_seconds", 30), "slurmgate wait " + run,
			`slurm_job_collect {"run_id":"` + run + `","wait_seconds":30}`,
			"GET /v1/runs/" + run + "/result?wait_seconds=30"},
		{fault.Do("slurm.job.adopt", "run_id", run), "slurmgate adopt " + run + " JOB_ID",
			"ask an administrator to run `slurmgate adopt " + run + " JOB_ID`",
			`POST /v1/tools/slurm.job.adopt:run with args {"run_id":"` + run + `"}`},
		{fault.Do("run.list"), "slurmgate runs list", "run_list", "GET /v1/runs"},
		{fault.Do("run.list", "state", "failed", "cursor", "a b"), "slurmgate runs list --state failed --cursor 'a b'",
			`run_list {"cursor":"a b","state":"failed"}`,
			"GET /v1/runs?state=failed&cursor=a+b"},
		{fault.Do("image add", "name", "samtools"), "slurmgate image add samtools FILE",
			"ask an administrator to run `slurmgate image add samtools FILE`",
			"at the gateway's shell: slurmgate image add samtools FILE"},
		{fault.Do("tool.show", "tool_id", "seqkit.stats"), "slurmgate tool show seqkit.stats", `tool_show {"tool_id":"seqkit.stats"}`,
			"GET /v1/registry"},
		{fault.Do("seqkit.stats", "reads", "art_X"), "slurmgate run seqkit.stats", `seqkit_stats {"reads":"art_X"}`,
			`POST /v1/tools/seqkit.stats:run with args {"reads":"art_X"}`},
	} {
		for by, want := range map[Transport]string{Local: c.shell, MCP: c.chat, Other: c.http} {
			if got := Words(by, []fault.Step{c.step}); got != want {
				t.Errorf("%s: %q, want %q", by, got, want)
			}
		}
	}
	got := Words(Local, []fault.Step{fault.Do("doctor"), fault.Do("doctor"), fault.Do("slurm.job.get", "run_id", "it's")})
	if got != `slurmgate doctor, or slurmgate get 'it'\''s'` {
		t.Error(got)
	}
}

// An error's body has its steps as data, and its message has them in the words of the face, those of its causes and problems too.
func TestBodyHasSteps(t *testing.T) {
	inner := fault.New(fault.NotFound, "run_not_found", "no run run_X").WithSteps(fault.Do("run.list"))
	problem := fault.Problem{Code: "P-1", Field: "reads", Rule: "an artifact id", Msg: "is a path", Hint: "import the file first",
		Next: []fault.Step{fault.Do("artifact.import", "path", "x.bam")}}
	for _, c := range []struct {
		err  error
		by   Transport
		want string
		next string
	}{
		{fault.Wrap("", "", "looking", inner).WithNext("look again"), Local,
			"looking: no run run_X. Next: look again; slurmgate runs list", `[{"verb":"run.list","args":{}}]`},
		{fmt.Errorf("outer: %w", inner), MCP, "outer: no run run_X. Next: run_list", `[{"verb":"run.list","args":{}}]`},
		{fault.New(fault.Tool, "c", "ended.").WithNext("correct it").WithSteps(fault.Do("doctor")), Local,
			"ended. Next: correct it: slurmgate doctor", `[{"verb":"doctor","args":{}}]`},
		{fault.Invalid("", problem), MCP, `reads: is a path (an artifact id); import the file first: artifact_import {"path":"x.bam"}`,
			`[{"verb":"artifact.import","args":{"path":"x.bam"}}]`},
		{fault.Invalid("bad", problem, problem).WithSteps(fault.Do("tool.list")), Local, "",
			`[{"verb":"tool.list","args":{}},{"verb":"artifact.import","args":{"path":"x.bam"}}]`},
		{fault.New(fault.Tool, "c", "ended"), Local, "ended", "null"},
	} {
		body := BodyOf(c.by, c.err)
		next, _ := json.Marshal(body.Details["next"])
		if c.want != "" && body.Message != c.want || string(next) != c.next {
			t.Errorf("%q %s, want %q %s", body.Message, next, c.want, c.next)
		}
		if problems, _ := body.Details["problems"].([]fault.Problem); len(problems) > 0 && !strings.Contains(problems[0].Hint,
			"import the file first: ") {
			t.Error(problems[0].Hint)
		}
	}
	if got := inner.Error(); got != "no run run_X. Next: run.list" {
		t.Error(got)
	}
}
