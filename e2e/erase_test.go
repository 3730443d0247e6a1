package e2e

import (
	"strings"
	"testing"
)

// A secret that no rule knows is in a plan's arguments, and so in its params, its script, its logs, its output and its workspace. After the
// erasure it is in no file of the gateway's; the log is its redacted copy, the output says that it was erased, and the chains verify.
func TestErase(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	const secret = "tiger lily of 7 valleys"
	doc := probePlan("print", "first\\nand "+secret+" too\\n")
	r := s.submit(doc)
	if l := s.wait(r.RunID); l.State != "succeeded" {
		t.Fatalf("%+v", l)
	}
	clean := s.submit(probePlan("print", "nothing of it"))
	s.wait(clean.RunID)
	logs := func(runID string) string {
		t.Helper()
		res := s.cli("logs", runID, "--stream", "stdout")
		if res.code != 0 {
			t.Fatalf("%+v", res)
		}
		return string(res.stdout)
	}
	if !strings.Contains(logs(r.RunID), secret) {
		t.Fatal("the job did not say it")
	}
	where := func() string { // but for the plan, which is the caller's own file
		return shell(t, "root", `grep -rlaF "$1" "$2" "$3" | grep -v /plan || true`, secret, s.dir, "/home/lab/"+strings.TrimPrefix(s.dir, "/shared/"))
	}
	if n := len(strings.Fields(where())); n < 6 {
		t.Fatalf("it is in %d files only: %s", n, where())
	}
	erase := func(args ...string) result {
		return s.cliWith(strings.NewReader(secret+"\n"), append([]string{"erase", "--reason", "a job said it"}, args...)...)
	}
	if res := erase("--dry-run"); res.code != 0 || !strings.Contains(string(res.stdout), "would erase") || len(strings.Fields(where())) < 6 {
		t.Errorf("%+v", res)
	}
	res := erase()
	if out := string(res.stdout); res.code != 0 || strings.Contains(out, secret) || strings.Contains(out, "still there") ||
		!strings.Contains(out, "rotate it") {
		t.Errorf("%+v", res)
	}
	if left := where(); left != "" {
		t.Errorf("it is still in %s", left)
	}
	if text := logs(r.RunID); !strings.HasPrefix(text, "first\nand [erased:ers_") || !strings.HasSuffix(text, "] too\n") {
		t.Errorf("%q", text)
	}
	if text := logs(clean.RunID); text != "nothing of it" {
		t.Errorf("%q", text)
	}
	var got struct {
		Warnings []string
		ByRole   map[string]string `json:"artifacts_by_role"`
	}
	s.ok(&got, "collect", r.RunID)
	if !strings.Contains(strings.Join(got.Warnings, " "), "the output result held a secret and was erased") {
		t.Errorf("%+v", got)
	}
	if f := s.fails(3, "artifact", "get", got.ByRole["result"]); f.Code != "artifact_erased" {
		t.Errorf("%+v", f)
	}
	if again := s.submit(doc); again.RunID != r.RunID || !again.Replayed {
		t.Errorf("the same request is another run: %+v", again)
	}
	var v struct {
		OK     bool
		Erased []struct{ Reason string }
	}
	if s.ok(&v, "events", "verify"); !v.OK || len(v.Erased) != 1 || v.Erased[0].Reason != "a job said it" {
		t.Errorf("%+v", v)
	}
	var verified struct {
		Damaged int `json:"damaged_count"`
	}
	if s.ok(&verified, "artifact", "verify", "--all"); verified.Damaged != 0 {
		t.Errorf("%+v", verified)
	}
}
