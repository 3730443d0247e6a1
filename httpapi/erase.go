package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"slurmgate/fault"
	"slurmgate/gate"
)

const eraseID = "secret.erase"

// erase serves POST /v1/secrets:erase: the body is the secret, reason and dry_run are in the query. The answer is an
// envelope.
func (f *face) erase(w http.ResponseWriter, req *http.Request, e endpoint) {
	given, err := arguments(req.URL, e.types)
	if err == nil && req.Header.Get("Content-Type") != uploadType {
		err = fault.Invalid("", fault.Problem{Code: "BODY-TYPE", Field: "Content-Type", Rule: uploadType,
			Msg: "the body must be the secret itself"})
	}
	if err != nil {
		f.malformed(w, req, eraseID, http.StatusBadRequest, err)
		return
	}
	args, err := json.Marshal(given)
	if err != nil {
		problem(w, err)
		return
	}
	who := CallerOf(req.Context())
	who.Body = req.Body
	answer(w, f.Gate.Call(f.effect(req, eraseID, false), who, f.request(req, eraseID, args)))
}

// Erase has a secret erased, or with dry only searched for.
func (c *Client) Erase(ctx context.Context, secret io.Reader, reason string, dry bool) (gate.Response, error) {
	q := url.Values{"reason": {reason}}
	if dry {
		q.Set("dry_run", "true")
	}
	var out gate.Response
	err := c.read(ctx, http.MethodPost, "/v1/secrets:erase?"+q.Encode(), uploadType, secret, &out)
	return out, err
}
