package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"slurmgate/policy"
	"slurmgate/site"
)

// local checks that docker plans can run here, if policy allows them.
func (d *checks) local(ctx context.Context, s *site.Site, p *policy.Policy) {
	if p == nil || !p.Local.Allowed {
		return
	}
	var missing []error
	for _, program := range []string{"/usr/bin/nice", "/usr/bin/prlimit", "/bin/bash"} {
		if _, err := os.Stat(program); err != nil {
			missing = append(missing, err)
		}
	}
	const next = "docker plans run on this host: install what is missing, or remove local from policies.yaml"
	if !d.check("local runs", fmt.Sprintf("%d at a time, %d CPUs, %d MiB, %d s", p.Local.MaxRunning, p.Local.MaxCPUs, p.Local.MaxMemMB,
		p.Local.MaxTimeLimitSeconds), errors.Join(missing...), next) || s.Apptainer.Module != nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	out, err := exec.CommandContext(ctx, s.Apptainer.Path, "--version").CombinedOutput()
	d.check("Apptainer on this host", s.Apptainer.Path+": "+strings.TrimSpace(string(out)), err, next)
}
