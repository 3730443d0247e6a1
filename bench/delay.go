package main

import (
	"io"
	"net"
	"sync"
	"time"
)

// delayed forwards connections to target through a proxy that delivers each byte after half the round-trip time, in both directions. It
// does not limit the bandwidth: what is on its way is in memory. addr is the proxy's address.
func delayed(target string, roundTrip time.Duration) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			go late(near.(*net.TCPConn), far.(*net.TCPConn), roundTrip/2)
			go late(far.(*net.TCPConn), near.(*net.TCPConn), roundTrip/2)
		}
	}()
	return l.Addr().String(), func() { l.Close() }, nil
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 256<<10)
	return &b
}}

// late forwards one direction.
func late(from, to *net.TCPConn, delay time.Duration) {
	type parcel struct {
		due time.Time
		buf *[]byte
		n   int
	}
	road := make(chan parcel, 4096)
	go func() {
		for p := range road {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write((*p.buf)[:p.n]); err != nil {
				from.Close()
			}
			buffers.Put(p.buf)
		}
		_ = to.CloseWrite() // the other side may be gone
	}()
	defer close(road)
	for {
		buf := buffers.Get().(*[]byte)
		n, err := from.Read(*buf)
		if n > 0 {
			road <- parcel{time.Now().Add(delay), buf, n}
		}
		if err != nil {
			if err != io.EOF {
				to.Close()
			}
			return
		}
	}
}
