package httpapi

import "net/http"

// Bear makes the client's calls those of a token, with its rights instead of the user's own. An empty token changes nothing.
func (c *Client) Bear(token string) {
	if token != "" {
		c.http.Transport = bearing{c.http.Transport, token}
	}
}

type bearing struct {
	http.RoundTripper
	token string
}

func (b bearing) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(req)
}
