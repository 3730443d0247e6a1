package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/docs/model/protocol"
	"slurmgate/ledger"
	"slurmgate/run"
)

// left writes a run of two attempts to the disk and returns its records: the gateway voided the first, a job executed
// the second.
func left(t *testing.T, s *site, change func(ctl string)) []protocol.Record {
	t.Helper()
	began := time.Now().Add(-time.Minute)
	var events []ledger.Entry
	for i, line := range []string{`run.created {}`, `run.intent {"attempt":1}`, `run.unconfirmed {}`,
		`run.new_attempt {"after":"absent","attempt":2}`, `run.intent {"attempt":2}`, `run.receipt {}`, `run.running {}`, `run.succeeded {"attempt":2,"ending":"ok"}`} {
		typ, data, _ := strings.Cut(line, " ")
		events = append(events, ledger.Entry{At: began.Add(time.Duration(i) * time.Second), Type: typ, Data: json.RawMessage(data)})
	}
	dir := s.path(s.runs() + "/run_x")
	token := strings.Repeat("ab", 16)
	for name, text := range map[string]string{
		"a1/ctl/token": token, "a1/ctl/send.1.err": "", "a1/ctl/claim": string(run.VoidClaim(token)),
		"a2/ctl/token": token, "a2/ctl/send.1.err": "", "a2/ctl/claim": "slurmgate-claim 1 job=7 task=- restart=0 token=" + token + " node=n1\n",
		"a2/ctl/exit":   "slurmgate-exit 1 job=7 task=- restart=0 code=0 reason=ok node=n1\n",
		"a2/out/record": "s1-c1 ABC " + began.Add(5500*time.Millisecond).UTC().Format(time.RFC3339Nano) + "\n",
	} {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	touch(t, dir+"/a1/ctl/send.1.err", began.Add(1500*time.Millisecond))
	touch(t, dir+"/a2/ctl/send.1.err", began.Add(4500*time.Millisecond))
	change(dir)
	records, err := history(events)
	must(t, err)
	for i := range records {
		a := attempt{n: i + 1, token: token}
		must(t, s.leftBy(&a, "run_x"))
		must(t, s.folder(&records[i], "run_x", a, nil))
	}
	return records
}

func touch(t *testing.T, name string, at time.Time) {
	t.Helper()
	must(t, os.Chtimes(name, at, at))
}

// The files on the disk after a case are a path of the model, and no longer after a change.
func TestReplayOfFiles(t *testing.T) {
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for name, c := range map[string]struct {
		change func(dir string)
		says   string // empty: it fits
	}{
		"as it was": {func(string) {}, ""},
		"two executions": {func(dir string) { write(dir+"/a2/out/record", "s1-c1 ABC "+now+"\ns1-c1 DEF "+now+"\n") },
			"attempt 2: it was executed 2 times"},
		"the second attempt without the claim of the first": {func(dir string) { os.Remove(dir + "/a1/ctl/claim") },
			"attempt 1: run.new_attempt absent"},
		"a send before its intent": {func(dir string) { touch(t, dir+"/a2/ctl/send.1.err", time.Now().Add(-time.Hour)) },
			"attempt 2: the files of send 1 are older than run.created"},
		"a void and an execution": {func(dir string) {
			os.Mkdir(dir+"/a1/out", 0o700)
			write(dir+"/a1/out/record", "s1-c1 ABC "+now+"\n")
		}, "attempt 1: it was executed 1 times"},
		"the folder of another": {func(dir string) { write(dir+"/a1/ctl/token", strings.Repeat("cd", 16)) }, "attempt 1: run.intent"},
	} {
		s := &site{ground: &ground{cluster: &cluster{share: t.TempDir()}}, shared: sharedDir + "/w0"}
		var err error
		for _, r := range left(t, s, c.change) {
			if err == nil {
				err = protocol.Replay(r)
			}
		}
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
}

// The time of a file on a filesystem with whole seconds is no proof that it is older than an event of the same second.
func TestWholeSeconds(t *testing.T) {
	second := time.Unix(1000, 0)
	if event := second.Add(900 * time.Millisecond); atLatest(second).Before(event) {
		t.Error("older than an event of its second")
	}
	if event := second.Add(time.Second); !atLatest(second).Before(event) {
		t.Error("not older than an event of the next second")
	}
	if exact := second.Add(1); !atLatest(exact).Equal(exact) {
		t.Error("a time with nanoseconds is exact")
	}
}
