package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// A file that is imported by its path is opened here, with the rights of this program's user, and handed to the
// gateway.

// handOver opens the file that an import names. The path becomes the name that the open file has, which differs where
// the path has symlinks; the label stays that of the name given. With a token in the environment a file that cannot
// be opened here is left to the gateway, which may read it below an import root. So is one that is to stay in place,
// which may be on another host, or be a folder.
func handOver(args app.ImportArgs) (app.ImportArgs, *os.File, error) {
	f, err := openFile(*args.Path)
	if args.InPlace {
		return args, f, nil
	}
	if err != nil && os.Getenv(tokenVariable) != "" {
		return args, nil, nil
	}
	if err != nil {
		return args, nil, err
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		f.Close()
		return args, nil, fault.Wrap(fault.Internal, "", "the name of the open file cannot be read", err)
	}
	if given := filepath.Base(*args.Path); args.Label == "" && given != filepath.Base(name) && plan.CheckWord(given) == "" {
		args.Label = given
	}
	args.Path = &name
	return args, f, nil
}

// importPath imports a file by its path.
func (s *Session) importPath(ctx context.Context, args app.ImportArgs, result any) error {
	args, f, err := handOver(args)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	s.file = f
	defer func() { s.file = nil }()
	return s.call(ctx, "artifact.import", args, result)
}

// handOverIn opens the file that a chat's import names. Arguments that are not of that form are left to the gateway,
// which reports the error.
func handOverIn(req gate.Request) (gate.Request, *os.File, error) {
	var args app.ImportArgs
	if req.ToolID != "artifact.import" || plan.Decode(req.Args, &args) != nil {
		return req, nil, nil
	}
	args, err := args.Plain()
	if err != nil || args.Path == nil || !filepath.IsAbs(*args.Path) {
		return req, nil, nil
	}
	args, f, err := handOver(args)
	if f == nil || err != nil {
		return req, nil, err
	}
	if req.Args, err = json.Marshal(args); err != nil {
		f.Close()
		return req, nil, err
	}
	return req, f, nil
}
