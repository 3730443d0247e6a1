package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// Every error names the call that the model should make next, with arguments. The gate's message describes the
// problem and names most next steps; this adds what only a chat lacks: a call that fits the tool's schema.

// Codes whose messages are for people at a shell. That of a tool that policy does not allow lists all that policy
// allows; that of an artifact that was removed by request explains how to import it again, which a model must not
// decide.
const (
	refusedTool     = "POLICY-TOOL"
	removedArtifact = "artifact_removed_by_request"
)

// details are the parts of an error that are data; they may have come through a socket as JSON.
type details struct {
	Kind     string          `json:"kind"`
	Next     []fault.Step    `json:"next"`
	Problems []fault.Problem `json:"problems"`
}

func detailsOf(e *gate.ErrorBody) (d details) {
	raw, err := json.Marshal(e.Details)
	if err == nil {
		_ = json.Unmarshal(raw, &d) // what cannot be read is left out
	}
	if d.Kind == "" {
		d.Kind = e.Kind
	}
	return d
}

// advice returns what a chat's answer adds to the message of a failed call; "" when the message has a call already.
// again is the corrected call, name a part of the name of what it should have.
func (s *server) advice(t gate.Tool, e *gate.ErrorBody, again, name string) string {
	d := detailsOf(e)
	switch {
	case e.Code == refusedTool:
		return "A chat cannot change policy: tell the user. tool_list {} names the tools that are allowed."
	case e.Code == removedArtifact:
		return "It was removed on purpose: tell the user, and import it again only if the user says so."
	case e.Code == "consent_required":
		return "When it is approved: " + again + "."
	case slices.ContainsFunc(d.Next, func(x fault.Step) bool { return x.Verb == "tool.show" }): // the arguments are wrong
		return "Example: " + whereIDs(again, name)
	case e.Retryable && t.OfService():
		return "The same call may succeed later."
	case e.Retryable:
		return "The same call may succeed later; it is safe to repeat: " + again + "."
	case slices.ContainsFunc(d.Next, func(x fault.Step) bool { return s.cfg.Reach.inChat(x) }):
		return ""
	}
	switch fault.Kind(d.Kind) {
	case fault.Validation, fault.NotFound, fault.Conflict:
		if t.Chat.Correct != "" {
			return t.Chat.Correct
		}
		return "Correct the call. Example: " + whereIDs(again, name)
	}
	if fault.Kind(d.Kind) == fault.Policy && len(d.Problems) > 0 {
		return "A chat cannot change policy: keep within it, or tell the user."
	}
	return "A chat cannot change this: tell the user. run_list {} and artifact_list {} show what there is."
}

// idForm matches the beginnings of the ids that an input may have.
var idForm = regexp.MustCompile(`^(art_|file_|run_|batch_|ref:)`)

// sought returns the text in place of an artifact's id in the call, perhaps a file's name; "…" without one.
func sought(given json.RawMessage, d details) string {
	var args map[string]json.RawMessage
	_ = json.Unmarshal(given, &args) // what is no object has nothing to repeat
	for _, name := range slices.Sorted(maps.Keys(args)) {
		var text string
		if d.blames(name) && json.Unmarshal(args[name], &text) == nil && text != "" && len(text) <= maxRepeated && !idForm.MatchString(text) {
			return plain(path.Base(text), maxRepeated)
		}
	}
	return "…"
}

// whereIDs ends the sentence of an example, and names the calls that find the ids it leaves open.
func whereIDs(example, name string) string {
	switch {
	case strings.Contains(example, `"art_…"`):
		return fmt.Sprintf(`%s. artifact_find {"name":%q} finds artifacts and files; a tool takes the ids of both.`, example, name)
	case strings.Contains(example, `"run_…"`):
		return example + ". run_list {} lists runs."
	}
	return example + "."
}

// maxNames is how many tools a message lists.
const maxNames = 40

// noSuchTool returns the message for a call of a tool that does not exist.
func (s *server) noSuchTool(ctx context.Context, called string) string {
	tools := s.visible(ctx)
	names := slices.Sorted(maps.Keys(tools))
	what := "unknown tool: there is no tool with this name"
	if gate.Sayable(called) {
		what = "unknown tool: there is no tool \"" + called + "\""
	}
	if x := fault.Do(strings.ReplaceAll(called, "_", ".")); strings.Contains(x.Verb, ".") && !s.cfg.Reach.inChat(x) {
		return "unknown tool: " + called + " is not for a chat. Next: " + s.words([]fault.Step{x})
	}
	if near := plan.Nearest(strings.ReplaceAll(called, ".", "_"), names); near != "" {
		return what + plan.Suggestion(near) + " Next: " + whereIDs(s.spelled(ctx, tools[near], example(tools[near], nil, details{})), "…")
	}
	own := s.domainTools(ctx)
	if len(own) == 0 || len(own) > maxNames {
		return what + ". Next: tool_list {\"all\":true} names those that there are"
	}
	return fmt.Sprintf("%s. Next: the tools of this domain are %s; tool_list {\"all\":true} names the others too", what,
		strings.Join(own, ", "))
}
