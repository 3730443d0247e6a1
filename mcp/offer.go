package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/gate"
	"slurmgate/plan"
)

// MaxList bounds a list of tools, in bytes of its JSON: a client puts the list before its model with every turn. A list that would be
// larger has short entries; one that still would be has the operations of every day, the tools that the caller's credentials name, and
// the catalogue: tool_list, tool_show and [door], through which every other tool is called.
const MaxList = 12_000

const (
	door       = "tool_run" // calls any tool; the gate sees only a call of that tool
	doorID     = "tool.run"
	aroundList = 400 // bytes of a list without its entries
)

// A namer returns the tools that the caller's credentials name: a list has them before the other tools of the domain.
type namer interface {
	Named(ctx context.Context) []string
}

// listing is a tool in the two forms that a list may have it in.
type listing struct {
	whole, brief           *sdk.Tool
	wholeBytes, briefBytes int
}

func listingOf(whole, brief *sdk.Tool) listing {
	return listing{whole, brief, jsonBytes(whole) + 1, jsonBytes(brief) + 1}
}

func jsonBytes(v any) int {
	b, err := json.Marshal(v)
	if err != nil { // a schema that is no JSON, which no registry has
		return MaxList
	}
	return len(b)
}

// doorEntry returns the door's entry in a list.
func doorEntry() *sdk.Tool {
	no, yes := false, true
	return &sdk.Tool{Name: door, Description: "Calls a tool that this list leaves out, by its name or id. tool_list names the tools, " +
		"tool_show gives one's arguments. The answer is the tool's own.",
		InputSchema: json.RawMessage(`{"type":"object","required":["tool"],"properties":{"tool":{"type":"string"},` +
			`"arguments":{"type":"object","description":"as tool_show describes them"}}}`),
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &yes}}
}

// brief returns a tool's entry in a list without room: the parts that a model needs for a call. tool_show has the
// rest.
func brief(t gate.Tool) *sdk.Tool {
	whole := entry(t)
	hints := &sdk.ToolAnnotations{ReadOnlyHint: whole.Annotations.ReadOnlyHint}
	if !hints.ReadOnlyHint {
		hints.IdempotentHint, hints.DestructiveHint = whole.Annotations.IdempotentHint, whole.Annotations.DestructiveHint
	}
	return &sdk.Tool{Name: whole.Name, Description: plain(t.Description, maxDescription),
		InputSchema: briefSchema(without(t.Input, t.Chat.Seldom)), Annotations: hints,
		Meta: sdk.Meta{handshakeKey: unusual(t)}}
}

// usual returns the registry's metadata of most tools. A list of short entries has it once, in its own metadata, and
// an entry only what is different.
func usual() map[string]any {
	return map[string]any{"contract_version": "v1", "side_effect": string(gate.Read), "idempotency": gate.Idempotent,
		"determinism": gate.BestEffort, "availability": gate.OfflineOK, "required_capabilities": []string{gate.CapGateway, gate.CapRead}}
}

// unusual returns the registry's metadata of a tool where it differs from [usual].
func unusual(t gate.Tool) map[string]any {
	out := registered(t)
	for key, value := range usual() {
		if reflect.DeepEqual(out[key], value) {
			delete(out, key)
		}
	}
	return out
}

// without leaves optional arguments out of a schema: some, the project, and those that every call of a job may have.
// Of the others it leaves out bounds that no call reaches.
func without(raw json.RawMessage, names []string) json.RawMessage {
	return edited(raw, func(doc map[string]any) {
		properties, _ := doc["properties"].(map[string]any)
		required, _ := doc["required"].([]any)
		_, others := doc["additionalProperties"].(map[string]any) // what is not listed must obey this
		for name, p := range properties {
			about, _ := p.(map[string]any)
			text, _ := about["description"].(string)
			asked := name == "resources" && strings.HasPrefix(text, "what the job gets instead of")
			if low, _ := about["minimum"].(float64); low <= 1 {
				delete(about, "minimum")
			}
			if high, _ := about["maximum"].(float64); high >= 1000 {
				delete(about, "maximum")
			}
			if (asked || name == "project_id" || slices.Contains(names, name)) && !slices.Contains(required, any(name)) {
				if delete(properties, name); others {
					properties[name] = map[string]any{}
				}
			}
		}
	})
}

// unsaid lists the keywords that a short schema leaves out. They only refuse wrong values, and the gate reports
// those. Keywords that count or depend on what other keywords accepted would refuse more than before without these,
// so they are left out too.
var unsaid = []string{"additionalProperties", "pattern", "not", "format", "minLength", "maxLength", "maxItems", "minItems", "maxProperties",
	"minProperties", "uniqueItems", "$schema", "title", "if", "then", "else", "contains", "minContains", "maxContains",
	"unevaluatedProperties", "unevaluatedItems"}

// briefSchema leaves out of a schema what no model needs for a call.
func briefSchema(raw json.RawMessage) json.RawMessage {
	var doc any
	if json.Unmarshal(inlined(raw), &doc) != nil {
		return raw
	}
	short, err := plan.Marshal(shortened(doc, true))
	if err != nil {
		return raw
	}
	return short
}

// inlined puts the parts of a schema that it refers to in their places, where they are few and do not contain themselves; any other schema
// stays as it is.
func inlined(raw json.RawMessage) json.RawMessage {
	var root map[string]any
	if json.Unmarshal(raw, &root) != nil {
		return raw
	}
	left := 200
	var put func(v any, deep int) any
	put = func(v any, deep int) any {
		if left--; left < 0 || deep > 20 {
			left = -1
			return v
		}
		switch v := v.(type) {
		case map[string]any:
			out, target := map[string]any{}, map[string]any{}
			if ref, ok := v["$ref"].(string); ok {
				found := false
				var x any
				if x, found = referred(root, ref); !found {
					left = -1
					return v
				}
				target, _ = put(x, deep+1).(map[string]any)
			}
			for key, x := range v {
				switch {
				case key == "$ref", key == "$defs":
				case slices.Contains(verbatim, key):
					out[key] = x
				default:
					out[key] = put(x, deep+1)
				}
			}
			return both(target, out)
		case []any:
			out := make([]any, len(v))
			for i, x := range v {
				out[i] = put(x, deep+1)
			}
			return out
		}
		return v
	}
	out := put(root, 0)
	if left < 0 {
		return raw
	}
	if b, err := json.Marshal(out); err == nil {
		return b
	}
	return raw
}

// verbatim are the keywords whose values are no schemas.
var verbatim = []string{"default", "const", "enum", "examples"}

// notes are the keywords that take or refuse nothing.
var notes = []string{"title", "description", "default", "examples", "deprecated"}

// both returns a schema that requires what two do. Notes of the second replace those of the first.
func both(one, two map[string]any) map[string]any {
	if len(one) == 0 {
		return two
	}
	out := maps.Clone(one)
	for key, x := range two {
		if !slices.Contains(notes, key) {
			return map[string]any{"allOf": []any{one, two}}
		}
		out[key] = x
	}
	return out
}

// referred finds a part of a schema by a reference within it.
func referred(root map[string]any, ref string) (any, bool) {
	path, ok := strings.CutPrefix(ref, "#/")
	var at any = root
	for ok && path != "" {
		var key string
		key, path, _ = strings.Cut(path, "/")
		var in map[string]any
		if in, ok = at.(map[string]any); ok {
			at, ok = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)]
		}
	}
	return at, ok
}

// shortened leaves keywords out of a schema; what is not one, such as a table of properties or a default, keeps its keys.
func shortened(v any, isSchema bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, x := range v {
			switch open, isBool := x.(bool); {
			case !isSchema:
				out[key] = shortened(x, true)
			case key == "additionalProperties" && (!isBool || open): // it describes what else is accepted
				out[key] = shortened(x, true)
			case key == "oneOf": // several may hold without what is left out
				if _, both := v["anyOf"]; !both {
					out["anyOf"] = shortened(x, true)
				}
			case key == "required" && jsonBytes(x) <= len("[]"), slices.Contains(unsaid, key):
			case slices.Contains([]string{"properties", "$defs", "patternProperties", "dependentSchemas"}, key):
				out[key] = shortened(x, false)
			case slices.Contains(verbatim, key):
				out[key] = x
			default:
				out[key] = shortened(x, true)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = shortened(x, isSchema)
		}
		return out
	}
	return v
}

// offer returns the list of tools for the caller, in the order of their names. For short entries, about is their
// common metadata.
func (s *server) offer(ctx context.Context) (list []*sdk.Tool, about sdk.Meta) {
	tools := s.visible(ctx)
	names := slices.Sorted(maps.Keys(tools))
	var whole, short int
	for _, name := range names {
		whole, short = whole+s.now().listings[name].wholeBytes, short+s.now().listings[name].briefBytes
	}
	if small := whole <= MaxList-aroundList; small || short <= MaxList-aroundList {
		out := make([]*sdk.Tool, len(names))
		for i, name := range names {
			if out[i] = s.now().listings[name].brief; small {
				out[i] = s.now().listings[name].whole
			}
		}
		if small {
			return out, nil
		}
		return out, sdk.Meta{handshakeKey: usual()}
	}
	return s.catalogue(ctx, tools), sdk.Meta{handshakeKey: usual()}
}

// catalogue returns a list that leaves tools out.
func (s *server) catalogue(ctx context.Context, tools map[string]gate.Tool) []*sdk.Tool {
	through := doorEntry()
	out, listed, room := []*sdk.Tool{through}, map[string]bool{}, MaxList-aroundList-jsonBytes(through)
	add := func(name string) {
		l := s.now().listings[name]
		if _, may := tools[name]; may && !listed[name] && l.briefBytes <= room {
			out, room, listed[name] = append(out, l.brief), room-l.briefBytes, true
		}
	}
	operations := slices.DeleteFunc(slices.Sorted(maps.Keys(tools)), func(name string) bool { return !tools[name].Chat.Has })
	for _, name := range operations {
		if tools[name].Chat.First {
			add(name)
		}
	}
	if n, ok := s.cfg.Gateway.(namer); ok {
		for _, called := range n.Named(ctx) {
			add(s.named(ctx, called))
		}
	}
	var rest []string // the tools of the domain are listed all, or none of them
	need := 0
	for name, t := range tools {
		if !listed[name] && !slices.Contains(t.Capabilities, gate.CapGateway) {
			rest, need = append(rest, name), need+s.now().listings[name].briefBytes
		}
	}
	if need <= room {
		for _, name := range rest {
			add(name)
		}
	}
	for _, name := range operations {
		add(name)
	}
	slices.SortFunc(out, func(a, b *sdk.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func nameOf(id string) string { return strings.ReplaceAll(id, ".", "_") }

// spelled returns a call of a tool as the caller makes it: by the tool's name, or through the door where the caller's
// list lacks the tool.
func (s *server) spelled(ctx context.Context, t gate.Tool, args string) string {
	if list, _ := s.offer(ctx); slices.ContainsFunc(list, func(x *sdk.Tool) bool { return x.Name == t.Name() }) {
		return t.Name() + " " + args
	}
	return door + ` {"tool":"` + t.Name() + `","arguments":` + args + `}`
}

// through turns a call through the door into the call of the tool that it names. A nil result: r is that call now.
func (s *server) through(ctx context.Context, r *sdk.CallToolRequest) *sdk.CallToolResult {
	var a struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := (plan.Doc{Bytes: r.Params.Arguments}).Into(&a); err != nil || a.Tool == "" {
		return s.nowhere(ctx, r, "tool_run takes tool, a name or id, and arguments, an object. Example: "+door+
			` {"tool":"tool_list","arguments":{}}`)
	}
	name := s.named(ctx, a.Tool)
	if _, known := s.now().tools[name]; !known {
		r.Params.Name = a.Tool
		return s.nowhere(ctx, r, s.noSuchTool(ctx, clip(a.Tool, 128)))
	}
	r.Params.Name, r.Params.Arguments = name, a.Arguments
	return nil
}

// nowhere answers a call through the door that reaches no tool. The gate has seen it.
func (s *server) nowhere(ctx context.Context, r *sdk.CallToolRequest, message string) *sdk.CallToolResult {
	t := gate.Tool{ID: gate.IDOf(r.Params.Name), Version: "0.0.0"}
	req := request(t, r)
	res, err := s.cfg.Gateway.Call(ctx, req)
	switch {
	case err != nil:
		return refusal(req, gate.BodyOf(s.words, err), "")
	case res.Error != nil && res.Error.Code != "tool_not_found" && res.Error.Code != "tool_version":
		return refusal(req, res.Error, "") // such as: too many calls
	}
	body := gate.BodyOf(s.words, notATool(message))
	return refusal(req, body, "")
}
