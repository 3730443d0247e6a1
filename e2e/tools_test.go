package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"slurmgate/slurm"
)

// The three tools of the genomics domain, and how the same Debian program is called directly.
var genomics = []struct {
	tool   string
	args   []string // of slurmgate run
	image  string
	direct []string // run in the folder of the data
	output string
	role   string
	typ    string
}{
	{"samtools.flagstat", []string{"--input", "bam=aln.bam"}, "samtools", []string{"samtools", "flagstat", "-O", "json", "aln.bam"},
		"flagstat.json", "report", "JSON"},
	{"seqkit.stats", []string{"--input", "reads=reads.fastq.gz"}, "seqkit", []string{"seqkit", "stats", "--tabular", "--all", "--basename",
		"--threads", "2", "reads.fastq.gz"}, "stats.tsv", "stats", "TSV"},
	{"minimap2.map", []string{"--input", "reference=MT-human.fa.gz", "--input", "reads=reads-small.fastq.gz", "--param", "preset=map-hifi"},
		"minimap2",
		[]string{"minimap2", "-c", "-x", "map-hifi", "-t", "4", "MT-human.fa.gz", "reads-small.fastq.gz"}, "alignments.paf", "alignments",
		"TEXT"},
}

func toolArgs(i int) []string {
	g := genomics[i]
	args := []string{"run", g.tool}
	for _, a := range g.args {
		if name, file, ok := strings.Cut(a, "="); ok && name != "preset" {
			a = name + "=" + data(file)
		}
		args = append(args, a)
	}
	return args
}

// A tool's output through plan, Slurm, container and collection is what the same Debian program makes without all that.
//
// proves CARD-02 CARD-05 ABI-06 ABI-15 ARC-08
// short: the shell
func TestToolsAgainstDirect(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	for i, g := range genomics {
		t.Run(g.tool, func(t *testing.T) {
			t.Parallel() // three shells at once: one of them is the gateway of the others
			s := s.as(t)
			c := exec.Command(filepath.Join(world.repo, "scripts/images/direct"), append([]string{g.image}, g.direct...)...)
			c.Dir = filepath.Join(world.repo, "build/data")
			want := value(c.Output())(t)
			if len(want) == 0 {
				t.Fatal("the program printed nothing")
			}
			to := s.dir + "/out-" + g.tool
			var l looked
			s.ok(&l, append(toolArgs(i), "--wait", "--to", to)...)
			if l.State != "succeeded" || *l.ExitCode != 0 {
				t.Fatalf("%s: %v, want it succeeded with the status 0", g.tool, l)
			}
			got := value(os.ReadFile(host(to) + "/" + g.output))(t)
			if !bytes.Equal(got, want) {
				t.Errorf("the output differs from the direct one:\n%s\n%s", got, want)
			}
			if !bytes.Equal(s.bytesOf(l.Roles[g.role]), want) {
				t.Error("the artifact differs from the file that was fetched")
			}
			for _, role := range []string{g.role, "log", "slurm_script"} {
				if l.Roles[role] == "" {
					t.Errorf("no artifact of role %s: %v", role, l.Roles)
				}
			}
			for _, o := range l.Outputs {
				if o.Role == g.role && (o.Type != g.typ || o.SizeBytes != int64(len(want)) || o.Source != l.RunID) {
					t.Errorf("the output of %s is %+v, want the type %s, %d bytes, made by %s", g.tool, o, g.typ,
						len(want), l.RunID)
				}
			}
			if v := s.story(l.RunID); v.SlurmState != "COMPLETED" || len(v.Sends) != 1 {
				t.Errorf("Slurm has the job as %s after %d sends, want COMPLETED after one", v.SlurmState,
					len(v.Sends))
			}
		})
	}
}

// counters holds slurmctld's own counts.
type counters struct{ Submitted, BatchRPCs, Accounted int }

// count reads sdiag.
func count(t testing.TB) counters {
	t.Helper()
	var c counters
	for _, line := range strings.Split(shell(t, "root", "sdiag"), "\n") {
		if n, err := fmt.Sscanf(strings.TrimSpace(line), "Jobs submitted: %d", &c.Submitted); n == 1 && err == nil {
			continue
		}
		if _, rest, ok := strings.Cut(line, "count:"); ok && strings.Contains(line, "REQUEST_SUBMIT_BATCH_JOB ") {
			_, err := fmt.Sscan(strings.Fields(rest)[0], &c.BatchRPCs)
			must(t, err)
		}
	}
	return c
}

// count reads sdiag, and the jobs sacct has of a run of this site, one at least: another site's gateway has the same id
// for the same request. slurmctld may report a job to slurmdbd some seconds late (22.05 under load).
func (s *site) count(runID string) (c counters) {
	s.t.Helper()
	until(s.t, "a job of "+runID+" in accounting", func() bool {
		c = s.countNow(runID)
		return c.Accounted > 0
	})
	return c
}

func (s *site) countNow(runID string) counters {
	s.t.Helper()
	c, base := count(s.t), s.dir
	if s.RunsDir != "" {
		base = s.RunsDir
	}
	tasks := s.tasksOf(base, runID)
	for line := range strings.Lines(shell(s.t, "root", "sacct -a -D -X -P -n -o JobID,JobName,WorkDir -S now-1hours")) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), "|")
		name, dir, _ := strings.Cut(rest, "|")
		if strings.HasPrefix(name, "sg-"+runID+"-") && strings.HasPrefix(dir, base+"/") {
			c.Accounted++
		}
		_, list, _ := strings.Cut(id, "_")
		numbers, _ := slurm.TasksOf(strings.Trim(list, "[]"))
		for _, n := range numbers {
			if slices.Contains(tasks[name], n) {
				c.Accounted++
			}
		}
	}
	return c
}

// tasksOf returns the array tasks that a run was sent as, by array name. It reads the arrays' scripts in the folders of
// their first runs.
func (s *site) tasksOf(base, runID string) map[string][]int {
	s.t.Helper()
	tasks, array := map[string][]int{}, ""
	for line := range strings.Lines(shell(s.t, "root", `find "$1" -path '*/ctl/array.*' -type f -exec cat {} +`, base)) {
		if name, ok := strings.CutPrefix(line, "#   array   "); ok {
			array = strings.TrimSpace(name)
		}
		if task, what, ok := strings.Cut(line, ") sha256="); ok && strings.Contains(what, "/"+runID+"/a") {
			n := value(strconv.Atoi(task))(s.t)
			tasks[array] = append(tasks[array], n)
		}
	}
	return tasks
}

// The same request again is the same run: by the answer, by accounting and by the controller's own counters.
//
// proves ABI-07 ABI-18 CARD-04
// short: a repeated request submits no second job
func TestReplayCreatesNoJob(t *testing.T) {
	s := newSite(t, "genomics")
	before := count(t)
	if before.Submitted == 0 && before.BatchRPCs > 0 {
		t.Fatalf("sdiag shows %+v, batch RPCs but no job submitted; want the two counters to agree", before)
	}
	var first [3]submitted
	for i := range genomics {
		s.ok(&first[i], toolArgs(i)...)
		if first[i].Replayed {
			t.Errorf("the first call of %s gives %v, want a new run", genomics[i].tool, first[i])
		}
	}
	again := func(when string) {
		for i := range genomics {
			var r submitted
			s.ok(&r, toolArgs(i)...)
			if !r.Replayed || r.RunID != first[i].RunID || r.SlurmJobID == nil || *r.SlurmJobID != *first[i].SlurmJobID {
				t.Errorf("the same call %s gives %v, want a replay of %v with its job", when, r, first[i])
			}
		}
	}
	again("while it is queued or runs")
	for _, f := range first {
		s.mustEnd(f.RunID, "succeeded")
	}
	again("after its end")
	// By artifact id instead of by file, and through a gateway that stays.
	s.serve()
	bam := s.import1(data("aln.bam"))
	var r submitted
	s.ok(&r, "run", "samtools.flagstat", "--input", "bam="+bam.ArtifactID)
	if !r.Replayed || r.RunID != first[0].RunID || r.State != "succeeded" {
		t.Errorf("the same call by the artifact's id gives %v, want a replay of %s", r, first[0].RunID)
	}
	var l looked
	s.ok(&l, append(toolArgs(1), "--wait")...)
	if l.RunID != first[1].RunID {
		t.Errorf("the same call with --wait gives %v, want run %s", l, first[1].RunID)
	}
	for i := range genomics {
		after := s.count(first[i].RunID)
		if got := after.Submitted - before.Submitted; got != 3 {
			t.Errorf("slurmctld counts %d new jobs, 3 are due", got)
		}
		if got := after.BatchRPCs - before.BatchRPCs; got != 3 {
			t.Errorf("slurmctld counts %d submit RPCs, 3 are due", got)
		}
		if after.Accounted != 1 {
			t.Errorf("accounting has %d jobs of %s", after.Accounted, first[i].RunID)
		}
	}
}

// Fifty shells ask for the same run at once, with a gateway that stays and without any: one job.
//
// proves ABI-18 CARD-04
// short: at most one execution
func TestFiftyShellsOneJob(t *testing.T) {
	for _, daemon := range []bool{true, false} {
		t.Run(fmt.Sprintf("daemon=%v", daemon), func(t *testing.T) {
			s := newSite(t, "genomics")
			if daemon {
				s.serve()
			}
			before := count(t)
			shell(t, "lab", `
				export SLURMGATE_SITE=$1/site.yaml
				mkdir "$1/answers"
				for i in {1..50}; do
					{ "$2" run samtools.flagstat --input "bam=$3" --json >"$1/answers/$i" 2>"$1/answers/$i.err" || echo "exit $?" >>"$1/answers/$i.err"; } &
				done
				wait`, s.dir, world.dir+"/slurmgate", data("aln.bam"))
			fresh, id := 0, ""
			for i := 1; i <= 50; i++ {
				name := fmt.Sprintf("%s/answers/%d", host(s.dir), i)
				out := value(os.ReadFile(name))(t)
				errs := value(os.ReadFile(name + ".err"))(t)
				var r submitted
				result{[]string{"run", fmt.Sprint(i)}, 0, out, errs}.object(t, &r)
				if r.RunID == "" || id != "" && r.RunID != id {
					t.Fatalf("shell %d: run %q, others have %q\n%s%s", i, r.RunID, id, out, errs)
				}
				if id = r.RunID; !r.Replayed {
					fresh++
				}
			}
			if fresh != 1 {
				t.Errorf("%d shells got the answer that they created the run", fresh)
			}
			s.ends(id, "succeeded")
			after := s.count(id)
			same(t, "what slurmctld counted", counters{after.Submitted - before.Submitted, after.BatchRPCs - before.BatchRPCs, after.Accounted},
				counters{1, 1, 1})
		})
	}
}
