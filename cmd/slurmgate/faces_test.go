package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
)

// anyone accepts every token, with all rights.
type anyone struct{}

func (anyone) Peer(int) (gate.Principal, error) {
	return gate.Principal{}, fault.New(fault.Auth, "", "no peer")
}

func (anyone) Bearer(context.Context, string) (gate.Principal, error) {
	return gate.Principal{Name: "token:all", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}, nil
}

// echo is an HTTP face over the gateway's operations, which remember the last call instead of carrying it out.
type echo struct {
	http.Handler
	tools map[string]gate.Tool
	doc   map[string]any // its OpenAPI document
	got   *gate.Request
}

func echoing(t *testing.T) *echo {
	t.Helper()
	e := &echo{tools: map[string]gate.Tool{}}
	handle := func(_ context.Context, c gate.Call) (any, error) {
		e.got = &c.Request
		return nil, fault.New(fault.Conflict, "echoed", "")
	}
	var list []gate.Tool
	for _, o := range new(app.Gateway).Operations() {
		if o.Needs == app.Files {
			continue
		}
		x := o.Tool()
		x.Handle, x.DryRun, x.Starts, x.Covers, x.Names = handle, handle, nil, nil, nil
		e.tools[x.ID], list = x, append(list, x)
	}
	r := value(gate.NewRegistry(list...))(t)
	text := value(httpapi.Document(r))(t)
	must(t, json.Unmarshal(text, &e.doc))
	e.Handler = httpapi.Handler(httpapi.Config{Gate: gate.New(gate.Config{Registry: r}), Auth: anyone{},
		Events: func(context.Context, string, int64) ([]httpapi.Event, bool, error) { return nil, true, nil },
		Export: func(context.Context, httpapi.ExportArgs) (httpapi.Archive, error) {
			return nil, fault.New(fault.Conflict, "", "")
		}}, nil)
	return e
}

var pathArgument = regexp.MustCompile(`\{([a-z_]+)\}`)

// call makes a call with these arguments by a route: an argument of the path in the path, the others in the query or
// the body. It returns the operation's request, nil if it was not called, and the answer.
func (e *echo) call(t *testing.T, r httpapi.Route, args map[string]any) (got *gate.Request, answer string) {
	t.Helper()
	args = maps.Clone(args)
	path := pathArgument.ReplaceAllStringFunc(r.Path, func(m string) string {
		name := strings.Trim(m, "{}")
		if list, ok := args[name+"s"].([]any); ok && len(list) == 1 {
			delete(args, name+"s")
			return fmt.Sprint(list[0])
		}
		value := args[name]
		delete(args, name)
		return fmt.Sprint(value)
	})
	var body io.Reader
	typ := "application/json"
	if r.Method == http.MethodPost && r.Operation != "secret.erase" {
		b := value(json.Marshal(args))(t)
		body = bytes.NewReader(b)
	} else {
		typ = "application/octet-stream"
		q := url.Values{}
		for name, v := range args {
			list, isList := v.([]any)
			if !isList {
				list = []any{v}
			}
			for _, v := range list {
				q.Add(name, fmt.Sprint(v))
			}
		}
		path += "?" + q.Encode()
		if r.Method == http.MethodPost {
			body = strings.NewReader("secret")
		}
	}
	req := httptest.NewRequest(r.Method, "http://localhost"+path, body)
	req.Header.Set("Authorization", "Bearer x")
	req.Header.Set("Content-Type", typ)
	w := httptest.NewRecorder()
	e.got = nil
	e.ServeHTTP(w, req)
	return e.got, fmt.Sprintf("%s %s: %d %s", r.Method, path, w.Code, strings.TrimSpace(w.Body.String()))
}

// callsWith returns calls of an operation with an argument, for each of its values that the schema of the operation
// accepts.
func callsWith(s *jsonschema.Schema, name string) (calls []map[string]any) {
	base := map[string]any{}
	for _, r := range s.Required {
		if values := valuesOf(s.Properties[r]); len(values) > 0 {
			base[r] = values[0]
		}
	}
	for _, v := range valuesOf(s.Properties[name]) {
		call := maps.Clone(base)
		if call[name] = v; s.Validate(any(call)) == nil {
			calls = append(calls, call)
		}
	}
	return calls
}

// Every argument of every operation with a path over HTTP reaches the operation from there, with its type; a call with
// an effect can be a dry run there.
//
// proves HTC-05 AX-03
func TestHTTPTakesWhatTheRegistryTakes(t *testing.T) {
	e := echoing(t)
	routes := map[string][]httpapi.Route{}
	for _, r := range httpapi.Routes() {
		routes[r.Operation] = append(routes[r.Operation], r)
	}
	calls := 0
	for _, id := range slices.Sorted(maps.Keys(routes)) {
		tool := e.tools[id]
		schema := compiledInput(t, tool.Input)
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if id == "artifact.import" && name == "upload" { // the bytes are the body
				continue
			}
			for _, call := range callsWith(schema, name) {
				if cannotBeSent(routes[id], name, call[name]) {
					continue
				}
				calls++
				var answers []string
				if !slices.ContainsFunc(routes[id], func(r httpapi.Route) bool {
					got, answer := e.call(t, r, withPath(r, schema, call))
					answers = append(answers, answer)
					return got != nil && hasArgument(t, got.Args, name, call[name])
				}) {
					t.Errorf("%s does not get %s = %v over HTTP:\n%s", id, name, call[name], strings.Join(answers, "\n"))
				}
			}
		}
		if tool.SideEffect == gate.Read {
			continue
		}
		for _, r := range routes[id] {
			call := withPath(r, schema, map[string]any{dryRunArg: true})
			got, answer := e.call(t, r, call)
			if _, own := schema.Properties[dryRunArg]; got == nil || !got.DryRun && !own {
				t.Errorf("%s is not a dry run: %s", id, answer)
			}
		}
	}
	if calls < 100 {
		t.Errorf("%d calls were tried, want at least 100", calls)
	}
}

// cannotBeSent reports whether a value cannot be written in a request: an empty list is no parameter, and a colon in a path begins a verb.
func cannotBeSent(routes []httpapi.Route, name string, v any) bool {
	list, isList := v.([]any)
	return isList && len(list) == 0 || strings.Contains(fmt.Sprint(v), ":") &&
		slices.ContainsFunc(routes, func(r httpapi.Route) bool { return strings.Contains(r.Path, "{"+name+"}") })
}

const dryRunArg = "dry_run"

// withPath adds what the path of a route names and what the operation must have.
func withPath(r httpapi.Route, s *jsonschema.Schema, call map[string]any) map[string]any {
	call = maps.Clone(call)
	need := slices.Clone(s.Required)
	if m := pathArgument.FindStringSubmatch(r.Path); m != nil {
		need = append(need, m[1])
	}
	for _, name := range need {
		p, known := s.Properties[name]
		if _, has := call[name]; known && !has {
			call[name] = valuesOf(p)[0]
		}
	}
	return call
}

// hasArgument reports whether an argument has this value.
func hasArgument(t *testing.T, args json.RawMessage, name string, want any) bool {
	t.Helper()
	var got map[string]json.RawMessage
	must(t, json.Unmarshal(args, &got))
	text := value(json.Marshal(want))(t)
	return string(got[name]) == string(text)
}

// The OpenAPI document describes the arguments and the answer of every operation as its schemas do.
//
// proves HTC-05 AX-03
func TestDocumentTakesWhatTheRegistryTakes(t *testing.T) {
	e := echoing(t)
	doc, tools := e.doc, e.tools
	for _, r := range httpapi.Routes() {
		tool, named := tools[r.Operation], ""
		if m := pathArgument.FindStringSubmatch(r.Path); m != nil {
			named = m[1]
		}
		var input map[string]any
		must(t, json.Unmarshal(tool.Input, &input))
		want := input["properties"].(map[string]any)
		if _, own := want[dryRunArg]; !own && tool.SideEffect != gate.Read {
			want[dryRunArg] = map[string]any{"type": "boolean"}
		}
		for _, name := range append(r.Omits, named+"s") {
			delete(want, name)
		}
		op, ok := at(doc, "paths", r.Path, strings.ToLower(r.Method)).(map[string]any)
		if !ok {
			t.Errorf("%s %s is not in the OpenAPI document", r.Method, r.Path)
			continue
		}
		got := documented(doc, op)
		if _, whole := want[named]; named != "" && !whole {
			delete(got, named)
		}
		if d := cmp.Diff(withoutText(want), withoutText(got)); d != "" {
			t.Errorf("%s %s takes other arguments in the OpenAPI document than %s in the registry (-registry +document):\n%s", r.Method, r.Path,
				r.Operation, d)
		}
		answer, _ := at(doc, "components", "schemas", r.Answer).(map[string]any)
		if r.Answer == "" || r.Answer == "ToolCallResponse" { // bytes, or an envelope
			continue
		}
		var output map[string]any
		must(t, json.Unmarshal(tool.Output, &output))
		if d := cmp.Diff(answerForm(output), answerForm(answer)); d != "" {
			t.Errorf("%s %s answers otherwise in the OpenAPI document than %s in the registry (-registry +document):\n%s", r.Method, r.Path,
				r.Operation, d)
		}
	}
}

// answerForm returns the schema of an answer without the document's additions to the registry: texts, values, and that
// there may be more.
func answerForm(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			_, words := x.(string)
			_, more := x.(bool)
			if k == "description" && words || k == "additionalProperties" && more {
				continue
			}
			if _, values := x.([]any); k == "enum" && values {
				continue
			}
			out[k] = answerForm(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = answerForm(x)
		}
		return out
	}
	return v
}

// at returns the part of a JSON document at a path; nil: absent.
func at(doc any, path ...string) any {
	for _, name := range path {
		m, _ := doc.(map[string]any)
		doc = m[name]
	}
	return doc
}

// httpOwn lists arguments of HTTP that are not the operation's; the empty one is a reference.
var httpOwn = []string{"", "If-None-Match", "Last-Event-ID", "Range", "after", "upload_key", "offset"}

// documented returns the arguments of an operation of an OpenAPI document: their schemas by name.
func documented(doc, op map[string]any) map[string]any {
	out := map[string]any{}
	body, _ := at(op, "requestBody", "content", "application/json", "schema").(map[string]any)
	if ref, ok := body["$ref"].(string); ok {
		body, _ = at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(map[string]any)
	}
	if properties, ok := body["properties"].(map[string]any); ok {
		maps.Copy(out, properties)
	}
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		name, _ := at(p, "name").(string)
		if _, inBody := out[name]; !inBody && !slices.Contains(httpOwn, name) { // an upload has some of the body's arguments in its query
			out[name] = at(p, "schema")
		}
	}
	return out
}

// withoutText returns a schema without the parts that do not change what it allows.
func withoutText(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if _, words := x.(string); words && (k == "description" || k == "type" && v["enum"] != nil) || k == "examples" {
				continue
			}
			out[k] = withoutText(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = withoutText(x)
		}
		return out
	}
	return v
}

// shellWords maps arguments to the names of their options, where the shell names them otherwise than all faces that
// take JSON.
var shellWords = map[string]string{"tail_lines": "tail",
	"max_lines": "lines", "max_rows": "lines", "first_file": "first", "max_edge": "edge",
	"expires_in_seconds": "expires", "capabilities": "capability", "cluster": "site-name",
	"job_spec": "plan", "sheet_artifact_id": "sheet", "text": "file"}

// shellLacks lists the arguments that no option of an operation's verb sets, with the reason.
var shellLacks = map[string]string{
	"slurm.job.retry resources":        "--mem and --time are its parts",
	"run.list id_prefix":               "the shell asks for it where an id is abbreviated",
	"artifact.list id_prefix":          "as of run.list",
	"artifact.list checksum_sha256":    "the shell asks for it where a file stands for an artifact",
	"slurm.job.logs from_byte":         "--follow asks for it",
	"batch.run rows":                   "--sheet",
	"artifact.import upload":           "- as the file",
	"site.init file":                   "--site, which every verb has",
	"batch.status wait_seconds":        "a verb of its own: batch wait",
	"batch.rows sample":                "--samples lists all rows",
	"batch.rows after_row":             "the shell asks for all pages",
	"batch.rows outputs":               "a verb of its own: batch collect",
	"batch.rows limit":                 "the shell asks for all pages",
	"artifact.import source":           "the older form of path and text",
	"artifact.import type_hint":        "the older form of type",
	"artifact.preview.text max_bytes":  "--lines bounds it",
	"artifact.preview.table delimiter": "detected",
	"tool.list after":                  "the shell asks for all pages",
	"tool.list limit":                  "as after",
	"approval.answer approve":          "two verbs: approve and deny",
	"event.list provenance_run_id":     "--run finds both",
	"run.notify batch":                 "the argument is a run or a batch",
	"reference.add artifact_id":        "--path or the argument, which is an artifact or a file",
	"artifact.trace limit":             "the shell prints what the answer has",
	"image.list hash":                  "two verbs: image list and image verify",
	"image.verify hash":                "as of image.list",
	"config.check file":                "as of site.init",
	"config.show file":                 "as of site.init",
	"domain.check site":                "as of site.init",
	"gateway.backup site":              "as of site.init",
	"gateway.restore site":             "as of site.init",
}

// otherVerbs lists the verbs that are more, or less, than a call of an operation.
var otherVerbs = []string{"adapter", "batch collect", "batch wait", "cancel-all", "complete-words", "completion", "deny", "look",
	"man-pages", "mcp", "record-calls", "run", "serve", "signer", "version", "wait"}

// Each verb is an operation's or among otherVerbs. Every argument of an operation that has a verb is an
// argument or an option of the verb, of its type and with its values.
//
// proves HTC-05 HTC-06
func TestShellTakesWhatTheRegistryTakes(t *testing.T) {
	parser := value(kong.New(&commands{}, kong.Name("slurmgate")))(t)
	verbs := map[string]map[string]*kong.Value{}
	for _, leaf := range parser.Model.Leaves(false) {
		values := map[string]*kong.Value{}
		for _, p := range leaf.Positional {
			values[p.Name] = p
		}
		for _, f := range leaf.Flags {
			values[f.Name] = f.Value
		}
		verbs[strings.TrimPrefix(leaf.FullPath(), "slurmgate ")] = values
	}
	lacks, called := maps.Clone(shellLacks), map[string]bool{}
	for _, o := range new(app.Gateway).Operations() {
		if called[o.Verb] = true; o.Verb != "" && verbs[o.Verb] == nil {
			t.Errorf("%s: there is no verb %q", o.ID, o.Verb)
		}
		var in struct {
			Properties map[string]struct {
				Type string
				Enum []string
			}
		}
		must(t, json.Unmarshal(o.Tool().Input, &in))
		for name, s := range in.Properties {
			v, what := optionOf(verbs[o.Verb], name), o.ID+" "+name
			switch {
			case o.Verb == "":
			case v == nil && lacks[what] == "":
				t.Errorf("slurmgate %s has no option for %s", o.Verb, what)
			case v == nil:
				delete(lacks, what)
			case !slices.Contains(shellTypes(s.Type), typeOf(v.Target)):
				t.Errorf("slurmgate %s: --%s is a %s, %s is a JSON %s", o.Verb, v.Name, v.Target.Type(), what, s.Type)
			case s.Enum != nil && v.Enum != "":
				values := slices.DeleteFunc(strings.Split(v.Enum, ","), func(s string) bool { return s == "" })
				if d := cmp.Diff(slices.Sorted(slices.Values(s.Enum)), slices.Sorted(slices.Values(values))); d != "" {
					t.Errorf("slurmgate %s: --%s has other values than %s (-registry +shell):\n%s", o.Verb, v.Name, what, d)
				}
			}
		}
	}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(verbs)), func(verb string) bool { return called[verb] })
	if d := cmp.Diff(otherVerbs, rest); d != "" {
		t.Errorf("the verbs that are no operation's (-want +got):\n%s", d)
	}
	for what := range lacks {
		t.Errorf("shellLacks has %s, which is an option of the verb, or no argument any more", what)
	}
}

// optionOf returns the option of a verb that sets an argument: its field has the name of the argument, or one much like
// it; nil: absent.
func optionOf(options map[string]*kong.Value, argument string) *kong.Value {
	for _, v := range options {
		if name, _, _ := strings.Cut(v.Tag.Get("json"), ","); name == argument {
			return v
		}
	}
	plain := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(argument, "_seconds"), "_ids"), "_id")
	for _, name := range []string{argument, plain, strings.TrimSuffix(plain, "s"), plain + "_name", shellWords[argument]} {
		if v := options[strings.ReplaceAll(name, "_", "-")]; v != nil {
			return v
		}
	}
	return nil
}

// typeOf returns the name of an option's type; every text is a string.
func typeOf(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return "string"
	}
	return v.Type().String()
}

// shellTypes returns the types that an option for an argument of a JSON type may have.
func shellTypes(json string) []string {
	return map[string][]string{"boolean": {"bool", "*bool"}, "integer": {"int", "int64", "*int", "time.Duration", "*time.Duration"},
		"array": {"[]string"}, "object": {"cli.named", "map[string]string", "string"}, "string": {"string", "*string", "*time.Time"},
		"": {"string"}}[json]
}
