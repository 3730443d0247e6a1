package artifact

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/visible"
)

func table(t *testing.T, text string, q TableQuery) Table {
	t.Helper()
	if q.MaxRows == 0 {
		q.MaxRows = 10
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 16
	}
	got, err := PreviewTable(t.Context(), strings.NewReader(text), int64(len(text)), q)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return got
}

func TestPreviewTable(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Table
	}{
		"csv": {"name,n,x,ok,day,id\nann,1,1.5,true,2026-11-21,007\n\"b, b\",-2,3,false,2026-01-02,012\n", Table{
			Columns:      []Column{{"name", "text"}, {"n", "integer"}, {"x", "number"}, {"ok", "boolean"}, {"day", "date"}, {"id", "text"}},
			ColumnsTotal: 6, Header: true, Delimiter: ",", RowsRead: 2,
			Rows: [][]string{{"ann", "1", "1.5", "true", "2026-11-21", "007"}, {"b, b", "-2", "3", "false", "2026-01-02", "012"}}}},
		"no header": {"1\t2\n3\tNA\n", Table{Columns: []Column{{"column_1", "integer"}, {"column_2", "integer"}}, ColumnsTotal: 2,
			Delimiter: "\t", RowsRead: 2, Rows: [][]string{{"1", "2"}, {"3", "NA"}}}},
		"vcf": {"##fileformat=VCFv4.2\n#CHROM\tPOS\tID\nchr1\t10\t.\n", Table{Columns: []Column{{"CHROM", "text"}, {"POS", "integer"},
			{"ID", "empty"}}, ColumnsTotal: 3, Header: true, Delimiter: "\t", RowsRead: 1,
			Rows: [][]string{{"chr1", "10", "."}}}},
		"twice the same name": {"a,a\nb,c\n", Table{Columns: []Column{{"column_1", "text"}, {"column_2", "text"}}, ColumnsTotal: 2,
			Delimiter: ",", RowsRead: 2, Rows: [][]string{{"a", "a"}, {"b", "c"}}}},
		"uneven": {"a,b\n1\n2,3,4\n", Table{Columns: []Column{{"a", "integer"}, {"b", "integer"}, {"column_3", "integer"}}, ColumnsTotal: 3,
			Header: true, Delimiter: ",", RowsRead: 2,
			Rows: [][]string{{"1"}, {"2", "3", "4"}}, Warnings: []string{"not all rows have the same number of columns"}}},
		"only a header": {"a\tb\n", Table{Columns: []Column{{"a", "empty"}, {"b", "empty"}}, ColumnsTotal: 2, Header: true, Delimiter: "\t",
			Rows: [][]string{}}},
		"hidden": {"a\tb\nx\x1b[2J\t\u202ey\n", Table{Columns: []Column{{"a", "text"}, {"b", "text"}}, ColumnsTotal: 2, Header: true,
			Delimiter: "\t", RowsRead: 1, Rows: [][]string{{`x\x1b[2J`, `\u202ey`}}}},
		"long numbers": {"a,b,c\n1234567890123456,1e999,1e5\n", Table{Columns: []Column{{"a", "number"}, {"b", "text"}, {"c", "number"}},
			ColumnsTotal: 3, Header: true, Delimiter: ",", RowsRead: 1, Rows: [][]string{{"1234567890123456", "1e999", "1e5"}}}},
		"mark": {"\ufeffa,b\n1,2\n", Table{Columns: []Column{{"a", "integer"}, {"b", "integer"}}, ColumnsTotal: 2, Header: true, Delimiter: ",",
			RowsRead: 1, Rows: [][]string{{"1", "2"}}}},
	} {
		if c.want.Warnings == nil {
			c.want.Warnings = []string{}
		}
		if d := cmp.Diff(c.want, table(t, c.text, TableQuery{})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Any part of a table can be asked for, and parts do not overlap.
func TestTableParts(t *testing.T) {
	var b strings.Builder
	b.WriteString("n,square\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "%d,%d\n", i, i*i)
	}
	for _, c := range []struct {
		first int64
		rows  int
		shown int
		more  bool
	}{{0, 10, 10, true}, {4990, 10, 10, false}, {4990, 9, 9, true}, {4995, 100, 5, false}, {5000, 10, 0, false}, {99999, 10, 0, false},
		{0, 5000, 5000, false}} {
		got := table(t, b.String(), TableQuery{FirstRow: c.first, MaxRows: c.rows, MaxBytes: 1 << 20})
		if len(got.Rows) != c.shown || got.Truncated != c.more || c.shown > 0 && got.Rows[0][0] != fmt.Sprint(c.first) {
			t.Errorf("%d rows from row %d on: %d rows, truncated %v; want %d, %v", c.rows, c.first, len(got.Rows),
				got.Truncated, c.shown, c.more)
		}
	}
	if got := table(t, b.String(), TableQuery{MaxRows: 5000, MaxBytes: 100}); len(got.Rows) > 25 || len(got.Rows) < 10 || !got.Truncated {
		t.Errorf("%d rows within 100 bytes", len(got.Rows))
	}
}

func TestNoTable(t *testing.T) {
	for _, text := range []string{"", "just words\nand more\n", "a\x00b,c\n", string(gz("a,b\n1,2\n")), "# only\n# comments\n"} {
		_, err := PreviewTable(t.Context(), strings.NewReader(text), int64(len(text)), TableQuery{MaxRows: 1, MaxBytes: 100})
		wantFault(t, err, fault.Validation, "PREVIEW-TABLE")
	}
}

// A record is read as package csv reads it, however its quotes are.
func FuzzRecords(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\"a\"\"b\",c\r\n\r\n\"x\ny\",\r\n", "\"a\"x,b\n", "a\rb,\r\n", "\"\"", "\"\"\rx", ",,\n,",
		"\"a\r\nb\"\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxCell || strings.HasPrefix(text, "\ufeff") {
			return
		}
		c := csv.NewReader(strings.NewReader(text))
		c.FieldsPerRecord, c.LazyQuotes = -1, true
		in := newRecords(strings.NewReader(text), ',', false)
		for {
			want, wantErr := c.Read()
			got, err := in.next()
			if wantErr != err {
				t.Fatalf("%q: %v, want %v", text, err, wantErr)
			}
			if err != nil {
				return
			}
			if !slices.Equal(got.cells(), want) || got.width != len(want) {
				t.Fatalf("%q: %q, want %q", text, got.cells(), want)
			}
		}
	})
}

func FuzzPreviewTable(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a\tb\n1\t2\n", "#x\ty\n1\t2", "\"", "\"a\n,b\n", ",,,\n", "\ufeff#\n,", "1,2\r\n\r\n3\r\n",
		strings.Repeat("a,", 400)} {
		f.Add([]byte(s), int64(0), 5, 100)
		f.Add([]byte(s), int64(1), 1, 1000)
	}
	f.Fuzz(func(t *testing.T, data []byte, first int64, rows, limit int) {
		rows, limit = rows%1000, limit%10_000
		got, err := PreviewTable(t.Context(), bytes.NewReader(data), int64(len(data)), TableQuery{FirstRow: first, MaxRows: rows,
			MaxBytes: limit})
		if err != nil {
			if !fault.Is(err, fault.Validation) {
				t.Fatal(err)
			}
			return
		}
		total := 0
		for _, r := range got.Rows {
			for _, cell := range r {
				if total += len(cell); !utf8.ValidString(cell) || len(cell) > maxCell+len("…") || strings.ContainsFunc(cell, visible.Hidden) {
					t.Errorf("cell %q", cell)
				}
			}
		}
		if len(got.Rows) > max(rows, 0) || len(got.Columns) > maxColumns || total > max(limit, 0)*6+3*len(got.Rows)*maxColumns {
			t.Errorf("%d rows, %d columns, %d bytes", len(got.Rows), len(got.Columns), total)
		}
	})
}
