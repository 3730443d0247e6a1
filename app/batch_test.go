package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// sheetTool returns a tool as sheets see it.
func sheetTool() ToolDoc {
	schema := `{"type":"object","required":["reads"],"additionalProperties":false,"properties":{"reads":{"type":"string"},"more":{"type":"array","items":{"type":"integer"}},
 "level":{"type":"integer"},"on":{"type":"boolean"}}}`
	d := ToolDoc{InputSchema: json.RawMessage(schema), Inputs: []PackInput{{Param: "reads", Role: "fastq"}}}
	d.ToolID = "t.x"
	return d
}

// Spreadsheets write sheets in many ways; all of these have the same two rows.
func TestSheetForms(t *testing.T) {
	const a, b = "art_00000000000000000000000000", "art_11111111111111111111111111"
	want := fmt.Sprintf(`S 1 [x y] {"level":3,"more":[1,2],"reads":"%s"}; row-3  [] {"on":true,"reads":"%s"}`, a, b)
	for name, text := range map[string]string{
		"comma":       "sample,reads,tags,more,level,on\nS 1," + a + ",x;y,1;2,3,\n," + b + ",,,,true\n",
		"more commas": "sample,reads,tags,more,level,on,,\nS 1," + a + ",x;y,1;2,3,,,\n," + b + ",,,,true,,\n,,,,,,,\n",
		"by role":     "sample,fastq,tags,more,level,on\nS 1," + a + ",x;y,1;2,3,\n," + b + ",,,,true\n",
		"tabs, CRLF":  "sample\treads\ttags\tmore\tlevel\ton\r\nS 1\t" + a + "\tx; y\t[1,2]\t3\t\r\n\t" + b + "\t\t\t\ttrue",
		"mark, quote": "\xef\xbb\xbf\"sample\",reads,tags,more,level,on\n\"S 1\"," + a + ",\"x;y\",1;2,3\n," + b + ",,,,true\n\n , ,\n",
	} {
		s, err := ReadSheet(context.Background(), []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := ReadSheet(context.Background(), []byte(s.Text()))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(s) {
			t.Errorf("%s: written and read again: %v, %v; %v", name, s, again, err)
		}
		rows, problems := s.requests(sheetTool().Place, nil)
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%s %s%v %s", r.sample, r.label, r.tags, r.args))
		}
		if text := strings.ReplaceAll(strings.Join(got, "; "), "row-3 []", "row-3  []"); text != want || problems.n > 0 {
			t.Errorf("%s: %s\nwant %s\n%v", name, text, want, problems)
		}
	}
}

// All mistakes are reported together, each with its row and column and with a suggestion.
//
// proves MANY-01
func TestSheetMistakes(t *testing.T) {
	for text, want := range map[string][]string{
		"sample,raeds\nS,x\n":        {"row 1, column raeds: t.x has no parameter \"raeds\"; did you mean reads?"},
		"sample,reads,sample\nS,x\n": {"row 1, column sample: the column is there twice"},
		"reads\nx,y\n":               {"row 2: the row has 2 cells"},
		"sample;reads\nS;x\n":        {"row 1: the columns are separated by semicolons"},
		"sample,reads\n":             {"sheet: the sheet has no rows"},
		"\xff":                       {"sheet: line 1 has the byte 0xFF, which is not UTF-8"},
		"sample,reads\nS\"T,x\n":     {"row 2: bare"},
		"sample,reads\n\n\"S,\nx\n":  {"row 3: up to line"},
		"sample,,reads\nS,,x\n":      {"row 1, column 2: the column has no name"},
		"sample,reads,level,on\na/b,art_00000000000000000000000000,two,\nS,reads.fq,,maybe\n": {
			"row 2, column sample: \"a/b\" is not allowed here", "row 2, column level: \"two\" is of the wrong type", "row 3, column reads: \"reads.fq\" is not an id",
			"row 3, column on: \"maybe\" is of the wrong type"},
	} {
		s, err := ReadSheet(context.Background(), []byte(text))
		if err == nil {
			_, problems := s.requests(sheetTool().Place, nil)
			err = problems.err()
		}
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, p.Field+": "+p.Msg)
		}
		if len(got) != len(want) {
			t.Errorf("the problems of %q are %v, want %d", text, got, len(want))
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%q: %s, want %s", text, got[i], want[i])
			}
		}
	}
}

func FuzzSheet(f *testing.F) {
	f.Add("sample,reads,tags\nS1,art_00000000000000000000000000,a;b\n")
	f.Add("\xef\xbb\xbfsample\treads\r\n\"a\"\"b\"\tx\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadSheet(context.Background(), []byte(text))
		if err != nil {
			return
		}
		rows, problems := s.requests(sheetTool().Place, nil)
		if len(rows) == 0 && problems.n == 0 {
			t.Error("a sheet gives neither rows nor problems")
		}
	})
}

// reads stores n artifacts.
func (g *Gateway) reads(t *testing.T, n int) (ids []string) {
	t.Helper()
	for i := range n {
		a, err := g.addBytes(t.Context(), run.Artifact{ProjectID: plan.ProjectID("demo"), Type: "FASTQ_GZ",
			Label: fmt.Sprintf("r%d.fq", i), Source: "import"},
			[]byte(fmt.Sprintf("@r%d\nACGT\n+\nIIII\n", i)))
		must(t, err)
		ids = append(ids, a.ID)
	}
	return ids
}

func (g *Gateway) callBatch(t *testing.T, tool string, args map[string]any, into any) *gate.ErrorBody {
	t.Helper()
	return g.callBatchIn(t.Context(), t, tool, args, into)
}

func (g *Gateway) callBatchIn(ctx context.Context, t *testing.T, tool string, args map[string]any, into any) *gate.ErrorBody {
	t.Helper()
	who := gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "user:lab", Method: gate.ByPeer,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport, gate.CapSlurm}, []string{plan.ProjectID("demo")})}}
	res := g.Gate.Call(ctx, who, request(t, g.toolOf(t, tool), args, false))
	if res.OK {
		must(t, json.Unmarshal(res.Result, into))
	}
	return res.Error
}

func (g *Gateway) settle(t *testing.T) {
	t.Helper()
	await(t, func() (bool, string) {
		rows, err := g.Ledger.BatchTodo(t.Context(), 1, nil)
		must(t, err)
		return len(rows) == 0, fmt.Sprintf("rows are left, paused: %v", g.loop.pauses())
	})
}

// Rows become runs, equal bytes one run. The batch can be started again, its failures retried and the rest cancelled;
// runs that another batch shares continue.
//
// proves MANY-01
func TestBatch(t *testing.T) {
	g := batchGateway(t)
	ids := g.reads(t, 4)
	sheet := "sample,reads,tags\nA," + ids[0] + ",x\nB," + ids[1] + ",x;y\nC," + ids[1] + ",\nD," + ids[2] + ",y\n"
	args := map[string]any{"tool_id": "seqkit.stats", "name": "b1", "sheet": sheet}
	var first, again BatchStarted
	if err := g.callBatch(t, "batch.run", args, &first); err != nil || first.Rows != 4 || first.Existed {
		t.Fatalf("batch.run: %d rows, replayed %t, %+v; want 4 new rows", first.Rows, first.Existed, err)
	}
	if n := len(g.runIDs(t)); n != 0 {
		t.Errorf("%d runs before the gateway takes the rows up", n)
	}
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.settle(t)
	if n := len(g.runIDs(t)); n != 3 {
		t.Errorf("%d runs after the rows are submitted, want 3", n)
	}
	if err := g.callBatch(t, "batch.run", args, &again); err != nil || !again.Existed || again.BatchID != first.BatchID {
		t.Errorf("the same batch.run: batch %s, replayed %t, %+v; want %s again", again.BatchID, again.Existed, err, first.BatchID)
	}
	args["sheet"] = sheet + "E," + ids[3] + ",\n"
	if err := g.callBatch(t, "batch.run", args, &again); err == nil || err.Code != "batch_name_taken" {
		t.Errorf("batch.run of another sheet with the name ended with %+v, want batch_name_taken", err)
	}
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b2",
		"sheet": "sample,reads\nZ," + ids[2] + "\n"}, &again); err != nil {
		t.Fatalf("batch.run of b2 ended with %+v", err)
	}
	g.settle(t)
	var status BatchStatusAnswer
	if err := g.callBatch(t, "batch.status", map[string]any{"batch": "b1"}, &status); err != nil || status.Counts["queued"] != 4 ||
		status.Over {
		t.Errorf("batch.status of b1: rows %v, ended %t, %+v; want 4 queued", status.Counts, status.Over, err)
	}
	for want, f := range map[string]map[string]any{"1": {"sample": "A"}, "2": {"tag": "x"}, "3": {"batch": "b1"},
		"1 ": {"batch": "b1", "tag": "y", "sample": "B"}, "0": {"sample": "E"}} {
		var l RunList
		if err := g.callBatch(t, "run.list", f, &l); err != nil || fmt.Sprint(l.Total) != strings.TrimSpace(want) || len(l.Runs) != int(l.Total) {
			t.Errorf("%v: %+v %d runs, want %s", f, err, l.Total, want)
		}
	}
	var changed BatchChanged
	if err := g.callBatch(t, "batch.cancel", map[string]any{"batch": "b1"}, &changed); err != nil || changed.Changed != 3 ||
		!strings.Contains(changed.Message, "those of 1 rows go on") {
		t.Errorf("batch.cancel of b1: %d rows changed, %q, %+v; want 3 and a row that continues", changed.Changed, changed.Message, err)
	}
}

// A row that the gate refuses has the reason, and the other rows continue; a retry submits it again.
//
// proves MANY-01
func TestBatchRows(t *testing.T) {
	g := batchGateway(t)
	ids := g.reads(t, 2)
	var began BatchStarted
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b",
		"sheet": "sample,reads\nA," + ids[0] + "\nB," + ids[1] +
			"\n"}, &began); err != nil {
		t.Fatalf("batch.run ended with %+v", err)
	}
	rows, err := g.Ledger.BatchTodo(t.Context(), 10, nil)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows to submit, %v; want 2", len(rows), err)
	}
	must(t, g.Ledger.RowRefused(t.Context(), rows[0], "capability_denied", "no"))
	var status BatchStatusAnswer
	if err := g.callBatch(t, "batch.status", map[string]any{"batch": began.BatchID}, &status); err != nil || status.Counts["refused"] != 1 ||
		len(status.Causes) != 1 || status.Causes[0].Cause != "capability_denied" || !slices.Equal(status.Causes[0].Samples, []string{"A"}) {
		t.Errorf("batch.status: rows %v, causes %+v, %+v; want one refused for capability_denied", status.Counts, status.Causes, err)
	}
	var changed BatchChanged
	if err := g.callBatch(t, "batch.retry", map[string]any{"batch": "b"}, &changed); err != nil || changed.Changed != 1 {
		t.Errorf("batch.retry: %d rows changed, %+v; want 1", changed.Changed, err)
	}
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.settle(t)
	if n := len(g.runIDs(t)); n != 2 {
		t.Errorf("%d runs after the retry, want 2", n)
	}
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "c",
		"sheet": "sample,reads\nA,art_00000000000000000000000000\nB," + ids[0] + "\nC,art_00000000000000000000000001\n"}, &began); err == nil ||
		strings.Count(fmt.Sprint(err.Details["problems"]), "row ") < 2 {
		t.Errorf("batch.run with two unknown artifacts ended with %+v, want both rows in the problems", err)
	}
}

// Rights are checked again when a row is submitted: a principal that has lost them gets no further runs, and while
// they are unknown the rows wait.
//
// proves MANY-01
func TestBatchRightsAreAskedAgain(t *testing.T) {
	g := batchGateway(t)
	ids := g.reads(t, 3)
	g.Again = func(_ context.Context, p gate.Principal) (gate.Principal, error) {
		p.Rights = gate.RightsOf([]string{gate.CapGateway, gate.CapRead}, []string{plan.ProjectID("demo")})
		return p, nil
	}
	start := func(name string, id string) (began BatchStarted) {
		t.Helper()
		if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": name, "sheet": "sample,reads\nA," + id + "\n"},
			&began); err != nil {
			t.Fatalf("batch.run of %s ended with %+v", name, err)
		}
		if _, err := g.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		return began
	}
	row := func(b BatchStarted) ledger.BatchRow {
		t.Helper()
		rows, err := g.Ledger.BatchRows(t.Context(), b.BatchID, ledger.RowFilter{Limit: 2})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		return rows[0]
	}
	if r := row(start("narrowed", ids[0])); r.State != "refused" || r.Code != "capability_denied" || r.RunID != "" {
		t.Errorf("a row after rights were lost: state %s, code %s, run %q; want refused, capability_denied, no run", r.State, r.Code, r.RunID)
	}
	g.Again = func(context.Context, gate.Principal) (gate.Principal, error) {
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "this gateway does not know user id 7")
	}
	if r := row(start("left", ids[1])); r.State != "refused" || r.Code != "unauthenticated" {
		t.Errorf("a row of an unknown user: state %s, code %s; want refused, unauthenticated", r.State, r.Code)
	}
	g.Again = func(context.Context, gate.Principal) (gate.Principal, error) {
		return gate.Principal{}, fault.New(fault.Transport, "groups_unknown", "the directory does not answer").WithRetry(5)
	}
	waiting := start("unknown", ids[2])
	if r := row(waiting); r.State != "waiting" || r.Tries != 1 || g.loop.pauses()[waiting.BatchID].Code != "groups_unknown" {
		t.Errorf("a row while groups are unknown: state %s, %d tries, pauses %v; want waiting, 1, groups_unknown", r.State, r.Tries,
			g.loop.pauses())
	}
	if n := len(g.runIDs(t)); n != 0 {
		t.Errorf("%d runs of rows without rights, want none", n)
	}
}

// Ten thousand rows are one call; their states are read from stored counts.
//
// proves MANY-01
func TestLargeBatch(t *testing.T) {
	g := tableGateway(t)
	id := g.reads(t, 1)[0]
	var rows []ledger.BatchRow
	for i := range MaxSheetRows {
		rows = append(rows, ledger.BatchRow{N: i + 2, Sample: fmt.Sprintf("S%05d", i), Tags: []string{"lot"}, Args: json.RawMessage(`{"reads":"` + id + `"}`)})
	}
	caller, _ := json.Marshal(batchCaller{Transport: gate.Local})
	b, _, err := g.Ledger.NewBatch(t.Context(), ledger.Batch{ID: "batch_large", ProjectID: plan.ProjectID("demo"), Name: "large",
		ToolID:      "seqkit.stats",
		ToolVersion: "1.0.0", RowsHash: "h", Caller: caller}, rows)
	if err != nil || b.Counts["waiting"] != MaxSheetRows {
		t.Fatalf("NewBatch: rows %v, %v; want %d waiting", b.Counts, err, MaxSheetRows)
	}
	began := time.Now()
	var status BatchStatusAnswer
	if err := g.callBatch(t, "batch.status", map[string]any{"batch": "large"}, &status); err != nil || status.Rows != MaxSheetRows {
		t.Errorf("batch.status: %d rows, %+v; want %d", status.Rows, err, MaxSheetRows)
	}
	t.Logf("batch.status of %d rows took %s", MaxSheetRows, time.Since(began).Round(time.Millisecond/10))
}

// batchGateway returns a gateway whose tools have their images.
func batchGateway(t *testing.T) *Gateway {
	t.Helper()
	return gatewayOver(t, t.TempDir(), "testdata/demo/domain", "version: 1\n", func(s *site.Site) { s.Slurm.DefaultQOS = "normal" })
}
