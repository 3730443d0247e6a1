// Command conformance serves the face for chats to the public suites of the protocol (scripts/mcp-conformance). It is the product's
// own server behind the product's own HTTP face and gate; what is its own are the tools, resources and prompts with the names the
// suites ask for. Each of these tools is in the registry of a real gate, and each call of one passes it.
//
//	conformance [-listen 127.0.0.1:0] [-token TOKEN] [-stdio]
//
// With -token requests need that bearer token; without, they are let in as if they had it, because the conformance suite sends none.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	token := flag.String("token", "", "the bearer token requests need")
	stdio := flag.Bool("stdio", false, "serve standard input and output instead")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	fixtures := fixtureTools()
	registry, err := gate.NewRegistry(registryTools(fixtures)...)
	if err != nil {
		return err
	}
	g := gate.New(gate.Config{Registry: registry})
	chat := mcp.New(mcp.Config{Gateway: behind{g}, Name: "conformance", Version: "1.0.0", Log: log})
	for _, f := range fixtures {
		chat.AddTool(&sdk.Tool{Name: f.tool.Name(), Title: f.tool.Title, Description: f.tool.Description, InputSchema: f.tool.Input},
			f.through(g))
	}
	addResources(chat)
	addPrompts(chat)
	if *stdio {
		return mcp.Serve(ctx, chat, os.Stdin, os.Stdout)
	}
	stopping := make(chan struct{})
	face := httpapi.Handler(httpapi.Config{Gate: g, Auth: holder(orElse(*token)), DomainID: "conformance",
		Version: func(gate.Caller) string { return "1.0.0" }, MCP: mcp.Handler(chat, log), Log: log}, stopping)
	if *token == "" {
		face = letIn(face)
	}
	port, err := httpapi.Serve(httpapi.PortConfig{Listen: *listen, Limits: httpapi.Limits{Connections: 256}}, face,
		sync.OnceFunc(func() { close(stopping) }), log)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", port.Addr())
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return port.Shutdown(end)
}

const anyToken = "conformance"

func orElse(token string) string {
	if token == "" {
		return anyToken
	}
	return token
}

// letIn gives every request the token.
func letIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Header.Set("Authorization", "Bearer "+anyToken)
		next.ServeHTTP(w, req)
	})
}

// holder knows one token.
type holder string

// Peer implements gate.Authenticator.
func (holder) Peer(int) (gate.Principal, error) {
	return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "there is no socket here")
}

// Bearer implements gate.Authenticator.
func (h holder) Bearer(_ context.Context, token string) (gate.Principal, error) {
	if token != string(h) {
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "the access token is not valid here")
	}
	return gate.Principal{Name: "token:suite", Method: gate.ByToken, Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}, nil
}

// behind is the gate as the face reaches it.
type behind struct{ *gate.Gate }

// Tools implements mcp.Gateway.
func (b behind) Tools() []gate.Tool { return b.Registry().List() }

// Visible implements mcp.Gateway.
func (b behind) Visible(ctx context.Context, t gate.Tool) bool { return b.Gate.Visible(caller(ctx), t) }

// Call implements mcp.Gateway.
func (b behind) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	return b.Gate.Call(ctx, caller(ctx), req), nil
}

// caller is the face's, or on standard input and output the process.
func caller(ctx context.Context) gate.Caller {
	if who := httpapi.CallerOf(ctx); who.Name != "" {
		return who
	}
	who := gate.Process()
	who.Transport = gate.MCP
	return who
}

// fixture is a tool the suites ask for. What they want to see – images, questions to the client – is no result of a tool here; so the
// handler, once the gate has called it, says it past the gate's answer.
type fixture struct {
	tool gate.Tool
	do   func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error)
}

type turnKey struct{}

// turn is one call on its way through the gate.
type turn struct {
	request *sdk.CallToolRequest
	result  *sdk.CallToolResult
	err     error
}

func (f fixture) through(g *gate.Gate) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		t := &turn{request: r}
		args := r.Params.Arguments
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		req := gate.NewRequest(f.tool.ID, f.tool.Version, args)
		req.Actor = gate.Actor{Kind: "agent"}
		res := g.Call(context.WithValue(ctx, turnKey{}, t), caller(ctx), req)
		switch {
		case res.Error != nil:
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: res.Error.Message}}}, nil
		case t.result == nil && t.err == nil:
			return nil, errors.New("the gate did not call the tool")
		}
		return t.result, t.err
	}
}

func registryTools(fixtures []fixture) []gate.Tool {
	var out []gate.Tool
	for _, f := range fixtures {
		t := f.tool
		t.Handle = func(ctx context.Context, _ gate.Call) (any, error) {
			t, ok := ctx.Value(turnKey{}).(*turn)
			if !ok {
				return map[string]any{}, nil
			}
			t.result, t.err = f.do(ctx, t.request)
			return map[string]any{}, nil
		}
		out = append(out, t)
	}
	return append(out, artifactTools()...)
}

func toolOf(name, description, input string) gate.Tool {
	if input == "" {
		input = `{"type":"object"}`
	}
	return gate.Tool{ID: strings.ReplaceAll(name, "_", "."), Version: "1.0.0", ContractVersion: "v1", Title: name, Description: description,
		SideEffect: gate.Read, Idempotency: gate.Idempotent,
		Determinism: gate.BestEffort, Availability: gate.OfflineOK, Capabilities: []string{gate.CapRead}, Bindings: []gate.Transport{gate.MCP},
		Input: json.RawMessage(input), Output: json.RawMessage(`{"type":"object"}`)}
}

// artifactTools are three operations with the product's names and one artifact behind them.
func artifactTools() []gate.Tool {
	const id = "art_45G7QPW5RFS0CCAGQR83T82KBN"
	doc := map[string]any{"artifact_id": id, "type": "TEXT", "label": "a text", "size_bytes": 6}
	make := func(name, input string, result any) gate.Tool {
		t := toolOf(name, "An operation of the gateway.", input)
		t.Capabilities, t.Chat.Has = []string{gate.CapGateway, gate.CapRead}, true
		t.Handle = func(_ context.Context, c gate.Call) (any, error) {
			if input != "" && !strings.Contains(string(c.Args), id) {
				return nil, fault.New(fault.NotFound, "artifact_not_found", "there is no such artifact").
					WithNext("artifact_list shows what there is")
			}
			return result, nil
		}
		return t
	}
	one := `{"type":"object","additionalProperties":false,"required":["artifact_id"],"properties":{"artifact_id":{"type":"string","maxLength":64},"max_lines":{"type":"integer"}}}`
	return []gate.Tool{make("artifact_list", "", map[string]any{"artifacts": []any{doc}, "cursor": nil}), make("artifact_get", one, doc),
		make("artifact_preview_text", one, map[string]any{"artifact_id": id, "type": "TEXT", "size_bytes": 6, "text": "hello\n",
			"truncated": false, "binary": false})}
}
