package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
)

// boxed is an archive of a text.
type boxed struct {
	args ExportArgs
	size int64
	text string
	err  error // after the text
}

func (b boxed) Name() string { return b.args.RunID + ".crate.zip" }
func (b boxed) Size() int64  { return b.size }

func (b boxed) WriteTo(_ context.Context, w io.Writer) error {
	if _, err := io.WriteString(w, b.text); err != nil {
		return err
	}
	return b.err
}

// An archive comes with its name and its length; one that breaks off is shorter than that, so no client accepts it as
// whole.
//
// proves EXP-01
func TestExport(t *testing.T) {
	d := newDesk(t)
	r := d.send("GET /v1/runs/"+runA+"/export", "")
	if r.status != 200 || string(r.body) != "PK..." || r.header.Get("Content-Type") != archiveType || r.header.Get("Content-Length") != "5" ||
		r.header.Get("Content-Disposition") != `attachment; filename="`+runA+`.crate.zip"` {
		t.Errorf("%d %v %q", r.status, r.header, r.body)
	}
	var got ExportArgs
	d.export = func(_ context.Context, a ExportArgs) (Archive, error) {
		got = a
		return nil, fault.New(fault.Conflict, "run_not_over", "the run is not over")
	}
	r = d.send("GET /v1/runs/"+runA+"/export?by_reference=true&max_size_mb=7", "")
	if r.status != 409 || got != (ExportArgs{RunID: runA, ByReference: true, MaxMB: 7}) {
		t.Errorf("the export of a run was answered with %d %s and called with %+v, want 409, by reference, 7 MB", r.status,
			r.body, got)
	}
	r = d.send("GET /v1/batches/qc/export?max_size_mb=7", "")
	if r.status != 409 || got != (ExportArgs{Batch: "batch_x", MaxMB: 7}) {
		t.Errorf("the batch that the gate found: %d %s, called with %+v; want 409, batch_x, 7 MB", r.status, r.body, got)
	}
	for _, q := range []string{"?by_reference=maybe", "?max_size_mb=x", "?other=1", "?by_reference=true&by_reference=true"} {
		if r := d.send("GET /v1/runs/"+runA+"/export"+q, ""); r.status != 400 {
			t.Errorf("%s: %d %s", q, r.status, r.body)
		}
	}
	d.export = func(_ context.Context, a ExportArgs) (Archive, error) {
		return boxed{args: a, size: 1000, text: "PK", err: fault.New(fault.Internal, "artifact_corrupt", "damaged")}, nil
	}
	res, err := d.get("/v1/runs/" + runA + "/export")
	if err == nil {
		defer res.Body.Close()
		if _, err = io.ReadAll(res.Body); err == nil {
			t.Error("an archive that broke off was read to its end")
		}
	}
}

func (d *desk) get(path string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, d.url(path), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer all")
	return http.DefaultClient.Do(req)
}

// A client reports whether an archive arrived whole, broke off, was refused, or could not be written.
func TestClientExport(t *testing.T) {
	answers := http.NewServeMux()
	answers.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	answers.HandleFunc("GET /v1/runs/whole/export", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "PK...")
	})
	answers.HandleFunc("GET /v1/runs/cut/export", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "50")
		io.WriteString(w, "PK...")
	})
	answers.HandleFunc("GET /v1/runs/open/export", func(w http.ResponseWriter, req *http.Request) {
		problem(w, fault.New(fault.Conflict, "run_not_over", "the run is not over"))
	})
	socket := filepath.Join(t.TempDir(), "s")
	l := value(net.Listen("unix", socket))(t)
	s := httptest.NewUnstartedServer(answers)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	c := value(Dial(t.Context(), socket))(t)
	for _, x := range []struct{ run, code, text string }{{"whole", "", "PK..."}, {"cut", "export_cut_off", "PK..."},
		{"open", "run_not_over", ""}} {
		var b strings.Builder
		err := c.Export(t.Context(), ExportArgs{RunID: x.run}, &b, func(int64) {})
		if (err == nil) != (x.code == "") || err != nil && fault.CodeOf(err) != x.code || b.String() != x.text {
			t.Errorf("%s: %v %q", x.run, err, b.String())
		}
	}
	broken := errors.New("the disk is full")
	if err := c.Export(t.Context(), ExportArgs{RunID: "whole"}, failingAlways{broken}, func(int64) {}); !errors.Is(err, broken) ||
		fault.CodeOf(err) != "target_unwritable" {
		t.Error(err)
	}
}

type failingAlways struct{ err error }

func (f failingAlways) Write([]byte) (int, error) { return 0, f.err }
