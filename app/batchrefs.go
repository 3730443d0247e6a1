package app

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/toolpack"
)

// A row of a batch may use an output of the row with the same sample in another batch: batch_…:role. The row keeps
// that text until it is submitted, because only then is the other row a run.

var batchRef = regexp.MustCompile(`^(batch_[a-z0-9]{1,40}):([A-Za-z0-9][A-Za-z0-9._-]{0,63})$`)

// IsInput reports whether a text has the form of an input: an artifact, a reference, or an output of a run or of a
// batch.
func IsInput(s string) bool {
	_, later := plan.ParsePromise(s)
	return later || plan.IsArtifactID(s) || strings.HasPrefix(s, "ref:") || batchRef.MatchString(s)
}

// rowsWait is the error code of a row that must be submitted after a row of another batch.
const rowsWait = "rows_of_batch_wait"

// supposedRun stands in for a run that does not exist yet, in a check of the runs that use its outputs.
type supposedRun struct {
	project string
	outputs []plan.Output
}

type supposedRunsKey struct{}

func supposedRuns(ctx context.Context) map[string]supposedRun {
	m, _ := ctx.Value(supposedRunsKey{}).(map[string]supposedRun)
	return m
}

// owners finds the projects of things, including those that a check supposes.
type owners struct{ *ledger.Ledger }

// Owner implements [gate.Owners].
func (o owners) Owner(ctx context.Context, id string) (projectID string, err error) {
	if s, ok := supposedRuns(ctx)[id]; ok {
		return s.project, nil
	}
	return o.Ledger.Owner(ctx, id)
}

// batchRefs finds the rows of other batches for a check of a sheet.
type batchRefs struct {
	g       *Gateway
	c       gate.Call
	batches map[string]sampled
	runs    map[string]supposedRun
}

// sampled indexes the rows of a batch by sample.
type sampled struct {
	name, project string
	outputs       []plan.Output // of the tool, for rows that are not runs yet
	rows          map[string][]ledger.BatchRow
}

func (g *Gateway) newBatchRefs(c gate.Call) *batchRefs {
	return &batchRefs{g: g, c: c, batches: map[string]sampled{}, runs: map[string]supposedRun{}}
}

// add adds a batch that is not stored yet: a step of the same request.
func (b *batchRefs) add(x ledger.Batch, p *toolpack.Pack, rows []ledger.BatchRow) {
	s := sampled{x.Name, x.ProjectID, p.Outline("").IO.Outputs, map[string][]ledger.BatchRow{}}
	for _, r := range rows {
		r.BatchID, r.State, r.Todo = x.ID, "waiting", ledger.TodoSubmit
		s.rows[r.Sample] = append(s.rows[r.Sample], r)
	}
	b.batches[x.ID] = s
}

func (b *batchRefs) batch(ctx context.Context, id string) (sampled, error) {
	if s, known := b.batches[id]; known {
		return s, nil
	}
	x, err := b.g.batchOf(ctx, b.c, BatchArgs{Batch: id})
	if err != nil {
		return sampled{}, err
	}
	s := sampled{name: x.Name, project: x.ProjectID, rows: map[string][]ledger.BatchRow{}}
	if p, err := b.g.Domain.Packs().Get(x.ToolID); err == nil {
		s.outputs = p.Outline("").IO.Outputs
	}
	rows, err := b.g.Ledger.BatchRows(ctx, id, ledger.RowFilter{Limit: MaxSheetRows + 1})
	if err != nil {
		return sampled{}, err
	}
	for _, r := range rows {
		s.rows[r.Sample] = append(s.rows[r.Sample], r)
	}
	b.batches[id] = s
	return s, nil
}

// supposed returns the arguments of a row with runs in place of rows of other batches. For a row that is not a run
// yet it adds a supposedRun.
func (b *batchRefs) supposed(ctx context.Context, p *toolpack.Pack, r sheetArgs) (args json.RawMessage, err error) {
	var found []fault.Problem
	args, _ = replaceInputs(r.args, p, func(field, value string) string {
		m := batchRef.FindStringSubmatch(value)
		if m == nil || err != nil {
			return value
		}
		s, err1 := b.batch(ctx, m[1])
		if err1 != nil && !fault.Is(err1, fault.NotFound) {
			err = err1
			return value
		}
		id, problem := s.run(m[1], r.sample)
		if err1 != nil {
			problem = fault.Prose(err1)
		}
		if problem != "" {
			found = append(found, fault.Problem{Code: "SHEET-SAMPLE", Field: field, Rule: "batch_…:role, of a batch that has the row's sample once",
				Msg: problem})
			return value
		}
		if _, known := b.runs[id]; !known && s.unmade(r.sample) {
			b.runs[id] = supposedRun{s.project, s.outputs}
		}
		return id + ":" + m[2]
	})
	if err == nil && len(found) > 0 {
		err = fault.Invalid("", found...)
	}
	return args, err
}

// row returns the only row of a sample, or the problem if there is not exactly one.
func (s sampled) row(sample string) (r ledger.BatchRow, problem string) {
	switch rows := s.rows[sample]; len(rows) {
	case 0:
		return r, fmt.Sprintf("the batch %s has no sample %q", s.name, sample)
	case 1:
		return rows[0], ""
	default:
		return r, fmt.Sprintf("the batch %s has the sample %q %d times", s.name, sample, len(rows))
	}
}

func (s sampled) unmade(sample string) bool {
	r, problem := s.row(sample)
	return problem == "" && r.RunID == "" && r.WaitingID == ""
}

// run returns the run of a sample, or the id of a supposed one.
func (s sampled) run(batchID, sample string) (id, problem string) {
	r, problem := s.row(sample)
	if problem != "" {
		return "", problem
	}
	if id := rowRun(r); id != "" {
		return id, ""
	}
	if r.State != "waiting" {
		return "", fmt.Sprintf("the sample %q of the batch %s was never run: it is %s (%s)", sample, s.name, r.State, r.Message)
	}
	return plan.Identity{ToolName: "row", ParamsHash: fmt.Sprintf("%s %d", batchID, r.N)}.RunID(), ""
}

// rowRun returns the run of a row by its permanent id: the one under which it waited, if it did.
func rowRun(r ledger.BatchRow) string {
	if r.WaitingID != "" {
		return r.WaitingID
	}
	return r.RunID
}

// actual returns the arguments of a row as it is submitted, with the runs of other batches' rows.
func (g *Gateway) actual(ctx context.Context, b ledger.Batch, r ledger.BatchRow) (args json.RawMessage, err error) {
	p, err1 := g.Domain.Packs().Get(b.ToolID)
	if err1 != nil {
		return r.Args, nil // the gate reports that
	}
	args, _ = replaceInputs(r.Args, p, func(_, value string) string {
		m := batchRef.FindStringSubmatch(value)
		if m == nil || err != nil {
			return value
		}
		rows, err1 := g.Ledger.RowsOfSample(ctx, m[1], r.Sample)
		if err1 != nil {
			err = err1
			return value
		}
		if len(rows) != 1 {
			err = fault.New(fault.Conflict, "input_failed", fmt.Sprintf("the batch %s has the sample %q %d times", m[1], r.Sample, len(rows)))
			return value
		}
		from := rows[0]
		switch id := rowRun(from); {
		case from.Todo == ledger.TodoSubmit || from.Todo == ledger.TodoRetry:
			err = fault.New(fault.Conflict, rowsWait,
				fmt.Sprintf("rows wait for those of their samples in the batch %s, which are submitted first", m[1]))
		case id == "":
			err = fault.New(fault.Conflict, "input_failed", fmt.Sprintf("the sample %q of the batch %s is %s (%s), so it makes no %s", r.Sample,
				m[1],
				from.State, from.Message, m[2]))
		case from.State == string(run.Failed) || from.State == string(run.Cancelled):
			err = fault.New(fault.Conflict, "input_failed", fmt.Sprintf("the sample %q of the batch %s is %s (%s), so it makes no %s", r.Sample,
				m[1],
				from.State, id, m[2]))
		default:
			return id + ":" + m[2]
		}
		return value
	})
	return args, err
}
