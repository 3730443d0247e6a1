package slurm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

func sharedFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "budget")
	must(t, os.WriteFile(path, nil, 0o666))
	return path
}

// proves OPS-03: three gateways with separate budgets together make as many RPCs as the shared one allows, and each
// gets its part.
func TestSharedBudget(t *testing.T) {
	file := sharedFile(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() time.Duration { return time.Hour + time.Since(start) }
		var gateways [3]*Budget
		var made [3]atomic.Int64
		var all sync.WaitGroup
		for i := range gateways {
			gateways[i] = NewBudget(100, Shared{file, 60})
			gateways[i].shared.now = now
			all.Go(func() {
				for time.Since(start) < 10*time.Minute {
					if err := gateways[i].Spend(t.Context(), rpcQueue); err != nil {
						t.Error(err)
						return
					}
					made[i].Add(rpcQueue)
				}
			})
		}
		all.Wait()
		sum := int64(0)
		for i := range made {
			n := made[i].Load()
			sum += n
			if n < 180 || n > 230 {
				t.Errorf("gateway %d made %d RPCs of 620", i, n)
			}
		}
		if sum < 600 || sum > 600+30 {
			t.Errorf("%d RPCs in ten minutes of 60 a minute", sum)
		}
		if s := gateways[0].State(); s.Shared == nil || s.Shared.Problem != nil || s.Shared.PerMinute != 60 || s.Shared.Left > 1 ||
			s.Left > s.Shared.Left {
			t.Errorf("the first gateway has %d RPCs left and the shared budget differs from 60 a minute, used up: %+v", s.Left, s.Shared)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := gateways[0].Spend(ctx, rpcQueue); fault.CodeOf(err) != outOfBudget {
			t.Errorf("beyond the budget: %v", err)
		}
		given, stop := context.WithCancel(t.Context())
		go func() { time.Sleep(100 * time.Millisecond); stop() }()
		if err := gateways[1].Spend(given, rpcCancel); fault.CodeOf(err) != outOfBudget {
			t.Errorf("given up: %v", err)
		}
		time.Sleep(20 * time.Second) // RPCs that were not made cost nothing
		if s := gateways[2].State(); s.Shared.Left != 20 {
			t.Errorf("after 20 s of rest the shared budget has %d RPCs left, want 20", s.Shared.Left)
		}
	})
}

// proves OPS-03: a shared budget that cannot be used, or that was tampered with, never stops a gateway.
func TestSharedBudgetUnusable(t *testing.T) {
	dir := t.TempDir()
	good, link, pipe := sharedFile(t), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	must(t, os.Symlink(good, link))
	must(t, unix.Mkfifo(pipe, 0o666))
	for _, file := range []string{filepath.Join(dir, "absent"), link, pipe, dir} {
		b := NewBudget(60, Shared{file, 1})
		for range 5 { // more than are left in the shared budget
			if err := b.Spend(t.Context(), 1); err != nil {
				t.Errorf("Spend with the shared file %s gives %v, want no error", file, err)
			}
		}
		if s := b.State(); s.Shared.Problem == nil || s.Left < 10 {
			t.Errorf("with the shared file %s the problem is %v and %d RPCs are left, want a problem and at least 10",
				file, s.Shared.Problem, s.Left)
		}
		if err := CheckShared(file); fault.CodeOf(err) != "shared_budget" {
			t.Errorf("CheckShared(%q) = %v, want the code shared_budget", file, err)
		}
	}
	for _, text := range []string{"what", strings.Repeat("9", 20) + "\n", "-5", strconv.FormatInt(1<<62, 10), "\x00",
		strings.Repeat("x", 9000)} {
		must(t, os.WriteFile(good, []byte(text), 0o666))
		b := NewBudget(6000, Shared{good, 6000})
		if err := b.Spend(t.Context(), 1); err != nil {
			t.Errorf("Spend with the text %q in the shared file gives %v, want no error", text, err)
		}
		if s := b.State(); s.Shared.Problem != nil {
			t.Errorf("the text %q in the shared file gives the problem %s, want no problem", text, *s.Shared.Problem)
		}
	}
	held, err := os.OpenFile(good, os.O_RDWR, 0)
	must(t, err)
	defer held.Close()
	must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	b := NewBudget(60, Shared{good, 60})
	if err := b.Spend(t.Context(), 1); err != nil {
		t.Errorf("with the file locked: %v", err)
	}
	if s := b.State(); s.Shared.Problem == nil || !strings.Contains(*s.Shared.Problem, "keeps") {
		t.Errorf("the problem of the locked shared file is %v, want one with the word keeps", s.Shared.Problem)
	}
}

// Processes share one file, and one of them is killed at any time.
func TestSharedBudgetOfProcesses(t *testing.T) {
	if file := os.Getenv("SLURMGATE_TEST_SHARED"); file != "" {
		b := NewBudget(60000, Shared{file, 6000})
		for {
			if b.Spend(t.Context(), 1) == nil {
				os.Stdout.WriteString("x")
			}
		}
	}
	file := sharedFile(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const enough = 220 // two seconds' worth
	var all sync.WaitGroup
	var sum atomic.Int64
	start := time.Now()
	for range 4 {
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSharedBudgetOfProcesses$")
		c.Env = append(os.Environ(), "SLURMGATE_TEST_SHARED="+file)
		said, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		all.Go(func() {
			for one := make([]byte, 1); ; {
				if _, err := said.Read(one); err != nil {
					break
				}
				if sum.Add(1) == enough {
					cancel()
				}
			}
			c.Wait()
		})
	}
	all.Wait()
	took, spent := time.Since(start), int(sum.Load())
	if most := int(took.Seconds()*100) + 20; spent > most || spent < enough {
		t.Errorf("%d RPCs in %s, at most %d", spent, took, most)
	}
}
