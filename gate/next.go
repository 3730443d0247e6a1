package gate

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
)

// What to do next is data ([fault.Step]); the gate knows by which face a call came and writes it in that face's words: a command line, a
// tool call of a chat, or a method and a path.

// StepForm is how each face carries out a verb. In Shell and HTTP, {name} is an argument and a part in [brackets] is for arguments that
// may be missing.
type StepForm struct {
	Verb  string
	With  string // this form is for steps that have this argument; empty: for any
	Shell string // a command line without the program's name; empty: the shell has none
	HTTP  string // method and path; empty: HTTP has none
	Chat  string // a tool of a chat, or words; empty: a chat has none
}

// viaRun is the way over HTTP to a tool without a resource of its own; the arguments are the body.
const viaRun = "POST /v1/tools/{}:run"

// StepForms are the verbs that steps may have, beside the ids of toolpacks.
func StepForms() []StepForm {
	return []StepForm{
		{Verb: "slurm.job.get", Shell: "get {run_id}", HTTP: "GET /v1/runs/{run_id}", Chat: "slurm_job_get"},
		{Verb: "slurm.job.collect", With: "wait_seconds", Shell: "wait {run_id}",
			HTTP: "GET /v1/runs/{run_id}/result?wait_seconds={wait_seconds}", Chat: "slurm_job_collect"},
		{Verb: "slurm.job.collect", Shell: "collect {run_id}", HTTP: "GET /v1/runs/{run_id}/result", Chat: "slurm_job_collect"},
		{Verb: "slurm.job.recollect", Shell: "recollect {run_id}", HTTP: "POST /v1/runs/{run_id}:recollect", Chat: "slurm_job_recollect"},
		{Verb: "slurm.job.logs", Shell: "logs {run_id}[ --stream {stream}]", HTTP: "GET /v1/runs/{run_id}/logs[?stream={stream}]",
			Chat: "slurm_job_logs"},
		{Verb: "slurm.job.cancel", Shell: "cancel {run_id}", HTTP: "POST /v1/runs/{run_id}:cancel", Chat: "slurm_job_cancel"},
		{Verb: "slurm.job.retry", Shell: "retry {run_id}[ --after-attempt {after_attempt}]",
			HTTP: `POST /v1/runs/{run_id}:retry[ {"after_attempt":{after_attempt}}]`, Chat: "slurm_job_retry"},
		{Verb: "slurm.job.adopt", Shell: "adopt {run_id} {job_id}", HTTP: viaRun},
		{Verb: "slurm.job.absent", Shell: "declare-absent {run_id}", HTTP: viaRun},
		{Verb: "run.show", Shell: "runs show {run_id}", HTTP: "GET /v1/runs/{run_id}/story", Chat: "slurm_job_get"},
		{Verb: "run.export", Shell: "export {run_id}", HTTP: "GET /v1/runs/{run_id}/export"},
		{Verb: "run.list", Shell: "runs list[ --state {state}][ --cursor {cursor}]", HTTP: "GET /v1/runs[?state={state}][?cursor={cursor}]",
			Chat: "run_list"},
		{Verb: "batch.status", Shell: "batch status {batch}", HTTP: "GET /v1/batches/{batch}", Chat: "batch_status"},
		{Verb: "batch.table", Shell: "batch table {batch}", HTTP: "GET /v1/batches/{batch}/table", Chat: "batch_table"},
		{Verb: "batch.rows", With: "state", Shell: "batch status {batch} --samples --state {state}",
			HTTP: "GET /v1/batches/{batch}/rows?state={state}", Chat: "batch_rows"},
		{Verb: "batch.rows", With: "outputs", Shell: "batch collect {batch} --to FOLDER", HTTP: "GET /v1/batches/{batch}/rows?outputs={outputs}",
			Chat: "batch_rows"},
		{Verb: "batch.retry", Shell: "batch retry {batch}", HTTP: "POST /v1/batches/{batch}:retry", Chat: "batch_retry"},
		{Verb: "batch.list", Shell: "batch list[ --cursor {cursor}]", HTTP: "GET /v1/batches[?cursor={cursor}]", Chat: "batch_list"},
		{Verb: "site.list", Shell: "sites", HTTP: "GET /v1/sites"},
		{Verb: "artifact.import", With: "text", Shell: "artifact import -", HTTP: "POST /v1/artifacts", Chat: "artifact_import"},
		{Verb: "artifact.import", With: "in_place", Shell: "artifact import --in-place {path}",
			HTTP: "POST /v1/artifacts", Chat: "artifact_import"},
		{Verb: "artifact.import", Shell: "artifact import {path}", HTTP: "POST /v1/artifacts", Chat: "artifact_import"},
		{Verb: "artifact.list", Shell: "artifact list[ --type {type}][ --cursor {cursor}]",
			HTTP: "GET /v1/artifacts[?type={type}][?cursor={cursor}]", Chat: "artifact_list"},
		{Verb: "artifact.find", Shell: "artifact find {name}[ --cursor {cursor}]", HTTP: viaRun, Chat: "artifact_find"},
		{Verb: "artifact.remove", Shell: "artifact rm {artifact_id} --reason {reason}", HTTP: viaRun},
		{Verb: "artifact.get", Shell: "artifact get {artifact_id}", HTTP: "GET /v1/artifacts/{artifact_id}", Chat: "artifact_get"},
		{Verb: "artifact save", Shell: "artifact get {artifact_id} -o {file}", HTTP: "GET /v1/artifacts/{artifact_id}/content"},
		{Verb: "artifact save preview", Shell: "artifact preview {artifact_id} -o {file}", HTTP: "GET /v1/artifacts/{artifact_id}/preview/image"},
		{Verb: "artifact.trace", Shell: "trace {artifact_id}", HTTP: "GET /v1/artifacts/{artifact_id}/trace", Chat: "artifact_trace"},
		{Verb: "artifact.preview.text", Shell: "artifact preview {artifact_id} --as text", HTTP: "GET /v1/artifacts/{artifact_id}/preview",
			Chat: "artifact_preview_text"},
		{Verb: "artifact.preview.table", Shell: "artifact preview {artifact_id} --as table[ --first {first_row}]",
			HTTP: "GET /v1/artifacts/{artifact_id}/preview/table[?first_row={first_row}]", Chat: "artifact_preview_table"},
		{Verb: "artifact.preview.image", Shell: "artifact preview {artifact_id} --as image",
			HTTP: "GET /v1/artifacts/{artifact_id}/preview/image", Chat: "artifact_preview_image"},
		{Verb: "artifact.verify", With: "all", Shell: "artifact verify --all", HTTP: viaRun},
		{Verb: "artifact.verify", Shell: "artifact verify {artifact_id}", HTTP: viaRun},
		{Verb: "tool.list", Shell: "tool list", HTTP: "GET /v1/tools", Chat: "tool_list"},
		{Verb: "reference.list", Shell: "reference list", HTTP: "GET /v1/references", Chat: "reference_list"},
		{Verb: "reference.show", Shell: "reference show {name}", HTTP: "GET /v1/references/{name}", Chat: "reference_show"},
		{Verb: "tool.show", Shell: "tool show {tool_id}", HTTP: "GET /v1/registry", Chat: "tool_show"},
		{Verb: "approval.list", With: "all", Shell: "approvals --all", HTTP: "GET /v1/approvals?all=true"},
		{Verb: "approval.list", Shell: "approvals", HTTP: "GET /v1/approvals"},
		{Verb: "approval.answer", Shell: "approve {approval_id}", HTTP: "POST /v1/approvals/{approval_id}:answer"},
		{Verb: "token.list", Shell: "token list", HTTP: viaRun},
		{Verb: "token.create", Shell: "token create {name}", HTTP: viaRun},
		{Verb: "token.revoke", Shell: "token revoke {token_id}", HTTP: viaRun},
		{Verb: "event.list", Shell: "events list[ --cursor {cursor}]", HTTP: viaRun},
		{Verb: "gateway.gc", Shell: "gc[ --workspaces-older-than {workspaces_older_than}]", HTTP: viaRun},
		{Verb: "image add", Shell: "image add {name} {file}[ --source {source}]"},
		{Verb: "image list", Shell: "image list"}, {Verb: "image verify", Shell: "image verify"},
		{Verb: "doctor", Shell: "doctor[ --node {node}]"}, {Verb: "config check", Shell: "config check"}, {Verb: "serve", Shell: "serve"},
		{Verb: "resume", Shell: "resume"},
		{Verb: "tool check", Shell: "tool check {dir}"}, {Verb: "tool init", Shell: "tool init {tool_id} {dir}"},
		{Verb: "run", Shell: "run {tool_id}"},
		{Verb: "collect", Shell: "collect {run_id} --to {folder}"}, {Verb: "deny", Shell: "deny {approval_id}"}, {Verb: "help", Shell: "--help"},
	}
}

// formOf finds the form of a step. A verb that is not listed is a toolpack's.
func formOf(s fault.Step) StepForm {
	for _, f := range StepForms() {
		if _, has := s.Args[f.With]; f.Verb == s.Verb && (f.With == "" || has) {
			return f
		}
	}
	return StepForm{Verb: s.Verb, Shell: "run " + s.Verb, HTTP: viaRun, Chat: strings.ReplaceAll(s.Verb, ".", "_")}
}

// Words gives steps in the words of a face, joined by "or". What only a shell can do is said to be that.
func Words(by Transport, steps []fault.Step) string {
	var out []string
	for _, s := range steps {
		if w := stepWords(by, s); !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return strings.Join(out, ", or ")
}

func stepWords(by Transport, s fault.Step) string {
	f := formOf(s)
	shell := "slurmgate " + fill(f.Shell, s.Args, shellWord)
	switch {
	case by == Local:
		return shell
	case by == MCP && f.Chat == "":
		return "ask an administrator to run `" + shell + "`"
	case by == MCP && (len(s.Args) == 0 || strings.Contains(f.Chat, " ")):
		return f.Chat
	case by == MCP:
		return f.Chat + " " + arguments(s)
	case f.HTTP == "":
		return "at the gateway's shell: " + shell
	case f.HTTP == viaRun:
		return strings.Replace(viaRun, "{}", s.Verb, 1) + " with args " + arguments(s)
	}
	path, query, _ := strings.Cut(fill(f.HTTP, s.Args, url.QueryEscape), "?")
	if body := unplaced(f.HTTP, s); len(body.Args) > 0 && strings.HasPrefix(path, "POST ") {
		path += " with " + arguments(body)
	}
	if query == "" {
		return path
	}
	return path + "?" + strings.ReplaceAll(query, "?", "&")
}

// unplaced gives a step with the arguments that a form has no place for.
func unplaced(form string, s fault.Step) fault.Step {
	out := fault.Do(s.Verb)
	for k, v := range s.Args {
		if !strings.Contains(form, "{"+k+"}") {
			out.Args[k] = v
		}
	}
	return out
}

// arguments is the JSON of a step's arguments.
func arguments(s fault.Step) string {
	raw, err := json.Marshal(s.Args) // in order of the keys
	if err != nil || s.Args == nil {
		return "{}"
	}
	return string(raw)
}

var (
	optional  = regexp.MustCompile(`\[[^\]]*\]`)
	argument  = regexp.MustCompile(`\{[a-z_]+\}`)
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)
)

// fill puts arguments into a form; one that is missing is its name in capitals.
func fill(form string, args map[string]any, word func(string) string) string {
	form = optional.ReplaceAllStringFunc(form, func(part string) string {
		name := strings.Trim(argument.FindString(part), "{}")
		if _, has := args[name]; !has {
			return ""
		}
		return part[1 : len(part)-1]
	})
	return argument.ReplaceAllStringFunc(form, func(name string) string {
		name = strings.Trim(name, "{}")
		v, has := args[name]
		if !has {
			return strings.ToUpper(name)
		}
		return word(fmt.Sprint(v))
	})
}

// shellWord quotes a word where a shell would read it otherwise.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Text returns an error's whole text in the words of a face.
func Text(by Transport, err error) string {
	return fault.Text(err, func(steps []fault.Step) string { return Words(by, steps) })
}
