package export

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/plan"
)

// inner is the archive of a run inside that of a batch, as it was checked.
type inner struct {
	report Report
	run    Run
}

// checkRun checks the archive of a run in that of a batch.
func (c *checker) checkRun(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	in := newChecker(name)
	in.keys, in.contents = c.keys, newTree()
	err := in.archive(ctx, r, size, in.bad)
	if err == nil {
		_, err = in.check()
	}
	switch {
	case fault.Is(err, fault.Canceled) || fault.CodeOf(err) == "receipt_key": // nothing of the archive
		return err
	case err != nil:
		in.bad("", fault.Prose(err))
	}
	c.runs[name] = inner{*in.Report, in.run}
	for _, p := range in.Problems {
		c.bad(strings.TrimSuffix(name+"/"+p.File, "/"), p.Message)
	}
	for _, p := range in.NotJudged {
		c.cannotJudge(name+"/"+p.File, p.Message)
	}
	return nil
}

// checkBatch holds the batch against the archives of its runs, which are checked already.
func (c *checker) checkBatch() error {
	if !c.known(batchFile, "slurmgate_batch_export", BatchFormat) {
		return nil
	}
	keys, err := c.readKeys()
	if err != nil {
		return err
	}
	doc, err := plan.ReadUpTo(c.documents[batchFile], maxDocument)
	if err == nil {
		err = doc.Into(&c.batch)
	}
	if err != nil {
		c.bad(batchFile, "it cannot be read: "+fault.Prose(err))
		return nil
	}
	c.BatchID, c.ToolID = c.batch.BatchID, c.batch.ToolID
	ids, _ := c.batch.runs()
	c.Runs = len(ids)
	var runs []Run
	for _, id := range ids {
		name := runArchive(id)
		in, ok := c.runs[name]
		if !ok {
			c.bad(name, "it is missing: "+batchFile+" has the run")
			continue
		}
		if runs = append(runs, in.run); in.report.RunID != id {
			c.bad(name, fmt.Sprintf("it is the archive of %q", in.report.RunID))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.runs)) {
		id, _ := archivedRun(name)
		if _, has := slices.BinarySearch(ids, id); !has {
			c.bad(name, "no row of "+batchFile+" has this run")
		}
	}
	c.shared(runs)
	if len(runs) == len(c.runs) && len(runs) == len(ids) {
		c.batchAgain(runs)
	}
	c.rows(runs)
	c.signature(keys, receipt.Archive{Format: BatchFormat, BatchID: c.BatchID})
	c.signatures()
	return nil
}

// rows holds the rows of the sheet against what the receipts of their runs say.
func (c *checker) rows(runs []Run) {
	signed := map[Row]string{}
	for _, r := range runs {
		for _, w := range r.Rows {
			if w.BatchID == c.BatchID {
				signed[w] = r.RunID
			}
		}
	}
	later := 0
	for _, r := range c.batch.Rows {
		if in, ok := c.runs[runArchive(r.RunID)]; ok && r.State != in.report.State {
			c.bad(batchFile, fmt.Sprintf("row %d has the state %s, but its run ended as %s", r.Row, r.State, in.report.State))
		}
		w := Row{c.BatchID, r.Row, r.Sample}
		if signed[w] != r.RunID {
			later++ // or it is another row than that of the receipt, which is then left over
		}
		delete(signed, w)
	}
	for w, id := range signed {
		c.bad(batchFile, fmt.Sprintf("the receipt of %s has it as row %d of sample %q, and the batch has no such row", id, w.Row, w.Sample))
	}
	if later > 0 {
		c.note("%d rows found a run that had ended before: their samples rest on the signature of this archive, not on a receipt", later)
	}
}

// shared holds the inputs that runs refer to against the files.
func (c *checker) shared(runs []Run) {
	want := sharedOf(runs)
	for _, name := range c.names {
		if sum, ok := strings.CutPrefix(name, sharedAt); ok && want[sum].SHA256 == "" {
			c.bad(name, "no run of the batch takes it")
		}
	}
	for _, sum := range slices.Sorted(maps.Keys(want)) {
		switch got, found := c.found[sharedAt+sum]; {
		case !found:
			c.bad(sharedAt+sum, "it is missing: runs of the batch take it")
		case got.sha256 != sum:
			c.bad(sharedAt+sum, "its SHA-256 is "+got.sha256)
		}
	}
}

// mostNotes bounds how many notes about the archives of runs are reported, each once.
const mostNotes = 10

// signatures adds what the archives of the runs say of their signatures and of themselves.
func (c *checker) signatures() {
	notes, signed := map[string]bool{}, 0
	for _, name := range slices.Sorted(maps.Keys(c.runs)) {
		in := c.runs[name]
		c.Events += in.report.Events
		for _, n := range in.report.Notes {
			if !notes[n] && len(notes) < mostNotes {
				c.note("%s: %s", name, n)
			}
			notes[n] = true
		}
		if in.report.Signature.Signed {
			signed++
		}
		for _, k := range in.report.Signature.KeyIDs {
			if !slices.Contains(c.Signature.KeyIDs, k) {
				c.Signature.KeyIDs = append(c.Signature.KeyIDs, k)
				c.Signature.Text += "; archives of its runs have signatures by key " + k
			}
		}
	}
	if more := len(notes) - mostNotes; more > 0 {
		c.note("there are %d more notes about runs; verify their archives alone to read them", more)
	}
	c.Signature.Text += fmt.Sprintf("; the signatures of %d of %d runs are good", signed, len(c.runs))
	c.Signature.Signed = c.Signature.Signed && signed == len(c.runs)
	c.Signature.Trusted = c.Signature.Trusted && c.Signature.Signed
}

// batchAgain makes the derived documents again and compares them.
func (c *checker) batchAgain(runs []Run) {
	derived, err := deriveBatch(c.batch, runs)
	if err != nil {
		c.bad("", "the derived files cannot be made again: "+fault.Prose(err))
		return
	}
	sound := len(c.Problems) == 0
	for _, f := range derived {
		switch got, found := c.found[f.name]; {
		case !found && c.listed[f.name] == "":
			c.bad(f.name, "it is missing")
		case found && got.sha256 != f.sha256 && sound: // else they may differ with what is wrong
			c.bad(f.name, "it does not follow from the batch and its runs")
		}
	}
}
