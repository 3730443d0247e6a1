package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/toolpack"
)

// Handshake has its tools in a registry in memory. A file has the registry's data: a list of its entries, or the
// answer to tools/list, whose tools carry the registry's metadata in _meta.handshake. Each tool becomes an entry of a
// service worker, and its schemas files next to the manifest.

// handshakeTool is an entry of the registry, or a tool of tools/list.
type handshakeTool struct {
	ToolID       string          `json:"tool_id"`
	Name         string          `json:"name"` // of tools/list: the id
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema"`
	ListedInput  json.RawMessage `json:"inputSchema"`
	ListedOutput json.RawMessage `json:"outputSchema"`
	handshakeMeta
	Bindings struct {
		MCPName string `json:"mcp_name"`
	} `json:"transport_bindings"`
	Meta struct {
		Handshake *handshakeMeta `json:"handshake"`
	} `json:"_meta"`
}

type handshakeMeta struct {
	Version      string   `json:"tool_version"`
	SideEffect   string   `json:"side_effect"`
	Idempotency  string   `json:"idempotency"`
	Determinism  string   `json:"determinism"`
	Availability string   `json:"availability"`
	Capabilities []string `json:"required_capabilities"`
}

// handshakeID is an id that both systems take: ours begin with a letter, because a tool's name does.
var handshakeID = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$`)

const (
	maxToolID     = 128 // characters
	workerAddress = "http://127.0.0.1:9000"
)

func fromHandshake(c *conversion) {
	var manifest bytes.Buffer
	manifest.WriteString("domain_id: handshake\nversion: 1.0.0\ntools:\n")
	seen := map[string]bool{}
	for _, f := range c.in {
		if path.Ext(f.Path) != ".json" {
			continue
		}
		for i, t := range c.handshakeTools(f) {
			field := fmt.Sprintf("tools[%d]", i)
			id := t.ToolID + t.Name
			switch {
			case !handshakeID.MatchString(id) || len(id) > maxToolID:
				c.refuse(fault.Problem{Code: "CONVERT-ID", File: f.Path, Field: field + ".tool_id",
					Rule: "parts of lower-case letters, digits and _ with dots between them, a letter first, at most 128 characters",
					Msg:  "this is no tool id: " + fault.Clip(id), Hint: "rename the tool; Handshake's name for one of an MCP server is mcp.SERVER.TOOL"})
				continue
			case seen[id]:
				c.refuse(fault.Problem{Code: "CONVERT-TWICE", File: f.Path, Field: field + ".tool_id", Rule: "each tool once",
					Msg: id + " is listed twice", Hint: "remove one of the two"})
				continue
			}
			seen[id] = true
			c.handshakeTool(&manifest, f.Path, field, id, t)
		}
	}
	if len(seen) > 0 {
		c.write("", toolpack.ManifestFile, manifest.Bytes())
		c.starter(toolpack.PolicyFileName, starterPolicy)
	}
}

// handshakeTools reads a list of tools: by itself, or under tools, as it is or as the result of a call.
func (c *conversion) handshakeTools(f File) (list []handshakeTool) {
	doc, err := plan.ReadUpTo(f.Data, 8<<20)
	if err == nil {
		raw := doc.Bytes
		for _, key := range []string{"result", "tools"} {
			var in map[string]json.RawMessage
			if json.Unmarshal(raw, &in) == nil && in[key] != nil {
				raw = in[key]
			}
		}
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		c.refuse(fault.Problem{Code: "CONVERT-READ", File: f.Path, Rule: "a JSON list of registry entries, or the answer to tools/list",
			Msg: "it cannot be read: " + fault.First(err), Hint: "save what the gate of Handshake answers to tools/list"})
	}
	return list
}

// handshakeTool writes the entry of one tool.
func (c *conversion) handshakeTool(manifest *bytes.Buffer, file, field, id string, t handshakeTool) {
	m := t.handshakeMeta
	if t.Meta.Handshake != nil {
		m = *t.Meta.Handshake
	}
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) } // a text can always be encoded; JSON is YAML
	fmt.Fprintf(manifest, "  - tool_id: %s\n    kind: service_worker\n", id)
	for _, x := range []struct{ key, value string }{{"display_name", t.Title}, {"description", t.Description}} {
		if x.value != "" {
			fmt.Fprintf(manifest, "    %s: %s\n", x.key, quoted(x.value))
		}
	}
	if m.Determinism == "DETERMINISTIC" {
		manifest.WriteString("    deterministic: true\n")
	}
	fmt.Fprintf(manifest, "    transport: {type: http, base_url: %q, endpoint: /%s/run}\n", workerAddress, id)
	c.change(file, field, "transport.base_url is a guess: write where the worker listens; for a tool of an MCP server that is "+
		"slurmgate adapter")
	for _, x := range []struct {
		key, ref        string
		entries, listed json.RawMessage
	}{{"input_schema", "in", t.InputSchema, t.ListedInput}, {"output_schema", "out", t.OutputSchema, t.ListedOutput}} {
		schema := x.entries
		if len(x.listed) > 0 {
			schema = x.listed
		}
		if len(schema) == 0 || string(schema) == "null" {
			continue
		}
		rel := "schemas/" + id + "." + x.ref + ".json"
		fmt.Fprintf(manifest, "    %s_ref: %s\n", x.key, rel)
		c.write(file, rel, append(bytes.Clone(schema), '\n'))
		c.keep(file, field+"."+x.key, "is "+rel)
	}
	c.keep(file, field+".tool_id", id)
	for _, x := range []struct{ key, value, same, why string }{
		{"tool_version", m.Version, "1.0.0", "1.0.0: a tool without a toolpack has the version of its manifest"},
		{"side_effect", m.SideEffect, "EXECUTE",
			"EXECUTE: a call leaves this host, so its record is kept for good and a dry run does not make it"},
		{"idempotency", m.Idempotency, "IDEMPOTENT_WITH_KEY", "IDEMPOTENT_WITH_KEY, or IDEMPOTENT for a deterministic tool: a call is a run"},
		{"availability", m.Availability, "REQUIRES_NETWORK", "REQUIRES_NETWORK: the worker is behind one"},
		{"required_capabilities", strings.Join(m.Capabilities, ", "), "",
			"the capability worker on the call's project; grants name no resources of a host"},
		{"transport_bindings.mcp_name", t.Bindings.MCPName, strings.ReplaceAll(id, ".", "_"), "the name " +
			strings.ReplaceAll(id, ".", "_") + " for chats, which may call the id, too"},
	} {
		if x.value != "" && x.value != x.same {
			c.change(file, field+"."+x.key, x.value+" becomes "+x.why)
		}
	}
}
