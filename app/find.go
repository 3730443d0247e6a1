package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
)

// A file that has not been imported has no id, and a chat must not see its path. So artifact.find gives each file a
// handle: an id that only that caller can use, and that reveals nothing. It is a keyed hash of caller and path, so
// the same file always has the same handle.

// FileHandle returns the handle of a file for a caller.
func FileHandle(key []byte, caller, path string) string {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "file-handle|%s|%s", caller, path)
	return plan.Handle("file_", m.Sum(nil))
}

// FindArgs are the arguments of artifact.find.
type FindArgs struct {
	Name      string `json:"name" min:"1" max:"128" arg:"" help:"A part of the name, or the sample or a tag of a batch's rows: their inputs and outputs."`
	ProjectID string `json:"project_id,omitzero" kind:"project" name:"project" help:"Only artifacts of this project (name or id)." placeholder:"NAME"`
	Limit     int    `json:"limit,omitzero" min:"1" max:"200" default:"50" help:"Maximum number to list (1 to 200)."`
	Cursor    string `json:"cursor,omitzero" max:"512" help:"Continue after an earlier page." placeholder:"CURSOR"`
}

// FoundFile is a file below an import root.
type FoundFile struct {
	FileID     string    `json:"file_id"`
	Name       string    `json:"name"`
	SizeBytes  int64     `json:"size_bytes"`
	ModifiedAt time.Time `json:"modified_at"`
}

// FoundArtifact is an artifact found by its name, or by the row of a batch whose run it belongs to.
type FoundArtifact struct {
	ArtifactDoc
	Sample string `json:"sample,omitempty"` // of that row; "S1 and others" where several have it
}

// FoundList is the answer of artifact.find: first artifacts, newest first, then files, by name.
type FoundList struct {
	CallRunID
	ArtifactsTotal int64           `json:"artifacts_total"`
	FilesTotal     int             `json:"files_total"` // all found, not only those listed
	Artifacts      []FoundArtifact `json:"artifacts"`
	Files          []FoundFile     `json:"files"`
	Note           string          `json:"note"` // why files may be missing; empty: the list is complete
	Cursor         *string         `json:"cursor"`
}

// findPage is the start of a page.
type findPage struct {
	Artifacts string `json:"a,omitzero"` // the ledger's cursor
	Done      bool   `json:"d,omitzero"` // no more artifacts
	Total     int64  `json:"n,omitzero"` // number of artifacts
	Files     int    `json:"f,omitzero"` // files shown on earlier pages
}

// put encodes the page as a cursor.
func (p findPage) put() *string {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	return &text
}

func readFindPage(cursor string) (p findPage, err error) {
	if cursor == "" {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil || p.Files < 0 {
		return p, fault.Invalid("", fault.Problem{Code: "LIST-CURSOR", Field: "cursor", Rule: "a cursor of an earlier answer",
			Msg: "not a valid cursor", Hint: "call again without a cursor"})
	}
	return p, nil
}

// finding returns the operation that finds things by name.
func (g *Gateway) finding() Operation {
	return Operation{
		ID: "artifact.find", Title: "Find files and artifacts by name", Verb: "artifact find",
		Description: "Finds artifacts and files not yet imported by a part of their name, or by the sample or tag of a batch. artifact.import " +
			"takes the file_id of a file.",
		Chat:   gate.Chat{Has: true, First: true, Bound: "limit", Most: 40, TextAlone: true},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview,
		Does: withProvenance(g, g.find),
	}
}

func (g *Gateway) find(ctx context.Context, c gate.Call, a FindArgs) (out FoundList, err error) {
	out = FoundList{Artifacts: []FoundArtifact{}, Files: []FoundFile{}}
	page, err := readFindPage(a.Cursor)
	if err != nil {
		return out, err
	}
	if a.Limit == 0 {
		a.Limit = listLimit
	}
	f := ledger.ArtifactFilter{Named: a.Name, Cursor: page.Artifacts, Limit: a.Limit}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return out, err
	}
	var ids []string
	next := findPage{Done: true, Total: page.Total, Files: page.Files}
	if !page.Done {
		list, err := g.Ledger.Artifacts(ctx, f)
		if err != nil {
			return out, err
		}
		for _, x := range list.Artifacts {
			out.Artifacts, ids = append(out.Artifacts, FoundArtifact{ArtifactDoc: docOf(x)}), append(ids, x.ID)
		}
		samples, err := g.Ledger.SamplesOf(ctx, a.Name, ids)
		if err != nil {
			return out, err
		}
		for i := range out.Artifacts {
			out.Artifacts[i].Sample = samples[out.Artifacts[i].ArtifactID]
		}
		next.Artifacts, next.Done, next.Total = list.Cursor, list.Cursor == "", list.Snapshot.Count
	}
	out.ArtifactsTotal = next.Total
	found, note, err := g.filesBelow(ctx, c, a.ProjectID, a.Name, artifact.Named(a.Name))
	if err != nil {
		return out, err
	}
	out.FilesTotal, out.Note = len(found), note
	if room := a.Limit - len(out.Artifacts); next.Done && room > 0 {
		for _, x := range found[min(page.Files, len(found)):min(page.Files+room, len(found))] {
			out.Files = append(out.Files, FoundFile{g.handleOf(c, x.Path), filepath.Base(x.Path), x.SizeBytes, x.ModifiedAt.UTC()})
		}
	}
	if next.Files += len(out.Files); !next.Done || next.Files < len(found) {
		out.Cursor = next.put()
	}
	return out, nil
}

// ownRights is the note of an answer to a user of this host: that user's own process searches for files and opens
// those it imports.
const ownRights = "files are listed by slurmgate's own command and chat, which read with your rights"

// filesBelow returns the files below the caller's import roots whose name contains part and whose path passes is,
// read with the caller's rights, and the reason why some may be missing.
func (g *Gateway) filesBelow(ctx context.Context, c gate.Call, projectID, part string, is func(path string) bool) (found []artifact.Found,
	note string, err error) {
	if !c.Caller.CanSomewhere(gate.CapGateway, gate.CapImport) {
		return nil, "files are not listed: the credentials have not the capability import", nil
	}
	project, err := c.Caller.Project([]string{gate.CapGateway, gate.CapImport}, projectID, g.Site.Gateway.DefaultProject)
	if err != nil {
		return nil, "files are not listed: the credentials may import nothing into this project", nil
	}
	scope := artifact.Scope{Project: project, Every: c.Caller.CanAll([]string{gate.CapGateway, gate.CapImport}, gate.All)}
	switch {
	case c.Caller.Method == gate.ByPeer:
		return nil, ownRights, nil
	}
	whole := true
	if g.UnixUser == nil {
		found, whole = g.Importer.Find(ctx, scope, is)
	} else if found, whole, err = g.findAs(ctx, c, scope, part); err != nil {
		if fault.KindOf(err).Retryable() {
			return nil, "", err
		}
		return nil, "files are not listed: " + fault.Prose(err), nil
	} else {
		found = slices.DeleteFunc(found, func(x artifact.Found) bool { return !is(x.Path) || !g.Importer.Takes(x.Path, scope) })
	}
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	if !whole {
		note = "there are too many files to look at all of them; give a longer part of the name"
	}
	for _, x := range found {
		g.handles.put(g.handleOf(c, x.Path), x.Path)
	}
	return found, note, nil
}

// findAs searches as the caller's Unix user on the first cluster that runs jobs as their callers.
func (g *Gateway) findAs(ctx context.Context, c gate.Call, scope artifact.Scope, part string) ([]artifact.Found, bool, error) {
	folders := g.Importer.Folders(scope)
	if len(folders) == 0 {
		return nil, true, nil
	}
	for _, s := range g.Site.Clusters() {
		switch user, err := g.unixUser(ctx, s.Name, c.Caller.Principal); {
		case err != nil:
			return nil, false, err
		case user != "":
			found, whole, err := g.FindAs(ctx, s.Name, user, folders, part)
			slices.SortStableFunc(found, func(a, b artifact.Found) int { return strings.Compare(filepath.Base(a.Path), filepath.Base(b.Path)) })
			return found, whole, err
		}
	}
	return nil, true, nil
}

func (g *Gateway) handleOf(c gate.Call, path string) string {
	return FileHandle(g.fileKey, c.Caller.Key(), path)
}

// fileOf returns the path of a handle that the caller received.
func (g *Gateway) fileOf(ctx context.Context, c gate.Call, id, project string) (string, error) {
	if path, ok := g.handles.path(id); ok && g.handleOf(c, path) == id {
		return path, nil
	}
	// The handle may come from an earlier process of the gateway.
	found, _, err := g.filesBelow(ctx, c, project, "", func(path string) bool { return g.handleOf(c, path) == id })
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return found[0].Path, nil
	}
	return "", fault.New(fault.NotFound, "file_not_found", "there is no file "+id+" for you to import").
		WithSteps(fault.Do("artifact.find", "name", "…"))
}

// importFound imports a file by its handle, as by its path, but reveals the path to no caller.
func (g *Gateway) importFound(ctx context.Context, c gate.Call, a ImportArgs, do func(ImportArgs) error) error {
	if a.Path != nil || a.Text != nil || a.Upload || a.Source != nil || a.InPlace || c.Caller.Body != nil {
		return fault.Invalid("", fault.Problem{Code: "IMPORT-SOURCE", Field: "file_id", Rule: "exactly one of path, text, upload and file_id",
			Msg: "file_id is given with another of them"})
	}
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return err
	}
	path, err := g.fileOf(ctx, c, a.FileID, project)
	if err != nil {
		return err
	}
	a.FileID, a.Path = "", &path
	return WithoutPath(do(a), path)
}

// WithoutPath replaces a file's path in an error by its name: a caller with a handle must not see the path.
func WithoutPath(err error, path string) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || path == "" {
		return err
	}
	hide := hiding(path)
	clean := *e
	clean.Msg, clean.Next, clean.Err = hide.Replace(e.Msg), hide.Replace(e.Next), nil
	clean.Problems = slices.Clone(e.Problems)
	for i := range clean.Problems {
		p := &clean.Problems[i]
		p.Msg, p.Rule, p.Hint = hide.Replace(p.Msg), hide.Replace(p.Rule), hide.Replace(p.Hint)
	}
	return &clean
}

func hiding(path string) *strings.Replacer {
	return strings.NewReplacer(path, filepath.Base(path), filepath.Dir(path), "the folder")
}

// HidePath is [WithoutPath] for an error that came through a socket.
func HidePath(e *gate.ErrorBody, path string) {
	if e == nil || path == "" {
		return
	}
	e.Message = hiding(path).Replace(e.Message)
	delete(e.Details, "problems") // the message has them all
}

// handles holds the paths of recent handles. Those of an earlier process of the gateway are found by another search.
type handles struct {
	mu    sync.Mutex
	paths map[string]string
}

const maxHandles = 50_000

func (h *handles) put(id, path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paths == nil || len(h.paths) >= maxHandles {
		h.paths = map[string]string{}
	}
	h.paths[id] = path
}

func (h *handles) path(id string) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.paths[id]
	return p, ok
}
