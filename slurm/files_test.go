package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each problem of Slurm's files on this host is reported with its field, the rule and a remedy.
func TestCheckFiles(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol"} {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700))
	}
	conf := filepath.Join(bin, "slurm.conf")
	fresh := func(text string) {
		must(t, os.WriteFile(conf, []byte(text), 0o600))
	}
	good := Config{BinDir: bin, Conf: conf, Cluster: "alpha"}
	for name, x := range map[string]struct {
		change func(*Config)
		conf   string
		more   []string
		want   string // empty: no problem
	}{
		"right":               {conf: "# ClusterName=beta\nclustername=Alpha SlurmctldHost=x # ClusterName=gamma\n"},
		"no name in the file": {conf: "include other.conf\n"},
		"no conf":             {change: func(c *Config) { c.Conf = "" }},
		"any cluster":         {change: func(c *Config) { c.Cluster = "" }, conf: "ClusterName=beta\n"},
		"another cluster":     {conf: "ClusterName=beta\n", want: "slurm.cluster: it is alpha, but " + conf + " is of the cluster beta"},
		"no such slurm.conf": {change: func(c *Config) { c.Conf += "x" },
			want: "slurm.conf: " + conf + "x cannot be used: no such file or directory"},
		"a folder": {change: func(c *Config) { c.Conf = bin }, want: "slurm.conf: " + bin + " cannot be used: it is not a file"},
		"a line without end": {conf: strings.Repeat("x", 2*maxConfLine),
			want: "slurm.conf: " + conf + " cannot be used: bufio.Scanner: token too long"},
		"no such bin_dir": {change: func(c *Config) { c.BinDir += "x" },
			want: "slurm.bin_dir: " + bin + "x cannot be opened: no such file or directory"},
		"bin_dir is a file":    {change: func(c *Config) { c.BinDir += "/sbatch" }, want: "slurm.bin_dir: " + bin + "/sbatch is not a folder"},
		"a command is missing": {more: []string{"sacct", "sacctmgr"}, want: "slurm.bin_dir: " + bin + " has no sacct, sacctmgr"},
		"not executable": {change: func(c *Config) {
			c.BinDir = t.TempDir()
			for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol"} {
				must(t, os.Symlink(map[bool]string{true: conf, false: filepath.Join(bin, name)}[name == "squeue"],
					filepath.Join(c.BinDir, name)))
			}
		}, want: "these cannot be executed: squeue"},
	} {
		fresh(x.conf)
		c := good
		if x.change != nil {
			x.change(&c)
		}
		found := CheckFiles(c, x.more...)
		switch {
		case x.want == "" && len(found) > 0, x.want != "" && len(found) != 1:
			t.Errorf("CheckFiles with %s finds %v, want the problem %q alone, or nothing if it is empty", name, found, x.want)
		case x.want != "" && (!strings.Contains(found[0].String(), x.want) || found[0].Rule == "" || found[0].Hint == "" || found[0].Code == ""):
			t.Errorf("CheckFiles with %s finds %s, want %q with its rule, hint and code", name, found[0], x.want)
		}
	}
}

func FuzzConfCluster(f *testing.F) {
	f.Add("ClusterName=alpha SlurmctldHost=x # ClusterName=b")
	f.Fuzz(func(t *testing.T, line string) {
		if name := cluster(line, ""); name != "" && (strings.ContainsAny(name, " \t\n#") || !strings.Contains(line, name)) {
			t.Errorf("the cluster in the line %q is %q, want a word of the line without # or spaces", line, name)
		}
	})
}
