package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/worker"
)

const sensitiveManifest = `domain_id: web
version: 1.0.0
tools:
  - tool_id: web.scrape
    kind: service_worker
    transport: {type: http, base_url: "URL", endpoint: /run}
    timeout_sec: 300
    sensitive: [api_token, login]
  - tool_id: web.slow
    kind: service_worker
    transport: {type: http, base_url: "URL", endpoint: /run}
    timeout_sec: 3
    sensitive: [api_token, login]
`

// leaks lists where a value was found: any file below dir that contains it, plain or encoded as in JSON and URLs.
func leaks(t *testing.T, dir string, values []string) (found []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a temporary file that was there when the folder was listed
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files++
		for _, v := range values {
			quoted, _ := json.Marshal(v)
			if strings.Contains(string(data), v) || strings.Contains(string(data), strings.Trim(string(quoted), `"`)) {
				found = append(found, fmt.Sprintf("%s: %s", path, v))
			}
		}
		return err
	})
	if err != nil || files < 2 {
		t.Error(files, err)
	}
	return found
}

// The value of a sensitive argument reaches the worker. It is in no file of the gateway: neither while the worker has
// the call, which is the state that a killed gateway leaves, nor after the call succeeded, failed, was refused,
// rehearsed, or got no answer.
func TestSensitiveArguments(t *testing.T) {
	t.Parallel() // it waits for seconds
	values := []string{"ghp_0123456789abcdefghijABCDEFGHIJ012345", `it's a "quiet" day/7`, "31415926"}
	token, login, pin := values[0], values[1], values[2]
	dir := t.TempDir()
	b := &bench{t: t}
	server := httptest.NewServer(b)
	defer server.Close()
	domain := t.TempDir()
	for name, text := range map[string]string{"manifest.yaml": strings.ReplaceAll(sensitiveManifest, "URL", server.URL),
		"policies.yaml": "version: 1\n"} {
		must(t, os.WriteFile(filepath.Join(domain, name), []byte(text), 0o600))
	}
	b.Gateway = gatewayOver(t, dir, domain, "version: 1\n")
	if _, err := b.Sites.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	defer close(hang)
	echo := fmt.Sprintf("seen %s, %s and %s", token, login, pin)
	quoted, _ := json.Marshal(echo)
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
		if in := string(r.Input); !strings.Contains(in, token) || !strings.Contains(in, pin) || strings.Contains(in, gate.Redacted) {
			t.Errorf("the worker was given %s", in)
		}
		// The request itself selects the answer: one that its caller gave up may be read while the next is being
		// made.
		var in struct {
			URL string `json:"url"`
		}
		if err := json.Unmarshal(r.Input, &in); err != nil {
			t.Errorf("the worker was given %s: %v", r.Input, err)
		}
		for _, l := range leaks(t, dir, values) {
			t.Errorf("while the worker has the call (%s): %s", in.URL, l)
		}
		switch in.URL {
		case "echo":
			says(w, r, true, `"output":{"text":`+string(quoted)+`,"list":[`+pin+`]}`)
		case "large":
			says(w, r, true, `"output":{"text":`+string(quoted)+`,"rest":"`+strings.Repeat("x", gate.MaxInline)+`"}`)
		case "error":
			says(w, r, false, `"error":{"code":"UPSTREAM_ERROR","message":`+string(quoted)+`,"retryable":false,"details":{"text":`+string(quoted)+`}}`)
		case "html":
			fmt.Fprintf(w, "<html>%s</html>", echo)
		case "hang":
			<-hang
		default:
			panic(http.ErrAbortHandler) // the worker crashes: the connection ends
		}
	})
	request := func(tool, mode string) gate.Request {
		args, err := json.Marshal(map[string]any{"url": mode, "api_token": token, "login": []any{login, map[string]any{"pin": 31415926}}})
		must(t, err)
		return gate.NewRequest(tool, "1.0.0", args)
	}
	var said strings.Builder
	for _, m := range []string{"echo", "large", "error", "html", "hang", "crash"} {
		tool := "web.scrape"
		if m == "hang" {
			tool = "web.slow"
		}
		res := b.call(request(tool, m))
		raw, _ := json.Marshal(res)
		said.Write(raw)
		if (res.Error == nil) != (m == "echo" || m == "large") {
			t.Errorf("%s: %+v", m, res.Error)
		}
	}
	reached := len(b.sent())
	dry, refused, unknown := request("web.scrape", "dry run"), request("web.scrape", "refused"), request("web.scrape", "unknown")
	dry.DryRun, refused.ToolVersion = true, "9.9.9"
	unknown.Args = json.RawMessage(strings.Replace(string(unknown.Args), `"url":`, `"api_key":"`+token+`","url":`, 1))
	for _, r := range []gate.Request{dry, refused, unknown} {
		raw, _ := json.Marshal(b.call(r))
		said.Write(raw)
	}
	if n := len(b.sent()); n != reached || reached < 5 { // the slow one may have timed out before it was sent
		t.Errorf("the worker was reached %d times, then %d", reached, n)
	}
	b.Gate.Close()
	for _, l := range leaks(t, dir, values) {
		t.Error("afterwards:", l)
	}
	for _, v := range values {
		if strings.Contains(said.String(), v) {
			t.Errorf("the answers hold %q", v)
		}
	}
}
