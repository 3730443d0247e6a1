// Command liar is a proxy of the SFTP server of the campaign's cluster. It passes everything on, unless a file named
// sftp-server among the flags of the site whose files a session handles sets a fault: "full", so that nothing can be
// written, or "small" or "large", so that files seem to have another size than they have.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

const (
	packetWrite  = 6
	packetStatus = 101
	packetAttrs  = 105
	failure      = 4
	hasSize      = 1
)

func main() {
	server := exec.Command("/usr/lib/openssh/sftp-server", os.Args[1:]...)
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	check(err)
	out, err := server.StdoutPipe()
	check(err)
	check(server.Start())
	l := &liar{client: os.Stdout}
	go func() {
		defer in.Close()
		for p := range packets(os.Stdin) {
			if answer := l.refuse(p); answer != nil {
				l.send(answer)
			} else if _, err := in.Write(p); err != nil {
				return
			}
		}
	}()
	for p := range packets(out) {
		l.bend(p)
		l.send(p)
	}
	check(server.Wait())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "liar:", err)
		os.Exit(1)
	}
}

// packets yields the packets of a stream, each with its length before it.
func packets(r io.Reader) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for {
			var head [4]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return
			}
			p := make([]byte, 4+binary.BigEndian.Uint32(head[:]))
			copy(p, head[:])
			if _, err := io.ReadFull(r, p[4:]); err != nil || !yield(p) {
				return
			}
		}
	}
}

type liar struct {
	mu     sync.Mutex
	client io.Writer
	flag   string // its path, once a path has shown whose files these are
}

func (l *liar) send(p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client.Write(p)
}

// ofSite matches a path among the files of one site.
var ofSite = regexp.MustCompile(`/[a-z/]*/chaos/[a-z]+[0-9]+/`)

// mood reads the flag.
func (l *liar) mood() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, err := os.ReadFile(l.flag)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// bit leaves a byte for each answer that was not the server's.
func (l *liar) bit() {
	f, err := os.OpenFile(l.flag+".bit", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return // the campaign reports that no fault took effect
	}
	defer f.Close()
	f.Write([]byte{'.'})
}

// refuse returns the answer to a request that is not passed on.
func (l *liar) refuse(p []byte) []byte {
	l.mu.Lock()
	if l.flag == "" {
		if at := ofSite.Find(p[4:min(len(p), 400)]); at != nil {
			l.flag = string(at) + "flags/sftp-server"
		}
	}
	l.mu.Unlock()
	if len(p) < 9 || p[4] != packetWrite || l.mood() != "full" {
		return nil
	}
	l.bit()
	a := append([]byte{packetStatus}, p[5:9]...)
	a = binary.BigEndian.AppendUint32(a, failure)
	for _, text := range []string{"No space left on device", "en"} {
		a = append(binary.BigEndian.AppendUint32(a, uint32(len(text))), text...)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(a))), a...)
}

// bend changes the size in an answer that has one.
func (l *liar) bend(p []byte) {
	if len(p) < 21 || p[4] != packetAttrs || binary.BigEndian.Uint32(p[9:])&hasSize == 0 {
		return
	}
	size := binary.BigEndian.Uint64(p[13:])
	switch l.mood() {
	case "small":
		size /= 2
	case "large":
		size += 4096
	default:
		return
	}
	l.bit()
	binary.BigEndian.PutUint64(p[13:], size)
}
