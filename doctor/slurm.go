package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

const slurmCommands, slurmController, clusterName = "slurm_commands", "slurm_controller", "cluster_name"

// slurmChecks returns the checks of Slurm's commands, and of Slurm's answers.
func slurmChecks() []Check {
	ask := []string{slurmCondition}
	return []Check{{
		Code: slurmCommands, Proves: "slurm.bin_dir has the commands of Slurm; slurm.conf can be read and is of slurm.cluster.", Where: Gateway,
		Cluster: true, Stops: true, Early: true, Over: slurmSide, Remedy: "set slurm.bin_dir to the folder with Slurm's commands",
		Only: byCommands, Needs: []string{sshShell},
		Look: func(ctx context.Context, x *Exam) []Result {
			if x.Login != nil {
				return farCommands(ctx, x)
			}
			c := x.Cluster.Slurm
			var results []Result
			for _, p := range slurm.CheckFiles(slurm.Config{BinDir: c.BinDir, Conf: c.Conf, Cluster: c.Cluster}, c.AlsoNeeds()...) {
				results = append(results, bad(p.Hint, "%s: %s", p.Field, p.Msg)...)
			}
			if len(results) > 0 {
				return results
			}
			return ok("%s", x.Cluster.Slurm.BinDir)
		},
	}, {
		Code: slurmController, Proves: "slurmctld answers.", Where: Slurmctld, Cluster: true,
		Needs:  []string{stateDir, slurmCommands, restVersion},
		Remedy: "start slurmctld on its host: sudo systemctl start slurmctld; then look at its log", Look: controller,
	}, {
		Code: clusterName, Proves: "The cluster that answers is the one of slurm.cluster.", Where: Slurmctld, Cluster: true,
		Needs:  []string{slurmController},
		Remedy: "correct slurm.bin_dir, slurm.conf, slurm.rest.url or slurm.cluster in the site file",
		Look: func(_ context.Context, x *Exam) []Result {
			if x.stranger != nil {
				return failed("", x.stranger)
			}
			if want := x.Cluster.Slurm.Cluster; want != "" && !slurm.SameCluster(x.config().Name(), want) {
				return bad("", "the cluster that answers is %s, but slurm.cluster is %s; nothing is sent to it", x.config().Name(), want)
			}
			return ok("%s", x.config().Name())
		},
	}, {
		Code: slurmCondition, Proves: "slurmctld lists its configuration and its partitions.", Where: Slurmctld, Cluster: true,
		Needs: []string{clusterName}, Remedy: "run the command named by hand to see the error", Look: condition,
	}, {
		Code: "slurm_version", Proves: "This Slurm has what the gateway needs.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "upgrade to Slurm 20.11 or newer",
		Look: func(_ context.Context, x *Exam) []Result {
			if !x.Probe.ExportNIL {
				return bad("", "%s has no sbatch --export=NIL", x.Probe.Version)
			}
			return ok("%s; 22.05, 24.11 and 26.05 were tried", x.Probe.Version)
		},
	}, {
		Code: "min_job_age", Proves: "Ended jobs stay in squeue for three watch cycles.", Where: Slurmctld, Cluster: true, Needs: ask,
		Only: byCommands, Remedy: "raise MinJobAge in slurm.conf, or lower watch.ceiling_seconds",
		Look: func(_ context.Context, x *Exam) []Result {
			age := x.config().Seconds("MinJobAge")
			if cycle := 3 * time.Duration(x.Cluster.Watch.CeilingSeconds) * time.Second; age < cycle {
				return warning("", "MinJobAge is %s: ended jobs leave squeue before three watch cycles (%s) have passed; the gateway then "+
					"relies on exit files and accounting", age, cycle)
			}
			return ok("%s", age)
		},
	}, {
		Code: "message_timeout", Proves: "slurmctld says how long it lets a request wait.", Where: Slurmctld, Cluster: true, Needs: ask,
		Only: byCommands, Remedy: "set MessageTimeout in slurm.conf",
		Look: func(_ context.Context, x *Exam) []Result {
			timeout := x.config().Seconds("MessageTimeout")
			if timeout <= 0 {
				return bad("", "scontrol show config does not show MessageTimeout")
			}
			return ok("%s: a job that Slurm no longer knows is given up after %s", timeout, max(x.AbsenceGap, 2*timeout))
		},
	}, {
		Code: "kill_wait", Proves: "A killed job has the time to leave its exit file.", Where: Slurmctld, Cluster: true, Needs: ask,
		Only: byCommands, Remedy: "lower slurm.grace_seconds, so that a killed job still leaves its exit file",
		Look: func(_ context.Context, x *Exam) []Result {
			wait := x.config().Seconds("KillWait")
			if time.Duration(x.Cluster.Slurm.GraceSeconds)*time.Second >= wait {
				return warning("", "KillWait (%s) is not longer than slurm.grace_seconds (%d)", wait, x.Cluster.Slurm.GraceSeconds)
			}
			return ok("%s", wait)
		},
	}, {
		Code: "slurm_conf", Proves: "slurmctld shows the values of slurm.conf that the gateway depends on.", Where: Slurmctld, Cluster: true,
		Only: overREST, Needs: ask,
		Remedy: "compare on a host with Slurm's commands (scontrol show config): MinJobAge of three times watch.ceiling_seconds, KillWait " +
			"above slurm.grace_seconds, MaxJobCount above the open runs; try a job of each tool: sbatch --test-only",
		Look: func(context.Context, *Exam) []Result {
			return warning("", "slurmrestd does not show slurm.conf (MinJobAge, MessageTimeout, KillWait, MaxJobCount, MaxArraySize), nor whether "+
				"Slurm would accept a job of each tool; the gateway counts with Slurm's default MessageTimeout, %s", run.DefaultMessageTimeout)
		},
	}, {
		Code: "clock_slurmctld", Proves: "slurmctld's clock is that of this host.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "let chrony or ntpd keep the time on this host and on slurmctld's",
		Look: func(_ context.Context, x *Exam) []Result {
			a := x.Snapshot.Config
			if a.Value.Clock.IsZero() {
				return unknown("compare the output of date on both hosts", "scontrol show config does not show slurmctld's time")
			}
			return skew("slurmctld", a.Value.Clock, a.At.Truncate(time.Second), a.Answered) // Slurm's answer has seconds
		},
	}, {
		Code: "max_job_count", Proves: "Slurm takes a thousand jobs and more.", Where: Slurmctld, Cluster: true, Needs: ask,
		Only: byCommands, Remedy: "raise MaxJobCount in slurm.conf",
		Look: func(_ context.Context, x *Exam) []Result {
			n, err := strconv.Atoi(x.config().Values["MaxJobCount"])
			switch {
			case err != nil:
				return unknown("run: scontrol show config", "scontrol show config does not show MaxJobCount")
			case n < enoughJobs:
				return warning("", "MaxJobCount is %d, for all users together; further runs wait in the gateway", n)
			}
			return ok("%d", n)
		},
	}, {
		Code: "max_array_size", Proves: "A job array can have a task for each node, as doctor's look at all nodes needs it.", Where: Slurmctld,
		Cluster: true, Needs: ask, Only: byCommands, Remedy: "raise MaxArraySize in slurm.conf above the number of nodes",
		Look: func(_ context.Context, x *Exam) []Result {
			n, err := strconv.Atoi(x.config().Values["MaxArraySize"])
			most := 0
			for _, p := range x.Snapshot.Partitions.Value {
				most = max(most, p.Nodes)
			}
			switch {
			case err != nil:
				return unknown("run: scontrol show config", "scontrol show config does not show MaxArraySize")
			case n <= most:
				return warning("", "MaxArraySize is %d, but a partition has %s: they cannot be looked at by one array", n, plural(most, "node"))
			}
			return ok("%d", n)
		},
	}, {
		Code: "accounting", Proves: "sacct answers, unless slurm.accounting does without.", Where: Slurmctld, Cluster: true, Needs: ask,
		Remedy: "start slurmdbd, or set slurm.accounting to auto", Look: accounting,
	}, {
		Code: "image_arch", Proves: "Each image that a tool names is for the architecture of the cluster's nodes.", Where: Slurmctld,
		Cluster: true, Needs: []string{domainCode, slurmCondition},
		Remedy: "build the image on a machine of the nodes' architecture and add it again", Look: imageArchs,
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

// config returns slurmctld's configuration as it was read.
func (x *Exam) config() run.ClusterConfig { return x.Snapshot.Config.Value }

func controller(ctx context.Context, x *Exam) []Result {
	cli, err := x.OpenSlurm()
	if err == nil {
		x.Probe, err = cli.Probe(ctx)
	}
	if fault.CodeOf(err) == run.WrongCluster {
		x.stranger = err
		return ok("a slurmctld answers")
	}
	if err != nil {
		return failed("", err)
	}
	x.Slurm, x.Snapshot = cli, run.Snapshot{Config: x.Probe.Config}
	limit := ""
	if parameters := x.config().Values["SlurmctldParameters"]; strings.Contains(parameters, "rl_enable") {
		limit = fmt.Sprintf("; slurmctld limits RPCs itself (%s), the gateway's budget is %d a minute", parameters,
			x.Cluster.Budget.RPCPerMinute)
	}
	if err := slurm.CheckShared(x.Cluster.Budget.Shared.File); err != nil {
		return failed("", err)
	}
	return ok("%s%s", firstLine(x.Probe.ControllerText), limit)
}

// imageArchs compares the images that tools name with the nodes, which may be other machines than the gateway's host.
func imageArchs(ctx context.Context, x *Exam) (results []Result) {
	nodes, err := x.Slurm.Archs(ctx)
	switch {
	case err != nil:
		return failed("", err)
	case len(nodes) == 0:
		return unknown("look at the check of containers on the nodes", "no node has registered with Slurm, so their architecture is unknown")
	}
	machines := strings.Join(nodes, ", ")
	for _, p := range x.Domain.Packs().List() {
		image, locked := x.Domain.Lock().Lookup(p.Image())
		if locked && !slices.Contains(nodes, image.Arch) {
			results = append(results, bad("", "the image %s is for %s, but the nodes are %s", image.Name, image.Arch, machines)...)
		}
	}
	if len(results) == 0 {
		return ok("%s", machines)
	}
	return results
}

func accounting(ctx context.Context, x *Exam) []Result {
	if x.Cluster.Slurm.Accounting == "none" {
		return ok("not used (slurm.accounting: none)")
	}
	_, err := x.Slurm.Records(ctx, time.Now().Add(-time.Hour))
	switch {
	case err == nil:
		return ok("%s", x.config().Values["AccountingStorageType"])
	case x.Cluster.Slurm.Accounting == "required":
		return failed("", err)
	}
	return warning("", "sacct does not answer: %v; the gateway relies on exit files", err)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
