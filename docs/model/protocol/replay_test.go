package protocol

import (
	"strings"
	"testing"
	"time"
)

// at returns a time of the records below: so many seconds after they began.
func at(seconds float64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// history returns one event a second.
func history(lines ...string) (list []Event) {
	for i, line := range lines {
		typ, ending, _ := strings.Cut(line, " ")
		list = append(list, Event{At: at(float64(i)), Type: typ, Ending: ending})
	}
	return list
}

func plain() Record {
	return Record{N: 1, Events: history("run.created", "run.intent", "run.receipt", "run.running", "run.collecting", "run.succeeded ok"),
		Sends: []time.Time{at(1.5)}, Executions: []time.Time{at(2.5)}, Holder: true, Exit: true, Jobs: 1}
}

// absent is an attempt whose sbatch left no receipt, and whose claim the gateway took.
func absentRecord() Record {
	return Record{N: 1, Events: history("run.created", "run.intent", "run.unconfirmed", "run.new_attempt absent"), Sends: []time.Time{at(1.5)},
		Void: true}
}

func with(r Record, change func(*Record)) Record {
	change(&r)
	return r
}

// Records of real runs are paths of the model.
func TestReplay(t *testing.T) {
	refused := with(plain(), func(r *Record) {
		r.Events = history("run.created", "run.waits", "run.intent", "run.deferred", "run.intent", "run.deferred", "run.intent", "run.deferred",
			"run.intent", "run.deferred", "run.intent", "run.pending", "run.succeeded ok")
		r.Sends = []time.Time{at(2.5), at(4.5), at(6.5), at(8.5), at(10.5)}
		r.Executions = nil
	})
	for name, r := range map[string]Record{
		"plain":    plain(),
		"refused":  refused,
		"rejected": {Events: history("run.created", "run.intent", "run.failed rejected"), Sends: []time.Time{at(1.5)}},
		"refused in a site's words": {Events: history("run.created", "run.intent", "run.unconfirmed", "run.failed rejected"),
			Sends: []time.Time{at(1.5)}, Void: true},
		"absent":                        absentRecord(),
		"absent, and the job came late": with(absentRecord(), func(r *Record) { r.Jobs = 1 }),
		"adopted": with(plain(), func(r *Record) {
			r.Events = history("run.created", "run.intent", "run.unconfirmed", "run.adopted", "run.collecting", "run.succeeded ok")
		}),
		"submitted twice": with(plain(), func(r *Record) { r.Jobs = 2 }),
		"the receipt is read in a later life": with(plain(), func(r *Record) {
			r.Events = history("run.created", "run.intent", "run.unconfirmed", "run.receipt", "run.running", "run.succeeded ok")
		}),
		"requeued": with(plain(), func(r *Record) { r.Restart = 1 }),
		"lost":     with(plain(), func(r *Record) { r.Events[5].Ending, r.Exit = "lost", false }),
		"cancelled while it ran": with(plain(), func(r *Record) {
			r.Events = history("run.created", "run.intent", "run.receipt", "run.running", "run.cancel_asked", "run.cancelled cancelled")
		}),
		"cancelled before it ran": {Events: history("run.created", "run.intent", "run.receipt", "run.cancel_asked", "run.cancelled cancelled"),
			Sends: []time.Time{at(1.5)}, Void: true, Jobs: 1},
		"another ledger's": {Foreign: true, Events: []Event{{At: at(0), Type: "run.created"}, {At: at(1), Type: "run.blocked", Ahead: true},
			{At: at(2), Type: "run.cancel_asked"}, {At: at(3), Type: "run.cancelled", Ending: "cancelled"}}},
	} {
		if err := Replay(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A changed record, or one of a program that breaks the protocol, is refused at the first thing that does not fit.
func TestReplayRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		r    Record
		says string
	}{
		"two executions": {with(plain(), func(r *Record) { r.Executions = append(r.Executions, at(3.5)) }), "it was executed 2 times"},
		"the next attempt without the claim of this one": {with(absentRecord(), func(r *Record) { r.Void = false }),
			"run.new_attempt absent (event 4)"},
		"the next attempt while a job has the claim of this one": {with(absentRecord(), func(r *Record) {
			r.Void, r.Holder, r.Jobs = false, true, 1
		}),
			"run.new_attempt absent (event 4)"},
		"a send before its intent": {with(plain(), func(r *Record) { r.Sends[0] = at(0.5) }),
			"the files of send 1 are older than run.intent (event 2)"},
		"a send without an intent": {with(plain(), func(r *Record) { r.Sends = append(r.Sends, at(4.5)) }), "the files of send 2"},
		"a receipt before its intent": {with(plain(), func(r *Record) {
			r.Events = history("run.created", "run.receipt", "run.intent", "run.running", "run.collecting", "run.succeeded ok")
		}), "run.receipt (event 2)"},
		"a void and an execution": {with(absentRecord(), func(r *Record) { r.Executions = []time.Time{at(2.5)} }),
			"it was executed before run.new_attempt"},
		"a late execution of a void": {with(absentRecord(), func(r *Record) { r.Executions = []time.Time{at(9)} }), "it was executed 1 times"},
		"a second intent while the first send may have been accepted": {with(plain(), func(r *Record) {
			r.Events = history("run.created", "run.intent", "run.unconfirmed", "run.intent", "run.receipt", "run.succeeded ok")
		}), "run.intent (event 4)"},
		"a success without an exit file": {with(plain(), func(r *Record) { r.Exit = false }), "run.succeeded ok"},
		"a job that nobody sent": {Record{Events: history("run.created", "run.cancel_asked", "run.cancelled cancelled"), Jobs: 1},
			"accounting has 1 jobs"},
		"an end without a claim": {Record{Events: history("run.created", "run.intent", "run.receipt", "run.cancel_asked",
			"run.cancelled cancelled"), Sends: []time.Time{at(1.5)}, Jobs: 1}, "run.cancelled cancelled (event 5)"},
		"retried before its end": {with(plain(), func(r *Record) { r.Events[4] = Event{At: at(4), Type: "run.retry"} }), "run.retry (event 5)"},
	} {
		err := Replay(c.r)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
}
