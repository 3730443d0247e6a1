package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// effect is the context of a call: one that makes a run does not hang on its client, who may come back and ask for the same.
func (f *face) effect(req *http.Request, toolID string) context.Context {
	if t, err := f.Gate.Registry().Find(toolID); err == nil && t.SideEffect == gate.Execute {
		return context.WithoutCancel(req.Context())
	}
	return req.Context()
}

// call carries out one of the gateway's operations; false when the answer has been written already.
func (f *face) call(w http.ResponseWriter, req *http.Request, toolID string, args map[string]json.RawMessage) (gate.Response, bool) {
	raw, err := json.Marshal(args)
	if err != nil {
		problem(w, err)
		return gate.Response{}, false
	}
	res := f.Gate.Call(f.effect(req, toolID), CallerOf(req.Context()), f.request(req, toolID, raw))
	if res.Error != nil {
		failed(w, res)
		return res, false
	}
	return res, true
}

// A reader makes arguments of a request. The status goes with the error.
type reader func(w http.ResponseWriter, req *http.Request) (args map[string]json.RawMessage, status int, err error)

// query reads the words of the query.
func query(words ...string) reader {
	return func(_ http.ResponseWriter, req *http.Request) (map[string]json.RawMessage, int, error) {
		args, err := arguments(req.URL, words)
		return args, http.StatusBadRequest, err
	}
}

// body reads a JSON object with these keys; with mayBeEmpty also an empty body.
func body(mayBeEmpty bool, keys ...string) reader {
	return func(w http.ResponseWriter, req *http.Request) (map[string]json.RawMessage, int, error) {
		return object(w, req, mayBeEmpty, keys...)
	}
}

// operation serves one of the gateway's operations. id is the argument that the path has; empty: none.
func (f *face) operation(toolID, id string, read reader, write func(http.ResponseWriter, gate.Response)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		args, status, err := read(w, req)
		if err != nil {
			f.malformed(w, req, toolID, status, err)
			return
		}
		if id != "" {
			args[id] = text(chi.URLParam(req, id))
		}
		if res, ok := f.call(w, req, toolID, args); ok {
			write(w, res)
		}
	}
}

func writeOutput(w http.ResponseWriter, res gate.Response) {
	writeJSON(w, http.StatusOK, "application/json", output(res))
}

// list is a GET of a collection.
func (f *face) list(toolID string, words ...string) http.HandlerFunc {
	return f.operation(toolID, "", query(words...), writeOutput)
}

// look is a GET of one thing, named by the path.
func (f *face) look(toolID, id string, words ...string) http.HandlerFunc {
	return f.operation(toolID, id, query(words...), writeOutput)
}

// act is a verb upon one thing; the body has its other arguments. A verb that can do without them, or that says itself what is missing,
// takes an empty body.
func (f *face) act(toolID, id string, keys ...string) http.HandlerFunc {
	mayBeEmpty := slices.Contains(keys, "reason") && !slices.Contains(keys, "approve")
	return f.operation(toolID, id, body(mayBeEmpty, keys...), writeOutput)
}

// remove is a verb upon a list of things, of which the path has one.
func (f *face) remove(toolID, id string, words ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		args, err := arguments(req.URL, words)
		if err != nil {
			f.malformed(w, req, toolID, http.StatusBadRequest, err)
			return
		}
		args[id+"s"] = json.RawMessage("[" + string(text(chi.URLParam(req, id))) + "]")
		if res, ok := f.call(w, req, toolID, args); ok {
			writeOutput(w, res)
		}
	}
}

// made answers what a call made or found: 202 for a new run or batch, 201 for a new artifact, 200 for what was there.
func made(w http.ResponseWriter, res gate.Response) {
	var a struct {
		RunID      string `json:"run_id"`
		BatchID    string `json:"batch_id"`
		Replayed   bool   `json:"replayed"`
		ArtifactID string `json:"artifact_id"`
		Created    bool   `json:"created"`
	}
	_ = json.Unmarshal(res.Result, &a) // the gate has checked it
	at, status := "/v1/artifacts/"+a.ArtifactID, http.StatusOK
	switch {
	case a.Created:
		status = http.StatusCreated
	case a.BatchID != "":
		if at = "/v1/batches/" + a.BatchID; !a.Replayed {
			status = http.StatusAccepted
		}
	case a.RunID != "":
		if at = "/v1/runs/" + a.RunID; !a.Replayed {
			status = http.StatusAccepted
		}
	}
	w.Header().Set("Location", at)
	writeJSON(w, status, "application/json", res.Result)
}

func text(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a text can be encoded
	return b
}

// arguments turns a query into arguments. Numeric values are numbers; unknown parameters are refused, and repeated ones but for lists.
func arguments(u *url.URL, known []string) (map[string]json.RawMessage, error) {
	bad := func(field, rule, msg string) error {
		return fault.Invalid("", fault.Problem{Code: "QUERY", Field: fault.Clip(field), Rule: rule, Msg: msg})
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("query", "name=value pairs joined by &", "it cannot be parsed")
	}
	args := map[string]json.RawMessage{}
	for name, given := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, bad(name, "one of "+strings.Join(known, ", "), "unknown parameter")
		case len(given) != 1 && name != "fields":
			return nil, bad(name, "at most once", "it is given several times")
		}
		switch name {
		case "fields":
			args[name], _ = json.Marshal(given) // a list of strings can always be written
		case "all", "dry_run", "by_reference", "outputs", "descending":
			if given[0] != "true" && given[0] != "false" {
				return nil, bad(name, "true or false", "it is neither")
			}
			args[name] = json.RawMessage(given[0])
		case "limit", "wait_seconds", "tail_lines", "max_lines", "max_bytes", "first_row", "max_rows", "max_edge", "attempt", "after_row",
			"max_size_mb", "first_file":
			n, err := strconv.ParseInt(given[0], 10, 32)
			if err != nil {
				return nil, bad(name, "a whole number", "it is not a number")
			}
			args[name] = json.RawMessage(strconv.FormatInt(n, 10))
		default:
			args[name] = text(given[0])
		}
	}
	return args, nil
}

// isUpload reports whether the body of a request is an artifact's bytes.
func isUpload(req *http.Request) bool {
	typ, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return err == nil && typ == uploadType && req.Header.Get("Content-Encoding") == "" && req.Method == http.MethodPost &&
		req.URL.Path == "/v1/artifacts"
}

// create is POST /v1/artifacts: bytes as they are, or {path or text or source, label, type, project_id}.
func (f *face) create(w http.ResponseWriter, req *http.Request) {
	if isUpload(req) {
		f.upload(w, req)
		return
	}
	f.operation("artifact.import", "", body(false, "path", "text", "label", "type", "project_id", "source", "type_hint",
		"in_place", "site"), made)(w, req)
}

// picture is GET …/preview/image: a small picture of a large one, as the tool describes it, or as the picture itself to whom that is what
// it accepts.
func (f *face) picture(w http.ResponseWriter, req *http.Request) {
	if typ, _, err := mime.ParseMediaType(req.Header.Get("Accept")); err != nil || typ != pictureType {
		f.look("artifact.preview.image", "artifact_id", "max_edge")(w, req)
		return
	}
	f.operation("artifact.preview.image", "artifact_id", query("max_edge"), writePicture)(w, req)
}

func writePicture(w http.ResponseWriter, res gate.Response) {
	var p struct {
		Data []byte `json:"data_base64"`
	}
	if err := json.Unmarshal(res.Result, &p); err != nil {
		problem(w, err)
		return
	}
	h := w.Header()
	harmless(h, pictureType)
	h.Set("Cache-Control", "private, max-age=3600")
	h.Set("Vary", "Accept, Authorization")
	_, _ = w.Write(p.Data) // the peer is gone if this fails
}

// harmless keeps a browser from running what somebody made.
func harmless(h http.Header, typ string) {
	h.Set("Content-Type", typ)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
}

const pictureType = "image/png"

// content sends the bytes of an artifact, whole or in ranges. They never change, so a client may keep them.
func (f *face) content(w http.ResponseWriter, req *http.Request) {
	end, ok := f.streaming(w, req)
	if !ok {
		return
	}
	defer end()
	res, ok := f.call(w, req, "artifact.get", map[string]json.RawMessage{"artifact_id": text(chi.URLParam(req, "artifact_id"))})
	if !ok {
		return
	}
	var a struct {
		SHA256 string `json:"checksum_sha256"`
		Label  string `json:"label"`
		Name   string `json:"download_name"`
		Type   string `json:"type"`
	}
	if err := json.Unmarshal(res.Result, &a); err != nil {
		problem(w, err)
		return
	}
	if a.Type == plan.Directory && f.Lies != nil { // once the status is sent it is too late to say so
		if err := f.Lies(req.Context(), a.SHA256); err != nil {
			problem(w, err)
			return
		}
	}
	file, err := f.Contents.Open(a.SHA256)
	if err != nil {
		problem(w, err)
		return
	}
	defer file.Close()
	h := w.Header()
	harmless(h, "application/octet-stream")
	if h.Set("Content-Disposition", "attachment"); a.Name != "" { // a file name of letters, digits and . _ + -
		h.Set("Content-Disposition", `attachment; filename="`+a.Name+`"`)
	}
	h.Set("ETag", `"sha256:`+a.SHA256+`"`)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	if a.Type == plan.Directory {
		f.contentTar(&heldWriter{w, req.Context()}, file)
		return
	}
	http.ServeContent(&heldWriter{w, req.Context()}, req, "", time.Time{}, file)
}

// contentTar sends a directory as a tar file, the same bytes each time. A client sees by its end that it is whole.
func (f *face) contentTar(w http.ResponseWriter, list io.Reader) {
	w.Header().Set("Content-Type", tarType)
	err := tree.WriteTar(w, list, func(sha256 string) (io.ReadCloser, error) { return f.Contents.Open(sha256) })
	if err != nil {
		panic(http.ErrAbortHandler) // the status is sent: the connection ends without the end of the body
	}
}

// heldWriter sends nothing more once the request has ended, also when that is because the caller's credentials did.
type heldWriter struct {
	http.ResponseWriter
	ctx context.Context
}

func (w *heldWriter) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.ResponseWriter.Write(b)
}
