package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Two users side by side: each one's job is theirs in the queue, in accounting and on disk, through everything that a run goes through,
// and so is what waits for its output.
//
// proves SITE-08 MANY-02 MANY-04
func TestRunAsCaller(t *testing.T) {
	t.Parallel()
	s, _ := callerSite(t, func(doc tree) {
		doc["import"] = tree{"local": "own"}
		doc["slurm"].(tree)["arrays"] = tree{"min": callersWaiting - 1, "linger_ms": 60000}
	})
	s.replace("domain/policies.yaml", "nobodys", "alicelab, boblab, nobodys")
	s.chainTools("two")
	s.serve()
	t.Run("in arrays", func(t *testing.T) { callersInArrays(t, s.as(t)) })
	for _, user := range []string{"alice", "bob"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			c := caller{s.as(t), user}
			c.lives()
		})
	}
}

// callersWaiting is how many runs of each user callersInArrays makes leave together. The first one may leave alone.
const callersWaiting = 24

// callersInArrays makes runs of two users leave together: no array has tasks of both, and they are that user's jobs.
// A cancel as their user ends waiting tasks and no others, and the list of the remaining ones is read at any length.
func callersInArrays(t *testing.T, s *site) {
	s.ok(nil, "drain", "--queue", "--reason", "company")
	var callers []caller
	waits, writes := map[caller][]string{}, map[caller][]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range []string{"alice", "bob"} {
		c := caller{s, name}
		callers = append(callers, c)
		submit := func(of map[caller][]string, doc tree) {
			doc["placement"].(tree)["account"] = name + "lab"
			all.Go(func() {
				id := s.submitAs(name, doc).RunID
				mu.Lock()
				defer mu.Unlock()
				of[c] = append(of[c], id)
			})
		}
		for i := range callersWaiting {
			submit(waits, s.set(s.set(probePlan("nothing"), "placement.partition", "big"), "execution.command.env", tree{"N": fmt.Sprint(i)}))
		}
		for i := range 3 {
			submit(writes, probePlan("write", "out/result", fmt.Sprint("task", i)))
		}
	}
	all.Wait()
	s.ok(nil, "resume")
	for _, c := range callers {
		arrays, largest := map[string][]string{}, 0
		for _, id := range waits[c] {
			array, _, _ := strings.Cut(*c.until(id, "pending").SlurmJobID, "_")
			arrays[array] = append(arrays[array], id)
			largest = max(largest, len(arrays[array]))
		}
		if largest < callersWaiting/2 {
			t.Fatalf("%s's %d runs left in arrays %v, want at least half of them in one array", c.name, callersWaiting, arrays)
		}
		kept := 0
		for array, ids := range arrays {
			if got := shell(t, "root", `squeue -h -r -j "$1" -o '%u %a' | sort -u`, array); got != c.name+" "+c.name+"lab" {
				t.Errorf("squeue shows that jobs of array %s belong to %q, want %s and %slab only", array, got, c.name, c.name)
			}
			for i, id := range ids {
				if i%2 == 0 {
					continue
				}
				var a struct{ State, Executed string }
				if c.do(&a, "cancel", id); a.State != "cancelled" || a.Executed != "never" {
					t.Errorf("cancel of a waiting task returned %q, executed %q, want cancelled and never executed", a.State, a.Executed)
				}
			}
			kept += (len(ids) + 1) / 2
		}
		all := strings.Join(slices.Collect(maps.Keys(arrays)), ",")
		until(t, "end of the cancelled tasks", func() bool {
			return shell(t, "root", `squeue -h -r -j "$1" -t PENDING -o %K | wc -l`, all) == fmt.Sprint(kept)
		})
		seen := s.looksAtQueue()
		until(t, "two more queries of the queue", func() bool { return s.looksAtQueue() >= seen+2 })
		for _, ids := range arrays {
			for i, id := range ids {
				if l := c.get(id); i%2 == 0 && (l.Phase != "pending" || strings.Contains(l.why(), "record")) {
					t.Errorf("a task that was not cancelled: %v, want it pending without a word about its record", l)
				}
			}
		}
	}
	for _, c := range callers {
		for _, id := range writes[c] {
			if l := c.until(id, "done"); l.State != "succeeded" || c.owners(id) != c.name {
				t.Errorf("%v with files of %s, want it succeeded with files of %s", l, c.owners(id), c.name)
			}
		}
		for _, id := range waits[c] {
			if l := c.get(id); l.Phase == "pending" {
				var a struct{ State string }
				c.do(&a, "cancel", id)
			}
		}
	}
}

// looksAtQueue reads from the gateway's metrics how often it ran squeue.
func (s *site) looksAtQueue() (n int) {
	s.t.Helper()
	for line := range strings.Lines(shell(s.t, "lab", `curl -sSf --unix-socket "$1" http://gateway/metrics`, s.dir+"/gw.sock")) {
		if strings.HasPrefix(line, `slurmgate_slurm_requests_total{command="squeue"`) {
			looks := value(strconv.Atoi(strings.Fields(line)[1]))(s.t)
			n += looks
		}
	}
	return n
}

// caller is a user of a site with run_as: caller.
type caller struct {
	*site
	name string
}

// get reads a run as the caller.
func (c caller) get(runID string) (l looked) {
	c.t.Helper()
	c.do(&l, "get", runID)
	return l
}

// do runs a command line as the caller, which must succeed.
func (c caller) do(into any, args ...string) {
	c.t.Helper()
	r := c.user(c.name, nil, args...)
	if r.code != 0 && r.code != 6 {
		c.t.Fatalf("%s: %v, want exit 0 or 6", c.name, r)
	}
	r.object(c.t, into)
}

// until waits until a run of the caller's is in a phase.
func (c caller) until(runID, phase string) (l looked) {
	c.t.Helper()
	until(c.t, phase+" of "+runID, func() bool {
		l = c.get(runID)
		if l.Phase == "done" && phase != "done" {
			c.t.Fatalf("the run ended before it was %s: %s %s", phase, l.State, l.why())
		}
		return l.Phase == phase
	})
	return l
}

// workspace returns the folder of a run of the caller's.
func (c caller) workspace(runID string) string { return c.callerRuns(c.name) + "/" + runID }

// owners lists the owners of all files of a run.
func (c caller) owners(runID string) string {
	c.t.Helper()
	return shell(c.t, "root", `find "$1" -printf '%u\n' | sort -u`, c.workspace(runID))
}

// release lets a held program end.
func (c caller) release(runID string, n string) {
	c.t.Helper()
	until(c.t, "folder for outputs", func() bool {
		_, err := os.Stat(host(c.workspace(runID)) + "/a" + n + "/out")
		return err == nil
	})
	shell(c.t, c.name, `touch "$1/a$2/out/go"`, c.workspace(runID), n)
}

func (c caller) lives() {
	t := c.t
	file := c.fileOf(c.name, "mine.txt", c.name+"'s own\n")
	var in artifactRow
	c.do(&in, "artifact", "import", file)
	doc := held()
	doc["placement"].(tree)["account"] = c.name + "lab"
	doc["io"].(tree)["inputs"] = []any{tree{"role": "table", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256,
		"dest_relpath": "in/input.txt"}}
	a := c.submitAs(c.name, doc)
	running := c.until(a.RunID, "running")
	if got := strings.Fields(shell(t, "root", `squeue -h -j "$1" -o '%u %a'`, *running.SlurmJobID)); len(got) != 2 || got[0] != c.name ||
		got[1] != c.name+"lab" {
		t.Errorf("squeue shows a job of %q", got)
	}
	if again := c.submitAs(c.name, doc); !again.Replayed || again.RunID != a.RunID {
		t.Errorf("%s's request again gives %v, want a replay of %s", c.name, again, a.RunID)
	}
	var next submitted
	if c.do(&next, "run", "chain.two", "-i", "text="+a.RunID+":result"); next.Phase != "waiting_for_inputs" {
		t.Errorf("chain.two on a run that is not over gives %v, want waiting_for_inputs", next)
	}
	c.release(a.RunID, "1")
	end := c.until(a.RunID, "done")
	if end.State != "succeeded" {
		t.Fatalf("%s's %v, want it succeeded", c.name, end)
	}
	if got := c.owners(a.RunID); got != c.name {
		t.Errorf("the files of the run are %q's", got)
	}
	if user, account := c.jobUser(a.RunID); user != c.name || account != c.name+"lab" {
		t.Errorf("accounting charges %s of %s", account, user)
	}
	second := c.until(next.RunID, "done")
	if user, _ := c.jobUser(second.RunID); second.State != "succeeded" || user != c.name || c.owners(second.RunID) != c.name {
		t.Errorf("what waited ran as %q: %v; want it succeeded as %s, with files of that user alone", user, second,
			c.name)
	}
	r := c.user(c.name, nil, "artifact", "get", end.Roles["result"], "-o", "-")
	if r.code != 0 || len(r.stdout) == 0 {
		t.Errorf("%s reads the own output: %v, want its bytes", c.name, r)
	}
}

// Work in flight continues as the same user: a gateway that is killed, a signer that is away, a run that is cancelled
// and retried.
//
// proves SITE-08
func TestRunAsCallerFaults(t *testing.T) {
	t.Parallel()
	s, sign := callerSite(t, func(doc tree) { doc["slurm"].(tree)["caller"].(tree)["certificate_minutes"] = 1 })
	d := s.serve()
	alice, bob := caller{s, "alice"}, caller{s, "bob"}
	a, b := s.submitAs("alice", held()), s.submitAs("bob", held())
	if a.RunID == b.RunID {
		t.Fatal("two users have one run")
	}
	first := *alice.until(a.RunID, "running").SlurmJobID
	bob.until(b.RunID, "running")
	d.signal("KILL")
	d.ended(t)
	sign.stop("TERM")
	s.serve()
	// No login works: runs that have begun wait, and report why.
	alice.release(a.RunID, "1")
	waits := held()
	waits["resources"].(tree)["cpus"] = 2
	w := s.submitAs("alice", waits)
	until(t, "run that waits for the signer", func() bool {
		return strings.Contains(s.story(w.RunID).Reason, "signer_away")
	})
	sign.start()
	if end := alice.until(a.RunID, "done"); end.State != "succeeded" || *end.SlurmJobID != first {
		t.Errorf("alice's run, begun before the kill: %v, want it succeeded with job %s", end, first)
	}
	alice.until(w.RunID, "running")
	// A user cannot cancel another user's run.
	if r := s.user("bob", nil, "cancel", w.RunID); r.code != 4 {
		t.Errorf("bob cancels alice's run: %v, want exit 4", r)
	}
	var done looked
	alice.do(&done, "cancel", w.RunID)
	if end := alice.until(w.RunID, "done"); end.State != "cancelled" {
		t.Errorf("the run that alice cancelled: %v, want it cancelled", end)
	}
	alice.do(&done, "retry", w.RunID)
	alice.until(w.RunID, "running")
	alice.release(w.RunID, "2")
	if end := alice.until(w.RunID, "done"); end.State != "succeeded" {
		t.Errorf("the run that alice retried: %v, want it succeeded", end)
	}
	bob.release(b.RunID, "1")
	if end := bob.until(b.RunID, "done"); end.State != "succeeded" {
		t.Errorf("bob's %v, want it succeeded", end)
	}
	for c, runs := range map[caller][]string{alice: {a.RunID, w.RunID}, bob: {b.RunID}} {
		for _, id := range runs {
			if got := c.owners(id); got != c.name {
				t.Errorf("the files of %s are %q's", id, got)
			}
		}
	}
}
