package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"slurmgate/fault"
)

// uploadPause is how long a client may take for the next piece of an upload.
const uploadPause = 60 * time.Second

const uploadType = "application/octet-stream"

// upload imports the body of a request as an artifact: a call of artifact.import with the bytes beside it. label, type and project_id stand
// in the query. Nothing is kept of a body that does not arrive whole.
func (f *face) upload(w http.ResponseWriter, req *http.Request) {
	args, err := arguments(req.URL, []string{"label", "type", "project_id"})
	if err != nil {
		f.malformed(w, req, "artifact.import", http.StatusBadRequest, err)
		return
	}
	args["upload"] = json.RawMessage("true")
	raw, err := json.Marshal(args)
	if err != nil {
		problem(w, err)
		return
	}
	end, ok := f.streaming(w, req)
	if !ok {
		return
	}
	defer end()
	who := CallerOf(req.Context())
	body := &pacedBody{Reader: req.Body, control: http.NewResponseController(w), ctx: req.Context()}
	defer context.AfterFunc(req.Context(), func() { _ = body.control.SetReadDeadline(time.Now()) })()
	who.Body, who.BodyBytes = body, req.ContentLength
	res := f.Gate.Call(req.Context(), who, f.request(req, "artifact.import", raw))
	if res.Error != nil && body.stalled {
		refuse(w, http.StatusRequestTimeout, fault.New(fault.Transport, "upload_stalled",
			fmt.Sprintf("the upload paused for more than %s; nothing was stored", uploadPause)).WithNext("send the whole body again"))
		return
	}
	if res.Error != nil {
		failed(w, res)
		return
	}
	made(w, res)
}

// pacedBody gives a client so much time for each piece of a body, however long the body is.
type pacedBody struct {
	io.Reader
	control *http.ResponseController
	ctx     context.Context // ends when the caller's credentials do
	stalled bool            // it took longer
}

// Read implements io.Reader.
func (p *pacedBody) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(uploadPause)) // a recorder in a test has none
	if why := ended(p.ctx); why != nil {
		return 0, why
	}
	n, err := p.Reader.Read(b)
	if why := ended(p.ctx); err != nil && why != nil {
		return n, why
	}
	p.stalled = p.stalled || errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}
