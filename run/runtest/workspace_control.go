package runtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// An attempt is opened with its control files; opened again, it has the files of the last call.
func attempt(t *testing.T, x *Files) {
	for _, script := range []string{"one", "", strings.Repeat("two", 1000)} {
		must(t, x.Again(t).OpenAttempt(t.Context(), runID, 1, token, run.ControlFile{Name: run.ScriptFile, Data: []byte(script)},
			run.ControlFile{Name: run.PinnedFile, Data: []byte("p" + script)}))
		x.has(t, "a1/ctl/"+run.ScriptFile, script)
		x.has(t, "a1/ctl/"+run.PinnedFile, "p"+script)
		x.has(t, "a1/ctl/token", token+"\n")
	}
	must(t, x.OpenAttempt(t.Context(), runID, 2, token2))
	x.has(t, "a2/ctl/token", token2+"\n")
	wantFault(t, x.OpenAttempt(t.Context(), runID, 0, token), fault.Validation, "attempt_number")
	wantFault(t, x.OpenAttempt(t.Context(), runID, 3, "../../etc"), fault.Validation, "token")
	wantFault(t, x.OpenAttempt(t.Context(), "../x", 1, token), fault.Validation, "run_id")
}

// Attempts of several runs that are opened together are each opened as if alone: new ones, an existing one, and those
// that are refused, which do not prevent the others.
func attemptsTogether(t *testing.T, x *Files) {
	run1 := func(i int) string { return fmt.Sprintf("run_%026d", i) }
	script := func(i int, of string) []run.ControlFile {
		return []run.ControlFile{{Name: run.PinnedFile, Data: []byte("p")}, {Name: run.ScriptFile, Data: []byte(fmt.Sprint(of, i))}}
	}
	s := newSource(t)
	input := s.add("12345", "in/x/f")
	must(t, x.OpenAttempt(t.Context(), run1(2), 1, token, script(2, "old")...))
	must(t, x.OpenAttempt(t.Context(), run1(3), 1, token2, script(3, "theirs")...))
	x.Leave(t, run1(4), "a1/ctl/exit", Entry{File, "x"})
	for range 2 { // as after a crash
		var list []run.Opening
		for i := range 8 {
			must(t, x.StageInputs(t.Context(), run1(i), []plan.Input{input}, s.file))
			list = append(list, run.Opening{RunID: run1(i), N: 1, Token: token, Files: script(i, "new")})
		}
		list[5].Token, list[6].RunID, list[7].N = "../../etc", "../x", 0
		errs := x.OpenTogether(t.Context(), list)
		if len(errs) != len(list) {
			t.Fatal(errs)
		}
		for i := range 3 {
			must(t, errs[i])
			for path, want := range map[string]string{"token": token + "\n", run.PinnedFile: "p", run.ScriptFile: fmt.Sprint("new", i)} {
				if got, ok := x.Read(t, run1(i), "a1/ctl/"+path); !ok || got != want {
					t.Errorf("run %d, %s: %q", i, path, got)
				}
			}
			if got, _ := x.Read(t, run1(i), "in/x/f"); got != "12345" {
				t.Errorf("run %d: %q", i, got)
			}
		}
		wantFault(t, errs[3], fault.Conflict, "workspace_ahead_of_ledger")
		wantFault(t, errs[4], fault.Conflict, "workspace_ahead_of_ledger")
		wantFault(t, errs[5], fault.Validation, "token")
		wantFault(t, errs[6], fault.Validation, "run_id")
		wantFault(t, errs[7], fault.Validation, "attempt_number")
		if got, _ := x.Read(t, run1(3), "a1/ctl/"+run.ScriptFile); got != "theirs3" {
			t.Errorf("another's script is %q", got)
		}
	}
	if errs := x.OpenTogether(t.Context(), nil); len(errs) != 0 {
		t.Error(errs)
	}
}

// A folder with another token, or none, is left unchanged.
func attemptForeign(t *testing.T, x *Files) {
	x.opened(t, run.ControlFile{Name: run.ScriptFile, Data: []byte("mine")})
	x.Leave(t, runID, "a2/ctl/exit", Entry{File, "x"})
	x.Leave(t, runID, "a3", Entry{File, token + "\n"})
	for n := 1; n <= 3; n++ {
		err := x.Again(t).OpenAttempt(t.Context(), runID, n, token2, run.ControlFile{Name: run.ScriptFile, Data: []byte("theirs")})
		wantFault(t, err, fault.Conflict, "workspace_ahead_of_ledger")
	}
	x.has(t, "a1/ctl/"+run.ScriptFile, "mine")
	x.hasNot(t, "a2/ctl/"+run.ScriptFile)
	x.has(t, "a3", token+"\n")
}

// Of callers with different tokens, those with one of the tokens get the attempt.
func attemptAtOnce(t *testing.T, x *Files) {
	const callers = 30
	var errs [callers]error
	token := func(i int) string { return fmt.Sprintf("%032x", i/3) } // three callers share each
	together(callers, func(i int) { errs[i] = x.OpenAttempt(t.Context(), runID, 1, token(i)) })
	winner, ok := x.Read(t, runID, "a1/ctl/token")
	if !ok {
		t.Fatal("nobody got the attempt")
	}
	for i, err := range errs {
		switch won := token(i)+"\n" == winner; {
		case err == nil && !won:
			t.Errorf("%s was told it has the attempt, the folder says %s", token(i), winner)
		case err != nil: // overtaken: the answer to a repeated call is definite
			if again := x.OpenAttempt(t.Context(), runID, 1, token(i)); won != (again == nil) || !won && !fault.Is(again, fault.Conflict) {
				t.Errorf("%v, then %v", err, again)
			}
		}
	}
}

// A reader of a control file that is being replaced sees the old file or the new one.
func controlWhole(t *testing.T, x *Files) {
	const size = 100_000
	x.opened(t, run.ControlFile{Name: run.ScriptFile, Data: bytes.Repeat([]byte("0"), size)})
	together(2, func(who int) {
		for i := range 20 {
			if who == 0 {
				if err := x.OpenAttempt(t.Context(), runID, 1, token, run.ControlFile{Name: run.ScriptFile,
					Data: bytes.Repeat([]byte{'0' + byte(i%10)}, size)}); err != nil {
					t.Error(err)
				}
				continue
			}
			got, err := run.ReadControl(t.Context(), x, runID, 1, run.ScriptFile, 2*size, false)
			if err != nil || len(got) != size || bytes.Count(got, got[:1]) != size {
				t.Errorf("%d bytes, %.5q…, %v", len(got), got, err)
			}
		}
	})
}

// The gateway may not write the claim and the token as control files, and no name leads out of the folder.
func controlRefused(t *testing.T, x *Files) {
	for _, name := range []string{"", ".", "..", "a/b", "../x", ".hidden", "a\nb", run.ClaimFile, "token", strings.Repeat("x", 200)} {
		wantFault(t, x.OpenAttempt(t.Context(), runID, 1, token, run.ControlFile{Name: name}), fault.Validation, "control_name")
	}
	_, err := run.ReadControl(t.Context(), x, runID, 1, "../token", 10, false)
	wantFault(t, err, fault.Validation, "control_name")
}

func readControl(t *testing.T, x *Files) {
	x.opened(t)
	x.Leave(t, runID, "a1/ctl/stdout", Entry{File, "0123456789"})
	for _, c := range []struct {
		limit int64
		tail  bool
		want  string
	}{{100, false, "0123456789"}, {100, true, "0123456789"}, {4, false, "0123"}, {4, true, "6789"}, {0, false, ""}, {0, true, ""}} {
		got, err := run.ReadControl(t.Context(), x, runID, 1, "stdout", c.limit, c.tail)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	for _, c := range []struct {
		from, limit int64
		want        string
		at          int64
	}{{0, 4, "0123", 0}, {3, 4, "3456", 3}, {8, 4, "89", 8}, {10, 4, "", 10}, {99, 4, "", 10}, {-3, 100, "789", 7}, {-99, 4, "0123", 0},
		{-4, 2, "67", 6}} {
		got, err := x.ReadControlFrom(t.Context(), runID, 1, "stdout", c.from, c.limit)
		if err != nil || string(got.Data) != c.want || got.From != c.at {
			t.Errorf("ReadControlFrom(%d, %d) of 0123456789 = %q from %d, %v; want %q from %d", c.from, c.limit, got.Data, got.From, err, c.want,
				c.at)
		}
	}
	x.Leave(t, runID, "a1/ctl/link", Entry{Kind: Symlink})
	x.Leave(t, runID, "a1/ctl/pipe", Entry{Kind: Pipe})
	x.Leave(t, runID, "a1/ctl/folder", Entry{Kind: Folder})
	for _, c := range []struct {
		n    int
		name string
		kind fault.Kind
		code string
	}{
		{1, "manifest", fault.NotFound, "control_missing"}, {7, "exit", fault.NotFound, "attempt_missing"},
		{1, "link", fault.Conflict, "workspace_foreign_entry"}, {1, "pipe", fault.Conflict, "workspace_foreign_entry"},
		{1, "folder", fault.Conflict, "workspace_foreign_entry"}, {0, "exit", fault.Validation, "attempt_number"},
	} {
		_, err := run.ReadControl(t.Context(), x, runID, c.n, c.name, 10, false)
		if fault.KindOf(err) != c.kind || fault.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c, err)
		}
		if _, from := x.ReadControlFrom(t.Context(), runID, c.n, c.name, 3, 10); fault.CodeOf(from) != c.code {
			t.Errorf("ReadControlFrom(%s) of attempt %d gave %v, want %s", c.name, c.n, from, c.code)
		}
	}
}

const jobClaim = "slurmgate-claim 1 job=7 task=- restart=0 token=" + token + " node=n1\n"

// Once the gateway has the claim no job gets it, and the gateway gets it again after a crash.
func claimFirst(t *testing.T, x *Files) {
	x.opened(t)
	void := string(run.VoidClaim(token))
	for range 2 {
		if got, err := x.Again(t).TakeClaim(t.Context(), runID, 1, []byte(void)); err != nil || string(got) != void {
			t.Errorf("%q %v", got, err)
		}
		if got := x.Claim(t, runID, 1, jobClaim); got != void {
			t.Errorf("the job read %q", got)
		}
	}
	x.has(t, "a1/ctl/claim", void)
}

// Once a job has the claim the gateway does not get it: it reads the job's.
func claimSecond(t *testing.T, x *Files) {
	x.opened(t)
	if got := x.Claim(t, runID, 1, jobClaim); got != jobClaim {
		t.Fatalf("the job read %q", got)
	}
	for range 2 {
		if got, err := x.TakeClaim(t.Context(), runID, 1, run.VoidClaim(token)); err != nil || string(got) != jobClaim {
			t.Errorf("%q %v", got, err)
		}
	}
	x.has(t, "a1/ctl/claim", jobClaim)
}

// Of many takers, jobs and gateways, exactly one wins, and all read the same.
func claimAtOnce(t *testing.T, x *Files) {
	x.opened(t)
	const takers = 40
	var mine, got [takers]string
	together(takers, func(i int) {
		mine[i] = strings.Replace(jobClaim, "job=7", fmt.Sprint("job=", 100+i), 1)
		if i%2 == 0 {
			got[i] = x.Claim(t, runID, 1, mine[i])
			return
		}
		data, err := x.TakeClaim(t.Context(), runID, 1, []byte(mine[i]))
		if err != nil {
			t.Error(err)
		}
		got[i] = string(data)
	})
	won := 0
	for i := range takers {
		if got[i] == mine[i] {
			won++
		}
		if got[i] != got[0] {
			t.Errorf("taker %d read %q, taker 0 %q", i, got[i], got[0])
		}
	}
	if won != 1 {
		t.Errorf("%d takers won", won)
	}
	x.has(t, "a1/ctl/claim", got[0])
}

// A missing attempt has no claim, and an entry that is not a claim is an error.
func claimMissing(t *testing.T, x *Files) {
	x.opened(t)
	_, err := x.TakeClaim(t.Context(), runID, 2, run.VoidClaim(token))
	wantFault(t, err, fault.NotFound, "attempt_missing")
	x.hasNot(t, "a2/ctl/claim")
	x.Leave(t, runID, "a1/ctl/claim", Entry{Kind: Symlink})
	_, err = x.TakeClaim(t.Context(), runID, 1, run.VoidClaim(token))
	wantFault(t, err, fault.Conflict, "workspace_foreign_entry")
}
