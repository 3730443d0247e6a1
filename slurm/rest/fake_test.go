package rest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
)

const testMeta = `"meta":{"slurm":{"release":"24.11.5","cluster":"alpha"}}`

// fake is a slurmrestd that answers with exactly the bytes of a test, so that an answer may be wrong in any way.
type fake struct {
	socket  string
	version string
	says    func(r *http.Request, body []byte) []byte // answers all requests but those for versions and licenses; then the connection ends
	proof   func(r *http.Request) []byte              // answers the request that checks the token; nil: accepted

	mu   sync.Mutex
	seen []string // method, path and token of each whole request
}

func (f *fake) requests(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		if strings.HasPrefix(s, method+" ") {
			n++
		}
	}
	return n
}

func newFake(t testing.TB, version string, says func(*http.Request, []byte) []byte) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "rest") // a socket's path must be short
	must(t, err)
	f := &fake{socket: filepath.Join(dir, "s"), version: version, says: says}
	l, err := net.Listen("unix", f.socket)
	must(t, err)
	t.Cleanup(func() {
		l.Close()
		os.RemoveAll(dir)
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *fake) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.seen = append(f.seen, fmt.Sprintln(r.Method, r.URL.Path, r.Header["X-Slurm-User-Token"]))
		f.mu.Unlock()
		switch {
		case r.URL.Path == "/openapi/v3":
			c.Write(said(200, `{"paths":{"/slurm/`+f.version+`/ping/":{"get":[1,2]},"/slurmdb/v0.0.99/jobs/":{}},"info":null}`))
		case strings.HasSuffix(r.URL.Path, "/licenses") && f.proof == nil:
			c.Write(said(200, `{"licenses":[],`+testMeta+`,"errors":[]}`))
		case strings.HasSuffix(r.URL.Path, "/licenses"):
			c.Write(f.proof(r))
		default:
			// Announced, or a client may send its next request while this connection closes.
			c.Write(bytes.Replace(f.says(r, body), []byte("\r\n"), []byte("\r\nConnection: close\r\n"), 1))
			return
		}
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// said formats an answer as slurmrestd writes it.
func said(status int, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%s", status,
		strings.ToUpper(http.StatusText(status)), len(body), body)
}

func plainly(status int, body string) []byte {
	return bytes.Replace(said(status, body), []byte("application/json"), []byte("text/plain"), 1)
}

// client returns a transport to the fake.
func (f *fake) client(t testing.TB, change ...func(*Config)) *Slurm {
	t.Helper()
	c := Config{URL: "unix:" + f.socket, User: "lab", Cluster: "alpha", RPCPerMinute: 1e6, Script: testScript, Control: oneScript}
	for _, f := range change {
		f(&c)
	}
	s, err := New(c)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

var testScript = slurm.ScriptConfig{Runtime: slurm.Runtime{Path: "/usr/bin/apptainer"}, GraceSeconds: 10, VerifyAllowanceSeconds: 300}

// testJob returns a job with every property that a plan can request.
func testJob() run.JobSpec {
	id, token := "run_5ZVRBH60FCDGR2V2G5X0Z8NVV1", strings.Repeat("0123456789abcdef", 2)
	gpus, kind, qos, constraint := 2, "a100", "normal", "intel&avx2"
	spec := plan.Spec{Version: plan.SpecVersion,
		Resources: plan.Resources{TimeLimitSeconds: 600, CPUs: 4, MemMB: 2000, GPUs: &gpus, GPUType: &kind},
		Placement: plan.Placement{Partition: "main", Account: "research", QOS: &qos, Constraint: &constraint},
		Execution: plan.Execution{Kind: "container", Container: plan.Container{Engine: "apptainer",
			Image: "sha256:" + strings.Repeat("ab", 32), NetworkMode: "none", ReadonlyRootfs: true}, Command: plan.Command{Argv: []string{"true"}}},
		IO: plan.IO{Outputs: []plan.Output{{Role: "mark", SrcRelpath: "out/mark", Type: "TEXT", Label: "mark"}}}}
	spec.Fill()
	return run.JobSpec{RunID: id, N: 1, Token: token, JobName: run.JobName(id, 1, token), ToolID: "samtools.flagstat",
		Principal: run.Principal{ID: "prn_1", Name: "user:alice"}, Spec: spec, RunDir: "/shared/runs/" + id, Exclude: []string{"n1", "n2"}}
}

// sendText formats the result of a send for a failure text.
func sendText(r run.SendResult) string {
	return fmt.Sprintf("{%s, code %q, scope %q, job %q, cluster %q: %q}", r.Outcome, r.Code, r.Scope, r.JobID, r.Cluster, r.Text)
}
