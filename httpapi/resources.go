package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// effect returns the context of a call: one that makes a run does not depend on its client, which may reconnect and
// ask for the same.
func (f *face) effect(req *http.Request, toolID string, dryRun bool) context.Context {
	if f.Gate.Registry().Detached(toolID, dryRun) {
		return context.WithoutCancel(req.Context())
	}
	return req.Context()
}

// call carries out one of the gateway's operations; false when the answer has been written already.
func (f *face) call(w http.ResponseWriter, req *http.Request, toolID string, args map[string]json.RawMessage) (gate.Response, bool) {
	return f.send(w, req, toolID, args, false)
}

// send is call, or a dry run of it.
func (f *face) send(w http.ResponseWriter, req *http.Request, toolID string, args map[string]json.RawMessage, dry bool) (gate.Response,
	bool) {
	raw, err := json.Marshal(args)
	if err != nil {
		problem(w, err)
		return gate.Response{}, false
	}
	call := f.request(req, toolID, raw)
	call.DryRun = dry
	res := f.Gate.Call(f.effect(req, toolID, dry), CallerOf(req.Context()), call)
	if res.Error != nil {
		failed(w, res)
		return res, false
	}
	return res, true
}

func writeOutput(w http.ResponseWriter, res gate.Response) {
	writeJSON(w, http.StatusOK, "application/json", output(res))
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

// isUpload reports whether the body of a request is an artifact's bytes.
func isUpload(req *http.Request) bool {
	typ, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return err == nil && typ == uploadType && req.Header.Get("Content-Encoding") == "" && req.Method == http.MethodPost &&
		req.URL.Path == "/v1/artifacts"
}

// create serves POST /v1/artifacts: bytes as they are, or the arguments of artifact.import.
func (f *face) create(w http.ResponseWriter, req *http.Request, e endpoint) {
	if isUpload(req) {
		f.upload(w, req)
		return
	}
	f.operation(w, req, e, made)
}

// picture serves GET …/preview/image: a small picture of a large one, as the tool describes it, or as the picture
// itself for a client that accepts that.
func (f *face) picture(w http.ResponseWriter, req *http.Request, e endpoint) {
	write := writeOutput
	if typ, _, err := mime.ParseMediaType(req.Header.Get("Accept")); err == nil && typ == pictureType {
		write = writePicture
	}
	f.operation(w, req, e, write)
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
	setSafeDownloadHeaders(h, pictureType)
	h.Set("Cache-Control", "private, max-age=3600")
	h.Set("Vary", "Accept, Authorization")
	_, _ = w.Write(p.Data) // this fails when the peer has closed the connection
}

// setSafeDownloadHeaders keeps a browser from running a caller's file.
func setSafeDownloadHeaders(h http.Header, typ string) {
	h.Set("Content-Type", typ)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
}

const pictureType = "image/png"

// content sends the bytes of an artifact, whole or in ranges. They never change, so a client may keep them. Where
// they turn out not to be the artifact's, the answer breaks off before the first wrong byte.
func (f *face) content(w http.ResponseWriter, req *http.Request, _ endpoint) {
	end, ok := f.streaming(w, req)
	if !ok {
		return
	}
	defer end()
	transfers(req.Context())
	id := chi.URLParam(req, "artifact_id")
	res, ok := f.call(w, req, "artifact.get", map[string]json.RawMessage{"artifact_id": text(id)})
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
	file, err := f.Contents.Artifact(req.Context(), id)
	if err != nil {
		f.problem(w, err)
		return
	}
	defer file.Close()
	h := w.Header()
	setSafeDownloadHeaders(h, "application/octet-stream")
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
