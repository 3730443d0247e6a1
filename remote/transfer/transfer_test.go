package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
)

// small is a tuning with which a few kilobytes behave like gigabytes.
var small = tuning{chunk: 1 << 10, window: 4 << 10, lane: 4 << 10, sync: 8 << 10, resume: 16 << 10,
	pause: time.Millisecond}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	rng.Read(b)
	return b
}

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func pool(t *testing.T, s *server, connections int) *Pool {
	t.Helper()
	p := newPool(s, Config{Connections: connections, Stall: time.Minute}, small)
	t.Cleanup(p.Close)
	return p
}

func TestPutAndGet(t *testing.T) {
	for _, size := range []int{0, 1, 1023, 1024, 1025, 5000, 40_000, 100_001} {
		for _, connections := range []int{1, 3, 8} {
			t.Run(fmt.Sprint(size, "/", connections), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					p := pool(t, s, connections)
					data := randomBytes(uint64(size), size)
					s.files["/d/f"] = &memFile{data: []byte("old"), mode: 0o100644}
					f := File{Path: "/d/f", Size: int64(size), SHA256: sumOf(data), Mode: 0o400}
					sum, err := p.Put(t.Context(), f, bytes.NewReader(data))
					if err != nil || sum != f.SHA256 {
						t.Fatalf("%s, %v", sum, err)
					}
					got, _ := s.content("/d/f")
					if !bytes.Equal(got, data) || strings.Join(s.names(), " ") != "/d/f" || s.files["/d/f"].mode != 0o100400 {
						t.Fatalf("%d of %d bytes, files %v, mode %o", len(got), len(data), s.names(), s.files["/d/f"].mode)
					}
					s.crash()
					if got, _ := s.content("/d/f"); !bytes.Equal(got, data) {
						t.Error("the file appeared under its name before it was durable")
					}
					var out bytes.Buffer
					if n, err := p.Get(t.Context(), f, 0, nil, &out); err != nil || n != int64(size) || !bytes.Equal(out.Bytes(), data) {
						t.Errorf("%d bytes, %v", n, err)
					}
					if s.most > connections {
						t.Errorf("%d connections at a time, of %d", s.most, connections)
					}
				})
			})
		}
	}
}

// cuts makes the server's connections end after the given numbers of bytes, one after another, each counted from the
// previous cut.
func cuts(s *server, crash bool, in bool, after ...int) {
	var mu sync.Mutex
	never := -1
	left := -1
	var next func()
	next = func() {
		left = -1
		if len(after) > 0 {
			left, after = after[0], after[1:]
		}
	}
	next()
	s.wire = func(n int, c net.Conn) net.Conn {
		k := &cutter{Conn: c, mu: &mu, in: &never, out: &never, whenDone: func() {
			if crash {
				s.crash(n)
			}
			mu.Lock()
			defer mu.Unlock()
			next()
		}}
		if in {
			k.in = &left
		} else {
			k.out = &left
		}
		return k
	}
}

// A cut of the connection at any byte in either direction, with or without a crash of the host, costs only time.
//
// slow: cuts a transfer at every byte
func TestCutAtEveryByte(t *testing.T) {
	data := randomBytes(7, 1100)
	f := File{Path: "/d/f", Size: 1100, SHA256: sumOf(data), Mode: 0o400}
	for _, in := range []bool{true, false} {
		t.Run(fmt.Sprint("in=", in), func(t *testing.T) {
			cut := 0
			for n := 0; ; n++ {
				again := false
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					cuts(s, n%4 > 0, in, n)
					p := pool(t, s, 2)
					if _, err := p.Put(t.Context(), f, bytes.NewReader(data)); err != nil {
						t.Fatalf("cut after %d bytes: %v", n, err)
					}
					var out bytes.Buffer
					if _, err := p.Get(t.Context(), f, 0, nil, &out); err != nil {
						t.Fatalf("cut after %d bytes: %v", n, err)
					}
					if !bytes.Equal(out.Bytes(), data) || strings.Join(s.names(), " ") != "/d/f" {
						t.Fatalf("cut after %d bytes: other bytes, or files %v", n, s.names())
					}
					again = s.dials > 1
				})
				if !again {
					break
				}
				cut++
			}
			if cut < 1000 {
				t.Errorf("only %d positions were cut", cut)
			}
		})
	}
}

func (s *server) cut(rng *rand.Rand, after ...int) {
	cuts(s, rng.IntN(2) == 0, rng.IntN(2) == 0, after...)
	bad := rng.IntN(9)
	s.refuse = func(int) error {
		if rng.IntN(8) < bad {
			return errors.New("too many connections")
		}
		return nil
	}
}

func (s *server) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = nil
}

// manyCuts puts a file into a folder that has an older one of its name. After any cut, crash or failed connection a
// file under its name is whole, an error leaves the old file, and another try succeeds. It returns how many tries
// failed.
func manyCuts(t *testing.T, s *server, dir string, rng *rand.Rand, seed uint64) (failed int) {
	size := 1 + rng.IntN(200_000)
	data := randomBytes(seed, size)
	f := File{Path: dir + "/f", Size: int64(size), SHA256: sumOf(data)}
	old, _ := s.content(f.Path)
	var after []int
	for range rng.IntN(40) {
		after = append(after, rng.IntN(1+rng.IntN(2*size)))
	}
	s.cut(rng, after...)
	for ; ; failed++ {
		p := newPool(s, Config{Connections: 1 + rng.IntN(8), Stall: time.Minute}, small)
		_, err := p.Put(t.Context(), f, bytes.NewReader(data))
		p.Close()
		got, there := s.content(f.Path)
		if err == nil {
			if !bytes.Equal(got, data) {
				t.Fatalf("seed %d, try %d: the file is wrong", seed, failed)
			}
			break
		}
		if !there || !bytes.Equal(got, old) && !bytes.Equal(got, data) {
			t.Fatalf("seed %d, try %d: %v left another file", seed, failed, err)
		}
		if !fault.Is(err, fault.Transport) || failed > 100 {
			t.Fatalf("seed %d, try %d: %v", seed, failed, err)
		}
		s.mend()
	}
	for _, n := range s.names() {
		if n != f.Path && !strings.Contains(n, TempPrefix) {
			t.Errorf("seed %d: left %s", seed, n)
		}
	}
	return failed
}

// slow: cuts a transfer hundreds of times
func TestManyCuts(t *testing.T) {
	failed := 0
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			old := []byte("what was there")
			s.files["/d/f"] = &memFile{data: old, durable: old, mode: 0o100644}
			failed += manyCuts(t, s, "/d", rand.New(rand.NewPCG(seed, 14)), seed)
		})
	}
	if failed == 0 {
		t.Error("no try failed, want some")
	}
}

// A download delivers the file's bytes in order, and a caller can continue after them.
func TestGetContinues(t *testing.T) {
	failed := 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 15))
			size := 1 + rng.IntN(200_000)
			data := randomBytes(seed, size)
			f := File{Path: "/d/f", Size: int64(size), SHA256: sumOf(data)}
			s := newServer()
			s.files["/d/f"] = &memFile{data: data, mode: 0o100644}
			var after []int
			for range rng.IntN(60) {
				after = append(after, rng.IntN(1+rng.IntN(size)))
			}
			cuts(s, false, rng.IntN(2) == 0, after...)
			h := sha256.New()
			var out bytes.Buffer
			for from := int64(0); ; {
				p := newPool(s, Config{Connections: 1 + rng.IntN(8), Stall: time.Minute}, small)
				n, err := p.Get(t.Context(), f, from, h, &out)
				p.Close()
				from += n
				if from != int64(out.Len()) || !bytes.Equal(out.Bytes(), data[:from]) {
					t.Fatalf("seed %d: other bytes among the first %d", seed, from)
				}
				if err == nil {
					break
				}
				failed++
				if !fault.Is(err, fault.Transport) {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if out.Len() != size {
				t.Errorf("seed %d: %d bytes of %d", seed, out.Len(), size)
			}
		})
	}
	if failed == 0 {
		t.Error("no try failed, want some")
	}
}

// An upload that a restart of the gateway ended is continued after the durable bytes, despite holes and crashes.
func TestPutContinuesAfterRestart(t *testing.T) { putContinues(t, false) }

// It is continued while the server still writes bytes from the earlier gateway, so that the file grows while it is read
// back.
func TestPutContinuesWhileTheFileGrows(t *testing.T) { putContinues(t, true) }

func putContinues(t *testing.T, grows bool) {
	synctest.Test(t, func(t *testing.T) {
		data := randomBytes(3, 1_000_000)
		f := File{Path: "/d/f", Size: 1_000_000, SHA256: sumOf(data), ReadBack: grows}
		s := newServer()
		ctx, stop := context.WithCancel(t.Context())
		p := newPool(s, Config{Connections: 4, Stall: time.Minute}, small)
		if _, err := p.Put(ctx, f, &tripwire{data, 800_000, stop}); !fault.Is(err, fault.Canceled) {
			t.Fatal(err)
		}
		p.Close()
		synctest.Wait()
		s.crash()
		var durable int
		for _, name := range s.names() {
			if at, _ := s.content(name); strings.HasSuffix(name, recordSuffix) {
				durable, _ = strconv.Atoi(strings.TrimSpace(string(at)))
			}
		}
		if durable < 100_000 {
			t.Fatalf("the record says %d, files %v", durable, s.names())
		}
		s.size = func(name string, size int64) int64 {
			if grows && !strings.HasSuffix(name, recordSuffix) {
				return min(f.Size, size+1000)
			}
			return size
		}
		p = pool(t, s, 4)
		before := s.written
		if _, err := p.Put(t.Context(), f, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.content("/d/f"); !bytes.Equal(got, data) || len(s.names()) != 1 {
			t.Errorf("other bytes, or files %v", s.names())
		}
		written := s.written - before
		if left := 1_000_000 - durable; written < left || written > left+left/4 {
			t.Errorf("%d bytes were sent of the %d that were left", written, left)
		}
	})
}

// tripwire calls trip when it is read beyond an offset.
type tripwire struct {
	data []byte
	at   int64
	trip func()
}

func (w *tripwire) ReadAt(b []byte, off int64) (int, error) {
	if off > w.at {
		w.trip()
	}
	return bytes.NewReader(w.data).ReadAt(b, off)
}

func TestPutRefusals(t *testing.T) {
	data := randomBytes(1, 50_000)
	for name, c := range map[string]struct {
		with func(s *server)
		f    File
		src  []byte
		kind fault.Kind
		code string
	}{
		"other bytes": {nil, File{Path: "/d/f", Size: 50_000, SHA256: sumOf(data[1:])}, data, fault.Validation, CodeSum},
		"fewer bytes": {nil, File{Path: "/d/f", Size: 50_001}, data, fault.Validation, CodeSum},
		"no folder":   {nil, File{Path: "/e/f", Size: 50_000}, data, fault.NotFound, CodeMissing},
		"disk full":   {func(s *server) { s.room = 30_000 }, File{Path: "/d/f", Size: 50_000}, data, fault.Transport, CodeDiskFull},
		"no reason": {func(s *server) { s.room, s.extensions = 30_000, s.extensions[:1] },
			File{Path: "/d/f", Size: 50_000}, data, fault.Transport, CodeRefused},
		"another size": {func(s *server) { s.size = func(string, int64) int64 { return 49_999 } },
			File{Path: "/d/f", Size: 50_000}, data, fault.Transport, CodeSize},
		"no connection": {func(s *server) { s.refuse = func(int) error { return errors.New("away") } },
			File{Path: "/d/f", Size: 50_000}, data, fault.Transport, CodeLost},
		"a host key": {func(s *server) {
			s.refuse = func(int) error { return fault.New(fault.Auth, "ssh_host_key", "another key") }
		}, File{Path: "/d/f", Size: 50_000}, data, fault.Auth, "ssh_host_key"},
		"silence": {func(s *server) { s.wire = silentAfter(s, 5_000) }, File{Path: "/d/f", Size: 50_000}, data, fault.Transport, CodeLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				if c.with != nil {
					c.with(s)
				}
				p := pool(t, s, 3)
				_, err := p.Put(t.Context(), c.f, bytes.NewReader(c.src))
				if !fault.Is(err, c.kind) || fault.CodeOf(err) != c.code {
					t.Errorf("kind %s, code %s: %v", fault.KindOf(err), fault.CodeOf(err), err)
				}
				if _, there := s.content(c.f.Path); there {
					t.Error("Put left a file under its name")
				}
			})
		})
	}
}

// silentAfter makes the server stop answering after it has read n bytes.
func silentAfter(s *server, n int) func(int, net.Conn) net.Conn {
	return func(_ int, c net.Conn) net.Conn { return &mute{c, s, n} }
}

type mute struct {
	net.Conn
	s    *server
	left int
}

func (m *mute) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if m.left -= n; m.left < 0 {
		m.s.mu.Lock()
		m.s.silent = true
		m.s.mu.Unlock()
	}
	return n, err
}

func TestGetRefusals(t *testing.T) {
	data := randomBytes(1, 50_000)
	for name, c := range map[string]struct {
		with func(s *server)
		f    File
		kind fault.Kind
		code string
	}{
		"another size": {nil, File{Path: "/d/f", Size: 49_999}, fault.Tool, CodeSize},
		"other bytes":  {nil, File{Path: "/d/f", Size: 50_000, SHA256: sumOf(data[1:])}, fault.Tool, CodeSum},
		"absent":       {nil, File{Path: "/d/g", Size: 50_000}, fault.NotFound, CodeMissing},
		"a pipe":       {func(s *server) { s.files["/d/f"].mode = 0o010644 }, File{Path: "/d/f", Size: 50_000}, fault.Tool, CodeKind},
		"a lie about the size": {func(s *server) { s.size = func(string, int64) int64 { return 60_000 } },
			File{Path: "/d/f", Size: 60_000}, fault.Tool, CodeSize},
		"endless": {func(s *server) {
			s.read = func(_ []byte, _ uint64, n uint32) ([]byte, bool) { return make([]byte, n), true }
		}, File{Path: "/d/f", Size: 50_000, SHA256: sumOf(data)}, fault.Tool, CodeSum},
		"more than was asked for": {func(s *server) {
			s.read = func(_ []byte, _ uint64, n uint32) ([]byte, bool) { return make([]byte, 3*n), true }
		}, File{Path: "/d/f", Size: 50_000, SHA256: sumOf(data)}, fault.Tool, CodeSum},
		"silence": {func(s *server) { s.wire = silentAfter(s, 100) }, File{Path: "/d/f", Size: 50_000}, fault.Transport, CodeLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.files["/d/f"] = &memFile{data: data, mode: 0o100644}
				if c.with != nil {
					c.with(s)
				}
				var out bytes.Buffer
				n, err := pool(t, s, 3).Get(t.Context(), c.f, 0, nil, &out)
				if !fault.Is(err, c.kind) || fault.CodeOf(err) != c.code {
					t.Errorf("kind %s, code %s: %v", fault.KindOf(err), fault.CodeOf(err), err)
				}
				if n != int64(out.Len()) || n > c.f.Size {
					t.Errorf("%d bytes, said to be %d", out.Len(), n)
				}
			})
		})
	}
}

// A server that returns few bytes for each request is only slow.
func TestShortReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := randomBytes(1, 50_000)
		s := newServer()
		s.files["/d/f"] = &memFile{data: data, mode: 0o100644}
		s.read = func(b []byte, off uint64, n uint32) ([]byte, bool) {
			return b[off:min(uint64(len(b)), off+uint64(min(n, 100)))], true
		}
		var out bytes.Buffer
		if _, err := pool(t, s, 2).Get(t.Context(), File{Path: "/d/f", Size: 50_000, SHA256: sumOf(data)}, 0, nil, &out); err != nil {
			t.Error(err)
		}
	})
}

func TestPutMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		rng := rand.New(rand.NewPCG(1, 2))
		want := map[string][]byte{}
		for i := range 300 {
			size := rng.IntN(3000)
			if i%50 == 0 {
				size *= 50
			}
			want[fmt.Sprint("/d/", i)] = randomBytes(uint64(i), size)
		}
		cuts(s, true, true, 10_000, 100_000, 5_000)
		p := pool(t, s, 4)
		must(t, p.PutMany(t.Context(), func(yield func(File, func() (io.ReaderAt, error)) bool) {
			for name, data := range want {
				if !yield(File{Path: name, Size: int64(len(data)), SHA256: sumOf(data)},
					func() (io.ReaderAt, error) { return bytes.NewReader(data), nil }) {
					return
				}
			}
		}))
		if len(s.names()) != len(want) {
			t.Errorf("%d files of %d", len(s.names()), len(want))
		}
		for name, data := range want {
			if got, _ := s.content(name); !bytes.Equal(got, data) {
				t.Errorf("%s is wrong", name)
			}
		}
	})
}

// Unsynced small files, which the caller makes durable together, cost no sync each.
func TestUnsynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := pool(t, s, 2)
		data := randomBytes(1, 3000)
		for i, unsynced := range []bool{true, false} {
			name := fmt.Sprint("/d/", i)
			f := File{Path: name, Size: 3000, SHA256: sumOf(data), Unsynced: unsynced}
			if _, err := p.Put(t.Context(), f, bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			if got, _ := s.content(name); !bytes.Equal(got, data) || s.synced != i {
				t.Errorf("%d bytes, %d syncs", len(got), s.synced)
			}
		}
	})
}

// Additional connections close when they are idle; the kept one stays.
func TestIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := pool(t, s, 4)
		data := randomBytes(1, 100_000)
		open := func() int {
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.now
		}
		for range 2 {
			if _, err := p.Put(t.Context(), File{Path: "/d/f", Size: 100_000}, bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			if n := open(); n != 4 {
				t.Errorf("%d connections after a transfer", n)
			}
			time.Sleep(idleTime + time.Second)
			if n := open(); n != 1 {
				t.Errorf("%d connections after a pause", n)
			}
		}
		p.Close()
		if _, err := p.Put(t.Context(), File{Path: "/d/f", Size: 100_000}, bytes.NewReader(data)); !fault.Is(err, fault.Canceled) {
			t.Errorf("a closed pool: %v", err)
		}
	})
}

// The bandwidth limit holds for all transfers of a pool together, in each direction.
func TestBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := newPool(s, Config{Connections: 4, BytesPerSecond: 1 << 20}, tuned)
		t.Cleanup(p.Close)
		data := randomBytes(1, 5<<20)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				if _, err := p.Put(t.Context(), File{Path: fmt.Sprint("/d/", i), Size: 5 << 20}, bytes.NewReader(data)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took < 9500*time.Millisecond || took > 11*time.Second {
			t.Errorf("10 MiB up took %v", took)
		}
		began = time.Now()
		if _, err := p.Get(t.Context(), File{Path: "/d/0", Size: 5 << 20}, 0, nil, io.Discard); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 4500*time.Millisecond || took > 6*time.Second {
			t.Errorf("5 MiB down took %v", took)
		}
	})
}
