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

// Greeting holds what slurmrestd reports about itself and the gateway, for doctor. What its version does not report is
// empty.
type Greeting struct {
	Version string // of the API in use
	Release string // of Slurm, such as 24.11.5
	Cluster string
	User    string // the user as whom it acts for the gateway
	Process int    // the user id of the process that listens on the socket; -1: not known
}

// protocolAuth is SLURM_PROTOCOL_AUTHENTICATION_ERROR: a daemon did not accept the credentials of a request, which then
// had no effect, or slurmrestd did not accept those of the answer, which proves nothing about the effect.
const protocolAuth = 1007

// Greet asks slurmrestd for its release, cluster and user, with a request that slurmctld authenticates: a ping is
// answered without credentials. It costs one RPC.
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

// local reports whether slurmrestd identifies the gateway by its socket or pipes.
func (s *Slurm) local() bool {
	return s.cfg.TokenFile == "" && len(s.cfg.TokenCommand) == 0
}

// accepted returns err, with the code AuthFault if the credentials were refused.
func accepted(err error) error {
	for _, p := range problemsOf(err) {
		if p.Number == protocolAuth {
			return fault.Wrap(fault.Transport, AuthFault, "slurmctld does not accept the gateway's token", err).WithNext(
				"make a new one with the key that slurmctld has now: scontrol token username=USER lifespan=SECONDS")
		}
	}
	return err
}

// ActsForOthers reports whether the gateway's token lets it act for other users, as a token of SlurmUser or root does:
// such a token gives full control of the cluster. It costs one RPC.
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

// madeBy returns the user id of the process that listens on a socket, or -1.
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

// Life is the validity of a token. A zero Ends means for ever.
type Life struct{ Issued, Ends time.Time }

// Token returns how long the token of the site's user is valid, or nil if no token is needed.
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
