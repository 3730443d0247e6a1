package app

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// sharers are callers who share the project demo: alice, bob and carol, and op, who may operate on it. ci is a token
// of alice's.
type sharers struct{ alice, bob, carol, op, ci gate.Caller }

func sharersOf(g *Gateway) sharers {
	project := plan.ProjectID("demo")
	who := func(name, id, user string, more ...string) gate.Caller {
		rights := gate.RightsOf(append([]string{gate.CapGateway, gate.CapRead, gate.CapImport, gate.CapSlurm}, more...), []string{project})
		return gate.Caller{Transport: gate.Local, Principal: gate.Principal{ID: id, Name: name, Method: gate.ByPeer,
			Rights: rights, UnixUser: user}}
	}
	g.Person = func(_ context.Context, p gate.Principal) (string, error) { return personOf[p.UnixUser], nil }
	ci := who("token:ci", "prn_C", "alice")
	ci.Method, ci.UserProject = gate.ByToken, plan.UserProjectID("alice", 1)
	ci.Rights = append(ci.Rights, gate.Grant{Capabilities: []string{gate.CapRead}, Projects: []string{ci.UserProject}})
	return sharers{who("user:alice", "prn_A", "alice"), who("user:bob", "prn_B", "bob"), who("user:carol", "prn_E", "carol"),
		who("user:op", "prn_O", "op", gate.CapOperate), ci}
}

// askedFor has callers ask for the same run of a.one, and returns its id.
func (g *Gateway) askedFor(t *testing.T, artifact string, callers ...gate.Caller) (runID string) {
	t.Helper()
	for _, who := range callers {
		var a run.SubmitAnswer
		g.says(t, who, "a.one", map[string]any{"x": artifact}, "", &a)
		if runID != "" && a.RunID != runID {
			t.Fatalf("%s is answered with %s, want %s", who.Name, a.RunID, runID)
		}
		runID = a.RunID
	}
	return runID
}

// cancelled reports whether the end of a run was requested.
func (g *Gateway) cancelled(t *testing.T, runID string) bool {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), runID)
	must(t, err)
	return v.Run.CancelAt != nil || v.Run.State == run.Cancelled
}

// A cancel withdraws what its caller asked for; the run ends with the last caller that wants it. A caller that did
// not ask gets the names of those who did, one who may operate ends it for all, and the history records who it was.
//
// proves OPS-04
func TestCancelTakesBackOnesOwn(t *testing.T) {
	g := chainGateway(t)
	s, reads := sharersOf(g), g.reads(t, 3)
	id := g.askedFor(t, reads[0], s.alice, s.bob)
	cancel := func(who gate.Caller, args map[string]any, code string) (out CancelAnswer) {
		t.Helper()
		g.says(t, who, "slurm.job.cancel", args, code, &out)
		return out
	}
	of := map[string]any{"run_id": id}
	res := g.says(t, s.carol, "slurm.job.cancel", of, "not_your_run", nil)
	for _, want := range []string{"user:alice, user:bob", "make the request for it yourself"} {
		if !strings.Contains(res.Error.Message, want) {
			t.Errorf("carol is told %q, want %q in it", res.Error.Message, want)
		}
	}
	cancel(s.alice, map[string]any{"run_id": id, "for_all": true}, "capability_denied")

	var dry struct{ Would CancelPreview }
	req := gate.NewRequest("slurm.job.cancel", BuiltinVersion, json.RawMessage(`{"run_id":"`+id+`"}`))
	req.DryRun = true
	err := json.Unmarshal(g.Gate.Call(t.Context(), s.alice, req).Result, &dry)
	if p := dry.Would; err != nil || p.Ends || p.ToolID != "a.one" || !slices.Equal(p.Askers, []string{"user:alice", "user:bob"}) ||
		!strings.Contains(p.Message, "continues for user:bob") {
		t.Errorf("a dry run of alice's cancel says %+v, %v", p, err)
	}
	for range 2 {
		out := cancel(s.alice, of, "")
		if !out.Withdrawn || !slices.Equal(out.Askers, []string{"user:bob"}) || out.ToolID != "a.one" || g.cancelled(t, id) ||
			!strings.Contains(out.Message, "continues for user:bob") {
			t.Fatalf("alice's cancel of what bob asked for too answers %+v; cancelled: %t", out, g.cancelled(t, id))
		}
	}
	if out := cancel(s.bob, of, ""); out.Withdrawn || !g.cancelled(t, id) {
		t.Errorf("bob's cancel, the last one, answers %+v; cancelled: %t", out, g.cancelled(t, id))
	}

	id = g.askedFor(t, reads[1], s.alice, s.bob)
	if out := cancel(s.op, map[string]any{"run_id": id}, ""); out.Withdrawn || !g.cancelled(t, id) {
		t.Errorf("the cancel of an operator who did not ask answers %+v", out)
	}
	events, err := g.Ledger.Events(t.Context(), id)
	must(t, err)
	i := slices.IndexFunc(events, func(e ledger.Entry) bool { return e.Type == "run.cancel_asked" })
	if i < 0 || !strings.Contains(string(events[i].Data), `"for_all":true`) || !strings.Contains(string(events[i].Data), "prn_O") {
		t.Errorf("the history has %v, want a cancel for all by prn_O", events)
	}
	id = g.askedFor(t, reads[2], s.alice, s.op)
	if out := cancel(s.op, map[string]any{"run_id": id}, ""); !out.Withdrawn || g.cancelled(t, id) {
		t.Errorf("the cancel of an operator who asked too answers %+v, want its own asking taken back", out)
	}
	if cancel(s.op, map[string]any{"run_id": id, "for_all": true}, ""); !g.cancelled(t, id) {
		t.Error("a cancel for all leaves the run going")
	}
}

// An operator withdraws for one principal, and the others' run continues. An operator in a chat, which acts on ids
// that a model has read, is shown the tool and the askers of a run and must confirm to act for all. After a caller's
// withdrawal the run is no longer the caller's.
func TestCancelForOthers(t *testing.T) {
	g := chainGateway(t)
	s := sharersOf(g)
	id := g.askedFor(t, g.reads(t, 1)[0], s.alice, s.bob)
	cancel := func(who gate.Caller, code string, more map[string]any) (out CancelAnswer, said string) {
		t.Helper()
		args := map[string]any{"run_id": id}
		maps.Copy(args, more)
		if res := g.says(t, who, "slurm.job.cancel", args, code, &out); res.Error != nil {
			said = res.Error.Message
		}
		return out, said
	}
	lists := func(who gate.Caller, want bool) {
		t.Helper()
		var l RunList
		g.says(t, who, "run.list", map[string]any{"principal": "me"}, "", &l)
		if got := slices.ContainsFunc(l.Runs, func(r RunRow) bool { return r.RunID == id }); got != want {
			t.Errorf("the list of %s's runs has the run: %t, want %t", who.Name, got, want)
		}
	}
	cancel(s.alice, "capability_denied", map[string]any{"for_principal": "bob"})
	cancel(s.op, "not_asked", map[string]any{"for_principal": "carol"})
	lists(s.bob, true)
	out, _ := cancel(s.op, "", map[string]any{"for_principal": "bob"})
	if want := "withdrawn: user:bob no longer asks for this run, and it continues for user:alice"; out.Message != want || g.cancelled(t, id) {
		t.Errorf("a cancel for bob answers %q (cancelled: %t), want %q", out.Message, g.cancelled(t, id), want)
	}
	lists(s.bob, false)
	lists(s.alice, true)

	chat := s.op
	chat.Transport = gate.MCP
	if _, said := cancel(chat, "for_others", nil); !strings.Contains(said, "of a.one, was asked for by user:alice") {
		t.Errorf("an operator's chat is told %q, want the tool and who asked", said)
	}
	if out, _ := cancel(chat, "", map[string]any{"for_all": true}); out.Withdrawn || !g.cancelled(t, id) {
		t.Errorf("the cancel for all of an operator's chat answers %+v", out)
	}
	lists(s.alice, true)
	lists(s.bob, true)
}

// What a person asks for with several credentials counts as that person's: a token that stands for a user cancels
// what the user asked for.
func TestAskingsOfOnePerson(t *testing.T) {
	g := chainGateway(t)
	s := sharersOf(g)
	id := g.askedFor(t, g.reads(t, 1)[0], s.alice)
	s.ci.UserProject = "" // like a token for the shared project only: it counts as a principal apart
	g.says(t, s.ci, "slurm.job.cancel", map[string]any{"run_id": id}, "not_your_run", nil)
	s.ci.UserProject = plan.UserProjectID("alice", 1)
	var out CancelAnswer
	if g.says(t, s.ci, "slurm.job.cancel", map[string]any{"run_id": id}, "", &out); out.Withdrawn || !g.cancelled(t, id) {
		t.Errorf("the cancel by a token of alice's answers %+v", out)
	}
}

// Those who asked for a run may retry it, and callers who may operate on the project may do so for them. A retry asks
// for the run again.
func TestRetryIsForAskers(t *testing.T) {
	g := chainGateway(t)
	s := sharersOf(g)
	id := g.askedFor(t, g.reads(t, 1)[0], s.alice, s.bob)
	retry := func(who gate.Caller, after int, code string) {
		t.Helper()
		g.says(t, who, "slurm.job.retry", map[string]any{"run_id": id, "after_attempt": after}, code, nil)
	}
	g.says(t, s.alice, "slurm.job.cancel", map[string]any{"run_id": id}, "", nil)
	g.says(t, s.bob, "slurm.job.cancel", map[string]any{"run_id": id}, "", nil)
	g.endRun(t, id)
	retry(s.carol, 1, "not_your_run")
	retry(s.alice, 1, "")
	var out CancelAnswer
	if g.says(t, s.bob, "slurm.job.cancel", map[string]any{"run_id": id}, "", &out); !out.Withdrawn ||
		!slices.Equal(out.Askers, []string{"user:alice"}) {
		t.Errorf("bob's cancel after alice's retry answers %+v, want that it goes on for alice alone", out)
	}
	g.isOver(t, id, run.Failed)
	retry(s.op, 2, "")
	events, err := g.Ledger.Events(t.Context(), id)
	if err != nil || !slices.ContainsFunc(events, func(e ledger.Entry) bool {
		return e.Type == "run.new_attempt" && strings.Contains(string(e.Data), "user:op") || e.Type == "run.retry" &&
			strings.Contains(string(e.Data), `"for_askers_by":"user:op"`)
	}) {
		t.Errorf("the history does not say that user:op had it repeated: %v, %v", events, err)
	}
	list, err := g.Ledger.Askings(t.Context(), id)
	if err != nil || slices.ContainsFunc(list, func(a run.Asker) bool { return a.Name == "user:op" }) {
		t.Errorf("askings = %v, %v; want none of the operator's", list, err)
	}
}

// endRun ends a run unless it has ended.
func (g *Gateway) endRun(t *testing.T, id string) {
	t.Helper()
	if v, err := g.Ledger.View(t.Context(), id); err != nil {
		t.Fatal(err)
	} else if !v.Run.State.Terminal() {
		g.isOver(t, id, run.Cancelled)
	}
}

// A batch's asking is separate: a caller who asked both singly and by a batch keeps the run when the batch is
// cancelled, and another batch keeps it too. A batch that two asked for continues for the other.
func TestBatchAskings(t *testing.T) {
	g := chainGateway(t)
	s, reads := sharersOf(g), g.reads(t, 3)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	batch := func(who gate.Caller, name string) {
		t.Helper()
		g.says(t, who, "batch.run", map[string]any{"tool_id": "a.one", "name": name, "sheet": strings.Replace(sheetOf(reads), "reads", "x", 1)},
			"", nil)
		g.settle(t)
	}
	cancel := func(who gate.Caller, name, code string) (out BatchChanged) {
		t.Helper()
		g.says(t, who, "batch.cancel", map[string]any{"batch": name}, code, &out)
		g.settle(t)
		return out
	}
	going := func() (n int) {
		for _, id := range g.runIDs(t) {
			if !g.cancelled(t, id) {
				n++
			}
		}
		return n
	}
	single := g.askedFor(t, reads[0], s.alice)
	batch(s.alice, "one")
	batch(s.alice, "two")
	cancel(s.carol, "one", "not_your_batch")
	if out := cancel(s.alice, "one", ""); going() != 3 || !strings.Contains(out.Message, "those of 3 rows go on") {
		t.Errorf("%d of 3 runs go on after one of two batches was cancelled: %s", going(), out.Message)
	}
	if cancel(s.alice, "two", ""); going() != 1 || g.cancelled(t, single) {
		t.Errorf("%d runs go on after both were cancelled, want the one that was asked for singly", going())
	}
	var out CancelAnswer
	if g.says(t, s.alice, "slurm.job.cancel", map[string]any{"run_id": single}, "", &out); out.Withdrawn || going() != 0 {
		t.Errorf("the cancel of the run itself answers %+v", out)
	}

	for _, id := range g.runIDs(t) {
		g.endRun(t, id)
	}
	reads = g.reads(t, 6)[3:]
	batch(s.alice, "three")
	batch(s.bob, "three")
	first := cancel(s.alice, "three", "")
	if going() != 3 || !strings.Contains(first.Message, "continues for user:bob") {
		t.Errorf("%d of 3 runs go on after one of two left the batch: %s", going(), first.Message)
	}
	if b, err := g.Ledger.BatchNamed(t.Context(), nil, "three"); err != nil || b.Principal.Name != "user:bob" {
		t.Errorf("the rows are submitted for %+v, %v; want user:bob", b.Principal, err)
	}
	if cancel(s.bob, "three", ""); going() != 0 {
		t.Errorf("%d runs go on after the last one left the batch", going())
	}
}

// A waiting run continues for the others who asked for it, with the rights of one of them, and the run that it
// becomes has its askings.
func TestAskingsOfWaitingRuns(t *testing.T) {
	g := chainGateway(t)
	s, reads := sharersOf(g), g.reads(t, 2)
	source := g.askedFor(t, reads[0], s.carol)
	waits := func(who gate.Caller, of string) string {
		t.Helper()
		var a run.SubmitAnswer
		g.says(t, who, "b.two", map[string]any{"x": of + ":out"}, "", &a)
		return a.RunID
	}
	id := waits(s.alice, source)
	waits(s.bob, source)
	g.says(t, s.carol, "slurm.job.cancel", map[string]any{"run_id": id}, "not_your_run", nil)
	var out CancelAnswer
	if g.says(t, s.alice, "slurm.job.cancel", map[string]any{"run_id": id}, "", &out); !out.Withdrawn || out.State != run.Queued {
		t.Errorf("alice's cancel answers %+v", out)
	}
	v := g.waiting(t, id)
	if w := v.Waiting; !v.Waits() || w.Principal.Name != "user:bob" || !strings.Contains(string(w.Caller), "prn_B") {
		t.Fatalf("the run waits as %s for %+v with the rights of %s; want bob's", v.Run.State, w.Principal, w.Caller)
	}
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.isOver(t, source, run.Succeeded)
	g.loop.wakeUp()
	became := g.became(t, id)
	list, err := g.Ledger.Askings(t.Context(), became)
	if held, _ := run.NamesOf(slices.DeleteFunc(list, func(a run.Asker) bool { return a.WithdrawnAt != nil })); err != nil ||
		!slices.Equal(held, []string{"user:bob"}) {
		t.Errorf("the run that it became is asked for by %v, %v; want user:bob alone", held, err)
	}
	other := g.askedFor(t, reads[1], s.carol)
	last := waits(s.alice, other)
	if g.says(t, s.alice, "slurm.job.cancel", map[string]any{"run_id": last}, "", &out); out.State != run.Cancelled {
		t.Errorf("the cancel by the only one who asks answers %+v", out)
	}
}

// Bytes that several imported, and the outputs of a run that several asked for, are removed with the last withdrawal;
// callers who may operate remove them for all.
func TestRemovalTakesBackOnesOwn(t *testing.T) {
	g := chainGateway(t)
	s := sharersOf(g)
	imported := func(text string, callers ...gate.Caller) (id string) {
		t.Helper()
		for _, who := range callers {
			var a ImportAnswer
			g.says(t, who, "artifact.import", map[string]any{"text": text, "label": "x"}, "", &a)
			id = a.ArtifactID
		}
		return id
	}
	remove := func(who gate.Caller, tool, id, code string, more ...string) (out RemovalAnswer) {
		t.Helper()
		args := map[string]any{"reason": "done"}
		args[map[string]string{"artifact.remove": "artifact_ids", "run.remove": "run_ids"}[tool]] = []string{id}
		for _, m := range more {
			args[m] = true
		}
		g.says(t, who, tool, args, code, &out)
		return out
	}
	there := func(id string) bool {
		_, err := g.Ledger.Artifact(t.Context(), id)
		return err == nil
	}
	id := imported("shared bytes\n", s.alice, s.bob)
	remove(s.carol, "artifact.remove", id, "not_your_artifact")
	remove(s.alice, "artifact.remove", id, "capability_denied", "for_all")
	reader := s.alice
	reader.Rights = gate.RightsOf([]string{gate.CapGateway, gate.CapRead}, []string{plan.ProjectID("demo")})
	remove(reader, "artifact.remove", id, "capability_denied")
	if out := remove(s.alice, "artifact.remove", id, ""); !there(id) || len(out.Withdrawn) != 1 || out.ID != "" ||
		!slices.Equal(out.Withdrawn[0].Askers, []string{"user:bob"}) {
		t.Errorf("alice's removal of what bob imported too answers %+v", out)
	}
	if out := remove(s.bob, "artifact.remove", id, ""); there(id) || len(out.Artifacts) != 1 {
		t.Errorf("bob's removal, the last one, answers %+v", out)
	}
	id = imported("other bytes\n", s.alice, s.bob)
	if out := remove(s.op, "artifact.remove", id, ""); there(id) || len(out.Artifacts) != 1 {
		t.Errorf("the removal by an operator answers %+v", out)
	}

	runID := g.askedFor(t, g.reads(t, 1)[0], s.alice, s.bob)
	made := g.isOver(t, runID, run.Succeeded)
	remove(s.carol, "artifact.remove", made, "not_your_artifact")
	if out := remove(s.alice, "artifact.remove", made, ""); !there(made) || len(out.Withdrawn) != 1 {
		t.Errorf("alice's removal of an output that bob's request made too answers %+v", out)
	}
	remove(s.carol, "run.remove", runID, "not_your_run")
	if out := remove(s.alice, "run.remove", runID, ""); !there(made) || len(out.Withdrawn) != 1 {
		t.Errorf("alice's removal of a run that bob asked for too answers %+v", out)
	}
	if out := remove(s.bob, "run.remove", runID, "", "dry_run"); !there(made) || len(out.Runs) != 1 {
		t.Errorf("a dry run of bob's removal answers %+v", out)
	}
	if out := remove(s.bob, "run.remove", runID, ""); there(made) || len(out.Runs) != 1 {
		t.Errorf("bob's removal of the run, the last one, answers %+v", out)
	}
}

// If an asking cannot be stored the call fails; one that is stored already needs no further write.
func TestAskingIsStoredWithTheAnswer(t *testing.T) {
	g := chainGateway(t)
	s, reads := sharersOf(g), g.reads(t, 1)
	id := g.askedFor(t, reads[0], s.alice)
	db, err := sql.Open("sqlite3", "file:"+g.Ledger.Path())
	must(t, err)
	defer db.Close()
	if _, err := db.Exec("CREATE TRIGGER no_askings BEFORE INSERT ON askings BEGIN SELECT RAISE(ABORT, 'not now'); END"); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		tool string
		args map[string]any
	}{{"a.one", map[string]any{"x": reads[0]}}, {"artifact.import", map[string]any{"text": "x", "label": "x"}},
		{"b.two", map[string]any{"x": id + ":out"}}} {
		raw, _ := json.Marshal(x.args)
		if res := g.Gate.Call(t.Context(), s.bob, gate.NewRequest(x.tool, BuiltinVersion, raw)); res.Error == nil {
			t.Errorf("%s is answered %s although bob's asking was not stored", x.tool, res.Result)
		}
	}
	g.askedFor(t, reads[0], s.alice)
	if list, err := g.Ledger.Askings(t.Context(), id); err != nil || len(list) != 1 {
		t.Errorf("askings = %v, %v; want alice's", list, err)
	}
}
