package httpapi

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// BundledAtMost is the size in bytes of the largest output that comes with others; a larger one is fetched
// separately.
const BundledAtMost = 1 << 20

const tarType = "application/x-tar"

// bundle sends the outputs of a page of a batch's rows as one tar file, each under the id of its artifact: one call
// of the gate, for the list of the same rows, allows all of them. Directories, large outputs and missing ones are
// left out: a client fetches such an output alone, and gets the reason if that fails.
func (f *face) bundle(w http.ResponseWriter, req *http.Request, e endpoint) {
	end, ok := f.streaming(w, req)
	if !ok {
		return
	}
	defer end()
	transfers(req.Context())
	args, status, err := e.read(w, req)
	if err != nil {
		f.malformed(w, req, e.Operation, status, err)
		return
	}
	args["outputs"] = json.RawMessage("true")
	res, ok := f.call(w, req, e.Operation, args)
	if !ok {
		return
	}
	list, err := bundled(res)
	if err != nil {
		problem(w, err)
		return
	}
	setSafeDownloadHeaders(w.Header(), tarType)
	w.Header().Set("Content-Disposition", "attachment")
	out := bufio.NewWriterSize(&heldWriter{w, req.Context()}, 64<<10)
	t := tar.NewWriter(out)
	for _, a := range list {
		if err == nil {
			err = f.addTo(t, a)
		}
	}
	if err = errors.Join(err, t.Close(), out.Flush()); err != nil {
		panic(http.ErrAbortHandler) // the status is sent: the connection ends without the end of the body
	}
}

// packed is an output of a bundle.
type packed struct {
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	Size       int64  `json:"size_bytes"`
	SHA256     string `json:"checksum_sha256"`
	Gone       bool   `json:"gone"`
}

// bundled returns the outputs of a page that belong in a bundle, each artifact once.
func bundled(res gate.Response) (list []packed, err error) {
	if res.ResultRef != nil {
		return nil, fault.New(fault.Validation, "page_too_large", "the rows have too many outputs for one bundle").
			WithNext("ask for fewer rows with limit")
	}
	var page struct {
		Rows []struct {
			Outputs []packed `json:"outputs"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(res.Result, &page); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, r := range page.Rows {
		for _, o := range r.Outputs {
			if o.Type != plan.Directory && o.Size <= BundledAtMost && !o.Gone && !seen[o.ArtifactID] {
				seen[o.ArtifactID], list = true, append(list, o)
			}
		}
	}
	return list, nil
}

// addTo adds an artifact to a tar file, unless its bytes are not there.
func (f *face) addTo(t *tar.Writer, a packed) error {
	file, err := f.Contents.Open(a.SHA256)
	if fault.Is(err, fault.NotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: a.ArtifactID, Mode: 0o644, Size: a.Size}); err != nil {
		return err
	}
	_, err = io.Copy(t, file) // one of another size is an error
	return err
}

// Bundle calls f with the outputs of a page of a batch's rows that succeeded, as far as they come together.
func (c *Client) Bundle(ctx context.Context, batch string, after, limit int, f func(artifactID string, r io.Reader) error) error {
	q := url.Values{"state": {"succeeded"}, "after_row": {strconv.Itoa(after)}, "limit": {strconv.Itoa(limit)}}
	res, refused, err := c.exchange(ctx, http.MethodGet, "/v1/batches/"+url.PathEscape(batch)+"/contents?"+q.Encode(), "", nil)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused.Fault()
	}
	defer res.Body.Close()
	t := tar.NewReader(bufio.NewReaderSize(res.Body, 64<<10))
	for {
		h, err := t.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, res.Body) // for the connection's next request
			return err
		}
		if err != nil {
			return c.gone(ctx, err)
		}
		if err := f(h.Name, t); err != nil {
			return err
		}
	}
}
