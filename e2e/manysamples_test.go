//go:build large

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A sheet of many samples, BATCH_ROWS of them, becomes jobs of a real cluster in arrays, ends, and is collected: how long each part takes,
// the RPCs that Slurm counts, and the gateway's memory. make bench-batch N=10000.
//
// proves MANY-01
func TestManySamples(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("BATCH_ROWS"))
	if err != nil || n < 1 {
		t.Fatal("BATCH_ROWS is no number of rows")
	}
	s := newSite(t, "probing")
	s.arrays(63, 3*time.Second)
	s.addTool("probe.batch", batchPack)
	d := s.serve()
	shell(t, "lab", `mkdir "$1/many" && cd "$1/many" && for ((i = 0; i < $2; i++)); do echo "$i" >"r$i.txt"; done
(echo sample,reads,tags; for ((i = 0; i < $2; i++)); do echo "S$i,$1/many/r$i.txt,lot-$((i % 10))"; done) >"$1/many.csv"`, s.dir+"/files", fmt.Sprint(n))
	figure := func(name string, value any, unit string) {
		t.Logf("name=%s rows=%d value=%v unit=%s", name, n, value, unit)
	}
	seconds := func(since time.Time) string { return fmt.Sprintf("%.2f", time.Since(since).Seconds()) }
	submitsBefore, allBefore := rpcsSoFar(t)
	began := time.Now()
	var now batchNow
	if s.long(&now, "batch", "run", batchTool, "--sheet", s.dir+"/files/many.csv", "--name", "many"); now.Rows != int64(n) {
		t.Fatalf("batch run returned %+v, want %d rows", now, n)
	}
	figure("batch_accepted", seconds(began), "s") // the files are imported by then
	within(t, time.Hour, "every row is a run", func() bool {
		asked := time.Now()
		s.ok(&now, "batch", "status", "many")
		if now.Todo == 0 {
			figure("batch_status_command", seconds(asked), "s")
		}
		return now.Todo == 0
	})
	figure("batch_rows_are_runs", seconds(began), "s")
	within(t, 6*time.Hour, "every row is over", func() bool {
		s.ok(&now, "batch", "status", "many")
		return now.Over
	})
	figure("batch_over", seconds(began), "s")
	if now.Counts["succeeded"] != int64(n) {
		t.Errorf("batch status returned %+v, want %d rows that succeeded", now, n)
	}
	submits, all := rpcsSoFar(t)
	figure("batch_submit_rpcs", submits-submitsBefore, "rpc")
	figure("batch_rpcs", all-allBefore, "rpc") // of everything that runs there, slurmd and the steps of the jobs included
	figure("gateway_peak_memory", strings.Fields(shell(t, "root", `grep VmHWM /proc/$1/status`, d.pid))[1], "kB")
	asked := time.Now()
	var table struct{ Total int }
	if s.long(&table, "batch", "table", "many", "--limit", "3"); table.Total != n {
		t.Errorf("batch table shows %d rows, want %d", table.Total, n)
	}
	figure("batch_table_command", seconds(asked), "s")
	s.collectBesideCopy(n, figure)
}

var rpcType = regexp.MustCompile(`(?m)^\s*(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)`)

// rpcsSoFar returns how many jobs or arrays Slurm was asked to accept, and how many RPCs it answered in all.
func rpcsSoFar(t *testing.T) (submits, all int) {
	t.Helper()
	for _, m := range rpcType.FindAllStringSubmatch(shell(t, "root", "sdiag"), -1) {
		k := value(strconv.Atoi(m[2]))(t)
		if all += k; m[1] == "REQUEST_SUBMIT_BATCH_JOB" {
			submits += k
		}
	}
	return submits, all
}

// A chain of three tools over a sheet of BATCH_ROWS samples, from one steps file, on a real cluster in arrays: each sample's text goes
// through all three, and the runs of the second and third start by themselves. make bench-chain SAMPLES=200.
//
// proves MANY-04
func TestManyChains(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("BATCH_ROWS"))
	if err != nil || n < 1 {
		t.Fatal("BATCH_ROWS is no number of rows")
	}
	s := newSite(t, "probing")
	s.arrays(63, 3*time.Second)
	s.chainTools("one", "two", "three")
	d := s.serve()
	shell(t, "lab", `mkdir "$1/many" && cd "$1/many" && for ((i = 0; i < $2; i++)); do echo "$i" >"r$i.txt"; done
(echo sample,text; for ((i = 0; i < $2; i++)); do echo "S$i,$1/many/r$i.txt"; done) >"$1/many.csv"`, s.dir+"/files", fmt.Sprint(n))
	figure := func(name string, value any, unit string) {
		t.Logf("name=%s samples=%d tools=3 value=%v unit=%s", name, n, value, unit)
	}
	seconds := func(since time.Time) string { return fmt.Sprintf("%.2f", time.Since(since).Seconds()) }
	submitsBefore, allBefore := rpcsSoFar(t)
	began := time.Now()
	var now batchNow
	s.long(nil, "batch", "run", "--steps", s.file("steps.yaml", chainSteps), "--sheet", s.dir+"/files/many.csv", "--name", "many")
	figure("chain_accepted", seconds(began), "s")
	within(t, time.Hour, "the end of every step", func() bool { s.ok(&now, "batch", "status", "many"); return now.Over })
	figure("chain_over", seconds(began), "s")
	if now.Counts["succeeded"] != int64(3*n) {
		t.Errorf("batch status returned %+v, want %d rows that succeeded", now, 3*n)
	}
	submits, all := rpcsSoFar(t)
	figure("chain_submit_rpcs", submits-submitsBefore, "rpc")
	figure("chain_rpcs", all-allBefore, "rpc") // of everything that runs there, slurmd and the steps of the jobs included
	figure("gateway_peak_memory", strings.Fields(shell(t, "root", `grep VmHWM /proc/$1/status`, d.pid))[1], "kB")
	s.long(nil, "batch", "collect", "many.three", "--to", s.dir+"/collected")
	if wrong := shell(t, "lab", `cd "$1"; for ((i = 0; i < $2; i++)); do
  [ "$(cat S$i/chain.three/*)" = "$i"$'\n'one$'\n'two$'\n'three ] || echo "S$i"; done`, s.dir+"/collected", fmt.Sprint(n)); wrong != "" {
		t.Errorf("wrong outputs: %.300s", wrong)
	}
}

// collectBesideCopy collects the batch and copies the collected files, in turns, and prints the medians: a single turn
// measures mostly the machine's other load.
func (s *site) collectBesideCopy(n int, figure func(name string, value any, unit string)) {
	s.t.Helper()
	first, again, copied := s.dir+"/collected", s.dir+"/again", s.dir+"/copied"
	var collecting, copying []time.Duration
	rounds := 7
	if n > 2000 {
		rounds = 3
	}
	for round := range rounds {
		to := again
		if round == 0 {
			to = first
		}
		var got struct {
			Copied   int
			Complete bool
		}
		began := time.Now()
		if s.long(&got, "batch", "collect", "many", "--to", to); got.Copied != n || !got.Complete {
			s.t.Fatalf("batch collect returned %+v, want %d files copied", got, n)
		}
		collecting, began = append(collecting, time.Since(began)), time.Now()
		shell(s.t, "lab", `cp -r "$1" "$2"`, first, copied)
		copying = append(copying, time.Since(began))
		if shell(s.t, "lab", `diff -r "$1" "$2" && echo same`, to, copied) != "same" {
			s.t.Fatal("what was collected is not the same each time")
		}
		shell(s.t, "lab", `rm -rf "$@"`, again, copied)
		s.t.Logf("collect %v, cp -r %v", collecting[round], copying[round])
	}
	median := func(of []time.Duration) float64 {
		slices.Sort(of)
		return of[len(of)/2].Seconds()
	}
	figure("batch_collect", fmt.Sprintf("%.2f", median(collecting)), "s")
	figure("batch_collect_to_cp", fmt.Sprintf("%.3f", median(copying)/median(collecting)), "ratio target=>=0.5")
}

// long runs a command line with --json that must succeed, and may take long.
func (s *site) long(into any, args ...string) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), time.Hour)
	defer stop()
	c := s.command(ctx, append(args, "--json")...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		s.t.Fatalf("slurmgate %v ends with %v, want 0: %.2000s", args, err, errs.Bytes())
	}
	if into != nil {
		result{args, 0, out.Bytes(), errs.Bytes()}.object(s.t, into)
	}
}
