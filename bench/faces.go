package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/ledger"
)

// faces measures the real program with its port open: the same request against a bare handler and against the SDK's own echo tool,
// then 500 clients for a minute on a large ledger.
func (o options) faces(ctx context.Context) error {
	h, err := o.up(ctx)
	if err != nil {
		return err
	}
	defer h.down()
	inside := filepath.Join(h.share, "bench")
	if _, err := h.output(ctx, "go", "build", "-trimpath", "-o", inside+"/slurmgate", "./cmd/slurmgate"); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(inside, "domain"), os.DirFS(filepath.Join(h.repo, "domains/genomics"))); err != nil {
		return err
	}
	for name, change := range map[string][2]string{
		"policies.yaml":    {"partitions_allowlist: [main, short]", "partitions_allowlist: [" + waitRoom + "]"},
		"images.lock.yaml": {"", ""}, // the shipped domain names no image yet
	} {
		file := filepath.Join(inside, "domain", name)
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text := strings.Replace(string(data), change[0], change[1], 1)
		if change[0] == "" {
			text = "version: 1\nimages: []\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if _, err := h.asRoot(ctx, "chown", "-R", user+":"+user, sharedDir+"/domain"); err != nil {
		return err
	}
	return h.inside(ctx, "faces")
}

// office is a running gateway with its port.
type office struct {
	url, token string
	client     *http.Client
	pid        int      // the gateway's
	runs       []string // ids, all over the ledger
	artifact   string
	reads      string // the artifact that the one real run works on
}

func (m *measurement) faces(ctx context.Context) error {
	runs, artifact, err := m.largeLedger(ctx)
	if err != nil {
		return err
	}
	o := &office{runs: runs, artifact: artifact, client: &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, MaxConnsPerHost: 1024}}}
	stop, err := m.open(ctx, o)
	if err != nil {
		return err
	}
	defer stop()
	if err := m.ratios(ctx, o); err != nil {
		return err
	}
	if err := m.identical(ctx, o); err != nil {
		return err
	}
	return m.crowd(ctx, o)
}

// identical sends one request many times at once and counts the jobs that Slurm got from it.
func (m *measurement) identical(ctx context.Context, o *office) error {
	jobs := func() (int, error) {
		out, err := exec.CommandContext(ctx, "/usr/bin/squeue", "-h", "-t", "all", "-o", "%i").Output()
		return bytes.Count(out, []byte("\n")), err
	}
	if err := o.importReads(ctx, &o.reads); err != nil {
		return err
	}
	before, err := jobs()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := parallel(ctx, 256, 0, m.sizes.Replays, func(int) error { return o.again(ctx) }); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := jobs()
	if err != nil {
		return err
	}
	m.print("identical_submits_jobs", float64(after-before), "job", "=1", fmt.Sprint("submits=", m.sizes.Replays))
	m.print("identical_submits_rate", float64(m.sizes.Replays)/took.Seconds(), "request/s", "", fmt.Sprint("submits=", m.sizes.Replays))
	return nil
}

// again repeats the request of the one real run.
func (o *office) again(ctx context.Context) error {
	return o.ask(ctx, "POST", "/v1/tools/seqkit.stats:run", `{"input":{"reads":"`+o.reads+`"}}`, `"ok":true`)
}

// largeLedger seeds the ledger and returns ids spread all over it.
func (m *measurement) largeLedger(ctx context.Context) (runs []string, artifact string, err error) {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return nil, "", err
	}
	defer g.close()
	if err := g.seed(ctx, 0, m.sizes.Ledger); err != nil {
		return nil, "", err
	}
	m.say("%d runs are in the ledger", m.sizes.Ledger)
	for cursor := ""; ; {
		page, err := g.ledger.List(ctx, ledger.Filter{Limit: 500, Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		for i := 0; i < len(page.Runs); i += 25 {
			runs = append(runs, page.Runs[i].ID)
		}
		if cursor = page.Cursor; cursor == "" {
			return runs, g.input.ArtifactID, nil
		}
	}
}

const benchSite = `version: 1
site: bench
gateway: {state_dir: %[1]s/state, artifact_dir: %[1]s/artifacts, default_project: bench}
domain_dir: %[2]s/domain
slurm: {bin_dir: %[1]s/bin, default_partition: big, default_account: research, accounting: required}
storage: {runs_dir: %[1]s/runs, image_store: %[1]s/images}
budget: {rpc_per_minute: 6000}
http: {listen: "127.0.0.1:0"}
`

// open starts the program as an admin would and creates a token.
func (m *measurement) open(ctx context.Context, o *office) (stop func(), err error) {
	program, site := filepath.Join(sharedDir, "slurmgate"), filepath.Join(m.dir, "site.yaml")
	if err := os.Mkdir(filepath.Join(m.dir, "state"), 0o700); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(m.dir, "ledger.db*"))
	if err != nil {
		return nil, err
	}
	for _, name := range left {
		if err := os.Rename(name, filepath.Join(m.dir, "state", filepath.Base(name))); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(site, fmt.Appendf(nil, benchSite, m.dir, sharedDir), 0o600); err != nil {
		return nil, err
	}
	command := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, program, args...)
		c.Env = append(os.Environ(), "SLURMGATE_SITE="+site)
		c.Stderr = os.Stderr
		return c
	}
	for _, name := range []string{"samtools", "seqkit", "minimap2"} {
		if err := command("image", "add", name, filepath.Join(sharedDir, "image.sif")).Run(); err != nil {
			return nil, fmt.Errorf("image add: %w", err)
		}
	}
	serve := command("serve")
	log, err := os.OpenFile(filepath.Join(m.dir, "serve.log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	said, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	serve.Stderr = w
	serve.Cancel = func() error { return serve.Process.Signal(syscall.SIGTERM) }
	if err := serve.Start(); err != nil {
		return nil, err
	}
	o.pid = serve.Process.Pid
	w.Close()
	found := make(chan string, 1)
	go func() {
		for sc := bufio.NewScanner(said); sc.Scan(); {
			fmt.Fprintln(log, sc.Text())
			if _, rest, ok := strings.Cut(sc.Text(), "HTTP and MCP at "); ok {
				url, _, _ := strings.Cut(rest, ",")
				found <- url
			}
		}
		close(found)
	}()
	stop = func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		_ = serve.Wait() // how it ends is not measured
	}
	if o.url = <-found; o.url == "" {
		stop()
		return nil, fmt.Errorf("serve did not start; see %s", log.Name())
	}
	out, err := command("token", "create", "bench", "--capability", "gateway", "--capability", "read", "--capability", "import",
		"--capability", "slurm", "--project", "bench", "--json").Output()
	var t struct {
		Token string `json:"token"`
	}
	if err = errors.Join(err, json.Unmarshal(out, &t)); err != nil || t.Token == "" {
		stop()
		return nil, fmt.Errorf("token create: %w: %s", err, out)
	}
	o.token = t.Token
	return stop, nil
}

// ask makes one request and reads the whole answer. An unexpected answer is an error.
func (o *office) ask(ctx context.Context, method, path, body, must string) error {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	url := o.url + path
	if strings.HasPrefix(path, "http") {
		url = path
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	res, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode > 299 || !bytes.Contains(b, []byte(must))) {
		err = fmt.Errorf("%s %s: %d %.300s", method, path, res.StatusCode, b)
	}
	return err
}

func chatCall(name, args string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":` + args + `}}`
}

// ratios races single requests in blocks, one kind after the other.
func (m *measurement) ratios(ctx context.Context, o *office) error {
	bare, echo, stop, err := bareServers()
	if err != nil {
		return err
	}
	defer stop()
	run := func() string { return o.runs[rand.IntN(len(o.runs))] }
	kinds := []struct {
		name string
		ask  func() error
	}{
		{"bare", func() error { return o.ask(ctx, "GET", bare+"/v1/runs/"+run(), "", "target_run_id") }},
		{"http", func() error { return o.ask(ctx, "GET", "/v1/runs/"+run(), "", "target_run_id") }},
		{"tools", func() error { return o.ask(ctx, "GET", "/v1/tools", "", "seqkit.stats") }},
		{"echo", func() error {
			return o.ask(ctx, "POST", echo, chatCall("echo", `{"run_id":"`+run()+`"}`), "structuredContent")
		}},
		{"mcp", func() error {
			return o.ask(ctx, "POST", "/mcp", chatCall("slurm_job_get", `{"run_id":"`+run()+`"}`), "structuredContent")
		}},
	}
	took := map[string][]time.Duration{}
	for round := range m.sizes.Rounds + 1 {
		for _, k := range kinds {
			for range m.sizes.Block {
				t, err := timed(k.ask)
				if err != nil {
					return err
				}
				if round > 0 { // the first round warms up
					took[k.name] = append(took[k.name], t)
				}
			}
		}
	}
	for _, k := range kinds {
		m.print("single_"+k.name, ms(median(took[k.name])), "ms", "", fmt.Sprint("requests=", len(took[k.name])),
			"p99="+number(ms(quantile(took[k.name], 0.99))))
	}
	ratio := func(a, b string) float64 { return float64(median(took[a])) / float64(median(took[b])) }
	m.print("http_list_to_bare_chi", ratio("tools", "bare"), "ratio", "")
	m.print("http_look_to_bare_chi", ratio("http", "bare"), "ratio", "")
	m.print("mcp_look_to_sdk_echo", ratio("mcp", "echo"), "ratio", "")
	return nil
}

// bareServers give the same answer without a gateway behind it: one with chi, one with the SDK's own tool.
func bareServers() (bare, echo string, stop func(), err error) {
	answer := `{"provenance_run_id":"run_X","target_run_id":"run_X","slurm_job_id":"1","state":"queued","phase":"pending","reason":"PartitionDown","exit_code":null,"artifacts_by_role":{},"observed_at":null,"poll_after_seconds":60,"warnings":[]}`
	r := chi.NewRouter()
	r.Get("/v1/runs/{run_id}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer) // the peer is gone if this fails
	})
	s := sdk.NewServer(&sdk.Implementation{Name: "echo", Version: "1"}, nil)
	type args struct {
		RunID string `json:"run_id"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "echo"}, func(_ context.Context, _ *sdk.CallToolRequest, a args) (*sdk.CallToolResult, args, error) {
		return nil, a, nil
	})
	r.Handle("/mcp", sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	server := &http.Server{Handler: r}
	go func() { _ = server.Serve(l) }() // ends with stop
	url := "http://" + l.Addr().String()
	return url, url + "/mcp", func() { server.Close() }, nil
}

// importReads creates the artifact that the one real run works on.
func (o *office) importReads(ctx context.Context, id *string) error {
	var reads bytes.Buffer
	packed := gzip.NewWriter(&reads)
	if _, err := io.WriteString(packed, "@read1\nACGT\n+\nIIII\n"); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", o.url+"/v1/artifacts?label=reads&type=FASTQ_GZ", &reads)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var a struct {
		ArtifactID string `json:"artifact_id"`
		Detail     string `json:"detail"`
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil || a.ArtifactID == "" {
		return fmt.Errorf("upload: %d %s %w", res.StatusCode, a.Detail, err)
	}
	*id = a.ArtifactID
	return nil
}
