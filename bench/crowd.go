package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
)

// visit is one kind of request that the crowd makes.
type visit struct {
	name   string
	share  int // percent
	read   bool
	ask    func(context.Context) error
	mu     sync.Mutex
	took   []time.Duration
	failed []error
}

// visits returns the requests of a gateway's clients.
func (o *gatewayUnderTest) visits() []*visit {
	run := func() string { return o.runs[rand.IntN(len(o.runs))] }
	return []*visit{
		{name: "look", share: 35, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "GET", "/v1/runs/"+run(), "", "target_run_id")
		}},
		{name: "chat_look", share: 20, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "POST", "/mcp", chatCall("slurm_job_get", `{"run_id":"`+run()+`"}`), "structuredContent")
		}},
		{name: "chat_list", share: 5, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, "slurm_job_collect")
		}},
		{name: "runs", share: 12, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "GET", "/v1/runs?limit=20", "",
				`"runs"`)
		}},
		{name: "preview", share: 10, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "GET", "/v1/artifacts/"+o.artifact+"/preview", "", "ACGT")
		}},
		{name: "tools", share: 8, read: true, ask: func(ctx context.Context) error { return o.ask(ctx, "GET", "/v1/tools", "", "seqkit.stats") }},
		{name: "replay", share: 6, ask: o.again},
		{name: "import", share: 4, ask: func(ctx context.Context) error {
			return o.ask(ctx, "POST", "/v1/artifacts", fmt.Sprintf(`{"text":"text %d"}`, rand.Int64()), "artifact_id")
		}},
	}
}

// crowd simulates many clients for a while: each makes a request, reads the answer, and thinks for about a second. pid is of the process
// that answers, 0 for none.
func (m *measurement) crowd(ctx context.Context, pid int, visits []*visit) (crowdResult, error) {
	began, before := time.Now(), processTime(pid)
	ctx, stop := context.WithTimeout(ctx, m.sizes.Crowd)
	defer stop()
	var wg sync.WaitGroup
	for range crowdSize {
		wg.Go(func() {
			for {
				think := time.NewTimer(time.Duration(500+rand.IntN(1000)) * time.Millisecond)
				select {
				case <-think.C:
				case <-ctx.Done():
					think.Stop()
					return
				}
				v := pick(visits)
				// A request in flight when the time is up is finished and counts.
				t, err := timed(func() error { return v.ask(context.WithoutCancel(ctx)) })
				v.mu.Lock()
				v.took = append(v.took, t)
				if err != nil {
					v.failed = append(v.failed, err)
				}
				v.mu.Unlock()
			}
		})
	}
	wg.Wait()
	t := crowdResult{visits: visits, took: time.Since(began), cpu: processTime(pid) - before}
	for _, v := range visits {
		t.all = append(t.all, v.took...)
		if v.read {
			t.reads = append(t.reads, v.took...)
		}
		for i, err := range v.failed {
			if t.errors++; i < 3 {
				m.say("%s: %v", v.name, err)
			}
		}
	}
	if len(t.reads) == 0 {
		return t, errors.New("no client was answered")
	}
	return t, nil
}

const crowdSize = 500

// processTime returns the CPU time a process has used so far, 0 if that cannot be read (proc(5); a clock tick is 10
// ms).
func processTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if err != nil || !ok || len(fields) < 13 {
		return 0
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// crowdResult holds the times and errors of a crowd's requests.
type crowdResult struct {
	visits     []*visit
	all, reads []time.Duration
	errors     int
	took, cpu  time.Duration
}

func (t crowdResult) p99() float64 { return ms(quantile(t.reads, 0.99)) }

// printCrowd prints a crowd's figures; the name of each begins with what.
func (m *measurement) printCrowd(what string, t crowdResult) {
	params := []string{fmt.Sprint("clients=", crowdSize), fmt.Sprint("ledger=", m.sizes.Ledger)}
	for _, v := range t.visits {
		if len(v.took) > 0 {
			m.print(what+"_"+v.name, ms(quantile(v.took, 0.99)), "ms", "", append(params, fmt.Sprint("requests=", len(v.took)),
				"p50="+number(ms(median(v.took))))...)
		}
	}
	requests := float64(len(t.all))
	m.print(what+"_gateway_cpu", ms(t.cpu)/requests, "ms/request", "", params...) // not distorted by other load on the machine
	m.print(what+"_rate", requests/t.took.Seconds(), "request/s", "", params...)
	m.print(what+"_reads_p50", ms(median(t.reads)), "ms", "", params...)
}

func pick(visits []*visit) *visit {
	n := rand.IntN(100)
	for _, v := range visits {
		if n -= v.share; n < 0 {
			return v
		}
	}
	return visits[0]
}
