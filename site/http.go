package site

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// HTTP is the port for programs and chats. No port is open if Listen is empty; the Unix socket always exists.
type HTTP struct {
	// Address and port, for example 127.0.0.1:8442. Default: none. The port speaks HTTP without TLS, so it must be a loopback address:
	// put a reverse proxy with TLS in front of it. docs/run/port.md shows one.
	Listen string `yaml:"listen"`
	// true lets listen be an address that other hosts reach. Tokens then cross the network unencrypted; use it only on networks you
	// trust or that are encrypted at a lower layer.
	Remote bool `yaml:"remote"`
	// Host names that requests may use besides the address itself, such as the name of the reverse proxy. Requests for other names are
	// refused.
	Hosts []string `yaml:"hosts" is:"host"`
	// Origins of web pages that may send requests, for example https://lab.example.org. None by default; programs other than browsers
	// send no origin.
	Origins []string `yaml:"origins" is:"origin"`
	// URL at which clients find the port, usually the reverse proxy's, for example https://slurmgate.example.org. It appears in the
	// metadata that tells clients about OpenID providers. Its host need not be repeated in hosts. Default: http:// and listen.
	PublicURL string `yaml:"public_url" is:"url?"`
	// Addresses or networks of reverse proxies. For their requests X-Forwarded-For says where the client is, in records and for failed
	// logins; without an entry all clients behind a proxy have its address. For nginx on this host: [127.0.0.1, "::1"], and in nginx
	// proxy_set_header X-Forwarded-For $remote_addr.
	TrustedProxies []string `yaml:"trusted_proxies" is:"network"`
	// Open connections at a time; see limits.
	MaxConnections int `yaml:"max_connections" default:"1024" min:"1" max:"65536"`
}

func (c *checker) http(h HTTP) {
	if h.Listen != "" {
		c.listen(h)
	}
}

// ParseNetwork reads an address, which is a network of one, or a network. Bits beyond the prefix are refused: they
// are a mistake.
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
			"put a reverse proxy with TLS in front of the port (docs/run/port.md), or set http.remote if the network itself is trusted")
	}
}
