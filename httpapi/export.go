package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"slurmgate/fault"
)

// Archive is an export of a run, whose bytes are made while they are sent.
type Archive interface {
	Name() string
	Size() int64
	WriteTo(ctx context.Context, w io.Writer) error
}

// ExportArgs selects what is in an archive.
type ExportArgs struct {
	RunID       string `json:"run_id,omitzero"`
	Batch       string `json:"batch,omitzero"` // instead of a run: a batch's id, or for a client its name
	ByReference bool   `json:"by_reference,omitzero"`
	MaxMB       int64  `json:"max_size_mb,omitzero"`
}

const archiveType = "application/zip"

// export sends the archive of a run or a batch. An archive that breaks off is shorter than its Content-Length.
func (f *face) export(w http.ResponseWriter, req *http.Request, e endpoint) {
	if f.Export == nil {
		problem(w, fault.New(fault.NotFound, "no_such_path", "this gateway exports nothing"))
		return
	}
	args, status, err := e.read(w, req)
	if err != nil {
		f.malformed(w, req, e.Operation, status, err)
		return
	}
	end, ok := f.streaming(w, req)
	if !ok {
		return
	}
	defer end()
	transfers(req.Context())
	res, ok := f.call(w, req, e.Operation, args)
	if !ok {
		return
	}
	var a ExportArgs
	var found struct {
		BatchID string `json:"batch_id"`
	}
	raw, err := json.Marshal(args)
	if err == nil {
		err = errors.Join(json.Unmarshal(raw, &a), json.Unmarshal(res.Result, &found)) // the gate has checked it
	}
	if a.Batch != "" { // whichever the caller means by the name
		a.Batch = found.BatchID
	}
	var archive Archive
	if err == nil {
		archive, err = f.Export(req.Context(), a)
	}
	if err != nil {
		f.problem(w, err)
		return
	}
	h := w.Header()
	setSafeDownloadHeaders(h, archiveType)
	h.Set("Content-Disposition", `attachment; filename="`+archive.Name()+`"`)
	h.Set("Content-Length", strconv.FormatInt(archive.Size(), 10))
	h.Set("Cache-Control", "private, no-cache")
	if err := archive.WriteTo(req.Context(), &heldWriter{w, req.Context()}); err != nil && fault.KindOf(err) == fault.Internal {
		f.Log.Error("an export broke off", "run_id", a.RunID, "batch_id", a.Batch, "err", err)
	}
}

// Export copies the archive of a run or a batch to w. It calls begin with the number of bytes, before the first of
// them. A copy that broke off is a Transport fault.
func (c *Client) Export(ctx context.Context, a ExportArgs, w io.Writer, begin func(size int64)) error {
	q := url.Values{}
	if a.ByReference {
		q.Set("by_reference", "true")
	}
	if a.MaxMB > 0 {
		q.Set("max_size_mb", strconv.FormatInt(a.MaxMB, 10))
	}
	path := "/v1/runs/" + url.PathEscape(a.RunID) + "/export"
	if a.Batch != "" {
		path = "/v1/batches/" + url.PathEscape(a.Batch) + "/export"
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	res, refused, err := c.exchange(ctx, http.MethodGet, path, "", nil)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused.Fault()
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ContentLength < 0 {
		return fault.New(fault.Internal, "", "the gateway answered "+res.Status)
	}
	begin(res.ContentLength)
	out := &failing{w: w}
	n, err := io.Copy(out, res.Body)
	switch {
	case out.err != nil:
		return fault.Wrap(fault.Transport, "target_unwritable", "the archive cannot be written", out.err)
	case ctx.Err() != nil:
		return fault.Wrap(fault.Canceled, "canceled", "the export was interrupted", ctx.Err())
	case err != nil || n != res.ContentLength:
		return fault.Wrap(fault.Transport, "export_cut_off", "only "+strconv.FormatInt(n, 10)+" of "+
			strconv.FormatInt(res.ContentLength, 10)+" bytes of the archive arrived", err).
			WithNext("export again; if it breaks off again, the gateway's log names the artifact that cannot be read, and --by-reference leaves " +
				"artifacts out")
	}
	return nil
}

// failing remembers why a write failed.
type failing struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (f *failing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}
