package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/gate"
)

// exampleTool returns a tool with an argument of each kind.
func exampleTool(effect gate.SideEffect) gate.Tool {
	t := tool("t.x", effect, "slurm")
	t.Input = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["reads"],"properties":{
 "reads":{"type":"string","pattern":"^art_[0-9A-HJKMNP-TV-Z]{26}$"},"k":{"type":"integer","minimum":1,"maximum":31},"rate":{"type":"number","maximum":1},
 "mode":{"enum":["fast","exact"]},"on":{"type":"boolean"},"name":{"type":"string","maxLength":200},"bams":{"type":"array","items":{"type":"string"}},
 "sizes":{"type":"array","items":{"type":"integer"}},"maybe":{"type":["integer","null"]},
 "resources":{"type":"object","additionalProperties":false,"properties":{"cpus":{"type":"integer","minimum":1},"gpus":{"type":"integer"}}}}}`)
	return t
}

// The corrected call of a refusal has what the model gave, in the form that the tool takes: nothing that it meant is lost when it repeats
// the call as it is shown.
func TestExampleKeepsWhatWasGiven(t *testing.T) {
	long := strings.Repeat("x", 300)
	for given, c := range map[string]struct{ wrong, want string }{
		`{"k":"4"}`:                                 {"k", `"k":4`},
		`{"k":40}`:                                  {"k", `"k":31`},
		`{"k":2.5}`:                                 {"k", `"k":2`},
		`{"k":"many"}`:                              {"k", `"k":1`},
		`{"rate":"0.5"}`:                            {"rate", `"rate":0.5`},
		`{"mode":"Fast"}`:                           {"mode", `"mode":"fast"`},
		`{"mode":7}`:                                {"mode", `"mode":"fast"`},
		`{"on":"false"}`:                            {"on", `"on":false`},
		`{"name":7}`:                                {"name", `"name":"7"`},
		`{"bams":"` + artID + `"}`:                  {"bams", `"bams":["` + artID + `"]`},
		`{"bams":"[\"a\",\"b\"]"}`:                  {"bams", `"bams":["a","b"]`},
		`{"sizes":["1",2]}`:                         {"sizes", `"sizes":[1,2]`},
		`{"resources":{"cpus":"2"}}`:                {"resources.cpus", `"resources":{"cpus":2}`},
		`{"resources":"{\"cpus\":0}"}`:              {"resources", `"resources":{"cpus":1}`},
		`{"resources":{"memory":"2 TB"}}`:           {"resources", `"resources":{"cpus":1,"gpus":1}`},
		`{"Name":"a"}`:                              {"", `"name":"a"`},
		`{"name":"` + long + `"}`:                   {"", `"name":"… (as given)"`},
		`{"bams":["a","` + long + `"]}`:             {"", `"bams":["a","… (as given)"]`},
		`{"k":4,"on":true,"mode":"fast","name":""}`: {"mode", `"k":4,"mode":"fast","name":"","on":true`},
		`{"k":null,"on":true}`:                      {"", `"on":true`},
	} {
		var d details
		if c.wrong != "" {
			d.Problems = []fault.Problem{{Field: "args." + c.wrong}}
		}
		got := example(exampleTool(gate.Execute), json.RawMessage(given), d)
		if !json.Valid([]byte(got)) || !strings.Contains(got, c.want) || !strings.Contains(got, `"reads":"art_…"`) {
			t.Errorf("the example after %s, of which %q was wrong, is %s, want %s and reads in it", given, c.wrong, got, c.want)
		}
		if c.want == `"on":true` && strings.Contains(got, `"k"`) {
			t.Errorf("the example after %s is %s, want no k", given, got)
		}
	}
}

// An argument under another name is the required one that is missing, if it is the only one and takes the value.
func TestExampleOfAnotherName(t *testing.T) {
	for given, want := range map[string]string{
		`{"fastq":"` + artID + `"}`:            `{"reads":"` + artID + `"}`,
		`{"fastq":"` + artID + `","k":2}`:      `{"k":2,"reads":"` + artID + `"}`,
		`{"fastq":"/data/a.fq"}`:               `{"reads":"art_…"}`,
		`{"sort":true}`:                        `{"reads":"art_…"}`,
		`{"reads":"` + artID + `","colour":1}`: `{"reads":"` + artID + `"}`,
	} {
		if got := example(exampleTool(gate.Execute), json.RawMessage(given), details{}); got != want {
			t.Errorf("the example after %s is %s, want %s", given, got, want)
		}
	}
}

// However many arguments a model sends, the example is JSON with the name of each.
func TestExampleOfManyArguments(t *testing.T) {
	x := exampleTool(gate.Execute)
	properties, given := []string{}, []string{}
	for i := range 20 {
		properties = append(properties, fmt.Sprintf(`"argument_%02d":{"type":"string"}`, i))
		given = append(given, fmt.Sprintf(`"argument_%02d":"%s"`, i, strings.Repeat("y", 70)))
	}
	x.Input = json.RawMessage(`{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`)
	got := example(x, json.RawMessage("{"+strings.Join(given, ",")+"}"), details{})
	if !json.Valid([]byte(got)) || strings.Count(got, `"argument_`) != 20 || len(got) > 2*maxExample {
		t.Errorf("the example of 20 long arguments has %d bytes and is %s, want JSON with all 20 in %d bytes", len(got), got, 2*maxExample)
	}
}

// In a chat, arguments that are null are none, also through tool_run; an optional argument that is null was not given, where the tool does
// not take null; one that the tool requires, or takes as null, stays what it is.
func TestNullArguments(t *testing.T) {
	w := newWorld()
	w.tools = append(w.tools, exampleTool(gate.Read))
	w.on("t.x", map[string]any{}, nil)
	w.on("samtools.flagstat", map[string]any{}, nil)
	c := w.session(t)
	for _, x := range []struct{ name, args, want string }{
		{"samtools_flagstat", `null`, `{}`},
		{"tool_run", `{"tool":"samtools.flagstat","arguments":null}`, `{}`},
		{"tool_run", `{"tool":"samtools.flagstat"}`, `{}`},
		{"t_x", `{"reads":"a","k":null,"mode":null,"bams":null,"resources":null}`, `{"reads":"a"}`},
		{"t_x", `{"reads":"a","resources":{"cpus":2,"gpus":null}}`, `{"reads":"a","resources":{"cpus":2}}`},
		{"t_x", `{"reads":null,"k":3}`, `{"reads":null,"k":3}`},
		{"t_x", `{"reads":"a","maybe":null}`, `{"reads":"a","maybe":null}`},
		{"t_x", `{"reads":"a","name":"null"}`, `{"reads":"a","name":"null"}`},
	} {
		if _, err := c.CallTool(t.Context(), callOf(x.name, x.args)); err != nil {
			t.Errorf("the call %s %s: %v", x.name, x.args, err)
			continue
		}
		asked := w.asked()
		if got := string(asked[len(asked)-1].Args); got != x.want {
			t.Errorf("the call %s %s reached the gate with %s, want %s", x.name, x.args, got, x.want)
		}
	}
}

// strict is a gateway whose registry and gate are the real ones.
type strict struct {
	gate *gate.Gate
	caps []string
}

func (s strict) Tools() []gate.Tool { return s.gate.Registry().List() }
func (s strict) Visible(_ context.Context, t gate.Tool) bool {
	return slices.Contains(s.caps, t.Capabilities[0])
}

func (s strict) Call(ctx context.Context, req gate.Request) (res gate.Response, err error) {
	who := gate.Caller{Principal: gate.Principal{Name: "chat", Rights: gate.RightsOf(s.caps, []string{gate.All})}, Transport: gate.MCP}
	raw, err := json.Marshal(s.gate.Call(ctx, who, req))
	if err != nil {
		return res, err
	}
	return res, json.Unmarshal(raw, &res) // as it comes through a socket
}

// For every kind of mistake of a model, the answer names the problem and a call that exists, with arguments.
func TestErrorsNameTheNextCall(t *testing.T) {
	const run = `{"type":"string","pattern":"^run_[0-9A-HJKMNP-TV-Z]{26}$"}`
	const art = `{"type":"string","pattern":"^art_[0-9A-HJKMNP-TV-Z]{26}$"}`
	object := func(required, props string) json.RawMessage {
		return json.RawMessage(`{"type":"object","additionalProperties":false,"required":[` + required + `],"properties":{` + props + `}}`)
	}
	inputs := map[string]json.RawMessage{
		"seqkit.stats": object(`"reads"`, `"reads":`+art+
			`,"kind":{"enum":["fastq","fasta"]},"threads":{"type":"integer","minimum":1,"maximum":8}`),
		"slurm.job.get":   object(`"run_id"`, `"run_id":`+run+`,"wait_seconds":{"type":"integer","minimum":0,"maximum":30}`),
		"slurm.job.retry": object(`"run_id","after_attempt"`, `"run_id":`+run+`,"after_attempt":{"type":"integer","minimum":1}`),
		"artifact.get":    object(`"artifact_id"`, `"artifact_id":`+art),
		"artifact.import": object(`"path"`, `"path":{"type":"string"}`), "run.list": object("", `"limit":{"type":"integer"}`),
		"artifact.list":  object("", `"limit":{"type":"integer"}`),
		"slurm.job.logs": object(`"run_id"`, `"run_id":`+run+`,"tail_lines":{"type":"integer"}`), "admin.only": object("", ""),
	}
	fails := map[string]error{
		"slurm.job.get": fault.New(fault.NotFound, "run_not_found", "there is no run "+runID).WithSteps(fault.Do("run.list")),
		"artifact.get": fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+artID).
			WithSteps(fault.Do("artifact.list")),
		"slurm.job.retry": fault.New(fault.Conflict, "no_retry", "the run has not failed").
			WithSteps(fault.Do("slurm.job.get", "run_id", runID)),
		"artifact.import": fault.New(fault.Transport, "too_many_calls", "all 4 concurrent calls are in use").
			WithNext("call again in a few seconds"),
		"slurm.job.logs": fault.New(fault.Policy, "tool_denied", "policy does not allow slurm_job_logs"),
		"seqkit.stats":   fault.New(fault.Internal, "internal", "the tool crashed").WithNext("the gateway's log has the details"),
		"artifact.list": fault.New(fault.Policy, "consent_required", "this call needs a person's approval").
			WithSteps(fault.Do("approval.answer", "approval_id", "apr_1")),
		"run.list": fault.New(fault.Validation, "bad_cursor", "the cursor is not one of this list"),
	}
	var tools []gate.Tool
	for id, input := range inputs {
		x := tool(id, gate.Read, gate.CapRead)
		if id == "admin.only" {
			x.Capabilities = []string{"operate"}
		}
		x.Input, x.Output, x.Bindings = input, nil, []gate.Transport{gate.MCP}
		x.Handle = func(context.Context, gate.Call) (any, error) { return map[string]any{}, fails[id] }
		tools = append(tools, x)
	}
	reg, err := gate.NewRegistry(tools...)
	must(t, err)
	g := gate.New(gate.Config{Registry: reg, Words: gate.Words{gate.MCP: Words(reach)}})
	c := connect(t, New(Config{Reach: reach, Gateway: strict{g, []string{gate.CapRead}}, Name: "x"}), nil)
	exists := regexp.MustCompile(`\b(seqkit_stats|slurm_job_get|slurm_job_retry|slurm_job_logs|artifact_get|artifact_import|artifact_list|run_list)\b`)
	for _, x := range []struct{ name, args, wrong, next string }{
		{"seqkit_stat", `{}`, `there is no tool "seqkit_stat"`, `did you mean seqkit_stats? Next: seqkit_stats {"reads":"art_…"}`},
		{"SeqKit-Stats", `{}`, "there is no tool", `seqkit_stats {"reads":"art_…"}`},
		{"bwa_mem", `{}`, `there is no tool "bwa_mem"`, "the tools of this domain are artifact_get, artifact_import"},
		{"admin_only", `{}`, `the capability "operate"`, "ask the administrator for a token"},
		{"seqkit_stats", `{}`, "missing property 'reads'",
			`Example: seqkit_stats {"reads":"art_…"}. artifact_find {"name":"…"} finds artifacts and files`},
		{"seqkit_stats", `{"reads":"/data/C04.fastq.gz"}`, "args.reads", `artifact_find {"name":"C04.fastq.gz"} finds`},
		{"seqkit_stats", `{"reads":"reads.fastq.gz","threads":4}`, "args.reads", `Example: seqkit_stats {"reads":"art_…","threads":4}`},
		{"seqkit_stats", `{"read":"` + artID + `"}`, `did you mean "reads"?`, `Example: seqkit_stats {"reads":"` + artID + `"}`},
		{"seqkit_stats", `{"reads":"` + artID + `","sort":true}`, "'sort' not allowed; there are: kind, reads, threads",
			`Example: seqkit_stats {"reads":"` + artID + `"}`},
		{"seqkit_stats", `{"reads":"` + artID + `","threads":99}`, "args.threads", `Example: seqkit_stats {"reads":"` + artID +
			`","threads":8}`},
		{"seqkit_stats", `{"reads":"` + artID + `","kind":"bam"}`, "args.kind", `Example: seqkit_stats {"kind":"fastq","reads":"` +
			artID + `"}`},
		{"seqkit_stats", `[]`, "object", `Example: seqkit_stats {"reads":"art_…"}`},
		{"seqkit_stats", `{"reads":"` + artID + `"}`, "the tool crashed", "tell the user. run_list {}"},
		{"slurm_job_get", `{"run_id":"7"}`, "args.run_id", `Example: slurm_job_get {"run_id":"run_…"}. run_list {} lists runs.`},
		{"slurm_job_get", `{"run_id":"` + runID + `"}`, "there is no run " + runID, "Next: run_list"},
		{"slurm_job_retry", `{"run_id":"` + runID + `"}`, "after_attempt", `Example: slurm_job_retry {"after_attempt":1,"run_id":"` + runID +
			`"}`},
		{"slurm_job_retry", `{"run_id":"` + runID + `","after_attempt":1}`, "has not failed", `slurm_job_get {"run_id":"` + runID + `"}`},
		{"artifact_get", `{"artifact_id":"` + artID + `"}`, "there is no artifact " + artID, "Next: artifact_list"},
		{"artifact_import", `{"path":"/data/a"}`, "all 4 concurrent calls", `safe to repeat: artifact_import {"path":"/data/a"}.`},
		{"slurm_job_logs", `{"run_id":"` + runID + `"}`, "policy does not allow", "tell the user. run_list {}"},
		{"artifact_list", `{}`, "a person's approval", `When it is approved: artifact_list {"limit":6}.`},
		{"run_list", `{}`, "the cursor", `Example: run_list {"limit":6}.`},
	} {
		res, err := c.CallTool(t.Context(), callOf(x.name, x.args))
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = textOf(res)
		}
		if err == nil && !res.IsError || !strings.Contains(text, x.wrong) || !strings.Contains(text, x.next) || !exists.MatchString(text) {
			t.Errorf("%s %s: no %q and %q in\n%s", x.name, x.args, x.wrong, x.next, text)
		}
	}
}

func callOf(name, args string) *sdk.CallToolParams {
	return &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args)}
}
