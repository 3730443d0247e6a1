package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// batchNow holds the fields of batch.status that the tests read.
type batchNow struct {
	BatchID  string           `json:"batch_id"`
	Rows     int64            `json:"rows"`
	Counts   map[string]int64 `json:"counts"`
	Todo     int64            `json:"todo"`
	Over     bool             `json:"over"`
	Replayed bool             `json:"replayed"`
}

// A sheet of 32 samples becomes 31 runs, because two samples of equal bytes share one. The gateway is killed in the
// middle, and the next one continues. Every collected file equals the run's own output, under its sample's name; a
// second collect submits and copies nothing.
//
// proves MANY-01
// short: many runs
func TestBatch(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.addTool("probe.batch", batchPack)
	s.replace("site.yaml", "projects: [demo]}", "projects: [demo, atlas]}")
	d := s.serve()
	var sheet strings.Builder
	sheet.WriteString("sample,reads,tags\r\n")
	for i := range 32 {
		n := min(i, 30) // the last two have equal bytes
		file := s.file(fmt.Sprintf("reads-%d.txt", i), strings.Repeat(fmt.Sprintf("%d\n", n), 3))
		fmt.Fprintf(&sheet, "S%02d,%s,even;lot-%d\r\n", i, file, i%4)
	}
	csv := s.file("sheet.csv", sheet.String())
	run := []string{"batch", "run", batchTool, "--sheet", csv, "--name", "all"}
	bad := s.file("bad.csv", strings.Replace(strings.Replace(sheet.String(), "reads,", "raeds,", 1), "S03", "a/b", 1))
	if f := s.fails(2, "batch", "run", batchTool, "--sheet", bad, "--name", "all"); !strings.Contains(text(t, f), "did you mean reads?") {
		t.Errorf("a sheet with a column raeds fails with %s, want the hint at reads", text(t, f))
	}
	refused := s.file("refused.csv", "sample,reads,,\nA,/etc/passwd,,\nB,"+s.file("good.txt", "good\n")+",,\nC,/etc/hosts,,\n,,,\n")
	said := text(t, s.fails(2, "batch", "run", batchTool, "--sheet", refused, "--name", "all"))
	for _, want := range []string{"2 mistakes", "row 2, column reads", "row 4, column reads"} {
		if !strings.Contains(said, want) {
			t.Errorf("files that are refused, without %q: %s", want, said)
		}
	}
	s.refused(2, "BATCH-NAME", "batch", "run", batchTool, "--sheet", refused, "--name", "batch_x")
	var plan struct {
		Rows    int `json:"rows"`
		New     int `json:"new_runs"`
		Shared  int `json:"shared_rows"`
		Replays int `json:"replayed_runs"`
	}
	if s.ok(&plan, append(run, "--dry-run")...); plan.Rows != 32 || plan.New != 31 || plan.Shared != 1 {
		t.Errorf("a dry run of 32 rows, two of equal bytes, returned %+v, want 31 new runs and one row that shares", plan)
	}
	var began batchNow
	if s.ok(&began, run...); began.Rows != 32 || began.Replayed {
		t.Errorf("batch run of 32 rows returned %+v, want 32 rows and no replay", began)
	}
	d.signal("KILL")
	d.ended(t)
	s.serve()
	// On a slow machine the sbatch of a row dies with the gateway: its job is known to be absent, and the row may be retried.
	if r := s.cli("batch", "wait", "all", "--timeout", timeLeft(t), "--json"); r.code == 6 && strings.Contains(string(r.stdout), `"cause": "absent"`) {
		s.ok(nil, "batch", "retry", "all")
	}
	var now batchNow
	if s.ok(&now, "batch", "wait", "all", "--timeout", timeLeft(t)); now.Counts["succeeded"] != 32 || !now.Over || now.Todo != 0 {
		t.Fatalf("batch wait returned %+v, want 32 succeeded rows and none left", now)
	}
	if s.ok(&now, run...); !now.Replayed || now.BatchID != began.BatchID {
		t.Errorf("the second batch run returned %+v, want a replay of %s", now, began.BatchID)
	}
	other := s.file("other.csv", strings.Replace(sheet.String(), "S00", "S99", 1))
	s.refused(5, "batch_name_taken", "batch", "run", batchTool, "--sheet", other, "--name", "all")
	var runs struct{ Total int }
	if s.ok(&runs, "runs", "list"); runs.Total != 31 {
		t.Errorf("%d runs", runs.Total)
	}
	if s.ok(&runs, "runs", "list", "--batch", "all", "--tag", "lot-1", "--sample", "S01"); runs.Total != 1 {
		t.Errorf("%d runs of S01", runs.Total)
	}
	to := s.dir + "/collected"
	var got struct {
		Copied   int
		Complete bool
		Files    []struct{ Sample, Path, SHA256 string }
	}
	if s.ok(&got, "batch", "collect", "all", "--to", to); got.Copied != 32 || !got.Complete {
		t.Fatalf("batch collect reports %d copied, complete %v; want 32 and complete", got.Copied, got.Complete)
	}
	must(t, os.Remove(host(to)+"/"+got.Files[7].Path))
	if s.ok(&got, "batch", "collect", "all", "--to", to); got.Copied != 1 {
		t.Errorf("%d files copied again", got.Copied)
	}
	for _, f := range got.Files {
		if sum := strings.Fields(shell(t, "lab", `sha256sum "$1"`, to+"/"+f.Path))[0]; sum != f.SHA256 {
			t.Errorf("the collected file %s has the checksum %s, want %s", f.Path, sum, f.SHA256)
		}
	}
	if manifest, err := os.ReadFile(host(to) + "/manifest.tsv"); err != nil || strings.Count(string(manifest), "\n") != 33 {
		t.Errorf("manifest.tsv of the collect is (%v)\n%s\nwant a head and 32 rows", err, manifest)
	}
	s.ok(nil, "batch", "export", "all", "--to", s.dir+"/all.zip")
	var checked struct {
		OK   bool
		Runs int
	}
	if s.ok(&checked, "verify", s.dir+"/all.zip"); !checked.OK || checked.Runs != 31 {
		t.Errorf("verify of the batch's archive reports %+v, want intact with 31 runs", checked)
	}
	s.refused(5, "target_exists", "export", began.BatchID, "--to", s.dir+"/all.zip")
	var table struct {
		Total int
		Rows  []struct {
			Sample string
			Values []string
		}
	}
	if s.ok(&table, "batch", "table", "all", "--limit", "3"); table.Total != 32 || len(table.Rows) != 3 {
		t.Errorf("batch table --limit 3 returned %+v, want 3 of 32 rows", table)
	}
	s.askedInChat(t)
	s.inProject(t)
}

// inProject imports the files of a sheet, and of a run, into the project that the caller names.
func (s *site) inProject(t *testing.T) {
	file := s.file("atlas.txt", "9\n9\n9\n")
	csv := s.file("atlas.csv", "sample,reads\nA,"+file+"\n")
	var began batchNow
	s.ok(&began, "batch", "run", batchTool, "--sheet", csv, "--name", "shared", "--project", "atlas")
	s.ok(nil, "batch", "wait", began.BatchID, "--timeout", timeLeft(t))
	var again submitted
	if s.ok(&again, "run", batchTool, "--input", "reads="+file, "--project", "atlas"); !again.Replayed {
		t.Errorf("run --project atlas with the sheet's file returned %v, want a replay of the batch's run", again)
	}
	var runs struct{ Total int }
	if s.ok(&runs, "runs", "list", "--project", "atlas"); runs.Total != 1 {
		t.Errorf("project atlas has %d runs, want 1", runs.Total)
	}
	in := s.import1(file)
	s.refused(2, "RUN-PROJECT", "run", batchTool, "--input", "reads="+in.ArtifactID, "--project", "atlas")
}

// askedInChat answers "QC of these 12 samples, tell me the worst" as a model does: the sheet in one call, its status,
// one table.
func (s *site) askedInChat(t *testing.T) {
	var rows []tree
	for i := range 12 {
		file := s.file(fmt.Sprintf("reads-%d.txt", i), strings.Repeat(fmt.Sprintf("%d\n", i), 3))
		rows = append(rows, tree{"sample": fmt.Sprintf("C%02d", i), "reads": s.import1(file).ArtifactID})
	}
	c := s.chat(t, "")
	c.expect(c.say("batch_run", tree{"tool_id": batchTool, "name": "qc", "rows": rows}, nil), "batch qc with 12 rows")
	c.expect(c.say("batch_status", tree{"batch": "qc", "wait_seconds": 30}, nil), "12 succeeded", "batch_table")
	c.expect(c.say("batch_table", tree{"batch": "qc", "fields": []string{"dir", "env.HOME"}, "sort_by": "dir"},
		nil), "12 of 12 rows", "C00")
	s.economy(t, c, c.calls, c.bytes)
}

const batchTool = "probe.batch"

// packHead holds the lines common to the packs of these tests.
const packHead = `version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
deterministic: true
timeoutMs: 600000
limits: {maxInputBytes: 1048576, maxOutputBytes: 1048576}
`

const batchPack = "id: probe.batch\n" + packHead + `inputSchema: {type: object, required: [reads], additionalProperties: false, properties: {reads: {type: string}}}
outputSchema: {type: object}
inputs: [{role: reads, param: reads, types: [TEXT], destRelpath: in/reads}]
declaredOutputs: [{role: result, type: JSON, label: result, srcRelpath: out/result.json}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
execution: {kind: cli, cmd: [testprog, report, out/result.json, "{{ inputs.reads }}"]}
`
