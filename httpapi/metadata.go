package httpapi

import (
	"net/http"
	"strings"
)

// metadataPath is where a refused client finds the issuers of access tokens (RFC 9728; MCP's authorization asks for
// it).
const metadataPath = "/.well-known/oauth-protected-resource"

type metadataDoc struct {
	Resource             string   `json:"resource"`
	ResourceName         string   `json:"resource_name"`
	AuthorizationServers []string `json:"authorization_servers"`
	BearerMethods        []string `json:"bearer_methods_supported"`
}

func (f *face) metadata(w http.ResponseWriter, req *http.Request) {
	resource := f.base(req)
	if strings.HasSuffix(req.URL.Path, "/mcp") {
		resource += "/mcp"
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	writeJSON(w, http.StatusOK, "application/json", metadataDoc{resource, "slurmgate " + f.DomainID, orEmpty(f.Issuers), []string{"header"}})
}

// base returns the port's address as its client knows it. The port has checked the Host header.
func (f *face) base(req *http.Request) string {
	if f.PublicURL != "" {
		return f.PublicURL
	}
	return "http://" + req.Host
}

// challenge returns the WWW-Authenticate header for a refused caller.
func (f *face) challenge(req *http.Request) string {
	if len(f.Issuers) == 0 {
		return "Bearer"
	}
	path := metadataPath
	if req.URL.Path == "/mcp" {
		path += "/mcp"
	}
	return `Bearer resource_metadata="` + f.base(req) + path + `"`
}
