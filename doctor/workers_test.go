package doctor

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/site"
	"slurmgate/toolpack"
	"slurmgate/worker"
)

// refusing returns a worker that refuses a probe with an error of the contract.
func refusing(code string, change func(http.Header)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(body), `"trace_id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		w.Header().Set("Content-Type", "application/json")
		change(w.Header())
		if code == "" {
			fmt.Fprintf(w, `{"ok":true,"meta":{"trace_id":"%s","tool_run_id":"%[1]s","duration_ms":0},"output":{}}`, id)
			return
		}
		fmt.Fprintf(w, `{"ok":false,"meta":{"trace_id":"%s","tool_run_id":"%[1]s","duration_ms":0},
			"error":{"code":"%s","message":"m","retryable":false}}`, id, code)
	}
}

func nothing(http.Header) {}

func shiftedBy(d time.Duration) func(http.Header) {
	return func(h http.Header) { h.Set("Date", time.Now().Add(d).UTC().Format(http.TimeFormat)) }
}

// Each fault of a worker has a remedy; a sound one has none.
//
// proves AX-10
func TestWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		does   http.HandlerFunc
		status app.CheckStatus
		found  string
		remedy string
	}{
		"sound":             {refusing("TIMEOUT", nothing), "", "", ""},
		"sound, by another": {refusing("VALIDATION_ERROR", nothing), "", "", ""},
		"no contract": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, app.CheckFault,
			"text/html", "correct the worker"},
		"another address": {http.NotFound, app.CheckFault, "status 404", "set base_url and endpoint"},
		"too willing":     {refusing("", nothing), app.CheckWarning, "accepts it", "refuse such calls"},
		"another fault":   {refusing("INTERNAL", nothing), app.CheckWarning, "worker_internal", "refuse such calls"},
		"silent": {func(_ http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, app.CheckFault, "does not answer",
			"restart the worker"},
		"a clock ahead":  {refusing("TIMEOUT", shiftedBy(time.Hour)), app.CheckFault, "ahead of", "NTP"},
		"a clock behind": {refusing("TIMEOUT", shiftedBy(-20*time.Second)), app.CheckWarning, "behind", "NTP"},
	} {
		srv := httptest.NewServer(c.does)
		got := lookAtWorker(t.Context(), toolpack.Service{ID: "web.crawl", URL: srv.URL + "/run"}, worker.Config{})
		srv.Close()
		judge(t, name, got, c.status, c.found, c.remedy)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l.Close()
	got := lookAtWorker(t.Context(), toolpack.Service{ID: "web.crawl", URL: "http://" + l.Addr().String() + "/run"}, worker.Config{})
	judge(t, "away", got, app.CheckFault, "cannot be reached", "start it")
	srv := httptest.NewUnstartedServer(refusing("TIMEOUT", nothing))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	got = lookAtWorker(t.Context(), toolpack.Service{ID: "web.crawl", URL: srv.URL + "/run"}, worker.Config{})
	judge(t, "a certificate of nobody", got, app.CheckFault, "x509", "certificate of an authority that this host trusts")
}

func judge(t *testing.T, name string, got []Result, status app.CheckStatus, found, remedy string) {
	t.Helper()
	if status == "" && len(got) == 0 {
		return
	}
	if len(got) != 1 || got[0].Status != status || !strings.Contains(got[0].Found, found) || !strings.Contains(got[0].Remedy, remedy) {
		t.Errorf("%s: findings %+v", name, got)
	}
}

// A worker that is called over a network without encryption is named at start-up and by config check; one on this host, or over https,
// is not.
func TestWorkersWithoutEncryption(t *testing.T) {
	for url, warns := range map[string]bool{"http://127.0.0.1:8080": false, "http://localhost:8080": false, "http://[::1]:8080": false,
		"https://worker.example.org": false, "http://worker.example.org:8080": true, "http://192.0.2.7": true} {
		dir := filepath.Join(t.TempDir(), "domain")
		must(t, os.CopyFS(dir, os.DirFS("../domains/workers")))
		file := filepath.Join(dir, "manifest.yaml")
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "http://127.0.0.1:8080", url)), 0o644))
		x := exam(&site.Site{DomainDir: dir})
		x.run(t.Context(), func(k Check) bool { return k.Code == domainCode || k.Code == "worker_urls" && k.Early })
		n := 0
		for _, f := range x.answer.Findings {
			if f.Status == app.CheckWarning && strings.Contains(f.Found, "without encryption") && f.Remedy != "" {
				n++
			}
		}
		if n > 0 != warns || warns && n != 2 {
			t.Errorf("%s: findings %+v", url, x.answer.Findings)
		}
	}
}
