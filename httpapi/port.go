package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"slurmgate/fault"
)

// PortConfig is a site's configuration of the port.
type PortConfig struct {
	Listen  string   // host:port
	Hosts   []string // names (host or host:port) that requests may be for, in addition to loopback's and Listen itself
	Origins []string // origins of pages that may call, as https://host[:port]; none but the hosts' own
	Limits  Limits
	Proxies []netip.Prefix // whose X-Forwarded-For is believed

	Refused func(*http.Request, error) // called for each request that is not for this gateway; may be nil
}

// Serve serves h on TCP, without TLS: for loopback, or for behind something that has it. endStreams ends the face's event streams; it is
// called at each shutdown.
func Serve(c PortConfig, h http.Handler, endStreams func(), log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "http_listen", "cannot listen at http.listen "+c.Listen, err).
			WithNext("choose a free port of this host")
	}
	return start(&door{Listener: l, conns: newConns(c.Limits)}, forwarded(c.Proxies, doors(c, l.Addr().String())(h)), endStreams, log), nil
}

// doors lets a request in only if it is meant for this gateway: its Host is one of ours, so that no page can reach us under its
// own name (DNS rebinding), and its Origin, where it has one, is ours or was named by the site. There is no CORS: a page of
// another origin could not read an answer anyway.
func doors(c PortConfig, addr string) func(http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(addr)
	ours := []string{addr, "localhost:" + port, "127.0.0.1:" + port, "[::1]:" + port, c.Listen}
	for _, h := range c.Hosts { // in lower case, as the site file has them
		ours = append(ours, strings.ToLower(h))
	}
	isOurs := func(host string) bool {
		host = strings.ToLower(host)
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		return slices.Contains(ours, host) || slices.Contains(c.Hosts, name)
	}
	no := func(w http.ResponseWriter, req *http.Request, err error) {
		if c.Refused != nil {
			c.Refused(req, err)
		}
		refuse(w, http.StatusForbidden, err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if !isOurs(req.Host) {
				no(w, req, fault.New(fault.Policy, "host_not_allowed", "the name in the Host header is not a name of this gateway").
					WithNext("add it to http.hosts in the site file"))
				return
			}
			if origin := req.Header.Get("Origin"); origin != "" && !slices.Contains(c.Origins, origin) {
				if u, err := url.Parse(origin); err != nil || u.Host == "" || !isOurs(u.Host) {
					no(w, req, fault.New(fault.Policy, "origin_not_allowed", "pages of this origin may not call this gateway").
						WithNext("add it to http.origins in the site file"))
					return
				}
			}
			next.ServeHTTP(w, req)
		})
	}
}
