package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/site"
)

const slurmCommands, slurmController = "slurm_commands", "slurm_controller"

// slurmChecks are the checks of Slurm's commands, and of what Slurm answers.
func slurmChecks() []Check {
	ask := []string{slurmController}
	return []Check{{
		Code: slurmCommands, Proves: "slurm.bin_dir has the commands of Slurm, and slurm.conf can be read.", Where: Gateway, Cluster: true,
		Early: true, Remedy: "set slurm.bin_dir to the folder with Slurm's commands",
		Look: func(_ context.Context, x *Exam) []Result {
			if err := slurmFiles(x.Cluster); err != nil {
				return failed("", err)
			}
			return ok("%s", x.Cluster.Slurm.BinDir)
		},
	}, {
		Code: slurmController, Proves: "slurmctld answers.", Where: Slurmctld, Cluster: true, Needs: []string{slurmCommands},
		Remedy: "start slurmctld on its host: sudo systemctl start slurmctld; then look at its log", Look: controller,
	}, {
		Code: "cluster_name", Proves: "The cluster that answers is the one of slurm.cluster.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "set slurm.cluster, or use the right site file",
		Look: func(_ context.Context, x *Exam) []Result {
			if want := x.Cluster.Slurm.Cluster; want != "" && x.Probe.ClusterName != want {
				return bad("", "this cluster is %s, but the site file is for %s", x.Probe.ClusterName, want)
			}
			return ok("%s", x.Probe.ClusterName)
		},
	}, {
		Code: "slurm_version", Proves: "This Slurm has what the gateway needs.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "upgrade to Slurm 20.11 or newer",
		Look: func(_ context.Context, x *Exam) []Result {
			if !x.Probe.ExportNIL {
				return bad("", "%s has no sbatch --export=NIL", x.Probe.Version)
			}
			return ok("%s", x.Probe.Version)
		},
	}, {
		Code: "min_job_age", Proves: "Ended jobs stay in squeue for three watch cycles.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "raise MinJobAge in slurm.conf, or lower watch.ceiling_seconds",
		Look: func(_ context.Context, x *Exam) []Result {
			if cycle := 3 * time.Duration(x.Cluster.Watch.CeilingSeconds) * time.Second; x.Probe.MinJobAge < cycle {
				return warning("", "MinJobAge is %s: ended jobs leave squeue before three watch cycles (%s) have passed; the gateway then "+
					"relies on exit files and accounting", x.Probe.MinJobAge, cycle)
			}
			return ok("%s", x.Probe.MinJobAge)
		},
	}, {
		Code: "message_timeout", Proves: "slurmctld says how long it lets a request wait.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "set MessageTimeout in slurm.conf",
		Look: func(_ context.Context, x *Exam) []Result {
			if x.Probe.MessageTimeout <= 0 {
				return bad("", "scontrol show config does not show MessageTimeout")
			}
			return ok("%s: a job that Slurm no longer knows is given up after %s", x.Probe.MessageTimeout,
				max(x.AbsenceGap, 2*x.Probe.MessageTimeout))
		},
	}, {
		Code: "kill_wait", Proves: "A killed job has the time to leave its exit file.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "lower slurm.grace_seconds, so that a killed job still leaves its exit file",
		Look: func(_ context.Context, x *Exam) []Result {
			if !x.Probe.GraceFitsInKillWait {
				return warning("", "KillWait (%s) is not longer than slurm.grace_seconds (%d)", x.Probe.KillWait, x.Cluster.Slurm.GraceSeconds)
			}
			return ok("%s", x.Probe.KillWait)
		},
	}, {
		Code: "accounting", Proves: "sacct answers, unless slurm.accounting does without.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "start slurmdbd, or set slurm.accounting to auto", Look: accounting,
	}, {
		Code: "squeue", Proves: "squeue answers completely.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "run squeue by hand to see the error",
		Look: func(ctx context.Context, x *Exam) []Result {
			if _, err := x.Slurm.Jobs(ctx, nil); err != nil {
				return failed("", err)
			}
			return ok("")
		},
	}}
}

func controller(ctx context.Context, x *Exam) []Result {
	cli, err := x.OpenSlurm(x.Cluster)
	if err == nil {
		x.Probe, err = cli.Probe(ctx)
	}
	if err != nil {
		return failed("", err)
	}
	x.Slurm = cli
	limit := ""
	if x.Probe.RateLimited {
		limit = fmt.Sprintf("; slurmctld limits RPCs itself (%s), the gateway's budget is %d a minute", x.Probe.SlurmctldParameters,
			x.Cluster.Budget.RPCPerMinute)
	}
	return ok("%s%s", firstLine(x.Probe.ControllerText), limit)
}

func accounting(ctx context.Context, x *Exam) []Result {
	if x.Cluster.Slurm.Accounting == "none" {
		return ok("not used (slurm.accounting: none)")
	}
	_, err := x.Slurm.Records(ctx, time.Now().Add(-time.Hour))
	switch {
	case err == nil:
		return ok("%s", x.Probe.AccountingStorage)
	case x.Cluster.Slurm.Accounting == "required":
		return failed("", err)
	}
	return warning("", "sacct does not answer: %v; the gateway relies on exit files", err)
}

// slurmFiles checks that the programs and files that the site file names exist on this machine.
func slurmFiles(s *site.Site) error {
	need := []string{"sbatch", "squeue", "scancel", "scontrol"}
	if s.Slurm.Accounting != "none" {
		need = append(need, "sacct")
	}
	missing := slices.DeleteFunc(need, func(name string) bool {
		st, err := os.Stat(filepath.Join(s.Slurm.BinDir, name))
		return err == nil && !st.IsDir() && st.Mode()&0o111 != 0
	})
	if len(missing) > 0 {
		return fault.New(fault.Validation, "doctor", "", s.Slurm.BinDir+" has no program "+strings.Join(missing, ", ")).
			WithNext("set slurm.bin_dir to the folder with Slurm's commands")
	}
	if s.Slurm.Conf == "" {
		return nil
	}
	f, err := os.Open(s.Slurm.Conf)
	if err != nil {
		return fault.Wrap(fault.Validation, "doctor", "", "slurm.conf cannot be read", err).
			WithNext("set slurm.conf to the file that Slurm's commands use here, or remove the setting")
	}
	return f.Close()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
