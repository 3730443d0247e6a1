package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"slurmgate/fault"
	"slurmgate/gate"
)

// A file that is not imported yet has a handle, file_…, from artifact.find. A call that starts something takes it
// wherever it takes the id of an artifact: the file is imported first, by a call of artifact.import of the same
// caller, which the gate decides on and records like any other. So the tool gets artifact ids alone, and the same
// call again imports nothing a second time: content has one id.

const (
	handleForm   = `file_[0-9A-HJKMNP-TV-Z]{26}`
	artifactForm = `art_[0-9A-HJKMNP-TV-Z]{26}`

	importers  = 8  // files that are imported at a time
	namedFiles = 12 // of one call that its answer names
)

var (
	handleAlone = regexp.MustCompile(`"` + handleForm + `"`)   // a whole value
	handleIn    = regexp.MustCompile(handleForm + `\b`)        // also a cell of a sheet
	artifactID  = regexp.MustCompile(`"` + artifactForm + `"`) // a whole value
)

// takesFiles reports whether calls of a tool may name files by their handles.
func takesFiles(t gate.Tool) bool {
	switch {
	case t.SideEffect != gate.Execute || t.Chat.Handles == gate.NoHandles:
		return false
	case t.OfService():
		return bytes.Contains(t.Input, []byte(artifactForm))
	}
	return true
}

// takingFiles returns the schema of such a tool with handles in addition to the ids of artifacts.
func takingFiles(t gate.Tool) json.RawMessage {
	if !takesFiles(t) || slices.Contains(t.Capabilities, gate.CapGateway) {
		return t.Input
	}
	return bytes.ReplaceAll(t.Input, []byte(artifactForm), []byte("(art|file)"+strings.TrimPrefix(artifactForm, "art")))
}

// files are the files in a call, by their handles.
type files struct {
	ids []string // each once

	mu     sync.Mutex
	artIDs map[string]string          // of those that were imported
	labels map[string]string          // likewise
	wrong  map[string]*gate.ErrorBody // of those that were not
	open   []string                   // calls that import now, the oldest first
}

// filesOf finds the handles in the arguments of a call.
func filesOf(t gate.Tool, args json.RawMessage) *files {
	f := &files{artIDs: map[string]string{}, labels: map[string]string{}, wrong: map[string]*gate.ErrorBody{}}
	if !takesFiles(t) {
		return f
	}
	form := handleAlone
	if t.Chat.Handles == gate.HandlesInCells {
		form = handleIn
	}
	for _, id := range form.FindAllString(string(args), -1) {
		if id = strings.Trim(id, `"`); !slices.Contains(f.ids, id) {
			f.ids = append(f.ids, id)
		}
	}
	return f
}

// bring imports the files of a call and puts the ids of their artifacts into its arguments. Where one cannot be
// imported the call stays as it is, so that the gate refuses and records it; the error names the file.
func (s *server) bring(ctx context.Context, t gate.Tool, req *gate.Request, f *files) *gate.ErrorBody {
	if len(f.ids) == 0 || !s.cfg.Gateway.Visible(ctx, t) {
		return nil
	}
	project, err := s.projectOf(ctx, req.Args)
	if err != nil {
		return gate.BodyOf(s.words, err)
	}
	var workers errgroup.Group
	workers.SetLimit(importers)
	for _, id := range f.ids {
		workers.Go(func() error {
			s.importOne(ctx, *req, f, id, project)
			return nil
		})
	}
	_ = workers.Wait() // importOne keeps what went wrong in f
	if err := ctx.Err(); err != nil {
		return gate.BodyOf(s.words, fault.Wrap(fault.Canceled, "canceled", "the caller gave up", err))
	}
	if len(f.wrong) > 0 {
		return f.refused()
	}
	for _, id := range f.ids {
		req.Args = bytes.ReplaceAll(req.Args, []byte(id), []byte(f.artIDs[id]))
	}
	return nil
}

// projectOf returns the project that the files of a call belong to: the one it names, or that of an artifact among
// its inputs; "": the caller's default.
func (s *server) projectOf(ctx context.Context, args json.RawMessage) (string, error) {
	var a struct {
		ProjectID string `json:"project_id"`
	}
	_ = json.Unmarshal(args, &a) // what cannot be read the gate refuses
	id := strings.Trim(artifactID.FindString(string(args)), `"`)
	if a.ProjectID != "" || id == "" {
		return a.ProjectID, nil
	}
	err := s.call(ctx, "artifact.get", map[string]any{"artifact_id": id}, &a)
	if fault.KindOf(err).Retryable() {
		return "", err
	}
	return a.ProjectID, nil // the tool reports what is wrong with the id
}

// importOne imports a file for a call, as a part of its trace.
func (s *server) importOne(ctx context.Context, of gate.Request, f *files, id, project string) {
	if ctx.Err() != nil {
		return
	}
	args := map[string]any{"file_id": id}
	if project != "" {
		args["project_id"] = project
	}
	raw, err := json.Marshal(args)
	req := gate.NewRequest("artifact.import", s.now().ids["artifact.import"].Version, raw)
	req.TraceID, req.Actor, req.SessionID, req.ParentSpanID, req.DryRun = of.TraceID, of.Actor, of.SessionID, of.ParentSpanID, of.DryRun
	f.begin(req.ToolCallID)
	var res gate.Response
	if err == nil {
		res, err = s.cfg.Gateway.Call(ctx, req)
	}
	var got struct {
		artifact
		Would *artifact `json:"would"` // of a dry run
	}
	if err == nil && res.Error == nil {
		err = json.Unmarshal(res.Result, &got)
	}
	if got.Would != nil {
		got.artifact = *got.Would
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = slices.DeleteFunc(f.open, func(id string) bool { return id == req.ToolCallID })
	switch {
	case err != nil:
		f.wrong[id] = gate.BodyOf(s.words, err)
	case res.Error != nil:
		f.wrong[id] = res.Error
	default:
		f.artIDs[id], f.labels[id] = got.ArtifactID, got.Label
	}
}

func (f *files) begin(toolCallID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, toolCallID)
}

// refused returns the error of a call some of whose files were not imported: the problem with the first of them.
func (f *files) refused() *gate.ErrorBody {
	i := slices.IndexFunc(f.ids, func(id string) bool { return f.wrong[id] != nil })
	e := *f.wrong[f.ids[i]]
	which := f.ids[i] + " could not be imported"
	if n := len(f.wrong); n > 1 {
		which = fmt.Sprintf("%d of %d files could not be imported, for example %s", n, len(f.ids), f.ids[i])
	}
	e.Message = which + ", and nothing was started: " + e.Message
	return &e
}

// note adds to the answer of a call the artifacts of its files.
func (f *files) note(out *sdk.CallToolResult) {
	if len(f.artIDs) == 0 || len(out.Content) == 0 {
		return
	}
	text, ok := out.Content[0].(*sdk.TextContent)
	if !ok {
		return
	}
	var names []string
	for _, id := range f.ids[:min(len(f.ids), namedFiles)] {
		names = append(names, fmt.Sprintf("%s %q", f.artIDs[id], plain(f.labels[id], 64)))
	}
	text.Text += "\nImported for this call: " + strings.Join(names, ", ")
	if more := len(f.ids) - namedFiles; more > 0 {
		text.Text += fmt.Sprintf(" and %d more, which artifact_find lists by their names", more)
	}
	text.Text += "."
}

// far returns how many files are imported, with the part of the one that takes longest so far.
func (s *server) far(ctx context.Context, f *files) *sdk.ProgressNotificationParams {
	f.mu.Lock()
	done, open := len(f.artIDs)+len(f.wrong), slices.Clone(f.open)
	f.mu.Unlock()
	if len(open) == 0 {
		return nil
	}
	out := &sdk.ProgressNotificationParams{Progress: float64(done), Total: float64(len(f.ids)),
		Message: fmt.Sprintf("%d of %d files imported", done, len(f.ids))}
	if m := s.moved(ctx, open[0]); m != nil && m.TotalBytes > 0 {
		out.Progress += float64(m.DoneBytes) / float64(m.TotalBytes+1) // less than one
		out.Message += "; " + m.text()
	}
	return out
}
