package site

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"slurmgate/fault"
)

// The values of slurm.transport and storage.transport.
const (
	TransportCLI    = "cli"    // Slurm's commands on this machine
	TransportSSH    = "ssh"    // Slurm's commands on the login node
	TransportREST   = "rest"   // slurmrestd
	TransportShared = "shared" // a filesystem that this machine and the nodes share
	TransportSFTP   = "sftp"   // the cluster's filesystem, through an SFTP server
)

// Endpoint is an SSH server with the gateway's login there. It names files of keys; the site file never has a key.
type Endpoint struct {
	Host        string   `yaml:"host"`        // name or address
	Port        int      `yaml:"port"`        // 1..65535; default 22
	User        string   `yaml:"user"`        // default: the name of the user the gateway runs as
	KnownHosts  []string `yaml:"known_hosts"` // absolute; default: those of ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts that exist
	Key         string   `yaml:"key"`         // absolute path of a private key that only the gateway's user can read. Either key or agent
	Certificate string   `yaml:"certificate"` // absolute path of a user certificate for key; default none
	Agent       string   `yaml:"agent"`       // absolute path of the socket of an SSH agent
}

// SSH is an SSH server with its jump hosts.
type SSH struct {
	Endpoint `yaml:",inline"`
	Jump     []Endpoint `yaml:"jump"` // the first one is reached from this machine; default none
}

// SFTP is the SFTP server for the files of a cluster. Omitted fields are those of slurm.ssh, if there is one.
type SFTP struct {
	SSH          `yaml:",inline"`
	RunsDir      string `yaml:"runs_dir"`      // absolute: storage.runs_dir as this server names it
	ImageStore   string `yaml:"image_store"`   // absolute: storage.image_store as this server names it
	Connections  int    `yaml:"connections"`   // 1..8 in parallel; default 4
	BandwidthMB  int    `yaml:"bandwidth_mb"`  // 0..1048576 MiB a second in each direction; default 0: no limit
	Shell        *bool  `yaml:"shell"`         // false: no commands on [Site.ShellHost] for files, SFTP alone; default true
	SyncsFolders bool   `yaml:"syncs_folders"` // the admin states that this server makes new names durable; only without shell
}

// Folders are the folders of a cluster as one of its hosts names them.
type Folders struct {
	RunsDir    string `yaml:"runs_dir"`    // absolute
	ImageStore string `yaml:"image_store"` // absolute
}

// Address returns host:port.
func (e Endpoint) Address() string {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(e.Port)
}

// HasShell reports whether commands on a host of the cluster help with files; [Site.ShellHost] is that host.
func (f SFTP) HasShell() bool { return f.Shell == nil || *f.Shell }

// FarSlurm reports whether Slurm's commands run on a login node.
func (s *Site) FarSlurm() bool { return s.Slurm.Transport == TransportSSH }

// FarFiles reports whether the cluster's folders are out of this machine's reach, except by SFTP.
func (s *Site) FarFiles() bool { return s.Storage.Transport == TransportSFTP }

// ShellHost returns the host whose shell works on the far folders of a cluster: the login node, or without one the
// SFTP server. It is nil where the folders are within reach, or there is no shell.
func (s *Site) ShellHost() *SSH {
	switch {
	case !s.FarFiles() || !s.Storage.SFTP.HasShell():
		return nil
	case s.FarSlurm():
		return s.Slurm.SSH
	}
	return &s.Storage.SFTP.SSH
}

// LoginFolders returns the cluster's folders as the host that runs Slurm's commands names them, or without one the
// host of [Site.ShellHost].
func (s *Site) LoginFolders() Folders {
	switch {
	case s.Storage.Login != nil:
		return *s.Storage.Login
	case s.OverREST() && s.FarFiles():
		return Folders{s.Storage.SFTP.RunsDir, s.Storage.SFTP.ImageStore}
	}
	return Folders{s.Storage.RunsDir, s.Storage.ImageStore}
}

// fillRemote sets the defaults of slurm.ssh, storage.login and storage.sftp.
func (s *Site) fillRemote() {
	ssh := s.Slurm.SSH
	if ssh != nil {
		s.inherit("slurm.ssh", &ssh.Endpoint, Endpoint{Port: 22})
		s.jumps("slurm.ssh", ssh)
	}
	if l := s.Storage.Login; l != nil {
		s.text("storage.login.runs_dir", &l.RunsDir, s.Storage.RunsDir)
		s.text("storage.login.image_store", &l.ImageStore, s.Storage.ImageStore)
	}
	if !s.FarFiles() {
		return
	}
	if s.Storage.SFTP == nil {
		s.Storage.SFTP = &SFTP{}
	}
	f := s.Storage.SFTP
	names := Folders{s.Storage.RunsDir, s.Storage.ImageStore}
	if ssh != nil {
		from := ssh.Endpoint
		if f.Host != "" && f.Host != from.Host {
			from.Port = 22
		} else {
			names = s.LoginFolders()
		}
		if _, given := s.at["storage.sftp.jump"]; !given && f.Jump == nil {
			f.Jump = slices.Clone(ssh.Jump)
		}
		s.inherit("storage.sftp", &f.Endpoint, from)
		s.jumps("storage.sftp", &f.SSH)
	} else if s.OverREST() {
		from := Endpoint{Port: 22}
		if s.Slurm.REST != nil {
			from.User = s.Slurm.REST.User
		}
		s.inherit("storage.sftp", &f.Endpoint, from)
		s.jumps("storage.sftp", &f.SSH)
	}
	if !s.AsCaller() { // else the files of runs use slurm.caller.ssh
		s.text("storage.sftp.runs_dir", &f.RunsDir, names.RunsDir)
	}
	s.text("storage.sftp.image_store", &f.ImageStore, names.ImageStore)
	s.number("storage.sftp.connections", &f.Connections, defaultConnectionsSFTP)
	if f.Shell == nil {
		yes := true
		f.Shell = &yes
	}
}

const defaultConnectionsSFTP = 4

// inherit sets the omitted fields of an endpoint to those of from. Key, certificate and agent are taken together.
func (s *Site) inherit(at string, e *Endpoint, from Endpoint) {
	s.text(at+".host", &e.Host, from.Host)
	s.number(at+".port", &e.Port, from.Port)
	s.text(at+".user", &e.User, from.User)
	if _, given := s.at[at+".known_hosts"]; !given && e.KnownHosts == nil {
		e.KnownHosts = slices.Clone(from.KnownHosts)
	}
	_, key := s.at[at+".key"]
	_, certificate := s.at[at+".certificate"]
	_, agent := s.at[at+".agent"]
	if !key && !agent && !certificate && e.Key == "" && e.Agent == "" && e.Certificate == "" {
		e.Key, e.Certificate, e.Agent = from.Key, from.Certificate, from.Agent
	}
}

func (s *Site) jumps(at string, ssh *SSH) {
	for i := range ssh.Jump {
		from := ssh.Endpoint
		from.Host, from.Port = "", 22
		s.inherit(fmt.Sprintf("%s.jump[%d]", at, i), &ssh.Jump[i], from)
	}
}

// transports checks which fields the transports need, and which combinations exist.
func (c *checker) transports(s Slurm, st Storage) {
	known := []string{TransportCLI, TransportSSH, TransportREST}
	only := func(field, transport string, given bool, hint string) { // field belongs to one transport of Slurm
		if given && s.Transport != transport && slices.Contains(known, s.Transport) {
			c.add("SITE-TRANSPORT", field, "only with slurm.transport: "+transport,
				"this has no effect: slurm.transport is "+s.Transport, hint)
		}
	}
	missing := func(field, rule, hint string) { c.add("SITE-MISSING", field, rule, "the section is missing", hint) }
	ssh, rest, sftp := s.Transport == TransportSSH, s.Transport == TransportREST, st.Transport == TransportSFTP
	if ssh && s.SSH == nil {
		missing("slurm.ssh", "the login node, with transport: ssh",
			"for example ssh: {host: login.cluster.example, user: svc, key: /etc/slurmgate/id_ed25519}")
	} else if ssh {
		c.ssh("slurm.ssh", *s.SSH)
	}
	if rest && s.REST == nil {
		missing("slurm.rest", "slurmrestd, with transport: rest", "for example rest: {url: unix:/run/slurmrestd/slurmrestd.sock}")
	} else if rest {
		c.rest(*s.REST)
	}
	only("slurm.ssh", TransportSSH, s.SSH != nil, "set slurm.transport to ssh, or remove slurm.ssh")
	only("slurm.rest", TransportREST, s.REST != nil, "set slurm.transport to rest, or remove slurm.rest")
	if rest {
		c.noCommands(s)
	}
	if sftp && s.Transport == TransportCLI {
		c.add("SITE-TRANSPORT", "storage.transport", "shared, or slurm.transport: ssh or rest",
			"slurm.transport cli and storage.transport sftp do not go together",
			"a gateway that runs Slurm's commands itself is on a host of the cluster: use its filesystem (shared), or set slurm.transport to ssh "+
				"or rest")
	}
	if l := st.Login; l != nil {
		only("storage.login", TransportSSH, true, "remove storage.login")
		c.path("storage.login.runs_dir", l.RunsDir, true)
		c.path("storage.login.image_store", l.ImageStore, true)
		c.separate("storage.login.image_store", l.ImageStore, "storage.login.runs_dir", l.RunsDir)
	}
	_, given := c.site.at["storage.sftp"]
	switch {
	case sftp && rest && !given && st.SFTP != nil && st.SFTP.Host == "":
		missing("storage.sftp", "the SFTP server, with slurm.transport: rest",
			"for example sftp: {host: dtn.cluster.example, user: svc, key: /etc/slurmgate/id_ed25519}: there is no login node to default to")
	case sftp && st.SFTP != nil:
		c.sftp(*st.SFTP, ssh && s.SSH != nil, rest)
	case st.SFTP != nil && st.Transport == TransportShared:
		c.add("SITE-TRANSPORT", "storage.sftp", "only with storage.transport: sftp",
			"the section has no effect: storage.transport is shared",
			"set storage.transport to sftp, or remove storage.sftp")
	}
}

// noCommands refuses settings of Slurm's commands where slurmrestd replaces them.
func (c *checker) noCommands(s Slurm) {
	for _, x := range []struct{ field, got string }{{"slurm.bin_dir", s.BinDir}, {"slurm.conf", s.Conf}} {
		if x.got != "" {
			c.add("SITE-TRANSPORT", x.field, "not with slurm.transport: rest", "with slurmrestd the gateway runs none of Slurm's commands",
				"remove it")
		}
	}
}

func (c *checker) ssh(at string, s SSH) {
	c.endpoint(at, s.Endpoint)
	c.jumps(at, s.Jump)
}

func (c *checker) jumps(at string, jump []Endpoint) {
	if len(jump) > maxJumps {
		c.add("SITE-RANGE", at+".jump", fmt.Sprintf("at most %d hosts", maxJumps),
			fmt.Sprintf("%d hosts are too many", len(jump)), "")
	}
	for i, j := range jump {
		c.endpoint(fmt.Sprintf("%s.jump[%d]", at, i), j)
	}
}

// sftp checks the SFTP server. Settings from slurm.ssh and storage.login are reported there; alone means that there
// are none.
func (c *checker) sftp(f SFTP, hasLogin, alone bool) {
	before := slices.Clone(c.problems)
	defer func() {
		own := slices.DeleteFunc(slices.Clone(c.problems[len(before):]), func(p fault.Problem) bool {
			name, _ := strings.CutPrefix(p.Field, "storage.sftp.")
			_, given := c.site.at[p.Field]
			return !given && !alone && (!hasLogin || reported(before, "slurm.ssh."+name) || reported(before, "storage.login."+name))
		})
		c.problems = append(before, own...)
	}()
	c.ssh("storage.sftp", f.SSH)
	c.path("storage.sftp.runs_dir", f.RunsDir, !c.site.AsCaller())
	c.path("storage.sftp.image_store", f.ImageStore, true)
	c.separate("storage.sftp.image_store", f.ImageStore, "storage.sftp.runs_dir", f.RunsDir)
	c.bounds("storage.sftp.connections", int64(f.Connections), 1, 8)
	c.bounds("storage.sftp.bandwidth_mb", int64(f.BandwidthMB), 0, 1<<20)
	if f.SyncsFolders && f.HasShell() {
		c.add("SITE-TRANSPORT", "storage.sftp.syncs_folders", "only with storage.sftp.shell: false",
			"the gateway syncs folders through a shell of the cluster, so this has no effect", "remove it")
	}
}

const maxJumps = 4

var (
	remoteHost = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
	keyText    = regexp.MustCompile(`-----BEGIN|^(ssh|ecdsa|sk)-[a-z0-9@.-]+ `)
)

func (c *checker) host(at, got, withUser string) {
	hint := ""
	if user, host, both := strings.Cut(got, "@"); both && user != "" && host != "" {
		hint = withUser
	} else if strings.Count(got, ":") == 1 {
		hint = "give the port in " + at + ".port"
	}
	if !isHost(got) {
		c.value("SITE-HOST", at+".host", got, "a host name or an IP address", hint)
	}
}

func (c *checker) endpoint(at string, e Endpoint) {
	c.host(at, e.Host, "give the user in "+at+".user")
	c.bounds(at+".port", int64(e.Port), 1, 65535)
	c.user(at+".user", e.User)
	for i, file := range e.KnownHosts {
		c.keyFile(fmt.Sprintf("%s.known_hosts[%d]", at, i), file)
	}
	switch {
	case e.Key == "" && e.Agent == "":
		c.add("SITE-MISSING", at+".key", "key, or agent", "there is no key to log in with",
			"name the file of a private key in key, or the socket of an agent in agent")
	case e.Key != "" && e.Agent != "":
		c.add("SITE-TRANSPORT", at+".agent", "either key or agent", "key and agent are both given", "remove one of them")
	case e.Certificate != "" && e.Key == "":
		c.add("SITE-TRANSPORT", at+".certificate", "only with key", "a certificate is given without its key",
			"give the key, or remove the certificate: an agent has its own")
	}
	c.keyFile(at+".key", e.Key)
	c.keyFile(at+".certificate", e.Certificate)
	c.keyFile(at+".agent", e.Agent)
}

func (c *checker) user(field, name string) {
	odd := strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) })
	if odd || len(name) > 64 || strings.HasPrefix(name, "-") {
		c.value("SITE-USER", field, name, "a user name: at most 64 bytes, without spaces", "")
	}
}

// keyFile checks the path of a file of keys. A key in its place is not repeated in the message.
func (c *checker) keyFile(field, got string) {
	if keyText.MatchString(got) {
		c.add("SITE-KEY", field, "the path of a file", "this is a key, not a path (it is not shown here)",
			"write it to a file that only the gateway's user can read, and give the path; replace a private key that was in a readable file")
		return
	}
	c.path(field, got, false)
}

// separate refuses folders of another host inside each other.
func (c *checker) separate(a, pathA, b, pathB string) {
	if pathA != "" && pathB != "" && (within(pathA, pathB) || within(pathB, pathA)) {
		c.add("SITE-PATH-OVERLAP", a, "not inside "+b+", nor around it", fmt.Sprintf("%s overlaps with %s, which is %s", pathA, pathB, b),
			"choose separate folders")
	}
}

// ownHost checks the folders that jobs on the gateway's own host use when the first cluster's are elsewhere.
func (s *Site) ownHost() []fault.Problem {
	c := &checker{site: s}
	first := s.Clusters()[0]
	if !first.FarFiles() && !first.AsCaller() || !filepath.IsAbs(s.Gateway.StateDir) {
		return nil
	}
	runs := s.LocalSite().Storage.RunsDir
	if !plainPath.MatchString(runs) {
		c.value("SITE-PATH", "gateway.state_dir", s.Gateway.StateDir, "an absolute path of letters, digits and _ . + @ ~ = -",
			"jobs of this machine run below it when no cluster shares a filesystem; other characters have a meaning in options of Apptainer")
	} else if first.FarFiles() && filepath.IsAbs(s.Gateway.ImageStore) {
		c.plain("gateway.image_store", s.Gateway.ImageStore)
	}
	c.separate("gateway.image_store", s.Gateway.ImageStore, "the folder of jobs of this machine", runs)
	c.separate("gateway.artifact_dir", s.Gateway.ArtifactDir, "the folder of jobs of this machine", runs)
	return c.problems
}

// sameFolder reports whether two clusters would use one runs_dir, as far as the site file shows.
func sameFolder(a, b *Site) (pathA, pathB string, same bool) {
	pathA, pathB = a.Storage.RunsDir, b.Storage.RunsDir
	switch {
	case a.AsCaller() && b.AsCaller() && a.callerHost() != b.callerHost():
		return "", "", false
	case a.AsCaller() && (b.AsCaller() || !b.FarFiles()), b.AsCaller() && !a.FarFiles():
		return pathA, pathB, patternsMeet(pathA, pathB)
	case a.FarFiles() != b.FarFiles():
		return "", "", false
	case a.FarFiles():
		if f, g := a.Storage.SFTP, b.Storage.SFTP; f.Host != g.Host || f.Port != g.Port {
			return "", "", false
		}
		pathA, pathB = a.Storage.SFTP.RunsDir, b.Storage.SFTP.RunsDir
	}
	return pathA, pathB, pathA != "" && pathB != "" && (within(pathA, pathB) || within(pathB, pathA))
}
