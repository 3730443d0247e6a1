package httpapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Route names a method and a path by which one of the gateway's operations is called. What it takes is the operation's input schema: the
// argument that the path names, the others in the query of a GET or DELETE and in the JSON object of a POST.
type Route struct {
	Method, Path string
	Operation    string   // the id of the tool
	ID           string   // its operationId in the OpenAPI document; empty: [openAPIFixed] has the route
	Answer       string   // the name of its answer's schema there; empty: its answer is no JSON
	Summary      string   // there; empty: the title and description of the operation
	New          int      // the status of an answer that something new was made; 0: 200, as any other
	Bytes        bool     // the body of a POST is bytes, and the arguments are in the query
	Omits        []string // arguments that it does not take: of another route, or given by the route itself
	serve        handler  // nil: [face.operation]
}

// A handler serves the requests of an endpoint.
type handler func(f *face, w http.ResponseWriter, req *http.Request, e endpoint)

// Routes lists the routes of all operations; those of one path follow each other.
func Routes() []Route {
	return []Route{
		{Method: "GET", Path: "/v1/runs", Operation: "run.list",
			ID: "listRuns", Answer: "Runs"},
		{Method: "POST", Path: "/v1/runs", Operation: "slurm.submit",
			ID: "submitRun", Answer: "Submitted", New: 202},
		{Method: "GET", Path: "/v1/runs/{run_id}", Operation: "slurm.job.get",
			ID: "getRun", Answer: "Run"},
		{Method: "DELETE", Path: "/v1/runs/{run_id}", Operation: "run.remove",
			ID: "removeRun", Answer: "Removal"},
		{Method: "GET", Path: "/v1/runs/{run_id}/result", Operation: "slurm.job.collect",
			ID: "collectRun", Answer: "Result"},
		{Method: "GET", Path: "/v1/runs/{run_id}/story", Operation: "run.show",
			ID: "showRun", Answer: "RunStory"},
		{Method: "GET", Path: "/v1/runs/{run_id}/receipt", Operation: "run.receipt",
			ID: "getReceipt", Answer: "Receipt"},
		{Method: "GET", Path: "/v1/runs/{run_id}/provenance", Operation: "run.provenance",
			ID: "showProvenance", Answer: "CallRun"},
		{Method: "GET", Path: "/v1/runs/{run_id}/logs", Operation: "slurm.job.logs",
			ID: "readLogs", Answer: "Logs"},
		{Method: "GET", Path: "/v1/runs/{run_id}/events", Operation: "slurm.job.get",
			Omits: []string{"wait_seconds"}, serve: (*face).events},
		{Method: "GET", Path: "/v1/runs/{run_id}/export", Operation: "run.export",
			ID: "exportRun", serve: (*face).export},
		{Method: "POST", Path: "/v1/runs/{run_id}:recollect", Operation: "slurm.job.recollect",
			ID: "recollectRun", Answer: "Recollected"},
		{Method: "POST", Path: "/v1/runs/{run_id}:cancel", Operation: "slurm.job.cancel",
			ID: "cancelRun", Answer: "Cancelled"},
		{Method: "POST", Path: "/v1/runs/{run_id}:retry", Operation: "slurm.job.retry",
			ID: "retryRun", Answer: "Submitted"},
		{Method: "POST", Path: "/v1/runs/{run_id}:notify", Operation: "run.notify",
			ID: "notifyRun", Answer: "Notices", Omits: []string{"batch", "project_id"},
			Summary: "Tell a URL, a mail address or a receiver of the site when a run is over"},

		{Method: "GET", Path: "/v1/batches", Operation: "batch.list",
			ID: "listBatches", Answer: "Batches"},
		{Method: "POST", Path: "/v1/batches", Operation: "batch.run",
			ID: "runBatch", Answer: "BatchStarted", New: 202},
		{Method: "GET", Path: "/v1/batches/{batch}", Operation: "batch.status",
			ID: "getBatch", Answer: "Batch"},
		{Method: "GET", Path: "/v1/batches/{batch}/rows", Operation: "batch.rows",
			ID: "getBatchRows", Answer: "BatchRows"},
		{Method: "GET", Path: "/v1/batches/{batch}/contents", Operation: "batch.rows",
			ID: "readBatchOutputs", Omits: []string{"outputs"}, serve: (*face).bundle,
			Summary: "Get the outputs of a page of rows as one tar file, each under the id of its artifact; directories, " +
				"outputs above 1 MiB and those that were removed are left out"},
		{Method: "GET", Path: "/v1/batches/{batch}/table", Operation: "batch.table",
			ID: "getBatchTable", Answer: "BatchTable"},
		{Method: "GET", Path: "/v1/batches/{batch}/export", Operation: "batch.export",
			ID: "exportBatch", serve: (*face).export},
		{Method: "POST", Path: "/v1/batches/{batch}:retry", Operation: "batch.retry",
			ID: "retryBatch", Answer: "BatchChange"},
		{Method: "POST", Path: "/v1/batches/{batch}:cancel", Operation: "batch.cancel",
			ID: "cancelBatch", Answer: "BatchChange"},
		{Method: "POST", Path: "/v1/batches/{batch}:notify", Operation: "run.notify",
			ID: "notifyBatch", Answer: "Notices", Omits: []string{"run_id"},
			Summary: "Tell a URL, a mail address or a receiver of the site when a batch is over"},

		{Method: "GET", Path: "/v1/artifacts", Operation: "artifact.list",
			ID: "listArtifacts", Answer: "Artifacts"},
		{Method: "POST", Path: "/v1/artifacts", Operation: "artifact.import",
			ID: "importArtifact", Answer: "Imported", New: 201, Omits: []string{"upload"}, serve: (*face).create},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}", Operation: "artifact.get",
			ID: "getArtifact", Answer: "Artifact"},
		{Method: "DELETE", Path: "/v1/artifacts/{artifact_id}", Operation: "artifact.remove",
			ID: "removeArtifact", Answer: "Removal"},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}/trace", Operation: "artifact.trace",
			ID: "traceArtifact", Answer: "Trace"},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}/preview", Operation: "artifact.preview.text",
			ID: "previewArtifact", Answer: "Preview"},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}/preview/table", Operation: "artifact.preview.table",
			ID: "previewTable", Answer: "TablePreview"},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}/preview/image", Operation: "artifact.preview.image",
			ID: "previewImage", Answer: "ImagePreview", serve: (*face).picture},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}/content", Operation: "artifact.get",
			serve: (*face).content},

		{Method: "GET", Path: "/v1/references", Operation: "reference.list",
			ID: "listReferences", Answer: "References"},
		{Method: "GET", Path: "/v1/references/{name}", Operation: "reference.show",
			ID: "getReference", Answer: "Reference"},
		{Method: "GET", Path: "/v1/projects", Operation: "project.list",
			ID: "listProjects", Answer: "ProjectList"},
		{Method: "GET", Path: "/v1/sites", Operation: "site.list",
			ID: "listSites", Answer: "SiteList"},
		{Method: "GET", Path: "/v1/usage", Operation: "usage.month",
			ID: "monthlyUsage", Answer: "UsageMonth"},
		{Method: "GET", Path: "/v1/keys", Operation: "key.list",
			ID: "listKeys", Answer: "Keys"},
		{Method: "GET", Path: "/v1/approvals", Operation: "approval.list",
			ID: "listApprovals", Answer: "Approvals"},
		{Method: "GET", Path: "/v1/approvals/{approval_id}", Operation: "approval.show",
			ID: "getApproval", Answer: "Approval"},
		{Method: "POST", Path: "/v1/approvals/{approval_id}:answer", Operation: "approval.answer",
			ID: "answerApproval", Answer: "Approval"},
		{Method: "POST", Path: "/v1/secrets:erase", Operation: eraseID,
			ID: "eraseSecret", Answer: "ToolCallResponse", Bytes: true, serve: (*face).erase},
	}
}

// Types of arguments in a query, as JSON Schema names them. A list may be given several times.
const (
	textType    = "string"
	integerType = "integer"
	booleanType = "boolean"
	listType    = "array"
)

// dryRun is the argument that makes a call with an effect a dry run. It moves into the envelope of an operation
// without such an argument.
const dryRun = "dry_run"

// endpoint is a route with what its operation takes.
type endpoint struct {
	Route
	named     string            // the argument in the path; empty: none
	list      string            // the argument of the operation that is a list of such; empty: named is one itself
	types     map[string]string // the types of the other arguments, by name
	schemas   map[string]doc    // of all
	required  []string          // of those that are not in the path
	rehearsed bool              // [dryRun] moves into the envelope
}

var pathArgument = regexp.MustCompile(`\{([a-z_]+)\}`)

// endpointOf reads what a route takes from the input schema of its operation.
func endpointOf(r Route, t gate.Tool) (endpoint, error) {
	e := endpoint{Route: r, types: map[string]string{}}
	if m := pathArgument.FindStringSubmatch(r.Path); m != nil {
		e.named = m[1]
	}
	var in struct {
		Properties map[string]doc
		Required   []string
	}
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return e, err
	}
	e.schemas = map[string]doc{}
	for name, schema := range in.Properties {
		e.schemas[name] = typed(schema)
		kind, _ := schema["type"].(string)
		switch {
		case name == e.named || slices.Contains(r.Omits, name):
		case name == e.named+"s" && kind == listType:
			e.list = name
			e.schemas[e.named], _ = schema["items"].(doc)
		default:
			e.types[name] = kind
		}
	}
	if _, has := in.Properties[dryRun]; !has && t.SideEffect != gate.Read {
		e.rehearsed, e.types[dryRun] = true, booleanType
		e.schemas[dryRun] = doc{"type": booleanType, "description": "answer what the call would do, and change nothing"}
	}
	for _, name := range in.Required {
		if _, has := e.types[name]; has {
			e.required = append(e.required, name)
		}
	}
	return e, nil
}

// inQuery reports whether the arguments that are not in the path are in the query.
func (e endpoint) inQuery() bool { return e.Method != http.MethodPost || e.Bytes }

// read returns the arguments of a request. status belongs to the error.
func (e endpoint) read(w http.ResponseWriter, req *http.Request) (args map[string]json.RawMessage, status int, err error) {
	if !e.inQuery() {
		args, status, err = object(w, req, e.named != "", slices.Sorted(maps.Keys(e.types))...)
	} else {
		args, err = arguments(req.URL, e.types)
		status = http.StatusBadRequest
	}
	if err != nil {
		return nil, status, err
	}
	switch value := chi.URLParam(req, e.named); {
	case e.list != "":
		args[e.list] = json.RawMessage("[" + string(text(value)) + "]")
	case e.named != "":
		args[e.named] = text(value)
	}
	return args, http.StatusOK, nil
}

// operation carries out the call of a request; write writes its answer.
func (f *face) operation(w http.ResponseWriter, req *http.Request, e endpoint, write func(http.ResponseWriter, gate.Response)) {
	args, status, err := e.read(w, req)
	dry := false
	if raw, given := args[dryRun]; given && e.rehearsed {
		delete(args, dryRun)
		if dry = string(raw) == "true"; !dry && string(raw) != "false" {
			status, err = http.StatusBadRequest, fault.Invalid("", fault.Problem{Code: "BODY-DRY-RUN", Field: dryRun,
				Rule: "true or false", Msg: "the value is neither true nor false"})
		}
	}
	if err != nil {
		f.malformed(w, req, e.Operation, status, err)
		return
	}
	if dry {
		write = writeOutput
	}
	if res, ok := f.send(w, req, e.Operation, args, dry); ok {
		write(w, res)
	}
}

// routeHandler returns the handler of a route. An operation that is not in the registry takes nothing, and the gate
// answers that it does not exist.
func (f *face) routeHandler(r Route) http.HandlerFunc {
	t, _ := f.Gate.Registry().Find(r.Operation)
	e, _ := endpointOf(r, t) // the registry has compiled its schema
	return func(w http.ResponseWriter, req *http.Request) {
		switch {
		case e.serve != nil:
			e.serve(f, w, req, e)
		case e.New != 0:
			f.operation(w, req, e, made)
		default:
			f.operation(w, req, e, writeOutput)
		}
	}
}

// arguments turns a query into arguments of these types. Unknown parameters are refused, and repeated ones but for lists.
func arguments(u *url.URL, types map[string]string) (map[string]json.RawMessage, error) {
	bad := func(field, rule, msg string) error {
		return fault.Invalid("", fault.Problem{Code: "QUERY", Field: fault.Clip(field), Rule: rule, Msg: msg})
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("query", "name=value pairs joined by &", "the query cannot be parsed")
	}
	args := map[string]json.RawMessage{}
	for name, given := range values {
		typ, known := types[name]
		switch {
		case !known:
			return nil, bad(name, "one of "+strings.Join(slices.Sorted(maps.Keys(types)), ", "), "the parameter is unknown")
		case len(given) != 1 && typ != listType:
			return nil, bad(name, "at most once", "the parameter is given several times")
		}
		switch typ {
		case listType:
			args[name], _ = json.Marshal(given) // a list of strings can always be written
		case booleanType:
			if given[0] != "true" && given[0] != "false" {
				return nil, bad(name, "true or false", "the value is neither true nor false")
			}
			args[name] = json.RawMessage(given[0])
		case integerType:
			n, err := strconv.ParseInt(given[0], 10, 64)
			if err != nil {
				return nil, bad(name, "a whole number", "the value is not a number")
			}
			args[name] = json.RawMessage(strconv.FormatInt(n, 10))
		default:
			args[name] = text(given[0])
		}
	}
	return args, nil
}
