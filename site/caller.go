package site

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"slurmgate/fault"
)

// The values of slurm.run_as.
const (
	RunAsSelf   = "self"   // jobs and files belong to the user the gateway logs in as
	RunAsCaller = "caller" // jobs and files of a run belong to the user who asked for it
)

// UserMark stands for the user's name in storage.runs_dir.
const UserMark = "{user}"

// Caller configures how the gateway logs in as the users whose jobs it sends, and which users those may be.
type Caller struct {
	SSH                CallerSSH `yaml:"ssh"`                                                          // the host where users are logged in
	Signer             string    `yaml:"signer" default:"/run/slurmgate-signer/signer.sock" is:"path"` // absolute path of the signer's socket
	CertificateMinutes int       `yaml:"certificate_minutes" default:"5" min:"1" max:"60"`
	SourceAddresses    []string  `yaml:"source_addresses"`                             // of the gateway, as sshd sees it; default 127.0.0.1 and ::1 for a loopback host
	Connections        int       `yaml:"connections" default:"32" min:"1" max:"1000"`  // users connected at a time
	IdleSeconds        int       `yaml:"idle_seconds" default:"60" min:"5" max:"3600"` // seconds until an unused connection is closed
	MinUID             int       `yaml:"min_uid" default:"1000" min:"1" max:"4294967294"`
	MaxUID             int       `yaml:"max_uid" default:"59999"`
	RefuseUsers        []string  `yaml:"refuse_users" is:"user"`                                                                      // users whom no job runs as
	RefuseGroups       []string  `yaml:"refuse_groups" default:"sudo,wheel,admin,root,adm,docker,lxd,libvirt,disk,shadow" is:"group"` // groups whose members no job runs as: root, or able to become root
}

// CallerSSH is the SSH server where users are logged in, with certificates of the signer. Jump hosts are entered as the gateway itself.
type CallerSSH struct {
	Host       string     `yaml:"host"`        // name or address; default slurm.ssh.host, without slurm.ssh 127.0.0.1
	Port       int        `yaml:"port"`        // 1..65535; default slurm.ssh.port for the same host, or 22
	KnownHosts []string   `yaml:"known_hosts"` // absolute; default as for slurm.ssh
	Jump       []Endpoint `yaml:"jump"`        // the first one is reached from this machine; default slurm.ssh.jump for the same host
}

const (
	maxUID    = 1<<32 - 2
	plainUser = "user" // stands for a user's name in checks of paths
)

// AsCaller reports whether jobs and files of a run belong to the user who asked for it.
func (s *Site) AsCaller() bool { return s.Slurm.RunAs == RunAsCaller }

// UserFolders returns the folders of a user's runs: as jobs see them, and as the host names them where the user is
// logged in. It refuses a user whose name cannot be a folder, or whose folders would be inside others of the site.
func (s *Site) UserFolders(user string) (jobs, login string, err error) {
	refuse := func(why string) error {
		return fault.New(fault.Policy, "user_refused", fmt.Sprintf("no runs as %q: %s", user, why)).
			WithNext("ask the admin of this gateway for another Unix user")
	}
	jobs = strings.Replace(s.Storage.RunsDir, UserMark, user, 1)
	login = strings.Replace(s.LoginFolders().RunsDir, UserMark, user, 1)
	odd := func(r rune) bool { return r == '/' || unicode.IsControl(r) }
	if user == "" || user == "." || user == ".." || strings.ContainsFunc(user, odd) || !plainPath.MatchString("/"+user) {
		return "", "", refuse("the name cannot be that of a folder in storage.runs_dir")
	}
	others := []string{s.Storage.ImageStore, s.LoginFolders().ImageStore}
	if !s.FarFiles() {
		others = append(others, s.Gateway.StateDir, s.Gateway.ArtifactDir)
	}
	for _, other := range others {
		if within(other, jobs) || within(jobs, other) || within(other, login) || within(login, other) {
			return "", "", refuse("the folder of that user's runs would overlap with " + other)
		}
	}
	return jobs, login, nil
}

// OwnFolder returns the part of storage.runs_dir for one user, as the login node names it: the path up to the name.
func (s *Site) OwnFolder(user string) string {
	before, _, _ := strings.Cut(s.LoginFolders().RunsDir, UserMark)
	return before + user
}

// fillCaller sets the defaults of slurm.caller.
func (s *Site) fillCaller() {
	if !s.AsCaller() {
		return
	}
	if s.Slurm.Caller == nil {
		s.Slurm.Caller = &Caller{}
	}
	c := s.Slurm.Caller
	from := SSH{Endpoint: Endpoint{Host: "127.0.0.1", Port: 22}}
	if s.Slurm.SSH != nil {
		from = *s.Slurm.SSH
	}
	s.text("slurm.caller.ssh.host", &c.SSH.Host, from.Host)
	jump := from.Jump
	if c.SSH.Host != from.Host {
		from.Port, jump = 22, nil
	}
	s.number("slurm.caller.ssh.port", &c.SSH.Port, from.Port)
	if _, given := s.at["slurm.caller.ssh.known_hosts"]; !given && c.SSH.KnownHosts == nil {
		c.SSH.KnownHosts = slices.Clone(from.KnownHosts)
	}
	if _, given := s.at["slurm.caller.ssh.jump"]; !given && c.SSH.Jump == nil {
		c.SSH.Jump = slices.Clone(jump)
	}
	from.Host, from.Port = "", 22
	for i := range c.SSH.Jump {
		s.inherit(fmt.Sprintf("slurm.caller.ssh.jump[%d]", i), &c.SSH.Jump[i], from.Endpoint)
	}
	if _, given := s.at["slurm.caller.source_addresses"]; !given && c.SourceAddresses == nil && c.SSH.isLoopback() {
		c.SourceAddresses = []string{"127.0.0.1", "::1"}
	}
}

func (h CallerSSH) isLoopback() bool {
	return (h.Host == "localhost" || loopback(h.Host)) && len(h.Jump) == 0
}

// Address returns host:port.
func (h CallerSSH) Address() string { return Endpoint{Host: h.Host, Port: h.Port}.Address() }
