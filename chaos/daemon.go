package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// start describes one life of a gateway: how it dies, and the pause before the next life.
type start struct {
	kill, fail string        // a seam or a place, with its #n
	after      time.Duration // SIGKILL so long after it began, when positive
	term       bool          // SIGTERM then, not SIGKILL
	pause      time.Duration // before the next life
}

func (s start) String() string {
	text := ""
	switch {
	case s.kill != "":
		text = "killed at " + s.kill
	case s.after > 0 && s.term:
		text = fmt.Sprintf("SIGTERM after %s", s.after)
	case s.after > 0:
		text = fmt.Sprintf("killed after %s", s.after)
	}
	if s.fail != "" {
		if text != "" {
			text += ", "
		}
		text += s.fail + " applies and fails"
	}
	if s.pause > 0 {
		text += fmt.Sprintf(", down for %s", s.pause)
	}
	return text
}

// patience bounds one faulty life: its seam may not be on this run's way. What cuts a far gateway's connection holds up its run, too.
func (s *site) patience() time.Duration {
	if len(s.wires) > 0 {
		return 30 * time.Second
	}
	return 15 * time.Second
}

// supervisor runs the starts of a case one after another; the last life is without faults and continues.
type supervisor struct {
	s    *site
	log  *os.File
	skip chan struct{} // closed: no more faults, continue with the good life
	once sync.Once
	stop chan struct{} // closed: the case has ended

	mu    sync.Mutex
	pid   int       // of the gateway that lives, by this machine's number; 0 when none does
	good  time.Time // when the good life began to answer
	fired []string  // seams that killed
	brute bool      // the end of the case is a SIGKILL
	wrong []string  // what no gateway may do, e.g. end by itself
	ended chan struct{}
}

func (s *site) keep(ctx context.Context, log *os.File, starts []start) *supervisor {
	k := &supervisor{s: s, log: log, skip: make(chan struct{}), stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(k.ended)
		for _, st := range starts {
			if k.over() || ctx.Err() != nil {
				return
			}
			if k.skipped() {
				break
			}
			for !k.live(ctx, st) && !k.over() && !k.skipped() && ctx.Err() == nil {
				k.sleep(ctx, 200*time.Millisecond) // a verb is the gateway at the moment
			}
			k.sleep(ctx, st.pause)
		}
		for !k.over() && ctx.Err() == nil {
			if !k.live(ctx, start{}) {
				k.sleep(ctx, 200*time.Millisecond)
			}
		}
	}()
	return k
}

func (k *supervisor) over() bool    { return closed(k.stop) }
func (k *supervisor) skipped() bool { return closed(k.skip) }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (k *supervisor) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-k.stop:
	case <-ctx.Done():
	}
}

// noMoreFaults ends the faulty lives.
func (k *supervisor) noMoreFaults() { k.once.Do(func() { close(k.skip) }) }

// live runs one life from start to end. It returns false if another gateway holds the ledger, so that there was none.
func (k *supervisor) live(ctx context.Context, st start) bool {
	env := []string{"SLURMGATE_CHAOS_LIST=" + k.s.local + "/seams"}
	if st.kill != "" {
		env = append(env, "SLURMGATE_CHAOS_KILL="+st.kill)
	}
	if st.fail != "" {
		env = append(env, "SLURMGATE_CHAOS_FAIL="+st.fail)
	}
	cmd := k.s.program(context.WithoutCancel(ctx), user, env, "--site", k.s.file, "serve")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = k.log, k.log, 10*time.Second
	fmt.Fprintf(k.log, "=== %s life: %s\n", time.Now().Format("15:04:05.000"), st)
	if err := cmd.Start(); err != nil {
		k.note("the gateway cannot be started: " + err.Error())
		k.sleep(ctx, time.Second)
		return false
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	ours := k.attend(ctx, st, cmd, exited)
	<-exited
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pid = 0
	how := cmd.ProcessState.Sys().(syscall.WaitStatus)
	fmt.Fprintf(k.log, "=== %s ended: %s\n", time.Now().Format("15:04:05.000"), cmd.ProcessState)
	switch {
	case how.Signaled() && how.Signal() == syscall.SIGKILL && !ours && st.kill != "":
		k.fired = append(k.fired, st.kill)
	case ours:
	case how.Exited() && how.ExitStatus() == 5:
		return false
	case k.over():
	default:
		if text := "the gateway ended by itself: " + cmd.ProcessState.String(); !slices.Contains(k.wrong, text) {
			k.wrong = append(k.wrong, text)
		}
		time.Sleep(500 * time.Millisecond)
	}
	return true
}

// attend waits for the end of the life, and ends it when its time has come. ours reports that the signal came from
// here.
func (k *supervisor) attend(ctx context.Context, st start, cmd *exec.Cmd, exited chan struct{}) (ours bool) {
	faulty := st != (start{})
	var limit <-chan time.Time
	sig := syscall.SIGKILL
	switch {
	case st.after > 0:
		limit = time.After(st.after)
		if st.term {
			sig = syscall.SIGTERM
		}
	case st.kill != "" || st.fail != "":
		limit = time.After(k.s.patience())
	}
	var skip chan struct{}
	if faulty {
		skip = k.skip
	}
	answers := time.NewTicker(20 * time.Millisecond)
	defer answers.Stop()
	for {
		select {
		case <-exited:
			return false
		case <-answers.C:
			if k.answers(cmd.Process.Pid, !faulty) {
				answers.Stop()
			}
		case <-limit:
			limit = nil
			k.signal(cmd.Process.Pid, sig)
			ours = true
			if sig == syscall.SIGTERM {
				select {
				case <-exited:
				case <-time.After(drainLimit):
					k.note("the gateway does not end after SIGTERM")
					k.signal(cmd.Process.Pid, syscall.SIGKILL)
				}
			}
			return true
		case <-skip:
			k.signal(cmd.Process.Pid, syscall.SIGKILL)
			return true
		case <-k.stop:
			return k.end(cmd, exited)
		case <-ctx.Done():
			k.signal(cmd.Process.Pid, syscall.SIGKILL)
			return true
		}
	}
}

const drainLimit = 60 * time.Second // the gateway's own is 45 s

// end ends the gateway at the end of the case.
func (k *supervisor) end(cmd *exec.Cmd, exited chan struct{}) bool {
	if k.brute {
		k.signal(cmd.Process.Pid, syscall.SIGKILL)
		return true
	}
	k.signal(cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(drainLimit):
		k.note("the gateway does not end after SIGTERM")
		k.signal(cmd.Process.Pid, syscall.SIGKILL)
	}
	return true
}

// answers reports whether the gateway serves its socket, and remembers it.
func (k *supervisor) answers(host int, good bool) bool {
	c, err := net.Dial("unix", k.s.path(k.s.socket()))
	if err != nil {
		return false
	}
	c.Close()
	pid := k.s.pid(host)
	if pid == 0 { // it was the socket of a verb that is the gateway still; the daemon is not inside the cluster yet
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pid = pid
	if good && k.good.IsZero() {
		k.good = time.Now()
	}
	return true
}

func (k *supervisor) signal(host int, sig syscall.Signal) {
	if pid := k.s.pid(host); pid != 0 {
		syscall.Kill(pid, sig)
		return
	}
	syscall.Kill(-host, syscall.SIGKILL) // it was not inside yet
}

func (k *supervisor) note(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong = append(k.wrong, text)
}

// alive reports whether a gateway answers, and since when the good one does (zero: not yet).
func (k *supervisor) alive() (up bool, good time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pid != 0, k.good
}

// reload makes the living gateway read its files again.
func (k *supervisor) reload() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pid != 0 {
		syscall.Kill(k.pid, syscall.SIGHUP)
	}
}

// finish ends the last life and waits for it. killed: without a word.
func (k *supervisor) finish(killed bool) {
	k.brute = killed // read after stop is closed
	close(k.stop)
	<-k.ended
}
