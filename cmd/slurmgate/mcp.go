package main

import (
	"context"
	"os"

	"slurmgate/cli"
	"slurmgate/mcp"
)

type mcpCmd struct{}

// Run serves a chat on standard input and output, also through ssh. It uses the gateway's socket, or is the gateway itself while it runs.
func (mcpCmd) Run(ctx context.Context, a *cli.Shell) error {
	return a.With(ctx, func(s *cli.Session) error {
		gateway, reg, err := s.Chat(ctx)
		if err != nil {
			return err
		}
		watching, stop := context.WithCancel(ctx)
		defer stop()
		server := mcp.New(mcp.Config{Gateway: gateway, Name: reg.DomainID, Version: reg.Version, Reach: cli.FromChat,
			Changed: gateway.Watch(watching), Log: a.Log})
		return mcp.Serve(ctx, server, os.Stdin, os.Stdout)
	})
}
