package rest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/run"
	"slurmgate/run/runtest"
)

// TestMain runs the tests, or a fake slurmrestd on its pipes.
func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] != "inetd" {
		os.Exit(m.Run())
	}
	for in := bufio.NewReader(os.Stdin); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		body := `{"job_id":7,` + testMeta + `}`
		if r.URL.Path == "/openapi/v3" {
			body = `{"paths":{"/slurm/v0.0.42/ping/":{}}}`
		}
		if os.Getenv("SLURM_JWT") != "" {
			body = `{"errors":[{"error_number":2002}]}`
		}
		os.Stdout.Write(said(200, body))
	}
}

func ofChild(t *testing.T, argv ...string) *Slurm {
	s, err := New(Config{Command: argv, User: "lab", Cluster: "alpha", RPCPerMinute: 1e6, Script: testScript, Control: oneScript})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// One child serves several calls.
func TestChild(t *testing.T) {
	t.Setenv("SLURM_JWT", "of the gateway's caller")
	self, err := os.Executable()
	must(t, err)
	s := ofChild(t, self, "inetd")
	for k := range 3 {
		runtest.WantSend(t, s.Send(t.Context(), testJob(), k+1), run.SendAccepted, "")
	}
	if n := len(s.client.pool.idle); n != 1 {
		t.Errorf("%d children", n)
	}
}

// A child that is missing, dies, or prints something else submits no job; its output is in the message.
func TestUselessChildren(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		says string
	}{
		"missing":  {[]string{filepath.Join(t.TempDir(), "slurmrestd")}, "no such file"},
		"dies":     {[]string{"/bin/sh", "-c", "echo fatal: should not be run as root >&2; exit 1"}, "should not be run as root"},
		"garbage":  {[]string{"/bin/sh", "-c", "echo garbage; cat >/dev/null"}, "did not answer"},
		"reads on": {[]string{"/bin/sh", "-c", "read line; echo fatal: got $line >&2"}, "fatal: got GET"},
	} {
		t.Run(name, func(t *testing.T) {
			res := ofChild(t, c.argv...).Send(t.Context(), testJob(), 1)
			if res.Outcome != run.SendNotRun || res.Scope != run.ScopeSite || !strings.Contains(res.Text, c.says) {
				t.Errorf("the send through a useless child ended as %s, want not run, with what it says", sendText(res))
			}
		})
	}
}

// A call to a child that never answers ends with its context.
func TestSilentChild(t *testing.T) {
	s := ofChild(t, "/bin/sh", "-c", "exec cat >/dev/null")
	for within := 100 * time.Millisecond; ; within *= 2 { // until the child starts within that time
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err := s.client.call(ctx, request{method: "GET", path: "/openapi/v3"})
		if cancel(); wasNotSent(err) && within < time.Minute {
			continue
		}
		if err == nil || wasNotSent(err) {
			t.Errorf("a call of a child that never answers = %v, want an error after it was sent", err)
		}
		return
	}
}
