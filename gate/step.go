package gate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
)

// Errors say what to do next. They are written once, in the words of the shell, far from any face; the gate, which knows how a call came, is
// the one place where a command becomes what its caller can do: a chat's tool, or a method and a path. A command that only the shell has is
// said to be one.

// Step is one thing to do next, in the words of each face. "…" stands for what it is about.
type Step struct {
	Shell string // a command line without the program's name
	Chat  string // a tool of a chat; empty: a chat has none
	HTTP  string // method and path; empty: HTTP has none
}

// Steps are the commands errors may name.
func Steps() []Step {
	const listed = "the list of tools" // MCP's tools/list, which a model has before it
	return []Step{
		{"get …", "slurm_job_get …", "GET /v1/runs/…"},
		{"wait …", "slurm_job_collect …", "GET /v1/runs/…/result?wait_seconds=30"},
		{"collect …", "slurm_job_collect …", "GET /v1/runs/…/result"},
		{"recollect …", "slurm_job_recollect …", "POST /v1/runs/…:recollect"},
		{"logs …", "slurm_job_logs …", "GET /v1/runs/…/logs"},
		{"cancel …", "slurm_job_cancel …", "POST /v1/runs/…:cancel"},
		{"retry …", "slurm_job_retry …", "POST /v1/runs/…:retry"},
		{"runs show …", "slurm_job_get …", "GET /v1/runs/…/story"},
		{"runs list", "run_list", "GET /v1/runs"},
		{"artifact import …", "artifact_import", "POST /v1/artifacts"},
		{"artifact list", "artifact_list", "GET /v1/artifacts"},
		{"artifact get …", "", "GET /v1/artifacts/…/content"},
		{"artifact preview --as text", "artifact_preview_text", "GET /v1/artifacts/…/preview"},
		{"artifact preview …", "artifact_preview_text …", "GET /v1/artifacts/…/preview"},
		{"tool list", listed, "GET /v1/tools"},
		{"tool show …", listed, "GET /v1/registry"},
		{"approvals --all", "", "GET /v1/approvals?all=true"},
		{"approvals", "", "GET /v1/approvals"},
		{"approve …", "", "POST /v1/approvals/…:answer"},
		{"token list", "", "POST /v1/tools/token.list:run"},
		{"events list", "", "POST /v1/tools/event.list:run"},
		{"adopt … …", "", "POST /v1/tools/slurm.job.adopt:run"},
		{"declare-absent …", "", "POST /v1/tools/slurm.job.absent:run"},
		{"artifact verify --all", "", "POST /v1/tools/artifact.verify:run"},
		{"token create", "", ""}, {"image add … …", "", ""}, {"image verify", "", ""}, {"image list", "", ""}, {"doctor", "", ""}, {"config check", "", ""}, {"gc", "", ""},
	}
}

// shellOnly follows a command that the caller's face has nothing like.
const shellOnly = " (at the shell)"

// about is what may stand for "…" in a command: an id, a placeholder in capitals, a tool's id.
const about = `(?: (?:(?:run|art|apr|tok)_[0-9A-Z]+|[A-Z][A-Z_]*(?:\.[a-z]+)?|[a-z][a-z0-9]*(?:\.[a-z0-9]+)+)\b)?`

// speech finds commands in a text: one group for each step.
type speech struct {
	steps []Step
	form  *regexp.Regexp
}

func newSpeech() speech {
	s := speech{steps: Steps()}
	var forms []string
	for _, x := range s.steps {
		forms = append(forms, "("+strings.ReplaceAll(regexp.QuoteMeta(x.Shell), " …", about)+")")
	}
	s.form = regexp.MustCompile(`\bslurmgate (?:` + strings.Join(forms, "|") + `)\b`)
	return s
}

// said returns an error in the words of the face its call came by.
func (r *Registry) said(by Transport, e *ErrorBody) *ErrorBody {
	e.Message = r.Say(by, e.Message)
	problems, _ := e.Details["problems"].([]fault.Problem)
	if len(problems) > 0 {
		problems = slices.Clone(problems)
		for i := range problems {
			p := &problems[i]
			p.Msg, p.Rule, p.Hint = r.Say(by, p.Msg), r.Say(by, p.Rule), r.Say(by, p.Hint)
		}
		e.Details["problems"] = problems
	}
	return e
}

// Conceal names the gateway's own folders, by path: a chat sees no path of its host but those it has named itself. Call it before the
// registry is used.
func (r *Registry) Conceal(folders map[string]string) {
	paths := slices.Collect(maps.Keys(folders))
	slices.SortFunc(paths, func(a, b string) int { return len(b) - len(a) }) // the innermost first
	var pairs []string
	for _, p := range paths {
		if p != "" && p != "/" {
			pairs = append(pairs, p, folders[p])
		}
	}
	r.hidden = strings.NewReplacer(pairs...)
}

// Hide gives a text that is shown, of a program or of a run's script, without the gateway's folders to a chat, and as it is to the other faces.
func (r *Registry) Hide(by Transport, text string) string {
	if by != MCP {
		return text
	}
	return r.hidden.Replace(text)
}

// Say puts the commands in a text of ours into the words of a face, and hides what [Registry.Hide] does. The shell's are left as they are.
func (r *Registry) Say(by Transport, text string) string {
	text = r.Hide(by, text)
	if by == Local || !strings.Contains(text, "slurmgate ") {
		return text
	}
	var out strings.Builder
	rest := 0
	for _, m := range r.speech.form.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[rest:m[0]])
		rest = m[1]
		for i, s := range r.speech.steps {
			if m[2*i+2] >= 0 {
				out.WriteString(s.words(by, text[m[0]:m[1]]))
				break
			}
		}
	}
	out.WriteString(text[rest:])
	return out.String()
}

// words is the step in the words of a face, as it was found in the shell's.
func (s Step) words(by Transport, found string) string {
	words := s.HTTP
	if by == MCP {
		words = s.Chat
	}
	verb := strings.Fields(strings.ReplaceAll(s.Shell, "…", ""))
	what := strings.Fields(found)[1+len(verb):]
	switch {
	case words == "":
		return found + shellOnly
	case len(what) > 0:
		return strings.Replace(words, "…", what[0], 1)
	case by == MCP:
		return strings.TrimSuffix(words, " …")
	}
	return strings.Replace(words, "…", "{id}", 1)
}
