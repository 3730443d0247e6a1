package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// carrier is how a gateway reaches the cluster.
type carrier string

const (
	cli   carrier = "cli"   // it runs on the login node, as the user of the jobs
	login carrier = "login" // it runs on this machine, as nobody: commands over SSH, files over SFTP, both by the login node
	dtn   carrier = "dtn"   // the same with the files over the data host

	rest     carrier = "rest"     // it runs on the login node and asks slurmrestd, by a socket
	restsftp carrier = "restsftp" // it runs on this machine, as nobody, and asks slurmrestd by TCP; files over SFTP

	caller carrier = "caller" // it runs on the login node, and runs are those of two users, whom it logs in as over SSH (ascaller.go)
)

var carriers = []carrier{cli, login, dtn, rest, restsftp, caller}

// title returns the display name of a carrier.
func (c carrier) title() string {
	return map[carrier]string{cli: "cli+shared", login: "ssh+sftp (login)", dtn: "ssh+sftp (dtn)", rest: "rest+shared",
		restsftp: "rest+sftp", caller: "cli+sftp (caller)"}[c]
}

// far reports whether the gateway is outside of the cluster, and its files go over SFTP.
func (c carrier) far() bool { return c == login || c == dtn || c == restsftp }

// ssh reports whether SSH carries anything of it.
func (c carrier) ssh() bool { return c.far() || c == caller }

// rest reports whether the gateway asks slurmrestd.
func (c carrier) rest() bool { return c == rest || c == restsftp }

// parseCarriers reads a list of carriers.
func parseCarriers(text string) (list []carrier, err error) {
	for word := range strings.SplitSeq(text, ",") {
		c := carrier(word)
		if !slices.Contains(carriers, c) {
			return nil, fmt.Errorf("there is no transport %q; there are %v", word, carriers)
		}
		list = append(list, c)
	}
	return list, nil
}

const nobody = 65534 // whom a far gateway runs as on this machine

// hosts holds the settings to reach the cluster's sshds from this machine: devcluster ssh-info.
type hosts struct {
	Login, Login2, DTN struct {
		Address string
		Port    int
		Shared  string
	}
	Key        string
	KnownHosts string `json:"known_hosts"`

	ThisMachine string `json:"this_machine"` // this machine's address, as the cluster sees it
	Callers     struct {
		Key string `json:"ca_key_here"` // of the authority whose certificates let users in
	}
}

// wires are the proxies of a site, between its gateway and the cluster.
type wires []*proxy

func (w wires) set(v networkFaults) {
	for _, p := range w {
		p.set(v)
	}
}

// cutNow cuts all connections.
func (w wires) cutNow() {
	for _, p := range w {
		p.cutNow()
	}
}

// sofar returns the counts of all connections so far, and the ports of this machine that they had.
func (w wires) sofar() (all observed, ports map[int]bool) {
	ports = map[int]bool{}
	for _, p := range w {
		f, at := p.sofar()
		all = observed{all.cuts + f.cuts, all.ended + f.ended, all.delayed + f.delayed, all.late + f.late, all.posts + f.posts,
			all.refused + f.refused}
		maps.Copy(ports, at)
	}
	return all, ports
}

func (c *cluster) sshInfo(ctx context.Context) (h hosts, err error) {
	out, err := exec.CommandContext(ctx, c.script, "--name", c.name, "ssh-info").Output()
	if err == nil {
		err = json.Unmarshal(out, &h)
	}
	return h, err
}

// desk returns the folder of far gateways on this machine: program, domain, image, and a folder for each site.
func (g *ground) desk() string { return "/var/tmp/slurmgate-" + g.name }

// layDesk creates that folder again.
func (g *ground) layDesk(ctx context.Context) (err error) {
	if g.hosts, err = g.sshInfo(ctx); err != nil {
		return err
	}
	script := `set -e; rm -rf --one-file-system "$1"; mkdir "$1"; cp -r "$2" "$1/domain"; cp "$3" "$4" "$5" "$1"; chmod -R u=rwX,go=rX "$1"`
	cmd := exec.CommandContext(ctx, "sh", "-c", script, "sh", g.desk(), g.path(domainDir), g.path(binary), g.path(sharedDir+"/chaosprog.sif"),
		g.hosts.KnownHosts)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return chownAll(g.desk()+"/domain", nobody)
}

// connect makes the proxies of a site that is reached over SSH, and the files its gateway logs in with.
func (s *site) connect() (err error) {
	if err := os.MkdirAll(s.path(s.local), 0o700); err != nil {
		return err
	}
	address := func(host string, port int) string { return fmt.Sprintf("%s:%d", host, port) }
	h := s.hosts
	listens := "127.0.0.1"
	if s.carrier == caller {
		listens = h.ThisMachine
	}
	l, err := net.Listen("tcp", address(listens, 0))
	if err != nil {
		return err
	}
	s.login = newProxyOn(l, address(h.Login.Address, h.Login.Port), address(h.Login2.Address, h.Login2.Port))
	s.data, s.wires = s.login, append(s.wires, s.login)
	if s.carrier == dtn {
		if s.data, err = newProxy(address(h.DTN.Address, h.DTN.Port)); err != nil {
			return err
		}
		s.wires = append(s.wires, s.data)
	}
	known, err := os.ReadFile(h.KnownHosts)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for line := range strings.Lines(string(known)) { // the hosts' keys, under the proxies' addresses
		names, key, _ := strings.Cut(line, " ")
		at := s.login
		if slices.Contains(strings.Split(names, ","), h.DTN.Address) {
			at = s.data
		}
		fmt.Fprintf(&lines, "[%s]:%d %s", listens, at.port(), key)
	}
	if s.carrier == caller {
		return s.write(s.local+"/known_hosts", lines.String())
	}
	key, err := os.ReadFile(h.Key)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"known_hosts": []byte(lines.String()), "id_ed25519": key} {
		if err := os.WriteFile(filepath.Join(s.local, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// ofTransport returns the lines of the site file that configure the transport.
func (s *site) ofTransport() (slurm, storage string) {
	bin := ", bin_dir: " + s.shared + "/bin"
	switch s.carrier {
	case cli:
		return "transport: cli" + bin, ""
	case caller:
		return fmt.Sprintf("transport: cli%s, caller: {ssh: {host: %[2]s, port: %[3]d, known_hosts: [%[4]s/known_hosts]}, signer: %[5]s, "+
			"source_addresses: [%[2]s], certificate_minutes: 1}", bin, s.hosts.ThisMachine, s.login.port(), s.local, s.signer.relay()), ""
	}
	if s.carrier.rest() {
		slurm = fmt.Sprintf("transport: rest, rest: {url: %q, user: %s, token_file: %s}", s.rest.url, user, s.rest.token)
	}
	if s.carrier == rest {
		return slurm, ""
	}
	at := func(p *proxy) string {
		return fmt.Sprintf("host: 127.0.0.1, port: %d, user: %s, known_hosts: [%s/known_hosts], key: %s/id_ed25519", p.port(), user, s.local,
			s.local)
	}
	storage = ", transport: sftp"
	switch s.carrier {
	case login:
		slurm = "transport: ssh, ssh: {" + at(s.login) + "}" + bin
	case dtn:
		slurm = "transport: ssh, ssh: {" + at(s.login) + "}" + bin
		there := func(path string) string { return s.hosts.DTN.Shared + strings.TrimPrefix(path, "/shared") }
		storage += fmt.Sprintf(", sftp: {host: 127.0.0.1, port: %d, runs_dir: %s, image_store: %s}", s.data.port(), there(s.runs()),
			there(s.images()))
	case restsftp: // with a shell for every second worker, with SFTP alone for the others
		shell := "shell: true"
		if s.n%2 == 1 {
			shell = "shell: false, syncs_folders: true"
		}
		storage += ", sftp: {" + at(s.login) + ", " + shell + "}"
	}
	return slurm, storage
}

// program prepares a run of the gateway's program, where the gateway runs, as a user of the cluster or as its user of this machine.
func (s *site) program(ctx context.Context, as string, env []string, args ...string) *exec.Cmd {
	if !s.carrier.far() {
		return s.command(ctx, as, env, append([]string{binary}, args...)...)
	}
	cmd := exec.CommandContext(ctx, s.desk()+"/slurmgate", args...)
	cmd.Dir, cmd.Env = "/", append([]string{"PATH=/usr/bin:/bin", "HOME=" + s.local}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// pid returns the process id of a started program, by this machine's number; 0 when it is not inside the cluster yet.
func (s *site) pid(started int) int {
	if s.carrier.far() {
		return started
	}
	return child(started)
}

// path returns this machine's path of a path of the login node's, or of a far gateway's.
func (s *site) path(inside string) string {
	if s.carrier.far() && strings.HasPrefix(inside, s.desk()+"/") {
		return inside
	}
	return s.cluster.path(inside)
}
