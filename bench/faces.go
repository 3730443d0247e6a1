package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

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
	knocking, stop := context.WithCancel(ctx)
	rejectedUser := make(chan error, 1)
	go func() { rejectedUser <- h.rejectedUser(knocking) }()
	err = h.inside(ctx, "faces")
	stop()
	if e := <-rejectedUser; err == nil && !errors.Is(e, context.Canceled) {
		err = e
	}
	return err
}

// rejectedUser runs the attack of a user of the cluster's login node without a grant, who connects to the gateway's socket.
func (h *host) rejectedUser(ctx context.Context) error {
	t, err := json.Marshal(target{Socket: sharedDir + "/gateway.sock", While: attackFile})
	if err != nil {
		return err
	}
	_, err = h.output(ctx, h.script, "--name", h.name, "exec", "--user", "nobody", "--cwd", "/", "--", sharedDir+"/bench", "inside", "attack",
		string(t))
	return cmp.Or(ctx.Err(), err)
}

// gatewayUnderTest is a running gateway with its port.
type gatewayUnderTest struct {
	url, token string
	client     *http.Client
	pid        int      // the gateway's
	runs       []string // ids, all over the ledger
	artifact   string
	reads      string // the artifact that the one real run works on
	command    func(args ...string) *exec.Cmd
}

func (m *measurement) faces(ctx context.Context) error {
	runs, artifact, err := m.largeLedger(ctx)
	if err != nil {
		return err
	}
	o := &gatewayUnderTest{runs: runs, artifact: artifact, client: &http.Client{Timeout: 30 * time.Second,
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
	quiet, err := m.crowd(ctx, o.pid, o.visits())
	if err != nil {
		return err
	}
	m.printCrowd("crowd", quiet)
	m.print("crowd_errors", float64(quiet.errors), "request", "=0", fmt.Sprint("requests=", len(quiet.all)))
	m.print("crowd_reads_p99", quiet.p99(), "ms", "<=50")
	return m.attacked(ctx, o, quiet)
}

// identical sends one request many times at once and counts the jobs that Slurm got from it.
func (m *measurement) identical(ctx context.Context, o *gatewayUnderTest) error {
	jobs := func() (int, error) {
		out, err := exec.CommandContext(ctx, "/usr/bin/squeue", "-h", "-t", "all", "-o", "%i").Output()
		return bytes.Count(out, []byte("\n")), err
	}
	if err := o.importReads(ctx); err != nil {
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
func (o *gatewayUnderTest) again(ctx context.Context) error {
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
gateway: {state_dir: %[1]s/state, artifact_dir: %[1]s/artifacts, default_project: bench, socket: %[2]s/gateway.sock}
access: {peers: [{user: daemon, capabilities: [gateway, read], projects: [bench]}]}
domain_dir: %[2]s/domain
slurm: {bin_dir: %[1]s/bin, default_partition: big, default_account: research, accounting: required}
storage: {runs_dir: %[1]s/runs, image_store: %[1]s/images}
budget: {rpc_per_minute: 6000}
http: {listen: "127.0.0.1:0"}
limits: {open_runs_per_project: 1000000}
`

// open starts the program as an admin would and creates a token.
func (m *measurement) open(ctx context.Context, o *gatewayUnderTest) (stop func(), err error) {
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
	return m.serve(ctx, o, fmt.Sprintf(benchSite, m.dir, sharedDir), "samtools", "seqkit", "minimap2")
}

// serve starts the program with a site file and images, and creates a token.
func (m *measurement) serve(ctx context.Context, o *gatewayUnderTest, text string, images ...string) (stop func(), err error) {
	program, site := filepath.Join(sharedDir, "slurmgate"), filepath.Join(m.dir, "site.yaml")
	if err := os.WriteFile(site, []byte(text), 0o600); err != nil {
		return nil, err
	}
	command := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, program, args...)
		c.Env = append(os.Environ(), "SLURMGATE_SITE="+site)
		c.Stderr = os.Stderr
		return c
	}
	for _, name := range images {
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
	o.command = command
	if o.token, err = o.tokenOf("bench", "gateway", "read", "import", "slurm"); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// tokenOf creates a token.
func (o *gatewayUnderTest) tokenOf(name string, capabilities ...string) (string, error) {
	return o.tokenFor(name, "bench", capabilities...)
}

func (o *gatewayUnderTest) tokenFor(name, project string, capabilities ...string) (string, error) {
	args := []string{"token", "create", name, "--project", project, "--json"}
	for _, c := range capabilities {
		args = append(args, "--capability", c)
	}
	out, err := o.command(args...).Output()
	var t struct {
		Token string `json:"token"`
	}
	if err = errors.Join(err, json.Unmarshal(out, &t)); err != nil || t.Token == "" {
		return "", fmt.Errorf("token create: %w: %s", err, out)
	}
	return t.Token, nil
}

// ask makes one request and reads the whole answer. An unexpected answer is an error.
func (o *gatewayUnderTest) ask(ctx context.Context, method, path, body, must string) error {
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

// importReads creates the artifact that the one real run works on.
func (o *gatewayUnderTest) importReads(ctx context.Context) (err error) {
	var reads bytes.Buffer
	packed := gzip.NewWriter(&reads)
	if _, err := io.WriteString(packed, "@read1\nACGT\n+\nIIII\n"); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	o.reads, err = o.upload(ctx, "reads", "FASTQ_GZ", reads.Bytes())
	return err
}

func (o *gatewayUnderTest) upload(ctx context.Context, label, typ string, content []byte) (id string, err error) {
	req, err := http.NewRequestWithContext(ctx, "POST", o.url+"/v1/artifacts?label="+label+"&type="+typ, bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := o.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var a struct {
		ArtifactID string `json:"artifact_id"`
		Detail     string `json:"detail"`
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil || a.ArtifactID == "" {
		return "", fmt.Errorf("upload: %d %s %w", res.StatusCode, a.Detail, err)
	}
	return a.ArtifactID, nil
}
