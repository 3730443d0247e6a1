package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"slurmgate/site"
)

// program is a gateway in a separate process.
type program struct {
	cmd  *exec.Cmd
	http http.Client
}

// serveProgram starts the gateway, and returns when it answers.
func serveProgram(t *testing.T, s *site.Site, conf string) *program {
	t.Helper()
	cmd := exec.Command(os.Args[0], "--site", conf, "serve")
	ready := filepath.Join(filepath.Dir(s.Gateway.StateDir), "notify")
	os.Remove(ready)
	told := value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: ready, Net: "unixgram"}))(t)
	defer told.Close()
	must(t, told.SetReadDeadline(time.Now().Add(time.Minute)))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = append(os.Environ(), "SLURMGATE_TEST_AS_PROGRAM=1", "NOTIFY_SOCKET="+ready)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for b := make([]byte, 4096); ; {
		n, err := told.Read(b)
		if err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("the gateway did not start: %v\n%s", err, said.String())
		}
		if strings.Contains(string(b[:n]), "READY=1") {
			break
		}
	}
	return &program{cmd: cmd, http: http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.Gateway.Socket)
		}}}}
}

// runForm is the answer of :run (AX-04).
type runForm struct {
	OK        bool            `json:"ok"`
	ToolID    string          `json:"tool_id"`
	ToolRunID string          `json:"tool_run_id"`
	Output    json.RawMessage `json:"output"`
	Error     *struct {
		Code      string         `json:"code"`
		Message   string         `json:"message"`
		Retryable bool           `json:"retryable"`
		Details   map[string]any `json:"details"`
	} `json:"error"`
	Meta struct {
		TraceID    string `json:"trace_id"`
		DurationMS int64  `json:"duration_ms"`
	} `json:"meta"`
}

func (p *program) run(tool, key, input string) (out runForm, status int, err error) {
	req, err := http.NewRequest(http.MethodPost, "http://gateway/v1/tools/"+tool+":run", strings.NewReader(`{"input":`+input+`}`))
	if err != nil {
		return out, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := p.http.Do(req)
	if err != nil {
		return out, 0, err
	}
	defer res.Body.Close()
	d := json.NewDecoder(res.Body)
	d.DisallowUnknownFields()
	return out, res.StatusCode, d.Decode(&out)
}

// workerSite returns a site whose domain has one tool, which the worker at the address carries out.
func workerSite(t *testing.T, address string) (*site.Site, string) {
	t.Helper()
	s, _ := plainSite(t)
	s.DomainDir = filepath.Join(filepath.Dir(s.Gateway.StateDir), "web")
	must(t, os.Mkdir(s.DomainDir, 0o755))
	for name, text := range map[string]string{"policies.yaml": "version: 1\n",
		"manifest.yaml": "domain_id: web\nversion: 1.0.0\ntools:\n  - {tool_id: web.scrape, kind: service_worker, timeout_sec: 60, " +
			"transport: {type: http, base_url: \"" + address + "\", endpoint: /run}}\n"} {
		must(t, os.WriteFile(filepath.Join(s.DomainDir, name), []byte(text), 0o600))
	}
	return s, writeSite(t, s)
}

// A gateway that is killed while a worker has a call leaves it in doubt: the next one reports outcome_unknown, the same
// idempotency key gives that outcome, and the worker has seen one request. A call that ends is answered in the form of
// :run. The test uses the program itself, over its socket.
//
// proves AX-04 AX-05
func TestKilledWhileAWorkerHasTheCall(t *testing.T) {
	var seen atomic.Int64
	entered, leave := make(chan string, 1), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		var got struct {
			Meta  struct{ TraceID, ToolRunID string }
			Input struct{ Hold bool }
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal([]byte(strings.NewReplacer("trace_id", "TraceID", "tool_run_id", "ToolRunID").Replace(string(body))), &got)
		}
		if err != nil {
			t.Error(err)
		}
		if got.Input.Hold {
			entered <- got.Meta.ToolRunID
			<-leave
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"ok":true,"meta":{"trace_id":%q,"tool_run_id":%q,"duration_ms":0},"output":{"n":1}}`, got.Meta.TraceID,
			got.Meta.ToolRunID)
	}))
	defer web.Close()
	defer close(leave)
	s, conf := workerSite(t, web.URL)
	first := serveProgram(t, s, conf)
	answered := make(chan error, 1)
	go func() { _, _, err := first.run("web.scrape", "once", `{"hold":true}`); answered <- err }()
	id := <-entered
	must(t, first.cmd.Process.Signal(syscall.SIGKILL))
	if err := <-answered; err == nil {
		t.Error("a gateway that was killed has answered")
	}
	first.cmd.Wait()

	next := serveProgram(t, s, conf)
	again, status, err := next.run("web.scrape", "once", `{"hold":true}`)
	must(t, err)
	if again.OK || again.ToolRunID != id || again.Error.Details["code"] != "outcome_unknown" || again.Error.Code != "INTERNAL" ||
		again.Error.Retryable || status != 500 {
		t.Errorf("status %d, answer %+v, error %+v", status, again, again.Error)
	}
	if n := seen.Load(); n != 1 {
		t.Errorf("the worker has seen %d requests", n)
	}
	fine, status, err := next.run("web.scrape", "", `{"hold":false}`)
	must(t, err)
	if !fine.OK || status != 200 || string(fine.Output) != `{"n":1}` || fine.ToolID != "web.scrape" || fine.ToolRunID == id ||
		fine.Error != nil || !strings.HasPrefix(fine.ToolRunID, "run_") || fine.Meta.TraceID == "" {
		t.Errorf("status %d, answer %+v", status, fine)
	}
	shell := exec.Command(os.Args[0], "--site", conf, "run", "web.scrape", "--json")
	shell.Env = append(os.Environ(), "SLURMGATE_TEST_AS_PROGRAM=1")
	if out, err := shell.Output(); err != nil || strings.Join(strings.Fields(string(out)), "") != `{"n":1}` {
		t.Errorf("run web.scrape printed %s (%v), want the output", out, err)
	}
	show := exec.Command(os.Args[0], "--site", conf, "runs", "show", id)
	show.Env = shell.Env
	out, err := show.Output()
	if err != nil || !strings.Contains(string(out), "outcome_unknown") {
		t.Errorf("runs show printed %s (%v), want outcome_unknown", out, err)
	}
	must(t, next.cmd.Process.Signal(syscall.SIGTERM))
	must(t, next.cmd.Wait())
}
