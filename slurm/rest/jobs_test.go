package rest

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"slurmgate/run"
	"slurmgate/slurm"
)

// The answers in testdata were recorded at the same time as the output of squeue and sacct. Each version shows the same
// jobs.
var recorded = []struct{ release, version string }{
	{"24.11", "v0.0.40"}, {"24.11", "v0.0.41"}, {"24.11", "v0.0.42"}, {"26.05", "v0.0.42"}, {"26.05", "v0.0.43"},
	{"26.05", "v0.0.44"}, {"26.05", "v0.0.45"},
}

// onEach runs f for each version, with a client of its recorded answers and a CLI with the recorded output of Slurm's
// commands.
func onEach(t *testing.T, f func(t *testing.T, s *Slurm, cli *slurm.CLI, release, version string)) {
	for _, c := range recorded {
		t.Run(c.release+" "+c.version, func(t *testing.T) {
			s := serve(t, c.version, func(w http.ResponseWriter, r *http.Request) {
				name := strings.ReplaceAll(strings.Trim(strings.ReplaceAll(strings.TrimPrefix(r.URL.Path, "/slurm/"), c.version, ""), "/"), "//", "-")
				body := recording(t, fmt.Sprintf("%s-%s-%s.json.gz", name, c.release, c.version))
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				w.Write(body)
			})
			f(t, s, printed(t, c.release), c.release, c.version)
		})
	}
}

func recording(t testing.TB, name string) []byte {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	must(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	must(t, err)
	body, err := io.ReadAll(z)
	must(t, err)
	return body
}

// serve starts a fake slurmrestd of one version and returns its client. handler answers all but the requests for
// versions and licenses.
func serve(t *testing.T, version string, handler http.HandlerFunc) *Slurm {
	t.Helper()
	dir, err := os.MkdirTemp("", "rest")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"paths":{"/slurm/%s/ping/":{}}}`, version)
	})
	mux.HandleFunc("/slurm/"+version+"/licenses", func(w http.ResponseWriter, _ *http.Request) { // the request that checks a connection
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"licenses":[]}`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		handler(w, r)
	})
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	s, err := New(Config{URL: "unix:" + l.Addr().String(), User: "lab", RPCPerMinute: 1e6})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// says returns the client of a slurmrestd that gives one answer to every call.
func says(t *testing.T, version string, status int, body string) *Slurm {
	return serve(t, version, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

// printed returns a CLI whose commands print the recorded output of a release.
func printed(t *testing.T, release string) *slurm.CLI {
	t.Helper()
	bin := t.TempDir()
	data, err := filepath.Abs("testdata")
	must(t, err)
	columns := map[string]string{"24.11": "Restarts WorkDir", "26.05": "Restarts SLUID WorkDir"}[release]
	for name, script := range map[string]string{
		"squeue": fmt.Sprintf("cat %s/squeue-%s.txt", data, release),
		"sacct": fmt.Sprintf(`case "$*" in *helpformat*) echo Reason %[3]s;; *ElapsedRaw*) cat %[1]s/usage-%[2]s.txt;;
			*) cat %[1]s/sacct-%[2]s.txt;; esac`, data, release, columns),
	} {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	cli, err := slurm.NewCLI(slurm.Config{BinDir: bin, User: "lab", RPCPerMinute: 1e6})
	must(t, err)
	return cli
}

func sorted(jobs []run.Job) []run.Job {
	slices.SortFunc(jobs, func(a, b run.Job) int {
		task := func(j run.Job) int {
			if j.Task == nil {
				return -1
			}
			return *j.Task
		}
		at := func(j run.Job) int64 { return cmp.Or(j.Submitted, new(time.Time{})).Unix() }
		return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID), task(a)-task(b), cmp.Compare(at(a), at(b)))
	})
	return jobs
}

// Every version shows the same queue as squeue.
//
// proves SITE-06
func TestJobsAsSqueue(t *testing.T) {
	onEach(t, func(t *testing.T, s *Slurm, cli *slurm.CLI, release, _ string) {
		want, err := cli.Jobs(t.Context(), nil)
		if err != nil || len(want) != 17 {
			t.Fatalf("squeue of %s: %d jobs, %v", release, len(want), err)
		}
		got, err := s.Jobs(t.Context(), nil)
		must(t, err)
		shown := 0
		for i := range got {
			if got[i].SLUID != "" {
				shown++
			}
			got[i].SLUID = "" // squeue does not show it
		}
		if diff := gocmp.Diff(sorted(want), sorted(got)); diff != "" {
			t.Error("squeue -, slurmrestd +:\n" + diff)
		}
		if release == "26.05" && shown != 0 && shown != len(got) {
			t.Errorf("%d of %d jobs have a SLUID", shown, len(got))
		}
		renamed, err := s.Jobs(t.Context(), map[string]bool{"32": true})
		if err != nil || len(renamed) != len(got)+1 {
			t.Errorf("%d jobs with a sought one under another name, %d without: %v", len(renamed), len(got), err)
		}
	})
}

// Every version shows the same accounting as sacct, including requeued starts and the record that accounting closed.
func TestRecordsAsSacct(t *testing.T) {
	onEach(t, func(t *testing.T, s *Slurm, cli *slurm.CLI, release, version string) {
		since := time.Unix(1795000000, 0)
		want, err := cli.Records(t.Context(), since)
		must(t, err)
		got, err := s.Records(t.Context(), since)
		must(t, err)
		// Tasks of an array that never had separate records: "11_[1-3]", which is split, and a bitmap, which cannot be
		// read.
		folded := func(j run.Job) bool { return j.Name == "sg-array" && (j.Class == run.ClassUnread || j.Started == nil) }
		want, got = slices.DeleteFunc(want, folded), slices.DeleteFunc(got, folded)
		for _, list := range [][]run.Job{want, got} {
			for i := range list {
				j := &list[i]
				switch {
				case version == "v0.0.40" || version == "v0.0.41": // these versions do not show it
					j.Restarts = -1
				}
				if version < "v0.0.45" {
					j.SLUID = ""
				}
				j.By = cmp.Or(map[string]string{"lab": "1001", "root": "0"}[j.By], j.By) // sacct prints the number
			}
		}
		if diff := gocmp.Diff(sorted(want), sorted(got)); diff != "" {
			t.Error("sacct -, slurmrestd +:\n" + diff)
		}
		closed := slices.DeleteFunc(got, func(j run.Job) bool { return !j.Closed })
		if len(closed) != 1 || closed[0].Name != "sg-closed" {
			t.Errorf("closed by accounting are %+v, want sg-closed alone", closed)
		}
	})
}

// The usage of ended jobs equals the sums of sacct.
func TestUsageAsSacct(t *testing.T) {
	onEach(t, func(t *testing.T, s *Slurm, cli *slurm.CLI, release, _ string) {
		since := time.Unix(1795000000, 0)
		records, err := cli.Records(t.Context(), since)
		must(t, err)
		key := func(id string, at *time.Time) string { return fmt.Sprint(id, " ", at) }
		ended := map[string]bool{}
		for _, j := range records {
			ended[key(j.ID, j.Submitted)] = j.Class == run.ClassEnded && j.Started != nil
		}
		of := func(list []run.Usage, err error) []run.Usage {
			must(t, err)
			list = slices.DeleteFunc(list, func(u run.Usage) bool { return !ended[key(u.JobID, u.Submitted)] })
			for i := range list {
				u := &list[i]
				u.CPUSeconds = float64(int64(u.CPUSeconds*1000)) / 1000 // sacct prints milliseconds
			}
			slices.SortFunc(list, func(a, b run.Usage) int {
				return cmp.Or(strings.Compare(key(a.JobID, a.Submitted), key(b.JobID, b.Submitted)),
					cmp.Compare(a.CPUSeconds, b.CPUSeconds))
			})
			return list
		}
		want, got := of(cli.Usage(t.Context(), since)), of(s.Usage(t.Context(), since))
		if diff := gocmp.Diff(want, got); diff != "" || len(want) < 10 {
			t.Errorf("%d jobs; sacct -, slurmrestd +:\n%s", len(want), diff)
		}
	})
}
