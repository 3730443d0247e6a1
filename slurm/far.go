package slurm

import (
	"context"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/remote"
)

// lookFar prints a line for each fault of the commands in $1 and of the file $2, and "sacct" if that command exists.
const lookFar = `[ -d "$1" ] || { echo folder; exit 0; }
for name in sbatch squeue scancel scontrol $3; do
  if [ ! -e "$1/$name" ]; then echo "missing $name"; elif [ ! -f "$1/$name" ] || [ ! -x "$1/$name" ]; then echo "unfit $name"; fi
done
[ -z "$2" ] || [ -r "$2" ] || echo conf
[ ! -x "$1/sacct" ] || echo sacct`

// CheckFar is [CheckFiles] for the login node, and reports whether the node has sacct. An error means that the login
// node did not answer.
func CheckFar(ctx context.Context, login *remote.Host, c Config, also ...string) (found []fault.Problem, sacct bool, err error) {
	out, err := login.Run(ctx, remote.Call{Script: lookFar, Args: []string{c.BinDir, c.Conf, strings.Join(also, " ")}, Limit: 4 << 10})
	if err != nil {
		return nil, false, err
	}
	lists := map[string][]string{}
	for line := range strings.Lines(string(out.Stdout)) {
		what, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		lists[what] = append(lists[what], name)
	}
	problem := func(msg, hint string) {
		found = append(found, fault.Problem{Code: "SITE-BIN-DIR", Field: "slurm.bin_dir",
			Rule: "the folder of Slurm's commands on the login node", Msg: "on " + login.Name() + " " + msg, Hint: hint})
	}
	if lists["folder"] != nil {
		problem(c.BinDir+" is not a folder", "set it to the folder of sbatch there (command -v sbatch)")
	}
	if names := lists["missing"]; names != nil {
		problem(c.BinDir+" has no "+strings.Join(names, ", "), "set it to the folder of sbatch there (command -v sbatch)")
	}
	if names := lists["unfit"]; names != nil {
		problem(fmt.Sprintf("in %s these cannot be executed: %s", c.BinDir, strings.Join(names, ", ")),
			"make them executable for "+login.User())
	}
	if lists["conf"] != nil {
		found = append(found, fault.Problem{Code: "SITE-CONF", Field: "slurm.conf", Rule: "a slurm.conf that the login node's user can read",
			Msg:  fmt.Sprintf("%s cannot read %s", login.Name(), c.Conf),
			Hint: "name the file that Slurm's commands use there, or remove the setting"})
	}
	return found, lists["sacct"] != nil, nil
}
