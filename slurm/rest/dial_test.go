package rest

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/run"
	"slurmgate/run/runtest"
)

// Only a server whose certificate is signed by the site's authority, for the name in the address, gets a request.
//
// proves SITE-06
func TestTLS(t *testing.T) {
	requests := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		body := `{"job_id":7,` + testMeta + `}`
		if r.URL.Path == "/openapi/v3" {
			body = `{"paths":{"/slurm/v0.0.42/ping/":{}}}`
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	empty := filepath.Join(t.TempDir(), "empty.pem")
	write(t, empty, "nothing")
	send := func(url, ca string) run.SendResult {
		s, err := New(Config{URL: url, CA: ca, User: "lab", Cluster: "alpha", RPCPerMinute: 1e6, Script: testScript, Control: oneScript})
		must(t, err)
		t.Cleanup(s.Close)
		return s.Send(t.Context(), testJob(), 1)
	}
	byName := strings.Replace(server.URL, "127.0.0.1", "localhost", 1) // a name that the certificate does not have
	for name, c := range map[string][2]string{"the system's authorities": {server.URL, ""}, "another name": {byName, ca},
		"no authority": {server.URL, empty}, "no file": {server.URL, empty + "x"}} {
		if res := send(c[0], c[1]); res.Outcome != run.SendNotRun || res.Code != run.Unreachable || !strings.Contains(res.Text, "slurm.rest.ca") {
			t.Errorf("Send with %s gives %s, want %s, %s and slurm.rest.ca in the text",
				name, sendText(res), run.SendNotRun, run.Unreachable)
		}
	}
	if requests > 0 {
		t.Errorf("%d requests went to a server that was not proved", requests)
	}
	runtest.WantSend(t, send(server.URL, ca), run.SendAccepted, "")
	plain := strings.Replace(server.URL, "https", "http", 1)
	runtest.WantSend(t, send(plain, ""), run.SendNotRun, "")
}

// A URL that would send the token unencrypted over a network, or that is not an address, is refused.
func TestURLs(t *testing.T) {
	for url, fine := range map[string]bool{
		"unix:/run/s": true, "unix:///run/s": true, "https://h:6820": true, "https://h:6820/": true, "http://127.0.0.1:6820": true,
		"http://[::1]:6820": true, "http://localhost:6820": false, "http://h:6820": false, "http://10.0.0.1:6820": false, "https://h": false,
		"https://u:p@h:1": false, "https://h:1/x": false, "https://h:1?x": false, "unix:s": false, "unix://h/s": false, "ftp://h:1": false,
		"": false, "h:1": false, "%": false,
	} {
		if _, err := New(Config{URL: url, User: "lab", RPCPerMinute: 60}); (err == nil) != fine {
			t.Errorf("New with the URL %q gives %v, want it accepted: %v", url, err, fine)
		}
	}
}
