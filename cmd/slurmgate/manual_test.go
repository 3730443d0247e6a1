package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/gate"
)

// Every verb, argument and option that help shows is in the manual, with its help; mandoc reads the pages without a
// warning.
//
// proves OPS-01
func TestManual(t *testing.T) {
	parser := value(kong.New(&commands{}, kong.Name("slurmgate"), kong.Description(about), kong.Exit(func(int) {}),
		kong.Writers(io.Discard, io.Discard)))(t)
	pages := map[string]string{}
	for name, text := range cli.Manual(parser.Model, "v1.2.3", time.Unix(0, 0)) {
		pages[name] = readPage(t, name, text)
	}
	holds := func(name string, wants ...string) {
		for _, w := range wants {
			if !strings.Contains(pages[name], strings.Join(strings.Fields(w), " ")) {
				t.Errorf("%s does not have %q", name, w)
			}
		}
	}
	seen := 1
	for _, verb := range parser.Model.Children {
		name := "slurmgate-" + verb.Name + ".1"
		if verb.Hidden {
			if pages[name] != "" {
				t.Errorf("%s is about a hidden verb", name)
			}
			continue
		}
		seen++
		holds("slurmgate.1", "slurmgate-"+verb.Name+"(1) "+verb.Help)
		for _, c := range append(verb.Leaves(true), verb) {
			holds(name, "slurmgate "+c.Path(), c.Help)
			for _, a := range c.Positional {
				holds(name, a.Summary()+" "+a.Help)
			}
			for _, f := range c.Flags {
				if !f.Hidden {
					holds(name, "--"+f.Name, f.Help)
				}
			}
		}
	}
	for _, f := range parser.Model.Flags {
		holds("slurmgate.1", "--"+f.Name, f.Help, strings.Join(f.Envs, " "))
	}
	if seen != len(pages) || seen < 20 {
		t.Errorf("%d pages about %d verbs", len(pages), seen)
	}
	holds("slurmgate.1", exitStatuses(t)...)
}

// readPage shows a page as plain words, each separated by one space.
func readPage(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	if out, err := exec.Command("mandoc", "-Tlint", "-Wwarning", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
	out := value(exec.Command("mandoc", "-Tutf8", "-Owidth=1000", file).Output())(t)
	struck := strings.NewReplacer("_\b", "")
	plain := []byte(struck.Replace(string(out)))
	for i := 0; i+2 < len(plain); i++ {
		if plain[i+1] == '\b' && plain[i] == plain[i+2] {
			plain = append(plain[:i], plain[i+2:]...)
		}
	}
	return strings.Join(strings.Fields(string(plain)), " ")
}

// exitStatuses reads the table of docs/reference/exit-statuses.md, which the manual repeats.
func exitStatuses(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/exit-statuses.md")
	must(t, err)
	_, table, _ := strings.Cut(string(text), "## Exit status of the command line")
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.Trim(cells[1], " 0123456789") == "" {
			out = append(out, strings.ReplaceAll(cells[1]+" "+cells[2], "`", ""))
		}
	}
	if len(out) < 10 {
		t.Errorf("docs/reference/exit-statuses.md has %d exit statuses", len(out))
	}
	return out
}

// One step, three faces: each writes what its caller can do there.
//
// proves HTC-06
func TestWords(t *testing.T) {
	const run = "run_3SE9HRX367RN37683ZB6KX0C3D"
	for _, c := range []struct {
		step              fault.Step
		shell, chat, http string
	}{
		{fault.Do("slurm.job.get", "run_id", run), "slurmgate get " + run, `slurm_job_get {"run_id":"` + run + `"}`, "GET /v1/runs/" + run},
		{fault.Do("slurm.job.collect", "run_id", run, "wait_seconds", 30), "slurmgate wait " + run,
			`slurm_job_collect {"run_id":"` + run + `","wait_seconds":30}`,
			"GET /v1/runs/" + run + "/result?wait_seconds=30"},
		{fault.Do("slurm.job.adopt", "run_id", run), "slurmgate adopt " + run + " JOB_ID",
			"ask an administrator to run `slurmgate adopt " + run + " JOB_ID`",
			`POST /v1/tools/slurm.job.adopt:run with args {"run_id":"` + run + `"}`},
		{fault.Do("run.list"), "slurmgate runs list", "run_list", "GET /v1/runs"},
		{fault.Do("run.list", "state", "failed", "cursor", "a b"), "slurmgate runs list --state failed --cursor 'a b'",
			`run_list {"cursor":"a b","state":"failed"}`,
			"GET /v1/runs?cursor=a+b&state=failed"},
		{fault.Do("image add", "name", "samtools"), "slurmgate image add samtools FILE",
			"ask an administrator to run `slurmgate image add samtools FILE`",
			"at the gateway's shell: slurmgate image add samtools FILE"},
		{fault.Do("slurm.job.retry", "run_id", run, "after_attempt", 2), "slurmgate retry " + run + " --after-attempt 2",
			`slurm_job_retry {"after_attempt":2,"run_id":"` + run + `"}`, "POST /v1/runs/" + run + `:retry with {"after_attempt":2}`},
		{fault.Do("artifact save", "artifact_id", "art_X"), "slurmgate artifact get art_X -o FILE",
			"the user can run `slurmgate artifact get art_X -o FILE`", "GET /v1/artifacts/art_X/content"},
		{fault.Do("batch.export", "batch", "b1"), "slurmgate batch export b1", "the user can run `slurmgate batch export b1`",
			"GET /v1/batches/b1/export"},
		{fault.Do("approval.list", "all", true), "slurmgate approvals list --all",
			"ask an administrator to run `slurmgate approvals list --all`", "GET /v1/approvals?all=true"},
		{fault.Do("tool.show", "tool_id", "seqkit.stats"), "slurmgate tool show seqkit.stats", `tool_show {"tool_id":"seqkit.stats"}`,
			"GET /v1/registry"},
		{fault.Do("seqkit.stats", "reads", "art_X"), "slurmgate run seqkit.stats", `seqkit_stats {"reads":"art_X"}`,
			`POST /v1/tools/seqkit.stats:run with args {"reads":"art_X"}`},
	} {
		for by, want := range map[gate.Transport]string{gate.Local: c.shell, gate.MCP: c.chat, gate.Other: c.http} {
			if got := words().Of(by)([]fault.Step{c.step}); got != want {
				t.Errorf("%s writes %s as %q, want %q", by, c.step, got, want)
			}
		}
	}
	got := cli.Words([]fault.Step{fault.Do("doctor"), fault.Do("doctor"), fault.Do("slurm.job.get", "run_id", "it's")})
	if got != `slurmgate doctor, or slurmgate get 'it'\''s'` {
		t.Errorf("the shell writes steps as %q", got)
	}
}
