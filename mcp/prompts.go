package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/gate"
	"slurmgate/plan"
)

// prompt is one of the common flows, offered to the person at the chat.
type prompt struct {
	name, title, description string
	arguments                []*sdk.PromptArgument
	text                     func(s *server, a map[string]string) string
}

func prompts() []prompt {
	run := &sdk.PromptArgument{Name: "run_id", Title: "Run", Description: "the run's id, run_…", Required: true}
	return []prompt{
		{"run_tool", "Run a tool", "Import inputs, run a tool on the cluster, and report the results.", []*sdk.PromptArgument{
			{Name: "tool", Title: "Tool", Description: "name of the tool", Required: true},
			{Name: "inputs", Title: "Inputs", Description: "paths or artifact ids of the inputs"},
		}, func(s *server, a map[string]string) string {
			in := "Ask me which files or artifacts to use as inputs."
			if a["inputs"] != "" {
				in = "Its inputs: " + plain(a["inputs"], 1024) + ". Import paths with artifact_import; use artifact ids unchanged."
			}
			return fmt.Sprintf("Run the tool %s on the cluster. %s Call the tool with the artifact ids, tell me the run id, and collect it with "+
				"slurm_job_collect. If it is not ready after two or three calls, "+
				"stop and tell me when to ask again. If it succeeded, show me a short preview of each output; if it failed, read slurm_job_logs and "+
				"explain why.", plain(a["tool"], 128), in)
		}},
		{"check_run", "Check a run", "Report the state of a run and what to do next.", []*sdk.PromptArgument{run},
			func(_ *server, a map[string]string) string {
				return fmt.Sprintf("Check %s with slurm_job_collect. Tell me its state in two or three sentences, and when to check again. If it is "+
					"finished, preview its outputs.", a["run_id"])
			}},
		{"explain_failure", "Explain a failure", "Find out why a run failed, and whether retrying makes sense.", []*sdk.PromptArgument{run},
			func(_ *server, a map[string]string) string {
				return fmt.Sprintf("Find out why %s failed: call slurm_job_get, then read slurm_job_logs (stream stderr, then log). Tell me the "+
					"cause, whether it is in the input, in the parameters or in the "+
					"cluster, and what to change. Do not retry or submit anything before I say so.", a["run_id"])
			}},
		{"find_artifact", "Find an artifact", "Search the artifacts.", []*sdk.PromptArgument{{Name: "what", Title: "What",
			Description: "description of the artifact", Required: true}}, func(_ *server, a map[string]string) string {
			return fmt.Sprintf("Search artifact_list for this: %s. Show me what matches, with id, type, label and size; ask me before you fetch "+
				"more than five pages.", plain(a["what"], 512))
		}},
	}
}

func (s *server) addPrompts(out *sdk.Server) {
	for _, p := range prompts() {
		out.AddPrompt(&sdk.Prompt{Name: p.name, Title: p.title, Description: p.description, Arguments: p.arguments}, func(ctx context.Context,
			r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			for _, a := range p.arguments {
				given := strings.TrimSpace(r.Params.Arguments[a.Name])
				switch {
				case a.Required && given == "":
					return nil, badArgument(p.name, a.Name, "is needed")
				case a.Name == "run_id" && !plan.IsRunID(given):
					return nil, badArgument(p.name, a.Name, "is not a run id (run_ and 26 characters)")
				case a.Name == "tool" && !slices.Contains(s.domainTools(ctx), given):
					return nil, badArgument(p.name, a.Name, "is not a tool of this gateway")
				}
			}
			return &sdk.GetPromptResult{Description: p.description, Messages: []*sdk.PromptMessage{{Role: "user",
				Content: &sdk.TextContent{Text: p.text(s, r.Params.Arguments)}}}}, nil
		})
	}
}

// domainTools returns the names of the domain's own tools that the caller sees.
func (s *server) domainTools(ctx context.Context) []string {
	var out []string
	for name, t := range s.visible(ctx) {
		if !slices.Contains(t.Capabilities, gate.CapGateway) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

const completions = 50

// complete offers values while a person types: tools for a prompt, recent runs, artifacts.
func (s *server) complete(ctx context.Context, r *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	var all []string
	var page struct {
		Runs []struct {
			RunID string `json:"run_id"`
		} `json:"runs"`
		Artifacts []artifact `json:"artifacts"`
	}
	if name := r.Params.Argument.Name; name == "tool" {
		all = s.domainTools(ctx)
	} else if list := map[string]string{"run_id": "run.list", "artifact_id": "artifact.list"}[name]; list != "" {
		if err := s.call(ctx, list, map[string]any{"limit": completions}, &page); err != nil {
			return nil, protocolError(err)
		}
	}
	for _, x := range page.Runs {
		all = append(all, x.RunID)
	}
	for _, x := range page.Artifacts {
		all = append(all, x.ArtifactID)
	}
	out := sdk.CompletionResultDetails{Values: []string{}}
	for _, v := range all {
		if strings.HasPrefix(v, r.Params.Argument.Value) && len(out.Values) < completions {
			out.Values = append(out.Values, v)
		}
	}
	out.Total = len(out.Values)
	return &sdk.CompleteResult{Completion: out}, nil
}
