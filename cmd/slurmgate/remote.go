package main

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
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm/rest"
)

// hosts are the connections to login nodes, data hosts and slurmrestd, one for each host and user.
// Slurm's commands and the files of a site share it.
type hosts struct {
	log *slog.Logger

	mu    sync.Mutex
	open  map[string]*remote.Host // by its whole configuration
	pools map[string]*transfer.Pool
	rests []*rest.Slurm

	// certified makes the credentials of hosts, except of jump hosts; nil: they are those of the site file.
	certified func(context.Context) (ssh.Signer, time.Time, error)
}

func newHosts(log *slog.Logger) *hosts {
	return &hosts{log: log, open: map[string]*remote.Host{}, pools: map[string]*transfer.Pool{}}
}

// quietHosts are for a look: what they find is in its answer.
func quietHosts() *hosts { return newHosts(slog.New(slog.DiscardHandler)) }

// login is the login node of a site; nil if Slurm's commands are on this host.
func (h *hosts) login(s *site.Site) (*remote.Host, error) {
	if !s.FarSlurm() {
		return nil, nil
	}
	return h.host(*s.Slurm.SSH)
}

// shell is the host whose shell works on a site's far files; nil if there is none.
func (h *hosts) shell(s *site.Site) (*remote.Host, error) {
	if to := s.ShellHost(); to != nil {
		return h.host(*to)
	}
	return nil, nil
}

// data is the host whose SFTP server has a site's files.
func (h *hosts) data(s *site.Site) (*remote.Host, error) { return h.host(s.Storage.SFTP.SSH) }

// host checks the files of keys. Nothing is sent to the host before it is needed.
func (h *hosts) host(to site.SSH) (*remote.Host, error) {
	me, err := nss.Host{}.UserOf(context.Background(), os.Geteuid())
	if err != nil {
		return nil, fault.Wrap("", "", "the name of this process's user is unknown", err)
	}
	c := remoteConfig(to.Endpoint, me)
	c.Credentials = h.certified
	for _, j := range to.Jump {
		c.Jump = append(c.Jump, remoteConfig(j, me))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := fmt.Sprintf("%+v", c)
	if known := h.open[name]; known != nil {
		return known, nil
	}
	made, err := remote.New(c, h.log)
	if err == nil {
		h.open[name] = made
	}
	return made, err
}

// pool carries all bytes between a site's data host and this one, workspaces and images alike, so that storage.sftp.connections and
// bandwidth_mb bound them together.
func (h *hosts) pool(s *site.Site) (*transfer.Pool, error) {
	data, err := h.data(s)
	if err != nil {
		return nil, err
	}
	f := s.Storage.SFTP
	c := transfer.Config{Connections: f.Connections, BytesPerSecond: int64(f.BandwidthMB) << 20}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := fmt.Sprintf("%s %p %+v", s.Name, data, c)
	if known := h.pools[name]; known != nil {
		return known, nil
	}
	made, err := transfer.New(data, c)
	if err == nil {
		h.pools[name] = made
	}
	return made, err
}

// links says how the connections to a site are; nil for a site that is here.
func (h *hosts) links(s *site.Site) func() []run.Connection {
	if !s.FarSlurm() && !s.FarFiles() {
		return nil
	}
	found := sync.OnceValue(func() map[string]*remote.Host { // looks up this process's user
		to := map[string]*remote.Host{}
		if host, err := h.login(s); err == nil && s.FarSlurm() {
			to["slurm"] = host
		}
		if s.FarFiles() {
			if host, err := h.data(s); err == nil {
				to["files"] = host
			}
		}
		return to
	})
	return func() (list []run.Connection) {
		hosts := found()
		for _, to := range []string{"slurm", "files"} {
			if host := hosts[to]; host != nil {
				up, lost := host.State()
				list = append(list, run.Connection{To: to, Up: up, Losses: int64(lost)})
			}
		}
		return list
	}
}

// close ends all connections, and with them the calls that are under way.
func (h *hosts) close() {
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
