package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const user = "lab" // whom the gateway and its jobs run as in the cluster

// cluster is one devcluster, seen from outside.
type cluster struct {
	script string // scripts/devcluster
	name   string
	init   int    // its first process, by this machine's number
	share  string // the folder the cluster sees as /shared
	uid    int    // of user
}

// alive reports whether the cluster that was started is still there.
func (c *cluster) alive() bool {
	_, err := os.Stat(c.path("/run/devcluster/ready"))
	return err == nil
}

// lock keeps other campaigns away from the cluster until this process ends.
func lock(name string) error {
	file := filepath.Join(os.TempDir(), "slurmgate-chaos-"+name+".lock")
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another campaign has the cluster %q; wait for it, or give this one a cluster of its own with -name", name)
	}
	return nil
}

// upCluster starts the cluster with the settings the campaign needs: a short MessageTimeout, so that a stopped
// controller costs seconds; a short MinJobAge, so that ended jobs vanish from squeue between two reads; and credentials
// that expire soon, because that is how long Slurm waits before it starts a job again whose launch failed.
func upCluster(ctx context.Context, script, name string, far, rest bool, conf []string, most int) (*cluster, error) {
	c := &cluster{script: script, name: name}
	up := exec.CommandContext(ctx, script, "--name", name, "up", "--conf", "MessageTimeout=2", "--conf", "MinJobAge=5", "--conf",
		"AuthInfo=cred_expire=5")
	for _, c := range conf {
		up.Args = append(up.Args, "--conf", c)
	}
	if far {
		up.Args = append(up.Args, "--ssh")
	}
	if rest {
		up.Args = append(up.Args, "--rest")
	}
	up.Stderr = os.Stderr
	if err := up.Run(); err != nil {
		return nil, fmt.Errorf("the cluster did not come up: %w", err)
	}
	out, err := exec.CommandContext(ctx, script, "--name", name, "status", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("the cluster has no status: %w", err)
	}
	var status struct {
		PID   int
		Share string
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return nil, err
	}
	c.init, c.share = status.PID, status.Share
	id, err := c.output(ctx, "root", nil, "id", "-u", user)
	if err != nil {
		return nil, err
	}
	if c.uid, err = strconv.Atoi(strings.TrimSpace(id)); err == nil && most > 0 {
		_, err = c.output(ctx, "root", nil, "sacctmgr", "-i", "modify", "user", user, "set", fmt.Sprint("MaxSubmitJobs=", most))
	}
	return c, err
}

// path returns this machine's path of a path of the login node.
func (c *cluster) path(inside string) string {
	if rel, ok := strings.CutPrefix(inside, "/shared/"); ok {
		return filepath.Join(c.share, rel)
	}
	return fmt.Sprintf("/proc/%d/root%s", c.init, inside)
}

// command prepares a command on the login node. Its signals and exit status are those of the command inside.
func (c *cluster) command(ctx context.Context, as string, env []string, args ...string) *exec.Cmd {
	line := []string{"--name", c.name, "exec", "--user", as, "--cwd", "/"}
	for _, e := range env {
		line = append(line, "--env", e)
	}
	cmd := exec.CommandContext(ctx, c.script, append(append(line, "--"), args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// result holds the output and exit status of a command on the login node.
type result struct {
	stdout, stderr string
	exit           int // -1 when a signal ended it
}

func (c *cluster) run(ctx context.Context, as string, env []string, args ...string) (result, error) {
	return outcome(c.command(ctx, as, env, args...))
}

// outcome runs a command to its end.
func outcome(cmd *exec.Cmd) (result, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	r := result{out.String(), errs.String(), 0}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		r.exit = ended.ExitCode()
		err = nil
	}
	return r, err
}

func (c *cluster) output(ctx context.Context, as string, env []string, args ...string) (string, error) {
	r, err := c.run(ctx, as, env, args...)
	if err == nil && r.exit != 0 {
		err = fmt.Errorf("%s: exit status %d: %s", strings.Join(args, " "), r.exit, strings.TrimSpace(r.stderr))
	}
	return r.stdout, err
}

// devd handles one daemon of the cluster. It is asked twice: a daemon may go by itself just then.
func (c *cluster) devd(ctx context.Context, args ...string) error {
	_, err := c.output(ctx, "root", nil, append([]string{"devd"}, args...)...)
	if err != nil {
		_, err = c.output(ctx, "root", nil, append([]string{"devd"}, args...)...)
	}
	return err
}

// step carries out one step of an outage. The step that ends the loss of packets returns how many were lost, by port of
// this machine.
func (c *cluster) step(ctx context.Context, args []string) (map[int]int, error) {
	if args[0] == "lose" {
		out, err := c.output(ctx, "root", nil, "bash", "-c", lose, "lose", args[1])
		return dropped(out), err
	}
	if args[0] == "script" {
		_, err := c.output(ctx, "root", nil, "bash", "-c", args[1])
		return nil, err
	}
	return nil, c.devd(ctx, args...)
}

// healthy waits until slurmctld and slurmdbd answer and both nodes take jobs. It does what an admin would: a node that Slurm
// drained, because an id was used again while a forgotten job still ran there, is taken back.
func (c *cluster) healthy(ctx context.Context) error {
	return c.until(ctx, 90*time.Second, `scontrol ping | grep -q "is UP" && sacctmgr -nP list cluster >/dev/null || exit 1
		sinfo -h -N -n n1,n2 -o "%N %T" | grep -E " (drain|down)" && scontrol update nodename=n1,n2 state=resume
		[[ $(sinfo -h -p main -o "%T %D" | awk '$1 ~ /^(idle|mixed|allocated|completing)$/ {n += $2} END {print n+0}') == 2 ]]`)
}

// quiet waits until no job is left, known to Slurm or forgotten by it, that could still execute something. It cancels what never
// starts: jobs of partition big, and those that Slurm holds after a failed Prolog, as it does with jobs that may be requeued.
func (c *cluster) quiet(ctx context.Context) error {
	return c.until(ctx, 2*time.Minute, `squeue -h -t PENDING -p big -o %i | xargs -r scancel
		squeue -h -t PENDING -o "%i %r" | awk '/launch failed requeued held/ {print $1}' | xargs -r scancel
		left=$(squeue -h 2>&1); printf '%s\n' "$left"; [[ -z $left ]] && ! pgrep -a slurmstepd`)
}

// until repeats a script on the login node until it succeeds.
func (c *cluster) until(ctx context.Context, limit time.Duration, script string) error {
	var last result
	began, next := time.Now(), 10*time.Second
	for end := began.Add(limit); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		probing, stop := context.WithTimeout(ctx, 20*time.Second)
		r, err := c.run(probing, "root", nil, "bash", "-c", script)
		stop()
		if err == nil && r.exit == 0 {
			return nil
		}
		last = r
		if waited := time.Since(began); waited > next {
			fmt.Printf("        waiting for the cluster: %s\n", strings.TrimSpace(r.stdout+r.stderr))
			next += 15 * time.Second
		}
	}
	return fmt.Errorf("the cluster does not recover: %s%s", last.stdout, last.stderr)
}

// child returns the only child of a process of this machine, or 0 if it has none.
func child(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return n
}

// processes finds the processes whose command line has all the words, each in some argument, and whose program has the base
// name.
func processes(program string, words ...string) []int {
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	var found []int
next:
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		line := string(data)
		arg0, rest, _ := strings.Cut(line, "\x00")
		if filepath.Base(arg0) == "bash" { // a script: its name is the next argument
			arg0, _, _ = strings.Cut(rest, "\x00")
		}
		if filepath.Base(arg0) != program {
			continue
		}
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
