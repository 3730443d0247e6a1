package cli

import (
	"context"
	"slices"
	"sync"
	"time"

	"slurmgate/app"
	"slurmgate/gate"
	"slurmgate/httpapi"
)

// Chat is the gate behind the socket as a chat assistant sees it: an mcp.Gateway.
type Chat struct {
	link  *link
	files *app.OwnFiles // below the import roots, as this user sees them

	mu      sync.Mutex
	version string // of the catalogue
	tools   []gate.Tool
	named   []string // tools that the user's entry in the site file names
}

// Chat reads the tools that the gateway offers this user.
func (s *Session) Chat(ctx context.Context) (c *Chat, r httpapi.Registry, err error) {
	err = s.retry(ctx, func(c *httpapi.Client) (err error) {
		r, err = c.As(gate.FaceMCP).Registry(ctx)
		return err
	})
	return &Chat{link: s.link, version: r.Version, tools: app.WithFacts(r.Tools), named: r.Named, files: app.NewOwnFiles(s.site)}, r, err
}

// watchEvery is the interval at which a chat checks whether the gateway offers other tools now.
const watchEvery = 5 * time.Second

// Watch sends when the gateway offers other tools than before, such as after a reload, until ctx ends. It does not
// start a gateway that is away: a check never makes this process the gateway.
func (c *Chat) Watch(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if c.stale(ctx) {
				select {
				case changed <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return changed
}

// stale reads the registry again if it is another one.
func (c *Chat) stale(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, watchEvery)
	defer stop()
	to := c.link.way().As(gate.FaceMCP)
	version, err := to.CatalogVersion(ctx)
	c.mu.Lock()
	same := version == c.version
	c.mu.Unlock()
	if err != nil || same {
		return false
	}
	r, err := to.Registry(ctx)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.tools, c.named = r.Version, app.WithFacts(r.Tools), r.Named
	return true
}

// Tools implements mcp.Gateway. The gateway has listed only what this user may call.
func (c *Chat) Tools() []gate.Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tools)
}

// Visible implements mcp.Gateway.
func (c *Chat) Visible(context.Context, gate.Tool) bool { return true }

// Named implements the namer of mcp.
func (c *Chat) Named(context.Context) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named
}

// Call implements mcp.Gateway. It opens the file of an import here, as the chat's user. When the gateway goes away it
// sends the call again to the next one, under the same key where it needs one.
func (c *Chat) Call(ctx context.Context, req gate.Request) (res gate.Response, err error) {
	tools := c.Tools()
	if i := slices.IndexFunc(tools, func(t gate.Tool) bool { return t.ID == req.ToolID }); i >= 0 {
		ownKey(&req, tools[i].Idempotency)
	}
	req, file, found, err := c.handOver(req)
	if err != nil {
		return res, app.WithoutPath(err, found)
	}
	if file != nil {
		defer file.Close()
	}
	err = c.link.retry(ctx, func(to *httpapi.Client) (err error) {
		res, err = to.As(gate.FaceMCP).CallWith(ctx, req, file)
		return err
	})
	if err == nil && req.ToolID == "artifact.find" && res.Error == nil {
		res.Result = fillFound(ctx, c.files, req.Args, res.Result)
	}
	app.HidePath(res.Error, found)
	return res, app.WithoutPath(err, found)
}
