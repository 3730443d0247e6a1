package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"slurmgate/fault"
)

const (
	diskPatience = 5 * time.Second // that the disk may take before the gateway counts as not ready. A call waits longer for it
	probeEvery   = time.Second     // a newer probe's result is used again
)

// diskProbes make the ledger's folder durable, one at a time: a probe of a disk that hangs may never end.
type diskProbes struct {
	mu   sync.Mutex
	last *diskProbe // nil: there was none
}

type diskProbe struct {
	began time.Time
	ended chan struct{} // closed when err is set
	err   error
}

// DiskAnswers changes the time of the ledger's folder and makes that durable. If this takes longer than a few
// seconds, it is a Transport fault with code state_disk_silent; if the disk refuses it, with code state_disk_failed.
// Concurrent calls share a probe.
func (l *Ledger) DiskAnswers(ctx context.Context) error {
	p := l.probe()
	wait := time.NewTimer(time.Until(p.began.Add(diskPatience)))
	defer wait.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return fault.New(fault.Transport, "state_disk_silent", fmt.Sprintf("the disk of gateway.state_dir has not answered for %s",
			time.Since(p.began).Round(time.Second))).
			WithNext("check that disk (dmesg, df); the gateway continues by itself when it answers")
	}
}

// probe returns the probe that is under way or has just ended, else a new one.
func (l *Ledger) probe() *diskProbe {
	l.probes.mu.Lock()
	defer l.probes.mu.Unlock()
	if p := l.probes.last; p != nil && (!p.over() || time.Since(p.began) < probeEvery) {
		return p
	}
	p := &diskProbe{began: time.Now(), ended: make(chan struct{})}
	l.probes.last = p
	go func() {
		defer close(p.ended)
		if err := touch(filepath.Dir(l.path)); err != nil {
			p.err = fault.Wrap(fault.Transport, "state_disk_failed", "the disk of gateway.state_dir refuses changes", err).
				WithNext("check that disk (dmesg, df)")
		}
	}()
	return p
}

func (p *diskProbe) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// touch changes the time of a folder, on the disk.
func touch(dir string) error {
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
