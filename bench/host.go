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
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	user      = "lab" // the user of the gateway and its jobs in the cluster
	sharedDir = "/shared/bench"
	waitRoom  = "big" // the partition all jobs wait in
)

// options are the command line.
type options struct {
	sizes sizes
	name  string
}

// host is the cluster, seen from outside.
type host struct {
	options
	repo, script string
	share, log   string // the folder the cluster sees as /shared, and slurmctld's log
}

// up recreates the cluster and puts this program and the image into it. The partition is down: jobs are accepted, all stay pending for the
// same reason, and the scheduler has nothing to do.
func (o options) up(ctx context.Context, conf ...string) (*host, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return nil, errors.New("the folder of this source is unknown")
	}
	h := &host{options: o, repo: filepath.Dir(filepath.Dir(file))}
	h.script = filepath.Join(h.repo, "scripts/devcluster")
	args := []string{"up", "--rest"}
	for _, c := range append(conf, "MaxJobCount=30000", "MinJobAge=5", "PartitionName="+waitRoom+" Nodes=big1 MaxTime=UNLIMITED State=DOWN") {
		args = append(args, "--conf", c)
	}
	for _, a := range [][]string{{"down"}, args} {
		if _, err := h.output(ctx, append([]string{h.script, "--name", h.name}, a...)...); err != nil {
			return nil, err
		}
	}
	out, err := h.output(ctx, h.script, "--name", h.name, "status", "--json")
	if err != nil {
		return nil, err
	}
	var status struct{ Share string }
	if err := json.Unmarshal(out, &status); err != nil {
		return nil, err
	}
	h.share = status.Share
	h.log = filepath.Join(filepath.Dir(h.share), "upper/var/log/slurm/slurmctld.log")
	return h, h.furnish(ctx)
}

func (h *host) furnish(ctx context.Context) error {
	if _, err := h.asRoot(ctx, "rm", "-rf", sharedDir); err != nil {
		return err
	}
	if _, err := h.asRoot(ctx, "install", "-d", "-o", user, "-g", user, sharedDir); err != nil {
		return err
	}
	// sacctmgr shows slurmdbd's counters only to an administrator.
	if _, err := h.asRoot(ctx, "sacctmgr", "-i", "modify", "user", user, "set", "adminlevel=Admin"); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "slurmgate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	root, inside := filepath.Join(work, "root"), filepath.Join(h.share, "bench")
	if err := errors.Join(os.Mkdir(root, 0o755), os.WriteFile(filepath.Join(root, "readme"), []byte("Nothing in here is ever started.\n"),
		0o644)); err != nil {
		return err
	}
	for _, step := range [][]string{
		{"env", "CGO_CFLAGS=-O2 -g -DHAVE_FDATASYNC=1", "go", "build", "-trimpath", "-o", inside + "/bench", "./bench"}, // as the Makefile builds
		{"mksquashfs", root, work + "/root.squashfs", "-noappend", "-no-progress", "-quiet", "-all-root"},
		{"go", "run", "./scripts/images/mksif", "-o", inside + "/image.sif", work + "/root.squashfs"},
	} {
		if _, err := h.output(ctx, step...); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until files removed by an earlier measurement no longer slow down the creation of files: ext4 without a journal skips every
// inode that was removed in the last minute (recently_deleted in its ialloc.c), and as long again until that is on disk.
func (h *host) settle(ctx context.Context) error {
	const long = 100 * time.Second
	h.say("waiting %v: recently removed files slow down the creation of new ones", long)
	select {
	case <-time.After(long):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// output runs a command on this machine.
func (h *host) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = h.repo
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

func (h *host) asRoot(ctx context.Context, args ...string) ([]byte, error) {
	return h.output(ctx, append([]string{h.script, "--name", h.name, "exec", "--cwd", "/", "--"}, args...)...)
}

func (h *host) asUser(ctx context.Context, args ...string) ([]byte, error) {
	return h.output(ctx, append([]string{h.script, "--name", h.name, "exec", "--user", user, "--cwd", sharedDir, "--"}, args...)...)
}

// inside runs the cluster's part of a measurement; its figures become this program's.
func (h *host) inside(ctx context.Context, what string) error {
	q, err := json.Marshal(h.sizes)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, h.script, "--name", h.name, "exec", "--user", user, "--cwd", sharedDir, "--", sharedDir+"/bench",
		"inside", what, string(q))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // passed on to the program inside
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == 1 {
		return errMissed
	}
	return err
}

func (h *host) say(format string, v ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", v...)
}

// down removes the cluster, also after an interrupted measurement.
func (h *host) down() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if _, err := h.output(ctx, h.script, "--name", h.name, "down"); err != nil {
		h.say("%v", err)
	}
	os.RemoveAll(filepath.Join(h.share, "bench"))
}

// rpc counts RPCs: first without slurmctld's own rate limit, so that 10,000 runs are submitted quickly, then with it.
func (o options) rpc(ctx context.Context) error {
	h, err := o.up(ctx)
	if err != nil {
		return err
	}
	defer h.down()
	counted := h.inside(ctx, "rpc")
	if counted != nil && !errors.Is(counted, errMissed) {
		return counted
	}
	limited := o.limited(ctx)
	if limited != nil && !errors.Is(limited, errMissed) {
		return limited
	}
	return errors.Join(counted, limited)
}

// limited sends runs under slurmctld's default rate limit and counts its refusals.
func (o options) limited(ctx context.Context) error {
	h, err := o.up(ctx, "SlurmctldParameters=rl_enable")
	if err != nil {
		return err
	}
	sent := h.inside(ctx, "limited")
	if sent != nil && !errors.Is(sent, errMissed) {
		return sent
	}
	f := &figures{w: os.Stdout}
	refused, err := h.refusals()
	if err != nil {
		return err
	}
	f.print("refused_rpcs", float64(refused), "rpc", "=0", fmt.Sprint("runs=", o.sizes.Limited))
	// The check that a refusal would have been seen.
	if _, err := h.asUser(ctx, "bash", "-c", "for i in {1..60}; do squeue -h >/dev/null 2>&1 & done; wait"); err != nil {
		return err
	}
	provoked, err := h.refusals()
	if err != nil {
		return err
	}
	f.print("refused_rpcs_provoked", float64(provoked-refused), "rpc", ">=1", "squeues=60")
	return errors.Join(sent, f.err())
}

// refusals counts the refusals in slurmctld's log.
func (h *host) refusals() (int, error) {
	_, all, err := h.refusalsUntil("")
	return all, err
}

// refusalsUntil counts them up to a time as the log has it, and all of them.
func (h *host) refusalsUntil(stamp string) (first, all int, err error) {
	data, err := os.ReadFile(h.log)
	for line := range strings.Lines(strings.ToLower(string(data))) {
		if !strings.Contains(line, "rate limit exceeded") {
			continue
		}
		if all++; strings.TrimPrefix(line, "[") < strings.ToLower(stamp) {
			first++
		}
	}
	return first, all, err
}

// submit measures times and memory; and then, on a cluster without those jobs, submits over slurmrestd.
func (o options) submit(ctx context.Context) error {
	times, over := o.times(ctx, "submit"), error(nil)
	if times == nil || errors.Is(times, errMissed) {
		over = o.times(ctx, "slurmrestd")
	}
	if times = errors.Join(times, over); times == nil || errors.Is(times, errMissed) {
		times = errors.Join(times, o.together(ctx))
	}
	return times
}

// together measures runs that leave as job arrays: without and with slurmctld's own rate limit.
func (o options) together(ctx context.Context) error {
	free := o.times(ctx, "arrays")
	if free != nil && !errors.Is(free, errMissed) {
		return free
	}
	h, err := o.up(ctx, "SlurmctldParameters=rl_enable")
	if err != nil {
		return err
	}
	defer h.down()
	sent := h.inside(ctx, "limitedarrays")
	if sent != nil && !errors.Is(sent, errMissed) {
		return sent
	}
	stamp, err := os.ReadFile(filepath.Join(h.share, "bench/limitedarrays", sentStamp))
	if err != nil {
		return err
	}
	ours, all, err := h.refusalsUntil(string(stamp))
	if err != nil {
		return err
	}
	f := &figures{w: os.Stdout}
	runs := fmt.Sprint("runs=", o.sizes.Limited)
	f.print("limited_arrays_refused_rpcs", float64(ours), "rpc", "=0", runs)
	f.print("limited_loop_refused_rpcs", float64(all-ours), "rpc", ">=1", runs) // a refusal would have been seen
	return errors.Join(free, sent, f.err())
}

// times runs one measurement of times on a fresh cluster.
func (o options) times(ctx context.Context, what string) error {
	h, err := o.up(ctx)
	if err != nil {
		return err
	}
	defer h.down()
	if err := h.settle(ctx); err != nil {
		return err
	}
	return h.inside(ctx, what)
}
