package ledger

// A list by sample, tag or batch walks the index of the rows that have it, newest run first, so that it costs what it shows and not what
// the ledger holds. Two rows may have one run, which is listed once.

const (
	rowMembers  = "batch_rows m"
	memberGroup = " GROUP BY m.run_at, m.run_id"
	memberRuns  = " CROSS JOIN runs r ON r.run_id = m.run_id"
)

// member returns the table that such a list begins with; "" for any other list.
func (f Filter) member() string {
	switch {
	case f.Sample != "" || f.Tag == "" && f.Batch != "":
		return rowMembers
	case f.Tag != "":
		return "batch_tags m"
	}
	return ""
}

// ofBatch adds the conditions on the row.
func (f Filter) ofBatch(w *where) {
	if f.member() == "" {
		return
	}
	w.add("m.run_id IS NOT NULL")
	w.is("m.sample", f.Sample)
	w.is("m.batch_id", f.Batch)
	if f.Tag != "" && f.Sample == "" {
		w.add("m.tag = ?", f.Tag)
	} else if f.Tag != "" {
		w.add("EXISTS (SELECT 1 FROM batch_tags t WHERE t.tag = ? AND t.batch_id = m.batch_id AND t.row_n = m.row_n)", f.Tag)
	}
}
