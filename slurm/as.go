package slurm

import (
	"bytes"
	"context"
	"os/exec"
	"strings"

	"slurmgate/fault"
	"slurmgate/remote"
)

// As returns the transport of one user, over a login as that user: it sends, reads receipts and cancels, and makes no
// other query. Its RPCs come from the budget of the service c. It reuses what c knows of Slurm: which cluster the
// commands talk to (by the state of the files that decide it), the release of scancel, and MessageTimeout. If those
// files differ on the user's host, it asks there once. runsDir and loginRunsDir are the user's, as in [Config].
func (c *CLI) As(login *remote.Host, runsDir, loginRunsDir string) (*CLI, error) {
	cfg := c.cfg
	cfg.Over, cfg.User, cfg.AllUsers, cfg.LocksDir, cfg.RunsDir, cfg.LoginRunsDir = login, login.User(), false, "", runsDir, loginRunsDir
	user, err := newFar(cfg)
	if err != nil {
		return nil, err
	}
	user.budget, user.service = c.budget, c
	return user, nil
}

// farProof returns the state of the files that proved the service's cluster, as far.sh prints it on the service's host.
func (c *CLI) farProof(ctx context.Context) (string, error) {
	now, err := c.prove(ctx)
	if err != nil || now == "" || c.cfg.Over != nil {
		return now, err
	}
	c.farState.mu.Lock()
	defer c.farState.mu.Unlock()
	if c.farState.of == now {
		return c.farState.text, nil
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", farScript, "sh", farState, strings.Join(decidingFiles(c.cfg), "\n"))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C", "LC_ALL=C"} // the environment of remote.Call
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		return "", fault.Wrap(fault.Transport, "slurm_unreachable", "the files that decide which cluster is talked to cannot be examined", err)
	}
	c.farState.of, c.farState.text = now, string(bytes.TrimRight(out, "\n"))
	return c.farState.text, nil
}

// provenByService returns the service's proof. ok is false if the files on the user's host are known to differ from it.
func (c *CLI) provenByService(ctx context.Context) (proof string, ok bool, err error) {
	proof, err = c.service.farProof(ctx)
	c.identity.mu.Lock()
	defer c.identity.mu.Unlock()
	return proof, err != nil || proof != c.identity.differs, err
}

// moved records that the files on the login node differ from the proof.
func (c *CLI) moved(proof string) {
	c.identity.mu.Lock()
	c.identity.differs = proof
	c.identity.mu.Unlock()
	c.distrust()
}
