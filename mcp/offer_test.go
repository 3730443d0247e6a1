package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
)

// naming is a world whose callers' credentials name tools.
type naming struct {
	*world
	ids []string
}

func (n naming) Named(context.Context) []string { return n.ids }

// many returns a world with so many tools of the domain.
func many(n int) *world {
	w := newWorld()
	for i := range n {
		t := tool(fmt.Sprintf("many.t%03d", i), gate.Execute, "slurm")
		t.Description = strings.Repeat("Does much with reads. ", 10)
		w.tools = append(w.tools, t)
		w.on(t.ID, submitted("queued", 2), nil)
	}
	return w
}

func listed(t *testing.T, g Gateway) (names []string, bytes int, list []*sdk.Tool) {
	t.Helper()
	l, err := connect(t, New(Config{Reach: reach, Gateway: g, Name: "d", Version: "1"}), nil).ListTools(t.Context(), nil)
	must(t, err)
	raw, err := json.Marshal(l)
	must(t, err)
	for _, x := range l.Tools {
		names = append(names, x.Name)
	}
	return names, len(raw), l.Tools
}

// A list of short entries has all of the registry's metadata as well: that of most tools once, and with each tool its
// differences.
//
// proves HTC-11
func TestShortEntriesSayAll(t *testing.T) {
	w := many(40)
	w.tools[len(w.tools)-1].Capabilities = []string{gate.CapSlurm, gate.CapMetrics}
	server := New(Config{Reach: reach, Gateway: naming{w, []string{"many.t039", "many.t001"}}, Name: "d", Version: "1"})
	res, err := connect(t, server, nil).ListTools(t.Context(), nil)
	must(t, err)
	about, _ := res.Meta[handshakeKey].(map[string]any)
	if len(about) != len(usual()) {
		t.Fatalf("%v", res.Meta)
	}
	for _, x := range res.Tools {
		own, _ := x.Meta[handshakeKey].(map[string]any)
		if x.Name == door {
			continue // which no registry has
		}
		i := slices.IndexFunc(w.tools, func(t gate.Tool) bool { return t.ID == own["tool_id"] })
		if i < 0 || x.OutputSchema != nil {
			t.Fatalf("the entry %s is of the tool %v with an output schema: %t; want a tool of the registry without one",
				x.Name, own["tool_id"], x.OutputSchema != nil)
		}
		said := maps.Clone(about)
		maps.Copy(said, own)
		got, err1 := json.Marshal(said)
		want, err2 := json.Marshal(registered(w.tools[i]))
		if err1 != nil || err2 != nil || string(got) != string(want) {
			t.Errorf("%s: %s, want the registry's %s", x.Name, got, want)
		}
	}
}

// A list has at most MaxList bytes. One with room has everything about each tool; a domain that is too large is left
// out as a whole, except for the tools that the caller's credentials name, and is reached through the door. No list
// has a tool that the caller may not call.
//
// proves MANY-01 AX-12
func TestListIsBounded(t *testing.T) {
	few := many(0)
	few.hidden = append(slices.DeleteFunc(operationsOfChats(), func(id string) bool {
		return slices.Contains([]string{"slurm.submit", "slurm.job.get", "slurm.job.collect", "slurm.job.recollect", "slurm.job.cancel"}, id)
	}), "samtools.flagstat")
	names, bytes, list := listed(t, few)
	if bytes > MaxList || len(names) != 5 || list[0].OutputSchema == nil || slices.Contains(names, door) {
		t.Errorf("few: %d bytes, %v", bytes, names)
	}
	names, bytes, list = listed(t, many(5))
	if bytes > MaxList || !slices.Contains(names, "many_t004") || slices.Contains(names, door) || list[0].OutputSchema != nil {
		t.Errorf("some: %d bytes, %v", bytes, names)
	}
	for _, n := range []int{40, 1000} {
		w := naming{many(n), []string{"many.t039", "many_t007", "no.such", "many.t001", "many.t001"}}
		w.hidden = []string{"many.t001", "slurm.job.cancel"}
		names, bytes, _ := listed(t, w)
		var domain []string
		for _, x := range names {
			if strings.HasPrefix(x, "many_") || x == "samtools_flagstat" {
				domain = append(domain, x)
			}
		}
		if bytes > MaxList || !slices.Equal(domain, []string{"many_t007", "many_t039"}) || !slices.Contains(names, door) {
			t.Errorf("%d tools: %d bytes, %v", n, bytes, names)
		}
		for _, id := range operationsOfChats() {
			o, _ := new(app.Gateway).Find(id)
			if !o.Chat.First {
				continue
			}
			if got := slices.Contains(names, nameOf(id)); got != (id != "slurm.job.cancel") {
				t.Errorf("%d tools: %s is listed: %t", n, id, got)
			}
		}
		again, _, _ := listed(t, w)
		if !slices.Equal(names, again) {
			t.Errorf("another list: %v", again)
		}
	}
	long := naming{many(1000), nil}
	for i := range 1000 {
		long.ids = append(long.ids, fmt.Sprintf("many.t%03d", i))
	}
	if names, bytes, _ := listed(t, long); bytes > MaxList || !slices.Contains(names, "many_t000") {
		t.Errorf("%d bytes, %v", bytes, names)
	}
}

// A call through the door is a call of the tool that it names: the gate sees no other, with the client's ids, and answers and errors are
// the tool's. What names no tool that the caller may call reaches the gate too, as what it is.
//
// proves MANY-01 HTC-06 HTC-11
func TestDoor(t *testing.T) {
	w := many(60)
	w.hidden = []string{"many.t009"}
	w.on("many.t002", nil, fault.Invalid("no", fault.Problem{Code: "ARGS-SCHEMA", Field: "args.x", Msg: "no"}).
		WithSteps(fault.Do("tool.show", "tool_id", "many.t002")))
	c := w.session(t)
	trace := "5fd0a3a3-1d8e-4be3-8d5a-0b6b6f2c9b11"
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: door, Arguments: json.RawMessage(`{"tool":"many.t001","arguments":{"x":1}}`),
		Meta: sdk.Meta{handshakeKey: map[string]any{"trace_id": trace, "idempotency_key": "k"}}})
	must(t, err)
	h, _ := res.Meta[handshakeKey].(map[string]any)
	call1 := w.asked()[0]
	if call1.ToolID != "many.t001" || call1.ToolVersion != "1.2.3" || string(call1.Args) != `{"x":1}` || call1.TraceID != trace ||
		*call1.IdempotencyKey != "k" || h["tool_id"] != "many.t001" || !strings.Contains(textOf(res), "Submitted as") {
		t.Errorf("through the door: call of %s %s with %s, metadata %v, answer %q", call1.ToolID, call1.ToolVersion,
			call1.Args, h, textOf(res))
	}
	for _, c2 := range []struct{ args, id, text string }{
		{`{"tool":"many_t002","arguments":{"x":1}}`, "many.t002", `Example: tool_run {"tool":"many_t002","arguments":{`},
		{`{"tool":"many.t003"}`, "many.t003", "Submitted as"},
		{`{"tool":"slurm.job.adopt","arguments":{}}`, "slurm.job.adopt", "is not for a chat"},
		{`{"tool":"many.t009","arguments":{}}`, "many.t009", "there is no tool"},
		{`{"tool":"tool_run","arguments":{}}`, "gateway.unknown.tool_run", "there is no tool"},
		{`{"tool":"No Such Tool","arguments":{}}`, gate.UnknownTool, "there is no tool with this name"},
		{`{"arguments":{}}`, "gateway.unknown.tool_run", "tool_run takes tool"},
		{`{"tool":"many.t001","arguments":{},"more":1}`, "gateway.unknown.tool_run", "tool_run takes tool"},
	} {
		res := call(t, c, door, c2.args)
		if calls := w.asked(); calls[len(calls)-1].ToolID != c2.id || !strings.Contains(textOf(res), c2.text) {
			t.Errorf("%s: %s, %s", c2.args, calls[len(calls)-1].ToolID, textOf(res))
		}
	}
}

// The catalogue's answers are lines, and a page that is cut has the argument for the next one.
func TestCatalogueAnswers(t *testing.T) {
	w := many(60)
	w.answers["tool.list"] = func(_ context.Context, args json.RawMessage) (any, error) {
		var a struct {
			After string
			Limit int
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, err
		}
		var rows []any
		var after *string
		for _, x := range slices.SortedFunc(slices.Values(w.tools), func(a, b gate.Tool) int { return strings.Compare(a.ID, b.ID) }) {
			if x.ID > a.After && len(rows) < a.Limit {
				rows = append(rows, map[string]any{"tool_id": x.ID, "description": x.Description})
				after = &x.ID
			}
		}
		return map[string]any{"total": len(w.tools), "tools": rows, "after": after}, nil
	}
	c := w.session(t)
	seen, last, pages := map[string]bool{}, "", 0
	for pages < 20 && len(seen) < 61 {
		res := call(t, c, "tool_list", fmt.Sprintf(`{"all":true,"after":%q}`, last))
		pages++
		for line := range strings.SplitSeq(textOf(res), "\n") {
			id, about, ok := strings.Cut(line, "  ")
			if !ok || !gate.IsToolID(id) {
				continue
			}
			if len(about) > 100 {
				t.Errorf("%s", line)
			}
			if strings.HasPrefix(id, "many.") || strings.HasPrefix(id, "samtools.") {
				seen[id] = true
			}
		}
		_, next, more := strings.Cut(textOf(res), "call tool_list again with the same arguments and after \"")
		if last, _, _ = strings.Cut(next, "\""); res.StructuredContent != nil || !more {
			t.Fatalf("%s", textOf(res))
		}
	}
	if len(seen) != 61 || pages > 4 {
		t.Errorf("%d of 61 on %d pages: %v", len(seen), pages, slices.Sorted(maps.Keys(seen)))
	}
	w.on("tool.show", map[string]any{"tool_id": "many.t005", "tool_version": "1.2.3", "input_schema": json.RawMessage(
		`{"type":"object","additionalProperties":false,"required":["x"],"properties":{"x":{"type":"string","pattern":"^a$"}}}`),
		"inputs":  []any{map[string]any{"param": "x", "types": []string{"BAM"}}},
		"outputs": []any{map[string]any{"role": "y", "type": "TSV"}}}, nil)
	text := textOf(call(t, c, "tool_show", `{"tool_id":"many.t005"}`))
	for _, want := range []string{"many.t005 1.2.3: ", `{"properties":{"x":{"type":"string"}},"required":["x"],"type":"object"}`,
		"Input x takes artifacts of type BAM.", "Output y is of type TSV", `tool_run {"tool":"many_t005","arguments":{`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// A client whose tools have changed is notified, and finds the new ones; calls of removed ones reach no tool.
//
// proves MANY-01
func TestListChanges(t *testing.T) {
	w := newWorld()
	changed, heard := make(chan struct{}), make(chan struct{}, 1)
	defer close(changed)
	s := New(Config{Reach: reach, Gateway: w, Name: "d", Version: "1", Changed: changed})
	here, there := sdk.NewInMemoryTransports()
	if _, err := s.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case heard <- struct{}{}:
			default:
			}
		}}).Connect(t.Context(), here, &sdk.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	must(t, err)
	defer c.Close()
	if !c.InitializeResult().Capabilities.Tools.ListChanged {
		t.Error("the server does not announce that it notifies of changes")
	}
	w.mu.Lock()
	w.tools = slices.DeleteFunc(slices.Clone(w.tools), func(x gate.Tool) bool { return x.ID == "samtools.flagstat" })
	w.tools = append(w.tools, tool("samtools.view", gate.Execute, "slurm"))
	w.mu.Unlock()
	w.on("samtools.view", submitted("queued", 2), nil)
	changed <- struct{}{}
	select {
	case <-heard:
	case <-t.Context().Done():
	}
	l, err := c.ListTools(t.Context(), nil)
	must(t, err)
	has := func(name string) bool {
		return slices.ContainsFunc(l.Tools, func(x *sdk.Tool) bool { return x.Name == name })
	}
	if has("samtools_flagstat") || !has("samtools_view") {
		t.Error("the list is the old one")
	}
	if res := call(t, c, "samtools_view", `{}`); res.IsError {
		t.Errorf("%s", textOf(res))
	}
	if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "samtools_flagstat"}); err == nil {
		t.Error("a tool that is gone is called")
	}
}

// An entry has each part of the registry's metadata of its tool except the schemas, unchanged.
//
// proves HTC-05 HTC-11
func TestMetadataOfAnEntry(t *testing.T) {
	x := gate.Tool{ID: "lab.fetch", Version: "1.2.3", ContractVersion: "v7", SideEffect: gate.Execute, Idempotency: gate.IdempotentWithKey,
		Determinism: gate.NonDeterministic, Availability: gate.RequiresNetwork, Capabilities: []string{gate.CapWorker, gate.CapRead}}
	want := map[string]any{"tool_id": "lab.fetch", "tool_version": "1.2.3", "contract_version": "v7", "side_effect": "EXECUTE",
		"idempotency": "IDEMPOTENT_WITH_KEY", "determinism": "NON_DETERMINISTIC", "availability": "REQUIRES_NETWORK",
		"required_capabilities": []string{"worker", "read"}}
	if d := cmp.Diff(want, entry(x).Meta[handshakeKey]); d != "" {
		t.Errorf("_meta.handshake of an entry (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want, unusual(x)); d != "" {
		t.Errorf("_meta.handshake of a short entry of a tool that has nothing usual (-want +got):\n%s", d)
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
