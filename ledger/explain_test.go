package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
)

// statement is one that a method gave to SQLite.
type statement struct {
	text string
	args []any
}

// noting opens connections that note the statements they are given.
type noting struct {
	source string
	mu     sync.Mutex
	seen   []statement
}

func (n *noting) Driver() driver.Driver { return &sqlite3.SQLiteDriver{} }

func (n *noting) Connect(context.Context) (driver.Conn, error) {
	c, err := n.Driver().Open(n.source)
	if err != nil {
		return nil, err
	}
	return notingConn{c.(*sqlite3.SQLiteConn), n}, nil
}

type notingConn struct {
	*sqlite3.SQLiteConn
	n *noting
}

func (c notingConn) note(q string, args []driver.NamedValue) {
	s := statement{text: q}
	for _, a := range args {
		s.args = append(s.args, a.Value)
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.n.seen = append(c.n.seen, s)
}

func (c notingConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	c.note(q, args)
	return c.SQLiteConn.QueryContext(ctx, q, args)
}

func (c notingConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	c.note(q, args)
	return c.SQLiteConn.ExecContext(ctx, q, args)
}

// statementsOf calls a method of the ledger in the file at path with every combination of one field or text, and returns what it gave to
// SQLite.
func statementsOf(t *testing.T, path, method string, texts []string) (out []statement) {
	t.Helper()
	l := openAt(t, path)
	defer l.Close()
	r, w := &noting{source: source(path, "ro")}, &noting{source: source(path, "rwc")}
	must(t, l.r.Close())
	must(t, l.w.Close())
	l.r, l.w = sql.OpenDB(r), sql.OpenDB(w)
	l.w.SetMaxOpenConns(1)
	for _, of := range []any{l, l.Index("a")} {
		m := reflect.ValueOf(of).MethodByName(method)
		if !m.IsValid() {
			continue
		}
		for variant := range 40 {
			callWith(t, m, variant, texts)
		}
		break
	}
	for _, s := range append(r.seen, w.seen...) {
		if !slices.ContainsFunc(out, func(x statement) bool { return x.text == s.text }) {
			out = append(out, s)
		}
	}
	return out
}

// callWith calls a method with arguments made up. In each variant another field of a struct is set, and another of the texts is used.
func callWith(t *testing.T, m reflect.Value, variant int, texts []string) {
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	defer func() { _ = recover() }() // of arguments that make no sense
	var in []reflect.Value
	for i := range m.Type().NumIn() {
		in = append(in, madeUp(ctx, m.Type().In(i), variant, texts))
	}
	if m.Type().IsVariadic() {
		m.CallSlice(in)
		return
	}
	m.Call(in)
}

func madeUp(ctx context.Context, t reflect.Type, variant int, texts []string) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[context.Context]():
		return reflect.ValueOf(ctx)
	case t == reflect.TypeFor[time.Time]():
		return reflect.ValueOf(t0)
	case t.Kind() == reflect.String:
		v.SetString(texts[variant%len(texts)])
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		v.SetInt(1)
	case t.Kind() == reflect.Bool:
		v.SetBool(variant%2 == 0)
	case t.Kind() == reflect.Func:
		return reflect.MakeFunc(t, func([]reflect.Value) (out []reflect.Value) {
			for i := range t.NumOut() {
				out = append(out, reflect.Zero(t.Out(i)))
			}
			return out
		})
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		v.Elem().Set(madeUp(ctx, t.Elem(), variant, texts))
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		for i := range 2 {
			v.Set(reflect.Append(v, madeUp(ctx, t.Elem(), variant+i, texts)))
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			all := variant%(t.NumField()+2) == t.NumField()
			if one := variant%(t.NumField()+2) == i; t.Field(i).IsExported() && (one || all) && t.Field(i).Name != "Cursor" {
				v.Field(i).Set(madeUp(ctx, t.Field(i).Type, variant, texts))
			}
		}
	}
	return v
}

// wholeLedger are methods that read all there is, because that is what they are for: none is of a request of a face that repeats itself.
var wholeLedger = []string{"Close", "Compact", "Contents", "CopyTo", "DropPayloads", "Erase", "Integrity", "LeakedArtifacts", "Leaks",
	"VerifyCalls", "VerifyEvents"}

// small are tables that grow with what people set up or answer, not with runs, calls and artifacts; and that of the runs that have not
// started, which a run leaves when it starts.
var small = []string{"approvals", "artifact_counts", "call_chains", "directories", "deletions", "drains", "gate_key", "gateway", "policies",
	"principals", "receipt_keys", "reference_versions", "run_counts", "waits"}

// newestFirst are walks of a whole table's index that end with the page, because they leave out no row.
var newestFirst = regexp.MustCompile(`WHERE 1 (AND a\.removed_at IS NULL )?ORDER BY \S+ DESC|^SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1$`)

// searches are for what no index has: a text anywhere in a label, and the records of calls by tool, principal, face, address or outcome.
var searches = regexp.MustCompile(`instr\(|FROM tool_call_events WHERE 1 AND (tool_id|\? IN \(principal|face|address|ok)`)

// No query that a face makes reads the whole of a table that grows with runs, calls or artifacts. Each method of the ledger is called with
// arguments made up, and SQLite explains what it was given; its plans depend on the schema alone, as no ledger is analyzed.
func TestNoQueryScansWhatGrows(t *testing.T) {
	path := t.TempDir() + "/ledger.db"
	l := openAt(t, path)
	v := finish(t, l, insert(t, l, 1))
	tables, err := list(t.Context(), l.r, column[string], "SELECT name FROM sqlite_schema WHERE type = 'table'")
	must(t, err)
	must(t, l.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	db := rawDB(t, l)
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(t.Context(), "PRAGMA foreign_keys = off") // their checks of a changed key, which none of these changes
	must(t, err)
	texts := []string{v.Run.ID, v.Run.ProjectID, v.Run.ParamsHash, v.Attempt.Token, "art_00000000000000000000000000", "user:a"}
	var methods []string
	for _, of := range []reflect.Type{reflect.TypeFor[*Ledger](), reflect.TypeFor[Index]()} {
		for i := range of.NumMethod() {
			methods = append(methods, of.Method(i).Name)
		}
	}
	slices.Sort(methods)
	scan, explained := regexp.MustCompile(`^SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?`), 0
	for _, method := range slices.Compact(methods) {
		if slices.Contains(wholeLedger, method) {
			continue
		}
		copied := t.TempDir() + "/ledger.db"
		must(t, os.WriteFile(copied, data, 0o600))
		for _, s := range statementsOf(t, copied, method, texts) {
			plan, err := explain(t, db, s)
			if err != nil || strings.Contains(s.text, " IN ()") {
				continue // SQLite refused it to the method too, or nothing was asked for
			}
			explained++
			for _, line := range plan {
				m := scan.FindStringSubmatch(line)
				if m == nil || newestFirst.MatchString(s.text) || searches.MatchString(s.text) {
					continue
				}
				table := m[1]
				if regexp.MustCompile(`\) ` + table + `\b`).MatchString(s.text) { // a part of the statement
					continue
				}
				if as := regexp.MustCompile(`(?:FROM|JOIN) (\w+)(?: AS)? ` + table + `\b`).FindStringSubmatch(s.text); as != nil {
					table = as[1]
				}
				if slices.Contains(tables, table) && !slices.Contains(small, table) && !partial(t, db, m[2]) {
					t.Errorf("%s reads all of %s (%s):\n%s", method, table, line, s.text)
				}
			}
		}
	}
	if explained < 300 {
		t.Errorf("%d statements of the ledger's methods were explained, want at least 300", explained)
	}
}

func explain(t *testing.T, db *sql.DB, s statement) ([]string, error) {
	return list(t.Context(), db, func(row scanner) (line string, err error) {
		var skip any
		err = row.Scan(&skip, &skip, &skip, &line)
		return line, err
	}, "EXPLAIN QUERY PLAN "+s.text, s.args...)
}

// partial reports whether an index has only the rows of a state that none stays in.
func partial(t *testing.T, db *sql.DB, index string) bool {
	var n int
	must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema WHERE name = ? AND sql LIKE '% WHERE %' "+
		"AND sql NOT LIKE '%IS NOT NULL' AND sql NOT LIKE '%removed_at IS NULL%' AND sql NOT LIKE '%phase = ''done''%'", index).Scan(&n))
	return n > 0
}
