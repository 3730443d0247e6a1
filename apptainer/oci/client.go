package oci

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"slurmgate/fault"
)

const (
	maxRedirects = 5
	maxAnswer    = 4 << 20 // bytes of a manifest, a configuration, a token: of everything but layers
)

// limitKey is the context key for the greatest size of an answer's body.
type limitKey struct{}

// withLimit returns a context that allows n bytes in an answer's body.
func withLimit(ctx context.Context, n int64) context.Context {
	return context.WithValue(ctx, limitKey{}, n)
}

// guard is the transport to registries. It protects against a malicious registry: it uses plain HTTP only for
// registries that the site names, connects to no private address that a redirect or a name server chose, and bounds the
// bytes of answers and the time without any.
type guard struct {
	inner    http.RoundTripper
	insecure []string // host:port that are reached without TLS
	stall    time.Duration
}

// listed reports whether a host, with or without its port, is in a list.
func listed(list []string, host string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return strings.EqualFold(e, host) })
}

// newGuard returns the guard of a source. The source's host, which the admin named, and the hosts in private may have
// private addresses.
func newGuard(own string, insecure, private []string, stall time.Duration) *guard {
	t := http.DefaultTransport.(*http.Transport).Clone()
	open := []string{}
	for _, h := range slices.Concat([]string{own}, insecure, private) {
		if _, _, err := net.SplitHostPort(h); err != nil {
			open = append(open, net.JoinHostPort(h, "443"))
			continue
		}
		open = append(open, h)
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: mustURL("https://" + own)}); err == nil && proxy != nil {
		open = append(open, proxy.Host)
	}
	anywhere := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	public := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: publicOnly}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if listed(open, addr) {
			return anywhere.DialContext(ctx, network, addr)
		}
		return public.DialContext(ctx, network, addr)
	}
	t.ResponseHeaderTimeout = stall
	t.DisableCompression = true
	t.MaxResponseHeaderBytes = 256 << 10
	return &guard{inner: t, insecure: insecure, stall: stall}
}

var errPrivate = errors.New("a private address, which the registry's redirect must not lead to")

// carrierNAT is shared address space (RFC 6598), which netip does not count as private.
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// publicOnly refuses a connection to an address outside the public network. It runs after names were resolved.
func publicOnly(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || carrierNAT.Contains(ip) {
		return fmt.Errorf("%s: %w", ip, errPrivate)
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && (req.URL.Scheme != "http" || !listed(g.insecure, req.URL.Host)) {
		return nil, fault.New(fault.Policy, "IMAGE-PLAIN-HTTP", req.URL.Scheme+"://"+req.URL.Host+" is not encrypted").
			WithNext("use a registry with TLS, or list it in images.insecure_registries of the site file if its network can be trusted")
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	res, err := g.inner.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	limit, ok := req.Context().Value(limitKey{}).(int64)
	if !ok {
		limit = maxAnswer
	}
	b := &body{ReadCloser: res.Body, ctx: ctx, cancel: cancel, left: limit, stall: g.stall}
	b.timer = time.AfterFunc(g.stall, func() { cancel(errStalled) })
	res.Body = b
	return res, nil
}

var (
	errStalled  = errors.New("no byte came for too long")
	errTooLarge = errors.New("the answer is larger than it may be")
)

// body is an answer's body, bounded in size and in the time without a byte.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	left   int64
	stall  time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.cancel(errTooLarge)
		return 0, errTooLarge
	}
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// redirects bounds the number of redirects.
func redirects(_ *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errors.New("too many redirects")
	}
	return nil
}

// client returns the HTTP client of a source, logged in if the site has credentials.
func (p *Puller) client(ctx context.Context, s Source) (*http.Client, error) {
	g := newGuard(s.host(), p.Insecure, p.Private, p.stall())
	if s.kind == file {
		return &http.Client{Transport: g, CheckRedirect: redirects}, nil
	}
	auth, err := credentials(p.Credentials, s.host())
	if err != nil {
		return nil, err
	}
	t, err := transport.NewWithContext(ctx, s.repo.Registry, auth, g, []string{s.repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, failure("cannot log in to "+s.host(), err)
	}
	return &http.Client{Transport: t, CheckRedirect: redirects}, nil
}

// failure converts an error of a registry to a fault.
func failure(msg string, err error) error {
	var own *fault.Error
	var refused *transport.Error
	var untrusted *tls.CertificateVerificationError
	switch {
	// Checked first: for a host with a private address the library then tries plain HTTP, which is refused too.
	case errors.As(err, &untrusted):
		return fault.New(fault.Policy, "IMAGE-CERTIFICATE", msg+": its certificate is not trusted: "+fault.Clip(untrusted.Err.Error())).
			WithNext("add the authority that signed it to the trusted ones of this host (on Debian: update-ca-certificates)")
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Canceled, "", msg, err)
	case errors.Is(err, errPrivate):
		return fault.Wrap(fault.Policy, "IMAGE-PRIVATE-HOST", msg, err).
			WithNext("if that host belongs to the registry, list it in images.private_hosts of the site file")
	case errors.Is(err, errTooLarge):
		return fault.Wrap(fault.Tool, "IMAGE-LIE", msg, err)
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden):
		return denied(msg, refused.StatusCode)
	case errors.Is(err, errStalled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "IMAGE-REGISTRY", msg, err).WithNext("pull again: it continues where it was interrupted")
	}
	return fault.Wrap(fault.Transport, "IMAGE-REGISTRY", msg+": "+fault.Clip(err.Error()), nil).
		WithNext("check the network, the proxy (HTTPS_PROXY) and the name, and pull again: it continues where it was interrupted")
}

func denied(msg string, status int) error {
	return fault.New(fault.Policy, "IMAGE-DENIED", fmt.Sprintf("%s: the registry answered %d", msg, status)).
		WithNext("check the repository's name; for a private one put credentials into the file that images.credentials of the site file names")
}
