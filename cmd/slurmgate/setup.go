package main

import (
	"context"
	"time"

	"slurmgate/app"
	"slurmgate/setup"
)

// setUp carries out site.init.
func setUp(ctx context.Context, a app.SetupArgs) (out app.SetupAnswer, err error) {
	found, err := setup.Find(ctx, setup.Asked{Site: a.File, Shared: a.Shared, StateDir: a.StateDir, User: a.User, Account: a.Account,
		BinDir: a.BinDir, Conf: a.Conf, Domain: a.Domain, Data: a.Data, SSH: a.SSH, Jump: a.Jump, Key: a.Key, Agent: a.Agent,
		KnownHosts: a.KnownHosts, Trust: a.Trust, Files: a.Files})
	if err != nil {
		return out, err
	}
	files, err := setup.Compose(found, time.Now())
	if err != nil {
		return out, err
	}
	out = app.SetupAnswer{File: a.File, Domain: files.Domain, Site: files.Site, Policy: files.Policy, Commands: files.Commands,
		Open: files.Open}
	if a.Print {
		return out, nil
	}
	out.Written = true
	return out, setup.Write(found, files)
}
