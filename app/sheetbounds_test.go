package app

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
)

// hostileSheets returns sheets of about n bytes that once took gigabytes of memory or hours of processor time.
func hostileSheets(n int) map[string]string {
	repeat := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (n-len(head)-len(tail))/len(unit)) + tail
	}
	numbered := func(head, sep, tail string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < n-20; i++ {
			fmt.Fprintf(&b, "%x%s", i, sep)
		}
		return b.String() + tail
	}
	wide := "sample,reads" + strings.Repeat(",c", 198) + "\n"
	row := "A," + readsA + ","
	return map[string]string{
		"the same column":     repeat("", "a,", "a\nx\n"),
		"different columns":   numbered("", ",", "\nx\n"),
		"one row":             repeat("sample,reads\n", "a,", "a\n"),
		"one cell":            repeat("sample,reads\n", "a", ","+readsA+"\n"),
		"one column":          repeat("sample\n", "x\n", ""),
		"empty cells":         repeat("sample,reads\n", strings.Repeat(",", 1600)+"\n", ""),
		"empty lines":         repeat("sample,reads\n", "\n", row+"\n"),
		"quotes":              repeat("sample,reads\n", `""`, "\n"),
		"a quote left open":   repeat("sample,reads\n\"", "x\n", ""),
		"lines in quotes":     repeat("sample,reads\nA,\"", "\n", "\"\n"),
		"tags":                numbered("sample,reads,tags\n"+row, ";", "\n"),
		"tags in each row":    repeat("sample,reads,tags\n", row+strings.Repeat("a;b;", 8000)+"\n", ""),
		"a list":              numbered("sample,reads,more\n"+row, ";", "\n"),
		"mistakes in a list":  repeat("sample,reads,more\n"+row, "x;", "\n"),
		"mistakes in rows":    repeat("sample,reads,level,on\n", "a/b,x,two,maybe\n", ""),
		"rows that are wide":  repeat("sample,reads\n", strings.Repeat("a,", 800)+"\n", ""),
		"as wide as may be":   repeat(wide, strings.Repeat("a,", 199)+"a\n", ""),
		"columns with quotes": repeat("", `"a""",`, "\nx\n"),
	}
}

// A sheet of any shape takes no more memory than a few times its size, and is read only up to its first bound.
//
// proves MANY-01
func TestHostileSheets(t *testing.T) {
	const size = 4 << 20
	for name, text := range hostileSheets(size) {
		raw := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := ReadSheet(t.Context(), raw)
		if err == nil {
			_, wrong := s.requests(sheetTool().Place, nil)
			err = wrong.err()
		}
		runtime.ReadMemStats(&after)
		const most = 4*size + 16*MaxSheetRows*maxColumns // the size, and a header for each cell
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("a sheet of %d MiB (%s) took %d MiB of memory, want at most %d", size>>20, name, took>>20, most>>20)
		}
		if said := fmt.Sprint(err) + fmt.Sprint(fault.ProblemsOf(err)); len(said) > 64<<10 || len(fault.ProblemsOf(err)) > maxProblems {
			t.Errorf("the error of a sheet (%s) has %d problems in %d bytes, want at most %d in 64 KiB", name, len(fault.ProblemsOf(err)),
				len(said), maxProblems)
		}
	}
}

// Reading a sheet stops when its caller has left.
func TestReadSheetEnds(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if s, err := ReadSheet(ctx, []byte("sample,reads\nA,"+readsA+"\n")); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadSheet after its caller left = %v, %v, want %v", s, err, context.Canceled)
	}
}

// The size of all rows together is bounded too: arguments for all rows would be stored with each.
func TestRowsTogetherAreBounded(t *testing.T) {
	set := Row{"note": []byte(`"` + strings.Repeat("x", 20<<10) + `"`)}
	doc := sheetTool()
	doc.InputSchema = []byte(`{"type":"object","properties":{"note":{"type":"string"}}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, wrong := rowRequests(doc, make([]Row, MaxSheetRows), set)
	runtime.ReadMemStats(&after)
	if got := fmt.Sprint(wrong.err()); !strings.Contains(got, "MiB") {
		t.Errorf("%d rows of 20 KiB each: %s, want a mistake that names the bound", MaxSheetRows, got)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 1024 {
		t.Errorf("%d rows of 20 KiB each took %d MiB", MaxSheetRows, took)
	}
}

// A batch whose caller leaves while its rows are checked is not recorded; if the gateway stops, the caller is advised
// to repeat the call.
//
// proves MANY-01
func TestBatchEndsWithItsCaller(t *testing.T) {
	for name, end := range map[string]func(g *Gateway, leave func()){
		"its client leaves": func(_ *Gateway, leave func()) { leave() },
		"the gateway ends":  func(g *Gateway, _ func()) { g.Gate.EndChecks() },
	} {
		t.Run(name, func(t *testing.T) {
			g := batchGateway(t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			const rows = 50
			sheet, checks := sheetOf(g.reads(t, rows)), 0
			g.UnixUser = func(ctx context.Context, _ string, _ gate.Principal) (string, error) { // asked for each row
				if checks++; checks == 3 {
					end(g, leave)
					<-ctx.Done() // a goroutine cancels the call
				}
				return "", nil
			}
			res := g.Gate.Call(ctx, lab(), gate.NewRequest("batch.run", BuiltinVersion, []byte(fmt.Sprintf(
				`{"tool_id":"seqkit.stats","name":"b","sheet":%q}`, sheet))))
			if res.Error == nil || checks >= 2*rows {
				t.Errorf("batch.run of %d rows that was ended at the 3rd check answered %v after %d checks, want an error before the last row",
					rows, res.Error, checks)
			}
			if res.Error != nil && name == "the gateway ends" && (res.Error.Code != "gateway_stopping" || !res.Error.Retryable) {
				t.Errorf("batch.run that the gateway ended answered %s, retryable %v, want gateway_stopping, retryable", res.Error.Code,
					res.Error.Retryable)
			}
			if _, err := g.Ledger.BatchNamed(t.Context(), nil, "b"); !fault.Is(err, fault.NotFound) {
				t.Errorf("BatchNamed after batch.run was ended: %v, want no batch", err)
			}
		})
	}
}
