package rest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

const (
	dialTime = 10 * time.Second // for a connection and its TLS handshake

	// connections bounds the connections to a socket: enough for the default number of concurrent sends, and for
	// queries at the same time.
	connections = 8
)

// unreached returns the fault of a slurmrestd to which no connection could be made.
func unreached(name string, err error) error {
	return fault.Wrap(fault.Transport, run.Unreachable, "slurmrestd at "+name+" cannot be reached", err)
}

// newClient returns a client for the slurmrestd of the site file. It does not connect yet.
func newClient(c Config) (*client, error) {
	k := &client{user: c.User, cluster: c.Cluster, host: "localhost", tokens: newTokens(c), budget: slurm.NewBudget(c.RPCPerMinute, c.Shared)}
	k.version.wanted = c.Version
	if len(c.Command) > 0 {
		k.pool = newPool(c.Command[0], 1, func(context.Context) (*conn, error) { return startChild(c.Command) })
		return k, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, badURL(c.URL, "it cannot be read: "+err.Error())
	}
	switch {
	case u.Scheme == "unix" && strings.HasPrefix(u.Path, "/") && u.Host == "":
		k.pool = newPool(u.Path, connections, socket("unix", u.Path, nil))
		return k, nil
	case u.Hostname() == "" || u.Port() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, badURL(c.URL, "it must be unix:/absolute/path or https://host:port")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, badURL(c.URL, "http is for a loopback address (127.0.0.1 or [::1]) alone: others could read the token")
	case u.Scheme == "http":
		k.pool = newPool(u.Host, connections, socket("tcp", u.Host, nil))
	case u.Scheme == "https":
		k.pool = newPool(u.Host, connections, socket("tcp", u.Host, func() (*tls.Config, error) { return trust(u.Hostname(), c.CA) }))
	default:
		return nil, badURL(c.URL, "it must be unix:/absolute/path or https://host:port")
	}
	k.host = u.Host
	return k, nil
}

func badURL(found, why string) error {
	return fault.Invalid("slurm.rest cannot be used", fault.Problem{Code: "SITE-REST-URL", Field: "slurm.rest.url",
		Msg: fault.Clip(found) + ": " + why})
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// trust returns the TLS configuration that checks the server's certificate: with the authorities in a file, read again
// for each connection, or with the system's.
func trust(host, ca string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if ca == "" {
		return c, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in " + ca)
	}
	return c, nil
}

// socket returns a function that connects, with TLS if secure is not nil.
func socket(network, address string, secure func() (*tls.Config, error)) func(context.Context) (*conn, error) {
	return func(ctx context.Context) (*conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		plain, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, unreached(address, err)
		}
		raw, ok := plain.(syscall.Conn)
		if !ok {
			plain.Close()
			return nil, fault.New(fault.Internal, "", fmt.Sprintf("%T has no descriptor", plain))
		}
		if secure == nil {
			return newConn(plain, raw), nil
		}
		config, err := secure()
		if err == nil {
			tunnel := tls.Client(plain, config)
			if err = tunnel.HandshakeContext(ctx); err == nil {
				return newConn(tunnel, raw), nil
			}
		}
		plain.Close()
		return nil, fault.Wrap(fault.Transport, run.Unreachable, "no TLS connection to slurmrestd at "+address, err).WithNext(
			"check slurm.rest.url and slurm.rest.ca in the site file against the server's certificate")
	}
}
