package e2e

import (
	"slices"
	"strings"
	"testing"
)

// Every verb prints exactly one JSON object with --json, well or badly, and ends with the status of its kind of error.
//
// proves ARC-09 HTC-06
func TestVerbs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	file := s.file("input.txt", "some input\n")
	good := s.submit(probePlan("write", "out/result", "x"))
	s.mustEnd(good.RunID, "succeeded")
	bad := s.submit(probePlan("exit", "3"))
	s.wait(bad.RunID)
	pending := s.submit(s.set(probePlan("nothing"), "placement.partition", "big"))
	a := s.import1(file)
	none, noArtifact := "run_"+strings.Repeat("0", 26), "art_"+strings.Repeat("0", 26)
	planFile := s.plan(probePlan("exit", "4"))
	to := func(name string) string { return s.dir + "/" + name }

	tests := []struct {
		exit int
		args []string
	}{
		{0, []string{"version"}},
		{0, []string{"config", "check"}},
		{0, []string{"config", "show"}},
		{2, []string{"config", "check", "--site", file}},
		{0, []string{"notify", good.RunID}},
		{4, []string{"notify", good.RunID, "ana@example.org"}},
		{3, []string{"notify", none, "https://hooks.example.org/"}},
		{0, []string{"tool", "list"}},
		{0, []string{"tool", "show", "probe.words"}},
		{3, []string{"tool", "show", "no.such"}},
		{0, []string{"tool", "check", s.dir + "/domain"}},
		{0, []string{"image", "list"}},
		{0, []string{"image", "verify"}},
		{0, []string{"image", "add", "probe", world.dir + "/probe.sif"}},
		{2, []string{"image", "add", "other", file}},
		{5, []string{"image", "add", "probe", world.dir + "/seqkit.sif"}},
		{0, []string{"artifact", "import", file}},
		{0, []string{"artifact", "list"}},
		{0, []string{"artifact", "get", a.ArtifactID}},
		{0, []string{"artifact", "get", a.ArtifactID, "-o", to("got")}},
		{5, []string{"artifact", "get", a.ArtifactID, "-o", to("got")}},
		{3, []string{"artifact", "get", noArtifact}},
		{2, []string{"artifact", "get", "art_u"}},
		{0, []string{"artifact", "get", a.ArtifactID[:12]}},
		{0, []string{"artifact", "preview", a.ArtifactID}},
		{2, []string{"artifact", "preview", a.ArtifactID, "--as", "table"}},
		{0, []string{"artifact", "verify", "--all"}},
		{0, []string{"gc", "--dry-run"}},
		{0, []string{"gc"}},
		{4, []string{"artifact", "import", s.dir + "/runs/.gateway-id"}},
		{0, []string{"runs", "list"}},
		{0, []string{"runs", "list", "--since", "2h", "--until", "2100-01-01"}},
		{2, []string{"runs", "list", "--since", "yesterday"}},
		{0, []string{"runs", "diff", good.RunID, bad.RunID}},
		{0, []string{"runs", "show", good.RunID}},
		{2, []string{"runs", "show", "run_u"}},
		{0, []string{"runs", "show", strings.ToLower(good.RunID[4:14])}},
		{0, []string{"get", good.RunID}},
		{0, []string{"get", bad.RunID}}, // a read succeeds whatever the run's state
		{0, []string{"get", pending.RunID, "--wait", "1"}},
		{3, []string{"get", none}},
		{0, []string{"wait", good.RunID}},
		{0, []string{"wait", good.RunID, "--to", to("waited")}},
		{5, []string{"wait", good.RunID, "--to", to("waited")}},
		{6, []string{"wait", bad.RunID}},
		{7, []string{"wait", pending.RunID, "--timeout", "1s"}},
		{0, []string{"collect", good.RunID}},
		{0, []string{"collect", good.RunID, "--to", to("collected")}},
		{6, []string{"collect", bad.RunID}},
		{0, []string{"collect", pending.RunID}}, // not ready is an answer
		{0, []string{"logs", good.RunID}},
		{0, []string{"logs", bad.RunID, "--stream", "stderr", "--tail", "1"}},
		{6, []string{"submit", planFile, "--wait"}},
		{6, []string{"submit", planFile, "--wait"}}, // and so does its replay
		{2, []string{"submit", file}},
		{7, []string{"submit", s.plan(s.set(probePlan("nothing"), "placement.partition", "big")), "--wait", "--timeout", "1s"}},
		{0, []string{"run", "probe.words", "--param", "word=x", "--wait", "--to", to("words")}},
		{6, []string{"run", "probe.small", "--param", "word=far too long", "--wait"}},
		{6, []string{"submit", s.plan(s.set(probePlan("nothing"), "resources.mem_mb", 16000))}}, // Slurm refuses it
		{2, []string{"run", "probe.words", "--param", "odd=1"}},
		{0, []string{"cancel", pending.RunID}},
		{2, nil},
		{2, []string{"get"}},
		{3, []string{"runs", "list", "--site", to("nothing.yaml")}},
	}
	for _, tt := range tests {
		r := s.cli(append(slices.Clone(tt.args), "--json")...)
		if r.code != tt.exit {
			t.Errorf("exit %d is due: %v", tt.exit, r)
			continue
		}
		if slices.Contains(tt.args, "-") && tt.exit == 0 {
			continue // the bytes of an artifact are no object
		}
		var e struct{ Error *failure }
		r.object(t, &e)
		switch {
		case e.Error == nil && (tt.exit == 0 || tt.exit == 6): // the run and how it ended are the answer
		case tt.exit == 0 || e.Error == nil || e.Error.Code == "" || e.Error.Message == "":
			t.Errorf("an error, and only one, has an error's body: %v", r)
		}
	}

	// A failure is shown with its reason and with what helps.
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"submit", planFile}, []string{"replayed (no new job)  run_", "state   failed (done)\n", "reason  tool_failed: ",
			"\nNext: slurmgate logs run_", "slurmgate retry run_"}},
		{[]string{"wait", bad.RunID}, []string{"failed  in ", "reason  tool_failed: ", "\nNext: slurmgate logs " + bad.RunID,
			"slurmgate retry " + bad.RunID}},
	} {
		r := s.cli(tt.args...)
		for _, text := range tt.says {
			if r.code != 6 || !strings.Contains(string(r.stdout), text) {
				t.Errorf("6 and %q are due: %v", text, r)
			}
		}
	}

	// The same for people: what is wrong and what to do next, on standard error.
	for _, tt := range []struct {
		code int
		args []string
		says string
	}{
		{3, []string{"tool", "show", "no.such"}, "tool list"},
		{2, []string{"odd"}, "--help"},
		{7, []string{"submit", s.plan(s.set(s.set(probePlan("nothing"), "placement.partition", "big"), "resources.cpus", 2)), "--wait",
			"--timeout", "1s"}, "slurmgate wait run_"},
	} {
		r := s.cli(tt.args...)
		if r.code != tt.code || len(r.stdout) > 0 || !strings.Contains(string(r.stderr), tt.says) {
			t.Errorf("%d and %q are due: %v", tt.code, tt.says, r)
		}
	}
}

// Why two runs are two: the parts of the identity that differ, and where.
//
// proves ARC-08
// short: the shell
func TestInspection(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	d := s.serve()
	one, two := probePlan("write", "out/result", "one"), probePlan("write", "out/result", "two")
	a, b := s.submit(one).RunID, s.submit(s.set(two, "resources.mem_mb", 120)).RunID
	s.wait(a)
	s.wait(b)
	var r struct {
		Same    bool
		Parts   []struct{ Part string }
		Changes []struct {
			Path string
			A, B any
		}
	}
	s.ok(&r, "runs", "diff", a, b)
	same(t, "parts", r.Parts, []struct{ Part string }{{"params"}})
	places := map[string][2]any{}
	for _, c := range r.Changes {
		places[c.Path] = [2]any{c.A, c.B}
	}
	same(t, "changes", places, map[string][2]any{"params.slurm.execution.command.argv[3]": {"one", "two"},
		"params.slurm.resources.mem_mb": {100.0, 120.0}})
	if s.ok(&r, "runs", "diff", a, a); !r.Same {
		t.Errorf("runs diff of a run with itself returned %+v, want the same", r)
	}

	d.signal("TERM")
	d.ended(t)
	s.replace("domain/policies.yaml", "version: 1", "version: 1\ndefault_timeout_sec: 600") // another policy, another run
	c := s.submit(probePlan("write", "out/result", "one")).RunID
	if s.ok(&r, "runs", "diff", a, c); len(r.Parts) != 1 || r.Parts[0].Part != "policy" || len(r.Changes) != 1 ||
		r.Changes[0].Path != "policy.default_timeout_sec" {
		t.Errorf("runs diff of runs under two policies returned %+v, want default_timeout_sec alone", r)
	}
	s.wait(c)

	var v struct {
		Image    string
		Attempts []struct {
			Attempt        int
			Ending, Source string
			Elapsed        *float64 `json:"elapsed_seconds"`
		}
	}
	s.ok(&v, "runs", "show", a)
	if len(v.Attempts) != 1 || v.Attempts[0].Ending != "ok" || v.Attempts[0].Elapsed == nil || len(v.Image) < len("sha256:")+64 {
		t.Errorf("runs show has the image %q and the attempts %+v, want a digest and one attempt that ended ok",
			v.Image, v.Attempts)
	}
}

// Outputs are copied all or not at all: names are settled first, files that are there are not touched, and what a failure left is removed.
func TestCopyOutputs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	doc := probePlan("write", "out/a/x.txt", "one", "out/b/x.txt", "two", "out/y.txt", "three")
	doc["io"].(tree)["outputs"] = []any{tree{"role": "one", "src_relpath": "out/a/x.txt", "type": "TEXT", "label": "one"},
		tree{"role": "two", "src_relpath": "out/b/x.txt", "type": "TEXT", "label": "two"},
		tree{"role": "three", "src_relpath": "out/y.txt", "type": "TEXT", "label": "three"}}
	id := s.submit(doc).RunID
	files := func(dir string) string {
		return shell(t, "lab", `cd "$1" 2>/dev/null || { echo none; exit; }; find . -type f | sort | while read -r f; do echo "$f $(cat "$f")"; done`, dir)
	}
	s.ok(nil, "wait", id, "--to", s.dir+"/waited/here")
	const all = "./a/x.txt one\n./b/x.txt two\n./y.txt three"
	same(t, "files", files(s.dir+"/waited/here"), all)
	s.ok(nil, "collect", id, "--to", s.dir+"/collected")
	same(t, "files", files(s.dir+"/collected"), all)

	shell(t, "lab", `mkdir -p "$1" && echo mine >"$1/y.txt"`, s.dir+"/files/partly")
	f := s.fails(5, "collect", id, "--to", s.dir+"/files/partly")
	if f.Code != "target_exists" || !strings.Contains(f.Message, "/partly/y.txt already exists") {
		t.Errorf("collect onto a file that exists fails with %v, want target_exists that names it", f)
	}
	if r := s.cli("collect", id, "--to", s.dir+"/files/partly"); r.code != 5 || !strings.Contains(string(r.stderr), "--to") {
		t.Errorf("the option is not named: %v", r)
	}
	same(t, "files", files(s.dir+"/files/partly"), "./y.txt mine")

	// The third cannot be fetched: the two before it, and their folders, are removed again.
	shell(t, "lab", `f=$(find "$1/runs" "$HOME/${1#/shared/}" -path "*objects*" -name "$2*" 2>/dev/null | head -1); [ -n "$f" ] && rm -f "$f"`, s.dir, s.sha(id, "three"))
	if r := s.cli("collect", id, "--to", s.dir+"/half/way"); r.code == 0 {
		t.Errorf("%v, want a failure, as the third output cannot be fetched", r)
	}
	same(t, "files", files(s.dir+"/half"), "none")
}

// sha returns the checksum of a run's output.
func (s *site) sha(runID, role string) string {
	s.t.Helper()
	for _, o := range s.story(runID).Outputs {
		if o.Role == role {
			return o.SHA256
		}
	}
	s.t.Fatalf("run %s has no output %s", runID, role)
	return ""
}
