package main

import (
	"context"
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

// crowd simulates many clients: each makes a request, reads the answer, and thinks for about a second.
func (m *measurement) crowd(ctx context.Context, o *office) error {
	run := func() string { return o.runs[rand.IntN(len(o.runs))] }
	visits := []*visit{
		{name: "look", share: 35, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "GET", "/v1/runs/"+run(), "", "target_run_id")
		}},
		{name: "chat_look", share: 20, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "POST", "/mcp", chatCall("slurm_job_get", `{"run_id":"`+run()+`"}`), "structuredContent")
		}},
		{name: "chat_list", share: 5, read: true, ask: func(ctx context.Context) error {
			return o.ask(ctx, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, "seqkit_stats")
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
	began, before := time.Now(), processTime(o.pid)
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
	took, after := time.Since(began), processTime(o.pid)
	return m.tally(visits, took, after-before)
}

const crowdSize = 500

// processTime is the CPU time a process has used so far, 0 if that cannot be read (proc(5); a clock tick is 10 ms).
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

func (m *measurement) tally(visits []*visit, took, cpu time.Duration) error {
	var reads, all []time.Duration
	failed := 0
	params := []string{fmt.Sprint("clients=", crowdSize), fmt.Sprint("ledger=", m.sizes.Ledger)}
	for _, v := range visits {
		m.print("crowd_"+v.name, ms(quantile(v.took, 0.99)), "ms", "", append(params, fmt.Sprint("requests=", len(v.took)),
			"p50="+number(ms(median(v.took))))...)
		all = append(all, v.took...)
		if v.read {
			reads = append(reads, v.took...)
		}
		for i, err := range v.failed {
			if failed++; i < 3 {
				m.say("%s: %v", v.name, err)
			}
		}
	}
	m.print("crowd_errors", float64(failed), "request", "=0", append(params, fmt.Sprint("requests=", len(all)), fmt.Sprintf("seconds=%.0f",
		took.Seconds()))...)
	m.print("crowd_gateway_cpu", ms(cpu)/float64(len(all)), "ms/request", "", params...) // not distorted by other load on the machine
	m.print("crowd_rate", float64(len(all))/took.Seconds(), "request/s", "", params...)
	m.print("crowd_reads_p50", ms(median(reads)), "ms", "", params...)
	m.print("crowd_reads_p99", ms(quantile(reads, 0.99)), "ms", "<=50", params...)
	return nil
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
