package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
)

type artifactFindCmd struct {
	Name    string `arg:"" help:"A part of the name, or the sample or a tag of a batch's rows: their inputs and outputs."`
	Project string `help:"Only artifacts of this project (name or id)." placeholder:"NAME"`
	Limit   int    `help:"Maximum number to list (1 to 200)." default:"50"`
	Cursor  string `help:"Continue after an earlier page." placeholder:"CURSOR"`
}

// Run finds artifacts, and files below the import roots that this user can see.
func (c artifactFindCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var l app.FoundList
		args := app.FindArgs{Name: c.Name, ProjectID: c.Project, Limit: c.Limit, Cursor: c.Cursor}
		if err := s.call(ctx, "artifact.find", args, &l); err != nil {
			return err
		}
		files := app.NewOwnFiles(s.site)
		files.Fill(ctx, &l, c.Name, c.Limit)
		return a.show(l, func(w io.Writer) {
			list(w, "artifact|type|size|label|sample|created", l.Artifacts, func(d app.FoundArtifact) []string {
				return []string{d.ArtifactID, d.Type, bytesText(d.SizeBytes), clipLine(d.Label, 60), clipLine(d.Sample, 40), dateTime(d.CreatedAt)}
			})
			list(w, "file|size|modified", l.Files, func(f app.FoundFile) []string {
				name := f.Name
				if path, ok := files.Path(f.FileID); ok {
					name = path
				}
				return []string{name, bytesText(f.SizeBytes), dateTime(f.ModifiedAt)}
			})
			fmt.Fprintf(w, "%d of %d artifacts and %d of %d files have this in their name, or as sample or tag\n", len(l.Artifacts),
				l.ArtifactsTotal, len(l.Files), l.FilesTotal)
			if l.Note != "" {
				fmt.Fprintln(w, l.Note)
			}
			nextPage(w, l.Cursor, fault.Do("artifact.find", "name", c.Name, "cursor", text(l.Cursor)))
		})
	})
}

// fillFound adds this user's files to an answer of artifact.find.
func fillFound(ctx context.Context, files *app.OwnFiles, args, result json.RawMessage) json.RawMessage {
	var asked app.FindArgs
	var l app.FoundList
	if json.Unmarshal(args, &asked) != nil || json.Unmarshal(result, &l) != nil {
		return result
	}
	if asked.Limit == 0 {
		asked.Limit = 50
	}
	files.Fill(ctx, &l, asked.Name, asked.Limit)
	if more, err := json.Marshal(l); err == nil {
		return more
	}
	return result
}

// handOver opens the file that a chat's import names, by its path or by a handle, whose path is returned too.
func (c *Chat) handOver(req gate.Request) (out gate.Request, file *os.File, found string, err error) {
	var args map[string]json.RawMessage
	var id string
	if req.ToolID == "artifact.import" && json.Unmarshal(req.Args, &args) == nil && json.Unmarshal(args["file_id"], &id) == nil {
		if path, ok := c.files.Path(id); ok && len(args["path"]) == 0 {
			found = path
			delete(args, "file_id")
			if args["path"], err = json.Marshal(path); err == nil {
				req.Args, err = json.Marshal(args)
			}
			if err != nil {
				return req, nil, found, err
			}
		}
	}
	out, file, err = handOverIn(req)
	return out, file, found, err
}
