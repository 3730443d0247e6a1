package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/slurm"
)

// reach names the part of a cluster that a check asks, on this host or over the network.
type reach string

const (
	slurmSide reach = "slurm" // Slurm
	fileSide  reach = "files" // the cluster's folders
)

// elsewhere reports whether a check asks another host of a cluster.
func (k Check) elsewhere(w Ways) bool {
	return k.Over == slurmSide && (w.Login != nil || w.REST != nil) || k.Over == fileSide && w.Data != nil
}

// The codes of the checks of the way to a cluster.
const sshShell, sftpShell, sftpServer = "ssh_shell", "sftp_shell", "sftp_server"

// farChecks returns the checks of the way to a cluster that is elsewhere.
func farChecks() []Check {
	list := wayChecks("ssh", "the login node", Login, slurmSide, loginNode)
	list = append(list, shellChecks("ssh", "the login node", Login, slurmSide, loginNode)...)
	list = append(list, Check{Code: "clock_login", Proves: "The login node's clock is that of this host.", Where: Login, Cluster: true,
		Only: loginNode, Over: slurmSide, Needs: []string{sshShell}, Remedy: "let chrony or ntpd keep the time on both hosts", Look: loginClock})
	list = append(list, wayChecks("sftp", "the data host", Data, fileSide, dataHost)...)
	list = append(list, shellChecks("sftp", "the data host", Data, fileSide, dataShell)...)
	list = append(list,
		Check{Code: sftpServer, Proves: "The SFTP server answers and offers the extensions that the gateway needs.", Where: Data, Cluster: true,
			Only: sftpFiles, Over: fileSide, Needs: []string{"ssh_login", "sftp_login"},
			Remedy: "use OpenSSH's sftp-server without -R, -P and -p (Subsystem in sshd_config), or storage.sftp.shell: true", Look: extensions})
	return append(append(list, oneUserChecks()...),
		Check{Code: "sftp_syncs_folders", Proves: "New names in storage.runs_dir are durable when the gateway counts on them.", Where: Data,
			Cluster: true, Only: sftpRuns, Over: fileSide, Needs: []string{sftpServer},
			Remedy: "set storage.sftp.shell to true; or, if the server's filesystem makes new names durable by itself, syncs_folders to true",
			Look:   syncsFolders})
}

// shellChecks returns the checks of the shell of one SSH server.
func shellChecks(prefix, whose string, where Where, over reach, only func(Ways) bool) []Check {
	shell := prefix + "_shell"
	remedy := "let .bashrc, .cshrc, config.fish or .zshenv print, ask and wait only where there is a terminal"
	if prefix == "sftp" {
		remedy = "give that user a shell there, or set storage.sftp.shell to false; its start-up files must print nothing without a terminal"
	}
	return []Check{{
		Code: shell, Proves: "The login shell on " + whose + " runs /bin/sh, and its start-up files print nothing.", Where: where, Cluster: true,
		Only: only, Over: over, Needs: []string{prefix + "_login"}, Remedy: remedy, Look: loginShell,
	}, {
		Code: prefix + "_tools", Proves: "There are the programs on " + whose + " that the gateway's scripts use.", Where: where, Cluster: true,
		Only: only, Over: over, Needs: []string{shell}, Remedy: "install bash, coreutils and util-linux there", Look: loginTools,
	}}
}

// sameFolderChecks need what the checks of the folders found.
func sameFolderChecks() []Check {
	return []Check{{Code: "runs_dir_same", Proves: "The shell and the SFTP server see the same storage.runs_dir.", Where: Data,
		Cluster: true, Only: func(w Ways) bool { return w.Shell != nil && asSelf(w) }, Over: fileSide, Alone: true,
		Needs:  []string{sshShell, sftpShell, "ssh_sessions", "sftp_sessions", runsDirWrite},
		Remedy: "correct storage.login.runs_dir or storage.sftp.runs_dir: they are names of one folder", Look: sameFolder}}
}

// wayChecks returns the checks of one SSH server: its files here, its answer, its key, and the login.
func wayChecks(prefix, whose string, where Where, over reach, only func(Ways) bool) []Check {
	look := func(code string, found string) func(context.Context, *Exam) []Result {
		return func(ctx context.Context, x *Exam) []Result { return x.way(ctx, prefix, code, found) }
	}
	section := "slurm.ssh"
	if prefix == "sftp" {
		section = "storage.sftp"
	}
	return append([]Check{{
		Code: prefix + "_files", Proves: "The service's user can read the files of " + section + ", and no other user can read the private key.",
		Where: Gateway, Cluster: true, Early: true, Only: only, Remedy: "chown the key to the service's user and chmod it 600",
		Look: func(_ context.Context, x *Exam) []Result {
			if _, err := x.host(prefix); err != nil {
				return failed("", err)
			}
			return ok("the files of %s", section)
		},
	}, {
		Code: prefix + "_connection", Proves: "An SSH server answers on " + whose + ".", Where: where, Cluster: true, Only: only, Over: over,
		Needs: []string{prefix + "_files"}, Remedy: "check host, port and jump hosts in " + section + ", and what firewalls are on the way",
		Look: look(remote.Unreachable, "an SSH server answers at %s"),
	}, {
		Code: prefix + "_host_key", Proves: "The host key of " + whose + " is in known_hosts.", Where: where, Cluster: true, Only: only,
		Over: over, Needs: []string{prefix + "_connection"},
		Remedy: "compare the host key with the one that the cluster's admins publish, then correct known_hosts",
		Look:   look(remote.BadHostKey, "the host key of %s is known"),
	}, {
		Code: prefix + "_login", Proves: "The gateway can log in to " + whose + ".", Where: where, Cluster: true, Only: only, Over: over,
		Needs: []string{prefix + "_host_key"}, Remedy: "put the public key into authorized_keys of the user there",
		Look: look(remote.BadLogin, "logged in as %s"),
	}}, sessionsCheck(prefix, whose, where, over, only))
}

// lookTime bounds each question to another host.
const lookTime = 40 * time.Second

// host returns the login node (ssh) or the data host (sftp) of the cluster.
func (x *Exam) host(which string) (*remote.Host, error) {
	if which == "ssh" {
		return x.Login()
	}
	return x.Data()
}

// way connects once, and returns the result of the check whose code the failure has. A failure of another check is ok
// here, or unknown because it needs this one.
func (x *Exam) way(ctx context.Context, which, code, found string) []Result {
	host, err := x.host(which)
	if err != nil {
		return failed("", err)
	}
	if _, tried := x.tried[which]; !tried {
		ctx, stop := context.WithTimeout(ctx, lookTime)
		_, err := host.Connection(ctx)
		stop()
		x.tried[which] = err
	}
	err = x.tried[which]
	is := fault.CodeOf(err)
	if loginCode(is) {
		is = remote.BadLogin
	}
	if err == nil || slices.Contains([]string{remote.BadHostKey, remote.BadLogin, remote.Unreachable}, is) && is != code {
		return ok(found, host.Name())
	}
	r := failed("", err)
	r[0].Status = app.CheckFault // its answer was long overdue
	return r
}

// script runs one on the login node, or without one on the host with the shell.
func (x *Exam) script(ctx context.Context, text string, args ...string) (remote.Output, error) {
	open := x.Shell
	if x.Login != nil {
		open = x.Login
	}
	host, err := open()
	if err != nil {
		return remote.Output{}, err
	}
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	return host.Run(ctx, remote.Call{Script: text, Args: args, Limit: 64 << 10})
}

func loginShell(ctx context.Context, x *Exam) []Result {
	began := time.Now()
	out, err := x.script(ctx, "echo ready; id -u; id -g; id -un")
	took := time.Since(began).Round(100 * time.Millisecond)
	f := strings.Fields(string(out.Stdout))
	switch {
	case err != nil:
		r := failed("", err)
		r[0].Status = app.CheckFault
		return r
	case len(f) != 4 || f[0] != "ready":
		return bad("", "a script that prints four words printed %q", fault.Clip(string(out.Stdout)))
	}
	x.there.Name = f[3]
	x.there.UID, err = strconv.Atoi(f[1])
	gid, failed := strconv.Atoi(f[2])
	x.there.GID = gid
	switch {
	case err != nil || failed != nil:
		return bad("", "id printed %q", fault.Clip(string(out.Stdout)))
	case out.Noise != "":
		return warning("", "the login shell's start-up files print text where there is no terminal: %q", fault.Clip(out.Noise))
	case took > 10*time.Second:
		return warning("", "the login shell took %s to start", took)
	}
	return ok("a script ran as %s after %s", x.there.Name, took)
}

// usedThere lists the commands that the scripts for Slurm and for files call.
var usedThere = []string{"bash", "base64", "setsid", "stat", "sync", "dd", "ln", "mkdir", "mv", "rm", "head", "env", "date"}

func loginTools(ctx context.Context, x *Exam) []Result {
	out, err := x.script(ctx, `for name; do command -v "$name" >/dev/null || echo "$name"; done
command -v openssl >/dev/null || command -v sha256sum >/dev/null || echo sha256sum`, usedThere...)
	if err != nil {
		return failed("", err)
	}
	if missing := strings.Fields(string(out.Stdout)); len(missing) > 0 {
		return bad("", "%s lacks %s", x.ScriptHost, strings.Join(missing, ", "))
	}
	return ok("it has bash and coreutils")
}

func loginClock(ctx context.Context, x *Exam) []Result {
	before := x.Now().Truncate(time.Second)
	out, err := x.script(ctx, "date +%s")
	if err != nil {
		return failed("", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out.Stdout)), 10, 64)
	if err != nil {
		return unknown("compare the output of date on both hosts", "date there printed %q", fault.Clip(string(out.Stdout)))
	}
	return skew(x.ScriptHost, time.Unix(n, 0), before, x.Now())
}

// extensions asks the server what it can do beyond the standard.
func extensions(ctx context.Context, x *Exam) (results []Result) {
	shell := x.Cluster.Storage.SFTP.HasShell()
	err := x.sftp(ctx, func(c *sftp.Client) error {
		for _, e := range []struct {
			name, without string
			alone         bool // a fault without a shell
		}{
			{"hardlink@openssh.com", "a claim cannot be taken with SFTP alone", true},
			{"posix-rename@openssh.com", "a file cannot replace another in one step", true},
			{"fsync@openssh.com", "what was transferred may be lost when the server crashes", true},
			{"statvfs@openssh.com", "the gateway does not see how much space is free, so storage.reserve_mb has no effect there", false},
		} {
			if _, offered := c.HasExtension(e.name); offered {
				continue
			}
			judge := warning
			if e.alone && !shell {
				judge = bad
			}
			results = append(results, judge("", "the server does not offer %s: %s", e.name, e.without)...)
		}
		return nil
	})
	if err != nil {
		return failed("", err)
	}
	if len(results) == 0 {
		return ok("%s offers hardlink, posix-rename, fsync and statvfs", x.Cluster.Storage.SFTP.Host)
	}
	return results
}

// sameFolder writes a file by SFTP and reads it through the shell.
func sameFolder(ctx context.Context, x *Exam) []Result {
	f, login := x.Cluster.Storage.SFTP, path.Join(x.Cluster.LoginFolders().RunsDir)
	var name, token string
	err := x.probeFile(ctx, func(c *sftp.Client, base, content string) error {
		name, token = base, content
		out, err := x.script(ctx, `ls -f -- "$1" >/dev/null; head -c 200 -- "$1/$2"`, login, name)
		switch {
		case err != nil:
			return err
		case strings.TrimSpace(string(out.Stdout)) != token:
			return fault.New(fault.Validation, "", fmt.Sprintf("a file that was written to %s on %s is not in %s on %s: %s",
				f.RunsDir, f.Host, login, x.ScriptHost, fault.Clip(strings.TrimSpace(out.Stderr))))
		}
		return nil
	})
	if err != nil {
		return failed("", err)
	}
	return ok("%s on %s is %s on %s", f.RunsDir, f.Host, login, x.ScriptHost)
}

func syncsFolders(ctx context.Context, x *Exam) []Result {
	f := x.Cluster.Storage.SFTP
	switch {
	case x.Shell != nil:
		host := x.ScriptHost
		out, err := x.script(ctx, `[ -d "$1" ] || exit 42; sync -- "$1" 2>&1`, x.Cluster.LoginFolders().RunsDir)
		if err != nil {
			return failed("", err)
		}
		if out.Exit == 42 {
			return unknown("make that folder", "there is no folder %s on %s to try it with", x.Cluster.LoginFolders().RunsDir, host)
		}
		said := strings.TrimSpace(string(out.Stdout))
		if out.Exit != 0 && !strings.HasSuffix(said, "Invalid argument") && !strings.HasSuffix(said, "Operation not supported") {
			return bad("use coreutils 8.24 or newer there", "%s cannot sync a folder: %s", host, fault.Clip(said))
		}
		return ok("the shell of %s syncs folders", host)
	case f.SyncsFolders:
		return ok("the site file says that %s makes new names durable by itself", f.Host)
	}
	return warning("", "with SFTP alone the gateway cannot sync folders: it cannot rule out that a job still starts, so a run in doubt "+
		"waits for an operator")
}

// sftp calls f with an SFTP channel to the cluster's data host.
func (x *Exam) sftp(ctx context.Context, f func(*sftp.Client) error) error {
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	return x.Files(ctx, f)
}

// probeFile writes a small file into the far runs_dir, calls f with its name and content, and removes it.
func (x *Exam) probeFile(ctx context.Context, f func(c *sftp.Client, name, content string) error) error {
	return x.sftp(ctx, func(c *sftp.Client) error {
		name, content := ".doctor-file-"+token(), token()
		full := path.Join(x.Cluster.Storage.SFTP.RunsDir, name)
		if err := writeFar(c, full, []byte(content)); err != nil {
			_ = c.Remove(full) // it may be there, with less than that in it
			return err
		}
		return errors.Join(f(c, name, content), c.Remove(full))
	})
}

// writeFar writes a new file.
func writeFar(c *sftp.Client, name string, data []byte) error {
	f, err := c.OpenFile(name, newFile)
	if err != nil {
		return fmt.Errorf("%s cannot be made: %w", name, err)
	}
	_, err = f.Write(data)
	if _, syncs := c.HasExtension("fsync@openssh.com"); syncs {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Chmod(0o600), f.Close())
}

// readFar reads at most limit bytes of a file.
func readFar(c *sftp.Client, name string, limit int64) ([]byte, error) {
	f, err := c.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// farCommands checks Slurm's commands on the login node.
func farCommands(ctx context.Context, x *Exam) (results []Result) {
	login, err := x.Login()
	if err != nil {
		return failed("", err)
	}
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	c := x.Cluster.Slurm
	found, _, err := slurm.CheckFar(ctx, login, slurm.Config{BinDir: c.BinDir, Conf: c.Conf, Cluster: c.Cluster}, c.AlsoNeeds()...)
	if err != nil {
		return failed("", err)
	}
	for _, p := range found {
		results = append(results, bad(p.Hint, "%s: %s", p.Field, p.Msg)...)
	}
	if len(results) == 0 {
		return ok("%s on %s", c.BinDir, x.ScriptHost)
	}
	return results
}
