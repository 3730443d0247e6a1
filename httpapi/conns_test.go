package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/gate"
)

// quick makes a request and fails if it is not answered with 200, or waits for anything.
func (d *desk) quick(what, body string, headers ...string) {
	d.t.Helper()
	start := time.Now()
	if r := d.send(what, body, headers...); r.status != http.StatusOK || time.Since(start) > 0 {
		d.t.Errorf("%s was answered with %d %s after %s, want 200 at once", what, r.status, r.body, time.Since(start))
	}
}

// Idle connections, twenty times as many as there is room for, delay no request: the oldest of them are closed.
func TestIdleConnectionsDelayNobody(t *testing.T) {
	for name, l := range map[string]Limits{"full": {Connections: 64}, "of one address": {Connections: 4096, PerAddress: 64}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := pipedDesk(t, l, 0)
				var open []net.Conn
				for range 1280 {
					open = append(open, d.dial())
				}
				d.quick("GET /v1/runs/"+runA, "")
				d.quick("GET /v1/runs/"+runA, "", "Authorization: Bearer look")
				open[0].SetReadDeadline(time.Now().Add(time.Millisecond))
				if _, err := open[0].Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
					t.Error("the oldest connection is still open:", err)
				}
			})
		})
	}
}

// openStream opens an event stream and returns its connection after the first bytes of the answer.
func (d *desk) openStream(token string) (status string, c net.Conn) {
	d.t.Helper()
	c = d.dial()
	fmt.Fprintf(c, "GET /v1/runs/%s/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", runA,
		d.port.Addr(), token)
	line, _ := bufio.NewReader(c).ReadString('\n') // empty: it was closed
	return strings.TrimSpace(line), c
}

// A thousand streams of one token: it gets as many as it may have, and everybody else is served.
func TestStreamsPerCaller(t *testing.T) {
	d := limitedDesk(t, Limits{Connections: 512, PerCaller: 256}, 8)
	d.events = []Event{{Seq: 1, Type: "run.created"}}
	var good, refused atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 64 {
				switch status, _ := d.openStream("look"); {
				case strings.Contains(status, " 200 "):
					good.Add(1)
				case strings.Contains(status, " 503 "):
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	if good.Load() != 8 || refused.Load() != 1024-8 {
		t.Error(good.Load(), "streams,", refused.Load(), "refused")
	}
	r := d.send("GET /v1/artifacts/"+artA+"/content", "", "Authorization: Bearer look")
	if r.status != 503 || r.doc(t)["code"] != "too_many_streams" || r.doc(t)["retryable"] != true || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", r.status, r.body, r.header)
	}
	for what, token := range map[string]string{"GET /v1/runs/" + runA: "look", "GET /v1/artifacts/" + artA + "/content": "all"} {
		if r := d.send(what, "", "Authorization: Bearer "+token); r.status != 200 {
			t.Errorf("beside a caller's streams %s with the token %q was answered with %d %s, want 200", what, token, r.status, r.body)
		}
	}
	if status, _ := d.openStream("all"); !strings.Contains(status, " 200 ") {
		t.Error(status)
	}
}

// Connections at work for one caller are bounded; those of others are not concerned, and the caller's own idle ones make room.
func TestConnectionsPerCaller(t *testing.T) { synctest.Test(t, connectionsPerCaller) }

func connectionsPerCaller(t *testing.T) {
	d := pipedDesk(t, Limits{Connections: 64, PerCaller: 4}, 0)
	var last net.Conn
	for i := range 4 {
		status, c := d.openStream("look")
		if last = c; !strings.Contains(status, " 200 ") {
			t.Fatal(i, status)
		}
	}
	r := d.send("GET /v1/runs/"+runA, "", "Authorization: Bearer look")
	if r.status != 503 || r.doc(t)["code"] != "too_many_connections" || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.status, r.body)
	}
	d.quick("GET /v1/runs/"+runA, "")
	last.Close()
	synctest.Wait() // the server notices
	if r = d.send("GET /v1/runs/"+runA, "", "Authorization: Bearer look"); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// The table alone, step by step: who is closed when room runs short, and that nothing stays behind.
func TestWhoMakesRoom(t *testing.T) {
	table := newConns(Limits{Connections: 6, PerCaller: 3, PerAddress: 3})
	pipe := func(source string) *conn {
		a, b := net.Pipe()
		t.Cleanup(func() { b.Close() })
		return table.enter(a, source, -1)
	}
	greedy := []*conn{pipe("1"), pipe("1"), pipe("1"), pipe("1")}
	if !greedy[0].gone || greedy[1].gone {
		t.Error("the fourth of an address does not close its oldest")
	}
	busy := []*conn{pipe("2"), pipe("3"), pipe("4")}
	for _, c := range busy {
		if err := c.belongs("alice"); err != nil {
			t.Error(err)
		}
	}
	full := pipe("5")
	if full == nil || !greedy[1].gone || table.open != 6 {
		t.Errorf("%v, %d open", greedy[1].gone, table.open)
	}
	if err := full.belongs("alice"); err == nil {
		t.Error("a fourth connection of a caller")
	}
	table.state(busy[1], http.StateIdle)
	if err := full.belongs("alice"); err != nil || !busy[1].gone || busy[0].gone {
		t.Error("an idle connection does not make room:", err)
	}
	all := append(append(greedy, busy...), full)
	for i := range 3 { // then everybody is at work
		c := pipe(fmt.Sprint("w", i))
		all = append(all, c)
		if err := c.belongs(fmt.Sprint("worker", i)); err != nil {
			t.Error(err)
		}
	}
	if c := pipe("6"); c != nil || table.open != 6 {
		t.Error("room for one more:", table.open)
	}
	for range 2 { // closing twice is closing once
		for _, c := range all {
			c.Close()
		}
	}
	if table.open != 0 || len(table.owners) != 0 {
		t.Error(table.open, "open", len(table.owners), "owners")
	}
}

// as connects to a socket as another user of this host, n times at once, and returns the last answer.
func as(t *testing.T, uid int, path string, n int, request string) string {
	t.Helper()
	out := make(chan string)
	go func() {
		runtime.LockOSThread() // permanently: the thread ends with this goroutine
		last := ""
		defer func() { out <- last }()
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			t.Error(e)
			return
		}
		var fds []int
		defer func() {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}()
		for range n {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				fds = append(fds, fd)
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			}
			if err == nil && request != "" {
				_, err = unix.Write(fd, []byte(request))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
		answer := make([]byte, 4096)
		got, err := unix.Read(fds[n-1], answer)
		if err != nil {
			t.Error(err)
			return
		}
		last = string(answer[:got])
	}()
	return <-out
}

// Thousands of connections of a user without a grant are rejected before anything is read, each with a short answer,
// and delay no other connection.
func TestUnknownUsersAreTurnedAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root can be another user")
	}
	dir := shortFolder(t)
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "s")
	var reports, connections atomic.Int64
	s, err := Listen(SocketConfig{Path: path, Mode: 0o666, Limits: Limits{Connections: 8}, Known: func(uid int) bool { return uid == 0 },
		Turned: func(uid, n int) { reports.Add(1); connections.Add(int64(n)) }},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }), func() {}, quiet)
	must(t, err)
	defer s.Shutdown(context.Background())
	flood := make(chan string)
	go func() {
		defer close(flood) // as may have ended the test
		flood <- as(t, 12345, path, 3000, "")
	}()
	transport := overUnix(path)
	transport.DisableKeepAlives = true
	client := &http.Client{Transport: transport}
	answer, open, began := "", true, time.Now()
	for answer == "" && open { // the flood's connections stay open until its end: another user still has room
		res := value(client.Get("http://gateway/"))(t)
		res.Body.Close()
		select {
		case answer, open = <-flood:
		default:
		}
	}
	if !strings.HasPrefix(answer, "HTTP/1.1 401 ") || !strings.Contains(answer, "does not know your user") ||
		!strings.Contains(answer, "access.peers") {
		t.Error(answer)
	}
	for deadline := time.Now().Add(time.Minute); connections.Load() < 3000 && time.Now().Before(deadline); {
		runtime.Gosched() // connections within a second are reported together, at its end
	}
	most := int64(time.Since(began)/time.Second) + 2
	if n := reports.Load(); n == 0 || n > most || connections.Load() != 3000 {
		t.Errorf("%d records of %d connections, want at most %d of 3000", n, connections.Load(), most)
	}
	if _, err := Dial(t.Context(), path); err != nil {
		t.Error(err)
	}
}

// While it is not known whether some users may call, because a directory of users hangs, others connect and are served at once, and none
// of the waiting requests gets further, not even with a token.
func TestAcceptDoesNotWaitForADirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root can be another user")
	}
	dir := shortFolder(t)
	must(t, os.Chmod(dir, 0o755))
	path, hang, waits := filepath.Join(dir, "s"), make(chan struct{}), make(chan struct{}, 1)
	admit := func(ctx context.Context, uid int) error {
		if uid == 0 {
			return nil
		}
		select {
		case waits <- struct{}{}:
		default:
		}
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return fault.New(fault.Transport, "groups_unknown", "the groups cannot be looked up now").WithRetry(5)
	}
	r := value(gate.NewRegistry())(t)
	face := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: owner{}, Admit: admit}, nil)
	s := value(Listen(SocketConfig{Path: path, Mode: 0o666, Limits: Limits{Connections: 64, PerAddress: 8},
		Known: func(int) bool { return true }}, face, func() {}, quiet))(t)
	defer s.Shutdown(context.Background())
	flood := make(chan string)
	go func() {
		flood <- as(t, 12345, path, 40, "GET /v1/domain HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer good\r\n\r\n")
	}()
	<-waits
	transport := overUnix(path)
	transport.DisableKeepAlives = true
	client := &http.Client{Transport: transport}
	for range 20 {
		res, err := client.Get("http://gateway/v1/domain")
		if err != nil {
			t.Fatal("another user waits:", err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
	}
	close(hang)
	if answer := <-flood; !strings.HasPrefix(answer, "HTTP/1.1 503 ") || !strings.Contains(answer, "groups_unknown") ||
		!strings.Contains(answer, "Retry-After: 5") {
		t.Error(answer)
	}
}

// A user without a grant who runs a command learns why it does not work.
func TestDialTurnedAway(t *testing.T) {
	path := filepath.Join(shortFolder(t), "s")
	s, err := Listen(SocketConfig{Path: path, Mode: 0o600, Known: func(int) bool { return false }}, http.NotFoundHandler(), func() {}, quiet)
	must(t, err)
	defer s.Shutdown(context.Background())
	for range 100 { // the answer may come before the request or after it
		if _, err := Dial(t.Context(), path); !fault.Is(err, fault.Auth) || !strings.Contains(err.Error(), "access.peers") {
			t.Fatal(err)
		}
	}
}

// Failed logins are answered the later the more there are; good credentials from the same address are never delayed.
func TestFailedLoginsAreSlowedDown(t *testing.T) { synctest.Test(t, failedLoginsAreSlowedDown) }

func failedLoginsAreSlowedDown(t *testing.T) {
	d := pipedDesk(t, Limits{Connections: 64}, 0)
	start := time.Now()
	for range freeFailures + 4 {
		if r := d.send("GET /v1/runs", "", "Authorization: Bearer guess"); r.status != 401 {
			t.Fatal(r.status)
		}
	}
	if took := time.Since(start); took < firstPause*(1+2+4+8) {
		t.Error("guesses took", took)
	}
	var guesses sync.WaitGroup
	for range 3 * maxDelayed {
		guesses.Go(func() { d.raw(t, time.Minute, guess(d)) })
	}
	synctest.Wait() // their answers wait
	for range 20 {
		d.quick("GET /v1/runs/"+runA, "", "Authorization: Bearer look")
	}
	guesses.Wait()
}

func guess(d *desk) func(net.Conn) {
	return func(c net.Conn) {
		fmt.Fprintf(c, "GET /v1/runs HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer guess\r\nConnection: close\r\n\r\n", d.port.Addr())
	}
}

// A stranger who announces a body and sends none is not waited for.
func TestStrangersBodies(t *testing.T) { synctest.Test(t, strangersBodies) }

func strangersBodies(t *testing.T) {
	d := pipedDesk(t, Limits{Connections: 64}, 0)
	start := time.Now()
	got := d.raw(t, time.Minute, func(c net.Conn) {
		fmt.Fprintf(c, "POST /v1/tool-calls HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
			d.port.Addr())
	})
	if took := time.Since(start); !strings.HasPrefix(got, "HTTP/1.1 401 ") || took > 2*drainTime {
		t.Errorf("%.200s after %s", got, took)
	}
}

// Large bodies of one caller wait for each other, not those of others.
func TestLargeBodies(t *testing.T) { synctest.Test(t, largeBodiesWait) }

func largeBodiesWait(t *testing.T) {
	d := pipedDesk(t, Limits{Connections: 64}, 0)
	for range largePerUser + 4 {
		fmt.Fprintf(d.dial(), "POST /v1/tool-calls HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer look\r\nContent-Type: application/json\r\n"+
			"Content-Length: 1000000\r\n\r\n", d.port.Addr())
	}
	synctest.Wait() // all that there is room for are awaited
	for _, size := range []int{10, smallBody + 1} {
		token := map[bool]string{true: "look", false: "all"}[size == 10]
		start := time.Now()
		r := d.send("POST /v1/tool-calls", `{"x":"`+strings.Repeat("x", size)+`"}`, "Authorization: Bearer "+token)
		if took := time.Since(start); r.status != 400 || took > 0 {
			t.Errorf("a body of %d bytes from %q was answered with %d after %s, want 400 at once", size, token, r.status, took)
		}
	}
}
