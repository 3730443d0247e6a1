package nss

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
)

// programs creates a fake getent and id in a temporary folder. Both write their arguments to the file calls.
func programs(t *testing.T, getent, id string) Host {
	t.Helper()
	dir := t.TempDir()
	for name, script := range map[string]string{"getent": getent, "id": id} {
		text := "#!/bin/sh\necho \"" + name + " $*\" >> " + dir + "/calls\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return Host{Dir: dir, Limit: 2 * time.Minute}
}

// The output of this host's getent and id can be read.
func TestThisHost(t *testing.T) {
	h := Host{}
	u, err := h.User(t.Context(), "daemon")
	if err != nil || u.Name != "daemon" || u.UID != 1 || u.Shell != "/usr/sbin/nologin" {
		t.Fatalf("User(daemon) = %v, %v, want uid 1 with /usr/sbin/nologin", u, err)
	}
	if again, err := h.UserOf(t.Context(), u.UID); err != nil || again != u {
		t.Errorf("UserOf(%d) = %v, %v, want %v", u.UID, again, err, u)
	}
	if name, err := h.NameOf(t.Context(), 0); err != nil || name != "root" {
		t.Errorf("NameOf(0) = %q, %v, want root", name, err)
	}
	gid, err := h.GroupID(t.Context(), "daemon")
	ids, idErr := h.GroupsOf(t.Context(), "daemon")
	if err != nil || idErr != nil || gid != u.GID || !slices.Contains(ids, gid) {
		t.Errorf("GroupID(daemon) = %d, %v and GroupsOf(daemon) = %v, %v, want %d in both", gid, err, ids, idErr, u.GID)
	}
	all, err := h.Users(t.Context(), "root", "no-such-user", "daemon")
	if err != nil || len(all) != 2 || all["daemon"] != u {
		t.Errorf("Users = %v, %v, want root and daemon", all, err)
	}
	for what, err := range map[string]error{"user": second(h.User(t.Context(), "no-such-user")),
		"id": second(h.UserOf(t.Context(), 3999999999)), "group": second(h.GroupID(t.Context(), "no-such-group"))} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("the look-up of an unknown %s = %v, want not found", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// An unexpected output is a Transport fault, never a user or a group.
func TestStrangeAnswers(t *testing.T) {
	for what, c := range map[string]struct{ getent, id string }{
		"nothing":         {"true", "true"},
		"an empty line":   {"echo", "echo"},
		"garbage":         {`printf '\377\0:::'`, `printf '\377\0'`},
		"words":           {"echo no passwd entry", "echo no such user"},
		"two entries":     {"echo lab:x:7:; echo lab:x:8:", "echo 7; echo 8"},
		"no line end":     {"printf lab:x:7:", "printf 7"},
		"no id":           {"echo lab:x::", "echo '7  8'"},
		"a negative id":   {"echo lab:x:-1:", "echo -1"},
		"nobody's id":     {"echo lab:x:4294967295:", "echo 4294967295"},
		"an id too large": {"echo lab:x:4294967296:", "echo 4294967296"},
		"a leading zero":  {"echo lab:x:007:", "echo 007"},
		"a sign":          {"echo lab:x:+7:", "echo +7"},
		"exit status 1":   {"echo lab:x:7:; exit 1", "echo 7; exit 1"},
		"killed":          {"kill -9 $$", "kill -9 $$"},
		"too much":        {"yes lab:x:7:", "yes 7"},
	} {
		h := programs(t, c.getent, c.id)
		gid, err := h.GroupID(t.Context(), "lab")
		ids, idErr := h.GroupsOf(t.Context(), "alice")
		u, userErr := h.User(t.Context(), "alice")
		for _, err := range []error{err, idErr, userErr} {
			if !fault.Is(err, fault.Transport) || fault.CodeOf(err) != "directory_unreachable" || fault.RetryOf(err) == 0 {
				t.Errorf("%s: %d %v %v: %v", what, gid, ids, u, err)
			}
		}
	}
	h := programs(t, "echo bob:x:8:8:::", "exit 2")
	if u, err := h.UserOf(t.Context(), 7); !fault.Is(err, fault.Transport) {
		t.Errorf("UserOf(7) with a record of uid 8 = %v, %v, want a transport fault", u, err)
	}
	if _, err := (Host{Dir: t.TempDir()}).GroupID(t.Context(), "lab"); !fault.Is(err, fault.Transport) {
		t.Errorf("GroupID without getent = %v, want a transport fault", err)
	}
}

// A program that hangs, or whose children hang, is ended at its time limit.
func TestHangingDirectory(t *testing.T) {
	for what, script := range map[string]string{"itself": "exec sleep 600", "a child": "sleep 600",
		"a child in the background": "sleep 600 & echo lab:x:7:", "a child beyond the process group": "setsid sleep 90 & wait"} {
		h := programs(t, script, script)
		h.Limit = 300 * time.Millisecond
		start := time.Now()
		if gid, err := h.GroupID(t.Context(), "lab"); !fault.Is(err, fault.Transport) {
			t.Errorf("GroupID of a directory that hangs by %s = %d, %v, want a transport fault", what, gid, err)
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("a directory that hangs by %s took %s, want the limit of %s", what, d, h.Limit)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := programs(t, "sleep 600", "").GroupID(ctx, "lab"); !fault.Is(err, fault.Transport) {
		t.Errorf("GroupID with an ended context = %v, want a transport fault", err)
	}
}

// Users of thousands of groups, and groups of thousands of users.
func TestManyGroups(t *testing.T) {
	h := programs(t, `printf 'lab:x:7:'; seq -s, 1 60000`, `seq -s' ' 1 20000`)
	ids, err := h.GroupsOf(t.Context(), "alice")
	if err != nil || len(ids) != 20000 || ids[19999] != 20000 {
		t.Errorf("GroupsOf gives %d groups, %v, want 20000", len(ids), err)
	}
	if gid, err := h.GroupID(t.Context(), "lab"); err != nil || gid != 7 {
		t.Errorf("GroupID of a group with 60000 members = %d, %v, want 7", gid, err)
	}
	var names []string
	for n := range 1000 {
		names = append(names, fmt.Sprint("u", n))
	}
	h = programs(t, `shift 2; for u; do echo "$u:x:${u#u}:1:::"; done`, "")
	all, err := h.Users(t.Context(), names...)
	if err != nil || len(all) != 1000 || all["u999"].UID != 999 {
		t.Errorf("Users gives %d users, %v, want 1000", len(all), err)
	}
	calls, err := os.ReadFile(filepath.Join(h.Dir, "calls"))
	if n := strings.Count(string(calls), "\n"); err != nil || n != 10 {
		t.Errorf("1000 users took %d processes, %v, want 10", n, err)
	}
}

// A name is a single argument, for any characters; a text that could be an option, an id or a second field is refused.
func TestNames(t *testing.T) {
	for _, name := range []string{"lab", "_x", "EXAMPLE\\domain users", "alice@example.org", "Zoë", "$(touch x)", "a;b", "a'b\"c", "a*",
		"svc$"} {
		h := programs(t, `echo 'lab:x:7:'`, "echo 7")
		_, err := h.GroupID(t.Context(), name)
		calls, _ := os.ReadFile(filepath.Join(h.Dir, "calls"))
		if name[0] == '$' {
			if err == nil || calls != nil {
				t.Errorf("%q is asked: %s", name, calls)
			}
			continue
		}
		if err != nil || string(calls) != "getent group -- "+name+"\n" {
			t.Errorf("%q: %q %v", name, calls, err)
		}
	}
	for _, name := range []string{"", "-u", "--help", "+7", "7", "1000", " lab", "lab ", "a:b", "a\nb", "a\x00b", "a\x1b[2J", "a,b",
		"\xff", strings.Repeat("a", 257)} {
		h := programs(t, "echo lab:x:7:", "echo 7")
		for what, err := range map[string]error{"group": second(h.GroupID(t.Context(), name)), "groups": second(h.GroupsOf(t.Context(), name)),
			"user": second(h.User(t.Context(), name)), "users": second(h.Users(t.Context(), name))} {
			if err == nil {
				t.Errorf("%s %q is asked", what, name)
			}
		}
		if calls, _ := os.ReadFile(filepath.Join(h.Dir, "calls")); calls != nil {
			t.Errorf("%q: %s", name, calls)
		}
	}
}

// For any output of the programs, an id is one that the kernel can have.
func FuzzRecords(f *testing.F) {
	out, err := exec.Command("getent", "passwd", "root").Output()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(out), "lab:x:7:alice,bob\n", "7 8 9\n", "::::::\n", "a:b:+1:-1:::\n", "4294967295\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		ok := func(id int) bool { return id >= 0 && id < 1<<32-1 }
		if u, err := parseUser(out); err == nil && (!ok(u.UID) || !ok(u.GID) || u.Name == "" || strings.Contains(u.Name, ":")) {
			t.Errorf("parseUser(%q) = name %q, uid %d, gid %d, want a name without a colon and valid ids", out, u.Name, u.UID, u.GID)
		}
		if gid, err := parseGroup(out); err == nil && !ok(gid) {
			t.Errorf("parseGroup(%q) = %d, want a valid id", out, gid)
		}
		ids, err := parseIDs(out)
		if err == nil && (slices.ContainsFunc(ids, func(id int) bool { return !ok(id) }) ||
			!cmp.Equal(strings.Trim(fmt.Sprint(ids), "[]")+"\n", out)) {
			t.Errorf("parseIDs(%q) = %v, want the valid ids in it", out, ids)
		}
	})
}
