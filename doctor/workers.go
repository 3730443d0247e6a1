package doctor

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/google/uuid"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/toolpack"
	"slurmgate/worker"
)

// workerChecks returns the checks of the domain's service workers.
func workerChecks() []Check {
	return []Check{{
		Code: "worker_urls", Proves: "Calls of service workers that leave this host are encrypted.", Where: Gateway, Early: true,
		Needs:  []string{domainCode},
		Remedy: "serve the worker over https, or from this host's loopback address", Look: workerURLs,
	}, {
		Code: "workers", Proves: "Each service worker answers, by the worker contract, and its clock is that of this host.", Where: Gateway,
		Needs:  []string{domainCode},
		Remedy: "start the worker, and set base_url of its entry in manifest.yaml to its address", Look: workers,
	}}
}

// places returns the services, the first at each URL.
func (x *Exam) places() (list []toolpack.Service) {
	seen := map[string]bool{}
	for _, s := range x.Domain.Services() {
		if !seen[s.URL] {
			list = append(list, s)
		}
		seen[s.URL] = true
	}
	return list
}

func workerURLs(_ context.Context, x *Exam) (results []Result) {
	for _, s := range x.places() {
		u, err := url.Parse(s.URL)
		if err != nil {
			return failed("", err)
		}
		ip := net.ParseIP(u.Hostname())
		if u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			continue
		}
		results = append(results, warning("serve it over https, or on a network that only this host and the worker are on",
			"%s is called at %s://%s without encryption: others on the way can read its inputs, and answer in its place", s.ID, u.Scheme, u.Host)...)
	}
	if len(results) == 0 {
		return ok("")
	}
	return results
}

const workerTime = 5 * time.Second // for one worker to answer

func workers(ctx context.Context, x *Exam) (results []Result) {
	list := x.places()
	for _, s := range list {
		results = append(results, lookAtWorker(ctx, s, worker.Config{})...)
	}
	if len(results) == 0 {
		return ok("%s", plural(len(list), "service worker"))
	}
	return results
}

// lookAtWorker returns the faults of a worker.
func lookAtWorker(ctx context.Context, s toolpack.Service, c worker.Config) (results []Result) {
	ctx, stop := context.WithTimeout(ctx, workerTime)
	defer stop()
	c.URLs = []string{s.URL}
	before := time.Now()
	seen := worker.New(c).Probe(ctx, s.URL, s.Headers, uuid.NewString())
	whose := "the worker of " + s.ID
	switch fault.CodeOf(seen.Answer) {
	case worker.TimedOut, worker.Validation:
	case worker.Away:
		results = failed("start it, or set base_url of its entry in manifest.yaml to its address; for https it needs a certificate of an "+
			"authority that this host trusts", seen.Answer)
	case worker.Unknown:
		results = bad("restart the worker and see its log", "%s accepts connections and does not answer within %s", whose, workerTime)
	case worker.Envelope:
		results = failed("correct the worker (docs/tools/workers.md has the contract), or set base_url and endpoint of its entry in "+
			"manifest.yaml to its address", seen.Answer)
	default:
		said := "accepts it"
		if seen.Answer != nil {
			said = fmt.Sprintf("has another answer (%s)", fault.CodeOf(seen.Answer))
		}
		results = warning("make the worker refuse such calls: it answers others after the gateway has given them up",
			"%s should answer TIMEOUT or VALIDATION_ERROR to a call without input whose deadline passed long ago, and %s", whose, said)
	}
	if !seen.Clock.IsZero() { // whole seconds
		for _, r := range skew(whose, seen.Clock, before.Add(-time.Second), time.Now()) {
			if r.Status != app.CheckOK {
				r.Remedy = "keep both clocks by NTP: the worker judges deadlines by its own"
				results = append(results, r)
			}
		}
	}
	return results
}
