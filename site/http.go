package site

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// HTTP is the port for programs and chats. There is none if Listen is empty; the Unix socket always exists.
type HTTP struct {
	Listen         string   `yaml:"listen"`          // host:port; empty: no port. A loopback address, unless remote is true
	Remote         bool     `yaml:"remote"`          // listen may be an address that other hosts can reach; the port is not encrypted
	Hosts          []string `yaml:"hosts"`           // other names of the port, as a reverse proxy passes them on
	Origins        []string `yaml:"origins"`         // origins of web pages that may call, https://host[:port]
	PublicURL      string   `yaml:"public_url"`      // where clients find the port, https://host[:port]; default http:// and listen
	TrustedProxies []string `yaml:"trusted_proxies"` // addresses or networks whose X-Forwarded-For says where a request came from; default none
	MaxConnections int      `yaml:"max_connections"` // 1..65536 open at a time; default 1024
}

const defaultConnections = 1024

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$`)

func (c *checker) http(h HTTP) {
	if h.Listen != "" {
		c.listen(h)
	}
	for i, name := range h.Hosts {
		if !hostName.MatchString(name) {
			c.value("SITE-HTTP-HOST", fmt.Sprintf("http.hosts[%d]", i), name, "a host name in lower case, with or without a port", "")
		}
	}
	for i, o := range h.Origins {
		if !isOrigin(o) || o != strings.ToLower(o) {
			c.value("SITE-HTTP-ORIGIN", fmt.Sprintf("http.origins[%d]", i), o, "https://host or https://host:port in lower case, without a path", "")
		}
	}
	for i, p := range h.TrustedProxies {
		if _, err := ParseNetwork(p); err != nil {
			c.value("SITE-HTTP-PROXY", fmt.Sprintf("http.trusted_proxies[%d]", i), p, "an IP address, or a network such as 10.0.0.0/8", "")
		}
	}
	if h.PublicURL != "" && !isOrigin(h.PublicURL) {
		c.value("SITE-HTTP-URL", "http.public_url", h.PublicURL, "https://host or https://host:port, without a path", "")
	}
	c.bounds("http.max_connections", int64(h.MaxConnections), 1, 65536)
}

// ParseNetwork reads an address, which is a network of one, or a network. Bits behind the prefix are refused: they are a slip.
func ParseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && p != p.Masked() {
		err = fmt.Errorf("%s is not the beginning of the network %s", s, p.Masked())
	}
	return p, err
}

// isOrigin reports whether s is a scheme, http or https, and a host, with or without a port, and nothing else.
func isOrigin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && s == u.Scheme+"://"+u.Host
}

func (c *checker) listen(h HTTP) {
	host, port, err := net.SplitHostPort(h.Listen)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil || n < 0 || n > 65535 || host == "" {
		c.value("SITE-HTTP-LISTEN", "http.listen", h.Listen, "address:port, for example 127.0.0.1:8442",
			"give the address too: without one the port would be open to every network")
		return
	}
	addr, err := netip.ParseAddr(host)
	loopback := host == "localhost" || err == nil && addr.IsLoopback()
	if err != nil && host != "localhost" {
		c.value("SITE-HTTP-LISTEN", "http.listen", h.Listen, "an IP address and a port, or localhost and a port", "")
		return
	}
	if !loopback && !h.Remote {
		c.value("SITE-HTTP-LISTEN", "http.listen", h.Listen, "a loopback address, unless http.remote is true",
			"put a reverse proxy with TLS in front of the port (INSTALL.md), or set http.remote if the network itself is trusted")
	}
}
