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

// The standard input of /bin/sh -s, where M is the mark of the call, a random word:
//
//	⏎⏎…                                             for a profile that reads a line or two: it reads empty ones
//	sg_M=<base64 of the text below>⏎
//	eval "$(PATH=/usr/bin:/bin; export PATH; printf %s "$sg_M" | command base64 -d)"⏎
//
// and the text, which the shell runs whole or not at all: if a profile read the beginning of the input, or the
// connection was cut, sg_M is not set or the second line is incomplete.
//
//	print "⏎M begin⏎" on both streams                M in two parts, so that an echo of the input is no mark
//	read one line, which must be go                  with Call.Once or Stdin
//	run the script by a new /bin/sh with a clean environment and umask, its arguments as quoted words
//	print "⏎M end <exit status>⏎" on both streams
//
// The commands are the host's, for any PATH, functions and umask of the user's start-up files. This protects against
// accidents, not against a user who forges output: a program of the user may print anything (LD_PRELOAD in
// ~/.ssh/environment is enough).
//
// A shell that reads ahead loses nothing: go and Call.Stdin, which follow the text, are sent after the answer has
// begun.

// askable is the number of empty lines that a profile may read.
const askable = 32

// Bounds of the line of a call: an argument of a Linux process has at most 128 KiB.
const (
	maxWord = 96 << 10
	maxText = 512 << 10
)

// frame returns the input of a call.
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

// answer splits one stream of a call: the text before the mark, the script's output, and the end.
type answer struct {
	begin, end []byte
	to         func([]byte) error // receives the script's output
	begun      func()             // called once at the mark

	mu    sync.Mutex // used until the mark comes, because heard is called concurrently
	state state
	rest  []byte // possibly the beginning of a mark
	noise []byte // the end of the text before the mark
	loud  int    // bytes before the mark
	exit  int
}

type state int

const (
	before state = iota
	within
	ended
)

// maxNoise bounds the output of a profile, in bytes.
const maxNoise = 1 << 20

var (
	errNoise  = errors.New("the login shell printed more than a MiB before /bin/sh was started")
	errEnded  = errors.New("the end of the answer")
	errNoExit = errors.New("the answer ends without an exit status")
)

func newAnswer(mark string, to func([]byte) error, begun func()) *answer {
	return &answer{begin: []byte("\n" + mark + " begin\n"), end: []byte("\n" + mark + " end "), to: to, begun: begun}
}

// Write reads the next part of the stream. It returns errEnded after the end.
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

// listen reads the next part while the mark has not come.
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

// drop moves n bytes of rest to the text before the mark.
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

// pass passes n bytes of rest to the receiver.
func (a *answer) pass(n int) error {
	if n == 0 {
		return nil
	}
	err := a.to(a.rest[:n])
	a.rest = append(a.rest[:0], a.rest[n:]...)
	return err
}

// heard returns the end of the text before the mark.
func (a *answer) heard() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != before {
		return bytes.Clone(a.noise)
	}
	return append(bytes.Clone(a.noise), a.rest...)
}
