package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/staging"
)

// start says what a process may do where a site has no ledger.
type start string

const (
	toLook   start = "look"   // never create one
	toChange start = "change" // create one in a place where there never was one
	anew     start = "anew"   // create one although there was one: serve --new-ledger
)

func ledgerFile(s *site.Site) string { return filepath.Join(s.Gateway.StateDir, "ledger.db") }

// mayCreate refuses to begin a ledger where one is missing, before anything is created: a wrong path or an unmounted disk looks like an
// empty folder, and a new ledger would forget every run. An existing ledger passes.
func mayCreate(ctx context.Context, s *site.Site, how start) error {
	info, err := os.Stat(ledgerFile(s))
	switch {
	case err == nil && info.Size() > 0:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.Transport, "ledger_unreadable", "cannot examine the ledger", err).
			WithNext("check the disk of gateway.state_dir " + s.Gateway.StateDir)
	case errors.Is(err, fs.ErrPermission):
		return nil // somebody else's folder, which ownFolder refuses with its owner's name
	}
	found, err := traces(ctx, s)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.Auth, "ledger_missing", "there is no ledger at "+ledgerFile(s)+
			", and this user cannot see whether there was one", err).
			WithNext("make the gateway's user the owner of storage.runs_dir and gateway.artifact_dir (chown)")
	case err != nil:
		return fault.Wrap(fault.Transport, doctor.NoClusterAnswers, "there is no ledger at "+ledgerFile(s)+
			", and no cluster says whether there was one", err).
			WithNext("mount the disks that the site file names, and make one of its clusters answer").WithSteps(fault.Do("doctor"))
	case found != "" && how != anew:
		return fault.New(fault.Conflict, "ledger_missing",
			fmt.Sprintf("there is no ledger at %s, but %s: gateway.state_dir is wrong, its disk is not mounted, or the ledger is lost. "+
				"Nothing was created", ledgerFile(s), found)).
			WithNext("correct gateway.state_dir or mount its disk; if the ledger is lost, restore a backup (slurmgate restore), or begin a " +
				"new one that knows no earlier run (slurmgate serve --new-ledger)")
	case how == toLook:
		return fault.New(fault.NotFound, "no_ledger", "there is no ledger at "+ledgerFile(s)+" yet, so there is nothing to show").
			WithNext("check gateway.state_dir in the site file, or start the gateway: slurmgate serve")
	}
	return nil
}

// trace is what shows that a cluster's runs_dir was used before; mark and runID are empty for a new one.
type trace struct {
	where string // the folder, for messages
	mark  string // the gateway that it belongs to
	runID string // a run in it
	err   error
}

// found says what shows that there was a ledger; empty if nothing does.
func (t trace) found() string {
	switch {
	case t.mark != "":
		return t.where + " belongs to gateway " + t.mark
	case t.runID != "":
		return t.where + " contains runs (" + t.runID + ")"
	}
	return ""
}

// away reports whether the cluster's host could not be asked, so that nothing is known of its folder.
func (t trace) away() bool { return t.err != nil && strings.HasPrefix(fault.CodeOf(t.err), "ssh_") }

// trace looks into the runs_dir of one cluster.
func (h *hosts) trace(ctx context.Context, c *site.Site) (t trace) {
	if c.AsCaller() {
		return t // the folders are the users', whose names are unknown without the ledger: userLogin.ownRuns looks at each user's first login
	}
	if c.FarFiles() {
		t.where = fmt.Sprintf("the runs_dir %s of %s", c.Storage.SFTP.RunsDir, c.Storage.SFTP.Host)
		if t.mark, t.runID, t.err = h.farTraces(ctx, c); t.err != nil {
			t.err = fmt.Errorf("%s: %w", t.where, t.err)
		}
		return t
	}
	t.where = "the runs_dir " + c.Storage.RunsDir
	if t.mark, t.err = staging.Mark(c.Storage.RunsDir); t.err == nil && t.mark == "" {
		t.runID, t.err = first(c.Storage.RunsDir, func(name string) bool { return strings.HasPrefix(name, "run_") })
	}
	return t
}

// allTraces looks into the runs_dir of every cluster at once: one that is away costs its time only once.
func allTraces(ctx context.Context, s *site.Site) []trace {
	h := quietHosts()
	defer h.close()
	list := make([]trace, len(s.Clusters()))
	var looks sync.WaitGroup
	for i, c := range s.Clusters() {
		looks.Go(func() { list[i] = h.trace(ctx, c) })
	}
	looks.Wait()
	return list
}

// traces says what shows that the site had a ledger before; empty if nothing does. A cluster that is away is no obstacle while another one
// answers: before its first use, [workspaces.open] makes the same check.
func traces(ctx context.Context, s *site.Site) (string, error) {
	var failed error
	answered := false
	for _, t := range allTraces(ctx, s) {
		switch {
		case t.found() != "":
			return t.found(), nil
		case t.err == nil:
			answered = true
		case !t.away():
			return "", t.err
		case failed == nil:
			failed = t.err
		}
	}
	if !answered {
		return "", failed
	}
	objects := filepath.Join(s.Gateway.ArtifactDir, "objects")
	if name, err := first(objects, func(string) bool { return true }); name != "" || err != nil {
		return "the artifact_dir " + s.Gateway.ArtifactDir + " contains artifacts", err
	}
	return "", nil
}

// first is a name in a folder that fits; empty if there is none, or no folder.
func first(dir string, fits func(name string) bool) (string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(256)
		for _, name := range names {
			if fits(name) {
				return name, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
}
