package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/plan"
)

// The codes of the worker contract.
const (
	upstreamError   = "UPSTREAM_ERROR"
	validationError = "VALIDATION_ERROR"
	timeoutError    = "TIMEOUT"
)

// The reasons in an error's details.
const (
	reasonAway    = "upstream_away"   // it cannot be reached; nothing was sent
	reasonStatus  = "upstream_status" // the HTTP status it answered with
	reasonChanged = "schema_changed"  // the tool is another one than the manifest pins
	reasonGone    = "tool_gone"       // the upstream has no such tool any more
	reasonUnknown = "tool_unknown"    // the adapter's configuration has no such tool
	reasonTool    = "tool_error"      // the tool itself reports it (isError)
	reasonRefused = "call_refused"    // the upstream refused the call (a JSON-RPC error)
	reasonDoubt   = "outcome_unknown" // the call was sent, and no answer came
	reasonLarge   = "answer_too_large"
	reasonAsks    = "needs_input"  // the tool needs a person's answer, and there is no person
	reasonBusy    = "adapter_busy" // no slot until the deadline; nothing was sent
)

// problem is the error of an answer.
type problem struct {
	Code      string         `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details"`
}

func failure(code, reason, message string, retryable bool) *problem {
	return &problem{Code: code, Message: message, Retryable: retryable, Details: map[string]any{"reason": reason}}
}

// output is a tool's answer, in the form that the schema files of this package describe.
type output struct {
	Text       string          `json:"text"`                 // all texts, an empty line between them
	Structured json.RawMessage `json:"structured,omitempty"` // of the upstream's output schema, where it has one
	Media      []media         `json:"media,omitempty"`
	Links      []link          `json:"links,omitempty"`
	LeftOut    []leftOut       `json:"left_out,omitempty"`
}

// media is an image, a sound or a file within the answer.
type media struct {
	Kind     string `json:"kind"` // image, audio, resource
	MIMEType string `json:"mime_type"`
	URI      string `json:"uri,omitempty"`
	Text     string `json:"text,omitempty"`
	Base64   []byte `json:"data_base64,omitempty"`
}

type link struct {
	URI      string `json:"uri"`
	Name     string `json:"name"`
	MIMEType string `json:"mime_type,omitempty"`
}

// leftOut names what was too large.
type leftOut struct {
	Kind     string `json:"kind"`
	MIMEType string `json:"mime_type"`
	Bytes    int    `json:"bytes"`
}

const maxText = 2000 // bytes of an error's message

// callTool carries out one call on a connection.
func (c *Client) callTool(ctx context.Context, session *sdk.ClientSession, name string, input json.RawMessage) (json.RawMessage, *problem) {
	status := &seen{}
	res, err := session.CallTool(context.WithValue(ctx, seenKey{}, status), &sdk.CallToolParams{Name: name, Arguments: input})
	if err != nil {
		return nil, c.callFailed(ctx, session, int(status.status.Load()), err)
	}
	if len(res.InputRequests) > 0 {
		return nil, failure(upstreamError, reasonAsks, "the tool asks for input, which cannot be given here", false)
	}
	out, err := c.outputOf(res)
	if err != nil {
		return nil, failure(upstreamError, reasonRefused, "the upstream's answer cannot be read: "+fault.First(err), false)
	}
	if res.IsError {
		p := failure(upstreamError, reasonTool, fault.ClipTo(out.Text, maxText), false)
		if p.Message == "" {
			p.Message = "the tool failed and does not say why"
		}
		if len(out.Structured) > 0 && len(out.Structured) <= maxText {
			p.Details["structured"] = out.Structured
		}
		return nil, p
	}
	doc, err := plan.Marshal(out)
	switch {
	case err != nil:
		return nil, failure(upstreamError, reasonRefused, "the upstream's answer is not JSON that can be passed on: "+fault.First(err), false)
	case len(doc) > c.config.AnswerBytes:
		return nil, failure(upstreamError, reasonLarge, fmt.Sprintf("the tool ran, and its answer has %d bytes; the adapter passes on at most %d",
			len(doc), c.config.AnswerBytes), false)
	}
	return doc, nil
}

// callFailed returns why a call has no result. A call that was sent and not answered is in doubt.
func (c *Client) callFailed(ctx context.Context, session *sdk.ClientSession, status int, err error) *problem {
	said, refused := errors.AsType[*jsonrpc.Error](err)
	switch {
	case ctx.Err() != nil: // the SDK has sent the cancellation
		return failure(timeoutError, reasonDoubt, "the upstream did not answer before the deadline; the call was cancelled there", false)
	case status >= 400:
		c.lost(session)
		return badStatus(status)
	case refused && said.Code == jsonrpc.CodeInvalidParams:
		return failure(validationError, reasonRefused, fault.ClipTo(said.Message, maxText), false)
	case refused:
		p := failure(upstreamError, reasonRefused, fault.ClipTo(said.Message, maxText), false)
		p.Details["jsonrpc_code"] = said.Code
		return p
	}
	c.lost(session)
	return failure(upstreamError, reasonDoubt,
		"the connection to the upstream was lost during the call: "+fault.ClipTo(err.Error(), maxText), false)
}

// badStatus returns the error of an HTTP status (AX-06).
func badStatus(status int) *problem {
	p := failure(upstreamError, reasonStatus, fmt.Sprintf("the upstream answered with status %d", status), status == 401 || status >= 500)
	p.Details["status"] = status
	return p
}

// outputOf turns a result into an output. What does not fit is left out and named.
func (c *Client) outputOf(res *sdk.CallToolResult) (out output, err error) {
	var texts []string
	room := c.config.ImageBytes
	add := func(m media) {
		if n := len(m.Base64) + len(m.Text); n > room {
			out.LeftOut = append(out.LeftOut, leftOut{m.Kind, m.MIMEType, n})
		} else {
			room -= n
			out.Media = append(out.Media, m)
		}
	}
	for _, part := range res.Content {
		switch p := part.(type) {
		case *sdk.TextContent:
			texts = append(texts, p.Text)
		case *sdk.ImageContent:
			add(media{Kind: "image", MIMEType: p.MIMEType, Base64: p.Data})
		case *sdk.AudioContent:
			add(media{Kind: "audio", MIMEType: p.MIMEType, Base64: p.Data})
		case *sdk.ResourceLink:
			out.Links = append(out.Links, link{p.URI, p.Name, p.MIMEType})
		case *sdk.EmbeddedResource:
			if r := p.Resource; r != nil {
				add(media{Kind: "resource", MIMEType: r.MIMEType, URI: r.URI, Text: r.Text, Base64: r.Blob})
			}
		default:
			out.LeftOut = append(out.LeftOut, leftOut{Kind: "unknown"})
		}
	}
	out.Text = strings.Join(texts, "\n\n")
	if res.StructuredContent != nil {
		out.Structured, err = plan.Marshal(res.StructuredContent)
	}
	return out, err
}
