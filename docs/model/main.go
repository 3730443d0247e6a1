// Command model checks the submission protocol of docs/exactly-once.md by trying every order of its steps.
//
// The world is one run: a gateway that may die at any step, a send over a connection that may lose its answer or deliver late, a
// controller that forgets jobs, jobs that are started again, a disk that loses what was not synced, links whose answers lie, and a ledger
// that is restored from a backup. Each fault has a budget; within the budgets every interleaving is visited. Checked in every state:
//
//   - the program of an attempt is started at most once;
//   - an attempt that the ledger ends as never executed has not been executed, and never is;
//   - no second sbatch starts for an attempt while the first may have been accepted, as long as the ledger is not a restored one;
//
// and over the whole graph: from every state a run can still end without another fault, with no verb but the one that its block names.
//
// Nouns: layer (a measure of the protocol, which can be taken away to see that it is needed), step, state, bound.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	bound := Full()
	without := flag.String("without", "", "take layers away, separated by commas: "+strings.Join(layerNames(), ", "))
	quick := flag.Bool("quick", false, "smaller bounds, as in the tests")
	flag.Parse()
	if *quick {
		bound = Quick()
	}
	layers := All()
	for name := range strings.SplitSeq(*without, ",") {
		if name != "" && !layers.Remove(name) {
			fmt.Fprintln(os.Stderr, "model: there is no layer", name)
			os.Exit(2)
		}
	}
	began := time.Now()
	r := Check(layers, bound)
	fmt.Printf("%d states, %d steps, %s\n", r.States, r.Steps, time.Since(began).Round(time.Millisecond))
	if r.Problem == "" {
		fmt.Println("at most one execution of each attempt, nothing executes that the ledger ended, one sbatch at a time, and every run can end")
		return
	}
	fmt.Println(r.Problem)
	for _, step := range r.Path {
		fmt.Println("  " + step)
	}
	os.Exit(1)
}

// Layers are the measures of the protocol.
type Layers struct {
	File   bool // the claim is a file that names its holder; else a folder, which is everybody's
	Read   bool // what is read in the claim decides; else the answer of making it
	Intent bool // a send is recorded before sbatch starts; else its receipt is the first that is recorded
	Synced bool // a void claim counts only when it is synced
	Own    bool // a job syncs its claim before it executes
	Cancel bool // a cancel takes the claim of an attempt that has a folder, even if the ledger knows of no send
}

// All is the protocol as it is.
func All() Layers { return Layers{true, true, true, true, true, true} }

var layers = []struct {
	name  string
	field func(*Layers) *bool
}{
	{"file", func(l *Layers) *bool { return &l.File }}, {"read", func(l *Layers) *bool { return &l.Read }},
	{"intent", func(l *Layers) *bool { return &l.Intent }},
	{"synced", func(l *Layers) *bool { return &l.Synced }}, {"own", func(l *Layers) *bool { return &l.Own }},
	{"cancel", func(l *Layers) *bool { return &l.Cancel }},
}

func layerNames() (names []string) {
	for _, l := range layers {
		names = append(names, l.name)
	}
	return names
}

// Remove takes a layer away, if there is one of that name.
func (l *Layers) Remove(name string) bool {
	i := slices.Index(layerNames(), name)
	if i >= 0 {
		*layers[i].field(l) = false
	}
	return i >= 0
}

// Bound is how often faults may happen: in all, and of each kind. The run has at most two attempts, three sends and three jobs.
type Bound struct{ All, Crashes, Forgets, Losses, Restores, Lies, Restarts, Cuts uint8 }

// Full is what make model visits, Quick what the tests do.
func Full() Bound {
	return Bound{All: 3, Crashes: 2, Forgets: 1, Losses: 1, Restores: 1, Lies: 1, Restarts: 1, Cuts: 2}
}

// Quick has two faults of any kinds.
func Quick() Bound {
	return Bound{All: 2, Crashes: 1, Forgets: 1, Losses: 1, Restores: 1, Lies: 1, Restarts: 1, Cuts: 1}
}
