package adapter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Listed is a tool as the upstream lists it.
type Listed struct {
	Name, Title, Description string
	Input, Output            json.RawMessage // JSON Schemas, canonical; Output is null where the tool has none
	Digest                   string          // of name and schemas, 64 hex digits: what a manifest pins
}

// Client is the adapter's side of an upstream. It connects when it is first used and again when the connection is lost.
type Client struct {
	config Config
	name   string // and version, sent to the upstream
	log    *slog.Logger

	turn    chan struct{} // held while the fields below are used
	session *sdk.ClientSession
	end     func() // ends the upstream's process
	tools   map[string]Listed
	read    time.Time // when tools was read
	stale   atomic.Bool
	closing sync.WaitGroup
}

const (
	maxTools     = 2000
	connectTime  = 30 * time.Second
	maxListBytes = 16 << 20
)

// NewClient makes the client of the configuration's upstream.
func NewClient(c Config, version string, log *slog.Logger) *Client {
	return &Client{config: c, name: version, log: log, turn: make(chan struct{}, 1)}
}

// lock waits for the turn.
func (c *Client) lock(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) unlock() { <-c.turn }

// Tools returns the tools that the upstream lists now, or did within the time the configuration allows.
func (c *Client) Tools(ctx context.Context) (map[string]Listed, error) {
	_, tools, err := c.ready(ctx)
	return tools, err
}

// ready returns a connection and the tools it lists. Nothing of a call has been sent if it fails.
func (c *Client) ready(ctx context.Context) (*sdk.ClientSession, map[string]Listed, error) {
	if err := c.lock(ctx); err != nil {
		return nil, nil, err
	}
	defer c.unlock()
	if c.session != nil && !c.stale.Load() && time.Since(c.read) < c.config.Recheck {
		return c.session, c.tools, nil
	}
	for first := true; ; first = false {
		fresh := c.session == nil
		err := c.connect(ctx)
		if err == nil {
			c.stale.Store(false)
			c.tools, err = list(ctx, c.session)
		}
		switch {
		case err == nil:
			c.read = time.Now()
			return c.session, c.tools, nil
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		}
		c.drop()
		if fresh || !first { // else the connection may have been lost since the last call
			return nil, nil, err
		}
	}
}

func (c *Client) connect(ctx context.Context) error {
	if c.session != nil {
		return nil
	}
	options := &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}, MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { c.stale.Store(true) }}
	client := sdk.NewClient(&sdk.Implementation{Name: "slurmgate-adapter", Version: c.name}, options)
	transport, end, err := c.transport()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		c.closing.Go(end)
		return err
	}
	c.session, c.end = session, end
	if who := session.InitializeResult(); who != nil && who.ServerInfo != nil {
		c.log.Info("connected to the upstream", "name", fault.Clip(who.ServerInfo.Name), "version", fault.Clip(who.ServerInfo.Version),
			"protocol", fault.Clip(who.ProtocolVersion))
	}
	return nil
}

func (c *Client) transport() (sdk.Transport, func(), error) {
	if len(c.config.Upstream.Command) > 0 {
		p, err := start(c.config.Upstream, c.log)
		if err != nil {
			return nil, nil, err
		}
		return &sdk.IOTransport{Reader: p.out, Writer: p.in, MaxLineLength: maxListBytes}, p.end, nil
	}
	t := &http.Transport{MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, MaxIdleConnsPerHost: c.config.Calls}
	client := &http.Client{Transport: keyed{t, c.config.Upstream},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &sdk.StreamableClientTransport{Endpoint: c.config.Upstream.URL, HTTPClient: client, MaxEventSize: maxListBytes,
		DisableStandaloneSSE: c.config.Recheck == 0}, t.CloseIdleConnections, nil
}

// drop closes the connection.
func (c *Client) drop() {
	if c.session == nil {
		return
	}
	session, end := c.session, c.end
	c.session, c.tools = nil, nil
	c.closing.Go(func() { // an upstream that hangs holds up nothing
		end()
		_ = session.Close()
	})
}

// lost closes a connection that a call has lost, unless another call already did.
func (c *Client) lost(session *sdk.ClientSession) {
	c.turn <- struct{}{}
	defer c.unlock()
	if c.session == session {
		c.drop()
	}
}

// Close ends the connection and the upstream's process.
func (c *Client) Close() {
	c.turn <- struct{}{}
	defer c.unlock()
	c.drop()
	c.closing.Wait()
}

// list reads all pages of the list of tools.
func list(ctx context.Context, session *sdk.ClientSession) (map[string]Listed, error) {
	out := map[string]Listed{}
	for params := (&sdk.ListToolsParams{}); ; {
		page, err := session.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tools {
			l, err := listed(t)
			if err != nil {
				return nil, err
			}
			if _, twice := out[l.Name]; twice || len(out) >= maxTools {
				return nil, errors.New("the upstream lists a tool twice, or more tools than anybody has")
			}
			out[l.Name] = l
		}
		if page.NextCursor == "" || page.NextCursor == params.Cursor {
			return out, nil
		}
		params = &sdk.ListToolsParams{Cursor: page.NextCursor}
	}
}

// listed makes a tool's entry. The digest covers what a caller relies on: the name and the schemas. Title and
// description are those of the gateway's manifest, so an upstream that changes its own changes nothing visible.
func listed(t *sdk.Tool) (l Listed, err error) {
	l = Listed{Name: t.Name, Title: t.Title, Description: t.Description}
	if l.Title == "" && t.Annotations != nil {
		l.Title = t.Annotations.Title
	}
	if l.Input, err = plan.Marshal(t.InputSchema); err != nil {
		return l, err
	}
	if l.Output, err = plan.Marshal(t.OutputSchema); err != nil {
		return l, err
	}
	doc, err := plan.Marshal(map[string]any{"name": l.Name, "input": l.Input, "output": l.Output})
	sum := sha256.Sum256(doc)
	l.Digest = hex.EncodeToString(sum[:])
	return l, err
}

// seen holds the status of the HTTP answer to a call, where there was one.
type seen struct{ status atomic.Int64 }

type seenKey struct{}

// keyed sends the key, refuses answers from anywhere else, and bounds them.
type keyed struct {
	next http.RoundTripper
	up   Upstream
}

func (k keyed) RoundTrip(req *http.Request) (*http.Response, error) {
	if k.up.key != "" {
		req = req.Clone(req.Context())
		if k.up.Header != "" {
			req.Header.Set(k.up.Header, k.up.key)
		} else {
			req.Header.Set("Authorization", "Bearer "+k.up.key)
		}
	}
	res, err := k.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if s, ok := req.Context().Value(seenKey{}).(*seen); ok {
		s.status.Store(int64(res.StatusCode))
	}
	if res.StatusCode/100 == 3 {
		res.Body.Close()
		return nil, errors.New("the upstream answers with a redirect, which is not followed")
	}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") { // of those each event is bounded
		res.Body = &bounded{res.Body, maxListBytes}
	}
	return res, nil
}

type bounded struct {
	io.ReadCloser
	left int
}

var errTooLarge = errors.New("the upstream's answer is too large")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// hide removes the key from what an upstream answered.
func (u Upstream) hide(data []byte) []byte {
	if len(u.key) < 6 {
		return data
	}
	quoted, err := json.Marshal(u.key)
	if err != nil {
		return data
	}
	return bytes.ReplaceAll(data, bytes.Trim(quoted, `"`), []byte("[redacted]"))
}

// Names returns the names of the upstream's tools, sorted.
func Names(tools map[string]Listed) []string {
	var out []string
	for name := range tools {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
