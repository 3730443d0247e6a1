package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// A program that exits 0 and writes errors to standard error gives a run that succeeded with a warning, which every face shows.
func TestStderrWarningOnEveryFace(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	p := s.openPort(t)
	run := s.submit(probePlan("print", `reading\nerror: record 7 is truncated\n`)).RunID
	if l := s.wait(run); l.State != "succeeded" || len(l.Warnings) != 1 {
		t.Fatalf("%+v", l)
	}
	const line = "error: record 7 is truncated"
	for _, args := range [][]string{{"get", run}, {"collect", run}, {"wait", run}, {"runs", "show", run}, {"get", run, "--json"},
		{"collect", run, "--json"}} {
		if r := s.cli(args...); !strings.Contains(string(r.stdout)+string(r.stderr), line) {
			t.Errorf("%v does not show the warning: %v", args, r)
		}
	}
	for _, path := range []string{"/v1/runs/" + run, "/v1/runs/" + run + "/result", "/v1/runs/" + run + "/story"} {
		if status, body := p.send("GET", path, ""); status != 200 || !strings.Contains(string(body), line) {
			t.Errorf("GET %s does not show the warning: %d %s", path, status, body)
		}
	}
	c := s.chat(t, "2026-07-28")
	for _, tool := range []string{"slurm_job_get", "slurm_job_collect"} {
		c.expect(c.say(tool, tree{"run_id": run}, nil), line)
	}
}

// A gzip file too large to be inflated as it is imported passes with its end cut off, unless the site asks for the full check.
func TestFullCheckOfImports(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.NoCompression)
	must(t, err)
	_, err = io.CopyN(w, rand.NewChaCha8([32]byte{}), 65<<20) // more than is inflated unless the site asks for it
	must(t, err)
	must(t, w.Close())
	file := s.file("large.fa.gz", zipped.String()[:zipped.Len()-100])
	s.ok(nil, "artifact", "import", "--type", "FASTA_GZ", file)
	s.replace("site.yaml", "import:\n", "import:\n  full_check: true\n")
	if f := s.fails(2, "artifact", "import", "--type", "FASTA_GZ", file); f.Code != "IMPORT-FORMAT" {
		t.Errorf("%+v", f)
	}
}
