package transport

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/remote"
	"slurmgate/remote/transfer"
	"slurmgate/site"
	"slurmgate/slurm/rest"
)

// Hosts holds the connections to login nodes, data hosts and slurmrestd, one for each host and user. Slurm's commands
// and the files of a site share a connection.
type Hosts struct {
	log *slog.Logger

	mu    sync.Mutex
	open  map[string]*remote.Host // by its whole configuration
	pools map[string]*transfer.Pool
	users map[string]nss.User // this process's
	rests []*rest.Slurm

	// certified returns the credentials for hosts, except for jump hosts; nil: those of the site file are used.
	certified func(context.Context) (ssh.Signer, time.Time, error)
}

func newHosts(log *slog.Logger) *Hosts {
	return &Hosts{log: log, open: map[string]*remote.Host{}, pools: map[string]*transfer.Pool{}, users: map[string]nss.User{}}
}

// QuietHosts returns hosts that log nothing, for checks, whose answers have the findings.
func QuietHosts() *Hosts { return newHosts(slog.New(slog.DiscardHandler)) }

// HostsOf returns hosts for checks as one user of a cluster, with certificates of the signer.
func HostsOf(s *site.Site, user string) *Hosts {
	h := QuietHosts()
	h.certified = func(ctx context.Context) (ssh.Signer, time.Time, error) {
		return certificateOf(ctx, s, user, "", "doctor")
	}
	return h
}

// Certify requests a certificate of the hosts' user.
func (h *Hosts) Certify(ctx context.Context) error {
	_, _, err := h.certified(ctx)
	return err
}

// login returns the login node of a site, or nil if Slurm's commands are on this host.
func (h *Hosts) login(s *site.Site) (*remote.Host, error) {
	if !s.FarSlurm() {
		return nil, nil
	}
	return h.host(*s.Slurm.SSH)
}

// shell returns the host whose shell works on a site's far files, or nil.
func (h *Hosts) shell(s *site.Site) (*remote.Host, error) {
	if to := s.ShellHost(); to != nil {
		return h.host(*to)
	}
	return nil, nil
}

// data returns the host whose SFTP server has a site's files.
func (h *Hosts) data(s *site.Site) (*remote.Host, error) { return h.host(s.Storage.SFTP.SSH) }

// host returns a host, after a check of its key files. It does not connect.
func (h *Hosts) host(to site.SSH) (*remote.Host, error) {
	me, err := once(h, h.users, "me", func() (nss.User, error) { return nss.Host{}.UserOf(context.Background(), os.Geteuid()) })
	if err != nil {
		return nil, fault.Wrap("", "", "the name of this process's user is unknown", err)
	}
	c := remoteConfig(to.Endpoint, me)
	c.Credentials = h.certified
	for _, j := range to.Jump {
		c.Jump = append(c.Jump, remoteConfig(j, me))
	}
	return once(h, h.open, fmt.Sprintf("%+v", c), func() (*remote.Host, error) { return remote.New(c, h.log) })
}

// once returns the value stored under a name, or builds and stores it.
func once[T any](h *Hosts, made map[string]T, name string, build func() (T, error)) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, is := made[name]; is {
		return known, nil
	}
	one, err := build()
	if err == nil {
		made[name] = one
	}
	return one, err
}

// pool returns the pool for all transfers with a site's data host, of workspaces and of images, so that
// storage.sftp.connections and bandwidth_mb bound them together.
func (h *Hosts) pool(s *site.Site) (*transfer.Pool, error) {
	data, err := h.data(s)
	if err != nil {
		return nil, err
	}
	f := s.Storage.SFTP
	c := transfer.Config{Connections: f.Connections, BytesPerSecond: int64(f.BandwidthMB) << 20}
	return once(h, h.pools, fmt.Sprintf("%s %p %+v", s.Name, data, c), func() (*transfer.Pool, error) { return transfer.New(data, c) })
}

// Close ends all connections, and with them the running calls.
func (h *Hosts) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pool := range h.pools {
		pool.Close()
	}
	for _, host := range h.open {
		host.Close()
	}
	for _, r := range h.rests {
		r.Close()
	}
}

func remoteConfig(e site.Endpoint, me nss.User) remote.Config {
	c := remote.Config{Address: e.Address(), User: e.User, KnownHosts: e.KnownHosts, Key: e.Key, Certificate: e.Certificate, Agent: e.Agent}
	if c.User == "" {
		c.User = me.Name
	}
	if len(c.KnownHosts) == 0 {
		for _, file := range []string{filepath.Join(me.Home, ".ssh/known_hosts"), "/etc/ssh/ssh_known_hosts"} {
			if _, err := os.Stat(file); err == nil {
				c.KnownHosts = append(c.KnownHosts, file)
			}
		}
	}
	return c
}
