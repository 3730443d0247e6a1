package artifact

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
)

// age makes an object look as if it had been stored so long ago.
func age(t *testing.T, dir, sum string, d time.Duration) {
	t.Helper()
	at := time.Now().Add(-d)
	must(t, os.Chtimes(dir+"/objects/"+sum[:2]+"/"+sum, at, at))
}

func TestRemove(t *testing.T) {
	s, dir := newStore(t)
	sum, _, err := s.Put(t.Context(), bytes.NewReader([]byte("x")), 10)
	must(t, err)
	cutoff := time.Now().Add(-time.Hour)
	just := func(remove func() error) error { return remove() }
	remove := func(alone func(func() error) error) bool {
		t.Helper()
		gone, err := s.Remove(t.Context(), sum, cutoff, alone)
		must(t, err)
		return gone
	}
	if remove(just) {
		t.Error("a young object was removed")
	}
	age(t, dir, sum, 2*time.Hour)
	if remove(func(func() error) error { return nil }) || !s.Has(sum) {
		t.Error("a kept object was removed")
	}
	if gone, err := s.Remove(t.Context(), sum, cutoff, func(func() error) error { return os.ErrClosed }); gone || err == nil || !s.Has(sum) {
		t.Error("removed though nobody knows whether to keep it")
	}
	_, _, err = s.Put(t.Context(), bytes.NewReader([]byte("x")), 10) // stored again: young again
	must(t, err)
	if remove(just) {
		t.Error("an object that was just stored again was removed")
	}
	var seen []string
	must(t, s.Objects(t.Context(), func(sum string, size int64, _ time.Time) error {
		seen = append(seen, fmt.Sprint(sum, size))
		return nil
	}))
	if len(seen) != 1 || seen[0] != sum+"1" {
		t.Error(seen)
	}
	age(t, dir, sum, 2*time.Hour)
	if !remove(just) || s.Has(sum) || !remove(just) {
		t.Error("it is still there")
	}
	if gone, err := s.Remove(t.Context(), sumOf([]byte("never")), cutoff, just); !gone || err != nil {
		t.Error(gone, err)
	}
	_, err = s.Remove(t.Context(), "../x", cutoff, just)
	wantFault(t, err, fault.Validation, "checksum")
}

// Whatever is stored is there afterwards, though somebody removes it at the same moment for its age.
func TestRemoveWhileStoring(t *testing.T) {
	s, dir := newStore(t)
	other, err := Open(dir) // as another process has it
	must(t, err)
	defer other.Close()
	removed := 0
	for i := range 300 {
		b := fmt.Appendf(nil, "%d", i%5)
		sum, _, err := s.Put(t.Context(), bytes.NewReader(b), 10)
		must(t, err)
		age(t, dir, sum, 2*time.Hour)
		var both sync.WaitGroup
		both.Go(func() {
			if _, _, err := s.Put(t.Context(), bytes.NewReader(b), 10); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			gone, err := other.Remove(t.Context(), sum, time.Now().Add(-time.Hour), func(remove func() error) error { return remove() })
			if err != nil {
				t.Error(err)
			}
			if gone {
				removed++
			}
		})
		both.Wait()
		if err := s.Verify(t.Context(), sum); err != nil {
			t.Fatalf("round %d: it was stored and is not there: %v", i, err)
		}
	}
	t.Logf("removed first in %d of 300 rounds", removed)
}
