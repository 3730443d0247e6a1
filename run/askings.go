package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// Several principals may ask for one run: it stays one run, and continues as long as one of them asks for it.

// Asking records that a principal wants a run, one that waits, or an artifact that it imported: by its own calls, or by
// a batch. A person who asked both ways has two askings.
type Asking struct {
	Principal
	Person string // user id and login name of its Unix user, or empty. Askings by several credentials of one person belong together
	Batch  string // the batch by which it asks; empty: by its own calls
	CallID string // the call
}

// Asker is an asking with its times from the ledger.
type Asker struct {
	Asking
	AskedAt     time.Time  // the first time
	WithdrawnAt *time.Time // nil: not withdrawn
}

// Of reports whether the asking is that of the principal who, or of its person.
func (a Asker) Of(who Asking) bool {
	return a.Principal == who.Principal || a.Person != "" && a.Person == who.Person
}

// Withdrawal takes askings back.
type Withdrawal struct {
	By  Principal // who takes them back
	Of  Asking    // whose: all askings of the principal and of its person; with a batch, those by that batch
	All bool      // those of everyone
}

// Text returns the message about a withdrawal from a thing ("this run", "this batch") that others still ask for.
func (w Withdrawal) Text(thing string, held []Asker) string {
	who := "you no longer ask"
	if w.Of.Principal != w.By {
		who = w.Of.Name + " no longer asks"
	}
	return "withdrawn: " + who + " for " + thing + ", and it continues for " + AskersText(held)
}

// Event returns the data of a withdrawal's event in the history.
func (w Withdrawal) Event() map[string]any {
	of := w.Of.Principal
	if w.All {
		of = Principal{}
	}
	return map[string]any{"principal": w.By.Name, "principal_id": w.By.ID, "for_principal": of.Name, "for_principal_id": of.ID,
		"batch_id": w.Of.Batch, "for_all": w.All}
}

// NamesOf returns the principals of askings, each once, and at most five; more is how many are left out.
func NamesOf(list []Asker) (names []string, more int) {
	for _, a := range list {
		if !slices.Contains(names, a.Name) {
			names = append(names, a.Name)
		}
	}
	more = max(0, len(names)-5)
	return names[:len(names)-more], more
}

// AskersText returns the names of those who still ask for something, as part of a sentence.
func AskersText(list []Asker) string {
	names, more := NamesOf(list)
	if more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// NotAsked returns the Policy fault for a caller who did not ask for what the call would end, repeat or remove.
func NotAsked(id string, by []Asker) error {
	who := "it is not recorded who asked for it"
	if len(by) > 0 {
		who = "it was asked for by " + AskersText(by)
	}
	code := "not_your_run"
	for prefix, other := range map[string]string{"batch_": "not_your_batch", "art_": "not_your_artifact"} {
		if strings.HasPrefix(id, prefix) {
			code = other
		}
	}
	return fault.New(fault.Policy, code, id+" is not yours to change: "+who+", and not by you").
		WithNext("ask one of them, or a principal with the capability operate on the project; if you want the same result, make the request " +
			"for it yourself: that finds the run, and makes it yours too")
}
