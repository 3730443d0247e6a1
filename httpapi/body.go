package httpapi

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

const (
	maxRequestBytes = 2 << 20          // of a request that is no upload
	bodyTime        = 30 * time.Second // for such a request to arrive
	writeTime       = 60 * time.Second // for a client to take the next piece of an answer
	headerTime      = 10 * time.Second // for the headers to arrive
	idleTime        = 2 * time.Minute  // of a connection kept open
	maxHeaderBytes  = 32 << 10
)

// readBody reads the JSON of a request: of that type, uncompressed, bounded in bytes and time. status belongs to the
// error.
func readBody(w http.ResponseWriter, req *http.Request) (body []byte, status int, err error) {
	if err := isJSON(req); err != nil {
		return nil, http.StatusUnsupportedMediaType, err
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, maxRequestBytes))
	switch {
	case isTooLarge(err):
		return nil, http.StatusRequestEntityTooLarge, fault.New(fault.Validation, "body_too_large", "the body is larger than 2 MiB").
			WithNext("import large data with POST /v1/artifacts and name the artifact")
	case err != nil:
		return nil, http.StatusBadRequest, fault.New(fault.Validation, "body_incomplete", "the body was incomplete or too slow")
	}
	if err := gate.HoldJSON(req.Context(), len(body)); err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	return body, http.StatusOK, nil
}

func isJSON(req *http.Request) error {
	if err := uncompressed(req); err != nil {
		return err
	}
	typ, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if cs := params["charset"]; err != nil || typ != "application/json" || cs != "" && !strings.EqualFold(cs, "utf-8") {
		return fault.New(fault.Validation, "content_type", "the Content-Type of the body is not application/json").
			WithNext("send Content-Type: application/json")
	}
	return nil
}

func uncompressed(req *http.Request) error {
	if enc := req.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return fault.New(fault.Validation, "content_encoding", "compressed request bodies are not accepted").
			WithNext("send the body uncompressed, without Content-Encoding")
	}
	return nil
}

// object reads a body that is one JSON object with only these keys; with may, an empty body is an empty object.
// Values stay as sent, numbers included: the tool's schema judges them.
func object(w http.ResponseWriter, req *http.Request, may bool, keys ...string) (map[string]json.RawMessage, int, error) {
	if may && req.ContentLength == 0 {
		return map[string]json.RawMessage{}, http.StatusOK, nil
	}
	body, status, err := readBody(w, req)
	if err != nil {
		return nil, status, err
	}
	canonical, err := plan.Canonical(body)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	var doc map[string]json.RawMessage
	if json.Unmarshal(canonical, &doc) != nil || doc == nil {
		return nil, http.StatusBadRequest, fault.Invalid("", fault.Problem{Code: "BODY-OBJECT", Field: "body",
			Rule: "a JSON object", Msg: "the body is not a JSON object"})
	}
	for k := range doc {
		if !slices.Contains(keys, k) {
			return nil, http.StatusBadRequest, fault.Invalid("", fault.Problem{Code: "BODY-KEY", Field: fault.Clip(k),
				Rule: "one of " + strings.Join(keys, ", "), Msg: "the key is unknown"})
		}
	}
	return doc, http.StatusOK, nil
}

// unencoded refuses compressed bodies for a handler that reads bodies itself.
func unencoded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := uncompressed(req); err != nil {
			refuse(w, http.StatusUnsupportedMediaType, err)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// plainPaths refuses paths that a router, a proxy and a filesystem could interpret differently.
func plainPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p := req.URL.Path
		if req.URL.RawPath != "" || p == "" || p[0] != '/' || path.Clean(p) != p || strings.ContainsAny(p, "\\%;") || oneLine(p) != p {
			problem(w, fault.New(fault.NotFound, "no_such_path", "there is nothing at this path"))
			return
		}
		next.ServeHTTP(w, req)
	})
}

// paced limits the time a client may take for each piece of an answer, however long the answer is.
func paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(&pacedWriter{ResponseWriter: w, control: http.NewResponseController(w)}, req)
	})
}

type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap lets http.ResponseController through.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Flush implements http.Flusher.
func (p *pacedWriter) Flush() { _ = p.control.Flush() }

func (p *pacedWriter) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has none
	return p.ResponseWriter.Write(b)
}
