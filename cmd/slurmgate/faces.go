package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/access"
	"slurmgate/app"
	"slurmgate/cli"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/mcp"
	"slurmgate/metrics"
	"slurmgate/run"
	"slurmgate/site"
)

// openMetrics creates the metrics; the engine's parts are counted from then on.
func (g *gateway) openMetrics() {
	g.metrics = metrics.New(metrics.Sources{Runs: g.ledgerCounts, Sites: g.app.Site.Names(),
		Watched: func(site string) (time.Time, error) { return g.app.Sites.Watched(site) },
		Health:  g.health, Now: time.Now})
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

// serve opens the socket, and the port if the site has one, or takes over those of the gateway before.
func (g *gateway) serve(before *gateway) (err error) {
	stopping := make(chan struct{})
	endStreams := sync.OnceFunc(func() { close(stopping) })
	face := httpapi.Handler(g.faceConfig(), stopping)
	limits := g.app.Site.Limits
	socket := httpapi.SocketConfig{Path: g.app.Site.Gateway.Socket, Mode: socketMode(g.app.Site),
		Limits: g.connections(limits.SocketConnections), Known: g.access.Knows, Turned: g.turnedAway}
	h := g.app.Site.HTTP
	port := httpapi.PortConfig{Listen: h.Listen, Hosts: h.Hosts, Origins: h.Origins, Limits: g.connections(h.MaxConnections),
		Refused: httpapi.RefuseAtTheDoor(g.app.Gate), Proxies: proxies(h)}
	if u, err := url.Parse(h.PublicURL); err == nil && u.Host != "" {
		port.Hosts = append(slices.Clone(port.Hosts), strings.ToLower(u.Host))
	}
	sameSocket := before.server != nil && before.config.site.Gateway.Socket == socket.Path
	samePort := before.port != nil && before.config.site.HTTP.Listen == port.Listen
	// New addresses first: if one of them cannot be had, the gateway before has lost nothing.
	if !sameSocket {
		if g.server, err = httpapi.Listen(socket, face, endStreams, g.app.Log); err != nil {
			return err
		}
	}
	if !samePort && port.Listen != "" {
		if g.port, err = httpapi.Serve(port, face, endStreams, g.app.Log); err != nil {
			return err
		}
	}
	if samePort {
		g.port = before.port
		g.port.PassPort(port, face, endStreams)
	}
	if sameSocket {
		g.server = before.server
		if err := g.server.PassSocket(socket, face, endStreams); err != nil {
			g.app.Log.Error("other users may not reach the socket", "err", err)
		}
	}
	return nil
}

// proxies returns the networks of the proxies that are trusted to report a client's address.
func proxies(h site.HTTP) (out []netip.Prefix) {
	for _, p := range h.TrustedProxies {
		if network, err := site.ParseNetwork(p); err == nil { // the site file was checked
			out = append(out, network)
		}
	}
	return out
}

// connections returns the limits of a listener.
func (g *gateway) connections(most int) httpapi.Limits {
	l := g.app.Site.Limits
	n, files := doctor.Connections(most)
	if n < most {
		g.app.Log.Warn("fewer connections than the site file allows: this process may open too few files", "connections", n, "of", most,
			"files", files)
	}
	return httpapi.Limits{Connections: n, PerCaller: l.ConnectionsPerCaller, PerAddress: l.ConnectionsPerAddress}
}

// turnedAway records connections of a user without a grant.
func (g *gateway) turnedAway(uid, n int) {
	err := access.Stranger(uid)
	if n > 1 {
		err = fault.Wrap(fault.Auth, fault.CodeOf(err), fmt.Sprintf("%d connections were turned away", n), err)
	}
	g.app.Log.Info("login refused", "address", fmt.Sprint("uid:", uid), "face", gate.FaceSocket, "reason", "unknown_user")
	g.app.Gate.Refuse(gate.Source{Transport: gate.Local, From: fmt.Sprint("uid:", uid), Face: gate.FaceSocket, Address: fmt.Sprint("uid:",
		uid)}, err)
}

// contents implements [httpapi.Contents].
type contents struct{ *app.Gateway }

// Open implements [httpapi.Contents].
func (c contents) Open(sha256 string) (*os.File, error) { return c.Store.Open(sha256) }

// words returns how each face writes the next steps.
func words() gate.Words {
	return gate.Words{gate.Local: cli.Words, gate.MCP: mcp.Words(cli.FromChat), gate.Other: httpapi.Words(cli.CommandLine)}
}

func (g *gateway) faceConfig() httpapi.Config {
	chat := mcp.New(mcp.Config{Gateway: chatGate{g.app.Gate}, Name: g.app.Domain.ID(), Version: g.app.Domain.CatalogVersion(),
		Reach: cli.FromChat, Log: g.app.Log})
	return httpapi.Config{Gate: g.app.Gate, Auth: g.access, Admit: g.access.Admit, While: g.access.While, Contents: contents{&g.app},
		DomainID:  g.app.Domain.ID(),
		Version:   g.app.CatalogVersion,
		PublicURL: g.app.Site.HTTP.PublicURL, Issuers: g.access.Issuers(),
		Events: g.eventsAfter, Moving: g.moving, Export: g.export, Ready: g.ready, Streams: g.app.Site.Limits.StreamsPerCaller,
		Metrics: g.metrics.Handler(), MCP: mcp.Handler(chat, g.app.Log), Log: g.app.Log}
}

// moving returns the progress of a run's file transfers; nil: there are none.
func (g *gateway) moving(ctx context.Context, runID string) json.RawMessage {
	m := g.app.Sites.Moving(ctx, runID)
	if m == nil {
		return nil
	}
	doc, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return doc
}

// export makes the archive of a run or a batch for a caller whom the gate has allowed it.
func (g *gateway) export(ctx context.Context, a httpapi.ExportArgs) (httpapi.Archive, error) {
	bounds := app.ExportBounds{ByReference: a.ByReference, MaxMB: a.MaxMB}
	if a.Batch != "" {
		x, err := g.app.ExportBatch(ctx, app.BatchExportArgs{BatchArgs: app.BatchArgs{Batch: a.Batch}, ExportBounds: bounds})
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	x, err := g.app.Export(ctx, app.ExportArgs{RunID: a.RunID, ExportBounds: bounds})
	if err != nil {
		return nil, err
	}
	return x, nil
}

const eventsAtOnce = 500

func (g *gateway) eventsAfter(ctx context.Context, runID string, after int64) (events []httpapi.Event, over bool, err error) {
	list, over, err := g.app.RunEvents(ctx, runID, after, eventsAtOnce)
	for _, e := range list {
		events = append(events, httpapi.Event{Seq: e.Seq, At: e.At, Type: e.Type, RunID: e.RunID})
	}
	return events, over, err
}

// ready reports what the gateway cannot do at the moment. Reads and replays still work, and new submissions too unless the ledger's disk
// failed.
func (g *gateway) ready(ctx context.Context) error {
	if err := g.app.Ledger.Stopped(); err != nil {
		return err
	}
	if err := g.app.Ledger.DiskAnswers(ctx); err != nil {
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

// Named implements the namer of mcp.
func (c chatGate) Named(ctx context.Context) []string { return httpapi.CallerOf(ctx).Tools }

// Call implements mcp.Gateway. In the protocol's older revisions the context of a call does not end with its HTTP request.
func (c chatGate) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	if t, err := c.Registry().Find(req.ToolID); err == nil && t.SideEffect != gate.Execute {
		held, stop := httpapi.Held(ctx)
		defer stop()
		ctx = held
	}
	return c.Gate.Call(ctx, httpapi.CallerOf(ctx), req), nil
}

// Enter implements the queue of mcp.
func (c chatGate) Enter(ctx context.Context) (leave func(), err error) {
	return c.Gate.Enter(ctx, httpapi.CallerOf(ctx))
}
