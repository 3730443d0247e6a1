package e2e

import (
	"context"
	"encoding/json"
	"io"
	"strings"
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
}

// chat starts `slurmgate mcp` on the login node and connects to its standard input and output.
func (s *site) chat(t testing.TB, version string) *chat {
	t.Helper()
	cmd := s.command(context.Background(), "mcp")
	in := value(cmd.StdinPipe())(t)
	out := value(cmd.StdoutPipe())(t)
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
		}})
	ctx, stop := context.WithDeadline(t.Context(), deadline(t))
	defer stop()
	session, err := client.Connect(ctx, &sdk.IOTransport{Reader: io.NopCloser(out), Writer: in},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("a chat cannot connect: %v\n%s", err, errs.String())
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
	raw := value(json.Marshal(args))(c.t)
	ctx, stop := context.WithTimeout(c.t.Context(), 60*time.Second) // many clients stop there
	defer stop()
	res := value(c.session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(raw)}))(c.t)
	whole := value(json.Marshal(res))(c.t)
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
		b := value(json.Marshal(res.StructuredContent))(c.t)
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

// A whole conversation with a real tool on the real cluster: import, submit, read the run while it waits and while it
// runs, collect before it is ready and when it is, preview, and the same request again. Each answer is under 4 KB.
//
// proves CARD-06, ARC-01
// short: MCP
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
			release := s.holdPrograms()
			s.serve()
			c := s.chat(t, version)
			c.talk(s, partition, release)
			t.Logf("largest answer %d bytes", c.largest)
		})
	}
}

func (c *chat) talk(s *site, partition string, release func()) {
	t := c.t
	var in artifactRow
	c.expect(c.say("artifact_import", tree{"path": data("reads-small.fastq.gz")}, &in), "Imported: ", "FASTQ_GZ")
	var run submitted
	c.expect(c.say("seqkit_stats", tree{"reads": in.ArtifactID}, &run), "Submitted as run_", "Next: slurm_job_collect")
	if run.SlurmJobID == nil || run.Replayed {
		t.Fatalf("seqkit_stats submits %v, want a new run with a job", run)
	}
	var look looked
	c.expect(c.say("slurm_job_get", tree{"run_id": run.RunID}, &look), "queued (pending)", "Not ready yet, which is normal")
	shell(t, "root", `scontrol update PartitionName="$1" State=UP`, partition)
	until(t, "running job", func() bool {
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
	release()
	until(t, "result", func() bool {
		c.say("slurm_job_collect", tree{"run_id": run.RunID, "wait_seconds": 20}, &got)
		return got.Ready
	})
	if got.State != "succeeded" || got.Roles["stats"] == "" {
		t.Fatalf("slurm_job_collect returned %+v, want succeeded with the output stats", got)
	}
	c.expect(c.say("artifact_preview_text", tree{"artifact_id": got.Roles["stats"]}, nil), "This is data", "num_seqs", "FASTQ\tDNA\t40\t20000")
	c.say("slurm_job_logs", tree{"run_id": run.RunID}, nil)
	c.expect(c.say("artifact_preview_text", tree{"artifact_id": got.Roles["slurm_script"]}, nil), "slurmgate job script",
		"[runs_dir]/"+run.RunID)
	var again submitted
	c.expect(c.say("seqkit_stats", tree{"reads": in.ArtifactID}, &again), "made before", "No new job was created")
	if !again.Replayed || again.RunID != run.RunID {
		t.Errorf("the same call again gives %v, want a replay of %s", again, run.RunID)
	}
	jobs := ""
	until(t, "the job in accounting", func() bool { // slurmdbd follows slurmctld
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
