package rest

import (
	"context"
	"encoding/base64"
	"net"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// Greeting is what slurmrestd says about itself and the gateway, for doctor. What its version does not say is empty.
type Greeting struct {
	Version string // of the API in use
	Release string // of Slurm, such as 24.11.5
	Cluster string
	User    string // as whom it acts for the gateway
	Process int    // the user id of the process that made the socket; -1: not known
}

// protocolAuth is SLURM_PROTOCOL_AUTHENTICATION_ERROR: a daemon did not accept the credentials of a request, which then had no effect, or
// slurmrestd those of the answer, which says nothing about the effect.
const protocolAuth = 1007

// Greet asks slurmrestd who it is, with a request that slurmctld authenticates: a ping is answered to anybody. It costs one RPC.
func (s *Slurm) Greet(ctx context.Context) (g Greeting, err error) {
	g.Process = -1
	a, err := s.client.call(ctx, request{method: "GET", path: "/slurm/{v}/licenses/"})
	if err := accepted(err); err != nil {
		return g, err
	}
	g.Release, g.Cluster = a.release, a.cluster
	if s.local() {
		g.User = a.user // over TCP it is slurmrestd's own
	}
	if v := s.client.version.known(); v != nil {
		g.Version = v.name
	}
	if path, is := strings.CutPrefix(s.cfg.URL, "unix:"); is {
		g.Process = madeBy(path)
	}
	return g, nil
}

// local reports whether slurmrestd knows the gateway by its socket or pipes.
func (s *Slurm) local() bool {
	return s.cfg.TokenFile == "" && len(s.cfg.TokenCommand) == 0
}

// accepted gives a refusal of the credentials its code, whoever refused.
func accepted(err error) error {
	for _, p := range problemsOf(err) {
		if p.Number == protocolAuth {
			return fault.Wrap(fault.Transport, AuthFault, "slurmctld does not accept the gateway's token", err).WithNext(
				"make a new one with the key that slurmctld has now: scontrol token username=USER lifespan=SECONDS")
		}
	}
	return err
}

// ActsForOthers reports whether the gateway's token lets it act for other users, as one of SlurmUser or root does: such a token is the
// whole cluster. It costs one RPC.
func (s *Slurm) ActsForOthers(ctx context.Context) (bool, error) {
	if s.local() {
		return false, nil // no name is sent
	}
	other, err := newClient(s.cfg)
	if err != nil {
		return false, err
	}
	defer other.pool.close()
	other.tokens, other.user = s.client.tokens, "nobody"
	_, err = other.call(ctx, request{method: "GET", path: "/slurm/{v}/licenses/"})
	if fault.CodeOf(accepted(err)) == AuthFault {
		return false, nil
	}
	return err == nil, err
}

// madeBy is the user of the process that listens on a socket.
func madeBy(path string) int {
	c, err := net.DialTimeout("unix", path, dialTime)
	if err != nil {
		return -1
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1
	}
	uid := -1
	if err := raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	}); err != nil {
		return -1
	}
	return uid
}

// Life is how long a token holds. Without an end it holds for ever.
type Life struct{ Issued, Ends time.Time }

// Token makes sure that there is a token of the site's user, or that none is needed: then life is nil.
func (s *Slurm) Token(ctx context.Context) (life *Life, err error) {
	token, err := s.client.tokens.get(ctx)
	if err != nil || token == "" {
		return nil, err
	}
	_, ends, err := claims(token)
	if err != nil {
		return nil, err
	}
	life = &Life{Ends: ends}
	var c struct {
		Iat int64 `json:"iat"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.Split(token, ".")[1], "="))
	if err == nil && json.Unmarshal(payload, &c) == nil && c.Iat > 0 {
		life.Issued = time.Unix(c.Iat, 0)
	}
	return life, nil
}
