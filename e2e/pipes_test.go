package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// pipePlan returns a plan of several programs in a pipe, the first of which reads a file from standard input.
func (s *site) pipePlan(stdin artifactRow, programs ...[]string) tree {
	doc := probePlan(programs[0]...)
	var pipe [][]string
	for _, argv := range programs[1:] {
		if argv[0] != "nosuchprogram" {
			argv = append([]string{"testprog"}, argv...)
		}
		pipe = append(pipe, argv)
	}
	s.set(doc, "execution.command.pipe", pipe)
	s.set(doc, "execution.command.stdin", "in/note")
	s.set(doc, "execution.command.stdout", "out/result")
	s.set(doc, "io.inputs", []any{tree{"role": "note", "artifact_id": stdin.ArtifactID, "checksum_sha256": stdin.SHA256,
		"dest_relpath": "in/note"}})
	return doc
}

// A pipe of containers on the cluster: an input on standard input, three programs, the last one's output. The run succeeds only if all of
// them do; else it names the one that failed first, wherever that is, and ends as it would with one program where it is cancelled, runs out
// of time or of memory.
//
// proves DATA-03
func TestPipes(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	note := s.import1(s.file("note", "a note\n"))
	l := s.wait(s.submit(s.pipePlan(note, []string{"copy", "1"}, []string{"copy", "2"}, []string{"copy", "3"})).RunID)
	if got := string(s.bytesOf(l.Roles["result"])); l.State != "succeeded" || got != "a note\n123" {
		t.Errorf("a pipe of three programs: %v, output %q; want it succeeded with a note and 123", l, got)
	}
	for _, c := range []struct {
		name     string
		programs [][]string
		seconds  int
		code     int
		why      string
		says     string
	}{
		{"the first", [][]string{{"fail", "3", "first words"}, {"copy", ""}, {"copy", ""}}, 60, 3, "tool_failed",
			"program 1 of the pipe exited with status 3"},
		{"the middle", [][]string{{"pump"}, {"taste", "4"}, {"copy", ""}}, 60, 4, "tool_failed", "program 2 of the pipe exited with status 4"},
		{"the last", [][]string{{"pump"}, {"copy", ""}, {"taste", "5"}}, 60, 5, "tool_failed", "program 3 of the pipe exited with status 5"},
		{"the last has enough", [][]string{{"pump"}, {"taste", "0"}}, 60, 33, "tool_failed", "program 1 of the pipe exited with status 33"},
		{"none there", [][]string{{"pump"}, {"nosuchprogram"}, {"copy", ""}}, 60, 255, "program_not_started", "nosuchprogram"},
		{"time", [][]string{{"copy", "x"}, {"sleep", "600"}, {"copy", ""}}, 2, 124, "time_limit", "its time limit of 2 s"},
		{"memory", [][]string{{"copy", "x"}, {"hog", "4000"}, {"copy", ""}}, 60, -1, "out_of_memory", "more memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.as(t)
			doc := s.pipePlan(note, c.programs...)
			s.set(doc, "resources.time_limit_seconds", c.seconds)
			l := s.wait(s.submit(doc).RunID)
			r := s.cli("runs", "show", l.RunID)
			if l.State != "failed" || !strings.HasPrefix(l.why(), c.why) || c.code >= 0 && (l.ExitCode == nil || *l.ExitCode != c.code) ||
				!strings.Contains(string(r.stdout), c.says) || !strings.Contains(string(r.stdout), "| into") {
				t.Errorf("a pipe whose fault is %q: %v, shown as\n%s\nwant it failed as %s with %q", c.name, l,
					r.stdout, c.why, c.says)
			}
			if len(l.Roles) != 0 && l.Roles["result"] != "" {
				t.Error("an output of a run that failed", l.Roles)
			}
		})
	}
	a := s.submit(s.pipePlan(note, []string{"copy", "x"}, []string{"sleep", "600"}, []string{"copy", ""}))
	until(t, "the program in the middle", func() bool {
		_, err := os.Stat(host(s.story(a.RunID).Workspace) + "/a1/out/started")
		return err == nil
	})
	s.ok(nil, "cancel", a.RunID)
	s.ends(a.RunID, "cancelled")
	// Policy judges each program, and no shell is one.
	bad := s.pipePlan(note, []string{"copy", "1"}, []string{"copy", "2"})
	s.set(bad, "execution.command.pipe", [][]string{{"testprog", "copy"}, {"bash", "-c", "true"}})
	if f := s.fails(4, "submit", s.plan(bad)); !strings.Contains(text(t, f), "execution.command.pipe[1][0]") {
		t.Errorf("a pipe with a shell in it fails with %s, want the field of the shell", text(t, f))
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	b := value(json.Marshal(v))(t)
	return string(b)
}
