package httpapi

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/gate"
)

// A process of this host hands over a file that it has opened, so that the gateway reads with that process's rights and not with its own.
// The descriptor comes as ancillary data (SCM_RIGHTS, unix(7)) of the first bytes of a request's body, on the unix socket only:
//
//	POST /v1/tool-calls                 client, with sendmsg(2)
//	Expect: 100-continue
//	Slurmgate-Descriptor: 1
//	HTTP/1.1 100 Continue               gateway: the caller is known, and this connection takes one descriptor from here on
//	{…the envelope…}                    client, with sendmsg(2) and the descriptor
//
// At any other time the gateway reads connections with read(2), and the kernel drops what comes as ancillary data: no descriptor gets into
// this process unless a request of a known caller announced it, and never more than one for a request in progress.

// handedHeader announces a descriptor.
const handedHeader = "Slurmgate-Descriptor"

// handListener accepts connections that can be handed a descriptor.
type handListener struct{ *net.UnixListener }

// Accept implements net.Listener.
func (l handListener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &handConn{UnixConn: c}, nil
}

// handConn is a connection that receives a descriptor with the next bytes when one is awaited.
type handConn struct {
	*net.UnixConn
	awaited atomic.Pointer[handedOver]
}

// oneDescriptor is the room for a control message with one descriptor; the kernel closes what does not fit, and sets
// MSG_CTRUNC.
var oneDescriptor = unix.CmsgLen(4)

// Read implements net.Conn.
func (c *handConn) Read(b []byte) (int, error) {
	h := c.awaited.Swap(nil)
	if h == nil {
		return c.UnixConn.Read(b)
	}
	oob := make([]byte, oneDescriptor)
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	h.add(oob[:oobn], flags)
	if n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// handedOver has the descriptors of the ancillary data. A read may end after the request has stopped waiting for it.
type handedOver struct {
	mu   sync.Mutex
	over bool // the request waits no more
	file *os.File
	more bool // more than the one that is accepted
}

// add takes over the descriptors of a control message, the first to keep and the others to close.
func (h *handedOver) add(oob []byte, flags int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.more = h.more || flags&unix.MSG_CTRUNC != 0
	for _, fd := range descriptors(oob) {
		if f := os.NewFile(uintptr(fd), "handed over"); h.file == nil && !h.over {
			h.file = f
		} else {
			h.more = true
			f.Close()
		}
	}
}

// take ends the wait and returns the file; nil unless exactly one came.
func (h *handedOver) take() *os.File {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.more && h.file != nil {
		h.file.Close()
		h.file = nil
	}
	return h.file
}

// descriptors returns the descriptors in a control message.
func descriptors(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		m.Data = m.Data[:len(m.Data)/4*4] // ParseUnixRights panics on a part of a descriptor, which the kernel does not send
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

type connKey struct{}

// readHanded reads the body of a call and the file that comes with it; nil for none. The caller closes it.
func readHanded(w http.ResponseWriter, req *http.Request) (body []byte, f *os.File, status int, err error) {
	n, _ := req.Context().Value(connKey{}).(*conn)
	if n == nil {
		n = &conn{}
	}
	c, canHand := n.Conn.(*handConn)
	switch announced := req.Header.Values(handedHeader); {
	case len(announced) == 0:
		body, status, err = readBody(w, req)
		return body, nil, status, err
	case !canHand || len(announced) > 1 || announced[0] != "1":
		return nil, nil, http.StatusBadRequest, fault.New(fault.Validation, "descriptor_header",
			"the header "+handedHeader+" has the value 1, on the gateway's unix socket only").WithNext("upload the file: POST /v1/artifacts")
	}
	h := &handedOver{}
	c.awaited.Store(h)
	body, status, err = readBody(w, req)
	c.awaited.Store(nil)
	f = h.take()
	switch {
	case err == nil && f == nil:
		status, err = http.StatusBadRequest, fault.New(fault.Validation, "descriptor_count",
			"one descriptor is announced, and none or several came with the body").
			WithNext("wait for 100 Continue, then send one with the first bytes of the body")
	case err != nil && f != nil:
		f.Close()
		f = nil
	}
	return body, f, status, err
}

// handing returns an HTTP client of the socket for one request with a descriptor.
func handing(path string, f *os.File) (client *http.Client, body func(io.Reader) io.Reader) {
	var arm atomic.Bool
	t := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if err != nil {
				return nil, err
			}
			return &givingConn{UnixConn: c.(*net.UnixConn), file: f, arm: &arm}, nil
		}}
	return &http.Client{Transport: t}, func(r io.Reader) io.Reader { return armingReader{r, &arm} }
}

// armingReader notes that the body is about to be sent.
type armingReader struct {
	io.Reader
	arm *atomic.Bool
}

// Read implements io.Reader.
func (r armingReader) Read(b []byte) (int, error) {
	r.arm.Store(true)
	return r.Reader.Read(b)
}

// givingConn sends the file's descriptor with the first bytes after arm was set.
type givingConn struct {
	*net.UnixConn
	file *os.File
	arm  *atomic.Bool
}

// Write implements net.Conn.
func (c *givingConn) Write(b []byte) (int, error) {
	if len(b) == 0 || !c.arm.CompareAndSwap(true, false) || c.file == nil {
		return c.UnixConn.Write(b)
	}
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(c.file.Fd())), nil)
	c.file = nil
	if err != nil || n == len(b) {
		return n, err
	}
	rest, err := c.UnixConn.Write(b[n:])
	return n + rest, err
}

// CallWith is Call with an open file handed over to the gateway; without one it is Call.
func (c *Client) CallWith(ctx context.Context, req gate.Request, f *os.File) (gate.Response, error) {
	if f == nil {
		return c.Call(ctx, req)
	}
	one := *c
	one.http, one.hand = handing(c.path, f)
	defer one.http.CloseIdleConnections()
	return one.Call(ctx, req)
}
