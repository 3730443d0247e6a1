package mcp

import (
	"log/slog"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxBody bounds one request on the HTTP transport, and one line on standard input.
const maxBody = 2 << 20

// Handler serves the protocol over streamable HTTP without sessions, to clients of the new revisions and of the old. The caller,
// Host and Origin are checked before: the SDK's own check of Host would refuse what a reverse
// proxy on this machine passes on.
func Handler(s *sdk.Server, log *slog.Logger) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{
		Stateless: true, Logger: log, MaxRequestBodyBytes: maxBody, DisableLocalhostProtection: true,
		// A client that hangs up ends its wait, but no job: effects do not depend on the connection.
		PropagateRequestCancellation: true,
	})
}
