package rest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

const (
	noReceipt = "no_receipt"

	maxScript = 16 << 20 // bytes; slurmctld accepts 4 MiB by default
)

// sends holds the posts that this process has begun, by token and number. A restarted gateway has none: a send whose
// result it did not record is in doubt, and is settled by the job's name and the claim.
type sends struct {
	mu    sync.Mutex
	known map[string]*send
	order []string
}

type send struct {
	done chan struct{}
	res  run.SendResult // once done is closed
}

const maxSends = 4096

// begin returns the send of that name, and whether it is new.
func (s *sends) begin(name string) (*send, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.known[name]; had != nil {
		return had, false
	}
	if s.known == nil {
		s.known = map[string]*send{}
	}
	if len(s.order) == maxSends {
		delete(s.known, s.order[0])
		s.order = s.order[1:]
	}
	n := &send{done: make(chan struct{})}
	s.known[name], s.order = n, append(s.order, name)
	return n, true
}

func (s *sends) find(name string) *send {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name]
}

func sendName(job run.JobSpec, k int) string { return job.Token + "." + strconv.Itoa(k) }

// Send posts the job; run.Submitter has the contract. The post continues when ctx ends, and Receipt returns its result.
func (s *Slurm) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	argv, err := s.Argv(job)
	if err != nil {
		return notRun("job_spec", run.ScopeRun, err)
	}
	if err := ctx.Err(); err != nil {
		return notRun("rpc_budget", run.ScopeRun, err) // the caller no longer waits
	}
	n, first := s.sends.begin(sendName(job, k))
	if !first {
		res, _ := s.Receipt(ctx, job, k)
		return res
	}
	go func() {
		defer close(n.done)
		n.res = s.post(context.WithoutCancel(ctx), job, argv)
	}()
	select {
	case <-n.done:
		return n.res
	case <-ctx.Done():
		return run.SendResult{Outcome: run.SendDoubt, Code: run.SendHeld, Text: "the gateway stopped waiting; the request continues"}
	}
}

// Receipt returns what an earlier send of this process proved; run.Submitter has the contract.
func (s *Slurm) Receipt(_ context.Context, job run.JobSpec, k int) (res run.SendResult, held bool) {
	n := s.sends.find(sendName(job, k))
	if n == nil {
		return run.SendResult{Outcome: run.SendDoubt, Code: noReceipt, Text: "the gateway has no answer of slurmrestd to this send"}, false
	}
	select {
	case <-n.done:
		return n.res, false
	default:
		return run.SendResult{Outcome: run.SendDoubt, Code: run.SendHeld, Text: "slurmrestd has not answered yet"}, true
	}
}

// post sends the job once.
func (s *Slurm) post(ctx context.Context, job run.JobSpec, argv []string) run.SendResult {
	ctx, cancel := context.WithTimeout(ctx, s.sendTime(ctx))
	defer cancel()
	file, err := s.cfg.Control(ctx, job.RunID, job.N, path.Base(argv[len(argv)-1]), 0, maxScript+1)
	script := file.Data
	if err == nil && len(script) > maxScript {
		err = fmt.Errorf("the script is larger than %d bytes", maxScript)
	}
	if err != nil {
		return notRun("SCRIPT_UNREADABLE", run.ScopeRun, err)
	}
	v, err := s.client.negotiated(ctx)
	if err != nil {
		return notRun(fault.CodeOf(err), run.ScopeSite, err)
	}
	body, err := v.body(argv, script)
	if err != nil {
		return notRun("job_spec", run.ScopeRun, err)
	}
	var made submitted
	a, err := s.client.call(ctx, request{method: "POST", path: "/slurm/" + v.name + "/job/submit", body: body, members: made.members()})
	return slurm.Explained(s.judge(a, made, err), job, s.cfg.User)
}

// submitted holds an answer's members about the new job.
type submitted struct {
	ids     []int64 // above 0
	message string  // of the site's job_submit plugin
}

func (m *submitted) members() members {
	id := func(d *jsontext.Decoder) error {
		var n *int64
		err := json.UnmarshalDecode(d, &n)
		if n != nil && *n > 0 {
			m.ids = append(m.ids, *n)
		}
		return err
	}
	message := func(d *jsontext.Decoder) error {
		var text *string
		err := json.UnmarshalDecode(d, &text)
		if text != nil {
			m.message += *text + "\n"
		}
		return err
	}
	return members{"job_id": id, "job_submit_user_msg": message, "result": func(d *jsontext.Decoder) error { // until v0.0.40
		return object(d, members{"job_id": id, "job_submit_user_msg": message})
	}}
}

// judge returns what the answer to a post proves. A job id in a whole answer means an accepted job, for any other
// content. Without one, an error number of the table decides. All else is doubt, unless the request certainly had no
// effect.
func (s *Slurm) judge(a answer, made submitted, err error) run.SendResult {
	res := run.SendResult{Outcome: run.SendDoubt, Code: noReceipt, Text: complaint(a, made, err)}
	code := fault.CodeOf(err)
	switch {
	case err != nil && (wasNotSent(err) || code == AuthFault || code == NoPath):
		return notRun(code, run.ScopeSite, err) // slurmrestd refused it before it processed it, or never received it
	case err != nil && code != Refused && code != Status: // no whole answer
		res.Code = code
		return res
	}
	for _, id := range made.ids {
		if id != made.ids[0] {
			res.Code = "several_receipts"
			return res
		}
	}
	switch {
	case len(made.ids) > 0 && a.cluster != "" && s.cfg.Cluster != "" && !slurm.SameCluster(a.cluster, s.cfg.Cluster):
		// No job of ours can run there: resolving the doubt takes the claim.
		res.Code = run.WrongCluster
		res.Text = fmt.Sprintf("job %d was accepted by the cluster %s, but slurm.cluster is %s", made.ids[0], fault.Clip(a.cluster),
			s.cfg.Cluster)
		return res
	case len(made.ids) > 0:
		return run.SendResult{Outcome: run.SendAccepted, JobID: strconv.FormatInt(made.ids[0], 10), Cluster: a.cluster, Text: res.Text}
	}
	for i, p := range a.errors {
		code, outcome, scope := slurm.ClassifyNumber(p.Number, strings.Split(made.message, "\n"))
		if outcome == run.SendDoubt {
			return run.SendResult{Outcome: run.SendDoubt, Code: inDoubt(a.errors), Text: res.Text}
		}
		if i == 0 {
			res.Code, res.Outcome, res.Scope = code, outcome, scope
		}
	}
	return res
}

// inDoubt returns the code of errors that leave doubt: RefusedInWords if all of them are answers of slurmctld in a
// site's own words, else noReceipt, because there may have been no answer.
func inDoubt(errors []problem) string {
	for _, p := range errors {
		if !p.answered() && p.Number != unspecifiedError || slurm.InOwnWords(p.Text, p.Description) == "" {
			return noReceipt
		}
	}
	return run.RefusedInWords
}

// unspecifiedError is the number if a site's job_submit plugin refuses a job without one of Slurm's numbers.
const unspecifiedError = -1

// complaint returns the errors and messages of an answer, or why there was no answer, for people and for the ledger.
func complaint(a answer, made submitted, err error) string {
	var texts []string
	if err != nil && len(a.errors) == 0 {
		texts = append(texts, fault.Prose(err))
	}
	for _, p := range append(a.errors, a.warnings...) {
		texts = append(texts, p.String())
	}
	return shown(strings.Join(append(texts, made.message), "\n"))
}

// notRun returns the result of a send that certainly created no job and that Slurm did not answer.
func notRun(code string, scope run.Scope, err error) run.SendResult {
	if code == "rpc_budget" || errors.Is(err, context.Canceled) {
		scope = run.ScopeRun
	}
	return run.SendResult{Outcome: run.SendNotRun, Code: code, Scope: scope, Text: "nothing was submitted: " + fault.Prose(err)}
}

// sendTime returns how long a post waits for its answer: slurmrestd asks slurmctld, and its backup, with Slurm's own
// time limit.
func (s *Slurm) sendTime(ctx context.Context) time.Duration {
	return time.Minute
}
