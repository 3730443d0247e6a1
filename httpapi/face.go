// Package httpapi is the HTTP face over the gate: on the gateway's own unix socket, whose peers the kernel names, and, if
// configured, on a port. Every request becomes one call of the gate, made for the caller that the connection or the bearer
// token names.
//
//	GET  /v1/domain  /v1/tools  /v1/registry     what this gateway serves, as the caller sees it
//	GET  /v1/tools/{tool_id}/input_schema        and output_schema: the arguments of a tool, and the output of its run
//	POST /v1/tools/{tool_id}:run                 one call in the form of programs that know no envelope
//	POST /v1/tool-calls                          one envelope in, one envelope out (HTC-02, HTC-03)
//	…    /v1/runs…  /v1/batches…  /v1/artifacts…  the gateway's operations as resources; events of a run as a stream
//	POST /mcp                                    the face for chats
//	GET  /healthz  /readyz  /metrics             for operators
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
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Contents opens the bytes of artifacts that the gate has already allowed.
type Contents interface {
	// Artifact opens the bytes of an artifact, for a directory the list of its files. It returns a fault where the
	// gateway cannot send all of them.
	Artifact(ctx context.Context, artifactID string) (io.ReadSeekCloser, error)
	// Open opens an object: a file of a directory, or an output of a run.
	Open(sha256 string) (*os.File, error)
}

// Event is one entry of a run's history.
type Event struct {
	Seq   int64     `json:"seq"`
	At    time.Time `json:"at"`
	Type  string    `json:"type"`
	RunID string    `json:"run_id"`
}

// Config has the parts of the face. Parts that are nil are not served.
type Config struct {
	Gate *gate.Gate
	Auth gate.Authenticator
	// Admit waits until it is known whether a user of this host may use the gateway at all, and returns why not; nil: everybody whom the
	// listener let in may.
	Admit func(ctx context.Context, uid int) error
	// While returns a context that ends, with the error as its cause, when a caller's credentials do; nil: they do not end during a request.
	While    func(context.Context, gate.Principal) (_ context.Context, stop func())
	Contents Contents
	DomainID string
	// Version returns the version of the catalogue that a caller sees; it changes with everything that the lists
	// show. nil: 0.0.0.
	Version func(who gate.Caller) string
	// Events returns the events of a run after a number, oldest first, and whether the run has ended. The gate has
	// allowed the read.
	Events func(ctx context.Context, runID string, after int64) (events []Event, over bool, err error)
	// Moving returns the progress of a run's files that are staged or collected now, as JSON; nil: none are. The gate
	// has allowed the read.
	Moving func(ctx context.Context, runID string) json.RawMessage
	// Export makes the archive of a run or a batch. The gate has allowed it.
	Export func(ctx context.Context, a ExportArgs) (Archive, error)
	// Ready returns why the gateway cannot do all its work; nil when it can.
	Ready   func(ctx context.Context) error
	Metrics http.Handler
	MCP     http.Handler
	Log     *slog.Logger
	Streams int // event streams, uploads and downloads that one caller may have open; 0: no bound
	// PublicURL is the port's address for clients, without a slash at its end; empty: the one it listens at. Issuers
	// are the OpenID providers whose access tokens are accepted. Both are in the protected-resource metadata (RFC
	// 9728).
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
	document func() ([]byte, error) // the OpenAPI document, written once
}

// Handler returns the face. Streams end when stopping is closed; nil: when their clients disconnect.
func Handler(c Config, stopping chan struct{}) http.Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Version == nil {
		c.Version = func(gate.Caller) string { return "0.0.0" }
	}
	f := &face{Config: c, stopping: stopping, streams: gate.NewCounter(c.Streams), bodies: newBodies(),
		uploads: uploads{open: map[string]*uploading{}}}
	f.document = sync.OnceValues(func() ([]byte, error) { return Document(f.Gate.Registry()) })
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
	r.Get("/openapi.json", f.openAPI)
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

	for _, route := range Routes() {
		r.Method(route.Method, route.Path, f.routeHandler(route))
	}
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

// ready answers whether the gateway can do all its work. Reads, replays and new runs are served all the same.
func (f *face) ready(w http.ResponseWriter, req *http.Request) {
	if f.Ready != nil {
		if err := f.Ready(req.Context()); err != nil {
			by := gate.Other
			if _, isPeer := req.Context().Value(peerKey{}).(int); isPeer {
				by = gate.Local
			}
			writeProblem(w, describe(f.Gate.Words().Of(by), http.StatusServiceUnavailable, err))
			return
		}
	}
	io.WriteString(w, "ok\n")
}
