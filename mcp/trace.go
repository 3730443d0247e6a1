package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
)

// traced says where an artifact came from: a line for each artifact, the one that was asked for first.
func traced(structured json.RawMessage) string {
	var a struct {
		Traced []struct {
			artifact
			Origin    string `json:"origin"`
			Reference string `json:"reference"`
			Removed   string `json:"removed"`
			CutOff    bool   `json:"cut_off"`
			MadeBy    *struct {
				RunID       string `json:"run_id"`
				OutputRole  string `json:"output_role"`
				ToolID      string `json:"tool_id"`
				ToolVersion string `json:"tool_version"`
				Inputs      []struct {
					Role       string `json:"role"`
					ArtifactID string `json:"artifact_id"`
				} `json:"inputs"`
				InputsTotal int `json:"inputs_total"`
			} `json:"made_by"`
		} `json:"traced"`
		Complete bool `json:"complete"`
	}
	_ = json.Unmarshal(structured, &a) // what cannot be decoded is left out
	var b strings.Builder
	for i, x := range a.Traced {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s, %s %s, ", x.ArtifactID, x.Type, cited(x.Label, 64))
		switch by := x.MadeBy; {
		case by != nil:
			fmt.Fprintf(&b, "is the output %s of %s (%s %s)", by.OutputRole, by.RunID, by.ToolID, by.ToolVersion)
			var from []string
			for _, in := range by.Inputs[:min(len(by.Inputs), chatTraced)] {
				from = append(from, in.Role+" "+in.ArtifactID)
			}
			if more := by.InputsTotal - len(from); more > 0 {
				from = append(from, fmt.Sprintf("%d more", more))
			}
			if len(from) > 0 {
				b.WriteString(", made from " + strings.Join(from, ", "))
			}
		case x.CutOff:
			b.WriteString("was made by a run that this answer leaves out: call artifact_trace with it")
		case x.Reference != "":
			b.WriteString("is the reference " + plain(x.Reference, 128))
		case x.Origin == "import":
			b.WriteString("was imported")
		case x.Origin == "arguments":
			b.WriteString("was made of a call's arguments")
		default:
			b.WriteString("is the site's reference data")
		}
		if x.Removed != "" {
			b.WriteString("; its bytes were removed")
		}
		b.WriteString(".")
	}
	if !a.Complete {
		b.WriteString("\nThis is not all of it: call artifact_trace with an artifact whose inputs are missing here.")
	}
	return b.String()
}
