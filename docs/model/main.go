// Command model checks the submission protocol of docs/why/exactly-once.md by trying every order of its steps.
//
// The world is one run: a gateway that may die at any step, a send over a connection that may lose its answer or deliver late, a
// controller that forgets jobs, a site that renames them, jobs that are started again, a disk that loses what was not synced, links whose
// answers lie, and a ledger that is restored from a backup. Each fault has a budget; within the budgets every interleaving is visited.
// Checked in every state:
//
//   - the program of an attempt is started at most once;
//   - an attempt that the ledger ends as never executed has not been executed, and never is;
//   - no second sbatch starts for an attempt while the first may have been accepted, unless the ledger is a restored one;
//   - no attempt is given up as lost while it is executed and Slurm shows its job;
//   - once a cancel of the run, or of the batch that it is a row of, was acknowledged, the run is not made and not sent;
//   - a run that waited for inputs becomes the one run of its content, no matter who asks for that first;
//
// and over the whole graph: from every state a run can still end without another fault, with no verb but the one that its block names.
//
// Nouns: layer (a measure of the protocol, which can be taken away to see that it is needed), step, state, bound.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"slurmgate/docs/model/protocol"
)

func main() {
	bound := protocol.Full()
	without := flag.String("without", "", "take layers away, separated by commas: "+strings.Join(protocol.LayerNames(), ", "))
	quick := flag.Bool("quick", false, "smaller bounds, as in the tests")
	flag.Parse()
	if *quick {
		bound = protocol.Quick()
	}
	layers := protocol.All()
	for name := range strings.SplitSeq(*without, ",") {
		if name != "" && !layers.Remove(name) {
			fmt.Fprintln(os.Stderr, "model: there is no layer", name)
			os.Exit(2)
		}
	}
	began := time.Now()
	r := protocol.Check(layers, bound)
	fmt.Printf("%d states, %d steps, %s\n", r.States, r.Steps, time.Since(began).Round(time.Millisecond))
	if r.Problem == "" {
		fmt.Println("at most one execution of each attempt, nothing executes that the ledger ended, one sbatch at a time, " +
			"nothing is sent after a cancel, one content is one run, and every run can end")
		return
	}
	fmt.Println(r.Problem)
	for _, step := range r.Path {
		fmt.Println("  " + step)
	}
	os.Exit(1)
}
