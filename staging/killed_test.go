package staging

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/plan"
	"slurmgate/run"
)

// stageWhole does what a gateway does for a run before it sends it.
func stageWhole(t *testing.T, s *Shared, runID string, o *objects, inputs []plan.Input) {
	t.Helper()
	must(t, s.StageInputs(t.Context(), runID, inputs, o.open))
	must(t, s.OpenAttempt(t.Context(), runID, 1, tokenA, run.ControlFile{Name: "pinned.sha256", Data: []byte("pinned\n")},
		run.ControlFile{Name: "script", Data: []byte("script\n")}))
}

// If a gateway is killed at any point of staging, the next one brings the run to the same state, and leaves finished
// runs unchanged. The test starts itself as that gateway, which stages one run after another and prints when it begins
// each.
func TestStagingKilled(t *testing.T) {
	large := strings.Repeat("bam!", 300_000)
	if dir := os.Getenv("STAGING_TEST_KILLED"); dir != "" {
		s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1"})
		must(t, err)
		o := &objects{t: t, dir: os.Getenv("STAGING_TEST_OBJECTS")}
		inputs := []plan.Input{o.add(large, "in/a.bam"), o.add("ref", "in/ref/x.fa")}
		for i := 0; ; i++ {
			fmt.Printf("run_%026d\n", i)
			stageWhole(t, s, fmt.Sprintf("run_%026d", i), o, inputs)
		}
	}
	self, err := os.Executable()
	must(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 30 {
		s, dir := newShared(t)
		o := newObjects(t)
		cmd := exec.Command(self, "-test.run=^TestStagingKilled$")
		cmd.Env = append(os.Environ(), "STAGING_TEST_KILLED="+dir, "STAGING_TEST_OBJECTS="+o.dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for begun := 1 + random.IntN(5); begun > 0 && lines.Scan(); begun-- {
		}
		kill := time.AfterFunc(time.Duration(random.IntN(8000))*time.Microsecond, func() { cmd.Process.Kill() })
		for lines.Scan() { // to the end: the name of each run that was begun
		}
		kill.Stop()
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatal("the gateway ended by itself:", err, lines.Text())
		}
		runs, err := filepath.Glob(dir + "/run_*")
		must(t, err)
		inputs := []plan.Input{o.add(large, "in/a.bam"), o.add("ref", "in/ref/x.fa")}
		for _, path := range runs {
			stageWhole(t, s, filepath.Base(path), o, inputs)
			want := []string{"drwx------ a1", "drwx------ a1/ctl", "-rw------- a1/ctl/pinned.sha256", "-rw------- a1/ctl/script",
				"-rw------- a1/ctl/token",
				"drwx------ in", "-r-------- in/a.bam", "drwx------ in/ref", "-r-------- in/ref/x.fa"}
			if d := cmp.Diff(want, list(t, path)); d != "" {
				t.Fatalf("kill %d, %s: %s", i, path, d)
			}
			if got := content(t, path+"/in/a.bam") + content(t, path+"/in/ref/x.fa") + content(t, path+"/a1/ctl/token") + content(t,
				path+"/a1/ctl/pinned.sha256") + content(t, path+"/a1/ctl/script"); got != large+"ref"+tokenA+"\npinned\nscript\n" {
				t.Fatalf("kill %d, %s: %d bytes, not those staged", i, path, len(got))
			}
		}
	}
}
