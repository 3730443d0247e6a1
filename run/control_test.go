package run

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

const (
	tok = "0123456789abcdef0123456789abcdef"
	sha = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

var us = Holder{Job: "12", Task: "-"}

func TestParseClaim(t *testing.T) {
	for data, want := range map[string]*Claim{
		"slurmgate-claim 1 job=12 task=- restart=0 token=" + tok + " node=n1\n": {Holder: us, Token: tok, Node: "n1"},
		"slurmgate-claim 1 job=12 task=3 restart=2 token=" + tok + " node=\n":   {Holder: Holder{"12_3", "3", 2}, Token: tok},
		string(VoidClaim(tok)): {Void: true, Token: tok},
		"":                     nil,
		"\n":                   nil,
		"slurmgate-claim 1 job=12 task=- restart=0 token=" + tok:                      nil, // cut off
		"slurmgate-claim 2 job=12 task=- restart=0 token=" + tok + "\n":               nil,
		"slurmgate-exit 1 job=12 task=- restart=0 token=" + tok + "\n":                nil,
		"slurmgate-claim 1 job=12 task=- restart=0\n":                                 nil,
		"slurmgate-claim 1 job=12 restart=0 token=" + tok + "\n":                      nil,
		"slurmgate-claim 1 task=- restart=0 token=" + tok + "\n":                      nil,
		"slurmgate-claim 1 job=12 task=- restart=-1 token=" + tok + "\n":              nil,
		"slurmgate-claim 1 job=12 task=- restart=x token=" + tok + "\n":               nil,
		"slurmgate-claim 1 job=12 job=13 task=- restart=0 token=" + tok + "\n":        nil,
		"slurmgate-claim 1 job=12 task=- restart=0 token=" + tok + "  node=n1\n":      nil,
		"slurmgate-claim 1 job=12 task=- restart=0 token=" + tok + " node=n\x1b[2J\n": nil,
		"slurmgate-claim 1 job=12 task=- restart=0 token=" + tok + " node=\xff\n":     nil,
		"slurmgate-claim 1 job=12 task=- restart=0 token=" + tok + " node=n1 void\n":  nil,
		"slurmgate-claim 1 void\n":                                                    nil,
		"slurmgate-claim 1 job=12 task=- restart=0 token=" + tok + " node=n1\r\n":     nil,
		strings.Repeat("x", 1<<20):                                                    nil,
	} {
		got, err := ParseClaim([]byte(data))
		check(t, data, got, err, want)
	}
}

func TestParseExit(t *testing.T) {
	const head = "slurmgate-exit 1 job=12 task=- restart=0 "
	for data, want := range map[string]*Exit{
		head + "code=0 reason=ok elapsed=12.50 user=3.1 sys=0.2 maxrss=2048 node=n1\n": {Holder: us, Reason: "ok", Elapsed: 12.5, User: 3.1,
			Sys: 0.2, MaxRSS: 2048, Node: "n1", OOM: -1},
		head + "code=255 reason=tool_failed\n":                        {Holder: us, Code: 255, Reason: "tool_failed", OOM: -1},
		head + "code=1 reason=x elapsed=much\n":                       {Holder: us, Code: 1, Reason: "x", OOM: -1},
		head + "code=0 reason=ok oom=0\n":                             {Holder: us, Reason: "ok"},
		head + "code=0 reason=ok oom=2\n":                             {Holder: us, Reason: "ok", OOM: 2},
		head + "code=0 reason=ok oom=-2\n":                            {Holder: us, Reason: "ok", OOM: -1},
		head + "code=0 reason=ok oom=\n":                              {Holder: us, Reason: "ok", OOM: -1},
		head + "code=0 reason=tool_failed\n":                          nil,
		head + "code=3 reason=ok\n":                                   nil,
		head + "code=256 reason=x\n":                                  nil,
		head + "code=-1 reason=x\n":                                   nil,
		head + "code= reason=x\n":                                     nil,
		head + "code=1\n":                                             nil,
		head + "code=1 reason=\n":                                     nil,
		head + "code=1 reason=x":                                      nil,
		head + "code=1 reason=x node=\xff\n":                          nil,
		"slurmgate-exit 1 code=1 reason=x\n":                          nil,
		"slurmgate-claim 1 job=12 task=- restart=0 code=1 reason=x\n": nil,
	} {
		got, err := ParseExit([]byte(data))
		check(t, data, got, err, want)
	}
}

func TestParseManifest(t *testing.T) {
	const head = "slurmgate-manifest 1 job=12 task=- restart=0\n"
	for data, want := range map[string]*Manifest{
		head + "end\n": {Holder: us},
		head + "file " + sha + " 0 out/a b\nmissing out/b\nirregular out/c/d\nend\n": {us, []ManifestEntry{{"file", sha, 0, "out/a b", nil},
			{"missing", "", 0, "out/b", nil}, {"irregular", "", 0, "out/c/d", nil}}},
		head + "oversize 10995116277760 out/a b\nend\n": {us, []ManifestEntry{{"oversize", "", 10 << 40, "out/a b", nil}}},
		head + "oversize " + sha + " 1 out/a\nend\n":    nil,
		head + "oversize -1 out/a\nend\n":               nil,
		head + "oversize out/a\nend\n":                  nil,
		head + "oversize 1 out/a\nmissing out/a\nend\n": nil,
		"":                                       nil,
		head:                                     nil,
		head + "file " + sha + " 1 out/a\n":      nil,
		head + "end\nfile " + sha + " 1 out/a\n": nil,
		head + "end\nend\n":                      nil,
		head + "\nend\n":                         nil,
		head + "file " + sha + " -1 out/a\nend\n":                     nil,
		head + "file " + sha + " 99999999999999999999 out/a\nend\n":   nil,
		head + "file " + sha[1:] + " 1 out/a\nend\n":                  nil,
		head + "file " + sha + " 1\nend\n":                            nil,
		head + "file " + sha + " 1 in/a\nend\n":                       nil,
		head + "file " + sha + " 1 out/../a\nend\n":                   nil,
		head + "missing /etc/passwd\nend\n":                           nil,
		head + "missing out/a\nmissing out/a\nend\n":                  nil,
		head + "missing out/a\nfile " + sha + " 1 out/a\nend\n":       nil,
		head + "socket out/a\nend\n":                                  nil,
		head + "missing out/" + strings.Repeat("x", 5000) + "\nend\n": nil,
		"slurmgate-manifest 1 job=12 task=-\nend\n":                   nil,
	} {
		got, err := ParseManifest([]byte(data))
		check(t, data, got, err, want)
	}
}

func check[T any](t *testing.T, data string, got T, err error, want *T) {
	t.Helper()
	if want == nil {
		if !fault.Is(err, fault.Validation) || fault.CodeOf(err) != "CTL-FORMAT" || !reflect.ValueOf(got).IsZero() {
			t.Errorf("%.100q is read as %+v %v, want CTL-FORMAT and nothing read", data, got, err)
		}
		return
	}
	if d := cmp.Diff(*want, got); d != "" || err != nil {
		t.Errorf("%.100q: %s %v", data, d, err)
	}
}

// What is read from a control file is bounded and valid, whatever the file holds.
func FuzzControl(f *testing.F) {
	f.Add([]byte("slurmgate-claim 1 job=12 task=- restart=0 token=" + tok + " node=n1\n"))
	f.Add(VoidClaim(tok))
	f.Add([]byte("slurmgate-exit 1 job=12 task=- restart=0 code=0 reason=ok elapsed=1e999 user=NaN sys=-1 maxrss=x node=n1\n"))
	f.Add([]byte("slurmgate-manifest 1 job=12 task=- restart=0\nfile " + sha + " 7 out/a\nmissing out/b\noversize 8 out/c\nend\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := ParseClaim(data); err == nil && (c.Token == "" || !c.Void && c.Holder.Job == "") {
			t.Errorf("the claim %+v has no token, or neither a holder nor an end", c)
		}
		if x, err := ParseExit(data); err == nil {
			if x.Code < 0 || x.Code > 255 || x.Reason == "" || x.Holder.Job == "" || strings.ContainsAny(x.Node, "\n\x1b") {
				t.Errorf("the exit %+v is out of bounds", x)
			}
			usage(x) // never panics, whatever the numbers
		}
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, e := range m.Entries {
			if plan.CheckRelPath(e.Relpath, "out") != "" || seen[e.Relpath] || e.Size < 0 || (e.Kind == "file") != plan.IsSHA256(e.SHA256) {
				t.Errorf("the entry %+v is outside out, twice, or has a digest that its kind does not have", e)
			}
			seen[e.Relpath] = true
		}
	})
}

// Every phase has its state, and the names of jobs contain the key.
func TestNames(t *testing.T) {
	for p, s := range map[Phase]State{Staging: Queued, Deferred: Queued, Submitting: Queued, Unconfirmed: Queued, Pending: Queued,
		InJob: Running, Completing: Running, Collecting: Running,
		NeedsOperator: Blocked, AheadOfLedger: Blocked, OutputsLate: Blocked, Done: ""} {
		if StateOf(p) != s || s.Terminal() {
			t.Errorf("the phase %s belongs to the state %q, want %q, which is not terminal", p, StateOf(p), s)
		}
	}
	if got := JobName("run_0X8Z4D1X467KV94K4TXG0D9BXT", 2, tok); got != "sg-run_0X8Z4D1X467KV94K4TXG0D9BXT-a2-0123456789ab" {
		t.Errorf("the job's name is %s, want it made of run, attempt and 12 digits of the token", got)
	}
	if SendFile(3, "out") != "send.3.out" {
		t.Errorf("the file of the third send is %s, want send.3.out", SendFile(3, "out"))
	}
	for _, e := range []Ending{EndedOK, EndedToolFailed, EndedTimeLimit, EndedOutOfMemory, EndedOutputs, EndedContract, EndedImageMismatch,
		EndedInputMismatch, EndedInputMissing, EndedNotStarted, EndedRunsDirFull, EndedRejected, EndedStaging, EndedCancelled} {
		if e.Infrastructure() || e.NodeFault() {
			t.Errorf("%s would be tried again", e)
		}
	}
	for _, e := range append(NodeFaults, EndedPreempted, EndedLost, EndedAbsent) {
		if !e.Infrastructure() {
			t.Errorf("%s would not be tried again", e)
		}
	}
}
