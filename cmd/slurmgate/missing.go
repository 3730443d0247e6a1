package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"slurmgate/cli"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/transport"
)

// start selects what a process may do where a site has no ledger.
type start string

const (
	toLook   start = "look"   // never create one
	toChange start = "change" // create one in a place where there never was one
	anew     start = "anew"   // create one although there was one: serve --new-ledger
)

// serviceDown refuses a verb that finds no gateway where the site is a service; it returns nil where it is not.
func serviceDown(s *site.Site) error {
	unit := s.Gateway.Service
	if unit == "" {
		return nil
	}
	return fault.New(fault.Transport, cli.ServiceDown,
		"no gateway that you may use is running at "+s.Gateway.Socket+": the service "+unit+" is down, or not open to you").
		WithNext("have an admin start it (systemctl start " + unit + "), or list you under access in the site file")
}

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
		return nil // another user's folder, which ownFolder refuses with its owner's name
	}
	found, err := transport.Traces(ctx, s)
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
