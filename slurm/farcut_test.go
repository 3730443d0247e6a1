package slurm

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"slurmgate/run"
	"slurmgate/run/runtest"
)

// cutter is a proxy that ends a connection after a number of bytes in one direction.
type cutter struct {
	to       string
	mu       sync.Mutex
	up, down int64 // bytes that may still pass to the server, and from it; negative: any number
	passed   [2]int64
}

func (p *cutter) serve(t *testing.T) string {
	l := value(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				in.Close()
				continue
			}
			end := func() { in.Close(); out.Close() }
			go p.copy(out, in, &p.up, 0, end)
			go p.copy(in, out, &p.down, 1, end)
		}
	}()
	return l.Addr().String()
}

func (p *cutter) copy(to io.Writer, from io.Reader, left *int64, way int, end func()) {
	defer end()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		last := *left >= 0 && int64(n) >= *left
		if last {
			n = int(*left)
			*left = 0
		} else if *left > 0 {
			*left -= int64(n)
		}
		p.passed[way] += int64(n)
		p.mu.Unlock()
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil || last {
			return
		}
	}
}

// A connection that is cut at any byte of a send, in either direction, never starts a second sbatch, and the result of
// the send is true.
//
// proves SITE-04
func TestFarSendCutAnywhere(t *testing.T) {
	p := &cutter{up: -1, down: -1}
	c, job, work, _ := overSSH(t, "echo $(($(grep -c started $W/starts) + 100))", func(address string) string {
		p.to = address
		return p.serve(t)
	})
	send := func(k int) run.SendResult {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return c.Send(ctx, job, k)
	}
	set := func(up, down int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.up, p.down, p.passed = up, down, [2]int64{}
	}
	runtest.WantSend(t, send(1), run.SendAccepted, "")
	set(-1, -1)
	runtest.WantSend(t, send(2), run.SendAccepted, "")
	p.mu.Lock()
	whole := p.passed
	p.mu.Unlock()
	seen := map[run.SendOutcome]int{}
	k := 2
	for way, total := range whole {
		for at := int64(0); at <= total; at += max(1, total/25) {
			k++
			before := starts(work)
			limits := [2]int64{-1, -1}
			limits[way] = at
			set(limits[0], limits[1])
			res := send(k)
			seen[res.Outcome]++
			set(-1, -1)
			left := untilFree(t, c, job, k)
			n := starts(work) - before
			switch {
			case n > 1, n == 0 && res.Outcome == run.SendAccepted, n == 1 && res.Outcome == run.SendNotRun,
				res.Outcome == run.SendRejected || res.Outcome == run.SendDeferred,
				n == 1 && left.Outcome != run.SendAccepted, n == 0 && left.Outcome != run.SendDoubt:
				t.Errorf("cut after %d of %d bytes (direction %d) the send gives %s, its receipt %s, with %d starts of sbatch; want them to agree",
					at, total, way, sendText(res), sendText(left), n)
			}
		}
	}
	if seen[run.SendNotRun] == 0 || seen[run.SendDoubt] == 0 {
		t.Errorf("outcomes %v: the cuts were not before and after the start of sbatch", seen)
	}
}
