package ledger

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// queryer is a pool, a connection or a transaction.
type queryer interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

type scanner interface{ Scan(...any) error }

// one queries a single row. The query cannot be cancelled: with a context that can be, the driver starts a goroutine for each query,
// 6 µs of the 23 that a View of one in 10,000 runs then costs.
func (l *Ledger) one(ctx context.Context, query string, args ...any) *sql.Row {
	return l.r.QueryRowContext(context.WithoutCancel(ctx), query, args...)
}

// each calls f with every row.
func each(ctx context.Context, q queryer, f func(scanner) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return storage(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return storage(err)
		}
	}
	return storage(rows.Err())
}

// list reads every row.
func list[T any](ctx context.Context, q queryer, scan func(scanner) (T, error), query string, args ...any) (out []T, err error) {
	err = each(ctx, q, func(row scanner) error {
		v, err := scan(row)
		out = append(out, v)
		return err
	}, query, args...)
	return out, err
}

// column reads a row of one column.
func column[T any](row scanner) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// snapshot calls read in a transaction, which sees the ledger as it is at one moment.
func (l *Ledger) snapshot(ctx context.Context, read func(*sql.Tx) error) error {
	tx, err := l.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return storage(err)
	}
	defer tx.Rollback()
	return storage(read(tx))
}

// update carries out a statement and returns how many rows it changed.
func update(ctx context.Context, tx *sql.Conn, query string, args ...any) (int64, error) {
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// write carries out one statement in a transaction.
func (l *Ledger) write(ctx context.Context, query string, args ...any) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

// into reads a column into what the driver does not know: a time from microseconds, a string or a time from NULL, all else from JSON.
type into struct{ to any }

// Scan implements sql.Scanner.
func (c into) Scan(v any) error {
	text, isText := v.(string)
	n, isTime := v.(int64)
	switch to := c.to.(type) {
	case *time.Time:
		*to = time.UnixMicro(n).UTC()
	case **time.Time:
		if *to = nil; isTime {
			t := time.UnixMicro(n).UTC()
			*to = &t
		}
	case *string:
		*to = text
	case **string:
		if *to = nil; text != "" {
			*to = &text
		}
	case *json.RawMessage:
		if *to = nil; isText {
			*to = json.RawMessage(text)
		}
	default:
		if isText {
			return json.Unmarshal([]byte(text), to)
		}
	}
	return nil
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func optMicros(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixMicro()
}

// stored returns a time with the precision of the database.
func stored(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

func optStored(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	s := stored(*t)
	return &s
}

func optText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// where is the condition of a query.
type where struct {
	conds []string
	args  []any
}

func (w *where) add(cond string, args ...any) {
	w.conds, w.args = append(w.conds, cond), append(w.args, args...)
}

// is compares a column with a value; an empty value selects all.
func (w *where) is(column, value string) {
	if value != "" {
		w.add(column+" = ?", value)
	}
}

// begins selects the ids, of which only digits and letters follow an underscore, that begin with a text: by the index.
func (w *where) begins(column, text string) {
	w.add(column+" >= ? AND "+column+" < ?", text, text+"~") // after every letter
}

func (w where) String() string { return strings.Join(append([]string{"1"}, w.conds...), " AND ") }

// among returns the condition that a column has one of the values; with no values it is never true.
func among[T ~string](column string, values []T) (cond string, args []any) {
	for _, v := range values {
		args = append(args, v)
	}
	return column + " IN (" + strings.Join(slices.Repeat([]string{"?"}, len(values)), ",") + ")", args
}

// pageLimit returns how many items a page has.
func pageLimit(asked int) int {
	if asked <= 0 {
		return 50
	}
	return min(asked, 500)
}

// page cuts a list that was read with one item more than the limit. The cursor of the next page is made of the last item; it is empty on
// the last page.
func page[T any](items []T, limit int, place func(T) []any) (cut []T, cursor string) {
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit], encodeCursor(place(items[limit-1])...)
}

func encodeCursor(place ...any) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.TrimSpace(fmt.Sprintln(place...))))
}

// decodeCursor reads the place that a cursor was made of into pointers to the same types.
func decodeCursor(cursor string, place ...any) error {
	var values []any
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		_, err = fmt.Sscan(string(b), place...)
	}
	for _, p := range place {
		values = append(values, reflect.ValueOf(p).Elem().Interface())
	}
	if err != nil || encodeCursor(values...) != cursor {
		return noCursor()
	}
	return nil
}

func noCursor() error {
	return fault.Invalid("", fault.Problem{Code: "LIST-CURSOR", Field: "cursor", Rule: "a cursor of an earlier page",
		Msg: "not a valid cursor", Hint: "leave the cursor out to start from the beginning"})
}
