package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"slurmgate/adapter"
	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/visible"
)

type adapterCmd struct {
	Config    string `required:"" help:"The adapter's configuration." type:"path" placeholder:"FILE"`
	List      bool   `help:"Only list the upstream's tools, with the digests of their schemas." xor:"only"`
	Entries   string `help:"Only print the manifest entries of the configured tools, and write their schema files below this domain's folder." type:"path" placeholder:"DOMAIN" xor:"only"`
	LogFormat string `name:"log-format" help:"Form of the log on standard error: text, or json (one object a line)." enum:"text,json" default:"text" placeholder:"FORMAT"`
}

// Run serves the adapter until a signal stops it.
func (c adapterCmd) Run(ctx context.Context, a *cli.Shell) (err error) {
	out := openLog(a.Err, c.LogFormat)
	a.Err = out.sayer(slog.LevelInfo)
	defer func() {
		if err != nil {
			a.Err = out.sayer(slog.LevelError)
		}
	}()
	config, err := adapter.Load(c.Config, os.LookupEnv)
	if err != nil {
		return withStatus(err)
	}
	client := adapter.NewClient(config, a.Build.Version, out.log)
	if c.List || c.Entries != "" {
		defer client.Close()
		return c.show(ctx, a, config, client)
	}
	l, err := config.Bind()
	if err != nil {
		return withStatus(err)
	}
	systemd := findServiceManager(out.log)
	systemd.notify("READY=1")
	a.Say("slurmgate %s adapter: %d tools at http://%s", a.Build.Version, len(config.Tools), l.Addr())
	defer systemd.notify("STOPPING=1")
	return adapter.NewServer(config, client, out.log).Serve(ctx, l)
}

// show prints what the upstream has.
func (c adapterCmd) show(ctx context.Context, a *cli.Shell, config adapter.Config, client *adapter.Client) error {
	tools, err := client.Tools(ctx)
	if err != nil {
		return fault.Wrap(fault.Transport, "upstream_away", "the upstream cannot be reached", err).
			WithNext("check upstream in the configuration, and that the server runs")
	}
	if c.List {
		for _, name := range adapter.Names(tools) {
			about, _, _ := strings.Cut(tools[name].Description, "\n")
			if _, err := fmt.Fprintf(a.Out, "%s  %s  %s\n", tools[name].Digest[:12], visible.Line(name), fault.Clip(about)); err != nil {
				return err
			}
		}
		return nil
	}
	entries, files, err := config.Entries(tools)
	if err != nil {
		return err
	}
	for name, data := range files {
		file := filepath.Join(c.Entries, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fault.Wrap(fault.Transport, "", "cannot write "+file, err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return fault.Wrap(fault.Transport, "", "cannot write "+file, err)
		}
	}
	_, err = fmt.Fprint(a.Out, entries)
	return err
}
