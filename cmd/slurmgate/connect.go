package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/plan"
	"slurmgate/site"
)

func projectID(name string) string { return plan.ProjectID(name) }

// session is a connection to the gateway: to the one that holds the ledger, or to the one this process has
// become.
type session struct {
	app    *app
	client *httpapi.Client
	own    *gateway // nil when another process is the gateway
	site   *site.Site
}

// connect finds the gateway, or becomes it.
func (a *app) connect(ctx context.Context) (*session, error) {
	s, err := site.Load(a.cli.Site)
	if err != nil {
		return nil, err
	}
	patience := time.Now().Add(lockPatience)
	for {
		if c, err := httpapi.Dial(ctx, s.Gateway.Socket); err == nil {
			return &session{app: a, client: c, site: s}, nil
		}
		g, err := openGateway(ctx, s, a.log)
		if err == nil {
			c, err := httpapi.Dial(ctx, s.Gateway.Socket)
			if err != nil {
				g.close()
				return nil, err
			}
			return &session{app: a, client: c, own: g, site: s}, nil
		}
		if fault.CodeOf(err) != "gateway_running" || time.Now().After(patience) || ctx.Err() != nil {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond) // the holder is starting or stopping
	}
}

// close ends the session. A process that is the gateway first finishes what it has taken on, however long
// the copying takes; an interrupt leaves it to the next gateway.
func (s *session) close(ctx context.Context, a *app) {
	if s.own == nil {
		return
	}
	soon, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	if s.own.finishWork(soon) != nil && ctx.Err() == nil {
		a.say("finishing what was taken on (inputs are being copied); Ctrl-C leaves it to the next slurmgate, or to slurmgate serve")
		if s.own.finishWork(ctx) != nil {
			a.say("left; the next slurmgate takes it up")
		}
	}
	s.own.close()
}

// call carries out one of the gateway's operations and decodes its result.
func (s *session) call(ctx context.Context, toolID string, args, result any) error {
	return s.callTool(ctx, toolID, builtinVersion, args, result)
}

// callTool carries out one tool call and decodes its result.
func (s *session) callTool(ctx context.Context, toolID, version string, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	var res gate.Response
	err = s.retry(ctx, func() (err error) {
		res, err = s.client.Call(ctx, gate.NewRequest(toolID, version, raw))
		return err
	})
	if err != nil {
		return err
	}
	return decode(res, result)
}

// content copies an artifact's bytes to w.
func (s *session) content(ctx context.Context, artifactID string, w io.Writer) error {
	n := &countingWriter{w: w}
	return s.retry(ctx, func() error {
		err := s.client.Content(ctx, artifactID, n)
		if err != nil && n.written {
			return fault.Wrap(fault.Transport, "content", "content_cut_off", "only a part of "+artifactID+" arrived", err).WithNext("fetch it again")
		}
		return err
	})
}

type countingWriter struct {
	w       io.Writer
	written bool
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.written = c.written || len(p) > 0
	return c.w.Write(p)
}

// retry makes a call again when the gateway went away, with the next one: a shell that was the gateway has
// ended, and another is it now, or this one becomes it. A repeated call has no further effect.
func (s *session) retry(ctx context.Context, call func() error) error {
	for range 20 {
		err := call()
		if fault.CodeOf(err) != "gateway_gone" || ctx.Err() != nil || s.own != nil {
			return err
		}
		next, err := s.app.connect(ctx)
		if err != nil {
			return err
		}
		*s = *next
	}
	return call()
}

func decode(res gate.Response, result any) error {
	if res.Error != nil {
		return callError{res.Error.Fault(), res.Error}
	}
	return json.Unmarshal(res.Result, result)
}

// local carries out a tool that needs no gateway, through a gate of its own.
func (a *app) local(ctx context.Context, t gate.Tool, args, result any) error {
	r, err := gate.NewRegistry(t)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return decode(gate.New(gate.Config{Registry: r}).Call(ctx, gate.Process(), gate.NewRequest(t.ID, t.Version, raw)), result)
}

// with connects, runs f and closes.
func (a *app) with(ctx context.Context, f func(*session) error) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { s.close(ctx, a) }()
	return f(s)
}

// fresh waits until Slurm has been asked, when this process is the gateway: a look by a shell that has just
// opened the ledger should not show yesterday.
func (s *session) fresh(ctx context.Context) error {
	if s.own == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, freshTime)
	defer stop()
	return s.own.engine.CaughtUp(ctx)
}
