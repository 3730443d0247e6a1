package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// networkChecks returns the checks of the port and of the address where clients find it.
func networkChecks() []Check {
	return []Check{{
		Code: "http_port", Proves: "The gateway can listen on http.listen, or does.", Where: Gateway, Stops: true, Early: true,
		Remedy: "set http.listen to a free port of this host",
		Look: func(_ context.Context, x *Exam) []Result {
			return port(x.Site.HTTP.Listen, serving(x.Site.Gateway.Socket))
		},
	}, {
		Code: "certificate", Proves: "Clients accept the certificate at http.public_url, for two more weeks.", Where: Gateway,
		Remedy: "renew the certificate of the reverse proxy",
		Look:   func(ctx context.Context, x *Exam) []Result { return certificate(ctx, x.Site.HTTP.PublicURL, nil) },
	}}
}

// port tries to listen. A port that our own gateway has is fine.
func port(listen string, gateway int) []Result {
	if listen == "" {
		return ok("the site file has no http.listen")
	}
	l, err := net.Listen("tcp", listen)
	if err == nil {
		l.Close()
		return ok("%s is free", listen)
	}
	_, number, _ := net.SplitHostPort(listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && gateway > 0:
		ours, err := listens(gateway, number)
		if err != nil {
			return unknown("run doctor as the service's user or as root", "%s is in use, and whether by the gateway (pid %d) cannot be seen: %v",
				listen, gateway, err)
		}
		if ours {
			return ok("%s is the gateway's (pid %d)", listen, gateway)
		}
		fallthrough
	case errors.Is(err, syscall.EADDRINUSE):
		return bad("see who has it: sudo ss -ltnp 'sport = :"+number+"'; stop that program, or set http.listen to another port",
			"another program listens on %s", listen)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return bad("set http.listen to an address of this host: ip -brief address", "this host does not have the address %s", listen)
	case errors.Is(err, syscall.EACCES):
		return bad("set http.listen to a port above 1023, with a reverse proxy in front", "this user may not listen on %s", listen)
	}
	return failed("", err)
}

// listens reports whether a process has a listening socket with a port.
func listens(pid int, port string) (bool, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return false, err
	}
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // no IPv6 here
		}
		// See proc_net_tcp: sl local_address rem_address st … inode; st 0A is LISTEN.
		for lines := bufio.NewScanner(f); lines.Scan(); {
			w := strings.Fields(lines.Text())
			if len(w) > 9 && w[3] == "0A" && strings.HasSuffix(w[1], fmt.Sprintf(":%04X", n)) {
				inodes["socket:["+w[9]+"]"] = true
			}
		}
		f.Close()
	}
	links, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return false, err
	}
	for _, l := range links {
		if to, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "fd", l.Name())); err == nil && inodes[to] {
			return true, nil
		}
	}
	return false, nil
}

// certificate checks the certificate of the public address. roots are for tests; nil: this host's.
func certificate(ctx context.Context, publicURL string, roots *x509.CertPool) []Result {
	u, err := url.Parse(publicURL)
	if err != nil || u.Scheme != "https" {
		return ok("http.public_url is not https")
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "443")
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}}).
		DialContext(ctx, "tcp", address)
	if err != nil {
		if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
			return bad("", "clients do not accept the certificate at %s: %v", publicURL, err)
		}
		return unknown("start the reverse proxy, or look at the address from a client: curl -v "+publicURL,
			"%s does not answer from this host: %v",
			publicURL, err)
	}
	defer c.Close()
	ends := c.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
	if time.Until(ends) < soon {
		return warning("", "the certificate at %s ends on %s", publicURL, ends.UTC().Format(time.DateOnly))
	}
	return ok("the certificate at %s is good until %s", publicURL, ends.UTC().Format(time.DateOnly))
}
