package remote

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"

	"slurmgate/shell"
)

// What goes to the standard input of /bin/sh -s, M being the mark of the call, a random word:
//
//	⏎⏎…                                             for a profile that reads a line or two: it gets empty ones
//	sg_M=<base64 of the text below>⏎
//	eval "$(PATH=/usr/bin:/bin; export PATH; printf %s "$sg_M" | command base64 -d)"⏎
//
// and the text, which the shell runs whole or not at all: where a profile took the beginning of the input, or the connection was cut,
// sg_M is not set or the second line is not complete.
//
//	print "⏎M begin⏎" on both streams                M in two halves, so that an echo of the input is no mark
//	read one line, which must be go                  with Call.Once or Stdin
//	run the script by a new /bin/sh with a clean environment and umask, its arguments as quoted words
//	print "⏎M end <exit status>⏎" on both streams
//
// The commands are the host's, whatever PATH, functions and umask the user's start-up files have set. That keeps an unlucky user out of
// trouble. It does not stop a user who wants to forge: what runs as the user may say anything (LD_PRELOAD in ~/.ssh/environment is enough).
//
// Nothing that a shell has read ahead is missing then: what follows the text, go and Call.Stdin, is sent after the answer has begun.

// askable is how many lines a profile may read before it reaches ours.
const askable = 32

// Bounds of what a call carries in its line: an argument of a Linux process has 128 KiB at most.
const (
	maxWord = 96 << 10
	maxText = 512 << 10
)

// frame makes the input of a call.
func frame(mark, script string, args []string, wait, stdin bool) ([]byte, error) {
	half := len(mark) / 2
	var b strings.Builder
	fmt.Fprintf(&b, "m=%s\nm=${m}%s\n", mark[:half], mark[half:])
	b.WriteString(`printf '\n%s begin\n' "$m" >&2` + "\n" + `printf '\n%s begin\n' "$m"` + "\n")
	if wait {
		b.WriteString("IFS= read -r go || exit 0\n[ \"$go\" = go ] || exit 0\n")
	}
	b.WriteString("PATH=/usr/bin:/bin\nexport PATH\numask 077\n" +
		`command env -i PATH=/usr/bin:/bin HOME="$HOME" LANG=C LC_ALL=C /bin/sh -c `)
	for _, word := range append([]string{script, "sh"}, args...) {
		if len(word) > maxWord || strings.IndexByte(word, 0) >= 0 {
			return nil, fmt.Errorf("a word of %d bytes cannot be an argument", len(word))
		}
		b.WriteString(shell.Single(word) + " ")
	}
	if !stdin {
		b.WriteString("</dev/null")
	}
	b.WriteString("\ns=$?\n" + `printf '\n%s end %d\n' "$m" "$s" >&2` + "\n" + `printf '\n%s end %d\n' "$m" "$s"` + "\nexit 0\n")
	if b.Len() > maxText {
		return nil, fmt.Errorf("script and arguments have %d bytes, more than %d", b.Len(), maxText)
	}
	return []byte(strings.Repeat("\n", askable) + "sg_" + mark + "=" + base64.StdEncoding.EncodeToString([]byte(b.String())) +
		"\neval \"$(PATH=/usr/bin:/bin; export PATH; printf %s \"$sg_" + mark + "\" | command base64 -d)\"\n"), nil
}

// answer takes apart one stream of a call: what comes before the mark, what the script printed, and the end.
type answer struct {
	begin, end []byte
	to         func([]byte) error // takes what the script printed
	begun      func()             // called once at the mark

	mu    sync.Mutex // holds while the mark has not come: heard is called meanwhile
	state state
	rest  []byte // what may be the beginning of a mark
	noise []byte // the last of what came before
	loud  int    // bytes that came before
	exit  int
}

type state int

const (
	before state = iota
	within
	ended
)

// maxNoise is how much a profile may print.
const maxNoise = 1 << 20

var (
	errNoise  = errors.New("the login shell printed more than a MiB before /bin/sh was started")
	errEnded  = errors.New("the end of the answer")
	errNoExit = errors.New("the answer ends without an exit status")
)

func newAnswer(mark string, to func([]byte) error, begun func()) *answer {
	return &answer{begin: []byte("\n" + mark + " begin\n"), end: []byte("\n" + mark + " end "), to: to, begun: begun}
}

// Write takes the next part, until its error is errEnded.
func (a *answer) Write(p []byte) (int, error) {
	if a.state == before {
		if err := a.listen(p); err != nil || a.state == before {
			return len(p), err
		}
		a.begun()
	} else {
		a.rest = append(a.rest, p...)
	}
	i := bytes.Index(a.rest, a.end)
	if i < 0 {
		return len(p), a.pass(max(0, len(a.rest)-len(a.end)+1))
	}
	if err := a.pass(i); err != nil {
		return len(p), err
	}
	status := a.rest[len(a.end):]
	n := bytes.IndexByte(status, '\n')
	if n < 0 && len(status) < 4 {
		return len(p), nil
	}
	if n < 1 || n > 3 {
		return len(p), errNoExit
	}
	for _, c := range status[:n] {
		if c < '0' || c > '9' {
			return len(p), errNoExit
		}
		a.exit = 10*a.exit + int(c-'0')
	}
	a.state = ended
	return len(p), errEnded
}

// listen takes the next part while the mark has not come.
func (a *answer) listen(p []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rest = append(a.rest, p...)
	i := bytes.Index(a.rest, a.begin)
	if i < 0 {
		return a.drop(max(0, len(a.rest)-len(a.begin)+1))
	}
	if err := a.drop(i); err != nil {
		return err
	}
	a.rest = a.rest[len(a.begin):]
	a.state = within
	return nil
}

// drop forgets n bytes of what came before the mark.
func (a *answer) drop(n int) error {
	a.loud += n
	a.noise = append(a.noise, a.rest[:n]...)
	a.noise = a.noise[max(0, len(a.noise)-512):]
	a.rest = a.rest[n:]
	if a.loud > maxNoise {
		return errNoise
	}
	return nil
}

// pass hands n bytes on.
func (a *answer) pass(n int) error {
	if n == 0 {
		return nil
	}
	err := a.to(a.rest[:n])
	a.rest = append(a.rest[:0], a.rest[n:]...)
	return err
}

// heard is the last of what was printed before the mark.
func (a *answer) heard() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != before {
		return bytes.Clone(a.noise)
	}
	return append(bytes.Clone(a.noise), a.rest...)
}
