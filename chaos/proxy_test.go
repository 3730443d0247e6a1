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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, text)
	data, _ := io.ReadAll(io.LimitReader(c, int64(want)))
	return string(data)
}

// A connection is cut at the very byte, in either direction; the next one is whole, on another host if the weather says so.
func TestProxy(t *testing.T) {
	p, err := newProxy(echo(t, "one:"), echo(t, "two:"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.listener.Close()
	p.set(weather{cuts: []cut{{down: true, after: 6}, {down: false, after: 3}, {down: true, after: 0}}, moves: true})
	// What has gone up before a cut may not have come back.
	for i, want := range []string{"one:he", "two:hel", "", "two:hello"} {
		if got := ask(t, p, "hello", 9); got != want && (i != 1 || !strings.HasPrefix(want, got)) {
			t.Errorf("connection %d: %q, want %q", i+1, got, want)
		}
	}
	if p.done() != 3 {
		t.Errorf("%d cuts", p.done())
	}
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	word := make([]byte, 4)
	if _, err := io.ReadFull(c, word); err != nil {
		t.Fatal(err)
	}
	p.cutNow()
	if n, err := c.Read(word); n > 0 || err == nil || p.done() != 4 {
		t.Errorf("%d more bytes after the cut, %v, %d cuts", n, err, p.done())
	}
	p.set(weather{delay: 30 * time.Millisecond})
	began := time.Now()
	if got := ask(t, p, "hello", 9); got != "one:hello" || time.Since(began) < 60*time.Millisecond {
		t.Errorf("%q after %s", got, time.Since(began))
	}
}
