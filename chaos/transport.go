package main

import (
	"context"
	"encoding/json"
	"fmt"
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
)

var carriers = []carrier{cli, login, dtn}

// title is what people call a carrier.
func (c carrier) title() string {
	return map[carrier]string{cli: "cli+shared", login: "ssh+sftp (login)", dtn: "ssh+sftp (dtn)"}[c]
}

func (c carrier) far() bool { return c != cli }

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

// hosts is how this machine reaches the cluster's sshds: devcluster ssh-info.
type hosts struct {
	Login, Login2, DTN struct {
		Address string
		Port    int
		Shared  string
	}
	Key        string
	KnownHosts string `json:"known_hosts"`
}

// wires are the proxies of a far site, between its gateway and the cluster.
type wires struct{ login, data *proxy }

func (w *wires) set(v weather) {
	w.login.set(v)
	if w.data != w.login {
		w.data.set(v)
	}
}

// cutNow cuts all connections.
func (w *wires) cutNow() {
	w.login.cutNow()
	if w.data != w.login {
		w.data.cutNow()
	}
}

// cuts is how many connections were cut.
func (w *wires) cuts() int {
	if w.data == w.login {
		return w.login.done()
	}
	return w.login.done() + w.data.done()
}

func (c *cluster) sshInfo(ctx context.Context) (h hosts, err error) {
	out, err := exec.CommandContext(ctx, c.script, "--name", c.name, "ssh-info").Output()
	if err == nil {
		err = json.Unmarshal(out, &h)
	}
	return h, err
}

// desk is the folder of far gateways on this machine: program, domain, image, and a folder for each site.
func (g *ground) desk() string { return "/var/tmp/slurmgate-" + g.name }

// layDesk makes that folder anew.
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

// connect makes the proxies of a far site, and the files it logs in with.
func (s *site) connect() (err error) {
	if err := os.MkdirAll(s.path(s.local), 0o700); err != nil {
		return err
	}
	address := func(host string, port int) string { return fmt.Sprintf("%s:%d", host, port) }
	h := s.hosts
	if s.wires.login, err = newProxy(address(h.Login.Address, h.Login.Port), address(h.Login2.Address, h.Login2.Port)); err != nil {
		return err
	}
	s.wires.data = s.wires.login
	if s.carrier == dtn {
		if s.wires.data, err = newProxy(address(h.DTN.Address, h.DTN.Port)); err != nil {
			return err
		}
	}
	known, err := os.ReadFile(h.KnownHosts)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for line := range strings.Lines(string(known)) { // the hosts' keys, under the proxies' addresses
		names, key, _ := strings.Cut(line, " ")
		at := s.wires.login
		if slices.Contains(strings.Split(names, ","), h.DTN.Address) {
			at = s.wires.data
		}
		fmt.Fprintf(&lines, "[127.0.0.1]:%d %s", at.port(), key)
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

// ofTransport are the lines of the site file that say how the cluster is reached.
func (s *site) ofTransport() (slurm, storage string) {
	if !s.carrier.far() {
		return "transport: cli", ""
	}
	slurm = fmt.Sprintf("transport: ssh, ssh: {host: 127.0.0.1, port: %d, user: %s, known_hosts: [%s/known_hosts], key: %s/id_ed25519}",
		s.wires.login.port(), user, s.local, s.local)
	storage = ", transport: sftp"
	if s.carrier == dtn {
		there := func(path string) string { return s.hosts.DTN.Shared + strings.TrimPrefix(path, "/shared") }
		storage += fmt.Sprintf(", sftp: {host: 127.0.0.1, port: %d, runs_dir: %s, image_store: %s}", s.wires.data.port(), there(s.runs()),
			there(s.images()))
	}
	return slurm, storage
}

// program prepares a run of the gateway's program, where the gateway runs and as its user.
func (s *site) program(ctx context.Context, env []string, args ...string) *exec.Cmd {
	if !s.carrier.far() {
		return s.command(ctx, user, env, append([]string{binary}, args...)...)
	}
	cmd := exec.CommandContext(ctx, s.desk()+"/slurmgate", args...)
	cmd.Dir, cmd.Env = "/", append([]string{"PATH=/usr/bin:/bin", "HOME=" + s.local}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// pid is that of a program that was started, by this machine's number; 0 when it is not inside the cluster yet.
func (s *site) pid(started int) int {
	if s.carrier.far() {
		return started
	}
	return child(started)
}

// path is where this machine sees a path of the login node's, or of a far gateway's.
func (s *site) path(inside string) string {
	if s.carrier.far() && strings.HasPrefix(inside, s.desk()+"/") {
		return inside
	}
	return s.cluster.path(inside)
}
