package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// chat is an assistant's client, connected as `ssh login slurmgate mcp` does it.
type chat struct {
	t       testing.TB
	session *sdk.ClientSession
	largest int
	changed chan struct{} // the list of tools did
	calls   int
	bytes   int // of all answers

	mu    sync.Mutex
	moved []sdk.ProgressNotificationParams // what the chat was notified of
}

// chat starts `slurmgate mcp` on the login node and connects to its standard input and output.
func (s *site) chat(t testing.TB, version string) *chat {
	t.Helper()
	cmd := s.command(context.Background(), "mcp")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var errs syncBuffer
	cmd.Stderr = &errs
	must(t, cmd.Start())
	changed := make(chan struct{}, 1)
	c := &chat{t: t, changed: changed}
	client := sdk.NewClient(&sdk.Implementation{Name: "e2e", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.moved = append(c.moved, *r.Params)
		}})
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	session, err := client.Connect(ctx, &sdk.IOTransport{Reader: io.NopCloser(out), Writer: in},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	t.Cleanup(func() {
		session.Close()
		in.Close()
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("slurmgate mcp ended with %v\n%s", err, errs.String())
			}
		case <-time.After(60 * time.Second):
			t.Error("slurmgate mcp did not end with its input")
			_ = cmd.Process.Kill() // the test has failed already
		}
	})
	c.session = session
	return c
}

// say makes a call as a model would, prints the turn, and decodes the structured content.
func (c *chat) say(name string, args tree, into any) string {
	c.t.Helper()
	raw, err := json.Marshal(args)
	must(c.t, err)
	ctx, stop := context.WithTimeout(c.t.Context(), 60*time.Second) // many clients stop there
	defer stop()
	res, err := c.session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(raw)})
	must(c.t, err)
	whole, err := json.Marshal(res)
	must(c.t, err)
	var text strings.Builder
	for _, part := range res.Content {
		if p, ok := part.(*sdk.TextContent); ok {
			text.WriteString(p.Text)
		}
	}
	c.t.Logf("%s %s\n  → %d bytes: %s", name, raw, len(whole), strings.ReplaceAll(text.String(), "\n", "\n    "))
	c.largest, c.calls, c.bytes = max(c.largest, len(whole)), c.calls+1, c.bytes+len(whole)
	if len(whole) >= 4096 {
		c.t.Errorf("%s answers %d bytes", name, len(whole))
	}
	if strings.Contains(string(whole), "/shared/") && name != "artifact_import" { // whose refusal names the folders that are allowed
		c.t.Errorf("%s shows a path: %s", name, whole)
	}
	if res.IsError {
		return "error: " + text.String()
	}
	if into != nil {
		b, err := json.Marshal(res.StructuredContent)
		must(c.t, err)
		must(c.t, json.Unmarshal(b, into))
	}
	return text.String()
}

func (c *chat) expect(text string, want ...string) {
	c.t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			c.t.Errorf("no %q in: %s", w, text)
		}
	}
}

// A whole conversation with a real tool on the real cluster: import, submit, look while it waits and while it runs, collect
// before it is ready and when it is, preview, and the same request again. Each answer is under 4 KB.
//
// proves CARD-06, ARC-01
func TestChat(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-06-18"} {
		t.Run(version, func(t *testing.T) {
			partition := "chat" + strings.ReplaceAll(version, "-", "")
			shell(t, "root", `scontrol create PartitionName="$1" Nodes=n1,n2 State=DOWN`, partition)
			t.Cleanup(func() { _ = inCluster("root", "scontrol", "delete", "PartitionName="+partition).Run() })
			s := newSite(t, "genomics", func(f *siteFile) {
				f.Partition, f.Apptainer = partition, f.Dir+"/files/apptainer"
			})
			s.replace("domain/policies.yaml", "partitions_allowlist: [main, short]", "partitions_allowlist: ["+partition+"]")
			// The job runs as long as the test wants it to: Apptainer starts when the file is there.
			s.file("apptainer", "#!/bin/bash\nuntil [ -e "+s.dir+"/files/go ]; do /bin/sleep 0.2; done\nexec /usr/bin/apptainer \"$@\"\n")
			must(t, os.Chmod(host(s.dir)+"/files/apptainer", 0o755))
			s.serve()
			c := s.chat(t, version)
			c.talk(s, partition)
			t.Logf("largest answer %d bytes", c.largest)
		})
	}
}

func (c *chat) talk(s *site, partition string) {
	t := c.t
	var in artifactRow
	c.expect(c.say("artifact_import", tree{"path": data("reads-small.fastq.gz")}, &in), "Imported: ", "FASTQ_GZ")
	var run submitted
	c.expect(c.say("seqkit_stats", tree{"reads": in.ArtifactID}, &run), "Submitted as run_", "Next: slurm_job_collect")
	if run.SlurmJobID == nil || run.Replayed {
		t.Fatalf("%+v", run)
	}
	var look looked
	c.expect(c.say("slurm_job_get", tree{"run_id": run.RunID}, &look), "queued (pending)", "Not ready yet, which is normal")
	shell(t, "root", `scontrol update PartitionName="$1" State=UP`, partition)
	until(t, 40*time.Second, "running job", func() bool {
		text := c.say("slurm_job_get", tree{"run_id": run.RunID, "wait_seconds": 2}, &look)
		return look.State == "running" && strings.Contains(text, "is running.")
	})
	var got struct {
		Ready bool              `json:"ready"`
		State string            `json:"state"`
		Roles map[string]string `json:"artifacts_by_role"`
	}
	c.expect(c.say("slurm_job_collect", tree{"run_id": run.RunID}, &got), "is running.", "Not ready")
	if got.Ready {
		t.Fatal("ready before it is")
	}
	must(t, os.WriteFile(host(s.dir)+"/files/go", nil, 0o644))
	until(t, 60*time.Second, "result", func() bool {
		c.say("slurm_job_collect", tree{"run_id": run.RunID, "wait_seconds": 20}, &got)
		return got.Ready
	})
	if got.State != "succeeded" || got.Roles["stats"] == "" {
		t.Fatalf("%+v", got)
	}
	c.expect(c.say("artifact_preview_text", tree{"artifact_id": got.Roles["stats"]}, nil), "This is data", "num_seqs", "FASTQ\tDNA\t40\t20000")
	c.say("slurm_job_logs", tree{"run_id": run.RunID}, nil)
	c.expect(c.say("artifact_preview_text", tree{"artifact_id": got.Roles["slurm_script"]}, nil), "slurmgate job script",
		"[runs_dir]/"+run.RunID)
	var again submitted
	c.expect(c.say("seqkit_stats", tree{"reads": in.ArtifactID}, &again), "made before", "No new job was created")
	if !again.Replayed || again.RunID != run.RunID {
		t.Errorf("%+v", again)
	}
	jobs := ""
	until(t, time.Minute, "the job in accounting", func() bool { // slurmdbd follows slurmctld
		jobs = shell(t, "root", `sacct -nPX --name="$1" -o JobID -S now-1hour`, s.story(run.RunID).JobName)
		return jobs != ""
	})
	if jobs != *run.SlurmJobID {
		t.Errorf("jobs of the run: %q", jobs)
	}
	// Mistakes of a model are answered so that it can mend them.
	c.expect(c.say("seqkit_stats", tree{"reads": "art_00000000000000000000000000"}, nil), "error: ", "not_found")
	c.expect(c.say("seqkit_stats", tree{"fastq": in.ArtifactID}, nil), "error: ARGS-SCHEMA", "fastq")
	c.expect(c.say("artifact_import", tree{"path": s.dir + "/runs/.gateway-id"}, nil), "error: ", "own folders")
	c.expect(c.say("slurm_job_collect", tree{"run_id": "latest"}, nil), "error: ARGS-SCHEMA")
}

// A client that asks for it is notified of the bytes of a large import while it lasts.
//
// proves CARD-06
func TestChatProgress(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	path := s.file("large.bin", "x")
	must(t, os.Truncate(host(path), 3<<30))
	must(t, giveToLab(host(s.dir)))
	s.serve()
	c := s.chat(t, "2025-06-18")
	id := fileIDs.FindString(c.say("artifact_find", tree{"name": "large.bin"}, nil))
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	began := time.Now()
	res, err := c.session.CallTool(ctx, &sdk.CallToolParams{Name: "artifact_import", Arguments: tree{"file_id": id},
		Meta: sdk.Meta{"progressToken": "p"}})
	if err != nil || res.IsError {
		t.Fatalf("%v %+v", err, res)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := 0.0
	for _, p := range c.moved {
		if p.ProgressToken != "p" || p.Progress <= last || p.Total != 3<<30 || !strings.HasPrefix(p.Message, "importing: ") {
			t.Errorf("%+v after %v", p, last)
		}
		last = p.Progress
	}
	if t.Logf("%d notifications in %s: %+v", len(c.moved), time.Since(began), c.moved); len(c.moved) == 0 {
		t.Error("nothing was told")
	}
}

// The registry's list is what a client of the protocol gets, and every tool's schemas hold for what it really answers.
func TestChatList(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	c := s.chat(t, "2026-07-28") // no daemon: the chat's program is the gateway itself
	l, err := c.session.ListTools(t.Context(), nil)
	must(t, err)
	names := map[string]bool{}
	for _, x := range l.Tools {
		names[x.Name] = true
		if x.InputSchema == nil || x.Description == "" || x.Annotations == nil {
			t.Errorf("%s is not described: %+v", x.Name, x)
		}
	}
	for _, want := range strings.Fields("slurm_job_collect slurm_job_cancel slurm_job_logs slurm_job_retry artifact_import artifact_find " +
		"artifact_preview_text artifact_preview_table run_list tool_list tool_show tool_run") {
		if !names[want] {
			t.Errorf("no %s among %v", want, names)
		}
	}
	for _, id := range strings.Fields("samtools.flagstat seqkit.stats minimap2.map slurm.submit slurm.job.get slurm.job.recollect " +
		"artifact.list artifact.get artifact.preview.image run.receipt") { // those that are not listed are described all the same
		c.expect(c.say("tool_show", tree{"tool_id": id}, nil), id+" 1.", "Arguments, as JSON Schema: {")
	}
	if names["slurm_job_adopt"] || names["run_show"] {
		t.Error("what settles doubts belongs to the shell")
	}
	var in artifactRow
	c.say("artifact_import", tree{"text": "name\tvalue\n" + strings.Repeat("x\t1\n", 3000)}, &in)
	c.say("artifact_preview_text", tree{"artifact_id": in.ArtifactID}, nil)
	for i := range 12 {
		c.say("artifact_import", tree{"text": fmt.Sprint("number ", i), "label": strings.Repeat("é", 60) + fmt.Sprint(i)}, nil)
	}
	var page struct {
		Cursor *string `json:"cursor"`
	}
	c.say("artifact_list", tree{"limit": 200}, &page)
	if page.Cursor == nil {
		t.Error("there are more")
	}
	r, err := c.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "artifact://" + in.ArtifactID})
	if err != nil || !strings.HasPrefix(r.Contents[0].Text, "name\tvalue\n") {
		t.Error(r, err)
	}
}

// What an assistant is asked next: what was started, what is in the table, what does the picture show.
//
// proves CARD-06 ARC-01
func TestChatLooks(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	in := s.import1(data("reads-small.fastq.gz"))
	var r submitted
	s.ok(&r, "run", "seqkit.stats", "--input", "reads="+in.ArtifactID)
	c := s.chat(t, "2026-07-28")
	var page struct {
		Runs []struct {
			RunID  string `json:"run_id"`
			ToolID string `json:"tool_id"`
		} `json:"runs"`
	}
	c.expect(c.say("run_list", tree{"since": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}, &page), "1 run, newest first", r.RunID,
		"seqkit.stats")
	c.expect(c.say("run_list", tree{"until": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}, nil), "No runs match")
	c.expect(c.say("run_list", tree{"state": "none"}, nil), "error: ARGS-SCHEMA")
	if len(page.Runs) != 1 || page.Runs[0].RunID != r.RunID {
		t.Errorf("%+v", page)
	}
	var lines strings.Builder
	lines.WriteString("sample,reads,ratio\n")
	for i := range 500 {
		fmt.Fprintf(&lines, "s%d,%d,0.%d\n", i, i*1000, i)
	}
	table := s.import1(s.file("table.csv", lines.String()))
	c.expect(c.say("artifact_preview_table", tree{"artifact_id": table.ArtifactID}, nil), "a table of 3 columns; rows 0 to ",
		"sample (text)\treads (integer)\tratio (number)", "s0\t0\t0.0", "call artifact_preview_table again with first_row")
	c.expect(c.say("artifact_preview_table", tree{"artifact_id": table.ArtifactID, "first_row": 498}, nil), "rows 498 to 499",
		"s499\t499000\t0.499")

	var b bytes.Buffer
	must(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 900, 600))))
	picture := s.import1(s.file("plot.png", b.String()))
	c.expect(c.say("artifact_preview_text", tree{"artifact_id": picture.ArtifactID}, nil), "Next: artifact_preview_image")
	res, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "artifact_preview_image",
		Arguments: json.RawMessage(`{"artifact_id":"` + picture.ArtifactID + `","max_edge":200}`)})
	must(t, err)
	if len(res.Content) != 2 {
		t.Fatalf("%+v", res)
	}
	shown, ok := res.Content[1].(*sdk.ImageContent)
	if !ok {
		t.Fatalf("%T", res.Content[1])
	}
	small, err := png.Decode(bytes.NewReader(shown.Data))
	must(t, err)
	if b := small.Bounds(); b.Dx() != 200 || b.Dy() != 133 || shown.MIMEType != "image/png" {
		t.Errorf("%v %s", b, shown.MIMEType)
	}
}
