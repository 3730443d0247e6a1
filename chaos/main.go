// Command chaos is the crash campaign: it submits runs to a real gateway on a real cluster while one part after another is
// killed, stopped or made to lie, and compares the results with the plan.
//
//	go run ./chaos -n 60 -seed 1            sixty cases
//	go run ./chaos -seed 1 -case 17         case 17 of seed 1 alone, with its log
//	go run ./chaos -over login,dtn          only gateways outside of the cluster; the values are cli, login, dtn, rest, restsftp and caller
//	go run ./chaos -k 1,7 -over cli,rest    every second case is seven runs in one job array
//	go run ./chaos -n 0 -batches 20         batches alone, which are cancelled while they are submitted
//	go run ./chaos -list                    every scenario once without faults: which passes which places
//
// It needs root (for scripts/devcluster), mksquashfs, and a separate devcluster, which it starts. A case is one submission by
// `slurmgate serve`, in the build with seams (tag chaos), with faults drawn from the seed and the case's number:
//
//   - the gateway dies at a named seam, before or after a side effect, or gets an error although the effect took place;
//   - sbatch dies, is slow, or does not report its result; squeue, sacct and scancel hang, lie, fail, or answer half;
//   - gateways outside of the cluster, which reach it by SSH and SFTP: the connection is cut at any byte, is slow, or leads to another
//     login node; the SFTP server is full or lies about sizes; sshd is stopped, restarted, limited, has another host key, loses packets;
//   - gateways that ask slurmrestd: it is killed, restarted or paused in the middle of a submit, the token ends, requests and answers are
//     cut at any byte or slow, and answers lie, fail, or are half ones, as those of the commands do;
//   - gateways with run_as: caller, with a run of two users in each case: the signer is killed, paused, refuses a user, or its certificates
//     end within seconds; the account of one user is locked until the other's run has ended; another user has a job of the run's name;
//   - a site that renames jobs, by a job_submit plugin while they are submitted, or by hand later;
//   - batches: the gateway submits the rows of a sheet, of one tool or of two steps, and the batch is cancelled, alone or with all others,
//     while it does; cancelled rows are submitted after all, and cancelled again;
//   - the whole cluster: slurmctld paused, killed or restarted without memory, slurmdbd or munged stopped.
//
// The program in the container writes a record that nothing else can write (chaos/prog). Broken promises are counted as
//
//	duplicate      an attempt executed twice, or executed although the ledger says that it never was
//	lost           an answered run without a row, or a job that ran and whose run does not show it
//	stuck          neither at its end nor naming a verb 120 s after the last fault was lifted
//	misattributed  a state, exit code, job or output that is not the run's
//	late           a row that became a run, or a run that was sent, after the cancel of its batch was acknowledged
//
// and what each case left is replayed against docs/model: a step that the model does not allow is a finding too (unmodelled). The
// closing line is "N cases, D duplicates, L lost, S stuck, M misattributed; R replayed, as the model allows". Exit status 1 when
// anything is found, or a ledger or an artifact is damaged, or sixty cases or more did not reach every seam.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	n       int
	seed    uint64
	only    int
	batches int
	list    bool
	over    []carrier
	sizes   []int
	conf    []string // of the cluster's slurm.conf
	most    int      // jobs that Slurm takes of the user; 0: any
	workers int
	name    string
	repo    string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 60, "number of `cases`")
	flag.Uint64Var(&o.seed, "seed", 1, "everything random follows from it")
	flag.IntVar(&o.only, "case", -1, "run this case alone")
	flag.IntVar(&o.batches, "batches", -1,
		"number of `cases` of batches that are cancelled while they are submitted; -1 is one for ten others")
	flag.BoolVar(&o.list, "list", false, "run each scenario once without faults and show the places it passes")
	flag.IntVar(&o.workers, "workers", 4, "gateways at a time")
	flag.StringVar(&o.name, "name", "chaos", "the devcluster's `name`")
	over := flag.String("over", "cli,login,dtn,caller,rest,restsftp",
		"`transports`, among which the cases are divided; one that is named twice gets twice as many")
	sizes := flag.String("k", "1", "numbers of `runs` that leave together, as one job array, among which the cases are divided")
	flag.Func("conf", "`setting` of the cluster's slurm.conf, such as MaxArraySize=5; may be given again", func(s string) error {
		o.conf = append(o.conf, s)
		return nil
	})
	flag.IntVar(&o.most, "most", 0, "`jobs` that Slurm takes of the user at a time (MaxSubmitJobs); 0 is any number")
	flag.Parse()
	if o.batches < 0 {
		o.batches = o.n / 10
	}
	var err error
	if o.sizes, err = parseSizes(*sizes); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if o.over, err = parseCarriers(*over); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := campaign(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = 2
	}
	os.Exit(code)
}

func campaign(ctx context.Context, o options) (int, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return 0, fmt.Errorf("where is this source?")
	}
	o.repo = filepath.Dir(filepath.Dir(file))
	began := time.Now()
	if err := lock(o.name); err != nil {
		return 0, err
	}
	far := slices.ContainsFunc(o.over, carrier.ssh)
	c, err := upCluster(ctx, filepath.Join(o.repo, "scripts/devcluster"), o.name, far, slices.ContainsFunc(o.over, carrier.rest),
		o.conf, o.most)
	if err != nil {
		return 0, err
	}
	g, err := prepare(ctx, c, o.repo, far)
	if err != nil {
		return 0, err
	}
	list := cases(o.seed, o.n)
	switch {
	case o.list:
		list = bare()
	case o.only >= firstBatch:
		list, o.workers = nil, 1
	case o.only >= 0:
		list = cases(o.seed, o.only+1)
		o.workers = 1
	}
	list = withRenames(o.seed, withMates(o.seed, deal(o.seed, list, o.over), o.sizes, len(o.over)))
	switch {
	case o.only >= firstBatch:
		list = batchCases(o.seed, o.only-firstBatch+1, o.over)[o.only-firstBatch:]
	case o.only >= 0:
		list = list[o.only:]
	case !o.list:
		list = append(list, batchCases(o.seed, o.batches, o.over)...)
	}
	p := &campaigner{options: o, ground: g, began: began, reached: map[string]int{}, passed: map[string]map[string]bool{},
		counts: map[string]int{}, results: map[carrier]*caseCounter{}, failing: map[string]bool{"": false}}
	for _, c := range o.over {
		p.results[c] = &caseCounter{found: map[string]int{}, hits: hits{}}
	}
	defer func() {
		for _, s := range p.sites {
			if s.rest != nil {
				s.rest.kill(syscall.SIGKILL)
			}
			if s.signer != nil {
				s.signer.end()
			}
		}
	}()
	for n := range o.workers {
		w := worker{}
		for c := range p.results {
			s, err := newSite(ctx, g, c, n)
			if err != nil {
				return 0, err
			}
			w[c] = s
			p.sites = append(p.sites, s)
		}
		p.workers = append(p.workers, w)
	}
	p.say("cluster %s, %d workers, ready after %s", o.name, o.workers, time.Since(began).Round(100*time.Millisecond))
	if err := p.all(ctx, list); err != nil {
		return 0, err
	}
	// Sixty cases deal every seam; where the gateway was killed on its way there by something else, it gets another turn.
	for turn := 0; turn < 3 && o.n >= everySeam && o.only < 0 && !o.list && len(p.missed()) > 0; turn++ {
		if err := p.all(ctx, deal(o.seed, again(o.seed, o.n+100*turn, turn, p.missed()), o.over[:1])); err != nil {
			return 0, err
		}
	}
	return p.close(ctx)
}

// everySeam is the number of cases that deal every seam.
const everySeam = 60

// bare returns every scenario without faults but its own.
func bare() []testCase {
	var out []testCase
	for i, sc := range scenarios {
		c := testCase{n: i, scenario: sc, killSbatch: -1, block: -1, cancelAfter: time.Second}
		if sc.fail != "" {
			c.starts = []start{{fail: sc.fail}}
		}
		out = append(out, c)
	}
	return out
}
