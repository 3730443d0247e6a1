package app

import (
	"context"
	"io"
	"regexp"
	"strings"

	"slurmgate/artifact"
	"slurmgate/secrets"
	"slurmgate/site"
	"slurmgate/visible"
)

// Scanner returns a scanner for secrets with a site's own patterns.
func Scanner(s *site.Site) *secrets.Scanner {
	if s == nil || len(s.Secrets.Patterns) == 0 {
		return secrets.Default()
	}
	var own []secrets.Pattern
	for _, p := range s.Secrets.Patterns {
		own = append(own, secrets.Pattern{Name: p.Name, Regex: regexp.MustCompile(p.Pattern), Keywords: p.Keywords}) // site.Load compiled it too
	}
	return secrets.New(own...)
}

func (g *Gateway) scanner() *secrets.Scanner {
	if g.Secrets == nil {
		return secrets.Default()
	}
	return g.Secrets
}

// leadRows is the number of rows and lines around a preview that are searched with it: more than a private key has.
const leadRows = 200

// cutText returns the first bytes and lines of a text without secrets; more reports that the text continues.
func cutText(s *secrets.Scanner, text string, most, lines int) (cut string, more bool) {
	end := visible.Head(text, most)
	for at, n := 0, 0; at < end; n++ {
		if n == lines {
			end = at
			break
		}
		i := strings.IndexByte(text[at:end], '\n')
		if i < 0 {
			break
		}
		at += i + 1
	}
	return s.Part(text, 0, end), end < len(text)
}

// cleanCell removes secrets from a cell. It keeps the first and last line of a private key: alone they are no secret,
// and cleanTable needs them.
func (g *Gateway) cleanCell(cell string) string {
	if len(cell) < 80 && strings.HasPrefix(cell, "-----") {
		return cell
	}
	return g.scanner().Redact(cell)
}

// cleanTable removes secrets that only the columns and rows of a table together reveal: a column of passwords, a name
// and a value in two cells, a private key across rows, some of which may be before the first.
func (g *Gateway) cleanTable(ctx context.Context, f io.ReaderAt, size int64, q artifact.TableQuery, t *artifact.Table) error {
	for _, row := range t.Rows {
		for i, cell := range row {
			underName := i < len(t.Columns) && t.Header && secrets.Named(t.Columns[i].Name, cell)
			if underName || i > 0 && len(row) <= 3 && secrets.Assigned(row[i-1], cell) {
				row[i] = secrets.Redacted
			}
		}
	}
	rows := t.Rows
	if q.FirstRow > 0 && len(rows) > 0 && strings.ContainsFunc(rows[0][0], func(r rune) bool { return r >= 'a' && r <= 'z' }) &&
		len(rows[0][0]) >= 32 {
		lead := q
		lead.FirstRow, lead.MaxRows, lead.MaxBytes = max(0, q.FirstRow-leadRows), int(min(q.FirstRow, leadRows)), secrets.Margin
		before, err := artifact.PreviewTable(ctx, f, size, lead)
		if err != nil {
			return err
		}
		rows = append(before.Rows[:len(before.Rows):len(before.Rows)], rows...)
	}
	var text strings.Builder
	for _, c := range t.Columns {
		if t.Header || q.FirstRow == 0 {
			text.WriteString(c.Name + "\n")
		}
	}
	at := make([]int, len(rows)) // start of the first cell of each row
	for i, row := range rows {
		if at[i] = text.Len(); len(row) > 0 {
			text.WriteString(row[0])
		}
		text.WriteByte('\n')
	}
	for _, x := range g.scanner().Find(text.String()) {
		for i, row := range rows {
			if len(row) > 0 && row[0] != "" && x.Start < at[i]+len(row[0]) && at[i] < x.End {
				row[0] = secrets.Redacted
			}
		}
	}
	return nil
}
