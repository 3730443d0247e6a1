package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

type message struct {
	ID     *int            `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int
		Message string
	}
}

// talk feeds lines to a server and reads one answer for each line that is due one.
func talk(t *testing.T, w *world, in []string, answers int) []message {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), w.server(), inR, outW); outW.Close() }()
	go func() {
		for _, line := range in {
			io.WriteString(inW, line+"\n")
		}
	}()
	var out []message
	r := bufio.NewReader(outR)
	for range answers {
		line, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v after %d answers", err, len(out))
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, m)
	}
	inW.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return out
}

// A line that is no message is answered and dropped; the session continues. Part of the bad input of the faces.
func TestBadLines(t *testing.T) {
	w := newWorld()
	w.on("artifact.get", map[string]any{"artifact_id": artID}, nil)
	for name, c := range map[string]struct {
		line string
		code int
	}{
		"ten megabytes": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"artifact_get","arguments":{"x":"` +
			strings.Repeat("x", 10<<20) + `"}}}`, -32600},
		"ten megabytes of {":   {strings.Repeat("{", 10<<20), -32600},
		"no JSON":              {"hello", -32700},
		"half":                 {`{"jsonrpc":"2.0"`, -32700},
		"two":                  {`{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, -32700},
		"list":                 {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, -32600},
		"number":               {"1", -32600},
		"null":                 {"null", -32600},
		"version":              {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600},
		"no method":            {`{"jsonrpc":"2.0","id":1}`, -32600},
		"method is a number":   {`{"jsonrpc":"2.0","id":1,"method":7}`, -32600},
		"id is null":           {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600},
		"id is a fraction":     {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, -32600},
		"id is beyond 2^53-1":  {`{"jsonrpc":"2.0","id":9007199254740992,"method":"ping"}`, -32600},
		"id is an object":      {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600},
		"params are a list":    {`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, -32602},
		"binary":               {"\x00\xff\xfe", -32700},
		"method unknown":       {`{"jsonrpc":"2.0","id":1,"method":"rm"}`, -32601},
		"arguments are a list": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, -32602},
	} {
		t.Run(name, func(t *testing.T) {
			good := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"artifact_get","arguments":{}}}`
			var got []message
			for _, m := range talk(t, w, []string{initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", c.line, good}, 3) {
				if m.ID == nil || *m.ID != 0 {
					got = append(got, m)
				}
			}
			var refused, answered bool
			for _, m := range got {
				refused = refused || m.Error != nil && m.Error.Code == c.code && len(m.Error.Message) < 300
				answered = answered || m.ID != nil && *m.ID == 9 && m.Error == nil
			}
			if !refused || !answered {
				b, _ := json.Marshal(got)
				t.Errorf("%s", b)
			}
		})
	}
}

// A request that is too long is answered under its own id, wherever that is in the line: a client would wait without
// end for another.
func TestLongLines(t *testing.T) {
	long := `"params":{"name":"artifact_get","arguments":{"id":7,"x":"` + strings.Repeat(`\"}],{\"id\":`, 1<<18) + `"}}`
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":5,"method":"tools/call",` + long + `}`:                          "5",
		`{"method":"tools/call",` + long + `,"jsonrpc":"2.0", "id" : "a\"b" }`:                 `"a\"b"`,
		`{"method":"tools/call",` + long + `,"jsonrpc":"2.0","id":{"a":1}}`:                    "null",
		`{"method":"tools/call",` + long + `,"jsonrpc":"2.0","id":tru}`:                        "null",
		`{"method":"tools/call",` + long + `,"id":"` + strings.Repeat("x", 200) + `"}`:         `"` + strings.Repeat("x", 200) + `"`,
		`{"method":"tools/call",` + long + `}`:                                                 "null",
		`{"method":"tools/call",` + strings.Repeat(" ", maxBody) + `"id":-12,"jsonrpc":"2.0"}`: "-12",
		`{"method":"tools/call",` + strings.Repeat(" ", maxBody) + `"id":1,"jsonrpc":"2.0"`:    "null", // cut
		`{"method":"tools/call",` + strings.Repeat(" ", maxLine) + `"id":1,"jsonrpc":"2.0"}`:   "null", // too long for that
	} {
		var out bytes.Buffer
		must(t, Serve(t.Context(), newWorld().server(), strings.NewReader(line+"\n"), &out))
		var got struct {
			ID    json.RawMessage `json:"id"`
			Error struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || string(got.ID) != want && !(want == "null" && got.ID == nil) ||
			got.Error.Code != -32600 || !strings.Contains(got.Error.Message, "Next: ") {
			t.Errorf("%.60s…%s: %s %v", line, line[len(line)-30:], out.Bytes(), err)
		}
	}
}

// A client that writes everything at once and closes gets every answer.
func TestPiped(t *testing.T) {
	w := newWorld()
	w.on("artifact.get", map[string]any{"artifact_id": artID}, nil)
	in := initialize + "\n"
	for i := 1; i <= 50; i++ {
		in += fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"artifact_get","arguments":{}}}`, i) + "\r\n"
	}
	var out bytes.Buffer
	must(t, Serve(t.Context(), w.server(), strings.NewReader(in), &out))
	if n := strings.Count(out.String(), `"result"`); n != 51 || strings.Count(out.String(), "\n") != 51 {
		t.Errorf("%d answers", n)
	}
}

// A line is either a message or refused with a code and a reason.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{initialize, "[]", "1", `{"jsonrpc":"2.0","id":[],"method":"x"}`, `{"jsonrpc":"2.0","id":null,"error":{}}`, ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if m, bad := decode(line); (m == nil) != (bad != nil) || bad != nil && (bad.Code == 0 || bad.Message == "") {
			t.Errorf("%q: %v %v", line, m, bad)
		}
	})
}
