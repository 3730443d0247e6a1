package protocol

import "slices"

// Layers are the measures of the protocol.
type Layers struct {
	File   bool // the claim is a file that names its holder; else a folder, which is everybody's
	Read   bool // what is read in the claim decides; else the answer of making it
	Intent bool // a send is recorded before sbatch starts; else its receipt is the first that is recorded
	Once   bool // a send's files are made exclusively: it is never started again, and its receipt is read instead
	Synced bool // a void claim counts only when it is synced
	Own    bool // a job syncs its claim before it executes
	Cancel bool // a cancel or a failed staging takes the claim of an attempt that has a folder, even if the ledger knows of no send
}

// All is the protocol as it is.
func All() Layers { return Layers{true, true, true, true, true, true, true} }

var layers = []struct {
	name  string
	field func(*Layers) *bool
}{
	{"file", func(l *Layers) *bool { return &l.File }}, {"read", func(l *Layers) *bool { return &l.Read }},
	{"intent", func(l *Layers) *bool { return &l.Intent }}, {"once", func(l *Layers) *bool { return &l.Once }},
	{"synced", func(l *Layers) *bool { return &l.Synced }}, {"own", func(l *Layers) *bool { return &l.Own }},
	{"cancel", func(l *Layers) *bool { return &l.Cancel }},
}

// LayerNames are the names that Remove knows.
func LayerNames() (names []string) {
	for _, l := range layers {
		names = append(names, l.name)
	}
	return names
}

// Remove takes a layer away, if there is one of that name.
func (l *Layers) Remove(name string) bool {
	i := slices.Index(LayerNames(), name)
	if i >= 0 {
		*layers[i].field(l) = false
	}
	return i >= 0
}

// Bound is how often faults may happen: in all, and of each kind. The run has at most two attempts, three sends and three jobs.
type Bound struct{ All, Crashes, Forgets, Losses, Restores, Lies, Restarts, Cuts, Twins, Hidden uint8 }

// Full is what make model visits, Quick what the tests do.
func Full() Bound {
	return Bound{All: 3, Crashes: 2, Forgets: 1, Losses: 1, Restores: 1, Lies: 1, Restarts: 1, Cuts: 2, Twins: 1, Hidden: 1}
}

// Quick has two faults of any kinds.
func Quick() Bound {
	return Bound{All: 2, Crashes: 1, Forgets: 1, Losses: 1, Restores: 1, Lies: 1, Restarts: 1, Cuts: 1, Twins: 1, Hidden: 1}
}
