package httpapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/gate"
)

// A process hands over the file that it has opened, with one request and no other.
func TestHandedFile(t *testing.T) {
	path, _ := serve(t)
	c := dial(t, path)
	file := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(file, []byte("what only its owner reads"), 0o600))
	f := value(os.Open(file))(t)
	defer f.Close()
	big := json.RawMessage(`{"pad":"` + strings.Repeat("x", 30_000) + `"}`) // more than one buffer
	for _, args := range []json.RawMessage{json.RawMessage(`{}`), big} {
		if _, err := f.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		res, err := c.CallWith(t.Context(), gate.NewRequest("test.file", "1.0.0", args), f)
		if err != nil || string(res.Result) != `{"text":"what only its owner reads"}` {
			t.Errorf("the call with a file returned %s, error %+v, %v; want the file's text", res.Result, res.Error, err)
		}
	}
	res, err := c.CallWith(t.Context(), gate.NewRequest("test.file", "1.0.0", json.RawMessage(`{}`)), nil)
	if err != nil || res.Error == nil || res.Error.Code != "no_file" {
		t.Errorf("the call without a file returned %s, error %+v, %v; want no_file", res.Result, res.Error, err)
	}
}

// descriptorsOf counts the descriptors of this process that are files of a folder.
func descriptorsOf(dir string) (n int) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// No descriptor gets into the gateway unless one was announced, and none stays there: not several at once, not those of a flood, not those
// that come too early or too late.
func TestDescriptorsThatNobodyAwaits(t *testing.T) {
	path, _ := serve(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	must(t, os.WriteFile(file, []byte("x"), 0o600))
	f := value(os.Open(file))(t)
	defer f.Close()
	own := descriptorsOf(dir)
	envelope := value(json.Marshal(gate.NewRequest("test.file", "1.0.0", json.RawMessage(`{}`))))(t)
	announced := fmt.Sprintf("POST /v1/tool-calls HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n%s: 1\r\nContent-Length: %d\r\n",
		handedHeader, len(envelope))
	plain := strings.Replace(announced, handedHeader, "X-Other", 1)
	many := make([]int, 200)
	for i := range many {
		many[i] = int(f.Fd())
	}
	for what, steps := range map[string]struct {
		head   string
		early  []int // with the headers
		waits  bool  // for 100 Continue
		late   []int // with the body
		again  []int // with the next request
		status int
	}{
		"one":                 {announced, nil, true, many[:1], nil, 200},
		"none":                {announced, nil, true, nil, nil, 400},
		"two":                 {announced, nil, true, many[:2], nil, 400},
		"many":                {announced, nil, true, many, nil, 400},
		"with the headers":    {announced, many[:1], true, nil, nil, 400},
		"not announced":       {plain, many, true, many, many, 400},
		"in the next request": {announced, nil, true, many[:1], many, 200},
	} {
		c := value(net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}))(t)
		must(t, c.SetDeadline(time.Now().Add(2*time.Minute)))
		send := func(text string, fds []int) {
			t.Helper()
			var oob []byte
			if fds != nil {
				oob = unix.UnixRights(fds...)
			}
			if n, _, err := c.WriteMsgUnix([]byte(text), oob, nil); err != nil || n != len(text) {
				t.Fatal(what, n, err)
			}
		}
		r := bufio.NewReader(c)
		answer := func() int {
			t.Helper()
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(what, err)
			}
			defer res.Body.Close()
			var doc any
			if err := json.NewDecoder(res.Body).Decode(&doc); res.StatusCode != 100 && err != nil {
				t.Fatal(what, err)
			}
			return res.StatusCode
		}
		send(steps.head+"Expect: 100-continue\r\n\r\n", steps.early)
		if got := answer(); got != 100 {
			t.Fatal(what, got)
		}
		send(string(envelope), steps.late)
		if got := answer(); got != steps.status {
			t.Errorf("%s: %d, want %d", what, got, steps.status)
		}
		if steps.again != nil {
			send(strings.Replace(plain, "POST", "GET", 1)+"Connection: close\r\n\r\n"+string(envelope), steps.again)
			answer()
		}
		if got := descriptorsOf(dir); got != own {
			t.Errorf("%s: %d descriptors of the file, %d are the client's", what, got, own)
		}
		c.Close()
	}
}

// The header is for the socket: the port has no descriptors.
func TestDescriptorOnThePort(t *testing.T) {
	d := newDesk(t)
	r := d.send("POST /v1/tool-calls", "{}", handedHeader+": 1")
	if r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "unix socket only") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// What a peer writes as ancillary data is read without a panic, and every descriptor in it is found.
func FuzzDescriptors(f *testing.F) {
	f.Add(unix.UnixRights(3))
	f.Add(unix.UnixRights(3, 4, 5))
	f.Add([]byte{20})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, oob []byte) {
		got := descriptors(oob)
		if len(got)*4 > len(oob) {
			t.Errorf("%d descriptors in %d bytes", len(got), len(oob))
		}
		if again := descriptors(unix.UnixRights(got...)); !slices.Equal(again, got) {
			t.Errorf("%v, then %v", got, again)
		}
	})
}
