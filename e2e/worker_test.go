package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// keyOfWorker is the key of the sample worker. No other test uses it.
const keyOfWorker = "fc-of-the-worker-alone-5f2d9c"

// upstreamAt is the API behind the sample worker, in a machine's network. It answers with the configured status, and
// echoes the key.
type upstreamAt struct {
	url    string
	status atomic.Int64
	asked  atomic.Int64
}

func newUpstream(t *testing.T, m *machine) *upstreamAt {
	t.Helper()
	there := value(os.Open(fmt.Sprintf("/proc/%d/ns/net", m.init)))(t)
	defer there.Close()
	l := value(listenAt(there))(t)
	u := &upstreamAt{url: "http://" + l.Addr().String()}
	u.status.Store(http.StatusOK)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.asked.Add(1)
		if got := r.Header.Get("Authorization"); got != "Bearer "+keyOfWorker {
			t.Errorf("the upstream got %q", got)
		}
		w.WriteHeader(int(u.status.Load()))
		fmt.Fprintf(w, `{"data":{"title":"T","markdown":"%s"}}`, keyOfWorker)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return u
}

// workerBeside checks the sample worker in Apptainer, under its shipped unit and as an instance: called through the
// gateway, and the only process that has the upstream's key.
//
// proves AX-04 AX-05 AX-06 AX-10
func workerBeside(t *testing.T, m *machine) {
	must(t, command("scripts/images/workers"))
	for _, file := range []string{"build/workers/webcrawl.sif", "packaging/workers/slurmgate-worker@.service"} {
		must(t, command("cp", file, m.share+"/install/"))
	}
	must(t, command("cp", "-r", "domains/workers/schemas", m.share+"/install/"))
	up := newUpstream(t, m)
	m.run(`cd /shared/install
useradd --system --no-create-home --shell /usr/sbin/nologin slurmgate-worker
install -d /etc/slurmgate-workers /usr/local/lib/slurmgate-workers
install -m 644 webcrawl.sif /usr/local/lib/slurmgate-workers/
install -m 644 slurmgate-worker@.service /etc/systemd/system/
install -m 600 /dev/null /etc/slurmgate-workers/webcrawl.env
systemd-analyze verify /etc/systemd/system/slurmgate-worker@.service
cp -r schemas /etc/slurmgate/domains/probing/`)
	m.write(m.root("/etc/slurmgate-workers/webcrawl.env"), "APPTAINERENV_FIRECRAWL_API_KEY="+keyOfWorker+
		"\nAPPTAINERENV_FIRECRAWL_BASE_URL="+up.url+"\nAPPTAINERENV_WEBCRAWL_LISTEN=127.0.0.1:8080\n")
	m.edit(m.root("/etc/slurmgate/domains/probing/manifest.yaml"), "tools:\n", `tools:
  - tool_id: firecrawl.scrape
    kind: service_worker
    transport: {type: http, base_url: "http://127.0.0.1:8080", endpoint: /scrape/run}
    timeout_sec: 30
    input_schema_ref: schemas/scrape.in.json
    output_schema_ref: schemas/pages.out.json
`)
	m.edit(m.root("/etc/slurmgate/site.yaml"), "capabilities: [gateway, read, import, slurm]",
		"capabilities: [gateway, read, import, slurm, worker]")
	m.run("systemctl daemon-reload; systemctl enable --now slurmgate-worker@webcrawl; systemctl restart slurmgate")
	healthy := func(port int) func() bool {
		return func() bool {
			return m.try(fmt.Sprintf("curl -sf http://127.0.0.1:%d/healthz", port)).text == `{"ok":true}`
		}
	}
	until(t, "worker", healthy(8080))

	status, answer := m.scrape(t)
	if status != http.StatusOK || !answer.OK || !strings.Contains(string(answer.Output), `"content":"[key]"`) || answer.ToolRunID == "" {
		t.Errorf("a call of the worker answers %d %s (%+v), want 200 with the key hidden", status, answer.Output,
			answer.Error)
	}
	for upstream, retryable := range map[int]bool{401: true, 404: false, 503: true} {
		up.status.Store(int64(upstream))
		if _, a := m.scrape(t); a.OK || a.Error.Code != "UPSTREAM_ERROR" || a.Error.Retryable != retryable {
			t.Errorf("with upstream's status %d the call answers %+v, want UPSTREAM_ERROR, retryable %v", upstream,
				a.Error, retryable)
		}
	}
	if asked := up.asked.Load(); asked != 4 {
		t.Errorf("%d requests for 4 calls", asked)
	}
	findings := func() string { return m.try("runuser -u slurmgate -- slurmgate doctor --no-jobs").text }
	if said := findings(); !strings.Contains(said, "2 service workers") && !strings.Contains(said, "1 service worker") {
		t.Errorf("doctor:\n%s", said)
	}
	m.keyIsTheWorkers(t)

	m.run("systemctl stop slurmgate-worker@webcrawl")
	if _, a := m.scrape(t); a.OK || !a.Error.Retryable || !strings.Contains(a.Error.Message, "cannot be reached") {
		t.Errorf("a call of a worker that is away answers %+v, want an error to be tried again", a.Error)
	}
	if said := findings(); !strings.Contains(said, "127.0.0.1:8080/scrape/run cannot be reached") {
		t.Errorf("doctor:\n%s", said)
	}

	m.run(`export APPTAINERENV_FIRECRAWL_API_KEY=fc-of-alice-0123456 APPTAINERENV_FIRECRAWL_BASE_URL=`+up.url+`
export APPTAINERENV_WEBCRAWL_LISTEN=127.0.0.1:8081
apptainer instance start --containall --no-home /shared/install/webcrawl.sif webcrawl >/dev/null 2>&1`, "alice")
	until(t, "instance", healthy(8081))
	m.run("apptainer instance stop webcrawl 2>&1", "alice")
}

type ranByWorker struct {
	OK        bool            `json:"ok"`
	ToolRunID string          `json:"tool_run_id"`
	Output    json.RawMessage `json:"output"`
	Error     struct {
		Code, Message string
		Retryable     bool
	} `json:"error"`
}

// scrape calls the worker's tool through the gateway's socket, as alice.
func (m *machine) scrape(t *testing.T) (status int, a ranByWorker) {
	t.Helper()
	out := m.run(`curl -s -w '\n%{http_code}' --unix-socket /run/slurmgate/gateway.sock -H 'Content-Type: application/json' `+
		`-d '{"input":{"url":"https://a.example"}}' http://gateway/v1/tools/firecrawl.scrape:run`, "alice")
	body, code, _ := strings.Cut(out, "\n")
	if _, err := fmt.Sscan(code, &status); err != nil {
		t.Fatalf("the worker's tool answers no status: %s", out)
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil && err != io.EOF {
		t.Fatalf("the worker's tool answers no JSON (%v): %s", err, out)
	}
	return status, a
}

// keyIsTheWorkers searches for the key in everything of the gateway: its environment, files, ledger and log, and in the
// worker's log.
func (m *machine) keyIsTheWorkers(t *testing.T) {
	t.Helper()
	if got := m.run("grep -rlF " + keyOfWorker + " /etc/slurmgate-workers"); got != "/etc/slurmgate-workers/webcrawl.env" {
		t.Errorf("this search does not find the key where it is: %q", got)
	}
	got := m.run(`grep -rlF ` + keyOfWorker + ` /etc/slurmgate /var/lib/slurmgate /run/slurmgate /shared/slurmgate || true
pid=$(systemctl show --value -p MainPID slurmgate)
cat /proc/$pid/environ /proc/$pid/cmdline | grep -acF ` + keyOfWorker + ` || true
journalctl --no-pager -u slurmgate -u 'slurmgate-worker@*' | grep -cF ` + keyOfWorker + ` || true`)
	if got != "0\n0" {
		t.Errorf("the key is not the worker's alone:\n%s", got)
	}
}
