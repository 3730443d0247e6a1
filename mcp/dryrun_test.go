package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/app"
	"slurmgate/gate"
	"slurmgate/run"
)

// A dry run reads in a chat as at the shell, within the bytes of an answer: what would be done first, the plan and the job script cut.
func TestDryRunSaysWhatItWouldDo(t *testing.T) {
	script := "#!/bin/bash\n" + strings.Repeat("echo \"a line of the script\"\n", 200)
	params := json.RawMessage(`{"argv":["` + strings.Repeat("x", 3000) + `"]}`)
	failed := run.GetState{RunID: runID, State: run.Failed}
	for tool, c := range map[string]struct {
		would any
		want  []string
	}{
		"samtools.flagstat": {run.Preview{RunID: runID, Site: "near", SiteWhy: "the only site", Params: params, Script: script},
			[]string{"Dry run: nothing was done.\n", "run: " + runID + "  would be created", "site: near  (the only site)",
				"The plan:\n```\n{\n  \"argv\"", "(the beginning of ", "--- job script", "\n#!/bin/bash\n", "A person's approval would be needed."}},
		"slurm.job.cancel": {app.CancelPreview{GetState: failed, Message: "nothing was changed. It is over"},
			[]string{runID + ": nothing was changed. It is over."}},
		"slurm.job.retry": {app.RetryPreview{GetState: failed, NextAttempt: &app.NextAttempt{Next: 3, Raised: "memory from 1 to 2 MiB"}},
			[]string{"next attempt: 3", "raised: memory from 1 to 2 MiB"}},
		"artifact.import": {app.ImportPreview{ImportAnswer: app.ImportAnswer{ArtifactDoc: app.ArtifactDoc{ArtifactID: "art_x"}, Created: true}},
			[]string{"It would be imported as art_x"}},
		"slurm.submit": {nil, []string{`slurm.submit would be called with "{'n':1}".`, dataNote}},
	} {
		w := newWorld()
		would, err := json.Marshal(c.would)
		must(t, err)
		w.on(tool, gate.Rehearsal{DryRun: true, ToolID: tool, Args: json.RawMessage(`{"n":1}`), Would: would, ConsentRequired: true}, nil)
		res, err := w.session(t).CallTool(t.Context(), &sdk.CallToolParams{Name: strings.ReplaceAll(tool, ".", "_"),
			Arguments: json.RawMessage(`{}`),
			Meta:      sdk.Meta{handshakeKey: map[string]any{"dry_run": true, "actor": map[string]any{"kind": "agent"}}}})
		must(t, err)
		for _, want := range c.want {
			if text := textOf(res); !strings.Contains(text, want) {
				t.Errorf("a dry run of %s is described as\n%s\nwithout %q", tool, text, want)
			}
		}
		if n := size(res); res.IsError || n > MaxAnswer {
			t.Errorf("the answer to a dry run of %s is an error: %t, and has %d bytes; want at most %d", tool, res.IsError, n, MaxAnswer)
		}
	}
}
