package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"

	"slurmgate/fault"
	"slurmgate/httpapi"
	"slurmgate/plan"
)

// Small outputs are fetched many at a time: one request for each costs several times what copying it does.

const (
	pageOutputs = 50 // outputs, and rows, of one request
	fewOutputs  = 4  // so many are fetched one by one
)

// bundle holds the outputs of consecutive rows.
type bundle struct {
	after, rows int
	files       []int // those of them that are to be copied
}

// bundlesOf returns the requests for small outputs that are missing.
func bundlesOf(files []placed, missing []bool) (out []bundle) {
	var b bundle
	outputs, last := 0, 0
	flush := func() {
		if len(b.files) > fewOutputs {
			out = append(out, b)
		}
		b, outputs = bundle{after: last}, 0
	}
	for i, f := range files {
		if f.row != last && (outputs >= pageOutputs || b.rows == pageOutputs) {
			flush()
		}
		if outputs++; f.row != last {
			b.rows++
		}
		last = f.row
		if missing[i] && f.Size <= httpapi.BundledAtMost && f.doc.Type != plan.Directory {
			b.files = append(b.files, i)
		}
	}
	flush()
	return out
}

// collectBundle copies outputs that come together, and calls done with the place of each. What does not come, or not whole, is left to be
// fetched alone.
func (s *Session) collectBundle(ctx context.Context, batch string, b bundle, files []placed, dir string, done func(i int)) error {
	wanted := map[string][]int{}
	for _, i := range b.files {
		wanted[files[i].doc.ArtifactID] = append(wanted[files[i].doc.ArtifactID], i)
	}
	var own error
	var data bytes.Buffer
	_ = s.way().Bundle(ctx, batch, b.after, b.rows, func(id string, r io.Reader) error {
		rows := wanted[id]
		if len(rows) == 0 {
			return nil
		}
		delete(wanted, id) // it comes once for each row that has it
		data.Reset()
		if _, err := io.Copy(&data, io.LimitReader(r, httpapi.BundledAtMost+1)); err != nil {
			return err
		}
		sum := sha256.Sum256(data.Bytes())
		for _, i := range rows {
			f := files[i]
			if hex.EncodeToString(sum[:]) != f.SHA256 {
				continue // fetched singly, it gets its error
			}
			own = newFile(filepath.Join(dir, f.Path), func(w *os.File) error {
				if _, err := w.Write(data.Bytes()); err != nil {
					return fault.Wrap(fault.Transport, "target_unwritable", "cannot write "+f.Path, err)
				}
				return nil
			})
			if own != nil {
				return own
			}
			done(i)
		}
		return nil
	})
	return own
}
