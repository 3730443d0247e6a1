package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slurmgate/ledger"
	"slurmgate/run"
)

// openRoom is a partition in which every job starts at once, so that what a run waits for is the gateway.
const openRoom = "PartitionName=open Nodes=n1,n2 OverSubscribe=FORCE:64 MaxTime=UNLIMITED State=UP"

// fairDomain is the domain of the measurement: one tool that works for a second. Its runtime replaces Apptainer (the
// start of 160 containers on this machine is no property of the gateway); everything else is real.
var fairDomain = map[string]string{
	"domain/manifest.yaml": "domain_id: bench\nversion: 1.0.0\ndescription: One second of work.\n" +
		"tools: [{tool_id: bench.second, kind: job_worker}]\n",
	"domain/policies.yaml": "version: 1\nslurm: {partitions_allowlist: [open], accounts_allowlist: [research], max_cpus: 1, max_mem_mb: " +
		"100, " +
		"max_time_limit_seconds: 600, max_gpus: 0}\nnetwork: none\n",
	"domain/images.lock.yaml": "version: 1\nimages: []\n",
	"domain/toolpacks/bench.second.tool.yaml": `id: bench.second
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
description: Works for a second.
deterministic: true
timeoutMs: 600000
limits: {maxInputBytes: 1024, maxOutputBytes: 1024}
inputSchema: {type: object, required: [n], properties: {n: {type: integer}}, additionalProperties: false}
outputSchema: {type: object}
declaredOutputs: [{role: said, type: TEXT, label: said, srcRelpath: out/said.txt}]
container: {image: second}
resources: {cpus: 1, memMb: 32, timeLimitSeconds: 300}
execution: {kind: cli, cmd: [second, "{{ params.n }}"], stdout: out/said.txt}
`,
	"apptainer": "#!/bin/bash\n[[ $1 == --version ]] && { echo apptainer version 1.4.5; exit; }\nsleep 1\necho done\n",
}

// fairSite has the defaults of an admin who set nothing: 60 RPCs a minute, two sends and two stagings at a time.
const fairSite = `version: 1
site: bench
gateway: {state_dir: %[1]s/state, artifact_dir: %[1]s/artifacts, default_project: bench, socket: %[2]s/gateway.sock}
domain_dir: %[2]s/domain
slurm: {default_partition: open, default_account: research, accounting: required, grace_seconds: 5}
storage: {runs_dir: %[1]s/runs, image_store: %[1]s/images}
apptainer: {path: %[2]s/apptainer}
http: {listen: "127.0.0.1:0"}
`

// fair measures how much longer a run takes behind the runs of another caller.
func (o options) fair(ctx context.Context) error {
	h, err := o.up(ctx, openRoom)
	if err != nil {
		return err
	}
	defer h.down()
	inside := filepath.Join(h.share, "bench")
	if o.sizes.Program == "" {
		_, err = h.output(ctx, "go", "build", "-trimpath", "-o", inside+"/slurmgate", "./cmd/slurmgate")
	} else {
		_, err = h.output(ctx, "cp", o.sizes.Program, inside+"/slurmgate")
	}
	if err != nil {
		return err
	}
	for name, text := range fairDomain {
		file := filepath.Join(inside, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
			return err
		}
	}
	if _, err := h.asRoot(ctx, "chown", "-R", user+":"+user, sharedDir); err != nil {
		return err
	}
	return h.inside(ctx, "fair")
}

// fair measures for another caller of the same project and for one of another project, each with a separate gateway.
func (m *measurement) fair(ctx context.Context) error {
	base := m.dir
	for _, project := range []string{"bench", "other"} {
		m.dir = filepath.Join(base, project)
		if err := os.MkdirAll(m.dir, 0o700); err != nil {
			return err
		}
		if err := m.behind(ctx, project); err != nil {
			return err
		}
	}
	return nil
}

// shares splits the time of a run into its parts.
type shares struct{ total, send, receipt, slurm, notice, collect time.Duration }

func (m *measurement) behind(ctx context.Context, project string) error {
	o := &gatewayUnderTest{client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
	stop, err := m.serve(ctx, o, fmt.Sprintf(fairSite, m.dir, sharedDir), "second")
	if err != nil {
		return err
	}
	defer stop()
	many, one := *o, *o
	if many.token, err = o.tokenFor("many", "bench", "gateway", "read", "slurm"); err != nil {
		return err
	}
	if one.token, err = o.tokenFor("one", project, "gateway", "read", "slurm"); err != nil {
		return err
	}
	alone, err := one.times(ctx, 0, m.sizes.Alone, time.Hour)
	if err != nil {
		return err
	}
	ids := make([]string, m.sizes.Many)
	// Not all at once: the limit on a caller's concurrent calls is not what is measured.
	if err := parallel(ctx, 40, 0, m.sizes.Many, func(i int) (err error) { ids[i], err = many.second(ctx, 1000+i); return err }); err != nil {
		return err
	}
	m.say("%d runs of another caller wait", m.sizes.Many)
	behind, err := one.times(ctx, 100, m.sizes.Alone, time.Minute)
	if err != nil {
		return err
	}
	left, err := many.unsent(ctx, ids)
	if err != nil {
		return err
	}
	m.print("fair_unsent", float64(left), "run", ">=1", "project="+project, "of="+fmt.Sprint(m.sizes.Many))
	for name, took := range map[string][]shares{"alone": alone, "behind": behind} {
		m.parts(name, project, took)
	}
	ratio := float64(median(totals(behind))) / float64(median(totals(alone)))
	m.print("fair_ratio", ratio, "ratio", "<=3", "project="+project, fmt.Sprint("runs=", m.sizes.Many), "moonshot=1.5")
	return nil
}

// parts prints where the time of a median run went: until its intent, until its receipt (RPC budget and sbatch), in Slurm, until the
// gateway noticed its end, and until its outputs were stored.
func (m *measurement) parts(name, project string, took []shares) {
	slices.SortFunc(took, func(a, b shares) int { return int(a.total - b.total) })
	s := took[len(took)/2]
	m.print("fair_"+name, s.total.Seconds(), "s", "", "project="+project, fmt.Sprint("runs=", len(took)),
		"to_intent="+number(s.send.Seconds()),
		"to_receipt="+number(s.receipt.Seconds()), "in_slurm="+number(s.slurm.Seconds()), "to_notice="+number(s.notice.Seconds()),
		"to_end="+number(s.collect.Seconds()))
}

func totals(took []shares) (list []time.Duration) {
	for _, s := range took {
		list = append(list, s.total)
	}
	return list
}

// times makes n runs, one after the other, and stops early after a while, but not before the first.
func (o *gatewayUnderTest) times(ctx context.Context, from, n int, while time.Duration) (took []shares, err error) {
	for began := time.Now(); len(took) < n && (took == nil || time.Since(began) < while); {
		t, err := o.oneRun(ctx, from+len(took))
		if err != nil {
			return nil, err
		}
		took = append(took, t)
	}
	return took, nil
}

func (o *gatewayUnderTest) oneRun(ctx context.Context, n int) (s shares, err error) {
	began := time.Now()
	id, err := o.second(ctx, n)
	for ready := false; err == nil && !ready; {
		var a struct {
			Ready bool      `json:"ready"`
			State run.State `json:"state"`
		}
		if err = o.read(ctx, "GET", "/v1/runs/"+id+"/result?wait_seconds=30", "", &a); err == nil && a.Ready && a.State != run.Succeeded {
			err = fmt.Errorf("%s ended as %s", id, a.State)
		}
		ready = a.Ready
	}
	if s.total = time.Since(began); err != nil {
		return s, err
	}
	var story struct {
		Attempts []struct {
			EndedAt time.Time `json:"ended_at"`
		} `json:"attempts"`
		Events []ledger.Entry `json:"events"`
	}
	if err := o.read(ctx, "GET", "/v1/runs/"+id+"/story", "", &story); err != nil {
		return s, err
	}
	at := map[string]time.Time{}
	for _, e := range story.Events {
		at[strings.TrimPrefix(e.Type, "run.")] = e.At
	}
	s.send, s.receipt = at["intent"].Sub(at["created"]), at["receipt"].Sub(at["intent"])
	if len(story.Attempts) > 0 && !story.Attempts[0].EndedAt.IsZero() { // Slurm's clock has whole seconds
		ended := story.Attempts[0].EndedAt
		s.slurm, s.notice = max(0, ended.Sub(at["receipt"])), max(0, at["collecting"].Sub(ended))
	}
	s.collect = at["succeeded"].Sub(at["collecting"])
	return s, nil
}

// second asks for the n-th run of the tool.
func (o *gatewayUnderTest) second(ctx context.Context, n int) (id string, err error) {
	var a struct {
		Output struct {
			RunID string `json:"run_id"`
		} `json:"output"`
	}
	err = o.read(ctx, "POST", "/v1/tools/bench.second:run", fmt.Sprintf(`{"input":{"n":%d}}`, n), &a)
	if err == nil && a.Output.RunID == "" {
		err = errors.New("the answer names no run")
	}
	return a.Output.RunID, err
}

// unsent counts the runs that were not sent yet.
func (o *gatewayUnderTest) unsent(ctx context.Context, ids []string) (n int, err error) {
	for _, id := range ids {
		var a struct {
			JobID *string `json:"slurm_job_id"`
		}
		if err := o.read(ctx, "GET", "/v1/runs/"+id, "", &a); err != nil {
			return 0, err
		}
		if a.JobID == nil {
			n++
		}
	}
	return n, nil
}

func (o *gatewayUnderTest) read(ctx context.Context, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, o.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode > 299 {
		err = fmt.Errorf("%s %s: %d %.300s", method, path, res.StatusCode, b)
	}
	return errors.Join(err, json.Unmarshal(b, into))
}
