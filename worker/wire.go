package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"slurmgate/fault"
)

// wire is the connection of one call.
type wire struct {
	roots       *x509.CertPool
	dialed      atomic.Bool
	wrote, read atomic.Bool // some of the request, of the answer
	ended       atomic.Bool // nothing more can be read
}

// transport returns the transport of one request. net/http repeats requests only on connections that an earlier request
// has used; here there are none, and no second connection can be opened.
func (w *wire) transport() *http.Transport {
	t := &http.Transport{DialContext: w.dial, DialTLSContext: w.dialTLS, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: headerBytes, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(true)
	return t
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := w.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &observed{c, w}, nil
}

func (w *wire) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	raw, err := w.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: w.roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return &observed{c, w}, nil
}

var errSecondDial = errors.New("a call has one connection")

func (w *wire) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if w.dialed.Swap(true) {
		return nil, errSecondDial
	}
	return (&net.Dialer{Timeout: dialTime}).DialContext(ctx, network, addr)
}

// observed is a connection that notes what was sent and received on it.
type observed struct {
	net.Conn
	w *wire
}

// Write notes the write before it happens: in doubt, the request was sent.
func (o *observed) Write(p []byte) (int, error) {
	o.w.wrote.Store(true)
	return o.Conn.Write(p)
}

func (o *observed) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	if n > 0 {
		o.w.read.Store(true)
	}
	if err != nil {
		o.w.ended.Store(true)
	}
	return n, err
}

// failed returns the fault of a call without a whole HTTP answer.
func (w *wire) failed(ctx context.Context, url string, err error) error {
	if ctx.Err() != nil { // net/http's error varies then
		err = ctx.Err()
	}
	switch {
	case !w.wrote.Load():
		return unsent(ctx, "the worker at "+name(url)+" cannot be reached; the call was not sent", cause(err))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.Wrap(fault.Unknown, Unknown, "the worker at "+name(url)+
			" did not answer before the call's deadline; it is unknown whether the tool ran", ctx.Err()).WithNext(unknownNext)
	case w.read.Load() && !w.ended.Load() && ctx.Err() == nil:
		return broken(url, "its answer is not HTTP: "+fault.Clip(err.Error()))
	}
	return fault.Wrap(fault.Unknown, Unknown, "the worker at "+name(url)+
		" received the call and did not answer; it is unknown whether the tool ran", cause(err)).WithNext(unknownNext)
}

// unsent returns the fault of a call that certainly did not reach the worker.
func unsent(ctx context.Context, msg string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fault.Wrap(fault.Canceled, string(fault.Canceled), "the call was canceled before it was sent to the worker", ctx.Err())
	}
	return fault.Wrap(fault.Transport, Away, msg, err).WithNext("try again later; if the worker stays away, have the administrator run doctor")
}

const unknownNext = "check what the tool changes before you call it again"

// cause makes the text of a network error fit for a message: a server chooses parts of it, as the names in its certificate.
func cause(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errors.New(fault.ClipTo(err.Error(), 300))
}
