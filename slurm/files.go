package slurm

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slurmgate/fault"
)

// CheckFiles returns what is wrong with Slurm's files on this host: the commands that every site needs, more commands
// that this one needs, and slurm.conf, which must be that of the site file's cluster. It asks no daemon.
func CheckFiles(c Config, more ...string) []fault.Problem {
	found := checkPrograms(c.BinDir, more)
	if c.Conf == "" {
		return found
	}
	name, err := confCluster(c.Conf)
	switch {
	case err != nil:
		found = append(found, fault.Problem{Code: "SITE-CONF", Field: "slurm.conf", Rule: "a slurm.conf that the gateway's user can read",
			Msg: fmt.Sprintf("%s cannot be used: %s", c.Conf, reason(err)), Hint: "name the file that Slurm's commands use here, or remove the " +
				"setting"})
	case name != "" && c.Cluster != "" && !SameCluster(name, c.Cluster):
		found = append(found, fault.Problem{Code: "SITE-CLUSTER", Field: "slurm.cluster", Rule: "the ClusterName of slurm.conf",
			Msg:  fmt.Sprintf("it is %s, but %s is of the cluster %s", c.Cluster, c.Conf, fault.Clip(name)),
			Hint: "correct slurm.conf or slurm.cluster in the site file"})
	}
	return found
}

func checkPrograms(dir string, more []string) []fault.Problem {
	problem := func(msg, hint string) []fault.Problem {
		return []fault.Problem{{Code: "SITE-BIN-DIR", Field: "slurm.bin_dir", Rule: "the folder of Slurm's commands on this host", Msg: msg,
			Hint: hint}}
	}
	switch st, err := os.Stat(dir); {
	case err != nil:
		return problem(fmt.Sprintf("%s cannot be opened: %s", dir, reason(err)),
			"set it to the folder of sbatch (command -v sbatch), or mount its filesystem")
	case !st.IsDir():
		return problem(dir+" is not a folder", "set it to the folder of sbatch (command -v sbatch)")
	}
	need := append([]string{"sbatch", "squeue", "scancel", "scontrol"}, more...)
	var missing, unfit []string
	for _, name := range need {
		switch st, err := os.Stat(filepath.Join(dir, name)); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			unfit = append(unfit, name+" ("+reason(err)+")")
		case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
			unfit = append(unfit, name)
		}
	}
	var found []fault.Problem
	if len(missing) > 0 {
		found = problem(dir+" has no "+strings.Join(missing, ", "),
			"set it to the folder of sbatch (command -v sbatch), or install Slurm's client commands")
	}
	if len(unfit) > 0 {
		found = append(found, problem(fmt.Sprintf("in %s these cannot be executed: %s", dir, strings.Join(unfit, ", ")),
			"make them executable for the gateway's user")...)
	}
	return found
}

// reason returns the text of a file error without the file's name, which the message already has.
func reason(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}

// maxConfLine bounds a line of slurm.conf.
const maxConfLine = 1 << 20

// confCluster reads the ClusterName of a slurm.conf. It is empty if the file has none, for instance because an included
// file has it.
func confCluster(path string) (name string, err error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !st.Mode().IsRegular():
		return "", errors.New("it is not a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxConfLine)
	for lines.Scan() {
		name = cluster(lines.Text(), name)
	}
	return name, lines.Err()
}

// cluster returns the ClusterName in a line, which may have other settings too, or before, the name from earlier lines.
func cluster(line, before string) string {
	line, _, _ = strings.Cut(line, "#")
	for word := range strings.FieldsSeq(line) {
		if key, value, ok := strings.Cut(word, "="); ok && strings.EqualFold(key, "ClusterName") && value != "" {
			before = strings.Trim(value, `"`)
		}
	}
	return before
}
