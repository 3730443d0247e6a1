package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func chatCall(name, args string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":` + args + `}}`
}

// ratios races single requests in blocks, one kind after the other.
func (m *measurement) ratios(ctx context.Context, o *gatewayUnderTest) error {
	bare, echo, stop, err := bareServers()
	if err != nil {
		return err
	}
	defer stop()
	run := func() string { return o.runs[rand.IntN(len(o.runs))] }
	kinds := []struct {
		name string
		ask  func() error
	}{
		{"bare", func() error { return o.ask(ctx, "GET", bare+"/v1/runs/"+run(), "", "target_run_id") }},
		{"http", func() error { return o.ask(ctx, "GET", "/v1/runs/"+run(), "", "target_run_id") }},
		{"tools", func() error { return o.ask(ctx, "GET", "/v1/tools", "", "seqkit.stats") }},
		{"echo", func() error {
			return o.ask(ctx, "POST", echo, chatCall("echo", `{"run_id":"`+run()+`"}`), "structuredContent")
		}},
		{"mcp", func() error {
			return o.ask(ctx, "POST", "/mcp", chatCall("slurm_job_get", `{"run_id":"`+run()+`"}`), "structuredContent")
		}},
	}
	took := map[string][]time.Duration{}
	for round := range m.sizes.Rounds + 1 {
		for _, k := range kinds {
			for range m.sizes.Block {
				t, err := timed(k.ask)
				if err != nil {
					return err
				}
				if round > 0 { // the first round warms up
					took[k.name] = append(took[k.name], t)
				}
			}
		}
	}
	for _, k := range kinds {
		m.print("single_"+k.name, ms(median(took[k.name])), "ms", "", fmt.Sprint("requests=", len(took[k.name])),
			"p99="+number(ms(quantile(took[k.name], 0.99))))
	}
	ratio := func(a, b string) float64 { return float64(median(took[a])) / float64(median(took[b])) }
	m.print("http_list_to_bare_chi", ratio("tools", "bare"), "ratio", "")
	m.print("http_look_to_bare_chi", ratio("http", "bare"), "ratio", "")
	m.print("mcp_look_to_sdk_echo", ratio("mcp", "echo"), "ratio", "")
	return nil
}

// bareServers give the same answer without a gateway behind it: one with chi, one with the SDK's own tool.
func bareServers() (bare, echo string, stop func(), err error) {
	answer := `{"provenance_run_id":"run_X","target_run_id":"run_X","slurm_job_id":"1","state":"queued","phase":"pending","reason":"PartitionDown","exit_code":null,"artifacts_by_role":{},"observed_at":null,"poll_after_seconds":60,"warnings":[]}`
	r := chi.NewRouter()
	r.Get("/v1/runs/{run_id}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer) // the peer has left if this fails
	})
	s := sdk.NewServer(&sdk.Implementation{Name: "echo", Version: "1"}, nil)
	type args struct {
		RunID string `json:"run_id"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "echo"}, func(_ context.Context, _ *sdk.CallToolRequest, a args) (*sdk.CallToolResult, args, error) {
		return nil, a, nil
	})
	r.Handle("/mcp", sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	server := &http.Server{Handler: r}
	go func() { _ = server.Serve(l) }() // ends with stop
	url := "http://" + l.Addr().String()
	return url, url + "/mcp", func() { server.Close() }, nil
}
