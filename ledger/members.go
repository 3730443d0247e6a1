package ledger

// A list by sample, tag or batch walks the index of the rows that have it, newest run first, so that it costs what it shows and not what
// the ledger holds. Two rows may have one run, which is listed once.

const memberGroup = " GROUP BY m.run_at, m.run_id"

// member is the table that such a list begins with; empty for any other list.
func (f Filter) member() string {
	switch {
	case f.Sample != "" || f.Tag == "" && f.Batch != "":
		return "batch_rows m CROSS JOIN "
	case f.Tag != "":
		return "batch_tags m CROSS JOIN "
	}
	return ""
}

func (f Filter) joined() string {
	if f.member() == "" {
		return ""
	}
	return " ON r.run_id = m.run_id"
}

// page is the query of a page.
func (f Filter) page(w where) string {
	q := pageQuery + f.member() + "runs r" + f.joined() + pageFrom + w.String()
	if f.member() != "" {
		return q + memberGroup + " ORDER BY m.run_at DESC, m.run_id DESC LIMIT ?)"
	}
	return q + " ORDER BY r.created_at DESC, r.run_id DESC LIMIT ?)"
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
