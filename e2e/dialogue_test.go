package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var updateDialogues = flag.Bool("dialogues", false, "write the answers of this run into testdata/dialogues")

// A dialogue is a text file: a person's request (lines with #), the calls that a model makes (lines with >, or with ?
// for a call that is repeated until the state it reads is final), and under each the answer, indented. A line with ! is
// an action of an administrator in between. Ids are written as art_#1, numbered as they come up, and replaced by the
// real ones in later calls.
type dialogue struct {
	t       *testing.T
	s       *site
	session *sdk.ClientSession
	names   map[string]string // real id → name
	ids     map[string]string // name → real id
	counts  map[string]int
	bytes   int
	calls   int
}

var (
	realID          = regexp.MustCompile(`\b(art|run|file|proj|prn|apr)_[0-9A-HJKMNP-TV-Z]{26}\b|\b(?:batch|rmv)_[a-z2-7]{16}\b`)
	givenID         = regexp.MustCompile(`\b(?:art|run|file|proj|prn|apr|batch)_#[0-9]+`)
	changing        = regexp.MustCompile(`\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?Z?)?)?`)
	jobNumber       = regexp.MustCompile(`Slurm job \d+`)
	seconds         = regexp.MustCompile(`look again in \d+ s`)
	closedPartition = regexp.MustCompile(`\bclosed\d+`)
	// whether a program that is killed has said something depends on the moment
	lastWords = regexp.MustCompile(`\bstderr art_[0-9A-Z]{26}; `)
	cursors   = regexp.MustCompile(`cursor "[^"]+"`)
	unfit     = regexp.MustCompile(`"?Not ready yet|continues without this chat|Rows wait`)
)

// shown replaces the parts of an answer that differ each time.
func (d *dialogue) shown(text string) string {
	text = lastWords.ReplaceAllString(text, "")
	text = realID.ReplaceAllStringFunc(text, func(id string) string {
		if d.names[id] == "" {
			kind, _, _ := strings.Cut(id, "_")
			d.counts[kind]++
			name := fmt.Sprintf("%s_#%d", kind, d.counts[kind])
			d.names[id], d.ids[name] = name, id
		}
		return d.names[id]
	})
	text = changing.ReplaceAllString(text, "TIME")
	text = jobNumber.ReplaceAllString(text, "Slurm job N")
	text = seconds.ReplaceAllString(text, "look again in N s")
	text = closedPartition.ReplaceAllString(text, "closed")
	text = cursors.ReplaceAllString(text, `cursor "…"`)
	return strings.ReplaceAll(strings.ReplaceAll(text, d.s.dir, "[site]"), world.dir, "[data]")
}

// real returns a line of the file with the real ids.
func (d *dialogue) real(line string) string {
	d.t.Helper()
	return givenID.ReplaceAllStringFunc(line, func(name string) string {
		if d.ids[name] == "" {
			d.t.Fatalf("%s: no answer has named %s", line, name)
		}
		return d.ids[name]
	})
}

// ask makes a call as the file has it.
func (d *dialogue) ask(line string, until bool) string {
	d.t.Helper()
	line = d.real(line)
	name, args, _ := strings.Cut(strings.ReplaceAll(line, "[site]", d.s.dir), " ")
	for end := deadline(d.t); ; {
		ctx, stop := context.WithTimeout(d.t.Context(), time.Minute)
		res, err := d.session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		stop()
		text, mark := "", ""
		switch {
		case err != nil:
			text, mark = err.Error(), "error: "
		case res.IsError:
			mark = "refused: "
		}
		if err == nil {
			raw := value(json.Marshal(res))(d.t)
			d.calls, d.bytes = d.calls+1, d.bytes+len(raw)
			for _, part := range res.Content {
				if p, ok := part.(*sdk.TextContent); ok {
					text += p.Text
				}
			}
		}
		if !until || !unfit.MatchString(text) {
			return mark + d.shown(text)
		}
		if time.Now().After(end) {
			d.t.Fatalf("%s: still %s", line, text)
		}
	}
}

// replay makes the calls of a file and returns it with the answers of now.
func (d *dialogue) replay(file string) string {
	d.t.Helper()
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(file, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "  "): // an answer
		case strings.HasPrefix(line, "! "):
			fmt.Fprintln(&out, line)
			d.s.ok(nil, strings.Fields(d.real(line[2:]))...)
		case strings.HasPrefix(line, "> "), strings.HasPrefix(line, "? "):
			fmt.Fprintln(&out, line)
			for said := range strings.SplitSeq(d.ask(line[2:], line[0] == '?'), "\n") {
				fmt.Fprintln(&out, strings.TrimRight("  "+said, " "))
			}
		default:
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

// What a model reads, word for word: each dialogue of testdata is had again with the real server on the real cluster. Who changes a text
// reads it here as a model does, with nothing else to go by; -dialogues writes the new answers.
//
// proves MANY-01 CARD-06
// short: MCP
func TestDialogues(t *testing.T) {
	t.Parallel()
	s := dialogueSite(t)
	files, err := filepath.Glob("testdata/dialogues/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("the dialogues are %v (%v), want at least eight", files, err)
	}
	s.serve()
	c := s.chat(t, "2026-07-28")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			was := value(os.ReadFile(file))(t)
			d := &dialogue{t: t, s: s, session: c.session, names: map[string]string{}, ids: map[string]string{}, counts: map[string]int{}}
			now := d.replay(string(was))
			if t.Logf("%d calls, %d bytes", d.calls, d.bytes); now == string(was) {
				return
			}
			if strings.Contains(file, "memory") && !world.memory {
				t.Log("without control groups for memory the end has another reason; the answers are not compared")
				return
			}
			if *updateDialogues {
				must(t, os.WriteFile(file, []byte(now), 0o644))
				return
			}
			t.Errorf("the answers differ; go test ./e2e -run TestDialogues -args -dialogues writes them. Now:\n%s", now)
		})
	}
}

// dialogueSite makes a site with the genomics domain, a program that fails on request, files of samples, and a policy
// that refuses one tool.
func dialogueSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t, "genomics")
	lock := value(os.ReadFile(host(world.dir) + "/probing/images.lock.yaml"))(t)
	_, probe, ok := strings.Cut(string(lock), "images:\n")
	if !ok {
		t.Fatalf("the image lock of the probing domain has no images:\n%s", lock)
	}
	mine := value(os.ReadFile(host(s.dir) + "/domain/images.lock.yaml"))(t)
	must(t, os.WriteFile(host(s.dir)+"/domain/images.lock.yaml", append(mine, probe...), 0o644))
	partition := "closed" + strings.ReplaceAll(filepath.Base(s.dir), "s", "")
	shell(t, "root", `scontrol create PartitionName="$1" Nodes=n1,n2 State=DOWN`, partition)
	t.Cleanup(func() { _ = inCluster("root", "scontrol", "delete", "PartitionName="+partition).Run() })
	for id, text := range map[string]string{"demo.split": splitPack, "demo.count": countPack} {
		s.addTool(id, "id: "+id+text)
	}
	for _, p := range []struct{ id, about, mode, more string }{
		{"demo.assemble", "Assembles reads. The memory that it needs grows with the size of the genome.", "hog", ""},
		{"demo.check", "Checks reads.", "exit", ""},
		{"demo.index", "Makes an index of reads.", "exit", "placement: {partition: " + partition + "}\n"},
	} {
		s.addTool(p.id, strings.NewReplacer("ID", p.id, "ABOUT", p.about, "MODE", p.mode).Replace(demoPack)+p.more)
	}
	s.replace("domain/policies.yaml", "partitions_allowlist: [main, short]", "partitions_allowlist: [main, short, "+partition+"]")
	s.replace("domain/policies.yaml", "version: 1\n", "version: 1\ntool_allowlist: "+
		"[seqkit_stats, demo_assemble, demo_check, demo_count, demo_index, demo_split, samtools_flagstat, artifact_remove, "+
		strings.Join(chatOperations, ", ")+"]\n")
	for i := range 12 {
		var reads strings.Builder
		for n := range 20 + i {
			fmt.Fprintf(&reads, "@r%d\n%s\n+\n%s\n", n, strings.Repeat("ACGT", 10+(i*7)%12), strings.Repeat("IIII", 10+(i*7)%12))
		}
		s.file(fmt.Sprintf("C%02d.fastq.gz", i), gzipped(t, reads.String()))
		s.file(fmt.Sprintf("QC-%02d.fastq.gz", i), gzipped(t, reads.String()+reads.String()))
	}
	for i, patient := range []string{"P07", "P08"} {
		s.file(patient+"_tumor.fastq.gz", gzipped(t, "@r\n"+strings.Repeat("ACGT", i+1)+"\n+\n"+strings.Repeat("IIII", i+1)+"\n"))
		s.file(patient+"_notes.txt", "notes about "+patient+"\n")
	}
	must(t, giveToLab(host(s.dir)))
	return s
}

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	must(t, err)
	must(t, w.Close())
	return b.String()
}

var chatOperations = strings.Fields("slurm_submit slurm_job_get slurm_job_collect slurm_job_cancel slurm_job_logs slurm_job_retry " +
	"run_list batch_run batch_status batch_rows batch_table batch_list batch_retry batch_cancel artifact_import artifact_list artifact_get artifact_find " +
	"artifact_preview_text artifact_preview_table tool_list tool_show")

// demoPack defines a tool whose program behaves as its number selects.
const demoPack = "id: ID\ndescription: ABOUT\n" + packHead + `inputSchema:
  type: object
  required: [reads, size]
  additionalProperties: false
  properties:
    reads: {type: string, description: artifact id of the reads}
    size: {type: integer, minimum: 0, maximum: 4000, description: size of the genome}
outputSchema: {type: object}
inputs: [{role: reads, param: reads, types: [FASTQ_GZ], destRelpath: in/reads.fastq.gz}]
declaredOutputs: [{role: result, type: TEXT, label: result, srcRelpath: out/result}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
execution: {kind: cli, cmd: [testprog, MODE, "{{ params.size }}"]}
`

// splitPack is a tool whose output is a directory, and countPack one that takes it.
const (
	partsPack = "\n" + packHead + `outputSchema: {type: object}
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
`
	splitPack = partsPack + `description: Splits reads into lanes.
inputSchema:
  type: object
  required: [reads]
  additionalProperties: false
  properties: {reads: {type: string, description: artifact id of the reads}}
inputs: [{role: reads, param: reads, types: [FASTQ_GZ], destRelpath: in/reads.fastq.gz}]
declaredOutputs: [{role: parts, type: DIRECTORY, label: parts, srcRelpath: out/parts}]
execution:
  kind: cli
  cmd: [testprog, write, out/parts/summary.txt, "2 lanes, 31 reads", out/parts/lane1.txt, "16", out/parts/lane2.txt, "15", out/parts/lost.txt, "0"]
`
	countPack = partsPack + `description: Counts what is in lanes.
inputSchema:
  type: object
  required: [parts]
  additionalProperties: false
  properties: {parts: {type: string, description: artifact id of the directory of lanes}}
inputs: [{role: parts, param: parts, types: [DIRECTORY], destRelpath: in/parts}]
declaredOutputs: [{role: result, type: TEXT, label: result, srcRelpath: out/result}]
execution: {kind: cli, cmd: [testprog, sums, out/result, in/parts]}
`
)
