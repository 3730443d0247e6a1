package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// identity is the checked identity of the cluster that Slurm's commands talk to. Nothing is sent to the cluster or
// asked of it before it is known to be that of the site file, slurm.cluster.
//
// It is asked once (scontrol show config), and again when one of the files changes that decide which cluster the
// commands talk to, or when a command failed: the name of a controller's host may have moved to another cluster. So it
// costs no RPC in an ordinary cycle.
type identity struct {
	mu    sync.Mutex
	proof string // the state of the files when the cluster was last proved to be the right one; empty: not proved
	err   error  // the error of the last check, nil if it succeeded
	ended time.Time

	differs string // a proof of the service that does not match the user's host
}

// CheckCluster makes sure that Slurm's commands talk to the cluster of the site file. Otherwise it returns a Transport
// fault: with code [run.WrongCluster] if they talk to another one, with another code if none answers. A site file that
// names no cluster accepts any.
func (c *CLI) CheckCluster(ctx context.Context) error {
	_, err := c.prove(ctx)
	return err
}

// prove is CheckCluster and returns the proof, the state of the deciding files: over SSH, the far script compares it
// before it starts anything.
func (c *CLI) prove(ctx context.Context) (proof string, err error) {
	if c.cfg.Cluster == "" {
		return "", nil
	}
	if c.service != nil {
		if proof, ok, err := c.provenByService(ctx); ok {
			return proof, err
		}
	}
	came := time.Now()
	c.identity.mu.Lock()
	defer c.identity.mu.Unlock()
	if c.identity.err != nil && c.identity.ended.After(came) {
		return "", c.identity.err // another call has just tried
	}
	now := c.identity.proof
	if c.cfg.Over == nil || now == "" {
		now, err = c.deciding(ctx)
	}
	if err == nil && c.identity.proof == now {
		return now, nil
	}
	c.identity.proof = ""
	if err == nil {
		err = c.askIdentity(ctx)
	}
	if err == nil {
		c.identity.proof = now
	}
	if c.identity.err, c.identity.ended = err, time.Now(); ctx.Err() != nil {
		c.identity.err = nil // it was this call's context that ended, so other calls try again
	}
	return now, err
}

func (c *CLI) askIdentity(ctx context.Context) error {
	if err := c.budget.Spend(ctx, rpcConfig); err != nil {
		return err
	}
	a, err := run.Ask(ctx, c.showConfig)
	if err == nil {
		err = c.compare(a.Value.Name())
	}
	if err == nil {
		c.config.keep(a)
	}
	return err
}

// compare returns a Transport fault unless name is the cluster of the site file.
func (c *CLI) compare(name string) error {
	switch {
	case name == "":
		return fault.New(fault.Transport, "config_unreadable", "scontrol show config does not show ClusterName")
	case !SameCluster(name, c.cfg.Cluster):
		return fault.New(fault.Transport, run.WrongCluster, fmt.Sprintf(
			"Slurm's commands in %s talk to the cluster %s, but slurm.cluster is %s; nothing is sent to it", c.cfg.BinDir,
			fault.Clip(name), c.cfg.Cluster)).WithNext(fmt.Sprintf("correct slurm.bin_dir, slurm.conf (now %s) or slurm.cluster in the site file",
			cmp.Or(c.cfg.Conf, "Slurm's own default"))).WithSteps(fault.Do("doctor"))
	}
	return nil
}

// SameCluster compares names of clusters as Slurm does, without regard to case.
func SameCluster(a, b string) bool { return strings.EqualFold(a, b) }

// distrust discards the proof, so that the cluster is asked for its name before the next command.
func (c *CLI) distrust() {
	if c.cfg.Cluster == "" {
		return
	}
	c.identity.mu.Lock()
	defer c.identity.mu.Unlock()
	c.identity.proof = ""
}

// decidingFiles returns the files that decide which cluster Slurm's commands talk to.
func decidingFiles(c Config) []string {
	files := []string{filepath.Join(c.BinDir, "scontrol"), filepath.Join(c.BinDir, "sbatch")}
	if c.Conf != "" {
		return append(files, c.Conf)
	}
	return append(files, defaultConfs(c.BinDir)...)
}

// deciding returns the state of the files that decide the cluster.
func (c *CLI) deciding(ctx context.Context) (string, error) {
	if c.cfg.Over != nil {
		return c.decidingFar(ctx)
	}
	var all strings.Builder
	for _, path := range decidingFiles(c.cfg) {
		st, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&all, "%s: %v\n", path, errors.Unwrap(err))
			continue
		}
		var inode uint64
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			inode = sys.Ino
		}
		fmt.Fprintf(&all, "%s: %d %d %d\n", path, inode, st.Size(), st.ModTime().UnixNano())
	}
	return all.String(), nil
}

// defaultConfs returns the places of slurm.conf where the site file names none: those of packages, of an installation
// in a separate folder, and of a cluster that distributes it (configless).
func defaultConfs(binDir string) []string {
	return []string{"/etc/slurm/slurm.conf", filepath.Join(filepath.Dir(binDir), "etc/slurm.conf"), "/run/slurm/conf/slurm.conf"}
}
