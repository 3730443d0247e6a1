package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path"
	"slices"
	"sync"

	"github.com/pkg/sftp"
)

// server is an SFTP server with files in memory, whose hosts may crash: a file then has only the synced bytes, and
// holes elsewhere. Each connection leads to another host, so a sync covers only what was written over that connection.
type server struct {
	mu         sync.Mutex
	files      map[string]*memFile
	extensions [][2]string
	dials      int
	refuse     func(dial int) error // of a connection
	wire       func(dial int, c net.Conn) net.Conn
	size       func(name string, size int64) int64 // the size that it reports
	read       func(data []byte, off uint64, n uint32) ([]byte, bool)
	room       int64 // bytes; negative: unlimited
	silent     bool  // answers nothing
	most       int   // connections at a time
	now        int
	synced     int
	written    int // bytes written
}

type memFile struct {
	data, durable []byte
	dirty         map[int][]memWrite // by connection
	mode          uint32
}

type memWrite struct {
	off  int
	data []byte
}

func patch(to []byte, off int, data []byte) []byte {
	if end := off + len(data); end > len(to) {
		to = append(to, make([]byte, end-len(to))...)
	}
	copy(to[off:], data)
	return to
}

func newServer() *server {
	return &server{files: map[string]*memFile{}, room: -1, extensions: [][2]string{{"posix-rename@openssh.com", "1"},
		{"statvfs@openssh.com", "2"}, {"fsync@openssh.com", "1"}, {"limits@openssh.com", "1"}}}
}

func (s *server) SFTP(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	return s.More(ctx, opts...)
}

func (s *server) More(_ context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	s.mu.Lock()
	n := s.dials
	s.dials++
	wire := s.wire
	var refused error
	if s.refuse != nil {
		refused = s.refuse(n)
	}
	s.mu.Unlock()
	if refused != nil {
		return nil, refused
	}
	here, there := net.Pipe()
	if wire != nil {
		there = wire(n, there)
	}
	go s.serve(n, there)
	c, err := sftp.NewClientPipe(here, here, opts...)
	if err != nil {
		here.Close()
	}
	return c, err
}

// crash loses the unsynced writes of the given hosts, or of all. The caller must cut the connections.
func (s *server) crash(hosts ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if len(hosts) == 0 {
			clear(f.dirty)
		}
		for _, h := range hosts {
			delete(f.dirty, h)
		}
		size := len(f.data)
		f.data = slices.Clone(f.durable)
		for _, writes := range f.dirty {
			for _, w := range writes {
				f.data = patch(f.data, w.off, w.data)
			}
		}
		f.data = append(f.data, make([]byte, size-len(f.data))...)
	}
}

func (s *server) content(name string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[name]
	if f == nil {
		return nil, false
	}
	return slices.Clone(f.data), true
}

func (s *server) names() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.files {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Packet types and statuses of draft-ietf-secsh-filexfer-02.
const (
	fxInit, fxVersion, fxOpen, fxClose, fxRead, fxWrite, fxLstat, fxFstat, fxSetstat = 1, 2, 3, 4, 5, 6, 7, 8, 9
	fxFsetstat                                                                       = 10
	fxRemove, fxStat, fxStatus, fxHandle, fxData, fxAttrs, fxExtended, fxReply       = 13, 17, 101, 102, 103, 105, 200, 201
	ok, eof, noFile, failure, unsupported                                            = 0, 1, 2, 4, 8
)

// packet is a buffer that is read from the front and written at the end.
type packet struct{ b []byte }

func (p *packet) u32() uint32 {
	v := binary.BigEndian.Uint32(p.b)
	p.b = p.b[4:]
	return v
}

func (p *packet) u64() uint64 {
	v := binary.BigEndian.Uint64(p.b)
	p.b = p.b[8:]
	return v
}

func (p *packet) str() string {
	n := p.u32()
	v := string(p.b[:n])
	p.b = p.b[n:]
	return v
}

func (p *packet) put(v ...any) *packet {
	for _, x := range v {
		switch x := x.(type) {
		case byte:
			p.b = append(p.b, x)
		case uint32:
			p.b = binary.BigEndian.AppendUint32(p.b, x)
		case uint64:
			p.b = binary.BigEndian.AppendUint64(p.b, x)
		case string:
			p.b = append(binary.BigEndian.AppendUint32(p.b, uint32(len(x))), x...)
		}
	}
	return p
}

func send(w io.Writer, p *packet) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(p.b))), p.b...))
	return err
}

func receive(r io.Reader) (*packet, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head))
	_, err := io.ReadFull(r, b)
	return &packet{b}, err
}

func (s *server) serve(n int, c net.Conn) {
	defer c.Close()
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if _, err := receive(c); err != nil {
		return
	}
	version := (&packet{}).put(byte(fxVersion), uint32(3))
	for _, e := range s.extensions {
		version.put(e[0], e[1])
	}
	if send(c, version) != nil {
		return
	}
	answers := make(chan *packet, 1000) // a pipe has no buffer, so server and client would wait for each other
	defer close(answers)
	go func() {
		for p := range answers {
			if send(c, p) != nil {
				c.Close()
			}
		}
	}()
	handles := map[string]*memFile{}
	for {
		p, err := receive(c)
		if err != nil {
			return
		}
		kind := p.b[0]
		p.b = p.b[1:]
		id := p.u32()
		s.mu.Lock()
		answer := s.answer(n, kind, id, p, handles)
		silent := s.silent
		s.mu.Unlock()
		if !silent {
			answers <- answer
		}
	}
}

func status(id uint32, code uint32) *packet {
	return (&packet{}).put(byte(fxStatus), id, code, "Failure", "")
}

func (s *server) attrs(id uint32, name string, f *memFile) *packet {
	size := int64(len(f.data))
	if s.size != nil {
		size = s.size(name, size)
	}
	return (&packet{}).put(byte(fxAttrs), id, uint32(1|4), uint64(size), f.mode)
}

func (s *server) answer(n int, kind byte, id uint32, p *packet, handles map[string]*memFile) *packet {
	switch kind {
	case fxOpen:
		name, flags := p.str(), p.u32()
		const write, creat, excl = 2, 8, 32
		f := s.files[name]
		switch {
		case f == nil && flags&creat == 0, path.Dir(name) != "/d":
			return status(id, noFile)
		case f != nil && flags&excl != 0:
			return status(id, failure)
		case f == nil:
			f = &memFile{mode: 0o100644, dirty: map[int][]memWrite{}}
			s.files[name] = f
		case flags&write != 0 && f.mode&0o200 == 0:
			return status(id, 3)
		}
		h := string(binary.BigEndian.AppendUint32(nil, uint32(len(handles)))) + name
		handles[h] = f
		return (&packet{}).put(byte(fxHandle), id, h)
	case fxClose:
		return status(id, ok)
	case fxRead:
		h := p.str()
		f, off, want := handles[h], p.u64(), p.u32()
		if s.read != nil {
			if data, lies := s.read(f.data, off, want); lies {
				return (&packet{}).put(byte(fxData), id, string(data))
			}
		}
		if off >= uint64(len(f.data)) {
			return status(id, eof)
		}
		return (&packet{}).put(byte(fxData), id, string(f.data[off:min(uint64(len(f.data)), off+uint64(want))]))
	case fxWrite:
		f, off, data := handles[p.str()], p.u64(), p.str()
		end := int(off) + len(data)
		if s.room >= 0 && int64(end) > s.room {
			return status(id, failure)
		}
		s.written += len(data)
		f.data = patch(f.data, int(off), []byte(data))
		f.dirty[n] = append(f.dirty[n], memWrite{int(off), []byte(data)})
		return status(id, ok)
	case fxLstat, fxStat:
		name := p.str()
		if f := s.files[name]; f != nil {
			return s.attrs(id, name, f)
		}
		return status(id, noFile)
	case fxFstat:
		h := p.str()
		return s.attrs(id, h[4:], handles[h])
	case fxSetstat:
		f := s.files[p.str()]
		if f == nil || p.u32() != 4 {
			return status(id, failure)
		}
		f.mode = f.mode&^0o777 | p.u32()&0o777
		return status(id, ok)
	case fxFsetstat:
		f, flags, size := handles[p.str()], p.u32(), p.u64()
		if flags != 1 || size > uint64(len(f.data)) {
			return status(id, failure)
		}
		f.data = f.data[:size]
		f.durable = f.durable[:min(len(f.durable), len(f.data))]
		return status(id, ok)
	case fxRemove:
		name := p.str()
		if s.files[name] == nil {
			return status(id, noFile)
		}
		delete(s.files, name)
		return status(id, ok)
	case fxExtended:
		return s.extended(n, id, p, handles)
	}
	return status(id, unsupported)
}

func (s *server) extended(n int, id uint32, p *packet, handles map[string]*memFile) *packet {
	switch p.str() {
	case "fsync@openssh.com":
		f := handles[p.str()]
		for _, w := range f.dirty[n] {
			f.durable = patch(f.durable, w.off, w.data)
		}
		delete(f.dirty, n)
		s.synced++
		return status(id, ok)
	case "posix-rename@openssh.com":
		from, to := p.str(), p.str()
		if s.files[from] == nil {
			return status(id, noFile)
		}
		s.files[to] = s.files[from]
		delete(s.files, from)
		return status(id, ok)
	case "statvfs@openssh.com":
		free := uint64(1 << 40)
		if s.room >= 0 {
			free = 0
		}
		r := (&packet{}).put(byte(fxReply), id)
		for _, v := range []uint64{4096, 1, 1 << 40, free, free, 1000, 1000, 1000, 1, 0, 255} {
			r.put(v)
		}
		return r
	}
	return status(id, unsupported)
}

// cutter ends a connection after a number of bytes in one direction.
type cutter struct {
	net.Conn
	mu       *sync.Mutex
	in, out  *int // bytes left; negative: no cut
	whenDone func()
}

var errCut = errors.New("cut")

func (c *cutter) allow(left *int, n int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left < 0 {
		return n, false
	}
	if n < *left {
		*left -= n
		return n, false
	}
	n, *left = *left, -1
	return n, true
}

func (c *cutter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	n, cut := c.allow(c.in, n)
	if cut {
		c.end()
		return n, errCut
	}
	return n, err
}

func (c *cutter) Write(b []byte) (int, error) {
	n, cut := c.allow(c.out, len(b))
	if !cut {
		return c.Conn.Write(b)
	}
	n, _ = c.Conn.Write(b[:n])
	c.end()
	return n, errCut
}

func (c *cutter) end() {
	c.Conn.Close()
	if c.whenDone != nil {
		c.whenDone()
	}
}
