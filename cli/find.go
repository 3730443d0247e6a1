package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"

	"slurmgate/app"
	"slurmgate/gate"
)

type artifactFindCmd struct{ app.FindArgs }

// Run finds artifacts, and files below the import roots that this user can see.
func (c artifactFindCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var l app.FoundList
		if err := s.call(ctx, "artifact.find", c.FindArgs, &l); err != nil {
			return err
		}
		files := app.NewOwnFiles(s.site)
		files.Fill(ctx, &l, c.Name, c.Limit)
		return a.show(l, func(w io.Writer) {
			for i, f := range l.Files { // this user may know where they are
				if path, ok := files.Path(f.FileID); ok {
					l.Files[i].Name = path
				}
			}
			printDocument(w, l.Says(), c.FindArgs)
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
