package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/site"
)

// At start a wrong folder of commands, a wrong slurm.conf and another cluster are errors that name field, rule and remedy; a slurmctld
// that is down, hangs or does not say its name is a warning. config check says the same and leaves nothing behind.
func TestStartLooksAtSlurm(t *testing.T) {
	for name, c := range map[string]struct {
		scontrol string // what it does
		conf     string // the content of slurm.conf; empty: it is not there
		field    string // of the error; empty: it starts
		warns    bool
	}{
		"right":           {"echo 'ClusterName = Alpha'", "ClusterName=alpha", "", false},
		"another":         {"echo 'ClusterName = beta'", "ClusterName=alpha", "slurm.cluster", false},
		"another's conf":  {"echo 'ClusterName = alpha'", "ClusterName=beta", "slurm.cluster", false},
		"no conf":         {"echo 'ClusterName = alpha'", "", "slurm.conf", false},
		"no scontrol":     {"", "ClusterName=alpha", "slurm.bin_dir", false},
		"down":            {"echo 'Unable to contact slurm controller' >&2; exit 1", "ClusterName=alpha", "", true},
		"without a name":  {"echo Welcome", "ClusterName=alpha", "", true},
		"does not answer": {"exec sleep 60", "ClusterName=alpha", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := &site.Site{Name: "here", Gateway: site.Gateway{StateDir: filepath.Join(dir, "state")},
				Slurm:  site.Slurm{BinDir: filepath.Join(dir, "bin"), Conf: filepath.Join(dir, "slurm.conf"), Cluster: "alpha", Accounting: "auto"},
				Budget: site.Budget{RPCPerMinute: 60}}
			if err := os.Mkdir(s.Slurm.BinDir, 0o700); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{"slurm.conf": c.conf, "bin/sbatch": "#", "bin/squeue": "#", "bin/scancel": "#", "bin/scontrol": c.scontrol}
			for file, text := range files {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			said := slurmMisfits(t.Context(), s)
			hosts := quietHosts()
			cli, err := hosts.slurm(s, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(s.Gateway.StateDir); err == nil {
				t.Error("a look made the state folder, as whoever looked")
			}
			var log bytes.Buffer
			g := &gateway{hosts: hosts, app: app.Gateway{Log: slog.New(slog.NewTextHandler(&log, nil))}}
			_, err = g.fitSlurm(t.Context(), s, cli)
			problems := fault.ProblemsOf(err)
			if warned := strings.Contains(log.String(), "runs wait until it does"); warned != c.warns {
				t.Errorf("log: %s", log.String())
			}
			if c.field == "" {
				if err != nil || len(said) > 0 {
					t.Error(err, said)
				}
				return
			}
			if !fault.Is(err, fault.Validation) || len(problems) != 1 || problems[0].Field != c.field || problems[0].Rule == "" ||
				problems[0].Hint == "" || len(said) != 1 || said[0].Field != c.field {
				t.Errorf("%v; config check: %v", err, said)
			}
		})
	}
}
