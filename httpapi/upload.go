package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"slurmgate/gate"
)

// uploadTime is how long one upload may take.
const uploadTime = 6 * time.Hour

// upload imports the body of a request as an artifact: a call of artifact.import with the bytes beside it. label, type and project_id stand
// in the query.
func upload(g *gate.Gate) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		args := map[string]any{"upload": true}
		for _, name := range []string{"label", "type", "project_id"} {
			if v := req.URL.Query().Get(name); v != "" {
				args[name] = v
			}
		}
		raw, err := json.Marshal(args)
		if err != nil {
			problem(w, err)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTime)) // the server's own is for envelopes
		who := callerOf(req.Context())
		who.Body = req.Body
		answer(w, g.Call(req.Context(), who, gate.NewRequest("artifact.import", versionOf(g, "artifact.import"), raw)))
	}
}

// Upload imports what r gives as an artifact; empty words are left to the gateway.
func (c *Client) Upload(ctx context.Context, r io.Reader, label, typ, project string) (gate.Response, error) {
	var out gate.Response
	q := url.Values{}
	for name, v := range map[string]string{"label": label, "type": typ, "project_id": project} {
		if v != "" {
			q.Set(name, v)
		}
	}
	h, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/v1/artifacts?"+q.Encode(), r)
	if err != nil {
		return out, err
	}
	h.Header.Set("Content-Type", "application/octet-stream")
	res, err := c.http.Do(h)
	if err != nil {
		return out, c.gone(ctx, err)
	}
	defer res.Body.Close()
	if res.Header.Get("Content-Type") == "application/problem+json" {
		return out, readProblem(res.Body)
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return out, c.gone(ctx, err)
	}
	return out, nil
}
