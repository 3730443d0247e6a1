package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// Spill says where records of calls that do not wait for the journal are stored until it has them, so that they
// survive the end of the gateway's process.
type Spill struct {
	Dir string // of the files; "": records that are not written yet end with the process
	// Written reports whether the journal has the record. It is asked at start-up, about the records that an earlier process left.
	Written func(context.Context, Record) (bool, error)
}

// spill stores the records of calls that are answered before their record is in the journal. Each record is appended
// to one of two files before the answer, without a sync: it survives the end of the process, not that of the machine.
// A file is emptied when the journal has all its records; while calls never pause, the other takes over from
// asideMost bytes on. The next process passes the remaining records to the journal.
//
//	looks-1.waiting, looks-2.waiting: one line of JSON for each record
//
// A write that fails is logged once and delays no call.
type spill struct {
	log *slog.Logger
	on  bool
	new func(Record) bool // whether what an earlier process left is to be recorded

	mu     sync.Mutex
	files  [2]spillFile
	active *spillFile

	failed sync.Once
}

type spillFile struct {
	f       *os.File // nil: no file
	size    int64
	waiting int // its records that the journal does not have
}

const asideMost = 1 << 20

// openSpill opens the files and returns what an earlier process left in them, oldest first.
func openSpill(c Spill, log *slog.Logger) (a *spill, left []queued) {
	a = &spill{log: log}
	a.active = &a.files[0]
	if c.Dir == "" {
		return a, nil
	}
	a.on = true
	seen := map[string]bool{}
	a.new = func(r Record) bool {
		name := fmt.Sprint(r.ToolCallID, r.At.UnixMicro(), string(r.Event))
		if seen[name] {
			return false
		}
		seen[name] = true
		written, err := c.Written(context.Background(), r)
		if err != nil {
			log.Error("it is not known whether a call of the process before is recorded; it is recorded now", append(r.names(), "err", err)...)
		}
		return err != nil || !written
	}
	for i := range a.files {
		f := &a.files[i]
		records, err := f.open(filepath.Join(c.Dir, fmt.Sprintf("looks-%d.waiting", i+1)))
		if err != nil {
			a.fail(err)
		}
		for _, r := range records {
			if a.new(r) {
				f.waiting++
				left = append(left, queued{record: r, in: f})
			}
		}
		if f.waiting == 0 {
			a.empty(f)
		}
	}
	if a.files[0].waiting > 0 && a.files[1].waiting == 0 {
		a.active = &a.files[1]
	}
	return a, left
}

// open reads the records in the file. The last line may be torn; the next record takes its place.
func (f *spillFile) open(path string) (records []Record, err error) {
	if f.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(f.f, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		f.size += int64(len(line))
		var r Record
		if json.Unmarshal(line, &r) == nil && r.ToolCallID != "" {
			records = append(records, r)
		}
	}
}

// put keeps a record, before its call is answered, and returns the file that has it: nil where none could take it.
func (a *spill) put(r Record) *spillFile {
	if !a.on {
		return nil
	}
	line, err := r.line()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.fail(err)
		return nil
	}
	if other := a.other(); a.active.size > asideMost && other.size == 0 && other.f != nil {
		a.active = other
	}
	f := a.active
	if f.f == nil {
		return nil
	}
	if _, err := f.f.WriteAt(line, f.size); err != nil {
		a.fail(errors.Join(err, f.f.Truncate(f.size)))
		return nil
	}
	f.size += int64(len(line))
	f.waiting++
	return f
}

// line returns the record as JSON. Its documents are canonical already: an encoder would read all of them again.
func (r Record) line() ([]byte, error) {
	rest := r
	rest.Event, rest.Payloads, rest.Provenance = nil, nil, nil
	line, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	parts := [][]byte{line[:len(line)-1], []byte(`,"Event":`), r.Event}
	before := `,"Payloads":[`
	for _, p := range r.Payloads {
		parts = append(parts, fmt.Appendf(nil, `%s{"Kind":%q,"SHA256":%q,"JSON":`, before, p.Kind, p.SHA256), p.JSON, []byte("}"))
		before = ","
	}
	if len(r.Payloads) > 0 {
		parts = append(parts, []byte("]"))
	}
	if p := r.Provenance; p != nil {
		parts = append(parts, fmt.Appendf(nil, `,"Provenance":{"RunID":%q,"Identity":`, p.RunID), p.Identity, []byte("}"))
	}
	return bytes.Join(append(parts, []byte("}\n")), nil), nil
}

func (a *spill) other() *spillFile {
	if a.active == &a.files[0] {
		return &a.files[1]
	}
	return &a.files[0]
}

// written empties the file when the journal has all its records.
func (a *spill) written(f *spillFile) {
	if f == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		a.empty(f)
	}
}

func (a *spill) empty(f *spillFile) {
	if f.f == nil {
		return
	}
	if err := f.f.Truncate(0); err != nil {
		a.fail(err) // the next process finds in the journal what is in the file
		return
	}
	f.size = 0
}

func (a *spill) fail(err error) {
	a.failed.Do(func() {
		a.log.Error("records of answered calls cannot be kept in gateway.state_dir next to the ledger; a SIGKILL may lose the last of them",
			"err", err)
	})
}

// close leaves what the journal could not write to the next process.
func (a *spill) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.files {
		if f := &a.files[i]; f.f != nil {
			_ = f.f.Close() // nothing is buffered
			f.f = nil
		}
	}
}
