package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// requestCount counts the unanswered requests of an SFTP channel as calls of the connection: a connection with one is
// not idle. Each packet of a client has one answer, the first one included (draft-ietf-secsh-filexfer-02, 3).
type requestCount struct {
	on *link

	mu     sync.Mutex
	asked  int
	closed bool
}

func (r *requestCount) ask(packets int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range packets {
		if !r.closed {
			r.asked++
			r.on.hold()
		}
	}
}

// answer ends requests. Answers without a request are ignored.
func (r *requestCount) answer(packets int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; packets > 0 && r.asked > 0; packets-- {
		r.asked--
		r.on.leave()
	}
}

// end ends all requests: no further answer will come.
func (r *requestCount) end() {
	r.mu.Lock()
	r.closed = true
	asked := r.asked
	r.mu.Unlock()
	r.answer(asked)
}

// packets counts the packets of a stream.
type packets struct {
	head  []byte // of an incomplete packet
	rest  uint32 // bytes until the next one
	first []byte // of the packet after its head
	judge func(first []byte) error
	bad   error // of the first packet that judge refused
}

// maxFirst bounds the part of a packet that judge gets: its type, its id, and the number after that.
const maxFirst = 9

// pass reads the next bytes and returns how many packets they complete.
func (p *packets) pass(b []byte) (complete int) {
	for len(b) > 0 {
		if p.rest > 0 {
			n := min(uint64(p.rest), uint64(len(b)))
			p.rest -= uint32(n)
			p.first = append(p.first, b[:min(int(n), maxFirst-len(p.first))]...)
			b = b[n:]
		} else {
			n := min(4-len(p.head), len(b))
			p.head = append(p.head, b[:n]...)
			b = b[n:]
			if len(p.head) < 4 {
				break
			}
			p.rest = binary.BigEndian.Uint32(p.head)
			p.head = p.head[:0]
		}
		if p.rest == 0 && len(p.head) == 0 {
			complete++
			if p.judge != nil && p.bad == nil {
				p.bad = p.judge(p.first)
			}
			p.first = p.first[:0]
		}
	}
	return complete
}

// Types of answers (draft-ietf-secsh-filexfer-02, 3).
const (
	sftpData = 103
	sftpName = 104
)

// maxNames bounds the file names that a user's server may send on one channel.
const maxNames = 500_000

// strict returns a judge that refuses answers with which a request would never end: a user may have replaced the
// server.
func strict() func(first []byte) error {
	names := uint64(0)
	return func(first []byte) error {
		if len(first) < maxFirst {
			return nil
		}
		n := binary.BigEndian.Uint32(first[5:])
		if first[0] == sftpName {
			names += uint64(n)
		}
		switch {
		case first[0] == sftpData && n == 0:
			return errors.New("the SFTP server sent no bytes where a file continues")
		case names > maxNames:
			return fmt.Errorf("the SFTP server sent more than %d names of files", maxNames)
		}
		return nil
	}
}

// answers is the reading side of an SFTP channel.
type answers struct {
	io.Reader
	count *requestCount
	seen  *packets
}

func (a answers) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	a.count.answer(a.seen.pass(p[:n]))
	if a.seen.bad != nil {
		n, err = 0, a.seen.bad
	}
	if err != nil {
		a.count.end()
	}
	return n, err
}

// requestWriter is the writing side.
type requestWriter struct {
	io.Writer
	count *requestCount
	seen  *packets
}

func (w requestWriter) Write(p []byte) (int, error) {
	w.count.ask(w.seen.pass(p))
	return w.Writer.Write(p)
}
