package convert

import (
	"strings"
	"testing"
)

// What Handshake's gate answers to tools/list, and an entry of its registry.
const (
	handshakeList = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"mcp.stub_mcp.echo","description":"Says it: \"again\"",` +
		`"inputSchema":{"type":"object","properties":{"message":{"type":"string"}},"required":["message"],"additionalProperties":false},` +
		`"_meta":{"handshake":{"tool_version":"2.1.0","side_effect":"READ","idempotency":"IDEMPOTENT","determinism":"DETERMINISTIC","availability":"OFFLINE_OK",` +
		`"required_capabilities":["fs.read"]}}}]}}`
	handshakeEntries = `[{"tool_id":"photo.search","tool_version":"1.0.0","input_schema":{"type":"object"},` +
		`"output_schema":{"type":"object"},"side_effect":"EXECUTE","idempotency":"IDEMPOTENT_WITH_KEY","determinism":"NON_DETERMINISTIC","availability":"REQUIRES_NETWORK",` +
		`"required_capabilities":[],"transport_bindings":{"mcp_name":"photo_search"}}]`
)

// proves SRC-02
func TestFromHandshake(t *testing.T) {
	r, err := Convert("handshake", []File{{"entries.json", []byte(handshakeEntries)}, {"list.json", []byte(handshakeList)}})
	if err != nil || len(r.Refused) > 0 || len(r.Files) != 5 || r.Files[1].Path != "policies.yaml" {
		t.Fatal(r, err)
	}
	manifest := string(r.Files[0].Data)
	for _, want := range []string{"tool_id: photo.search\n    kind: service_worker\n    transport:", "tool_id: mcp.stub_mcp.echo\n",
		`description: "Says it: \"again\""`, "deterministic: true", "endpoint: /photo.search/run",
		"output_schema_ref: schemas/photo.search.out.json",
		"input_schema_ref: schemas/mcp.stub_mcp.echo.in.json"} {
		if !strings.Contains(manifest, want) {
			t.Errorf("no %q in\n%s", want, manifest)
		}
	}
	changed := ""
	for _, n := range r.Changed {
		changed += n.File + " " + n.Field + ": " + n.Text + "\n"
	}
	for _, want := range []string{"list.json tools[0].tool_version: 2.1.0 becomes 1.0.0",
		"list.json tools[0].side_effect: READ becomes EXECUTE",
		"list.json tools[0].required_capabilities: fs.read becomes"} {
		if !strings.Contains(changed, want) {
			t.Errorf("no %q in\n%s", want, changed)
		}
	}
	if strings.Contains(changed, "entries.json tools[0].side_effect") ||
		strings.Contains(changed, "entries.json tools[0].transport_bindings") {
		t.Errorf("nothing changes there:\n%s", changed)
	}
	for name, c := range map[string]struct{ list, code string }{
		"one part":     {`[{"tool_id":"echo"}]`, "CONVERT-ID"},
		"a dash":       {`[{"tool_id":"mcp.stub-mcp.echo"}]`, "CONVERT-ID"},
		"a digit":      {`[{"tool_id":"1.echo"}]`, "CONVERT-ID"},
		"long":         {`[{"tool_id":"a.` + strings.Repeat("b", 127) + `"}]`, "CONVERT-ID"},
		"twice":        {`[{"tool_id":"a.b"},{"tool_id":"a.b"}]`, "CONVERT-TWICE"},
		"no list":      {`{"tools":7}`, "CONVERT-READ"},
		"not JSON":     {`tools: []`, "CONVERT-READ"},
		"an injection": {`[{"tool_id":"a.b\n  - tool_id: c.d"}]`, "CONVERT-ID"},
	} {
		r, err := Convert("handshake", []File{{"list.json", []byte(c.list)}})
		if err != nil || len(r.Refused) != 1 || r.Refused[0].Code != c.code || len(r.Files) > 0 || r.Refused[0].Hint == "" {
			t.Errorf("%s: %d files, refused %+v, %v; want no file and %s with a hint", name, len(r.Files), r.Refused, err, c.code)
		}
	}
}
