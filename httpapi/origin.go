package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"slurmgate/gate"
)

// The origin of a request: the process at the other end of the socket, or the client's address. Behind a trusted
// proxy it is the address in the proxy's X-Forwarded-For; what others write into that header is ignored.

type clientKey struct{}

// maxHops bounds the addresses of X-Forwarded-For that are checked.
const maxHops = 32

// client returns the address of a request's client. Each proxy appends the address of the host that connected to it,
// so the list is read from its end, as long as the host that added an entry is trusted. An entry that is no address
// ends it: what is before it may be anything.
func client(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	from := at.Addr().Unmap().WithZone("")
	isTrusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(hops) - 1; i >= max(0, len(hops)-maxHops) && isTrusted(from); i-- {
		hop := strings.TrimSpace(hops[i])
		next, err := netip.ParseAddr(strings.Trim(hop, "[]"))
		if withPort, portErr := netip.ParseAddrPort(hop); portErr == nil {
			next, err = withPort.Addr(), nil
		}
		if err != nil {
			break
		}
		from = next.Unmap().WithZone("")
	}
	return from
}

// forwarded notes the address of a request's client.
func forwarded(trusted []netip.Prefix, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		from := client(req.RemoteAddr, req.Header.Values("X-Forwarded-For"), trusted)
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), clientKey{}, from)))
	})
}

// clientOf returns the address of a request's client; invalid for a request through the socket.
func clientOf(req *http.Request) netip.Addr {
	if from, ok := req.Context().Value(clientKey{}).(netip.Addr); ok {
		return from
	}
	return client(req.RemoteAddr, nil, nil)
}

// originOf returns the face and the address of a request, for records.
func originOf(req *http.Request) (gate.Face, string) {
	n, isConn := req.Context().Value(connKey{}).(*conn)
	_, isPeer := req.Context().Value(peerKey{}).(int)
	said := req.Header.Get(FaceHeader)
	how := gate.FaceHTTP
	switch {
	case req.URL.Path == "/mcp", isPeer && said == string(gate.FaceMCP):
		how = gate.FaceMCP
	case isPeer && said == string(gate.FaceShell):
		how = gate.FaceShell
	case isPeer:
		how = gate.FaceSocket
	}
	if isPeer && isConn {
		return how, gate.ProcessAt(n.uid, n.pid)
	}
	if from := clientOf(req); from.IsValid() {
		return how, from.String()
	}
	return how, ""
}
