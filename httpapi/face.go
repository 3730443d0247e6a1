// Package httpapi is the HTTP face over the gate: on the gateway's own unix socket, whose peers the kernel names, and, where the
// site says so, on a port. Every request becomes one call of the gate, made for the caller that the connection or the bearer
// token names.
//
//	GET  /v1/domain  /v1/tools  /v1/registry     what this gateway serves, as the caller sees it
//	GET  /v1/tools/{tool_id}/input_schema        and output_schema: what a tool takes, and what its run gives
//	POST /v1/tools/{tool_id}:run                 one call in the form of programs that know no envelope
//	POST /v1/tool-calls                          one envelope in, one envelope out (HTC-02, HTC-03)
//	…    /v1/runs…  /v1/batches…  /v1/artifacts…  the gateway's operations as resources; events of a run as a stream
//	POST /mcp                                    the face for chats
//	GET  /healthz  /readyz  /metrics             for whoever looks after the gateway
//	GET  /openapi.json                           all this, as OpenAPI 3.1
//
// Errors are problem documents (RFC 9457), but for :run and /v1/tool-calls, which answer in their own form with the same status.
package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-chi/chi/v5"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Contents opens the bytes of an artifact that the gate has already allowed.
type Contents interface {
	Open(sha256 string) (*os.File, error)
}

// Event is one entry of a run's history.
type Event struct {
	Seq   int64     `json:"seq"`
	At    time.Time `json:"at"`
	Type  string    `json:"type"`
	RunID string    `json:"run_id"`
}

// Config is what the face is made of. Parts that are nil are not served.
type Config struct {
	Gate *gate.Gate
	Auth gate.Authenticator
	// Admit waits until it is known whether a user of this host may use the gateway at all, and returns why not; nil: everybody whom the
	// listener let in may.
	Admit func(ctx context.Context, uid int) error
	// While returns a context that ends, with the error as its cause, when a caller's credentials do; nil: they do not end during a request.
	While    func(context.Context, gate.Principal) (_ context.Context, stop func())
	Contents Contents
	// Lies is a fault that says where the files of a directory lie, by the checksum of their list, if the gateway has no copy to send. nil: it
	// has a copy of all.
	Lies     func(ctx context.Context, sha256 string) error
	DomainID string
	// Version is of the catalogue as a caller sees it; it changes with everything that the lists show. nil: 0.0.0.
	Version func(who gate.Caller) string
	// Events reads the events of a run after a number, oldest first, and whether the run is over. The gate has allowed the look.
	Events func(ctx context.Context, runID string, after int64) (events []Event, over bool, err error)
	// Moving is how far the files of a run are that are staged or collected now, as JSON; nil: none are. The gate has allowed the look.
	Moving func(ctx context.Context, runID string) json.RawMessage
	// Export makes the archive of a run or a batch. The gate has allowed it.
	Export func(ctx context.Context, a ExportArgs) (Archive, error)
	// Ready tells why the gateway cannot do all that it is for; nil when it can.
	Ready   func(ctx context.Context) error
	Metrics http.Handler
	MCP     http.Handler
	Log     *slog.Logger
	Streams int // event streams, uploads and downloads that one caller may have open; 0: no bound
	// PublicURL is where clients find the port, without a slash at its end; empty: where it listens. Issuers are the OpenID providers whose
	// access tokens are taken. Both stand in the protected-resource metadata (RFC 9728).
	PublicURL string
	Issuers   []string
}

type face struct {
	Config
	stopping chan struct{} // closed when the streams are to end

	failures failures
	streams  *gate.Counter
	bodies   *gate.Turns
	uploads  uploads
}

// Handler is the face. Streams end when stopping is closed; nil: when their clients go.
func Handler(c Config, stopping chan struct{}) http.Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Version == nil {
		c.Version = func(gate.Caller) string { return "0.0.0" }
	}
	f := &face{Config: c, stopping: stopping, streams: gate.NewCounter(c.Streams), bodies: newBodies(),
		uploads: uploads{open: map[string]*uploading{}}}
	r := chi.NewRouter()
	r.Use(paced, timed, plainPaths)
	r.NotFound(func(w http.ResponseWriter, req *http.Request) {
		problem(w, fault.New(fault.NotFound, "no_such_path", "there is nothing at this path").
			WithNext("GET /openapi.json lists all paths"))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		refuse(w, http.StatusMethodNotAllowed, fault.New(fault.Validation, "method_not_allowed",
			req.Method+" is not served at this path"))
	})
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	r.Get("/readyz", f.ready)
	r.Get("/openapi.json", openAPI)
	r.Get(metadataPath, f.metadata)
	r.Get(metadataPath+"/mcp", f.metadata)
	r.Group(func(r chi.Router) {
		r.Use(f.authenticate, f.largeBody)
		f.routes(r)
	})
	return r
}

func (f *face) routes(r chi.Router) {
	r.Get("/v1/domain", f.queued(f.domain))
	r.Get("/v1/tools", f.queued(f.tools))
	r.Get("/v1/registry", f.queued(f.registry))
	r.Get("/v1/tools/{tool_id}/input_schema", f.queued(f.schema(func(t gate.Tool) json.RawMessage { return t.Input })))
	r.Get("/v1/tools/{tool_id}/output_schema", f.queued(f.schema(gate.Tool.Result)))
	r.Post("/v1/tools/{tool_id}:run", f.run)
	r.Post("/v1/tool-calls", f.toolCall)

	r.Get("/v1/runs", f.list("run.list", "state", "tool_id", "project_id", "principal", "since", "until", "sample", "tag", "batch", "cursor",
		"limit"))
	r.Get("/v1/batches", f.list("batch.list", "project_id", "cursor", "limit"))
	r.Post("/v1/batches", f.operation("batch.run", "",
		body(false, "tool_id", "name", "project_id", "sheet", "sheet_artifact_id", "rows", "set", "steps"), made))
	r.Get("/v1/batches/{batch}", f.look("batch.status", "batch", "project_id", "wait_seconds"))
	r.Get("/v1/batches/{batch}/rows", f.look("batch.rows", "batch", "project_id", "state", "sample", "after_row", "outputs", "limit"))
	r.Get("/v1/batches/{batch}/contents", f.bundle)
	r.Get("/v1/batches/{batch}/table", f.look("batch.table", "batch", "project_id", "role", "fields", "sort_by", "descending", "limit"))
	r.Post("/v1/batches/{batch}:retry", f.operation("batch.retry", "batch", body(true, "project_id", "cancelled"), writeOutput))
	r.Post("/v1/batches/{batch}:cancel", f.operation("batch.cancel", "batch", body(true, "project_id"), writeOutput))
	r.Post("/v1/batches/{batch}:notify", f.act("run.notify", "batch", "url", "project_id"))

	r.Get("/v1/sites", f.list("site.list"))
	r.Get("/v1/usage", f.list("usage.month", "month", "zone", "by", "project_id"))
	r.Post("/v1/runs", f.operation("slurm.submit", "", body(false, "project_id", "job_spec"), made))
	r.Get("/v1/runs/{run_id}", f.look("slurm.job.get", "run_id", "wait_seconds"))
	r.Delete("/v1/runs/{run_id}", f.remove("run.remove", "run_id", "reason", "dry_run"))
	r.Get("/v1/runs/{run_id}/result", f.look("slurm.job.collect", "run_id", "wait_seconds"))
	r.Get("/v1/runs/{run_id}/story", f.look("run.show", "run_id"))
	r.Get("/v1/runs/{run_id}/receipt", f.look("run.receipt", "run_id", "attempt"))
	r.Get("/v1/keys", f.list("key.list"))
	r.Get("/v1/runs/{run_id}/provenance", f.look("run.provenance", "run_id"))
	r.Get("/v1/runs/{run_id}/logs", f.look("slurm.job.logs", "run_id", "stream", "tail_lines"))
	r.Get("/v1/runs/{run_id}/events", f.events)
	r.Get("/v1/runs/{run_id}/export", f.export)
	r.Get("/v1/batches/{batch}/export", f.exportBatch)
	r.Post("/v1/runs/{run_id}:recollect", f.act("slurm.job.recollect", "run_id", "reason"))
	r.Post("/v1/runs/{run_id}:cancel", f.act("slurm.job.cancel", "run_id", "reason"))
	r.Post("/v1/runs/{run_id}:retry", f.act("slurm.job.retry", "run_id", "after_attempt", "reason"))
	r.Post("/v1/runs/{run_id}:notify", f.act("run.notify", "run_id", "url"))

	r.Post("/v1/secrets:erase", f.erase)
	r.Get("/v1/artifacts", f.list("artifact.list", "project_id", "type", "cursor", "limit"))
	r.Post("/v1/artifacts", f.create)
	r.Get("/v1/artifacts/{artifact_id}", f.look("artifact.get", "artifact_id"))
	r.Delete("/v1/artifacts/{artifact_id}", f.remove("artifact.remove", "artifact_id", "reason", "with_runs", "dry_run"))
	r.Get("/v1/artifacts/{artifact_id}/trace", f.look("artifact.trace", "artifact_id", "limit"))
	r.Get("/v1/artifacts/{artifact_id}/preview", f.look("artifact.preview.text", "artifact_id", "max_lines", "max_bytes", "path",
		"first_file"))
	r.Get("/v1/artifacts/{artifact_id}/preview/table", f.look("artifact.preview.table", "artifact_id", "first_row", "max_rows", "delimiter"))
	r.Get("/v1/artifacts/{artifact_id}/preview/image", f.picture)
	r.Get("/v1/artifacts/{artifact_id}/content", f.content)

	r.Get("/v1/references", f.list("reference.list", "project_id"))
	r.Get("/v1/references/{name}", f.look("reference.show", "name"))

	r.Get("/v1/approvals", f.list("approval.list", "all"))
	r.Post("/v1/approvals/{approval_id}:answer", f.act("approval.answer", "approval_id", "approve", "uses", "expires_in_seconds", "reason"))

	if f.Metrics != nil {
		r.Get("/metrics", func(w http.ResponseWriter, req *http.Request) {
			if who := CallerOf(req.Context()); !who.Can(gate.CapMetrics, gate.All) {
				problem(w, fault.New(fault.Capability, "capability_denied",
					"metrics need the capability \"metrics\" for the whole site (project *), which "+who.Name+" does not have"))
				return
			}
			f.queued(f.Metrics.ServeHTTP)(w, req)
		})
	}
	if f.MCP != nil {
		r.Handle("/mcp", unencoded(f.MCP))
	}
}

// ready says whether the gateway can do all that it is for. Reads, replays and new runs are served all the same.
func (f *face) ready(w http.ResponseWriter, req *http.Request) {
	if f.Ready != nil {
		if err := f.Ready(req.Context()); err != nil {
			by := gate.Other
			if _, isPeer := req.Context().Value(peerKey{}).(int); isPeer {
				by = gate.Local
			}
			writeProblem(w, describe(by, http.StatusServiceUnavailable, err))
			return
		}
	}
	io.WriteString(w, "ok\n")
}
