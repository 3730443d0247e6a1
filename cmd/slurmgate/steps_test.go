package main

import (
	"cmp"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/mcp"
)

// Every verb a step may have is a tool with these arguments, or a command of the shell; its command line is one that this program parses.
//
// proves HTC-06
func TestStepForms(t *testing.T) {
	registry := operations(t).Gate.Registry()
	name := regexp.MustCompile(`\{([a-z_]+)\}`)
	for _, f := range gate.StepForms() {
		args := map[string]any{}
		values := map[string]string{"stream": "log", "state": "failed", "first_row": "10", "after_attempt": "1", "workspaces_older_than": "1h"}
		for _, m := range name.FindAllStringSubmatch(f.Shell+f.HTTP, -1) {
			args[m[1]] = cmp.Or(values[m[1]], "x")
		}
		if f.With != "" {
			args[f.With] = "1"
		}
		full := fault.Step{Verb: f.Verb, Args: args}
		bare := fault.Do(f.Verb)
		if f.With != "" {
			bare.Args[f.With] = 1
		}
		for _, s := range []fault.Step{full, bare} {
			line := strings.Fields(gate.Words(gate.Local, []fault.Step{s}))[1:]
			if slices.Equal(line, []string{"--help"}) {
				continue
			}
			var c commands
			parser, err := kong.New(&c, kong.Name("slurmgate"), kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(line); err != nil {
				t.Errorf("slurmgate %s: %v", strings.Join(line, " "), err)
			}
		}
		if !strings.Contains(f.Verb, ".") {
			if f.Chat != "" || f.Shell == "" {
				t.Errorf("%s is a command of the shell, and has %+v", f.Verb, f)
			}
			continue
		}
		tool, err := registry.Find(f.Verb)
		if err != nil {
			t.Error(err)
			continue
		}
		var in struct{ Properties map[string]any }
		if err := json.Unmarshal(tool.Input, &in); err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(f.HTTP, -1) {
			if _, has := in.Properties[m[1]]; !has {
				t.Errorf("%s takes no %s", f.Verb, m[1])
			}
		}
		if chat, err := registry.Find(strings.ReplaceAll(f.Chat, "_", ".")); strings.Contains(f.Chat, "_") &&
			(err != nil || !mcp.ForChat(chat) || !chat.Reachable(gate.MCP)) {
			t.Errorf("a chat has no %s", f.Chat)
		}
		if f.HTTP != "" && !tool.Reachable(gate.Other) {
			t.Errorf("%s cannot be reached over HTTP", f.Verb)
		}
		if f.Chat == "" && mcp.ForChat(tool) && tool.Reachable(gate.MCP) {
			t.Errorf("a chat has %s", f.Verb)
		}
	}
}

// Each operation's verb is one of the command line, and each verb is an operation's or one of those that are more, or less, than a call.
//
// proves HTC-06
func TestVerbsAreOperations(t *testing.T) {
	var c commands
	parser, err := kong.New(&c, kong.Name("slurmgate"))
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(false) {
		verbs[strings.TrimPrefix(leaf.FullPath(), "slurmgate ")] = false
	}
	for _, v := range []string{"run", "wait", "batch wait", "batch collect",
		"cancel-all", "deny", "serve", "signer", "adapter", "mcp", "version", "completion",
		"complete-words", "record-calls", "look", "man-pages"} {
		if _, ok := verbs[v]; !ok {
			t.Errorf("no verb %s", v)
		}
		verbs[v] = true
	}
	for _, o := range new(app.Gateway).Operations() {
		if _, ok := verbs[o.Verb]; o.Verb != "" && !ok {
			t.Errorf("%s: there is no verb %q", o.ID, o.Verb)
		}
		verbs[o.Verb] = true
	}
	for v, called := range verbs {
		if !called {
			t.Errorf("slurmgate %s calls no operation", v)
		}
	}
}
