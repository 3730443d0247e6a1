package sftp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/remote"
	"slurmgate/remote/transfer"
	"slurmgate/run"
)

// large is an input that is sent in several parts.
type large struct {
	data []byte
	in   plan.Input
}

func newLarge(size int) large {
	l := large{data: make([]byte, size)}
	rand.NewChaCha8([32]byte{1}).Read(l.data)
	sum := sha256.Sum256(l.data)
	l.in = plan.Input{Role: "r", ChecksumSHA256: hex.EncodeToString(sum[:]), DestRelpath: "in/deep/large"}
	return l
}

// opener returns an opener of the bytes that calls trip when a byte at or after at is read.
func (l large) opener(at int64, trip func()) run.Opener {
	return func(context.Context, string) (io.ReadCloser, int64, error) {
		return &tripwire{bytes.NewReader(l.data), at, trip}, int64(len(l.data)), nil
	}
}

type tripwire struct {
	*bytes.Reader
	at   int64
	trip func()
}

func (w *tripwire) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > w.at {
		w.trip()
	}
	return w.Reader.ReadAt(p, off)
}

func (*tripwire) Close() error { return nil }

// gateway simulates a process of a gateway that stages an input, and counts the bytes that it sends.
func (f *farSide) gateway(t *testing.T, sent *atomic.Int64, change func(*Config)) (w *Workspace, end func()) {
	t.Helper()
	data := server{sent: sent}
	pool, err := transfer.New(data, transfer.Config{Connections: 1})
	must(t, err)
	w = f.open(t, func(c *Config) {
		c.Data, c.Pool = data, pool
		if change != nil {
			change(c)
		}
	})
	return w, func() {
		w.Close()
		pool.Close()
	}
}

// A transfer that ended with the gateway is continued by the next one: durable bytes are not sent again. Existing bytes
// are verified: if they were replaced, the input is sent again.
//
// proves SITE-05
func TestInputContinuesAfterRestart(t *testing.T) {
	const again = 40 << 20 // at most: the bytes between two syncs, and those in flight
	l := newLarge(96 << 20)
	size := int64(len(l.data))
	eachForm(t, func(t *testing.T, far *farSide) {
		for _, c := range []struct {
			at      int64
			damaged bool
		}{{0, false}, {50<<20 + 1, false}, {size - 1, false}, {size - 1, true}} {
			must(t, os.RemoveAll(far.path(runA)))
			var sent atomic.Int64
			w, end := far.gateway(t, &sent, nil)
			ctx, stop := context.WithCancel(t.Context())
			if err := w.StageInputs(ctx, runA, []plan.Input{l.in}, l.opener(c.at, stop)); !fault.Is(err, fault.Canceled) {
				t.Fatal(err)
			}
			end()
			if c.damaged {
				parts, err := filepath.Glob(far.path(runA, stageDir, transfer.TempPrefix+"*"))
				if must(t, err); len(parts) != 2 {
					t.Fatalf("left: %q", parts)
				}
				f, err := os.OpenFile(parts[0], os.O_WRONLY, 0)
				must(t, err)
				_, err = f.WriteAt([]byte("damaged"), 12345)
				must(t, err)
				must(t, f.Close())
			}
			w, end = far.gateway(t, &sent, func(c *Config) { c.Marked = true })
			err := w.StageInputs(t.Context(), runA, []plan.Input{l.in}, l.opener(size, nil))
			if c.damaged && far.config.Shell != nil { // the far side refuses it when it hashes it
				wantFault(t, err, fault.Transport, "filesystem")
				err = w.StageInputs(t.Context(), runA, []plan.Input{l.in}, l.opener(size, nil))
			}
			must(t, err)
			end()
			if got := content(t, far.path(runA, l.in.DestRelpath)); got != string(l.data) {
				t.Errorf("cut at %d, damaged %v: other bytes", c.at, c.damaged)
			}
			if n := sent.Load(); !c.damaged && n > size+again {
				t.Errorf("cut at %d: %d MiB were sent of an input of %d", c.at, n>>20, size>>20)
			}
			if left, err := filepath.Glob(far.path(runA, ".*")); err != nil || len(left) > 0 {
				t.Errorf("left %q %v", left, err)
			}
		}
	})
}

// placeless is a login node that is lost when place is called.
type placeless struct{ shell }

func (p placeless) Run(ctx context.Context, c remote.Call) (remote.Output, error) {
	for _, a := range c.Args {
		if a == "place" {
			return remote.Output{}, fault.New(fault.Transport, remote.Unreachable, "no connection")
		}
	}
	return p.shell.Run(ctx, c)
}

// An input that was completely sent when the gateway ended is not sent again.
//
// proves SITE-05
func TestInputThatWasSentIsPlaced(t *testing.T) {
	l := newLarge(1 << 20)
	far := newFar(t, nil)
	var sent atomic.Int64
	w, end := far.gateway(t, &sent, func(c *Config) { c.Shell = placeless{} })
	err := w.StageInputs(t.Context(), runA, []plan.Input{l.in}, l.opener(2<<20, nil))
	wantFault(t, err, fault.Transport, remote.Unreachable)
	end()
	w, end = far.gateway(t, &sent, nil)
	must(t, w.StageInputs(t.Context(), runA, []plan.Input{l.in}, l.opener(2<<20, nil)))
	end()
	if got := content(t, far.path(runA, l.in.DestRelpath)); got != string(l.data) || sent.Load() > 3<<19 {
		t.Errorf("%d bytes of %d, %d sent", len(got), len(l.data), sent.Load())
	}
}

// Many small files are sent concurrently, so that they cost the round trips of a few: the server holds its answers
// until all requests have come.
func TestManySmallFiles(t *testing.T) {
	const inputs, controls = 200, 20
	var list []plan.Input
	in, open := anInput("small", "")
	for i := range inputs {
		in.DestRelpath = fmt.Sprintf("in/%03d", i)
		list = append(list, in)
	}
	var files []run.ControlFile
	for i := range controls {
		files = append(files, run.ControlFile{Name: fmt.Sprintf("file%02d", i), Data: []byte("small")})
	}
	eachForm(t, func(t *testing.T, far *farSide) {
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute) // a client that waits for an answer fails
		defer stop()
		holds := []*hold{newHold("/.stage/.put-", inputs)}
		if far.config.Shell == nil {
			holds = append(holds, newHold(runA+"/in/", inputs), newHold("/ctl/file", controls))
		}
		for _, h := range holds {
			must(t, os.RemoveAll(far.path(runA)))
			w := far.open(t, func(c *Config) { c.Data = server{hold: h} })
			must(t, w.StageInputs(ctx, runA, list, open))
			must(t, w.OpenAttempt(ctx, runA, 1, tokenA, files...))
			if h.seen < h.want {
				t.Errorf("%d requests with %s", h.seen, h.word)
			}
		}
		for i := range inputs {
			if got := content(t, far.path(runA, list[i].DestRelpath)); got != "small" {
				t.Errorf("the input %s is %q, want \"small\"", list[i].DestRelpath, got)
			}
		}
	})
}
