package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/metrics"
	"slurmgate/plan"
	"slurmgate/remote/sshtest"
	"slurmgate/site"
)

// Images and workspaces of a site share the connections of storage.sftp: while both transfer files that could use all
// of them, their number stays within its bound.
//
// proves SITE-05
func TestImagesAndWorkspacesShareConnections(t *testing.T) {
	const connections, size = 3, 32 << 20
	server := sshtest.Serve(t, "")
	host, port, err := net.SplitHostPort(server.Address)
	must(t, err)
	number, err := strconv.Atoi(port)
	must(t, err)
	runs, images := filepath.Join(t.TempDir(), "runs"), filepath.Join(t.TempDir(), "images")
	must(t, os.Mkdir(runs, 0o700))
	ssh := site.SSH{Endpoint: site.Endpoint{Host: host, Port: number, User: "u", KnownHosts: []string{server.Known}, Key: server.Key}}
	s := &site.Site{Name: "far"}
	s.Slurm.Transport, s.Slurm.SSH = site.TransportSSH, &ssh
	s.Storage.Transport, s.Storage.RunsDir, s.Storage.ImageStore = site.TransportSFTP, runs, images
	s.Storage.SFTP = &site.SFTP{SSH: ssh, RunsDir: runs, ImageStore: images, Connections: connections}
	h := QuietHosts()
	defer h.Close()
	w, err := h.farWorkspace(t.Context(), s, "gw-1", false)
	must(t, err)
	folder, err := h.farImages(s)
	must(t, err)
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	errs := make([]error, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		in := plan.Input{Role: "r", ChecksumSHA256: digest, DestRelpath: "in/large"}
		errs[0] = w.StageInputs(t.Context(), "run_"+"0X8Z4D1X467KV94K4TXG0D9BXT", []plan.Input{in},
			func(context.Context, string) (io.ReadCloser, int64, error) {
				return struct {
					*bytes.Reader
					io.Closer
				}{bytes.NewReader(data), io.NopCloser(nil)}, size, nil
			})
	})
	wg.Go(func() { errs[1] = folder.Put(t.Context(), "large.sif", bytes.NewReader(data), size, digest) })
	wg.Wait()
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	if n := server.Accepted.Load(); n < 2 || n > connections {
		t.Errorf("%d connections for a bound of %d", n, connections)
	}
}

// At start a wrong folder of commands, a wrong slurm.conf and another cluster are errors that name field, rule and
// remedy; a slurmctld that is down, hangs or does not say its name is a warning. config check reports the same and
// creates nothing.
func TestStartLooksAtSlurm(t *testing.T) {
	for name, c := range map[string]struct {
		scontrol string // what it does
		conf     string // the content of slurm.conf; empty: it is missing
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
			must(t, os.Mkdir(s.Slurm.BinDir, 0o700))
			files := map[string]string{"slurm.conf": c.conf, "bin/sbatch": "#", "bin/squeue": "#", "bin/scancel": "#", "bin/scontrol": c.scontrol}
			for file, text := range files {
				if text == "" {
					continue
				}
				syscall.ForkLock.RLock() // no process of a parallel test has it open when it is executed
				err := os.WriteFile(filepath.Join(dir, file), []byte("#!/bin/sh\n"+text+"\n"), 0o700)
				syscall.ForkLock.RUnlock()
				must(t, err)
			}
			said := Misfits(t.Context(), s)
			hosts := QuietHosts()
			cli, err := hosts.Slurm(s)
			must(t, err)
			if _, err := os.Stat(s.Gateway.StateDir); err == nil {
				t.Error("config check created the state folder")
			}
			var log bytes.Buffer
			x := &Sites{Config: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, Hosts: hosts}
			_, err = x.fitSlurm(t.Context(), s, cli)
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

// Each kind of record that cannot be read is logged once for a site, with its text, and every one is counted.
func TestUnreadIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := metrics.New(metrics.Sources{Sites: []string{"alpha", "beta"},
		Runs:    func(context.Context) (map[string]int64, error) { return nil, nil },
		Watched: func(string) (time.Time, error) { return time.Time{}, nil }, Now: time.Now})
	x := &Sites{Config: Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Unread: m.Unread}}
	alpha, beta := x.unread("alpha"), x.unread("beta")
	for range 3 {
		alpha("squeue", 2, "no exit status", "7|FAILED|x")
		alpha("sacct", 1, "no record", "Welcome")
	}
	alpha("squeue", 1, "no time", "8|FAILED")
	beta("squeue", 1, "no exit status", "9|FAILED|x")
	if n := strings.Count(log.String(), "\n"); n != 4 || !strings.Contains(log.String(),
		`site=alpha program=squeue why="no exit status" record=7|FAILED|x`) {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	x.harmless("alpha")("sinfo: Ignoring obsolete FastSchedule=1")
	if !strings.Contains(log.String(), `site=alpha line="sinfo: Ignoring obsolete FastSchedule=1"`) {
		t.Error("the harmless line is not logged:", log.String())
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`{command="squeue",site="alpha"} 7`, `{command="sacct",site="alpha"} 3`,
		`{command="squeue",site="beta"} 1`} {
		if !strings.Contains(w.Body.String(), "slurmgate_slurm_unread_records_total"+line) {
			t.Error("no", line)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
