package httpapi

import (
	_ "embed"
	"net/http"
)

// Document is the OpenAPI 3.1 document of the face. The tests hold every request and answer they make against it.
//
//go:embed openapi.json
var Document []byte

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(Document) // the peer is gone if this fails
}
