package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// target describes what the attackers attack: a separate process makes the attack, so that only the machine is shared
// with the honest clients.
type target struct {
	URL      string
	Token    string // of a caller who may read and import in a project without others; empty for a bare handler
	Run      string // visible to the caller
	Artifact string // a line of commas
	Socket   string // where a user without a grant knocks; other kinds are not used then
	While    string // the attack lasts as long as this file exists
}

const attackFile = sharedDir + "/attack"

// attack runs the attackers: each kind keeps its own rate, because a saturated machine shows nothing.
func attack(ctx context.Context, t target) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kinds := []func(context.Context){
		func(ctx context.Context) { t.hold(ctx, 1024, 200, "") },                                              // idle connections
		func(ctx context.Context) { t.hold(ctx, 64, 20, "GET /v1/runs HTTP/1.1\r\nHost: x\r\nX-Slow: 1") },    // a head that never ends
		func(ctx context.Context) { t.many(ctx, 1024, 100, "GET", "/v1/runs/"+t.Run+"/events", "") },          // streams
		func(ctx context.Context) { t.many(ctx, 1024, 100, "GET", "/v1/runs/"+t.Run+"?wait_seconds=30", "") }, // waits
		func(ctx context.Context) { t.many(ctx, 4, 20, "GET", "/v1/artifacts/"+t.Artifact+"/preview/table", "") },
		func(ctx context.Context) { t.many(ctx, 2, 1, "POST", "/mcp", batch(t.Run, 8000)) },
		func(ctx context.Context) {
			t.many(ctx, 16, 50, "POST", "/v1/tool-calls", `{"rubbish":"`+strings.Repeat("x", 4096)+`"}`)
		},
		func(ctx context.Context) { t.many(ctx, 16, 20, "POST", "/v1/artifacts", noise(24<<10)) },
		func(ctx context.Context) {
			unknown := t
			unknown.Token = "sgt_" + strings.Repeat("A", 16) + "_" + strings.Repeat("B", 52)
			unknown.many(ctx, 16, 200, "GET", "/v1/runs", "")
		},
	}
	if t.Socket != "" {
		kinds = []func(context.Context){func(ctx context.Context) { t.hold(ctx, 20_000, 1000, "") }}
	}
	for !t.on() && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	var wg sync.WaitGroup
	for _, k := range kinds {
		wg.Go(func() { k(ctx) })
	}
	for t.on() && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	wg.Wait()
	return nil
}

func (t target) on() bool {
	_, err := os.Stat(t.While)
	return err == nil
}

// many makes requests at a rate, atOnce at most at a time, and gives each up after two seconds if its answer has not
// ended: the client has left then.
func (t target) many(ctx context.Context, atOnce, perSecond int, method, path, body string) {
	patience := 2 * time.Second
	if strings.HasSuffix(path, "/events") || strings.Contains(path, "wait_seconds") {
		patience = time.Minute
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}
	var requests errgroup.Group
	requests.SetLimit(atOnce)
	defer requests.Wait()
	every(ctx, perSecond, func() {
		requests.TryGo(func() error {
			ctx, stop := context.WithTimeout(ctx, patience)
			defer stop()
			req, err := http.NewRequestWithContext(ctx, method, t.URL+path, strings.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+t.Token)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			if res, err := client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body) // the attacker ignores the answer
				res.Body.Close()
			}
			return nil
		})
	})
}

// network returns where connections are opened.
func (t target) network() (network, address string) {
	if t.Socket != "" {
		return "unix", t.Socket
	}
	return "tcp", strings.TrimPrefix(t.URL, "http://")
}

// hold opens connections at a rate, sends one text on each, and keeps them, so many at most; those that are closed are
// opened again.
func (t target) hold(ctx context.Context, atOnce, perSecond int, say string) {
	network, address := t.network()
	var connections errgroup.Group
	connections.SetLimit(atOnce)
	every(ctx, perSecond, func() {
		connections.TryGo(func() error {
			c, err := net.Dial(network, address)
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			_, _ = io.WriteString(c, say)
			_, _ = c.Read(make([]byte, 1)) // until the other side has had enough
			return nil
		})
	})
}

func every(ctx context.Context, perSecond int, f func()) {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// batch returns a JSON-RPC batch of waits.
func batch(run string, n int) string {
	one := chatCall("slurm_job_get", `{"run_id":"`+run+`","wait_seconds":30}`)
	return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]"
}

// noise returns an import of a text in which everything looks like a secret.
func noise(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	text := make([]byte, n)
	for i := range text {
		if text[i] = letters[rand.IntN(len(letters))]; i%41 == 40 {
			text[i] = ' '
		}
	}
	return `{"text":"` + string(text) + `"}`
}

// attacked measures the crowd again while attackers are at work, and a bare handler with the same crowd, without and under the same attack:
// what it suffers is the machine's share.
func (m *measurement) attacked(ctx context.Context, o *gatewayUnderTest, quiet crowdResult) error {
	t := target{URL: o.url, Run: o.runs[0], While: attackFile}
	var err error
	if t.Token, err = o.tokenOf("attacker", "gateway", "read", "import"); err != nil {
		return err
	}
	if t.Artifact, err = o.upload(ctx, "commas", "CSV", bytes.Repeat([]byte(","), 34<<20)); err != nil {
		return err
	}
	hit, err := m.under(ctx, t, func() (crowdResult, error) { return m.crowd(ctx, o.pid, o.visits()) })
	if err != nil {
		return err
	}
	m.printCrowd("attacked", hit)
	m.print("attacked_errors", float64(hit.errors), "request", "=0")
	m.print("attacked_p99_to_quiet", hit.p99()/quiet.p99(), "ratio", "<=2", "p99="+number(hit.p99()), "quiet="+number(quiet.p99()))

	bare, _, stop, err := bareServers()
	if err != nil {
		return err
	}
	defer stop()
	looks := func() (crowdResult, error) {
		return m.crowd(ctx, 0, []*visit{{name: "look", share: 100, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "GET", bare+"/v1/runs/x", "", "target_run_id")
		}}})
	}
	before, err := looks()
	if err != nil {
		return err
	}
	t.URL = bare
	after, err := m.under(ctx, t, looks)
	if err != nil {
		return err
	}
	m.print("attacked_bare_p99_to_quiet", after.p99()/before.p99(), "ratio", "", "p99="+number(after.p99()), "quiet="+number(before.p99()),
		fmt.Sprint("errors=", after.errors))
	return nil
}

// under measures during the attack.
func (m *measurement) under(ctx context.Context, t target, f func() (crowdResult, error)) (crowdResult, error) {
	self, err := os.Executable()
	if err != nil {
		return crowdResult{}, err
	}
	what, err := json.Marshal(t)
	if err != nil {
		return crowdResult{}, err
	}
	if err := os.WriteFile(t.While, nil, 0o644); err != nil {
		return crowdResult{}, err
	}
	cmd := exec.CommandContext(ctx, self, "inside", "attack", string(what))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return crowdResult{}, err
	}
	out, err := f()
	if e := os.Remove(t.While); err == nil {
		err = e
	}
	if e := cmd.Wait(); err == nil && e != nil {
		err = fmt.Errorf("the attackers: %w", e)
	}
	return out, err
}
