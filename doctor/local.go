package doctor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"
)

// local checks that docker plans can run here, if policy allows them.
func local(ctx context.Context, x *Exam) []Result {
	p, s := x.Policy.Local, x.Site.LocalSite()
	if !p.Allowed {
		return ok("policy allows no runs on this host")
	}
	var missing []error
	for _, program := range []string{"/usr/bin/nice", "/usr/bin/prlimit", "/bin/bash"} {
		if _, err := os.Stat(program); err != nil {
			missing = append(missing, err)
		}
	}
	if err := errors.Join(missing...); err != nil {
		return failed("", err)
	}
	limits := ok("%d at a time, %d CPUs, %d MiB, %d s", p.MaxRunning, p.MaxCPUs, p.MaxMemMB, p.MaxTimeLimitSeconds)
	if s.Apptainer.Module != nil {
		return limits
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	out, err := exec.CommandContext(ctx, s.Apptainer.Path, "--version").CombinedOutput()
	if err != nil {
		return failed("", err)
	}
	return append(limits, ok("%s: %s", s.Apptainer.Path, strings.TrimSpace(string(out)))...)
}
