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

// HTTP is the port for programs and chats. There is none when Listen is empty; the unix socket is always there.
type HTTP struct {
	Listen         string   `yaml:"listen"`          // host:port; empty: no port. An address of loopback, unless remote says otherwise
	Remote         bool     `yaml:"remote"`          // listen may be an address that other hosts reach; nothing is encrypted there
	Hosts          []string `yaml:"hosts"`           // names under which the port is reached besides, as a reverse proxy passes them on
	Origins        []string `yaml:"origins"`         // origins of web pages that may call, https://host[:port]
	PublicURL      string   `yaml:"public_url"`      // where clients find the port, https://host[:port]; default http:// and listen
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
		u, err := url.Parse(o)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || o != u.Scheme+"://"+u.Host || o != strings.ToLower(o) {
			c.value("SITE-HTTP-ORIGIN", fmt.Sprintf("http.origins[%d]", i), o, "https://host or https://host:port in lower case, nothing behind it", "")
		}
	}
	if u, err := url.Parse(h.PublicURL); h.PublicURL != "" && (err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || h.PublicURL != u.Scheme+"://"+u.Host) {
		c.value("SITE-HTTP-URL", "http.public_url", h.PublicURL, "https://host or https://host:port, nothing behind it", "")
	}
	c.bounds("http.max_connections", int64(h.MaxConnections), 1, 65536)
}

func (c *checker) listen(h HTTP) {
	host, port, err := net.SplitHostPort(h.Listen)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil || n < 0 || n > 65535 || host == "" {
		c.value("SITE-HTTP-LISTEN", "http.listen", h.Listen, "address:port, for example 127.0.0.1:8442", "name the address too: without one every network would be listened on")
		return
	}
	addr, err := netip.ParseAddr(host)
	loopback := host == "localhost" || err == nil && addr.IsLoopback()
	if err != nil && host != "localhost" {
		c.value("SITE-HTTP-LISTEN", "http.listen", h.Listen, "an address in numbers, or localhost", "")
		return
	}
	if !loopback && !h.Remote {
		c.value("SITE-HTTP-LISTEN", "http.listen", h.Listen, "an address of loopback, unless http.remote is true", "put a reverse proxy with TLS before it (INSTALL.md), or set http.remote where the network itself is trusted")
	}
}
