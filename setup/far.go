package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/remote"
	"slurmgate/slurm"
)

// Login is the connection to the login node.
type Login struct {
	Host, User string
	Port       int // 0: 22
	Jump       []Hop
	KnownHosts []string // files for the site file
	File       string   // one of them, to which New is added
	New        []string // lines with the host keys that the admin has compared

	host *remote.Host
	temp string // a temporary folder
}

// Hop is a host on the way to the login node.
type Hop struct {
	Host, User string
	Port       int
}

func (l *Login) close() {
	if l == nil {
		return
	}
	if l.host != nil {
		l.host.Close()
	}
	_ = os.RemoveAll(l.temp) // known_hosts of this connection
}

// parseHop reads [user@]host[:port].
func parseHop(s string) (h Hop, ok bool) {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		h.User, s = s[:i], s[i+1:]
		if h.User == "" {
			return h, false
		}
	}
	h.Host = s
	if host, port, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.Atoi(port)
		if h.Host, h.Port = host, n; err != nil || n < 1 || n > 65535 {
			return h, false
		}
	}
	h.Host = strings.Trim(h.Host, "[]")
	return h, h.Host != "" && !strings.ContainsAny(h.Host, " /@,")
}

func (h Hop) address() string { return net.JoinHostPort(h.Host, strconv.Itoa(cmp.Or(h.Port, 22))) }

// lookTime limits each command on the login node.
const lookTime = 40 * time.Second

// connect logs in to the login node. A host key that no known_hosts file has is only accepted with its fingerprint in Asked.Trust.
func (f *Found) connect(ctx context.Context) error {
	to, ok := parseHop(f.SSH)
	if !ok {
		return missing("ssh", fmt.Sprintf("%q is not a host", f.SSH), "write HOST, USER@HOST or USER@HOST:PORT")
	}
	l := &Login{Host: to.Host, Port: to.Port, User: cmp.Or(to.User, f.User), File: filepath.Join(filepath.Dir(f.Site), "known_hosts")}
	if l.User == "" {
		return nil // reported as a problem already
	}
	var jumps []remote.Config
	for _, text := range f.Jump {
		hop, ok := parseHop(text)
		if !ok {
			return missing("jump", fmt.Sprintf("%q is not a host", text), "write HOST, USER@HOST or USER@HOST:PORT")
		}
		l.Jump = append(l.Jump, hop)
		jumps = append(jumps, remote.Config{Address: hop.address(), User: cmp.Or(hop.User, l.User)})
	}
	if f.Key == "" && f.Agent == "" {
		return missing("key", "the gateway needs a private key to log in with as "+l.User,
			"name its file: --key FILE. To make one: ssh-keygen -t ed25519 -N '' -f "+filepath.Join(filepath.Dir(f.Site), "id_ed25519"))
	}
	var err error
	if l.temp, err = os.MkdirTemp("", "slurmgate-init-"); err != nil {
		return err
	}
	f.Login = l
	return f.logIn(ctx, remote.Config{Address: to.address(), User: l.User, Key: f.Key, Agent: f.Agent, Jump: jumps})
}

// logIn connects with the known host keys, and adds those that the admin trusts.
func (f *Found) logIn(ctx context.Context, c remote.Config) error {
	l := f.Login
	for _, file := range append([]string{l.File, "/etc/ssh/ssh_known_hosts"}, f.KnownHosts...) {
		if _, err := os.Stat(file); err == nil && (len(f.KnownHosts) == 0 || slices.Contains(f.KnownHosts, file)) {
			l.KnownHosts = append(l.KnownHosts, file)
		}
	}
	added := filepath.Join(l.temp, "known_hosts")
	c.KnownHosts = append(slices.Clone(l.KnownHosts), added)
	for i := range c.Jump {
		c.Jump[i].Key, c.Jump[i].Agent, c.Jump[i].KnownHosts = c.Key, c.Agent, c.KnownHosts
	}
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	for {
		if err := os.WriteFile(added, []byte(strings.Join(append(l.New, ""), "\n")), 0o600); err != nil {
			return err
		}
		host, err := remote.New(c, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		if _, err = host.Connection(ctx); err == nil {
			l.host = host
			return nil
		}
		host.Close()
		unknown, is := errors.AsType[*remote.UnknownKey](err)
		switch {
		case is && slices.Contains(f.Trust, unknown.Fingerprint):
			if l.New = append(l.New, unknown.Line); !slices.Contains(l.KnownHosts, l.File) {
				l.KnownHosts = append(l.KnownHosts, l.File)
			}
		case is:
			return missing("trust", fmt.Sprintf("the host key of %s is %s, which no known_hosts file has; nothing was sent there",
				unknown.Address, unknown.Fingerprint), "compare it with the fingerprint that the cluster's admins publish; if both are the same, "+
				"try again with --trust "+unknown.Fingerprint+", which adds the key to "+l.File)
		default:
			return err
		}
	}
}

// run runs a script on the login node.
func (f *Found) run(ctx context.Context, script string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	out, err := f.Login.host.Run(ctx, remote.Call{Script: script, Args: args, Limit: 1 << 20})
	return string(out.Stdout), err
}

// commandDirs lists folders where Slurm's commands may be.
var commandDirs = []string{"/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin", "/cm/shared/apps/slurm/current/bin"}

// farCluster finds Slurm's commands on the login node and reads the cluster with them.
func (f *Found) farCluster(ctx context.Context) error {
	if f.Login == nil || f.Login.host == nil {
		return nil // reported as a problem already
	}
	f.Charger = f.Login.User
	if f.BinDir == "" {
		out, err := f.run(ctx, `for dir; do [ ! -x "$dir/sbatch" ] || { printf %s "$dir"; break; }; done`, commandDirs...)
		if err != nil {
			return err
		}
		if f.BinDir = out; out == "" {
			return missing("bin-dir", "on "+f.Login.Host+" sbatch is in none of "+strings.Join(commandDirs, ", "),
				"name the folder of Slurm's commands there (command -v sbatch): --bin-dir DIR")
		}
	}
	return f.survey(ctx, slurm.Config{BinDir: f.BinDir, Conf: f.Conf, User: f.Login.User, Over: f.Login.host, RPCPerMinute: 60}, f.Login.Host)
}

// farDisks chooses the folder that all nodes see and that the user of the login can write to.
func (f *Found) farDisks(ctx context.Context) error {
	if f.Login == nil || f.Login.host == nil {
		return nil
	}
	f.Files = cmp.Or(f.Files, "sftp")
	out, err := f.run(ctx, "cat /proc/self/mountinfo")
	if err != nil {
		return err
	}
	if f.Mounts, err = networkMountsIn(strings.NewReader(out)); err != nil {
		return err
	}
	const next = "name a folder of this user's on a filesystem that all nodes mount: --shared DIR"
	if f.Shared == "" {
		if len(f.Mounts) != 1 {
			return missing("shared", "it is unknown which folder all nodes see under the same path (network filesystems on "+f.Login.Host+": "+
				orNone(f.Mounts)+")", next)
		}
		f.Shared = f.Mounts[0]
	}
	out, err = f.run(ctx, `[ -d "$1" ] || exit 0; [ -w "$1" ] || { echo closed; exit 0; }; stat -f -c %T -- "$1"`, f.Shared)
	switch f.Filesystem = strings.TrimSpace(out); {
	case err != nil:
		return err
	case f.Filesystem == "":
		return missing("shared", fmt.Sprintf("%s has no folder %s", f.Login.Host, f.Shared), next)
	case f.Filesystem == "closed":
		return missing("shared", fmt.Sprintf("%s may not write to %s on %s", f.Login.User, f.Shared, f.Login.Host), next)
	}
	if fi, err := os.Stat(f.Shared); f.Files == "shared" && (err != nil || !fi.IsDir()) {
		return missing("shared", f.Shared+" is no folder of this host, so files cannot go there directly",
			"mount the filesystem here under the same path, or leave out --files shared: files go by SFTP then")
	}
	return nil
}

// lookRuntime prints "path PATH VERSION" for the first program, or "module FILE NAME…" for the first file that knows modules.
const lookRuntime = `for program in /usr/bin/apptainer /usr/local/bin/apptainer /opt/apptainer/bin/apptainer; do
  [ ! -x "$program" ] || { echo "path $program $("$program" --version)"; exit; }
done
for file in /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh; do
  [ -r "$file" ] || continue
  found=$(bash -c '. "$1" && module -t avail apptainer 2>&1' bash "$file" | tr '\n' ' ')
  [ -z "$found" ] || { echo "module $file $found"; exit; }
done`

// farRuntime finds Apptainer on the login node: the nodes may have it in the same place.
func (f *Found) farRuntime(ctx context.Context) error {
	if f.Login == nil || f.Login.host == nil {
		return nil
	}
	out, err := f.run(ctx, lookRuntime)
	if err != nil {
		return err
	}
	words := strings.Fields(out)
	switch {
	case len(words) >= 2 && words[0] == "path":
		f.Apptainer, f.Version = words[1], strings.Join(words[2:], " ")
	case len(words) >= 3 && words[0] == "module":
		if found := apptainerModules(strings.Join(words[2:], " ")); len(found) > 0 {
			f.ModuleInit, f.Module = words[1], slices.Max(found)
		}
	}
	return nil
}

// trust adds the host keys that the admin has compared.
func (l *Login) trust() error {
	if len(l.New) == 0 {
		return nil
	}
	file, err := os.OpenFile(l.File, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	text := strings.Join(l.New, "\n") + "\n"
	if st, err := file.Stat(); err == nil && st.Size() > 0 {
		text = "\n" + text // its last line may lack a newline
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// command returns the start of an ssh command to the login node.
func (l *Login) command(key string) string {
	words := []string{"ssh", "-o", fmt.Sprintf("UserKnownHostsFile=%q", strings.Join(l.KnownHosts, " "))}
	if key != "" {
		words = append(words, "-i", key)
	}
	if l.Port > 0 {
		words = append(words, "-p", strconv.Itoa(l.Port))
	}
	var jump []string
	for _, h := range l.Jump {
		jump = append(jump, cmp.Or(h.User, l.User)+"@"+h.address())
	}
	if jump != nil {
		words = append(words, "-J", strings.Join(jump, ","))
	}
	return strings.Join(append(words, l.User+"@"+l.Host), " ")
}
