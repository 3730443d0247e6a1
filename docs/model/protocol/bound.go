package protocol

import "slices"

// Layers are the measures of the protocol.
type Layers struct {
	File   bool // the claim is a file that names its holder; else a folder, which any holder can claim
	Read   bool // what is read in the claim decides; else the answer of making it
	Intent bool // a send is recorded before sbatch starts; else its receipt is the first that is recorded
	Once   bool // a send's files are made exclusively: it is never started again, and its receipt is read instead
	Synced bool // a void claim counts only when it is synced
	Own    bool // a job syncs its claim before it executes
	Cancel bool // a cancel or a failed staging takes the claim of an attempt that has a folder, even if the ledger knows of no send
	Folder bool // a job in Slurm's answer is the attempt's by its working folder, whatever its name is; else by its name alone
	Row    bool // the transaction that makes the run of a row reads the row again; else what was read before counts
	Wait   bool // the transaction that starts a run whose inputs are there reads it again; else what was read before counts
	Alias  bool // the same transaction searches for the run of its content; else what was read before counts
	Mark   bool // the cancel of a batch records that of each run; else it is recorded when the gateway comes to the row
}

// All returns the protocol with all layers.
func All() Layers {
	return Layers{true, true, true, true, true, true, true, true, true, true, true, true}
}

var layers = []struct {
	name  string
	field func(*Layers) *bool
}{
	{"file", func(l *Layers) *bool { return &l.File }}, {"read", func(l *Layers) *bool { return &l.Read }},
	{"intent", func(l *Layers) *bool { return &l.Intent }}, {"once", func(l *Layers) *bool { return &l.Once }},
	{"synced", func(l *Layers) *bool { return &l.Synced }}, {"own", func(l *Layers) *bool { return &l.Own }},
	{"cancel", func(l *Layers) *bool { return &l.Cancel }}, {"folder", func(l *Layers) *bool { return &l.Folder }},
	{"row", func(l *Layers) *bool { return &l.Row }},
	{"wait", func(l *Layers) *bool { return &l.Wait }}, {"alias", func(l *Layers) *bool { return &l.Alias }},
	{"mark", func(l *Layers) *bool { return &l.Mark }},
}

// LayerNames returns the names that Remove accepts.
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

// Bound limits how often faults may happen: in all, and of each kind. The run has at most two attempts, three sends and
// three jobs.
type Bound struct{ All, Crashes, Forgets, Losses, Restores, Lies, Restarts, Cuts, Twins, Hidden, Renames uint8 }

// Full returns the bound of make model, and Quick that of the tests.
func Full() Bound {
	return Bound{All: 3, Crashes: 2, Forgets: 1, Losses: 1, Restores: 1, Lies: 1, Restarts: 1, Cuts: 2, Twins: 1, Hidden: 1, Renames: 1}
}

// Quick allows two faults of any kinds.
func Quick() Bound {
	return Bound{All: 2, Crashes: 1, Forgets: 1, Losses: 1, Restores: 1, Lies: 1, Restarts: 1, Cuts: 1, Twins: 1, Hidden: 1, Renames: 1}
}
