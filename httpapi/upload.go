package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// uploadPause is how long a client may take for the next piece of an upload.
const uploadPause = 60 * time.Second

const uploadType = "application/octet-stream"

// upload imports the body of a request as an artifact: a call of artifact.import with the bytes next to the envelope.
// label, type and project_id are in the query. Nothing is kept of a body that does not arrive whole, unless the query
// has an upload_key: then the next request with the key sends the rest. Its offset is the number of bytes that are
// stored; with another number it is refused before its body is read, with the right number in the error. It ends an
// earlier request with the key that is still open, because its caller has abandoned that one.
func (f *face) upload(w http.ResponseWriter, req *http.Request) {
	args, err := arguments(req.URL, map[string]string{"label": textType, "type": textType, "project_id": textType, "upload_key": textType,
		"offset": textType})
	var part *gate.Upload
	if err == nil {
		part, err = partOf(args)
	}
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
	ctx, stop := context.WithCancelCause(req.Context())
	defer stop(nil)
	body := &pacedBody{Reader: req.Body, control: http.NewResponseController(w), ctx: ctx}
	defer context.AfterFunc(ctx, func() { _ = body.control.SetReadDeadline(time.Now()) })()
	if part != nil {
		defer f.uploads.begin(ctx, who.Key()+" "+part.Key, stop)()
	}
	who.Body, who.BodyBytes, who.Upload = body, req.ContentLength, part
	res := f.Gate.Call(req.Context(), who, f.request(req, "artifact.import", raw))
	if res.Error != nil && body.stalled {
		kept, next := "nothing was stored", "send the whole body again"
		if part != nil {
			kept, next = "what came is kept", "send the rest with the same upload_key"
		}
		refuse(w, http.StatusRequestTimeout, fault.New(fault.Transport, "upload_stalled",
			fmt.Sprintf("the upload paused for more than %s; %s", uploadPause, kept)).WithNext(next))
		return
	}
	if res.Error != nil && part != nil && part.SHA256 != "" {
		w.Header().Set("Upload-Offset", strconv.FormatInt(part.Stored, 10))
		res.Error.Details["offset"], res.Error.Details["sha256"] = part.Stored, part.SHA256
	}
	if res.Error != nil {
		failed(w, res)
		return
	}
	made(w, res)
}

// uploads are the requests that send a part of an upload, by caller and key.
type uploads struct {
	mu   sync.Mutex
	open map[string]*uploading
}

type uploading struct {
	stop context.CancelCauseFunc
	over chan struct{} // closed when the request has ended
}

const (
	uploadReplaced = "upload_replaced"
	replacing      = 10 * time.Second // how long a request waits for the end of the one before it
)

// begin notes a request, after it has ended an earlier one of the same name.
func (u *uploads) begin(ctx context.Context, name string, stop context.CancelCauseFunc) (end func()) {
	me := &uploading{stop, make(chan struct{})}
	u.mu.Lock()
	before := u.open[name]
	u.open[name] = me
	u.mu.Unlock()
	if before != nil {
		before.stop(fault.New(fault.Canceled, uploadReplaced, "a later request sends this upload"))
		select {
		case <-before.over:
		case <-time.After(replacing):
		case <-ctx.Done():
		}
	}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if close(me.over); u.open[name] == me {
			delete(u.open, name)
		}
	}
}

var uploadKey = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// partOf takes the arguments that describe a part of an upload out of the query's arguments; nil: the body is all of
// it.
func partOf(args map[string]json.RawMessage) (*gate.Upload, error) {
	bad := func(field, rule, msg string) (*gate.Upload, error) {
		return nil, fault.Invalid("", fault.Problem{Code: "QUERY", Field: field, Rule: rule, Msg: msg})
	}
	key, given := args["upload_key"]
	offset, from := args["offset"]
	delete(args, "upload_key")
	delete(args, "offset")
	if !given {
		if from {
			return bad("offset", "with an upload_key", "offset is given without upload_key")
		}
		return nil, nil
	}
	var up gate.Upload
	if json.Unmarshal(key, &up.Key) != nil || !uploadKey.MatchString(up.Key) {
		return bad("upload_key", "8 to 64 letters, digits, . _ and -", fault.Clip(string(key))+" is not allowed here")
	}
	if from {
		var text string
		_ = json.Unmarshal(offset, &text) // it is a text: so [arguments] made it
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return bad("offset", "a whole number of bytes, not below 0", fault.Clip(text)+" is not allowed here")
		}
		up.Offset = n
	}
	return &up, nil
}

// pacedBody bounds the time for each piece of a body, however long the body is.
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
