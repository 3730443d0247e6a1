package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"slurmgate/fault"
)

// Sight is a worker's answer to a probe.
type Sight struct {
	Clock  time.Time // of its answer; zero: unknown
	Answer error     // to a call that must be refused, as [Client.Call] reports it; nil: the worker accepted that call
}

// Probe makes a call that no worker carries out: it has no input, and its deadline passed in 1970. A worker of the contract answers TIMEOUT
// or VALIDATION_ERROR.
func (c *Client) Probe(ctx context.Context, url string, headers map[string]string, id string) Sight {
	m := Meta{TraceID: id, ToolRunID: id, DomainID: "doctor", DeadlineMS: 1}
	body, err := json.Marshal(struct {
		Meta Meta `json:"meta"`
	}{m})
	if err != nil {
		return Sight{Answer: fault.Wrap(fault.Internal, "", "cannot encode a probe", err)}
	}
	resp, err := c.exchange(ctx, url, headers, body)
	if err != nil {
		return Sight{Answer: err}
	}
	_, err = c.read(url, resp, m)
	clock, _ := http.ParseTime(resp.date) // zero if absent
	return Sight{clock, err}
}
