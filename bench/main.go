// Command bench measures, on a real cluster, how much load the gateway puts on Slurm and what it costs compared with Slurm's own commands.
//
//	go run ./bench rpc       RPCs of slurmctld and slurmdbd, counted by sdiag and sacctmgr
//	go run ./bench submit    times and memory, each against the bare command in the same run
//	go run ./bench race      only the first part of submit: durable submits against bare sbatch
//	go run ./bench slurmrestd  only the last part of submit: durable submits over slurmrestd against bare sbatch
//	go run ./bench arrays    only the part of submit about runs that leave as job arrays, against an array's floor and a loop of sbatch
//	go run ./bench fair      how long a caller's run takes behind 160 runs of another caller
//	go run ./bench faces     HTTP and MCP against a bare handler and the SDK's echo tool; 500 clients on a large ledger
//	go run ./bench staging   transfers over SFTP and copies against scp, sftp, cp and openssl
//	go run ./bench data      imports against cp and openssl, memory, and the bytes that large inputs take; on this host, without a cluster
//	-quick                   a tenth of everything, for work on this program; its figures prove nothing
//
// It needs root (for scripts/devcluster), mksquashfs, and a separate devcluster, which it starts. What it measures is the real
// engine with the real ledger, workspace and Slurm transport; the jobs are real and wait in a partition that is down. Standard
// output has one line for each figure,
//
//	name=rpcs_per_cycle runs=10000 value=2 unit=rpc target=<=2
//
// with the parameters of the figure between name and value; progress is on standard error. Exit status 1 when a figure
// misses its target, 2 when something could not be measured.
//
// The same binary is the part that runs in the cluster (bench inside …).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sizes sets how much is measured.
type sizes struct {
	Small, Middle, Large int // runs in Slurm
	Ledger               int // open runs in the ledger
	Replays              int
	Limited              int           // runs sent under slurmctld's own rate limit
	Rounds, Block        int           // of the submit race: blocks of Block runs, in turns
	Looks                int           // times a status is taken
	Cold                 int           // cold starts
	Crowd                time.Duration // how long 500 clients come and go
	Many, Alone          int           // runs of the one caller, and of the other
	LargeMB, HugeMB      int           // of files that are transferred
	DataMB               int           // of a file that is imported
	Files                int           // of a directory that is imported
	Lanes                []int         // connections that they go over
	Program              string        // slurmgate to measure, instead of this source's
	Profiles             string        // folder in the cluster for profiles of what is timed (which they slow down); none when empty
}

func (q *sizes) set(quick bool, limited, files int) {
	profiles, program := q.Profiles, q.Program
	*q = sizes{Small: 10, Middle: 1000, Large: 10_000, Ledger: 100_000, Replays: 10_000, Limited: 1000, Rounds: 8, Block: 250, Looks: 15,
		Cold: 5, Crowd: time.Minute, Many: 160, Alone: 3, LargeMB: 512, HugeMB: 10 << 10, DataMB: 5 << 10, Files: 100_000,
		Lanes: []int{1, 2, 4, 8}}
	if quick {
		*q = sizes{Small: 10, Middle: 100, Large: 1000, Ledger: 10_000, Replays: 1000, Limited: 60, Rounds: 2, Block: 100, Looks: 5, Cold: 2,
			Crowd: 10 * time.Second, Many: 40, Alone: 1, LargeMB: 64, HugeMB: 512, DataMB: 512, Files: 10_000, Lanes: []int{1, 8}}
	}
	q.Profiles, q.Program = profiles, program
	if limited > 0 {
		q.Limited = limited
	}
	if files > 0 {
		q.Files = files
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errMissed):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "inside" {
		return inside(ctx, args[1:])
	}
	var o options
	var quick bool
	var limited, files int
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&quick, "quick", false, "a tenth of everything")
	flags.IntVar(&limited, "limited", 0, "`runs` sent under slurmctld's rate limit, when not 1,000 (9 minutes)")
	flags.IntVar(&files, "files", 0, "`files` of a directory, when not 100,000 (data)")
	flags.StringVar(&o.sizes.Profiles, "profiles", "", "a `folder` of the cluster, e.g. /shared/profiles, for profiles of what is timed")
	flags.StringVar(&o.sizes.Program, "program", "", "`slurmgate` to measure instead of this source's (fair)")
	flags.StringVar(&o.name, "name", "bench", "the devcluster's `name`")
	if len(args) == 0 {
		return errors.New("name a measurement: rpc, submit, race, slurmrestd, arrays, fair, faces, staging or data")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	o.sizes.set(quick, limited, files)
	switch args[0] {
	case "rpc":
		return o.rpc(ctx)
	case "submit":
		return o.submit(ctx)
	case "race", "slurmrestd":
		return o.times(ctx, args[0])
	case "arrays":
		return o.together(ctx)
	case "faces":
		return o.faces(ctx)
	case "fair":
		return o.fair(ctx)
	case "staging":
		return o.staging(ctx)
	case "data":
		return o.data(ctx)
	}
	return fmt.Errorf("there is no measurement %q; name one of rpc, submit, race, slurmrestd, arrays, fair, faces, staging, data", args[0])
}
