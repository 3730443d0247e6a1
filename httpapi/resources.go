package httpapi

import (
	"context"
	"encoding/json"
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

// list is a GET of a collection: the query's words are the operation's arguments.
func (f *face) list(toolID string, query ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		args, err := arguments(req.URL, query)
		if err != nil {
			f.malformed(w, req, toolID, http.StatusBadRequest, err)
			return
		}
		if res, ok := f.call(w, req, toolID, args); ok {
			writeJSON(w, http.StatusOK, "application/json", output(res))
		}
	}
}

// look is a GET of one thing, named by the path.
func (f *face) look(toolID, id string, query ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		args, err := arguments(req.URL, query)
		if err != nil {
			f.malformed(w, req, toolID, http.StatusBadRequest, err)
			return
		}
		args[id] = text(chi.URLParam(req, id))
		if res, ok := f.call(w, req, toolID, args); ok {
			writeJSON(w, http.StatusOK, "application/json", output(res))
		}
	}
}

// act is a verb upon one thing; the body has its other arguments. A verb that can do without them, or that says itself what is missing,
// takes an empty body.
func (f *face) act(toolID, id string, keys ...string) http.HandlerFunc {
	mayBeEmpty := slices.Contains(keys, "reason") && !slices.Contains(keys, "approve")
	return func(w http.ResponseWriter, req *http.Request) {
		args, status, err := object(w, req, mayBeEmpty, keys...)
		if err != nil {
			f.malformed(w, req, toolID, status, err)
			return
		}
		args[id] = text(chi.URLParam(req, id))
		if res, ok := f.call(w, req, toolID, args); ok {
			writeJSON(w, http.StatusOK, "application/json", output(res))
		}
	}
}

// submit is POST /v1/runs: a whole plan.
func (f *face) submit(w http.ResponseWriter, req *http.Request) {
	args, status, err := object(w, req, false, "project_id", "job_spec")
	if err != nil {
		f.malformed(w, req, "slurm.submit", status, err)
		return
	}
	res, ok := f.call(w, req, "slurm.submit", args)
	if !ok {
		return
	}
	var a struct {
		RunID    string `json:"run_id"`
		Replayed bool   `json:"replayed"`
	}
	_ = json.Unmarshal(res.Result, &a) // the gate has checked it
	w.Header().Set("Location", "/v1/runs/"+a.RunID)
	status = http.StatusAccepted
	if a.Replayed {
		status = http.StatusOK
	}
	writeJSON(w, status, "application/json", res.Result)
}

func text(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`)
	}
	return b
}

// arguments turns a query into arguments. Numeric values are numbers; unknown and repeated parameters are refused.
func arguments(u *url.URL, known []string) (map[string]json.RawMessage, error) {
	bad := func(field, rule, msg string) error {
		return fault.Invalid("httpapi.query", "", fault.Problem{Code: "QUERY", Field: oneLine(clip(field)), Rule: rule, Msg: msg})
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("query", "name=value pairs joined by &", "it cannot be parsed")
	}
	args := map[string]json.RawMessage{}
	for name, given := range values {
		switch {
		case !has(known, name):
			return nil, bad(name, "one of "+strings.Join(known, ", "), "unknown parameter")
		case len(given) != 1:
			return nil, bad(name, "at most once", "it is given several times")
		}
		switch name {
		case "all":
			if given[0] != "true" && given[0] != "false" {
				return nil, bad(name, "true or false", "it is neither")
			}
			args[name] = json.RawMessage(given[0])
		case "limit", "wait_seconds", "tail_lines", "max_lines", "first_row", "max_rows", "max_edge":
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

// create is POST /v1/artifacts: bytes as they are, or {path or text, label, type, project_id}.
func (f *face) create(w http.ResponseWriter, req *http.Request) {
	if typ, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err == nil && typ == uploadType &&
		req.Header.Get("Content-Encoding") == "" {
		f.upload(w, req)
		return
	}
	args, status, err := object(w, req, false, "path", "text", "label", "type", "project_id")
	if err != nil {
		f.malformed(w, req, "artifact.import", status, err)
		return
	}
	res, ok := f.call(w, req, "artifact.import", args)
	if !ok {
		return
	}
	created(w, res)
}

// created answers an import: 201 for a new artifact, 200 for one that was there.
func created(w http.ResponseWriter, res gate.Response) {
	var a struct {
		ArtifactID string `json:"artifact_id"`
		Created    bool   `json:"created"`
	}
	_ = json.Unmarshal(res.Result, &a) // the gate has checked it
	w.Header().Set("Location", "/v1/artifacts/"+a.ArtifactID)
	status := http.StatusOK
	if a.Created {
		status = http.StatusCreated
	}
	writeJSON(w, status, "application/json", res.Result)
}

// picture is GET …/preview/image: a small picture of a large one, as the tool describes it, or as the picture itself to whom that is what
// it accepts.
func (f *face) picture(w http.ResponseWriter, req *http.Request) {
	if typ, _, err := mime.ParseMediaType(req.Header.Get("Accept")); err != nil || typ != pictureType {
		f.look("artifact.preview.image", "artifact_id", "max_edge")(w, req)
		return
	}
	args, err := arguments(req.URL, []string{"max_edge"})
	if err != nil {
		f.malformed(w, req, "artifact.preview.image", http.StatusBadRequest, err)
		return
	}
	args["artifact_id"] = text(chi.URLParam(req, "artifact_id"))
	res, ok := f.call(w, req, "artifact.preview.image", args)
	if !ok {
		return
	}
	var p struct {
		Data []byte `json:"data_base64"`
	}
	if err := json.Unmarshal(res.Result, &p); err != nil {
		problem(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", pictureType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, max-age=3600")
	h.Set("Vary", "Accept, Authorization")
	_, _ = w.Write(p.Data) // the peer is gone if this fails
}

const pictureType = "image/png"

// content sends the bytes of an artifact, whole or in ranges. They never change, so a client may keep them.
func (f *face) content(w http.ResponseWriter, req *http.Request) {
	res, ok := f.call(w, req, "artifact.get", map[string]json.RawMessage{"artifact_id": text(chi.URLParam(req, "artifact_id"))})
	if !ok {
		return
	}
	var a struct {
		SHA256 string `json:"checksum_sha256"`
		Label  string `json:"label"`
	}
	if err := json.Unmarshal(res.Result, &a); err != nil {
		problem(w, err)
		return
	}
	file, err := f.Contents.Open(a.SHA256)
	if err != nil {
		problem(w, err)
		return
	}
	defer file.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream") // whatever it is, a browser must not run it
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Disposition", "attachment")
	h.Set("ETag", `"sha256:`+a.SHA256+`"`)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	http.ServeContent(w, req, "", time.Time{}, file)
}
