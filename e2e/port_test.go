package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// port is a gateway's HTTP port, reached from this machine: a connection here becomes one on the login node.
type port struct {
	t     testing.TB
	url   string
	token string
	by    *daemon
}

var portLine = regexp.MustCompile(`HTTP and MCP at http://127\.0\.0\.1:(\d+),`)

// openPort starts a gateway with a port, makes a token as its admin does, and listens here at the same number.
func (s *site) openPort(t testing.TB) *port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a number that is free here is free there
	must(t, err)
	number := l.Addr().(*net.TCPAddr).Port
	s.replace("site.yaml", "watch:\n", fmt.Sprintf("http:\n  listen: 127.0.0.1:%d\nwatch:\n", number))
	d := s.serve()
	until(t, "port", func() bool { return portLine.MatchString(d.text.String()) })
	var made struct {
		Token string `json:"token"`
	}
	s.ok(&made, "token", "create", "robot", "--capability", "gateway,read,import,slurm", "--project", "demo")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				cmd := inCluster("lab", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; cat <&3 & cat >&3; wait", number))
				cmd.Stdout = c
				in, err := cmd.StdinPipe()
				if err != nil || cmd.Start() != nil {
					return
				}
				go func() { _, _ = io.Copy(in, c); in.Close() }() // the client hung up
				_ = cmd.Wait()                                    // so did the gateway
			}()
		}
	}()
	t.Cleanup(func() { l.Close() })
	return &port{t, fmt.Sprintf("http://127.0.0.1:%d", number), made.Token, d}
}

func (p *port) send(method, path, body string, headers ...string) (int, []byte) {
	p.t.Helper()
	req := value(http.NewRequest(method, p.url+path, strings.NewReader(body)))(p.t)
	req.Header.Set("Authorization", "Bearer "+p.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	ctx, stop := context.WithDeadline(p.t.Context(), deadline(p.t))
	defer stop()
	res := value(http.DefaultClient.Do(req.WithContext(ctx)))(p.t)
	defer res.Body.Close()
	b := value(io.ReadAll(res.Body))(p.t)
	return res.StatusCode, b
}

func (p *port) ok(into any, method, path, body string, headers ...string) {
	p.t.Helper()
	status, b := p.send(method, path, body, headers...)
	if status > 299 {
		p.t.Fatalf("%s %s answers %d %s, want a success", method, path, status, b)
	}
	must(p.t, json.Unmarshal(b, into))
}

// chat connects a chat to the port.
func (p *port) chat(t testing.TB) *chat {
	t.Helper()
	session := value(sdk.NewClient(&sdk.Implementation{Name: "e2e", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: p.url + "/mcp", DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: withToken(p.token)}}, nil))(t)
	t.Cleanup(func() { session.Close() })
	return &chat{t: t, session: session}
}

// A whole run over the port with a token: upload, run, result, bytes; the same by chat; and figures.
//
// proves AX-04, HTC-06
// short: HTTP
func TestPort(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	p := s.openPort(t)
	reads := value(os.ReadFile(host(data("reads-small.fastq.gz"))))(t)
	var in artifactRow
	p.ok(&in, "POST", "/v1/artifacts?label=reads.fastq.gz", string(reads), "Content-Type: application/octet-stream")
	same(t, "type of the upload", in.Type, "FASTQ_GZ")
	var run struct {
		OK        bool   `json:"ok"`
		ToolRunID string `json:"tool_run_id"`
		Output    submitted
	}
	body := `{"input":{"reads":"` + in.ArtifactID + `"}}`
	p.ok(&run, "POST", "/v1/tools/seqkit.stats:run", body)
	same(t, "run id", run.ToolRunID, run.Output.RunID)
	var got struct {
		Ready bool              `json:"ready"`
		State string            `json:"state"`
		Roles map[string]string `json:"artifacts_by_role"`
	}
	until(t, "result", func() bool {
		p.ok(&got, "GET", "/v1/runs/"+run.ToolRunID+"/result?wait_seconds=20", "")
		return got.Ready
	})
	if status, b := p.send("GET", "/v1/artifacts/"+got.Roles["stats"]+"/content", "", "Range: bytes=0-3"); status != 206 ||
		string(b) != "file" {
		t.Errorf("the first four bytes of the output: %d %q, want 206 \"file\"", status, b)
	}
	if status, b := p.send("GET", "/v1/runs/"+run.ToolRunID+"/events", "", "Accept: text/event-stream"); status != 200 || !bytes.Contains(b,
		[]byte("event: over")) {
		t.Errorf("the events of an ended run: %d %s, want 200 and event: over", status, b)
	}
	p.ok(&run, "POST", "/v1/tools/seqkit.stats:run", body)
	if !run.Output.Replayed {
		t.Error("the same request is not the same run")
	}
	c := p.chat(t)
	c.expect(c.say("slurm_job_collect", tree{"run_id": run.ToolRunID}, nil), "is succeeded")
	c.expect(c.say("artifact_preview_text", tree{"artifact_id": got.Roles["stats"]}, nil), "num_seqs")
	if status, b := p.send("GET", "/metrics", ""); status != 403 || !bytes.Contains(b, []byte("capability_denied")) {
		t.Errorf("a token of one project reads the metrics of the site: %d %s", status, b)
	}
	var scraper struct {
		Token string `json:"token"`
	}
	s.ok(&scraper, "token", "create", "prometheus", "--capability", "metrics", "--project", "*")
	figures := *p
	figures.token = scraper.Token
	if status, b := figures.send("GET", "/metrics", ""); status != 200 || !bytes.Contains(b, []byte(`slurmgate_runs{state="succeeded"} 1`)) ||
		!bytes.Contains(b, []byte(`slurmgate_slurm_requests_total{command="sbatch",outcome="accepted",site="e2e"} 1`)) ||
		!bytes.Contains(b, []byte(`slurmgate_bytes_total{direction="collect",site="e2e"}`)) || !bytes.Contains(b,
		[]byte(`tool="seqkit.stats",transport="other"`)) {
		t.Errorf("the metrics for a token with that right: %d %s, want 200 and figures of the run", status, b)
	}
	if status, b := p.send("GET", "/v1/runs/"+run.ToolRunID+"/story", ""); status != 200 || bytes.Contains(b, []byte(s.dir)) {
		t.Errorf("a path of the gateway's host is shown: %d %s", status, b)
	}
}

type withToken string

// RoundTrip implements http.RoundTripper.
func (t withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+string(t))
	return http.DefaultTransport.RoundTrip(req)
}

// A tool is brought in by fixed steps: write it, list it in the manifest, check it, start; then the catalogue has it under another
// version, and it runs.
//
// proves AX-07, AX-11
func TestOnboarding(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	var before, after struct {
		Version string `json:"version"`
		Tools   []struct {
			ToolID string `json:"tool_id"`
		} `json:"tools"`
	}
	s.ok(nil, "gc") // which creates the ledger; a read does not
	s.ok(&before, "tool", "list")
	pack := value(os.ReadFile(host(s.dir) + "/domain/toolpacks/probe.words.tool.yaml"))(t)
	must(t, os.WriteFile(host(s.dir)+"/domain/toolpacks/probe.fresh.tool.yaml", bytes.Replace(pack, []byte("id: probe.words"),
		[]byte("id: probe.fresh"), 1), 0o644))
	if r := s.cli("tool", "check", s.dir+"/domain"); r.code != 2 || !strings.Contains(string(r.stderr), "probe.fresh") {
		t.Errorf("a tool the manifest does not list: %v", r)
	}
	s.replace("domain/manifest.yaml", "tools:\n", "tools:\n  - tool_id: probe.fresh\n    kind: job_worker\n")
	s.ok(nil, "tool", "check", s.dir+"/domain")
	p := s.openPort(t)
	p.ok(&after, "GET", "/v1/tools", "")
	if after.Version == before.Version || len(after.Tools) != len(before.Tools)+1 || after.Tools[0].ToolID != "probe.fresh" {
		t.Errorf("the catalogue is %+v, and was %+v; want probe.fresh added under another version", after, before)
	}
	var run struct {
		ToolRunID string `json:"tool_run_id"`
	}
	p.ok(&run, "POST", "/v1/tools/probe.fresh:run", `{"input":{"word":"hello"}}`)
	same(t, "state", s.wait(run.ToolRunID).State, "succeeded")
}
