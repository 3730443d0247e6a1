package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type do = func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)

func says(content ...sdk.Content) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{Content: content}, nil
}

func words(format string, args ...any) (*sdk.CallToolResult, error) {
	return says(&sdk.TextContent{Text: fmt.Sprintf(format, args...)})
}

// One red pixel, and a sound of no length.
const (
	pixel   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	silence = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func bytesOf(s string) []byte {
	b, _ := base64.StdEncoding.DecodeString(s) // constants
	return b
}

func image() sdk.Content { return &sdk.ImageContent{Data: bytesOf(pixel), MIMEType: "image/png"} }

func embedded(uri, text string) sdk.Content {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: text}}
}

func fixtureTools() []fixture {
	var out []fixture
	add := func(name, description, input string, f do) {
		out = append(out, fixture{toolOf(name, description, input), f})
	}
	add("test_simple_text", "Says a text.", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return words("This is a simple text response for testing.")
	})
	add("test_image_content", "Shows an image.", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult,
		error) {
		return says(image())
	})
	add("test_audio_content", "Plays a sound.", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return says(&sdk.AudioContent{Data: bytesOf(silence), MIMEType: "audio/wav"})
	})
	add("test_embedded_resource", "Embeds a resource.", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return says(embedded("test://embedded-resource", "This is an embedded resource content."))
	})
	add("test_multiple_content_types", "Says, shows and embeds.", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult,
		error) {
		return says(&sdk.TextContent{Text: "Multiple content types test:"}, image(),
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "test://mixed-content-resource", MIMEType: "application/json",
				Text: `{"test":"data"}`}})
	})
	add("test_error_handling", "Fails.", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "This tool intentionally returns an error for " +
			"testing"}}}, nil
	})
	add("test_tool_with_progress", "Reports progress.", "", withProgress)
	add("test_tool_with_logging", "Logs as it goes.", "", withLogging)
	add("test_logging_tool", "Logs, if the client asked for it.", "", withLogging)
	add("test_streaming_elicitation", "Answers without asking anything.", "",
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return words("nothing was asked on this stream")
		})
	add("test_missing_capability", "Needs a client that can sample.", "", missingCapability)
	add("json_schema_2020_12_tool", "Has a schema with the vocabulary of 2020-12.", schema2020,
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return words("ok") })
	add("test_x_mcp_header", "Mirrors an argument in a header.",
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`,
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return words("%s", r.Params.Arguments)
		})
	return append(out, asking()...)
}

const schema2020 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`

func withProgress(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	for _, n := range []float64{0, 50, 100} {
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: n, Total: 100, Message: "on the way"})
		}
		time.Sleep(50 * time.Millisecond)
	}
	return words("done")
}

func withLogging(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	for _, s := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		_ = r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: s})
		time.Sleep(50 * time.Millisecond)
	}
	return words("logged, where that was wanted")
}

func missingCapability(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if caps := r.ClientCapabilities(); caps != nil && caps.Sampling != nil {
		return words("the client can sample")
	}
	data, err := json.Marshal(map[string]any{"requiredCapabilities": map[string]any{"sampling": map[string]any{}}})
	if err != nil {
		return nil, err
	}
	return nil, &jsonrpc.Error{Code: sdk.CodeMissingRequiredClientCapabilities, Message: "the client declares no sampling", Data: data}
}

// question is what a tool asks of a client in the middle of a call.
func question(kind string) sdk.InputRequest {
	switch kind {
	case "sampling":
		return &sdk.CreateMessageParams{Messages: []*sdk.SamplingMessage{{Role: "user",
			Content: &sdk.TextContent{Text: "What is the capital of France?"}}}, MaxTokens: 100}
	case "roots":
		return &sdk.ListRootsParams{}
	case "confirm":
		return &sdk.ElicitParams{Message: "Please confirm",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)}
	case "color":
		return &sdk.ElicitParams{Message: "Which colour?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}`)}
	}
	return &sdk.ElicitParams{Message: "What is your name?",
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)}
}

func ask(state string, questions sdk.InputRequestMap) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{InputRequests: questions, RequestState: seal(state)}, nil
}

// seal and unseal keep a client from changing what it carries for us.
func seal(state string) string {
	if state == "" {
		return ""
	}
	return state + "." + mac(state)
}

func mac(s string) string {
	m := hmac.New(sha256.New, []byte("a key of this fixture"))
	m.Write([]byte(s))
	return hex.EncodeToString(m.Sum(nil))
}

func unseal(sealed string) (string, error) {
	i := strings.LastIndexByte(sealed, '.')
	if i < 0 || !hmac.Equal([]byte(mac(sealed[:i])), []byte(sealed[i+1:])) {
		return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "this requestState is not ours"}
	}
	return sealed[:i], nil
}

// accepted is what a person answered, "" when nothing was.
func accepted(r *sdk.CallToolRequest, key, field string) string {
	a, ok := r.Params.InputResponses[key].(*sdk.ElicitResult)
	if !ok || a == nil || a.Action != "accept" || a.Content == nil {
		return ""
	}
	return fmt.Sprint(a.Content[field])
}

func sampled(r *sdk.CallToolRequest, key string) (string, bool) {
	a, ok := r.Params.InputResponses[key].(*sdk.CreateMessageWithToolsResult)
	if !ok || a == nil {
		return "", false
	}
	for _, c := range a.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			return t.Text, true
		}
	}
	return "", true
}

func rooted(r *sdk.CallToolRequest, key string) (int, bool) {
	a, ok := r.Params.InputResponses[key].(*sdk.ListRootsResult)
	if !ok || a == nil {
		return 0, false
	}
	return len(a.Roots), true
}

// asking are the tools that answer with a question first. The product has none: its consent goes another way.
func asking() []fixture {
	var out []fixture
	add := func(name string, f do) {
		out = append(out, fixture{toolOf("test_input_required_result_"+name, "Asks the client in the middle of the call.", ""), f})
	}
	add("elicitation", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if n := accepted(r, "user_name", "name"); n != "" {
			return words("Hello, %s!", n)
		}
		return ask("", sdk.InputRequestMap{"user_name": question("name")})
	})
	add("sampling", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if s, ok := sampled(r, "capital_question"); ok {
			return words("Sampling response: %s", s)
		}
		return ask("", sdk.InputRequestMap{"capital_question": question("sampling")})
	})
	add("list_roots", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if n, ok := rooted(r, "client_roots"); ok {
			return words("Client exposed %d root(s)", n)
		}
		return ask("", sdk.InputRequestMap{"client_roots": question("roots")})
	})
	confirm := func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if r.Params.RequestState != "" {
			if _, err := unseal(r.Params.RequestState); err != nil {
				return nil, err
			}
			if accepted(r, "confirm", "ok") != "" {
				return words("state-ok: the state came back as it was")
			}
		}
		return ask("confirming", sdk.InputRequestMap{"confirm": question("confirm")})
	}
	add("request_state", confirm)
	add("tampered_state", confirm)
	add("multiple_inputs", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		name := accepted(r, "user_name", "name")
		greeting, hasGreeting := sampled(r, "greeting")
		roots, hasRoots := rooted(r, "client_roots")
		if name != "" && hasGreeting && hasRoots {
			return words("%s %s, %d roots", greeting, name, roots)
		}
		return ask("several", sdk.InputRequestMap{"user_name": question("name"), "greeting": question("sampling"),
			"client_roots": question("roots")})
	})
	add("multi_round", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if r.Params.RequestState == "" {
			return ask("1", sdk.InputRequestMap{"step1": question("name")})
		}
		state, err := unseal(r.Params.RequestState)
		if err != nil {
			return nil, err
		}
		if name, second := strings.CutPrefix(state, "2:"); second {
			return words("%s likes %s", name, accepted(r, "step2", "color"))
		}
		return ask("2:"+accepted(r, "step1", "name"), sdk.InputRequestMap{"step2": question("color")})
	})
	add("capabilities", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if len(r.Params.InputResponses) > 0 {
			return words("what could be asked was answered")
		}
		questions, caps := sdk.InputRequestMap{}, r.ClientCapabilities()
		if caps != nil && caps.Elicitation != nil {
			questions["user_name"] = question("name")
		}
		if caps != nil && caps.Sampling != nil {
			questions["greeting"] = question("sampling")
		}
		if caps != nil && caps.RootsV2 != nil {
			questions["client_roots"] = question("roots")
		}
		if len(questions) == 0 {
			return words("this client can be asked nothing")
		}
		return ask("", questions)
	})
	return out
}
