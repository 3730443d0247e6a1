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
		return fault.Wrap(fault.Transport, "ledger_missing", "there is no ledger at "+ledgerFile(s)+
			", and whether this is a new gateway cannot be determined", err).WithNext("mount the disks and reach the hosts that the site file names")
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

// traces says what shows that the site had a ledger before; empty if nothing does.
func traces(ctx context.Context, s *site.Site) (string, error) {
	h := quietHosts()
	defer h.close()
	for _, c := range s.Clusters() {
		if c.FarFiles() {
			mark, runID, err := h.farTraces(ctx, c)
			switch {
			case err != nil:
				return "", err
			case mark != "":
				return fmt.Sprintf("the runs_dir %s of %s belongs to gateway %s", c.Storage.SFTP.RunsDir, c.Storage.SFTP.Host, mark), nil
			case runID != "":
				return fmt.Sprintf("the runs_dir %s of %s contains runs (%s)", c.Storage.SFTP.RunsDir, c.Storage.SFTP.Host, runID), nil
			}
			continue
		}
		dir := c.Storage.RunsDir
		id, err := staging.Mark(dir)
		switch {
		case err != nil:
			return "", err
		case id != "":
			return fmt.Sprintf("the runs_dir %s belongs to gateway %s", dir, id), nil
		}
		if name, err := first(dir, func(name string) bool { return strings.HasPrefix(name, "run_") }); name != "" || err != nil {
			return fmt.Sprintf("the runs_dir %s contains runs (%s)", dir, name), err
		}
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
