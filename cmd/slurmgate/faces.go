package main

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/mcp"
	"slurmgate/metrics"
	"slurmgate/run"
)

// openMetrics creates the metrics; the engine's parts are counted from then on.
func (g *gateway) openMetrics() {
	g.metrics = metrics.New(metrics.Sources{Runs: g.ledgerCounts, Sites: g.app.Site.Names(),
		Watched: func(site string) (time.Time, error) { return g.app.Sites.Watched(site) }, Now: time.Now})
	g.app.Journal = g.metrics.Journal
}

func (g *gateway) ledgerCounts(ctx context.Context) (map[string]int64, error) {
	counts, err := g.app.Ledger.Counts(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range []run.State{run.Queued, run.Running, run.Blocked, run.Succeeded, run.Failed, run.Cancelled} {
		counts[string(s)] += 0 // each state has a value from the start
	}
	return counts, nil
}

// serve opens the socket, and the port if the site has one.
func (g *gateway) serve() (err error) {
	stopping := make(chan struct{})
	endStreams := sync.OnceFunc(func() { close(stopping) })
	face := httpapi.Handler(g.faceConfig(), stopping)
	if g.server, err = httpapi.Listen(g.app.Site.Gateway.Socket, socketMode(g.app.Site), face, endStreams, g.app.Log); err != nil {
		return err
	}
	if h := g.app.Site.HTTP; h.Listen != "" {
		hosts := h.Hosts
		if u, err := url.Parse(h.PublicURL); err == nil && u.Host != "" {
			hosts = append(slices.Clone(hosts), strings.ToLower(u.Host))
		}
		g.port, err = httpapi.Serve(httpapi.PortConfig{Listen: h.Listen, Hosts: hosts, Origins: h.Origins, MaxConnections: h.MaxConnections,
			Refused: httpapi.RefuseAtTheDoor(g.app.Gate)}, face, endStreams, g.app.Log)
	}
	return err
}

func (g *gateway) faceConfig() httpapi.Config {
	chat := mcp.New(mcp.Config{Gateway: chatGate{g.app.Gate}, Name: g.app.Domain.ID(), Version: g.app.Domain.CatalogVersion(), Log: g.app.Log})
	return httpapi.Config{Gate: g.app.Gate, Auth: g.access, Contents: g.app.Store, DomainID: g.app.Domain.ID(), Version: g.app.CatalogVersion,
		PublicURL: g.app.Site.HTTP.PublicURL, Issuers: g.access.Issuers(),
		Events: g.eventsAfter, Ready: g.ready, Metrics: g.metrics.Handler(), MCP: mcp.Handler(chat, g.app.Log), Log: g.app.Log}
}

const eventsAtOnce = 500

func (g *gateway) eventsAfter(ctx context.Context, runID string, after int64) (events []httpapi.Event, over bool, err error) {
	v, err := g.app.Ledger.View(ctx, runID)
	if err != nil {
		return nil, false, err
	}
	list, err := g.app.Ledger.EventsAfter(ctx, runID, after, eventsAtOnce)
	for _, e := range list {
		events = append(events, httpapi.Event{Seq: e.Seq, At: e.At, Type: e.Type, RunID: e.RunID})
	}
	return events, v.Run.State.Terminal() && len(list) < eventsAtOnce, err
}

// ready reports what the gateway cannot do at the moment. Reads and replays still work, and new submissions too unless the ledger's disk
// failed.
func (g *gateway) ready(context.Context) error {
	if err := g.app.Ledger.Stopped(); err != nil {
		return err
	}
	return g.app.Sites.Ready()
}

// chatGate is the gate for chats over HTTP: the HTTP server has identified the caller.
type chatGate struct{ *gate.Gate }

// Tools implements mcp.Gateway.
func (c chatGate) Tools() []gate.Tool { return c.Registry().List() }

// Visible implements mcp.Gateway.
func (c chatGate) Visible(ctx context.Context, t gate.Tool) bool {
	return c.Gate.Visible(httpapi.CallerOf(ctx), t)
}

// Call implements mcp.Gateway.
func (c chatGate) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	return c.Gate.Call(ctx, httpapi.CallerOf(ctx), req), nil
}
