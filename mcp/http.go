package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/gate"
)

// maxBody bounds one request on the HTTP transport, and one line on standard input.
const maxBody = 2 << 20

// Handler serves the protocol over streamable HTTP without sessions, to clients of the new revisions and of the old. The caller,
// Host and Origin are checked before: the SDK's own check of Host would refuse what a reverse
// proxy on this machine passes on.
func Handler(s *sdk.Server, log *slog.Logger) http.Handler {
	return bounded(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{
		Stateless: true, Logger: quiet(log), MaxRequestBodyBytes: maxBody, DisableLocalhostProtection: true,
		// A client that hangs up ends its wait, but no job: effects do not depend on the connection.
		PropagateRequestCancellation: true,
	}))
}

// maxBatch bounds the messages of one request: versions of the protocol before 2025-06-18 have batches.
const maxBatch = 16

// bounded refuses batches that are too long before any of their messages is carried out.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
		if err != nil {
			refuse(w, http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, "body_too_large",
				fmt.Sprintf("the body is longer than %d bytes, or did not arrive whole", maxBody))
			return
		}
		if err := gate.HoldJSON(req.Context(), len(body)); err != nil {
			refuse(w, http.StatusServiceUnavailable, jsonrpc.CodeInternalError, fault.CodeOf(err),
				fault.Prose(err)+". Next: call again in a few seconds")
			return
		}
		if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
			switch n, err := messages(trimmed); {
			case err != nil:
				refuse(w, http.StatusBadRequest, jsonrpc.CodeParseError, "not_json", "the body is not JSON")
				return
			case n > maxBatch:
				refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "batch_too_long",
					fmt.Sprintf("the batch has more than %d messages, and none of them was carried out. Next: send them in several requests",
						maxBatch))
				return
			}
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, req)
	})
}

// messages counts the elements of an array, and does not go further than it must.
func messages(array []byte) (n int, err error) {
	d := json.NewDecoder(bytes.NewReader(array))
	if _, err := d.Token(); err != nil {
		return 0, err
	}
	for d.More() {
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return n, err
		}
		if n++; n > maxBatch {
			return n, nil
		}
	}
	_, err = d.Token()
	return n, err
}

// refuse answers a request whose messages have no ids that could be answered.
func refuse(w http.ResponseWriter, status int, code int64, name, message string) {
	data, _ := json.Marshal(map[string]any{"code": name, "retryable": status == http.StatusServiceUnavailable}) // it can be encoded
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": nil,
		"error": jsonrpc.Error{Code: code, Message: message, Data: data}}) // this fails when the client has disconnected
}
