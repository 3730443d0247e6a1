package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func addResources(s *sdk.Server) {
	read := func(mime, text string, blob []byte) sdk.ResourceHandler {
		return func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: mime, Text: text, Blob: blob}}}, nil
		}
	}
	s.AddResource(&sdk.Resource{Name: "static-text", URI: "test://static-text", MIMEType: "text/plain"},
		read("text/plain", "This is the content of the static text resource.", nil))
	s.AddResource(&sdk.Resource{Name: "static-binary", URI: "test://static-binary", MIMEType: "image/png"},
		read("image/png", "", bytesOf(pixel)))
	s.AddResourceTemplate(&sdk.ResourceTemplate{Name: "template", URITemplate: "test://template/{id}/data", MIMEType: "application/json"},
		func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "application/json",
				Text: string(text)}}}, err
		})
}

func addPrompts(s *sdk.Server) {
	user := func(c ...sdk.Content) *sdk.GetPromptResult {
		out := &sdk.GetPromptResult{}
		for _, x := range c {
			out.Messages = append(out.Messages, &sdk.PromptMessage{Role: "user", Content: x})
		}
		return out
	}
	text := func(format string, args ...any) sdk.Content {
		return &sdk.TextContent{Text: fmt.Sprintf(format, args...)}
	}
	s.AddPrompt(&sdk.Prompt{Name: "test_simple_prompt", Description: "A prompt."},
		func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return user(text("This is a simple prompt for testing.")), nil
		})
	s.AddPrompt(&sdk.Prompt{Name: "test_prompt_with_arguments", Description: "A prompt with arguments.",
		Arguments: []*sdk.PromptArgument{{Name: "arg1", Required: true}, {Name: "arg2", Required: true}}},
		func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return user(text("Prompt with arguments: arg1='%s', arg2='%s'", r.Params.Arguments["arg1"], r.Params.Arguments["arg2"])), nil
		})
	s.AddPrompt(&sdk.Prompt{Name: "test_prompt_with_embedded_resource", Description: "A prompt with a resource in it.",
		Arguments: []*sdk.PromptArgument{{Name: "resourceUri", Required: true}}},
		func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return user(embedded(r.Params.Arguments["resourceUri"], "Embedded resource content for testing."),
				text("Please process the embedded resource above.")), nil
		})
	s.AddPrompt(&sdk.Prompt{Name: "test_prompt_with_image", Description: "A prompt with an image in it."},
		func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return user(image(), text("Please analyze the image above.")), nil
		})
	s.AddPrompt(&sdk.Prompt{Name: "test_input_required_result_prompt", Description: "A prompt that asks first."}, func(_ context.Context,
		r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		if a, ok := r.Params.InputResponses["user_context"].(*sdk.ElicitResult); ok && a != nil && a.Action == "accept" {
			return user(text("Context: %v", a.Content["context"])), nil
		}
		return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"user_context": &sdk.ElicitParams{Message: "What context should the " +
			"prompt use?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}`)}}}, nil
	})
}
