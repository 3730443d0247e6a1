package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A job succeeds on no bytes that its file's owner swaps in after the job has compared them, through a page of memory
// that was written to before the file was registered. Nothing of a download of such bytes is taken for the right
// ones. What the input rests on is in the run and in its receipt.
//
// proves DATA-05 ABI-19
// short: what runs is what was pinned
func TestSwappedInPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("site.yaml", "  image_store:", "  in_place: [{path: "+s.dir+"/refs, projects: [demo]}]\n  image_store:")
	must(t, os.Mkdir(host(s.dir)+"/refs", 0o755))
	must(t, giveToLab(host(s.dir)+"/refs"))
	name, content := s.dir+"/refs/of-alice", large("right")
	f, err := os.OpenFile(host(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString(content)
	must(t, err)
	shell(t, "root", `chown alice "$1"`, name)
	memory := value(unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(memory)
	memory[0] = content[0] // the page is not on the disk when the file is registered
	s.serve()
	var a artifactRow
	s.ok(&a, "artifact", "import", "--in-place", name)
	later := func(memMB int) (runID string, release func()) {
		t.Helper()
		doc := sumsOf(a, "in/data.txt")
		doc = s.set(doc, "execution.command.argv", []any{"testprog", "sums-later", "out/go", "out/result", "in"})
		id := s.submit(s.set(doc, "resources.mem_mb", memMB)).RunID
		out := func(file string) string { return host(s.story(id).Workspace) + "/a1/out/" + file }
		until(t, "the program of "+id, func() bool { _, err := os.Stat(out("started")); return err == nil })
		return id, func() { must(t, os.WriteFile(out("go"), nil, 0o644)) }
	}
	good, release := later(101)
	release()
	s.mustEnd(good, "succeeded")
	s.restsOn(good, "hash")
	bad, release := later(102)
	copy(memory, "wrong")
	release()
	s.endedBadly(s.wait(bad), "failed", "input_mismatch")
	if r := s.cli("artifact", "get", a.ArtifactID, "--output", "-"); r.code == 0 || strings.Contains(string(r.stdout), "wrong") {
		t.Errorf("a download of swapped bytes exits with %d and gives %.40q, want a failure without them", r.code, r.stdout)
	}
}

// restsOn holds the run and its receipt to saying what the input in place rests on, and by whose registration.
func (s *site) restsOn(runID, want string) {
	s.t.Helper()
	var v struct {
		Inputs []struct {
			Strength string
			InPlace  struct {
				RestsOn      string `json:"rests_on"`
				RegisteredBy string `json:"registered_by"`
			} `json:"in_place"`
		}
	}
	s.ok(&v, "runs", "show", runID)
	if in := v.Inputs[0]; in.Strength != "in_place" || in.InPlace.RestsOn != want || in.InPlace.RegisteredBy != "user:lab" {
		s.t.Errorf("the run reports its input as %+v, want in_place resting on %s, registered by user:lab", in, want)
	}
	if r := s.cli("receipt", runID, "--json"); !strings.Contains(string(r.stdout), fmt.Sprintf(`"restsOn":%q,"registeredBy":"user:lab"`, want)) &&
		!strings.Contains(string(r.stdout), fmt.Sprintf(`"restsOn": %q`, want)) {
		s.t.Errorf("the receipt does not say that its input rests on %s: %s", want, r.stdout)
	}
}

// Where jobs run as their callers, a file in place is hashed by the caller's login and read by the caller's jobs. The
// service's rights open nothing of it.
//
// proves SITE-08 DATA-05
// short: jobs of callers
func TestInPlaceOfACaller(t *testing.T) {
	t.Parallel()
	s, _ := callerSite(t, func(doc tree) {
		doc["storage"].(tree)["in_place"] = []any{tree{"path": "/home", "projects": []any{"demo"}}}
	})
	s.serve()
	content := large("alice's own")
	private := s.fileOf("alice", "private.txt", content)
	service := s.fileOf("lab", "private.txt", "the service's own")
	add := func(user, path string) result {
		return s.user(user, nil, "artifact", "import", "--in-place", "--type", "TEXT", "--label", "data", path)
	}
	for _, c := range [][2]string{{"bob", private}, {"alice", service}, {"bob", service}} {
		if code := add(c[0], c[1]).denied(t, "own"); code != "IMPORT-ACCESS" && code != "import_missing" {
			t.Errorf("%s registers %s: %s, want a refusal by that user's login", c[0], c[1], code)
		}
	}
	var a artifactRow
	add("alice", private).object(t, &a)
	if a.SHA256 != sumOf(content) {
		t.Fatalf("alice's file has the checksum %s, want %s", a.SHA256, sumOf(content))
	}
	s.user("bob", nil, "artifact", "get", a.ArtifactID, "--output", "-").denied(t, "alice's own")
	var run submitted
	s.user("alice", nil, "submit", s.plan(sumsOf(a, "in/data.txt"))).object(t, &run)
	s.mustEnd(run.RunID, "succeeded")
	var v struct {
		Inputs []struct {
			Strength string
			InPlace  struct {
				RegisteredAs string `json:"registered_as"`
			} `json:"in_place"`
		}
	}
	s.ok(&v, "runs", "show", run.RunID)
	if in := v.Inputs[0]; in.Strength != "in_place" || in.InPlace.RegisteredAs != "alice" {
		t.Errorf("the run reports its input as %+v, want in_place, registered as alice", in)
	}
}
