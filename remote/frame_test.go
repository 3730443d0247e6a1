package remote

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

const aMark = "00112233445566778899aabbccddeeff"

// parse passes an answer to the parser in parts of n bytes.
func parse(text []byte, n int) (body []byte, a *answer, err error) {
	a = newAnswer(aMark, func(p []byte) error { body = append(body, p...); return nil }, func() {})
	for len(text) > 0 && err == nil {
		part := text[:min(n, len(text))]
		text = text[len(part):]
		_, err = a.Write(part)
	}
	return body, a, err
}

func TestAnswer(t *testing.T) {
	begin, end := "\n"+aMark+" begin\n", "\n"+aMark+" end "
	for text, want := range map[string]struct {
		body  string
		exit  int
		state state
	}{
		"Last login: …" + begin + "a\nb" + end + "0\n":    {"a\nb", 0, ended},
		begin + end + "255\nlogout":                       {"", 255, ended},
		begin + "\n\n" + end + "1\n":                      {"\n\n", 1, ended},
		begin + begin + end + "2\n":                       {begin, 2, ended},
		begin + "x\n" + aMark + " en" + end + "0\n":       {"x\n" + aMark + " en", 0, ended},
		"\n" + aMark[:8] + begin + "a" + end + "":         {"a", 0, within},
		begin + "half" + end + "1":                        {"half", 0, within},
		begin + "half" + end + "x\n":                      {"half", 0, within},
		begin + "half" + end + "\n":                       {"half", 0, within},
		begin + "half" + end + "1234\n":                   {"half", 0, within},
		"noise" + end + "0\n":                             {"", 0, before},
		"printf '\\n%s begin\\n' " + aMark + "\n" + aMark: {"", 0, before},
	} {
		for n := 1; n <= len(text); n++ {
			body, a, err := parse([]byte(text), n)
			got := string(body)
			if a.state != want.state || a.state == ended && (got != want.body || a.exit != want.exit || !errors.Is(err, errEnded)) ||
				!strings.HasPrefix(want.body+end, got) {
				t.Fatalf("%q in parts of %d: %q, state %d, exit %d, %v", text, n, got, a.state, a.exit, err)
			}
		}
	}
	if _, a, err := parse(bytes.Repeat([]byte("noise"), 1<<20), 1000); !errors.Is(err, errNoise) || len(a.heard()) > 2000 {
		t.Errorf("%v, %d bytes kept", err, len(a.heard()))
	}
}

// For any bytes in any parts the parser agrees with a search in the whole.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("noise\n"+aMark+" begin\nbody\n"+aMark+" end 3\nrest"), 3)
	f.Add([]byte("\n"+aMark+" begin\n\n"+aMark+" end \n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		if len(text) > maxNoise {
			return
		}
		// The mark is random, so the fuzzed bytes cannot contain it.
		text = bytes.ReplaceAll(text, []byte("MARK"), []byte(aMark))
		body, a, err := parse(text, max(1, min(n, 1<<20)))
		_, rest, begun := bytes.Cut(text, []byte("\n"+aMark+" begin\n"))
		whole, status, complete := bytes.Cut(rest, []byte("\n"+aMark+" end "))
		if begun != (a.state != before) {
			t.Fatalf("begun %v, state %d", begun, a.state)
		}
		if !bytes.HasPrefix(append(whole, "\n"+aMark+" end "...), body) {
			t.Fatalf("%q is not the beginning of %q", body, whole)
		}
		if a.state != ended {
			return
		}
		var code int
		line, _, ok := bytes.Cut(status, []byte("\n"))
		if k, _ := fmt.Sscanf(string(line), "%d", &code); !complete || !ok || k != 1 || code != a.exit || !bytes.Equal(body, whole) ||
			!errors.Is(err, errEnded) {
			t.Fatalf("%q %d %v from %q", body, a.exit, err, text)
		}
	})
}

// shells returns the shells of this machine that may be /bin/sh on a host.
func shells(t *testing.T) (list []string) {
	for _, s := range []string{"dash", "bash", "ksh93", "mksh", "busybox"} {
		if path, err := exec.LookPath(s); err == nil {
			list = append(list, path)
		}
	}
	if len(list) < 2 {
		t.Fatal("this test needs dash and bash")
	}
	return list
}

func runShell(shell string, input []byte) (out, stderr []byte) {
	args := []string{"-s"}
	if strings.HasSuffix(shell, "busybox") {
		args = []string{"sh", "-s"}
	}
	cmd := exec.Command(shell, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &o, &e
	cmd.Run()
	return o.Bytes(), e.Bytes()
}

const echo = `for a; do printf '<%s>' "$a"; done; exit 5`

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	args := []string{"", "a b", "'", `'\''`, "$(touch /tmp/x)`id`", "\\", "\n\n", "*", "é\xff\xfe\x01", "-n", "--", strings.Repeat("x", 90<<10)}
	for _, shell := range shells(t) {
		text, err := frame(aMark, echo, args, false, false)
		must(t, err)
		out, _ := runShell(shell, text)
		body, a, _ := parse(out, 4096)
		if want := "<" + strings.Join(args, "><") + ">"; string(body) != want || a.exit != 5 {
			t.Errorf("%s: %.300q, exit %d", shell, body, a.exit)
		}
	}
	for _, args := range [][]string{{"a\x00b"}, {strings.Repeat("x", maxWord+1)}, slicesOf(strings.Repeat("x", maxWord), 6)} {
		if _, err := frame(aMark, echo, args, false, false); err == nil {
			t.Error("no such argument can arrive")
		}
	}
}

func slicesOf(s string, n int) (list []string) {
	for range n {
		list = append(list, s)
	}
	return list
}

func FuzzArguments(f *testing.F) {
	f.Add("a'b", "$x\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		text, err := frame(aMark, echo, []string{a, b}, false, false)
		if err != nil {
			return
		}
		out, _ := runShell("/bin/sh", text)
		if body, _, _ := parse(out, 4096); string(body) != "<"+a+"><"+b+">" {
			t.Fatalf("%q", body)
		}
	})
}

// For any part of the input that a profile reads, and for any cut of the connection, the script runs whole or not at
// all.
//
// slow: starts a session for every byte of a command
func TestPartOfTheInputRunsNothing(t *testing.T) {
	text, err := frame(aMark, "echo ran\necho ran", nil, false, false)
	must(t, err)
	line := bytes.Index(text, []byte("sg_"))
	last := len(text)
	for _, shell := range shells(t) {
		for n := 0; n < last; n += 1 + n/40*7 { // every byte at the beginning
			out, _ := runShell(shell, text[n:])
			if ran := bytes.Contains(out, []byte("ran")); ran != (n <= line) {
				t.Fatalf("%s without the first %d of %d bytes: %q", shell, n, last, out)
			}
		}
		for n := last; n > line; n -= 1 + (last-n)/40*7 { // every byte at the end
			out, _ := runShell(shell, text[:n])
			if ran := bytes.Contains(out, []byte("ran\nran")); ran != (n >= last-1) || bytes.Contains(out, []byte("ran")) != ran {
				t.Fatalf("%s with the first %d of %d bytes: %q", shell, n, last, out)
			}
		}
	}
}
