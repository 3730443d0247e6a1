package setup

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
	"slurmgate/staging"
)

const (
	serviceUser  = "slurmgate"
	localState   = "/var/lib/slurmgate"
	searchWithin = 20 * time.Second // for one program of this host
)

// people chooses the user of the gateway. id asks the host's own directory service.
func (f *Found) people(ctx context.Context) error {
	f.User = cmp.Or(f.User, serviceUser)
	known := ", which every node must know"
	if f.SSH != "" && f.Files != "shared" {
		known = "" // jobs and files belong to the user of the login
	}
	uid, err := f.ask(ctx, "id", "-u", "--", f.User)
	switch {
	case err != nil:
		name := f.User
		f.User = ""
		return missing("user", "this host has no user "+name,
			"create the user that the gateway runs as"+known+", or name another: --user NAME")
	case uid == "0":
		return missing("user", "jobs must not run as root", "name an ordinary user: --user NAME")
	}
	f.Charger = f.User
	return nil
}

// cluster finds Slurm's commands and reads the cluster with them.
func (f *Found) cluster(ctx context.Context) error {
	if f.BinDir == "" {
		dirs := commandDirs
		if path, err := exec.LookPath("sbatch"); err == nil {
			dirs = append([]string{filepath.Dir(path)}, dirs...)
		}
		i := slices.IndexFunc(dirs, func(dir string) bool { return isFile(filepath.Join(dir, "sbatch")) })
		if i < 0 {
			return missing("bin-dir", "sbatch is neither in PATH nor in "+strings.Join(dirs, ", "),
				"name the folder of Slurm's commands: --bin-dir DIR")
		}
		f.BinDir = dirs[i]
	}
	f.Conf = cmp.Or(f.Conf, os.Getenv("SLURM_CONF"))
	return f.survey(ctx, slurm.Config{BinDir: f.BinDir, Conf: f.Conf, User: f.User, RPCPerMinute: 60}, "this host")
}

// survey reads Slurm's configuration, partitions and accounts.
func (f *Found) survey(ctx context.Context, c slurm.Config, host string) error {
	cli, err := slurm.NewCLI(c)
	if err != nil {
		return err
	}
	if f.Release, err = cli.Version(ctx); err == nil {
		f.Slurm, err = slurm.Describe(ctx, cli, c.User)
	}
	if err != nil {
		return fault.Wrap("", "slurm_unreachable", "Slurm did not answer", err).
			WithNext("make `" + filepath.Join(f.BinDir, "scontrol") + " show config` work on " + host + ", then try again")
	}
	f.Name = strings.ToLower(f.Config().Name())
	if !plan.IsSiteName(f.Name) || f.Name == "local" {
		f.Name = "cluster"
	}
	return nil
}

// account chooses the account that jobs charge: the requested one, the user's default, or the user's only one.
func (f *Found) account(context.Context) error {
	if f.Release == "" || f.Charger == "" {
		return nil // reported as a problem already
	}
	own, enforced := f.own(), f.Config().Enforces()
	list := own.Accounts
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
		for _, q := range a.QOS {
			if !slices.Contains(f.QOS, q) {
				f.QOS = append(f.QOS, q)
			}
		}
	}
	switch asked := own.Account(f.Account); {
	case asked != nil:
		f.Charged = *asked
	case f.Account != "" && !enforced:
		f.Charged = run.Account{Name: f.Account}
	case f.Account != "":
		return missing("account", fmt.Sprintf("%s may not charge the account %s (may charge: %s)", f.Charger, f.Account, orNone(names)),
			"name one of these, or add the association: sacctmgr add user "+f.Charger+" account="+f.Account)
	case len(list) > 0:
		f.Charged = list[0]
	case enforced:
		return missing("user", "slurmdbd has no association of the user "+f.Charger+" with this cluster, so Slurm would refuse every job",
			"add one: sacctmgr add user "+f.Charger+" account=NAME, or name another user: --user NAME")
	default:
		f.Charged = run.Account{Name: "default"}
	}
	return nil
}

// own returns what the user of the jobs may charge.
func (f *Found) own() run.UserAccounts { return f.Slurm.Accounts.Value[f.Charger] }

// choose decides which partitions the policy lists.
func (f *Found) choose(context.Context) error {
	if f.Charged.Name == "" {
		return nil
	}
	for _, p := range f.Slurm.Partitions.Value {
		c := Choice{Partition: p}
		switch {
		case !plan.IsSlurmName(p.Name):
			c.Why = "its name cannot be in a policy"
		case !p.Up():
			c.Why = "it is not up"
		case p.Hidden:
			c.Why = "it is hidden, or root's alone"
		case !p.Open(f.Charged.Name):
			c.Why = "it is not open to the account " + f.Charged.Name
		case f.Charged.Partitions != nil && !slices.Contains(f.Charged.Partitions, p.Name):
			c.Why = f.Charger + "'s association does not cover it"
		case len(p.Groups) > 0:
			c.Why = "it is only for the groups " + strings.Join(p.Groups, ", ") + ": add it if " + f.Charger + " belongs to one of them"
		case p.Nodes == 0:
			c.Why = "it has no nodes"
		case p.In("down", "fail", "failing", "unknown") == p.Nodes:
			c.Why = "all its nodes are down"
		default:
			c.Allowed, c.Why = true, size(p)
		}
		f.Partitions = append(f.Partitions, c)
	}
	if len(f.allowed()) == 0 {
		var why []string
		for _, c := range f.Partitions {
			why = append(why, c.Name+": "+c.Why)
		}
		return missing("account", "no partition can be used by "+f.Charger+" with the account "+f.Charged.Name+" ("+orNone(why)+")",
			"open a partition for it, or name another account: --account NAME")
	}
	return nil
}

// size describes a partition briefly, with its time limit in Slurm's form: days-hours:minutes:seconds.
func size(p run.Partition) string {
	limit := "no time limit"
	if s := p.MaxSeconds; s > 0 {
		limit = fmt.Sprintf("time limit %02d:%02d:%02d", s/3600%24, s/60%60, s%60)
		if days := s / (24 * 3600); days > 0 {
			limit = strings.Replace(limit, "limit ", fmt.Sprintf("limit %d-", days), 1)
		}
	}
	gpus := ""
	if p.GPUs > 0 {
		gpus = fmt.Sprintf(", %d GPUs", p.GPUs)
	}
	return fmt.Sprintf("nodes: %d, the largest with %d CPUs, %d MiB%s; %s", p.Nodes, p.CPUs, p.MemMB, gpus, limit)
}

// state checks the folder of the ledger, which is always here.
func (f *Found) state(context.Context) error {
	f.StateDir = cmp.Or(f.StateDir, localState)
	name, network, err := staging.Filesystem(existing(f.StateDir))
	if err != nil {
		return err
	}
	if f.State = name; network {
		return missing("state-dir", f.StateDir+" is on "+name+", a network filesystem, which corrupts SQLite databases",
			"name a folder on a local disk: --state-dir DIR")
	}
	return nil
}

// disks chooses the folder that all nodes see.
func (f *Found) disks(context.Context) (err error) {
	if f.Mounts, err = networkMounts(); err != nil {
		return err
	}
	if f.Shared == "" {
		if len(f.Mounts) != 1 {
			return missing("shared", "which folder all nodes see under the same path cannot be found out (network filesystems mounted here: "+
				orNone(f.Mounts)+")",
				"name a folder on a filesystem that all nodes mount: --shared DIR")
		}
		f.Shared = f.Mounts[0]
	}
	if fi, err := os.Stat(f.Shared); err != nil || !fi.IsDir() {
		return missing("shared", f.Shared+" is no folder of this host", "name a folder on a filesystem that all nodes mount: --shared DIR")
	}
	f.Filesystem, _, err = staging.Filesystem(f.Shared)
	return err
}

// existing returns the nearest existing folder of a path.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == "/" {
			return path
		}
		path = filepath.Dir(path)
	}
}

// networkMounts lists the mount points of network filesystems that this user can read. (proc(5), /proc/pid/mountinfo)
func networkMounts() (list []string, err error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fault.Wrap(fault.Transport, "mounts", "the mounts of this host cannot be read", err)
	}
	defer file.Close()
	return networkMountsIn(file)
}

func networkMountsIn(mountinfo io.Reader) (list []string, err error) {
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		sep := slices.Index(fields, "-")
		if sep < 5 || sep+1 >= len(fields) || !strings.HasPrefix(fields[5]+",", "rw,") || strings.Contains(fields[4], `\`) {
			continue
		}
		// statfs of a dead server can hang, so the type decides.
		switch kind := fields[sep+1]; {
		case strings.HasPrefix(kind, "nfs"), slices.Contains(shared, strings.TrimPrefix(kind, "fuse.")):
			list = append(list, fields[4])
		}
	}
	return list, lines.Err()
}

// shared lists the types of filesystems that clusters share, as mountinfo names them. (NFS has several.)
var shared = []string{"lustre", "gpfs", "beegfs", "ceph", "glusterfs", "mfs", "moosefs", "orangefs", "pvfs2", "weka", "wekafs", "panfs",
	"gfs2", "ocfs2", "juicefs",
	"cephfs", "ceph-fuse", "s3ql"}

// runtime finds Apptainer on this host: the nodes may have it in the same place.
func (f *Found) runtime(ctx context.Context) error {
	path, err := exec.LookPath("apptainer")
	for _, try := range []string{"/usr/bin/apptainer", "/usr/local/bin/apptainer", "/opt/apptainer/bin/apptainer"} {
		if err != nil && isFile(try) {
			path, err = try, nil
		}
	}
	if err == nil {
		f.Apptainer = path
		f.Version, _ = f.ask(ctx, path, "--version")
		return nil
	}
	for _, init := range []string{"/etc/profile.d/lmod.sh", "/etc/profile.d/z00_lmod.sh", "/etc/profile.d/modules.sh"} {
		if !isFile(init) {
			continue
		}
		text, _ := f.ask(ctx, "/bin/bash", "-c", `. "$1" && module -t avail apptainer 2>&1`, "bash", init)
		found := apptainerModules(text)
		if len(found) > 0 {
			f.ModuleInit, f.Module = init, slices.Max(found)
			return nil
		}
	}
	return nil // nodes may have what this host lacks; the file notes that and doctor checks it
}

// apptainerModules returns the names of Apptainer's modules in the output of "module -t avail".
func apptainerModules(text string) (found []string) {
	for word := range strings.FieldsSeq(text) {
		name, _, _ := strings.Cut(word, "(")
		if name == "apptainer" || strings.HasPrefix(name, "apptainer/") && !strings.HasSuffix(name, "/") {
			found = append(found, name)
		}
	}
	return found
}

// ask runs a program of this host and returns its output, without surrounding spaces.
func (f *Found) ask(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, searchWithin)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.WaitDelay = time.Second
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && unix.Access(path, unix.R_OK) == nil
}

func orNone(list []string) string { return cmp.Or(strings.Join(list, ", "), "none") }

// missing returns the fault about an option that the admin must set.
func missing(option, msg, next string) error {
	return fault.Invalid("", fault.Problem{Code: "SETUP-" + strings.ToUpper(option), Field: "--" + option, Msg: msg, Hint: next})
}
