package httpapi

import (
	"net/netip"
	"testing"
)

// The address of a client is what the connection says, and behind a trusted proxy what that proxy says. Nobody chooses his own address by
// writing a header.
//
// proves OPS-03
func TestClientAddress(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, c := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"203.0.113.9:1234", nil, "203.0.113.9"},
		{"203.0.113.9:1234", []string{"198.51.100.1"}, "203.0.113.9"}, // not from a proxy
		{"127.0.0.1:1", nil, "127.0.0.1"},
		{"127.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"127.0.0.1:1", []string{"1.2.3.4, 198.51.100.1"}, "198.51.100.1"}, // the client wrote 1.2.3.4
		{"127.0.0.1:1", []string{"1.2.3.4", "198.51.100.1, 10.1.1.1"}, "198.51.100.1"},
		{"127.0.0.1:1", []string{"10.1.1.1"}, "10.1.1.1"},
		{"127.0.0.1:1", []string{"evil\" address=1.2.3.4"}, "127.0.0.1"},
		{"127.0.0.1:1", []string{"1.2.3.4, nonsense"}, "127.0.0.1"},
		{"127.0.0.1:1", []string{""}, "127.0.0.1"},
		{"[::1]:1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"[::1]:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"[fe80::1%eth0]:1", nil, "fe80::1"},
		{"@", []string{"198.51.100.1"}, "invalid IP"},
	} {
		if got := client(c.remote, c.forwarded, trusted).String(); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}
