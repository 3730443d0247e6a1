package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// echo answers each connection with a word, then with what it gets.
func echo(t *testing.T, word string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprint(c, word)
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// ask sends a text through the proxy and returns what came back until the end, or until as much as expected.
func ask(t *testing.T, p *proxy, text string, want int) string {
	t.Helper()
	c, err := net.Dial("tcp", p.listener.Addr().String())
	must(t, err)
	defer c.Close()
	fmt.Fprint(c, text)
	data, _ := io.ReadAll(io.LimitReader(c, int64(want)))
	return string(data)
}

// A connection is cut at the very byte, in either direction; the next one is whole, on another host if the
// faults say so.
func TestProxy(t *testing.T) {
	p, err := newProxy(echo(t, "one:"), echo(t, "two:"))
	must(t, err)
	defer p.listener.Close()
	p.set(networkFaults{cuts: []cut{{down: true, after: 6}, {down: false, after: 3}, {down: true, after: 0}}, moves: true})
	// What has gone up before a cut may not have come back.
	for i, want := range []string{"one:he", "two:hel", "", "two:hello"} {
		if got := ask(t, p, "hello", 9); got != want && (i != 1 || !strings.HasPrefix(want, got)) {
			t.Errorf("connection %d: %q, want %q", i+1, got, want)
		}
	}
	done := func() observed { f, _ := p.sofar(); return f }
	if done().cuts != 3 {
		t.Errorf("after the cuts the connections met %+v", done())
	}
	c, err := net.Dial("tcp", p.listener.Addr().String())
	must(t, err)
	defer c.Close()
	word := make([]byte, 4)
	if _, err := io.ReadFull(c, word); err != nil {
		t.Fatal(err)
	}
	p.cutNow()
	if n, err := c.Read(word); n > 0 || err == nil || done().cuts != 4 {
		t.Errorf("after the cut came %d more bytes (%v), met %+v", n, err, done())
	}
	before := done()
	p.set(networkFaults{delay: 30 * time.Millisecond})
	began := time.Now()
	if got := ask(t, p, "hello", 9); got != "one:hello" || time.Since(began) < 60*time.Millisecond {
		t.Errorf("%q after %s", got, time.Since(began))
	}
	// What connections feel is counted, so that a fault that met nothing is not taken for one that was survived.
	if f := done().less(before); f.delayed != 14 || f.cuts != 0 || f.late != 0 {
		t.Errorf("the connections met %+v", f)
	}
	p.set(networkFaults{lost: 100})
	if got := ask(t, p, "POST /job", 13); got != "one:POST /job" {
		t.Errorf("read %q over a lossy connection, want the whole answer", got)
	}
	if f := done().less(before); f.late < 2 || f.posts != 1 || f.refused != 0 {
		t.Errorf("the connections met %+v", f)
	}
	p.set(networkFaults{})
	p.lead(echo(t, "HTTP/1.1 401 Unauthorized"))
	if got := ask(t, p, "", 12); got != "HTTP/1.1 401" || done().less(before).refused != 1 {
		t.Errorf("read %q, met %+v", got, done())
	}
	if _, ports := p.sofar(); len(ports) < 5 {
		t.Errorf("the connections had the ports %v, want 5 at least", ports)
	}
	p.lead("/nonexistent/socket")
	if got := ask(t, p, "hello", 9); got != "" || done().less(before).ended == 0 {
		t.Errorf("read %q, met %+v", got, done())
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
