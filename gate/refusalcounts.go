package gate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"slurmgate/plan"
)

// refusalCounts stores the counts of refused calls that have no record yet, so that they survive the end of the gateway's
// process: a file of slots of a fixed size, so that a flood of refused calls fills no disk. Nothing is synced. A slot
// has the record of the first call without anything its caller wrote, and the number of calls:
//
//	refused.waiting: countSlots slots of [count uint64][checksum uint32][length uint32][record, JSON], little-endian
//
// A slot whose count is 0 is empty. The next process records what one leaves. After a kill between writing a record
// and clearing its count, the next process counts those calls again: rather twice than not at all.
type refusalCounts struct {
	f      *os.File // nil: no file
	used   [countSlots]bool
	failed func(error)
}

const (
	countSlots = 192 // more than [refusals] counts apart
	countSlot  = 4096
	countHead  = 16
)

// openRefusalCounts opens the file and adds the records that an earlier process left to those that are to be written.
// The file is empty afterwards.
func openRefusalCounts(c Spill, a *spill, left []queued) (*refusalCounts, []queued) {
	t := &refusalCounts{failed: a.fail}
	if c.Dir == "" {
		return t, left
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "refused.waiting"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		a.fail(err)
		return t, left
	}
	t.f = f
	slots, err := io.ReadAll(io.LimitReader(f, countSlots*countSlot))
	if err != nil {
		a.fail(err)
	}
	slots = append(slots, make([]byte, countSlot)...) // the last one may be short
	for ; len(slots) >= countSlot; slots = slots[countSlot:] {
		if r, ok := readSlot(slots[:countSlot]); ok && a.new(r) {
			left = append(left, queued{record: r, in: a.put(r)})
		}
	}
	if err := f.Truncate(0); err != nil {
		a.fail(err)
	}
	return t, left
}

func readSlot(slot []byte) (r Record, ok bool) {
	count, sum, n := binary.LittleEndian.Uint64(slot), binary.LittleEndian.Uint32(slot[8:]), binary.LittleEndian.Uint32(slot[12:])
	if count == 0 || count > 1<<53 || n > countSlot-countHead || crc32.ChecksumIEEE(slot[countHead:countHead+n]) != sum ||
		json.Unmarshal(slot[countHead:countHead+n], &r) != nil {
		return r, false
	}
	r.Count = int64(count)
	doc, err := plan.Read(r.Event)
	if err != nil {
		return r, false
	}
	e, _ := doc.Value.(map[string]any)
	if body, ok := e["error"].(map[string]any); ok {
		body["message"] = fmt.Sprintf("%d refused calls that this record counts; it is what a gateway that was killed left of them", count)
	}
	r.Event, err = plan.Marshal(e)
	return r, err == nil
}

// take begins a slot with a count of 1; -1 when none could be made.
func (t *refusalCounts) take(r Record, err error) int {
	if t.f == nil {
		return -1
	}
	i := 0
	for i < countSlots && t.used[i] {
		i++
	}
	raw, problem := json.Marshal(r)
	switch {
	case err != nil || problem != nil:
		t.failed(errors.Join(err, problem))
		return -1
	case i == countSlots, len(raw) > countSlot-countHead:
		t.failed(fmt.Errorf("no room for the count of refused calls (slot %d, %d bytes)", i, len(raw)))
		return -1
	}
	slot := make([]byte, countHead, countHead+len(raw))
	binary.LittleEndian.PutUint64(slot, 1)
	binary.LittleEndian.PutUint32(slot[8:], crc32.ChecksumIEEE(raw))
	binary.LittleEndian.PutUint32(slot[12:], uint32(len(raw)))
	if !t.write(append(slot, raw...), i) {
		return -1
	}
	t.used[i] = true
	return i
}

// count sets the number of calls in a slot.
func (t *refusalCounts) count(i int, n int64) {
	if i >= 0 {
		t.write(binary.LittleEndian.AppendUint64(nil, uint64(n)), i)
	}
}

// end frees a slot.
func (t *refusalCounts) end(i int) {
	if i >= 0 {
		t.count(i, 0)
		t.used[i] = false
	}
}

func (t *refusalCounts) write(b []byte, i int) bool {
	if t.f == nil {
		return false
	}
	_, err := t.f.WriteAt(b, int64(i)*countSlot)
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		t.failed(err)
	}
	return err == nil
}

// close leaves the counts to the next process, if there are any.
func (t *refusalCounts) close(any bool) {
	if t.f != nil {
		if !any {
			if err := t.f.Truncate(0); err != nil {
				t.failed(err)
			}
		}
		_ = t.f.Close() // nothing is buffered
		t.f = nil
	}
}
